"""Foreign text made printable, and errors as one line."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofplan.errors import (
    DomainError,
    ExitCode,
    LayoutError,
    QuantityError,
    RoofplanError,
    SpecError,
    UnknownNameError,
    show,
)

CONTROLS = [*range(0x20), *range(0x7F, 0xA0)]
BIDIRECTIONAL = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
INVISIBLE = [0x00AD, 0x200B, 0x200C, 0x200D, 0x2028, 0x2029, 0x2060, 0xFEFF, 0xFFF9, 0xE0001, 0xE0041]
SURROGATES = [0xD800, 0xDBFF, 0xDC00, 0xDCFF, 0xDFFF]
EVERYTHING = st.characters(min_codepoint=0, max_codepoint=sys.maxunicode, categories=None, exclude_categories=())


def is_harmless(text: str) -> bool:
    """Whether a terminal shows each character as one that takes its place and does nothing."""
    return all(unicodedata.category(character)[0] not in "CZ" or character == " " for character in text)


@pytest.mark.parametrize("code", CONTROLS)
def test_each_control_character_becomes_a_byte_escape(code: int) -> None:
    assert show(f"a{chr(code)}b") == f"a\\x{code:02x}b"


@pytest.mark.parametrize("code", BIDIRECTIONAL + INVISIBLE + SURROGATES)
def test_each_invisible_character_becomes_an_escape(code: int) -> None:
    expected = f"\\x{code:02x}" if code < 0x100 else f"\\u{{{code:x}}}"
    assert show(f"a{chr(code)}b") == f"a{expected}b"


@pytest.mark.parametrize("code", [0x00A0, 0x2003, 0x202F, 0x3000])
def test_spaces_of_other_widths_become_a_space(code: int) -> None:
    assert show(f"a{chr(code)}b") == "a b"


@given(st.text(EVERYTHING, max_size=200))
def test_what_is_shown_is_harmless_and_encodes(text: str) -> None:
    shown = show(text)
    assert is_harmless(shown)
    assert shown.encode("utf-8").decode("utf-8") == shown


@given(st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=100))
def test_printable_text_stays_as_it_is(text: str) -> None:
    assert show(text) == text


@given(st.text(EVERYTHING))
def test_showing_twice_changes_nothing(text: str) -> None:
    once = show(text, 10_000)
    assert show(once, 100_000) == once


@pytest.mark.parametrize("length", [119, 120, 121, 5_000, 1_000_000])
def test_long_text_is_cut_and_says_so(length: int) -> None:
    shown = show("x" * length)
    assert len(shown) == min(length, 120)
    assert shown.endswith("…") == (length > 120)


def test_the_cut_can_be_chosen() -> None:
    assert show("abcdef", 4) == "abc…"
    assert show("abcd", 4) == "abcd"


def test_an_integer_too_long_for_python_to_print_is_described() -> None:
    endless = 10**5_000
    for value, kind in ((endless, "int"), (-endless, "int"), ([endless], "list"), ({"a": endless}, "dict")):
        assert show(value) == f"a value of type {kind} too long to print"


@pytest.mark.parametrize(("value", "shown"), [(5, "5"), (True, "True"), (None, "None"), (1.5, "1.5"), ([1], "[1]")])
def test_other_values_are_shown_as_python_prints_them(value: object, shown: str) -> None:
    assert show(value) == shown


def test_an_error_names_place_subject_finding_wish_and_hint() -> None:
    error = SpecError("memory", got="80 gb", wanted="bytes", hint="80 GB?", where="a.yaml:12:7")
    assert str(error) == "a.yaml:12:7: memory: got 80 gb, want bytes (80 GB?)"


@pytest.mark.parametrize(
    ("parts", "line"),
    [
        ({}, "what"),
        ({"got": 3}, "what: got 3"),
        ({"got": 0}, "what: got 0"),
        ({"wanted": "less"}, "what: want less"),
        ({"hint": "try"}, "what (try)"),
        ({"where": "f"}, "f: what"),
        ({"got": "a", "hint": "try"}, "what: got a (try)"),
    ],
)
def test_parts_that_are_missing_leave_no_trace(parts: dict[str, object], line: str) -> None:
    assert str(RoofplanError("what", **parts)) == line


PART = st.text(EVERYTHING, max_size=300)


@given(PART, PART, PART, PART, PART)
def test_an_error_is_one_harmless_line(what: str, got: str, wanted: str, hint: str, where: str) -> None:
    line = str(RoofplanError(what, got=got, wanted=wanted, hint=hint, where=where))
    assert is_harmless(line)
    assert "\n" not in line


def test_an_error_has_a_bounded_length() -> None:
    endless = "\x1b" * 1_000_000
    error = RoofplanError(endless, got=endless, wanted=endless, hint=endless, where=endless)
    assert len(str(error)) < 8_000


def test_a_place_is_given_once() -> None:
    error = QuantityError("x", got="y")
    assert str(error.at("f:1:2")) == "f:1:2: x: got y"
    assert str(error.at("g:3:4")) == "f:1:2: x: got y"


@pytest.mark.parametrize("kind", [QuantityError, SpecError, UnknownNameError, LayoutError, DomainError])
def test_every_error_of_a_user_is_bad_input(kind: type[RoofplanError]) -> None:
    assert issubclass(kind, RoofplanError)
    assert kind("x").exit_code is ExitCode.BAD_INPUT


def test_exit_codes_are_those_that_scripts_rely_on() -> None:
    assert {code.name: int(code) for code in ExitCode} == {
        "YES": 0,
        "NO": 1,
        "BAD_INPUT": 2,
        "INTERNAL": 70,
        "INTERRUPTED": 130,
    }
