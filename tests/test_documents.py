"""Strict YAML and JSON: what each scalar means, what is refused and where, and that nothing hangs or crashes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
import yaml

from roofplan.documents import DEEPEST, MOST_NODES, Document, parse_json, parse_yaml
from roofplan.errors import SpecError, show

if TYPE_CHECKING:
    from collections.abc import Callable

READERS = {"yaml": parse_yaml, "json": parse_json}


@pytest.fixture(params=["libyaml", "python"])
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both readers of PyYAML: with libyaml, and the one that is used where libyaml is missing."""
    if request.param == "python":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    return request.param


def refusal(text: str, language: str = "yaml") -> SpecError:
    """The error with which a text is refused, within a second."""
    started = time.monotonic()
    with pytest.raises(SpecError) as caught:
        READERS[language](text, "f")
    assert time.monotonic() - started < 1
    line = str(caught.value)
    assert line.isprintable()
    assert "Traceback" not in line
    return caught.value


# ------------------------------------------------------------------------------------------------ scalars


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e3", 1000.0),
        ("1e9", 1e9),
        ("4.8e12", 4.8e12),
        ("989e12", 989e12),
        ("5e-6", 5e-6),
        ("1.0e+9", 1e9),
        ("1.", 1.0),
        (".5", 0.5),
        ("-1.5E3", -1500.0),
        ("8192", 8192),
        ("+12", 12),
        ("-12", -12),
        ("010", 10),
        ("0x10", 16),
        ("0xfF", 255),
        ("0o10", 8),
        ("true", True),
        ("True", True),
        ("FALSE", False),
        ("null", None),
        ("Null", None),
        ("NULL", None),
        ("~", None),
        ("", None),
    ],
)
def test_a_plain_scalar_means_what_yaml_1_2_says(text: str, value: object, loader: str) -> None:
    read = parse_yaml(f"key: {text}\n", "f").data["key"]
    assert (type(read), read) == (type(value), value)


OLD_WORDS = ["no", "NO", "on", "yes", "off", "y", "n"]
OLD_NUMBERS = [
    "1_000",
    "1,000",
    "60:30",
    "1:30:00",
    "2024-09-12",
    "0b11",
    "-0x10",
    "0x",
    "1e",
    ".",
    "=",
    "<<",
    "nan",
    "٣",
]


@pytest.mark.parametrize("text", [*OLD_WORDS, *OLD_NUMBERS, "80 GB"])
def test_a_plain_scalar_of_no_other_kind_is_text(text: str, loader: str) -> None:
    assert parse_yaml(f"key: {text}\n", "f").data == {"key": text}


@pytest.mark.parametrize("text", ["1e3", "true", "null", "~", "010", "", ".inf", "<<", "2024-09-12"])
@pytest.mark.parametrize("quote", ["'", '"'])
def test_a_quoted_scalar_is_text(text: str, quote: str, loader: str) -> None:
    assert parse_yaml(f"key: {quote}{text}{quote}", "f").data == {"key": text}


@pytest.mark.parametrize("word", OLD_WORDS)
def test_words_that_were_booleans_once_may_be_keys(word: str) -> None:
    assert parse_yaml(f"{word}: 1", "f").data == {word: 1}


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("", None),
        ("# only a comment", None),
        ("---\na: 1\n...\n", {"a": 1}),
        ("a:\n- 1\n- {b: [2]}\n", {"a": [1, {"b": [2]}]}),
        ("a: |\n  x\n  y\n", {"a": "x\ny\n"}),
        ('a: "\\u00e9\\x1b"', {"a": "é\x1b"}),
        ("\ufeffa: 1", {"a": 1}),
    ],
)
def test_documents_become_plain_data(text: str, data: object, loader: str) -> None:
    assert parse_yaml(text, "f").data == data


# ------------------------------------------------------------------------------------------------ places


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("a: 1\nb:\n  - x\n  - c: 2\n", parse_yaml),
        ('{\n "a": 1,\n "b": [\n  "x",\n  {"c": 2}]}', parse_json),
    ],
    ids=["yaml", "json"],
)
def test_each_value_remembers_its_line_and_column(text: str, read: Callable[[str, str], Document]) -> None:
    document = read(text, "f")
    lines = text.split("\n")
    for path, value in [(("a",), "1"), (("b", 0), "x"), (("b", 1, "c"), "2")]:
        line, column = document.places[path]
        assert lines[line - 1][column - 1 :].lstrip('"').startswith(value)
        assert document.where(path) == f"f:{line}:{column}"


