"""Advice as a whole: what holds for every lever of every deployment, the order of levers, and that gains are ratios of sizings."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from levers import choices, levers_of
from pytest import approx
from shapes import DS, HA, HH, M7, M8, M70, deploy, device

import roofplan
from roofplan.errors import DomainError, UnknownNameError
from roofplan.planner.advice import advise
from roofplan.planner.levers.outcomes import GOALS, Gains, outcome_of
from roofplan.planner.levers.situation import Choices, Neighbour
from roofplan.planner.parallel import Layout
from roofplan.planner.parameters import count_parameters

OTHERS = (device("slow", 1e14, 5e11), device("fast", 2e15, 8e12, capacity=2 * 10**11))
ASKED = choices("int8", "int4-g128", kv=("fp8",), devices=OTHERS)
STATUSES = {"available", "in_use", "training", "not_applicable"}

shapes = st.builds(
    deploy,
    st.sampled_from([M7, M8]),
    st.sampled_from([HA, HH]),
    prompt=st.integers(1, 20_000),
    output=st.integers(1, 2_000),
    concurrency=st.integers(1, 400),
    layout=st.sampled_from([Layout(), Layout(tp=2), Layout(pp=2), Layout(dp=2), Layout(tp=2, dp=2)]),
    weights=st.sampled_from(["bf16", "int8"]),
    kv=st.sampled_from(["bf16", "fp8"]),
)


@given(shapes)
def test_every_lever_has_an_answer_a_reason_and_a_cost(d) -> None:
    advice = advise(d, ASKED)
    assert len({lever.id for lever in advice.levers}) == len(advice.levers)
    for lever in advice.levers:
        assert lever.status in STATUSES
        assert lever.why
        assert lever.reason
        assert lever.title
        for goal in GOALS:
            gain = lever.gains.of(goal)
            assert (gain is None) == (lever.no_gain_because(goal) is not None)
            assert gain is None or (math.isfinite(gain) and gain >= 0)
        if lever.status != "not_applicable":
            assert lever.quality
            assert lever.complexity
    json.dumps(advice.to_dict(), allow_nan=False)


@given(shapes)
def test_exact_levers_keep_the_parameters_and_the_formats(d) -> None:
    for lever in levers_of(d, ASKED).values():
        if lever.exact and lever.changed is not None:
            assert count_parameters(lever.changed.model) == count_parameters(d.model)
            assert lever.changed.model == d.model
            assert lever.changed.formats == d.formats


@given(shapes)
def test_what_changes_nothing_gains_nothing(d) -> None:
    own = Neighbour(replace(d.hardware, name="twin"), d.kernels)
    same = Choices(weights=(d.formats,), kv=(d.formats.kv,), devices=(own,), prefix_hit=0.0, acceptance=0.0)
    found = levers_of(d, same)
    for name in (f"weights.{d.formats.name}", f"kv.{d.formats.kv.name}", "device.twin", "prefix_cache"):
        gains = found[name].gains
        known = {gains.ttft, gains.tpot, gains.throughput, gains.capacity} - {None}
        assert known <= {1.0}, name
    drafts = found["speculation.draft_layer"].gains
    assert {drafts.ttft, drafts.tpot, drafts.throughput} - {None} <= {1.0}


@given(shapes)
def test_an_outcome_gains_nothing_over_itself(d) -> None:
    outcome = outcome_of(d)
    gains = Gains.between(outcome, outcome)
    assert {gains.of(goal) for goal in GOALS} - {None} <= {1.0}


@given(shapes, st.integers(1, 400))
def test_more_memory_never_lowers_the_gain_in_capacity(d, more: int) -> None:
    sizes = [d.hardware.memory.nameplate + step * more * 10**9 for step in (0, 1, 2)]
    others = tuple(
        Neighbour(replace(d.hardware, name=f"of-{size}", memory=replace(d.hardware.memory, nameplate=size)), None)
        for size in sizes
    )
    found = levers_of(d, Choices(devices=others))
    rooms = [found[f"device.{other.hardware.name}"].after.max_concurrency for other in others]
    assert rooms == sorted(rooms)


@given(shapes, st.sampled_from(GOALS))
def test_levers_stand_by_falling_gain(d, goal) -> None:
    advice = advise(d, ASKED, goal)
    fits = [lever.no_gain_because(goal) == "makes_it_fit" for lever in advice.levers]
    assert fits == sorted(fits, reverse=True)
    gains = [lever.gains.of(goal) for lever in advice.levers if lever.no_gain_because(goal) != "makes_it_fit"]
    known = [gain for gain in gains if gain is not None]
    assert known == sorted(known, reverse=True)
    assert gains == known + [None] * (len(gains) - len(known))


# ------------------------------------------------------------------------------------------------ ratios of sizings

WORKLOAD = {"prompt": 2048, "output": 256, "concurrency": 32}


@pytest.mark.parametrize(
    ("lever", "options"),
    [
        ("weights.fp8", {"weights": "fp8"}),
        ("weights.int4-g128", {"weights": "int4-g128"}),
        ("kv.fp8", {"kv": "fp8"}),
        ("layout.tp2", {"tp": 2}),
        ("layout.pp2", {"pp": 2}),
        ("layout.dp2", {"dp": 2}),
    ],
)
@pytest.mark.parametrize("engine", ["plain", "vllm@0.19", "sglang"])
def test_a_gain_is_the_ratio_of_two_sizings(lever: str, options: dict, engine: str) -> None:
    found = next(
        each
        for each in roofplan.advise("llama-3.1-8b", "h100-sxm", engine=engine, **WORKLOAD).levers
        if each.id == lever
    )
    before, after = (
        roofplan.size("llama-3.1-8b", "h100-sxm", engine=engine, **WORKLOAD, **more) for more in ({}, options)
    )
    times, other = before.times, after.times
    assert found.gains.ttft == times.latency.ttft_s.expected / other.latency.ttft_s.expected
    assert found.gains.tpot == times.latency.tpot_s.expected / other.latency.tpot_s.expected
    rates = [of.throughput.output_tokens_per_s.expected for of in (other, times)]
    assert found.gains.throughput == rates[0] / rates[1]
    assert found.gains.capacity == after.capacity.max_concurrency / before.capacity.max_concurrency


def test_a_device_of_the_catalogue_gains_what_two_sizings_say() -> None:
    found = {lever.id: lever for lever in roofplan.advise("llama-3.1-8b", "h100-sxm", **WORKLOAD).levers}
    other = roofplan.size("llama-3.1-8b", "h200", **WORKLOAD)
    own = roofplan.size("llama-3.1-8b", "h100-sxm", **WORKLOAD)
    lever = found["device.h200-sxm-141gb"]
    tpot = [sized.times.latency.tpot_s.expected for sized in (own, other)]
    assert lever.gains.tpot == tpot[0] / tpot[1]
    rates = [sized.times.throughput.output_tokens_per_s.expected for sized in (own, other)]
    prices = [sized.deployment.hardware.price.usd_per_hour for sized in (own, other)]
    assert lever.gains.cost == approx((prices[0] / rates[0]) / (prices[1] / rates[1]))


# ------------------------------------------------------------------------------------------------ answers


def test_what_makes_a_deployment_fit_stands_first_and_is_the_best() -> None:
    advice = advise(deploy(M70, HH, prompt=1024, output=128), ASKED, "tpot")
    assert advice.now.refused == "weights_exceed_memory"
    first = advice.levers[0]
    assert first.no_gain_because("tpot") == "makes_it_fit"
    assert advice.best == first
    fitting = [lever for lever in advice.levers if lever.no_gain_because("tpot") == "makes_it_fit"]
    reached = [lever.after.tpot_s for lever in fitting]
    assert reached == sorted(reached)


def test_the_best_lever_is_one_that_can_be_pulled() -> None:
    advice = advise(deploy(M8, HH, prompt=1024, output=128), ASKED, "tpot")
    assert advice.best.status == "available"
    assert advice.levers[0].status == "in_use"  # the KV cache gives most, and is there already


def test_where_nothing_gains_there_is_no_best() -> None:
    d = deploy(M8, HH, prompt=8000, output=1, layout=Layout(tp=32))
    advice = advise(d, Choices(prefix_hit=0.0), "tpot")
    assert advice.best is None


def test_a_mixture_of_experts_is_answered() -> None:
    large = device("large", 1979e12, 4.8e12, capacity=2 * 10**12)
    advice = advise(deploy(DS, large, prompt=1024, output=128, concurrency=8), ASKED)
    assert {lever.id for lever in advice.levers} >= {"mla", "kv_cache", "flash_attention", "speculation.draft_layer"}


def test_each_gain_is_explained_with_both_sides() -> None:
    advice = advise(deploy(M8, HH, prompt=1024, output=128), ASKED, "tpot")
    lines = {line.figure: line for line in advice.explain()}
    lever = next(lever for lever in advice.levers if lever.id == "kv.fp8")
    line = lines["levers.kv.fp8.gain"]
    before, after = (float(side.split()[0]) for side in line.numbers.split(" over "))
    assert before / after == approx(lever.gains.tpot, rel=1e-4)
    assert line.binds == lever.reason


def test_assumptions_name_what_was_taken_of_the_traffic() -> None:
    names = {each.name: each for each in advise(deploy(M8, HH), ASKED).assumptions}
    assert {"prefix_hit", "draft_acceptance", "lookup_acceptance", "output_lengths"} <= set(names)
    assert all(each.source for each in names.values())


def test_the_table_has_one_lever_a_row() -> None:
    advice = advise(deploy(M8, HH, prompt=64, output=64), ASKED)
    columns, rows = advice.table()
    assert len(rows) == len(advice.levers)
    assert all(set(columns) <= set(row) for row in rows)


@pytest.mark.parametrize("share", [1.0, -0.1, 1.5, math.nan])
@pytest.mark.parametrize("name", ["prefix_hit", "acceptance"])
def test_shares_outside_of_their_domain_are_refused(name: str, share: float) -> None:
    with pytest.raises(DomainError):
        Choices(**{name: share})


def test_an_unknown_goal_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="--goal: got speed, want one of ttft, tpot"):
        advise(deploy(M8, HH), ASKED, "speed")
