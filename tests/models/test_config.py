"""Typed access to a configuration's keys, and what no configuration may do: crash, hang, or be guessed."""

from __future__ import annotations

import copy
import json
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from published import PUBLISHED

from roofplan import models
from roofplan.documents import parse_json
from roofplan.errors import RoofplanError, SpecError, UnknownNameError
from roofplan.models.config import MOST_LAYERS, Config, families, family
from roofplan.models.spec import ModelSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CONFIGS = Path(__file__).parents[1] / "data" / "model_configs"
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 1000,
}


def config(**data: object) -> Config:
    """A configuration with these keys, a line each."""
    document = parse_json(json.dumps(data, indent=1), "c.json")
    return Config(document, document.data)


def model(**changes: object) -> ModelSpec:
    """A small Llama with other keys; a key of None is left out."""
    data = {key: value for key, value in {**LLAMA, **changes}.items() if value is not None}
    return models.from_document(parse_json(json.dumps(data, indent=1), "c.json"))


# ------------------------------------------------------------------------------------------------ access


def test_the_first_spelling_that_is_there_counts() -> None:
    keys = config(n_layer=3, num_layers=5)
    assert keys.count("num_hidden_layers", "n_layer", "num_layers") == 3
    assert keys.count("num_layers", "n_layer") == 5


def test_null_is_the_same_as_absent() -> None:
    keys = config(a=None, b=7, flag=None, text=None, list=None, map=None)
    assert keys.count("a", "b") == 7
    assert keys.optional("a") is None
    assert keys.flag("flag", default=True) is True
    assert keys.text("text", default="x") == "x"
    assert keys.items("list", 5) == []
    assert keys.mapping("map") == {}


def test_a_missing_count_is_not_guessed() -> None:
    with pytest.raises(
        SpecError, match=r"^c.json:1:1: a: got nothing, want a whole number \(roofplan does not guess it\)$"
    ):
        config().count("a", "b")


BAD_COUNTS = [0, -1, 1.5, True, False, "8", "", [], [1], {}, 2**53 + 1, 10**39, 1e300]


@pytest.mark.parametrize("value", BAD_COUNTS, ids=repr)
def test_a_count_is_a_whole_number_greater_than_zero(value: object) -> None:
    for read in (config(a=value).count, config(a=value).optional):
        with pytest.raises(SpecError, match=r"^c.json:2:7: a: got .*, want a whole number"):
            read("a")


def test_zero_is_a_count_where_the_family_says_so() -> None:
    assert config(a=0).optional("a", zero=True) == 0
    with pytest.raises(SpecError, match="want a whole number, zero or more"):
        config(a=-1).optional("a", zero=True)


def test_a_count_may_be_bounded() -> None:
    assert config(a=5).count("a", largest=5) == 5
    with pytest.raises(SpecError, match="a: got 6, want a whole number, at most 5"):
        config(a=6).count("a", largest=5)


@pytest.mark.parametrize(
    ("read", "good", "bad", "wanted"),
    [
        (lambda c: c.number("a", default=1), 2.5, [0, -1, 2**54, True, "2.5", [], {}], "a number greater than zero"),
        (lambda c: c.flag("a"), True, [0, 1, "true", [], {}], "true or false"),
        (lambda c: c.text("a", default=""), "x", [0, True, [], {}], "a text"),
        (lambda c: c.mapping("a"), {"b": 1}, [0, True, "x", []], "a mapping"),
        (lambda c: c.items("a"), [1, "x", None, 2.5, True], [0, True, "x", {}, [[1]], [{}]], "a list"),
        (lambda c: c.items("a", 2), [1, 2], [[], [1]], "one for each of 2 layers"),
        (lambda c: c.inside("a", 0).data, [{"b": 1}], [0, [], [1], ["x"], [[]]], ""),
    ],
    ids=["number", "flag", "text", "mapping", "items", "items of layers", "inside"],
)
def test_each_kind_of_value_is_checked(read: Callable[[Config], Any], good: Any, bad: list[Any], wanted: str) -> None:
    assert read(config(a=good)) in (good, {"b": 1})
    for value in bad:
        with pytest.raises(SpecError, match=rf"^c.json:2:7: a: got .*, want .*{wanted}"):
            read(config(a=value))


def test_an_error_inside_a_list_has_the_place_of_the_entry() -> None:
    with pytest.raises(SpecError, match=r"^c.json:4:9: b: got -1"):
        config(a=[{"b": -1}]).inside("a", 0).count("b")


def test_a_model_type_belongs_to_one_family() -> None:
    with pytest.raises(AssertionError, match="llama is registered twice"):
        family("llama")(lambda c: c)


# ------------------------------------------------------------------------------------------------ whole files


