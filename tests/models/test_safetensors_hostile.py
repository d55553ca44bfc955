"""Broken safetensors files: each is refused in one line that names the fault, at once and in little memory."""

from __future__ import annotations

import json
import struct
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from safetensors_models import ENDS, LLAMA, config_of, repository
from weight_files import cost_of_refusing, laid_out, safetensors, write, write_safetensors

from roofplan import models
from roofplan.errors import RoofplanError, SpecError
from roofplan.models.safetensors import (
    INDEX,
    LARGEST_HEADER,
    MOST_COMMAS,
    MOST_TENSORS,
    read_safetensors_header,
    with_checkpoint,
)

FUZZ = Path(__file__).parent / "fuzz"


# ------------------------------------------------------------------------------------------------ hostile files


def one(dtype: Any = "U8", shape: Any = (4,), offsets: Any = (0, 4), size: int = 4, **more: Any) -> bytes:
    entry = {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}
    return safetensors({"t": entry}, size)


def two(begin: int, end: int, size: int) -> bytes:
    entry = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}
    return safetensors({"a": entry, "b": entry | {"shape": [end - begin], "data_offsets": [begin, end]}}, size)


ENTRY = '{"dtype":"U8","shape":[4],"data_offsets":[0,4]}'
HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "safetensors: got a file of 0 bytes"),
    "seven-bytes": (b"\x01" * 7, "safetensors: got a file of 7 bytes"),
    "length-0": (bytes(8), "got a file of 8 bytes, want 8 bytes and a header"),
    "length-a-terabyte": (
        struct.pack("<Q", 2**40) + b"{}",
        f"got a length of {2**40}, want at most {LARGEST_HEADER:,}",
    ),
    "length-2-64": (b"\xff" * 8 + b"{}", f"got a length of {2**64 - 1}"),
    "length-beyond-the-file": (struct.pack("<Q", 1000) + b"{}", "got a length of 1000, want at most the 2 bytes"),
    "not-an-object": (safetensors("[1, 2]"), "JSON: got something else, want an object that begins with {"),
    "space-in-front": (safetensors("  {}"), "JSON: got something else"),
    "malformed": (safetensors('{"a": '), "malformed JSON"),
    "not-utf-8": (safetensors(b'{"\xff": 1}'), "JSON: got bytes that are not UTF-8"),
    "half-a-surrogate": (safetensors('{"\\ud800": ' + ENTRY + "}", 4), "JSON: got bytes that are not UTF-8"),
    "nested-deeply": (safetensors('{"a":' + "[" * 100_000 + "]" * 100_000 + "}"), "JSON: got values nested too deeply"),
    "key-twice": (safetensors(f'{{"a": {ENTRY}, "a": {ENTRY}}}', 4), "JSON: got the key 'a' a second time"),
    "inner-key-twice": (safetensors('{"a": {"dtype": "U8", "dtype": "U8"}}', 4), "got the key 'dtype' a second time"),
    "not-a-number": (
        safetensors('{"a": {"dtype": "U8", "shape": [NaN], "data_offsets": [0, 4]}}', 4),
        "got the number NaN",
    ),
    "infinite": (
        safetensors('{"a": {"dtype": "U8", "shape": [1e999], "data_offsets": [0, 4]}}', 4),
        "the number 1e999",
    ),
    "fraction": (one(shape=(4.0,)), "JSON: got the number 4.0, want whole numbers"),
    "integer-of-5000-digits": (safetensors('{"a": ' + "9" * 5000 + "}"), "JSON: got the number 99"),
    "entry-a-number": (safetensors({"t": 5}), "t: got something else, want dtype, shape and data_offsets"),
    "entry-without-a-key": (safetensors({"t": {"dtype": "U8", "shape": [4]}}, 4), "t: got something else, want dtype"),
    "dtype-unknown": (one(dtype="F5"), "t: got dtype 'F5', want one of F4"),
    "dtype-a-list": (one(dtype=["U8"]), "t: got dtype ['U8']"),
    "shape-negative": (one(shape=(-4,)), "t: shape: got something else, want a list of whole numbers"),
    "shape-a-text": (one(shape="4"), "t: shape: got something else"),
    "shape-true": (one(shape=(True,)), "t: shape: got something else"),
    "shape-overflow": (one(shape=(2**32, 2**32)), "t: got shape 4294967296 x 4294967296, want fewer than 2^63 bits"),
    "shape-2-62": (one(dtype="F64", shape=(2**62,)), "want fewer than 2^63 bits"),
    "half-a-byte": (
        one(dtype="F4", shape=(3,), offsets=(0, 1), size=1),
        "t: got 3 elements of 4 bits, want whole bytes",
    ),
    "offsets-short": (one(offsets=(0, 3), size=3), "t: got data_offsets [0, 3], want a begin and an end 4 bytes later"),
    "offsets-reversed": (one(offsets=(4, 0)), "t: got data_offsets [4, 0]"),
    "offsets-three": (one(offsets=(0, 4, 8)), "t: got data_offsets [0, 4, 8]"),
    "offsets-one": (one(offsets=(0,)), "t: got data_offsets [0]"),
    "offsets-beyond-the-file": (
        one(shape=(2**40,), offsets=(0, 2**40)),
        f"got a file of 96 bytes, want {2**40 + 92}, the end of the last tensor",
    ),
    "hole-in-front": (one(offsets=(4, 8), size=8), "t: got data from 4: a hole before it, want data from 0"),
    "hole": (two(8, 12, 12), "b: got data from 8: a hole before it, want data from 4"),
    "overlap": (two(2, 6, 6), "b: got data from 2: an overlap with the tensor before it, want data from 4"),
    "data-missing": (one(size=3), "safetensors: got a file of"),
    "data-left-over": (one(size=5), "safetensors: got a file of"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_at_once(tmp_path: Path, name: str) -> None:
    content, wanted = HOSTILE[name]
    said, peak, seconds = cost_of_refusing(read_safetensors_header, write(tmp_path / f"{name}.safetensors", content))
    assert wanted in said
    assert said.startswith(str(tmp_path / f"{name}.safetensors"))
    assert "\n" not in said
    assert peak < 16
    assert seconds < 1


MANY = ",".join(f'"{i:x}":{{}}' for i in range(MOST_TENSORS))
LARGE: dict[str, tuple[str, str]] = {
    "many-entries": ("{" + MANY + "}", "0: got something else"),
    "too-many-entries": (
        "{" + '"":{},' * (MOST_TENSORS + 9) + "}",
        f"JSON: got more than {MOST_TENSORS + 2:,} times {{",
    ),
    "too-many-numbers": ('{"":[' + "1," * (MOST_COMMAS + 1) + "]}", f"JSON: got more than {MOST_COMMAS:,} times ,"),
    "many-numbers": ('{"":[' + "1," * (MOST_COMMAS - 9) + "1]}", ": got something else"),
    "too-many-lists": (
        '{"":[' + "[]," * (2 * MOST_TENSORS) + "]}",
        f"JSON: got more than {2 * MOST_TENSORS:,} times [",
    ),
    "one-long-text": ('{"":"' + "x" * (LARGEST_HEADER - 10) + '"}', ": got something else"),
    "wide-characters": ('{"":"' + "x" * 2**25 + '\U0001f600"}', "bytes that are not all ASCII"),
    "digits": ('{"":' + "9" * 2**25 + "}", "JSON: got the number 99"),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_headers_cost_little(tmp_path: Path, name: str) -> None:
    content, wanted = LARGE[name]
    said, peak, seconds = cost_of_refusing(
        read_safetensors_header, write(tmp_path / "m.safetensors", safetensors(content))
    )
    assert wanted in said
    assert peak < 256
    assert seconds < 1


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ({}, "weight_map: got nothing, want a mapping of tensors to files"),
        ({"weight_map": []}, "weight_map: got nothing"),
        ({"weight_map": {"t": 5}}, "weight_map: got 5, want the plain name of a .safetensors file"),
        ({"weight_map": {"t": "../m.safetensors"}}, "weight_map: got ../m.safetensors, want the plain name"),
        ({"weight_map": {"t": "/etc/m.safetensors"}}, "weight_map: got /etc/m.safetensors"),
        ({"weight_map": {"t": "a\\m.safetensors"}}, "weight_map: got a\\m.safetensors"),
        ({"weight_map": {"t": "..safetensors"}}, "weight_map: got ..safetensors"),
        ({"weight_map": {"t": "m.bin"}}, "weight_map: got m.bin"),
        ({"weight_map": {"t": "m.safetensors\n"}}, "weight_map: got m.safetensors\\x0a"),
        (
            {"weight_map": {str(i): f"{i}.safetensors" for i in range(5)}},
            "weight_map: got no 0.safetensors, 1.safetensors, 2.safetensors and 2 more, want all 5 shards",
        ),
        ({"weight_map": {"absent": "model.safetensors"}}, "weight_map: got absent, which no shard has"),
        ("{", "malformed JSON"),
    ],
)
def test_an_index_that_is_wrong(tmp_path: Path, index: Any, said: str) -> None:
    repository(tmp_path, LLAMA)
    (tmp_path / INDEX).write_text(index if isinstance(index, str) else json.dumps(index))
    for name in (tmp_path, tmp_path / INDEX):
        with pytest.raises(SpecError) as caught:
            models.load(str(name))
        assert said in str(caught.value)
        assert str(tmp_path / INDEX) in str(caught.value)


