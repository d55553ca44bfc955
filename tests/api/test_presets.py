"""Presets by name: each with its defaults, the options that each takes, and what is refused."""

from __future__ import annotations

import json

import pytest
from shapes import HA, M7, M8

import roofplan
from roofplan.api.presets import PRESETS, figure, names_of
from roofplan.errors import DomainError, RoofplanError, UnknownNameError

NAMED_BY_THE_ISSUE = {
    "cache-growth",
    "cache-steps",
    "batch-curve",
    "speculation",
    "attention-bytes",
    "prefix-ttft",
    "chunked-prefill",
    "moe-coverage",
}


def test_the_figures_of_the_issue_are_there() -> None:
    assert set(PRESETS) >= NAMED_BY_THE_ISSUE


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_draws_something_with_its_defaults(name: str) -> None:
    found = figure(name)
    assert found.name == name
    assert 1 <= len(found.panels) <= 2
    for panel in found.panels:
        assert panel.curves
        assert all(len(curve.x) >= 2 and list(curve.x) == sorted(curve.x) for curve in panel.curves)
        lines = {curve.name for curve in panel.curves if curve.look == "line"}
        assert {mark.curve for mark in panel.marks if mark.x is not None} <= lines
        for scale, values in (
            (panel.across, [x for curve in panel.curves for x in curve.x]),
            (panel.up, [y for curve in panel.curves for y in curve.y]),
        ):
            assert not scale.logarithmic or min(values) > 0
    said = json.loads(json.dumps(found.to_dict()))
    assert set(said["inputs"]) == {"name", *PRESETS[name].defaults}
    assert found.says == said["result"]["says"]
    assert found.explain()


@pytest.mark.parametrize("name", PRESETS)
def test_defaults_that_are_given_change_nothing(name: str) -> None:
    given = {option: value for option, value in PRESETS[name].defaults.items() if value}
    assert figure(name, **given).panels == figure(name).panels
    assert [option for option, _ in names_of(PRESETS[name])] == [
        f"--{option.replace('_', '-')}" for option in PRESETS[name].defaults
    ]


def test_lists_may_be_texts_numbers_or_iterables_and_specs_stand_for_names() -> None:
    one = figure("batch-curve", context="512, 4096", model=M7, hardware=HA)
    assert figure("batch-curve", context=[512, 4096], model=[M7], hardware=HA).panels == one.panels
    assert one.settings["model"] == "m7"
    assert len(figure("batch-curve", context=512).panels[0].curves) == 1
    assert [curve.name for curve in figure("cache-growth", model=[M7, M8]).panels[0].curves] == ["m7", "m8"]
    assert roofplan.figure("paged-waste", block_size=16).settings["block_size"] == 16


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("batch-curv", {}, "did you mean batch-curve"),
        ("", {}, "want one of cache-growth"),
        ("batch-curve", {"acceptance": "0.8"}, "no such option for batch-curve, which takes --model"),
        ("batch-curve", {"model": "llama-2-7b,llama-3.1-8b"}, "--model: got 2 of them, want one"),
        ("batch-curve", {"model": "llama-2-7c"}, "llama-2-7"),
        ("batch-curve", {"hardware": "h1000"}, "h100"),
        ("batch-curve", {"context": ""}, "--context: got an empty entry"),
        ("batch-curve", {"context": []}, "--context: got an empty entry"),
        ("batch-curve", {"context": "512,512"}, "--context: got 512 twice"),
        ("batch-curve", {"context": "1,2,3,4,5,6,7"}, "--context: got 7 of them, want 1 to 6"),
        ("batch-curve", {"context": "0"}, "--context"),
        ("batch-curve", {"context": "8k"}, "--context"),
        ("batch-curve", {"concurrency": "1"}, "concurrency: got 1"),
        ("batch-curve", {"weights": "int99"}, "int99"),
        ("cache-growth", {"context": "300"}, "context: got 300"),
        ("cache-steps", {"output": "1"}, "output: got 1"),
        ("prefix-ttft", {"cached": "2200"}, "got 2200"),
        ("paged-waste", {"block_size": "1"}, "block: got 1"),
        ("paged-waste", {"block_size": "16,32,64,128", "max_model_len": "1024,2048,4096"}, "at most 6 together"),
        ("speculation", {"acceptance": "1.2"}, "--acceptance: got 1.2"),
        ("speculation", {"draft_cost": "-1"}, "--draft-cost"),
        ("speculation", {"k": "0"}, "--k"),
        ("attention-bytes", {"model": "deepseek-v3"}, "heads of one width"),
        ("attention-variants", {"model": "deepseek-v3"}, "keys and values of heads"),
        ("moe-coverage", {"model": "llama-2-7b"}, "a model with routed experts"),
    ],
)
def test_what_is_refused(name: str, options: dict, said: str) -> None:
    with pytest.raises(RoofplanError) as caught:
        figure(name, **options)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_wrong_name_is_not_a_wrong_option() -> None:
    with pytest.raises(UnknownNameError):
        figure("nothing")
    with pytest.raises(DomainError):
        figure("moe-coverage", hardware="h100")