@pytest.mark.parametrize(("text", "read"), [("a: {b: 1}", parse_yaml), ('{"a": {"b": 1}}', parse_json)])
def test_what_is_absent_has_the_place_of_what_is_around_it(text: str, read: Callable[[str, str], Document]) -> None:
    document = read(text, "f")
    assert document.where(("a", "missing", 3)) == document.where(("a",))
    assert document.where(("missing",)) == document.where() == "f:1:1"


def test_a_document_without_places_has_a_name() -> None:
    assert Document({}, "f").where(("a",)) == "f"


# ------------------------------------------------------------------------------------------------ refusals

MERGED = "base: 1\n<<: {a: 1}"
DEEP_BLOCKS = "".join(f"{' ' * level}k:\n" for level in range(DEEPEST + 1)) + " " * (DEEPEST + 1) + "v: 1"


@pytest.mark.parametrize(
    ("text", "place", "fragment"),
    [
        ("a: 1\nb: 2\na: 3", "3:1", "the key 'a' a second time"),
        ("{a: 1, 'a': 2}", "1:8", "the key 'a' a second time"),
        ("x: {b: {c: 1, c: 2}}", "1:15", "the key 'c' a second time"),
        ("a: &x 1", "1:4", "an anchor (&x)"),
        ("a: &x [1]\nb: *x", "1:4", "an anchor (&x)"),
        ("a: 1\nb: *x", "2:4", "an alias (*x)"),
        ("&x [*x]", "1:1", "an anchor (&x)"),
        (MERGED, "2:1", "a merge key (<<)"),
        ("a: !!python/object/apply:os.system ['id']", "1:4", "a tag (tag:yaml.org,2002:python/object/apply:os.system)"),
        ("a: !!str 5", "1:4", "a tag (tag:yaml.org,2002:str)"),
        ("a: !mine 5", "1:4", "a tag (!mine)"),
        ("a: ! 5", "1:4", "a tag (!)"),
        ("!!map {a: 1}", "1:1", "a tag (tag:yaml.org,2002:map)"),
        ("a: 1\n---\nb: 2", "2:1", "a second document"),
        ("---\n---\n", "2:1", "a second document"),
        ("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), f"1:{DEEPEST + 1}", f"more than {DEEPEST} levels"),
        (DEEP_BLOCKS, f"{DEEPEST + 1}:{DEEPEST + 1}", f"more than {DEEPEST} levels"),
        ("a: .inf", "1:4", "got .inf, want a finite number"),
        ("a: -.INF", "1:4", "got -.INF, want a finite number"),
        ("a: .nan", "1:4", "got .nan, want a finite number"),
        ("a: .NaN", "1:4", "got .NaN, want a finite number"),
        ("a: 1.0e+400", "1:4", "1.0e+400, want a number within the range of a double"),
        ("a: 1" + "0" * 399, "1:4", "an integer of 400 digits"),
        ("a: 1" + "0" * 4_999, "1:4", "an integer of 5,000 digits"),
        ("a: 0x" + "f" * 5_000, "1:4", "an integer of 5,002 digits"),
        ("a: 1" + "0" * 4_999 + ".5", "1:4", "want a number within the range of a double"),
        ("1: a", "1:1", "a key that is not text"),
        ("true: a", "1:1", "a key that is not text"),
        ("~: a", "1:1", "a key that is not text"),
        ("? [a]\n: 1", "1:3", "a key that is not text"),
        ("{{a: 1}: 2}", "1:2", "a key that is not text"),
        ("\ta: 1", "1:1", "malformed YAML"),
        ("a:\n\tb: 1", "2:1", "malformed YAML"),
        ("a: [1, 2", "", "malformed YAML"),
        ("a: 'x", "", "malformed YAML"),
        ("a: b: c", "1:5", "malformed YAML"),
        ("a: @x", "1:4", "malformed YAML"),
        ("- a\nb: 1", "2:1", "malformed YAML"),
        ("a: é\nb: \x1b[31m", "2:4", "the character '\\x1b'"),
        ("a: \x00", "1:4", "the character '\\x00'"),
        ("a: \x7f", "1:4", "the character '\\x7f'"),
        ("a: \x9b", "1:4", "the character '\\x9b'"),
        ("a: \ud800", "1:4", "the character '\\ud800'"),
        ("a: \ufffe", "1:4", "the character '\\ufffe'"),
    ],
    ids=lambda text: show(text, 24),
)
def test_yaml_is_refused_at_its_place(text: str, place: str, fragment: str, loader: str) -> None:
    line = str(refusal(text))
    assert line.startswith(f"f:{place}:" if place else "f:")
    assert fragment in line


@pytest.mark.parametrize(
    ("text", "place", "fragment"),
    [
        ('{"a": 1, "a": 2}', "1:10", "the key 'a' a second time"),
        ('{"x":\n {"b": 1,\n  "b": 2}}', "3:3", "the key 'b' a second time"),
        ('{"\\u0061": 1, "a": 2}', "1:15", "the key 'a' a second time"),
        ("[NaN]", "1:2", "got NaN, want a finite number"),
        ('{"a": Infinity}', "1:7", "got Infinity, want a finite number"),
        ('{"a":\n-Infinity}', "2:1", "got -Infinity, want a finite number"),
        ("[1e999]", "1:2", "1e999, want a number within the range of a double"),
        ("[-1.5e400]", "1:2", "-1.5e400, want a number within the range of a double"),
        ("[1" + "0" * 399 + "]", "1:2", "an integer of 400 digits"),
        ("[1" + "0" * 4_999 + "]", "1:2", "an integer of 5,000 digits"),
        ("[" * 33 + "]" * 33, "1:33", "more than 32 levels"),
        ("[" * 100_000, "1:33", "more than 32 levels"),
        ('{"a":' * 100_000, "1:161", "more than 32 levels"),
        ('{"a": [1, 2', "1:12", "malformed JSON"),
        ('{"a"', "1:5", "malformed JSON (Expecting ':' delimiter)"),
        ('{"a": 1,}', "", "malformed JSON"),
        ("", "1:1", "malformed JSON (Expecting value)"),
        ("{'a': 1}", "1:2", "malformed JSON"),
        ('{"a": 1} x', "1:10", "malformed JSON (Extra data)"),
        ('{"a": 01}', "1:8", "malformed JSON"),
        ('["\x1b"]', "1:3", "malformed JSON"),
        ('["\\ud800"]', "1:2", "half of a surrogate pair"),
        ('["\ud800"]', "1:2", "half of a surrogate pair"),
        ('{"\\udfff": 1}', "1:2", "half of a surrogate pair"),
        ("// no\n{}", "1:1", "malformed JSON"),
    ],
    ids=lambda text: show(text, 24),
)
def test_json_is_refused_at_its_place(text: str, place: str, fragment: str) -> None:
    line = str(refusal(text, "json"))
    assert line.startswith(f"f:{place}:" if place else "f:")
    assert fragment in line


@pytest.mark.parametrize("language", READERS)
def test_a_file_as_deep_and_as_wide_as_allowed_is_read(language: str) -> None:
    assert READERS[language]("[" * DEEPEST + "]" * DEEPEST, "f").data
    assert len(READERS[language](f"[{','.join('1' * (MOST_NODES - 1))}]", "f").data) == MOST_NODES - 1


@pytest.mark.parametrize("language", READERS)
def test_too_many_values_are_refused(language: str) -> None:
    assert "more than 100,000 values" in str(refusal(f"[{','.join('1' * MOST_NODES)}]", language))


def test_an_alias_bomb_is_refused_before_it_grows(loader: str) -> None:
    levels = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    levels += [f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]" for i in range(20)]
    assert "an anchor (&a)" in str(refusal("\n".join(levels)))


MIB = 2**20
ENDLESS = {
    "brackets": "[" * MIB,
    "braces": "{a: " * (MIB // 4),
    "dashes": "- " * (MIB // 2),
    "question marks": "? " * (MIB // 2),
    "quotes": '"' * MIB,
    "anchors": "&a " * (MIB // 3),
    "aliases": "[" + "*a," * (MIB // 4),
    "tags": "!" * MIB,
    "directives": "%" * MIB,
    "the same key": "a:\n" * (MIB // 3),
    "other keys": "".join(f"k{i}: 1\n" for i in range(90_000)),
    "numbers": f"[{'1,' * (MIB // 2 - 2)}1]",
    "an integer": "1" * MIB,
    "a fraction": f"[0.{'1' * MIB}]",
    "commas": f"[{',' * MIB}",
    "many keys, one twice": "{" + ",".join(f'"k{i}": 1' for i in [*range(49_000), 48_999]) + "}",
    "an unclosed text": f'["{"a" * MIB}',
    "backslashes": f'["{chr(92) * MIB}',
    "words": f"[{'true,' * (MIB // 5)}]",
}


@pytest.mark.parametrize("language", READERS)
@pytest.mark.parametrize("name", ENDLESS)
def test_a_megabyte_of_one_thing_is_refused_fast(name: str, language: str) -> None:
    if name == "a fraction":
        assert READERS[language](ENDLESS[name], "f").data[0] == pytest.approx(1 / 9)
    else:
        refusal(ENDLESS[name], language)
