"""Any text at all, given to the readers: plain data or an error of one line, and nothing else."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from roofplan import hardware, models
from roofplan.documents import Document, parse_json, parse_yaml
from roofplan.errors import RoofplanError

if TYPE_CHECKING:
    from collections.abc import Callable

YAML_PIECES = [
    "a",
    ": ",
    "- ",
    "\n",
    "  ",
    "[",
    "]",
    "{",
    "}",
    ",",
    "&x ",
    "*x",
    "!t ",
    "'",
    '"',
    "|\n",
    ">\n",
    "#",
    "? ",
]
YAML_PIECES += [
    "---\n",
    "...\n",
    "<<",
    "%YAML 1.1\n",
    "1e400",
    ".inf",
    "0x1",
    "\t",
    "\\",
    "\\U00110000",
    "\\x",
    "\x1b",
    "é",
]
JSON_PIECES = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    '"a"',
    '"',
    "\\u",
    "\\ud800",
    "1",
    "-",
    "1e999",
    "NaN",
    "Infinity",
    "null",
    " ",
]
YAML_TEXTS = st.one_of(st.text(), st.lists(st.sampled_from(YAML_PIECES), max_size=40).map("".join))
JSON_TEXTS = st.one_of(st.text(), st.lists(st.sampled_from(JSON_PIECES), max_size=40).map("".join))


def is_plain(data: Any) -> bool:
    """Whether data is made of mappings with text keys, lists, text, finite numbers, booleans and null."""
    if isinstance(data, dict):
        return all(isinstance(key, str) and is_plain(value) for key, value in data.items())
    if isinstance(data, list):
        return all(is_plain(value) for value in data)
    return data is None or isinstance(data, (bool, int, str)) or (isinstance(data, float) and math.isfinite(data))


def read_or_refused(read: Callable[[str, str], Document], text: str) -> None:
    """Read a text: the outcome is plain data or an error of one line, and nothing else."""
    try:
        data = read(text, "f").data
    except RoofplanError as error:
        data = None if str(error).isprintable() else math.nan
    assert is_plain(data)


@given(YAML_TEXTS)
@settings(max_examples=300, deadline=None)
def test_any_text_is_yaml_or_refused(text: str) -> None:
    read_or_refused(parse_yaml, text)


@given(YAML_TEXTS)
@settings(max_examples=300, deadline=None)
def test_any_text_is_yaml_or_refused_without_libyaml_too(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(yaml, "CSafeLoader", raising=False)
        read_or_refused(parse_yaml, text)


@given(JSON_TEXTS)
@settings(max_examples=300, deadline=None)
def test_any_text_is_json_or_refused(text: str) -> None:
    read_or_refused(parse_json, text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)  # fmt: skip


@given(VALUES, st.sampled_from([None, 1]), st.booleans())
def test_what_json_writes_is_read_back(value: Any, indent: int | None, ascii_only: bool) -> None:
    assert parse_json(json.dumps(value, indent=indent, ensure_ascii=ascii_only), "f").data == value


KEYS = [
    "schema",
    "name",
    "layers",
    "count",
    "attention",
    "mlp",
    "kind",
    "memory",
    "peak",
    "model_type",
    "hidden_size",
    "sources",
]
KEYS += [
    "num_hidden_layers",
    "num_attention_heads",
    "text_config",
    "quantization_config",
    "vocab_size",
    "evidence",
    "ids",
]
WORDS = [
    "roofplan/model/v1",
    "roofplan/hardware/v1",
    "llama",
    "qwen3",
    "full",
    "gated",
    "moe",
    "80 GB",
    "1 TB/s",
    "bf16",
]
SPEC_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 10**6) | st.just(2**53) | st.floats(-1, 1) | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
    max_leaves=30,
)
SPECS = st.dictionaries(st.sampled_from(KEYS), SPEC_VALUES, max_size=12)


@pytest.mark.parametrize("from_document", [models.from_document, hardware.from_document])
@given(data=st.one_of(SPEC_VALUES, SPECS))
@settings(max_examples=300, deadline=None)
def test_any_data_is_a_spec_or_refused(from_document: Callable[[Document], object], data: Any) -> None:
    try:
        from_document(Document(data, "f"))
    except RoofplanError as error:
        assert str(error).startswith("f: ")  # noqa: PT017  # a spec is as good an outcome
