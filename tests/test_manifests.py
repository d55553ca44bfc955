"""Manifests of YAML: several documents, values that are repeated by name, mappings that are merged, and files that would grow without bounds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from roofplan.documents import parse_manifests
from roofplan.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable

COMPOSE = """\
x-base: &base
  image: vllm/vllm-openai:v0.19.0
  environment: &env {A: "1", B: [x, y]}
services:
  first:
    <<: *base
    image: mine
  second:
    environment: {<<: *env, A: "2"}
    <<: [*base, {image: never, restart: always}]
"""


@pytest.fixture(params=["libyaml", "python"])
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "python":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    return request.param


def datas(text: str) -> list[Any]:
    return [document.data for document in parse_manifests(text, "f.yaml")]


def refusal(text: str, name: str = "f.yaml") -> str:
    started = time.monotonic()
    with pytest.raises(SpecError) as caught:
        parse_manifests(text, name)
    assert time.monotonic() - started < 2
    assert str(caught.value).isprintable()
    return str(caught.value)


@pytest.mark.usefixtures("loader")
def test_documents_are_apart_and_empty_ones_are_left_out() -> None:
    documents = parse_manifests("# head\n---\na: 1\n---\n# nothing\n---\nb: 2\n...\n", "f.yaml")
    assert [document.data for document in documents] == [{"a": 1}, {"b": 2}]
    assert documents[1].where(("b",)) == "f.yaml:7:4"


@pytest.mark.parametrize("text", ["", "# only words\n", "---\n---\n"])
def test_a_file_may_hold_nothing(text: str) -> None:
    assert datas(text) == []


@pytest.mark.usefixtures("loader")
def test_values_are_repeated_and_mappings_merged() -> None:
    # https://yaml.org/type/merge.html: keys of the mapping itself win, then those of the mapping that is named first
    base = {"image": "vllm/vllm-openai:v0.19.0", "environment": {"A": "1", "B": ["x", "y"]}}
    second = {"environment": {"A": "2", "B": ["x", "y"]}, "image": base["image"], "restart": "always"}
    assert datas(COMPOSE) == [{"x-base": base, "services": {"first": {**base, "image": "mine"}, "second": second}}]


def test_places_are_where_a_value_is_written() -> None:
    document = parse_manifests(COMPOSE, "f.yaml")[0]
    assert document.where(("services", "first", "image")) == "f.yaml:7:12"
    assert (
        document.where(("services", "first", "environment", "B", 1)) == "f.yaml:3:37"
    )  # from the mapping that is merged
    text = "size: &size 4096\nothers: [1, *size]\ndeep: &deep {a: 1}\nmore: *deep\n"
    document = parse_manifests(text, "f.yaml")[0]
    assert document.where(("others", 1)) == "f.yaml:2:13"  # of an alias, where it stands
    assert document.where(("more",)) == "f.yaml:4:7"
    assert document.where(("more", "a")) == "f.yaml:3:17"


def test_a_quoted_merge_key_is_a_key() -> None:
    assert datas('{"<<": 1, a: 2}') == [{"<<": 1, "a": 2}]


def test_repeated_values_are_copies() -> None:
    first, second = datas("[&a {x: 1}, *a]")[0]
    assert first == second
    assert first is not second


def test_a_name_that_is_given_twice_means_the_last_one_before() -> None:
    assert datas("[&a 1, *a, &a 2, *a]") == [[1, 1, 2, 2]]


def test_names_end_with_their_document() -> None:
    assert "f.yaml:3:4: YAML: got an alias (*a)" in refusal("a: &a 1\n---\nb: *a\n")


@pytest.mark.usefixtures("loader")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1,\n", "f.yaml:2:1: malformed YAML"),
        ("a: 1\na: 2\n", "f.yaml:2:1: YAML: got the key 'a' a second time"),
        ("a: &a [*a]\n", "f.yaml:1:8: YAML: got an alias (*a), want the name of a value before it"),
        ("a: *b\n", "f.yaml:1:4: YAML: got an alias (*b)"),
        ("a: {<<: 1}\n", "f.yaml:1:9: YAML: got something else than a mapping to merge"),
        ("a: {<<: [{b: 1}, 2]}\n", "got something else than a mapping to merge"),
        ("{<<: {a: 1}, <<: {b: 2}}\n", "f.yaml:1:14: YAML: got the key '<<' a second time"),
        ("a: !env HOME\n", "f.yaml:1:4: YAML: got a tag (!env)"),
        ("a: !!python/object:os.system {}\n", "got a tag"),
        ("1: a\n", "got a key that is not text"),
        ("a: .inf\n", "got .inf, want a finite number"),
        ("a: \x1b[0m\n", "got the character '\\x1b'"),
        ("[" * 40 + "]" * 40, "got more than 32 levels"),
    ],
)
def test_what_is_refused_has_its_place(text: str, said: str) -> None:
    assert said in refusal(text)


def bomb(levels: int, width: int, form: Callable[[list[str]], str]) -> str:
    lines = ["a0: &a0 " + form(["x"] * width)]
    lines += [f"a{at}: &a{at} " + form([f"*a{at - 1}"] * width) for at in range(1, levels)]
    return "\n".join(lines) + "\n"


@pytest.mark.usefixtures("loader")
@pytest.mark.parametrize(
    "text",
    [
        bomb(9, 9, lambda parts: f"[{', '.join(parts)}]"),
        bomb(30, 2, lambda parts: f"[{', '.join(parts)}]"),
        bomb(20, 2, lambda parts: "{" + ", ".join(f"k{at}: {part}" for at, part in enumerate(parts)) + "}"),
        "a0: &a0 {" + ", ".join(f"k{at}: 1" for at in range(500)) + "}\nl:\n" + "- {<<: *a0}\n" * 5000,
        "".join(f"---\na: &a [{', '.join('x' * 300)}]\nb: [{', '.join(['*a'] * 300)}]\n" for _ in range(100)),
    ],
    ids=["billion laughs", "deep", "mappings", "merges", "documents"],
)
def test_a_file_that_would_grow_without_bounds_is_refused_quickly(text: str) -> None:
    assert "got more than 100,000 values" in refusal(text)


def test_a_chain_of_names_is_as_deep_as_what_it_means() -> None:
    chain = "a0: &a0 x\n" + "".join(f"a{at}: &a{at} [*a{at - 1}]\n" for at in range(1, 40))
    assert "got more than 32 levels" in refusal(chain)


def test_json_is_one_document_and_strict() -> None:
    assert [document.data for document in parse_manifests('{"a": [1]}', "f.json")] == [{"a": [1]}]
    assert "f.json:1:9: malformed JSON" in refusal('{"a": 1}}', "f.json")


scalars = st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.text("abc xyz<*&", max_size=6)
nested = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(nested, min_size=1, max_size=3))
def test_what_is_written_with_aliases_is_read_again(values: list[Any]) -> None:
    shared = [*values, {"again": values, "first": values[0]}]  # the same objects: the writer names them
    assert datas(yaml.safe_dump(shared)) == [shared]
