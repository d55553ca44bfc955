"""Served rows: what is sent to which server, in closed form and event by event, and how near the two are on published rows.

Deployments are those of the rows; policies and requests are put together here again from the settings that the notes on load state.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pytest import approx

from roofplan.accuracy import served
from roofplan.accuracy.served import LEAST_CACHE, Case, case_of, predict
from roofplan.accuracy.serving import ServingRow, read_rows, read_speed_rows
from roofplan.errors import RoofplanError
from roofplan.planner.evidence import evidence_of
from roofplan.planner.load import Server, Traffic, closed_loop
from roofplan.planner.memory import plan_memory, rank_cache
from roofplan.planner.simulator import core
from roofplan.planner.simulator.servers import policy_of, step_time_of
from roofplan.planner.step import StepModel

ROWS = read_rows()
ONLINE = read_speed_rows()
CLOSED = [row for row in ROWS if row.concurrency is not None]
SCORED = [row for row in CLOSED if not (row.excluded_tpot or row.excluded_ttft)]
LLAMA, V3 = "meta-llama/Llama-3.1-70B", "deepseek-ai/DeepSeek-V3"
SHORT = {"isl": 1024, "osl": 1024}


def found(rows: list[ServingRow] = ROWS, **wanted: Any) -> ServingRow:
    return next(row for row in rows if all(getattr(row, name) == value for name, value in wanted.items()))


# Each with what its engine and launch say: policy of admission, tokens of a step, delays, and the range of its lengths.
SIMULATED = [
    (
        {"engine": "vllm", "model": LLAMA, "gpu": "h200_sxm", "precision": "fp8", "tp": 2, "concurrency": 16, **SHORT},
        {"admission": "mixed", "budget": 8192, "look_ahead": 1},
        (819, 1025),
    ),
    (
        {"engine": "trtllm", "model": LLAMA, "gpu": "h200_sxm", "tp": 2, "concurrency": 16, **SHORT},
        {"admission": "whole_prompts", "budget": 16384, "look_ahead": 1, "hold_steps": 20, "hold_tokens": 14746},
        (819, 1025),
    ),
    (
        {"engine": "sglang", "model": V3, "gpu": "b200_sxm", "precision": "fp8", "tp": 8, "concurrency": 16, **SHORT},
        {"admission": "prefill_first", "budget": 32768, "poll_steps": 30},
        (819, 1025),
    ),
]


@pytest.mark.parametrize(("wanted", "policy", "lengths"), SIMULATED, ids=["vLLM", "TensorRT-LLM", "SGLang"])
def test_simulating_a_row_is_simulating_its_client(wanted: dict, policy: dict, lengths: tuple[int, int]) -> None:
    row = found(**wanted)
    case = case_of(row)
    scheduling = case.deployment.scheduling
    model = StepModel.reached(case.deployment)
    draw = np.random.RandomState(0)  # 10 C prompts, then as many outputs
    prompts, outputs = (draw.randint(*lengths, 10 * 16) for _ in range(2))
    outcome = core.closed_loop(
        [core.Request(int(prompt), int(output)) for prompt, output in zip(prompts, outputs, strict=True)],
        16,
        core.Policy(
            slots=case.places,
            reserved_output=scheduling.reserved_output,
            output_lag=scheduling.output_lag,
            request_overhead_s=scheduling.request_overhead,
            tokenise_s_per_token=scheduling.tokenise_per_token,
            **policy,
        ),
        lambda decoders, context, chunk, past, pieces: float(
            model.step_s(decoders, context, chunk=chunk, past=past, pieces=max(1, pieces))
        ),
    )
    predicted = predict(case, simulate=True)
    assert predicted.ttft_s == approx(outcome.mean_ttft_s, rel=1e-9)
    assert predicted.tpot_s == approx(outcome.mean_tpot_s, rel=1e-9)
    assert predicted.waiting == approx(sum(outcome.queued_s) / sum(outcome.e2e_s), abs=1e-12)


@pytest.mark.parametrize(("wanted", "policy", "_"), SIMULATED, ids=["vLLM", "TensorRT-LLM", "SGLang"])
def test_the_closed_form_of_a_row(wanted: dict, policy: dict, _: object) -> None:
    row = found(**wanted)
    case = case_of(row)
    delays = {name: policy.get(name, 0) for name in ("look_ahead", "poll_steps", "hold_steps")}
    scheduling = replace(case.deployment.scheduling, hold_share=0.9 if delays["hold_steps"] else 1.0, **delays)
    server = Server(
        model=StepModel.reached(case.deployment), scheduling=scheduling, budget=policy["budget"], places=case.places
    )
    state = closed_loop(server, Traffic(0.9 * 1024, 0.9 * 1024, 16, 0.8, 10))
    predicted = predict(case)
    assert (predicted.ttft_s, predicted.tpot_s) == approx((state.ttft_s, state.tpot_s), rel=1e-9)
    assert predicted.waiting == 0
    evidence = evidence_of(case.deployment)
    assert (predicted.width, predicted.first_token_width) == (evidence.width, evidence.first_token_width)


def test_replicas_share_the_clients() -> None:
    row = next(row for row in SCORED if row.attention_dp > 1 and row.concurrency and row.concurrency >= 16)
    case = case_of(row)
    assert case.deployment.layout.dp == row.attention_dp
    traffic = Traffic(
        row.isl * (case.client.length_from + case.client.length_to) / 2,
        row.osl * (case.client.length_from + case.client.length_to) / 2,
        round(row.concurrency / row.attention_dp),
        case.client.length_from / case.client.length_to,
        case.client.waves or 1,
    )
    server = Server(
        model=StepModel.reached(case.deployment),
        scheduling=case.scheduling,
        budget=case.deployment.max_batched_tokens,
        places=case.places,
    )
    assert predict(case).tpot_s == approx(closed_loop(server, traffic).tpot_s, rel=1e-9)


def test_servers_that_should_have_no_cache_get_a_little() -> None:
    """The notes on time, section 10: such runs exist, so that a batch of one is no answer; 4 % of memory is kept for the cache."""
    assert LEAST_CACHE == 0.04
    made_up = replace(found(**SIMULATED[0][0]), tp=1, gpu="h100_sxm")  # 70.6 GB in 80
    case = case_of(made_up)
    d = case.deployment
    assert plan_memory(d).kv_budget_bytes < 0.04 * plan_memory(d).total_bytes
    most = 0.04 * plan_memory(d).total_bytes / rank_cache(d).bytes_per_sequence(d.workload.length)
    assert case.places == int(most) > 1
    assert 0 < predict(case).tpot_s < predict(case).ttft_s < math.inf


def test_another_step_model_may_be_asked() -> None:
    case = case_of(found(**SIMULATED[0][0]))
    assert predict(case, StepModel.of).tpot_s < predict(case).tpot_s
    assert predict(case, StepModel.of, simulate=True).ttft_s < predict(case, simulate=True).ttft_s


# ------------------------------------------------------------------------------------------------ rates


@pytest.mark.parametrize("rate", [2, 32, math.inf])
def test_requests_at_a_rate(rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorRT-LLM and Triton: 500 requests, Poisson at the rate or all at once, log-normal lengths with sigma 0.5 around the means."""
    row = next(row for row in ONLINE if row.request_rate == rate)
    asked: list[Any] = []
    simulate = core.open_loop
    monkeypatch.setattr(core, "open_loop", lambda *given: asked.append(given) or simulate(*given))
    case = case_of(row)
    predicted = predict(case)
    assert predict(case, simulate=True) == predicted  # there is no closed form of it
    requests, policy, _ = asked[0]
    assert len(requests) == 500
    for mean, lengths in ((row.isl, [r.prompt for r in requests]), (row.osl, [r.output for r in requests])):
        assert statistics.fmean(lengths) == approx(mean, rel=0.1)
        assert statistics.stdev(map(math.log, lengths)) == approx(0.5, abs=0.1)
    sent = [r.sent_s for r in requests]
    assert sent == sorted(sent)
    if math.isinf(rate):
        assert set(sent) == {0.0}
    else:
        assert 500 / sent[-1] == approx(rate, rel=0.15)
        gaps = np.diff(sent)
        assert np.std(gaps) == approx(np.mean(gaps), rel=0.15)  # as of exponential ones
    assert policy.budget == case.deployment.max_batched_tokens
    assert 0 < predicted.tpot_s < predicted.ttft_s < 1000