def test_a_tensor_in_two_files(tmp_path: Path) -> None:
    repository(tmp_path, LLAMA)
    write_safetensors(tmp_path / "other.safetensors", ENDS)
    with pytest.raises(SpecError, match=r"got the tensor in two files, want each tensor once"):
        models.load(str(tmp_path))


# ------------------------------------------------------------------------------------------------ fuzzing

SMALL_ENTRIES, SMALL_SIZE = laid_out({"a": ("BF16", (2, 3)), "b": ("U8", (5,)), "c": ("F32", ())})
SMALL = safetensors({"__metadata__": {"format": "pt"}} | SMALL_ENTRIES)
SCRATCH = Path(tempfile.mkdtemp()) / "m.safetensors"


def check(content: bytes, size: int | None = None) -> None:
    """Read a file of this content: it gives tensors, or an error of ours."""
    try:
        said = str(with_checkpoint(config_of(), write(SCRATCH, content, size)))
    except RoofplanError as error:
        said = str(error)
    assert "\n" not in said


FUZZING = settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("path", sorted(FUZZ.glob("*.safetensors")), ids=lambda path: path.name)
def test_the_saved_corpus(path: Path) -> None:
    check(path.read_bytes())


@FUZZING
@given(st.binary(max_size=200))
@example(b"")
@example(b"\xff" * 16)
def test_any_bytes(content: bytes) -> None:
    check(content)
    check(safetensors(content))
    check(safetensors(b"{" + content + b"}"))


@FUZZING
@given(st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.binary(min_size=1, max_size=4)), min_size=1, max_size=4))
@example([(0, b"\xff" * 8)])
def test_good_files_with_bytes_overwritten(edits: list[tuple[int, bytes]]) -> None:
    content = bytearray(SMALL)
    for at, new in edits:
        content[at : at + len(new)] = new
    check(bytes(content), len(SMALL) + SMALL_SIZE)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@FUZZING
@given(st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets", "x"]), anything), st.sampled_from("abz"))
@example({"shape": [0]}, "a")
@example({"data_offsets": [0, 2**64]}, "a")
def test_good_files_with_other_values(changed: dict[str, Any], name: str) -> None:
    entries = {**SMALL_ENTRIES, name: {**SMALL_ENTRIES.get(name, {}), **changed}}
    content = safetensors(entries)
    check(content, len(content) + SMALL_SIZE)