def test_the_small_llama_is_read() -> None:
    assert model().num_layers == 2
    assert model(num_hidden_layers=MOST_LAYERS).num_layers == MOST_LAYERS


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"num_hidden_layers": MOST_LAYERS + 1}, "num_hidden_layers: got 10001, want a whole number, at most 10,000"),
        ({"num_hidden_layers": 2**53}, "num_hidden_layers: got 9007199254740992, want a whole number, at most 10,000"),
        ({"num_hidden_layers": 0}, "num_hidden_layers: got 0, want a whole number, greater than zero"),
        ({"num_hidden_layers": -2}, "num_hidden_layers: got -2, want a whole number, greater than zero"),
        ({"num_hidden_layers": "2"}, "num_hidden_layers: got '2', want a whole number"),
        ({"num_attention_heads": 3, "num_key_value_heads": 3}, "head_dim: got nothing, want a head width: 64 does not divide"),
        ({"num_key_value_heads": 3}, "model_type llama: got 4 heads over 3 KV heads, want a multiple"),
        ({"hidden_size": None}, "hidden_size: got nothing, want a whole number (roofplan does not guess it)"),
        ({"vocab_size": None}, "vocab_size: got nothing, want a whole number"),
        ({"tie_word_embeddings": "false"}, "tie_word_embeddings: got 'false', want true or false"),
        ({"quantization_config": [1]}, "quantization_config: got [1], want a mapping"),
    ],
)  # fmt: skip
def test_a_fault_in_a_config_is_named_with_its_place(changes: dict[str, object], error: str) -> None:
    with pytest.raises(SpecError) as caught:
        model(**changes)
    assert error in str(caught.value)
    assert str(caught.value).startswith("c.json:")


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        ("lama", "did you mean llama"),
        ("qwen33", "did you mean qwen3"),
        ("", "Or describe the model in a spec"),
        (None, "Or"),
    ],
)
def test_an_unknown_architecture_is_answered_with_the_closest(kind: str | None, hint: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        model(model_type=kind)
    assert caught.value.hint.startswith(hint)
    assert caught.value.where.startswith("c.json:")
    assert len(str(caught.value)) < 400


def test_an_architecture_is_never_guessed_from_a_name() -> None:
    with pytest.raises(UnknownNameError):
        model(model_type=None, architectures=["LlamaForCausalLM"], _name_or_path="meta-llama/Llama-3.1-8B")


def test_nothing_of_a_repository_is_executed() -> None:
    spec = model(auto_map={"AutoConfig": "evil.py--Evil"}, trust_remote_code=True, torch_dtype="__import__('os')")
    assert spec == model()


# ------------------------------------------------------------------------------------------------ any family, any value

WRONG = [
    0,
    -1,
    1,
    3,
    7,
    2**53,
    10**29,
    10**6,
    1.5,
    1e300,
    True,
    False,
    "8",
    "",
    "\x1b[31m",
    [],
    [1],
    [None],
    [{}],
    {},
    {"a": 1},
]
DELETED = object()


def one_config_a_family() -> dict[str, dict[str, Any]]:
    """One published configuration for each model type that there is one of."""
    found: dict[str, dict[str, Any]] = {}
    for file in sorted(CONFIGS.glob("*.json")):
        data = json.loads(file.read_text())
        kind = data.get("model_type") or data.get("text_config", {}).get("model_type")
        if kind in families():
            found.setdefault(kind, data)
    for _, data in PUBLISHED.values():
        found.setdefault(data["model_type"], data)
    return found


FAMILIES = one_config_a_family()


def paths(data: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Paths of all values, of long lists the first two entries."""
    inner = data.items() if isinstance(data, dict) else enumerate(data[:2]) if isinstance(data, list) else ()
    for key, value in inner:
        yield (*path, key)
        yield from paths(value, (*path, key))


def changed(data: Any, path: tuple[str | int, ...], value: object) -> Any:
    """A copy in which one value is another, or gone."""
    copied = copy.deepcopy(data)
    inner = copied
    for key in path[:-1]:
        inner = inner[key]
    if value is DELETED:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return copied


def test_there_are_configs_of_most_families() -> None:
    assert len(FAMILIES) >= 0.8 * len(families())


@pytest.mark.parametrize("kind", FAMILIES)
def test_one_wrong_value_gives_a_model_or_an_error_with_a_place(kind: str) -> None:
    data = FAMILIES[kind]
    cases = [(path, value) for path in paths(data) for value in (*WRONG, DELETED)]
    chosen = random.Random(kind).sample(cases, min(60, len(cases)))
    for path, value in chosen:
        text = json.dumps(changed(data, path, value))
        started = time.monotonic()
        try:
            assert models.from_document(parse_json(text, "c.json")).num_layers > 0
        except RoofplanError as error:
            assert str(error).startswith("c.json:")  # noqa: PT017  # a model is as good an outcome
        assert time.monotonic() - started < 1