# ------------------------------------------------------------------------------------------------ against the simulation


def case_or_none(row: ServingRow) -> Case | None:
    try:
        return case_of(row)
    except RoofplanError:
        return None


def distances(cases: list[Case]) -> tuple[float, float]:
    """Medians of the distance of closed form and simulation, TTFT and TPOT, as logarithms of ratios."""
    pairs = [(predict(case), predict(case, simulate=True)) for case in cases]
    ttft = [abs(math.log(closed.ttft_s / event.ttft_s)) for closed, event in pairs]
    tpot = [abs(math.log(closed.tpot_s / event.tpot_s)) for closed, event in pairs]
    return statistics.median(ttft), statistics.median(tpot)


def sample(engine: str, concurrency: int, *, equal: bool = False, polls: bool = False, count: int = 7) -> list[Case]:
    """Cases spread over the rows of an engine in which nobody waits for a place."""
    rows = [row for row in SCORED if (row.engine, row.concurrency) == (engine, concurrency)]
    cases = [case for row in rows if (case := case_or_none(row)) is not None]
    fitting = [
        case
        for case in cases
        if (case.client.length_from == case.client.length_to) == equal
        and bool(case.launch.poll_steps) == polls
        and case.places * case.deployment.layout.dp >= concurrency
    ]
    return fitting[:: max(1, len(fitting) // count)]


@pytest.mark.parametrize(
    ("engine", "printed"),
    [
        ("vllm", {4: 0.02, 8: 0.02, 16: 0.03, 32: 0.04, 64: 0.04}),
        ("trtllm", {4: 0.05, 8: 0.02, 16: 0.04, 32: 0.04, 64: 0.02}),
    ],
)
def test_varied_lengths_of_published_rows(engine: str, printed: dict[int, float]) -> None:
    """The table of the notes on load, section 6, with a margin of 0.06 for rows that are not the same."""
    for concurrency, distance in printed.items():
        cases = sample(engine, concurrency)
        assert len(cases) >= 5
        ttft, tpot = distances(cases)
        assert ttft <= distance + 0.06, concurrency
        assert tpot <= 0.06, concurrency


def test_equal_prompts_that_run_first_of_published_rows() -> None:
    for concurrency, distance in ((16, 0.02), (64, 0.01), (128, 0.01)):
        ttft, tpot = distances(sample("sglang", concurrency, equal=True, count=5))
        assert ttft <= distance + 0.02, concurrency
        assert tpot <= 0.03, concurrency


@pytest.mark.parametrize(("concurrency", "printed"), [(4, 0.13), (8, 0.11), (16, 0.10), (32, 0.05)])
def test_servers_that_poll_in_published_rows(concurrency: int, printed: float) -> None:
    assert distances(sample("sglang", concurrency, polls=True, count=5))[0] <= printed + 0.06


def test_the_time_per_token_of_servers_that_poll_in_published_rows() -> None:
    assert distances(sample("sglang", 64, polls=True, count=5))[1] <= 0.06


def test_replicas_share_requests_at_a_rate() -> None:
    """Requests go to one replica after the other: two replicas at a rate are two servers with every second request each."""
    row = next(row for row in ONLINE if row.request_rate == 8)
    case = case_of(row)
    d = case.deployment
    pair = replace(case, deployment=replace(d, layout=replace(d.layout, dp=2)))
    requests = served._open_loop(row.isl, row.osl, 8.0, 0.5, 500)
    policy = policy_of(
        Server(model=StepModel.reached(d), scheduling=case.scheduling, budget=d.max_batched_tokens, places=case.places),
        max(request.prompt for request in requests),
    )
    step_s = step_time_of(StepModel.reached(pair.deployment))
    halves = [core.open_loop(requests[place::2], policy, step_s) for place in (0, 1)]
    expected = statistics.fmean(ttft for half in halves for ttft in half.ttft_s)
    assert predict(pair).ttft_s == approx(expected, rel=1e-9)
    assert predict(pair).ttft_s < predict(case).ttft_s
