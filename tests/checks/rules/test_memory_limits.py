"""Limits of memory: each verdict flips exactly where the planner's figure, as ``roofplan size`` gives it, crosses the limit."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

import roofplan
from roofplan.checks.checked import Checked
from roofplan.checks.record import Place, Said, Service
from roofplan.checks.rules import all_rules

RULES = {rule.id: rule for rule in all_rules()}
PLACE = Place("limits.yaml", 12, 3)


def said(value: Any) -> Said[Any]:
    return Said(value, PLACE)


def service(options: dict[str, Any], limits: dict[str, Any]) -> Service:
    named = {name: said(value) for name, value in options.items() if name != "engine"}
    stated = {name: said(value) for name, value in limits.items()}
    return Service(
        kind="deployment", name="x", place=PLACE, engine=said(options["engine"]), options=named, limits=stated
    )


def missed(rule: str, options: dict[str, Any], **limits: Any) -> bool:
    found = list(RULES[rule].check(Checked(service(options, limits))))
    assert all(one.place == PLACE and one.severity == "error" for one in found)
    return bool(found)


@st.composite
def deployments(draw: st.DrawFn) -> dict[str, Any]:
    """Options of deployments of which at least one sequence fits."""
    options: dict[str, Any] = {
        "model": draw(
            st.sampled_from(["llama-3.1-8b", "qwen2.5-7b", "gemma-2-9b", "mixtral-8x7b", "deepseek-v2-lite"])
        ),
        "hardware": draw(st.sampled_from(["h100-sxm", "l40s", "a100-40gb", "mi300x"])),
        "engine": draw(st.sampled_from(["plain", "vllm@0.19", "vllm@0.26", "sglang@0.5", "llama.cpp"])),
        "tp": draw(st.sampled_from([1, 2, 4])),
        "dp": draw(st.sampled_from([1, 2])),
        "kv": draw(st.sampled_from(["bf16", "fp8"])),
        "prompt": draw(st.integers(1, 6000)),
        "output": draw(st.integers(1, 2000)),
        "concurrency": draw(st.integers(1, 300)),
        "max_model_len": draw(st.integers(8000, 8192)),
    }
    if draw(st.booleans()):
        options["max_num_seqs"] = draw(st.integers(1, 400))
    return options


def sized(options: dict[str, Any]) -> dict[str, Any]:
    """What ``roofplan size`` says of it; only deployments that have room for one sequence are looked at."""
    given_options = {name: value for name, value in options.items() if name not in {"model", "hardware"}}
    result: dict[str, Any] = roofplan.size(options["model"], options["hardware"], **given_options).to_dict()["result"]
    assume(
        not {"weights_exceed_memory", "kv_less_than_one_sequence", "max_model_len_exceeds_cache"}
        & set(result["reasons"])
    )
    return result


EXAMPLES = settings(max_examples=60, deadline=None)


@EXAMPLES
@given(deployments())
def test_headroom(options: dict[str, Any]) -> None:
    free = sized(options)["memory"]["free_bytes"]
    assert not missed("headroom-missed", options, headroom=free)
    assert missed("headroom-missed", options, headroom=free + 1)


@EXAMPLES
@given(deployments())
def test_context(options: dict[str, Any]) -> None:
    longest = sized(options)["capacity"]["max_context"]
    assert not missed("context-limit-missed", options, context=longest)
    assert missed("context-limit-missed", options, context=longest + 1)


@EXAMPLES
@given(deployments())
def test_concurrency(options: dict[str, Any]) -> None:
    most = sized(options)["capacity"]["max_concurrency"]
    assert not missed("concurrency-limit-missed", options, concurrency=most)
    assert missed("concurrency-limit-missed", options, concurrency=most + 1)


@EXAMPLES
@given(deployments())
def test_fits(options: dict[str, Any]) -> None:
    sized(options)
    named = {name: value for name, value in options.items() if name not in {"model", "hardware"}}
    solution = roofplan.size(options["model"], options["hardware"], solve="max-concurrency", **named).solution
    assume(solution is not None and solution.answer is not None)
    most = int(solution.answer)
    assume(most < 2**20)  # where the search ends
    assert not missed("does-not-fit", {**options, "concurrency": most}, fits=True)
    assert missed("does-not-fit", {**options, "concurrency": most + 1}, fits=True)
    assert not missed("does-not-fit", {**options, "concurrency": most + 1}, fits=False)
