"""Broken GGUF files: each is refused in one line that names the fault, at once and in little memory; nothing else ever escapes."""

from __future__ import annotations

import os
import struct
import tempfile
from pathlib import Path
from typing import Any

import console
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from weight_files import (
    ARRAY,
    BOOL,
    F32,
    STRING,
    U64,
    Sides,
    attention,
    cost_of_refusing,
    entry,
    gguf,
    info,
    mlp,
    model_keys,
    model_tensors,
    norms,
    start,
    text,
    write,
)

from roofplan import models
from roofplan.errors import RoofplanError, SpecError
from roofplan.models.gguf import MOST_KEYS, MOST_STRINGS, MOST_TENSORS, read_gguf, read_header

FUZZ = Path(__file__).parent / "fuzz"
GOOD, _ = gguf(model_keys("llama", 32, 1, 2, 1), [("t", (32,), "F32")])

# ------------------------------------------------------------------------------------------------ hostile files


ONE = start(1, 0)
F16_ID, REMOVED_ID, UNKNOWN_ID = 1, 4, 99


def one_tensor(name: str | bytes = "t", sides: Sides = (32,), type_id: int = 0, offset: int = 0) -> bytes:
    return ONE + info(name, sides, type_id, offset) + bytes(512)  # bytes that are no text too


def one_key(content: bytes) -> bytes:
    return start(0, 1) + content + bytes(64)


def two_tensors(offset: int) -> bytes:
    return start(2, 0) + info("a", (32,), 0, 0) + info("b", (32,), 0, offset) + bytes(1024)


HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "got a file that does not begin with GGUF"),
    "other-magic": (b"GGML" + GOOD[4:], "got a file that does not begin with GGUF"),
    "only-magic": (b"GGUF", "got a file that does not begin with GGUF"),
    "version-0": (b"GGUF" + bytes(60), "GGUF version: got 0, want one of 2, 3"),
    "version-1": (start(0, 0, version=1), "GGUF version: got 1"),
    "version-4": (start(0, 0, version=4), "GGUF version: got 4"),
    "version-4-swapped": (start(0, 0, version=4, order=">"), "GGUF version: got 4"),
    "tensor-count-lies": (start(1000, 0), "tensor count: got 1000, want at most 0: 8 bytes are left"),
    "tensor-count-2-60": (start(2**60, 0), f"tensor count: got {2**60}, want a count, at most {MOST_TENSORS:,}"),
    "tensor-count-negative": (start(2**64 - 1, 0), "tensor count: got -1, want a count"),
    "key-count-lies": (start(0, 50_000), "metadata count: got 50000, want at most 0"),
    "key-count-2-63": (start(0, 2**63), f"metadata count: got -{2**63}, want a count, at most {MOST_KEYS:,}"),
    "key-endless": (one_key(struct.pack("<Q", 2**62)), "length of metadata key: got"),
    "key-beyond-the-file": (one_key(struct.pack("<Q", 60_000)), "metadata key: got 60000 bytes, want at most the 64"),
    "key-empty": (one_key(text("")), "metadata key: got an empty one"),
    "key-not-utf-8": (one_key(text(b"\xff\xfe")), "metadata key: got bytes that are not UTF-8"),
    "key-twice": (start(0, 2) + entry("a.b", 1) * 2, "a.b: got the key a second time"),
    "value-type-13": (one_key(text("k") + struct.pack("<I", 13)), "k: got value type 13, want one of 0 to 12"),
    "value-type-2-32": (one_key(text("k") + struct.pack("<I", 2**32 - 1)), "k: got value type 4294967295"),
    "value-bool-2": (one_key(text("k") + struct.pack("<IB", BOOL, 2)), "k: got the byte 2 for a yes/no value"),
    "value-cut": (start(0, 1) + text("kkkk") + struct.pack("<IB", U64, 0), "k: got 8 bytes, want at most the 1"),
    "text-endless": (
        one_key(text("k") + struct.pack("<IQ", STRING, 2**63)),
        f"k: got {2**63} bytes, want at most the 64",
    ),
    "text-2-64": (one_key(text("k") + struct.pack("<IQ", STRING, 2**64 - 1)), "k: got 18446744073709551615 bytes"),
    "array-of-arrays": (one_key(text("k") + struct.pack("<II", ARRAY, ARRAY)), "k: got an array of arrays"),
    "array-of-type-77": (one_key(text("k") + struct.pack("<II", ARRAY, 77)), "k: got an array of value type 77"),
    "array-endless": (
        one_key(text("k") + struct.pack("<IIQ", ARRAY, F32, 2**62)),
        f"length of k: got {2**62}, want at most 16",
    ),
    "array-2-64": (one_key(text("k") + struct.pack("<IIQ", ARRAY, F32, 2**64 - 1)), "length of k: got -1"),
    "texts-endless": (one_key(text("k") + struct.pack("<IIQ", ARRAY, STRING, 2**60)), f"length of k: got {2**60}"),
    "texts-beyond-the-file": (
        one_key(text("k") + struct.pack("<IIQQ", ARRAY, STRING, 2, 2**63)),
        "k: got a text that ends beyond the file",
    ),
    "alignment-0": (start(0, 1) + entry("general.alignment", 0), "general.alignment: got 0, want a power of two"),
    "alignment-48": (start(0, 1) + entry("general.alignment", 48), "general.alignment: got 48"),
    "alignment-2-40": (start(0, 1) + entry("general.alignment", 2**40), "general.alignment: got 1099511627776"),
    "alignment-text": (start(0, 1) + entry("general.alignment", "32"), "general.alignment: got '32'"),
    "alignment-array": (start(0, 1) + entry("general.alignment", [32]), "general.alignment: got an array"),
    "tensor-name-empty": (one_tensor(""), "tensor name: got an empty one"),
    "tensor-name-long": (one_tensor("n" * 64), "length of tensor name: got 64, want at most 63 bytes"),
    "tensor-name-not-utf-8": (one_tensor(b"\xc3"), "tensor name: got bytes that are not UTF-8"),
    "tensor-twice": (start(2, 0) + info("a", (32,), 0, 0) * 2 + bytes(512), "a: got the tensor a second time"),
    "dimensions-0": (one_tensor(sides=()), "t: got 0 dimensions, want 1 to 4"),
    "dimensions-5": (one_tensor(sides=(1, 1, 1, 1, 1)), "t: got 5 dimensions, want 1 to 4"),
    "dimensions-2-32": (ONE + text("t") + struct.pack("<I", 2**32 - 1) + bytes(64), "t: got 4294967295 dimensions"),
    "side-0": (one_tensor(sides=(32, 0)), "t: got sides 32 x 0, want sides greater than zero"),
    "side-2-42": (one_tensor(sides=(2**42 + 1,)), "t: got 17592186044420 bytes of data, want at most the"),
    "side-2-63": (one_tensor(sides=(2**63,)), "t: got sides 9223372036854775808"),
    "sides-overflow": (one_tensor(sides=(2**31, 2**31, 2**31, 2**31)), "t: got sides 2147483648 x 2147483648"),
    "sides-wrap-to-small": (one_tensor(sides=(2**32, 2**32 + 1)), "t: got sides 4294967296 x 4294967297"),
    "type-unknown": (one_tensor(type_id=UNKNOWN_ID), "t: got tensor type 99, want a known one"),
    "type-removed": (one_tensor(type_id=REMOVED_ID), "t: got tensor type 4, want a type that ggml still has"),
    "row-no-block": (one_tensor(sides=(33,), type_id=2), "t: got rows of 33, want a multiple of 32, the block of Q4_0"),
    "offset-unaligned": (one_tensor(offset=8), "t: got offset 8, want a multiple of the alignment, 32"),
    "offset-gap": (one_tensor(offset=64), "t: got offset 64, want 0 (there is a gap before it)"),
    "offset-overlap": (two_tensors(0), "b: got offset 0, want 128 (it overlaps the tensor before it)"),
    "offset-2-63": (two_tensors(2**63), f"b: got offset {2**63}, want 128"),
    "offset-2-64": (two_tensors(2**64 - 32), f"b: got offset {2**64 - 32}, want 128"),
    "truncated-data": (ONE + info("t", (32,), 0, 0) + bytes(100), "it is truncated, want 192 bytes"),
    "truncated-infos": (
        (start(2, 0) + info("a", (1,), 0, 0) + info("b", (1,), 0, 32))[:85],
        "b: got 8 bytes, want at most the 3 that are left",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_at_once(tmp_path: Path, name: str) -> None:
    content, wanted = HOSTILE[name]
    said, peak, seconds = cost_of_refusing(read_gguf, write(tmp_path / f"{name}.gguf", content))
    assert wanted in said
    assert said.startswith(str(tmp_path / f"{name}.gguf"))
    assert "\n" not in said
    assert peak < 16
    assert seconds < 1


def texts(count: int) -> bytes:
    """An array that says to hold so many texts, all of them empty."""
    return start(0, 1) + text("k") + struct.pack("<IIQ", ARRAY, STRING, count)


def many_keys(count: int, value: bytes, length: int = 4) -> bytes:
    """So many keys of this value, in a file that promises more."""
    return start(0, 3000) + b"".join(text(f"{i:0{length}}") + value for i in range(count))


BIG = 2**40  # a hole: the file says that it is a terabyte
CLAIMS: dict[str, tuple[bytes, str]] = {
    "tensors": (start(MOST_TENSORS, 0), "tensor name: got an empty one"),
    "keys": (start(0, MOST_KEYS), "metadata key: got an empty one"),
    "text": (one_key(text("k") + struct.pack("<IQ", STRING, 2**39)), "general.architecture: got nothing"),
    "numbers": (one_key(text("k") + struct.pack("<IIQ", ARRAY, F32, 2**37)), "general.architecture: got nothing"),
    "texts": (texts(2**36), f"more than {MOST_STRINGS:,} texts in arrays"),
    "as-many-texts-as-there-may-be": (texts(MOST_STRINGS), "general.architecture: got nothing"),
    "tensor-of-16-terabytes": (one_tensor(sides=(2**42,)), "t: got 17592186044416 bytes of data"),
    "tensor-that-fits": (one_tensor(sides=(2**36,)), "general.architecture: got nothing"),
    "many-kept-arrays": (many_keys(300, struct.pack("<IIQ", ARRAY, 0, 65_536) + bytes(65_536)), "got an empty one"),
    "many-kept-texts": (many_keys(400, struct.pack("<IQ", STRING, 65_536) + bytes(65_536)), "got an empty one"),
    "many-long-keys": (many_keys(300, struct.pack("<IB", 0, 0), 65_000), "more than 16,777,216 bytes of text"),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_files_that_claim_a_terabyte(tmp_path: Path, name: str) -> None:
    content, wanted = CLAIMS[name]
    try:
        path = write(tmp_path / "m.gguf", content, BIG)
    except OSError:
        pytest.skip("a file system without holes cannot hold a terabyte for this test")
    said, peak, seconds = cost_of_refusing(read_gguf, path)
    assert wanted in said
    assert peak < 256
    assert seconds < 1


def test_text_of_a_file_is_escaped(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        read_header(write(tmp_path / "m.gguf", one_tensor("\x1b]0;x\x07\u202e", sides=(0,))))
    assert "\x1b" not in str(caught.value)
    assert "\u202e" not in str(caught.value)


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", HOSTILE["side-0"][0])
    done = console.run("model", "show", str(path))
    assert (done.returncode, done.stdout) == (2, "")
    assert "t: got sides 32 x 0, want sides greater than zero" in " ".join(done.stderr.split())


@pytest.mark.parametrize("name", ["missing.gguf", "folder.gguf", "fifo.gguf", "\0.gguf"])
def test_what_is_not_a_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.gguf" / "inner").mkdir(parents=True)
    os.mkfifo(tmp_path / "fifo.gguf")
    with pytest.raises(SpecError, match=r"file: got|config\.json"):
        models.load(f"{tmp_path}/{name}")


# ------------------------------------------------------------------------------------------------ fuzzing


SMALL, SMALL_SIZE = gguf(
    model_keys("llama", 32, 1, 2, 1) | {"t": "text", "a": [1, 2], "s": ["x", "yz"], "b": [True]},
    model_tensors(32, 4, [attention(32, 32, 16) | mlp(32, 64) | norms(32)], "Q8_0"),
)


SCRATCH = Path(tempfile.mkdtemp()) / "m.gguf"


def check(content: bytes, size: int | None = None) -> None:
    """Read a file of this content: it gives a model, or an error of ours."""
    try:
        said = str(read_gguf(write(SCRATCH, content, size)))
    except RoofplanError as error:
        said = str(error)
    assert "\n" not in said


FUZZING = settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SAVED = sorted(FUZZ.glob("*.gguf"))


@pytest.mark.parametrize("path", SAVED, ids=lambda path: path.name)
def test_the_saved_corpus(path: Path) -> None:
    check(path.read_bytes())


@FUZZING
@given(st.binary(max_size=300))
@example(b"")
@example(b"GGUF")
@example(start(2**63, 2**63))
def test_any_bytes(content: bytes) -> None:
    check(content)
    check(b"GGUF" + struct.pack("<I", 3) + content, 4096)


@FUZZING
@given(st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.binary(min_size=1, max_size=9)), min_size=1, max_size=4))
@example([(8, b"\xff" * 8)])
@example([(16, b"\xff" * 8)])
@example([(4, b"\x00\x00\x00\x03")])
def test_good_files_with_bytes_overwritten(edits: list[tuple[int, bytes]]) -> None:
    content = bytearray(SMALL)
    for at, new in edits:
        content[at : at + len(new)] = new
    check(bytes(content), SMALL_SIZE)


@FUZZING
@given(st.integers(0, len(SMALL)), st.integers(0, len(SMALL)), st.binary(max_size=12))
def test_good_files_with_bytes_cut_and_put_in(begin: int, end: int, new: bytes) -> None:
    check(SMALL[:begin] + new + SMALL[end:], SMALL_SIZE)


numbers = st.one_of(st.integers(0, 300), st.sampled_from([2**31, 2**32 - 1, 2**53 + 1, 2**64 - 1]), st.floats(width=32))


@FUZZING
@given(
    st.dictionaries(st.sampled_from(sorted(set(model_keys("llama", 32, 1, 2, 1)) - {"general.architecture"})), numbers)
)
def test_good_files_with_other_numbers(changed: dict[str, Any]) -> None:
    keys = model_keys("llama", 32, 1, 2, 1) | {key: value for key, value in changed.items() if value == value}
    check(*gguf(keys, model_tensors(32, 4, [attention(32, 32, 16) | mlp(32, 64) | norms(32)], "Q8_0")))
