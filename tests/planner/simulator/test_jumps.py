"""The simulator, which jumps over steps that are alike, against the same rules taken step by step."""

import math
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx
from simulated import POLICIES, affine_step, run, varied

from roofplan.planner.simulator.core import Policy, Request, StepTime, closed_loop

# ---------------------------------------------------------------------------------------------- the same rules, step by step


@dataclass
class Job:
    """A request in the slow simulation."""

    prompt: int
    output: int
    sent: float = math.inf
    visible: float = math.inf
    taken_in: bool = False
    admitted: bool = False
    prefilled: int = 0
    made: int = 0
    first: float = math.nan
    end: float = math.nan
    queued: float = 0.0

    @property
    def decodes(self) -> bool:
        return 0 < self.made < self.output

    @property
    def done(self) -> bool:
        return self.made == self.output


def step_by_step(
    requests: list[Request], clients: int | None, policy: Policy, step_s: StepTime
) -> list[tuple[float, ...]]:
    """TTFT, E2E and wait of each request, by the rules alone: every step is taken, and every step looks at every request."""
    jobs = [Job(request.prompt, request.output) for request in requests]
    sent: list[Job] = []
    starts: list[float] = []
    now, counter, held, tokeniser = 0.0, 0, 0, 0.0

    def send(job: Job, moment: float) -> None:
        nonlocal tokeniser
        tokeniser = max(tokeniser, moment + policy.request_overhead_s / 2) + policy.tokenise_s_per_token * job.prompt
        job.sent, job.visible = moment, tokeniser
        sent.append(job)

    def take_in(until: float) -> None:
        for job in sent:
            if job.visible <= until:
                job.taken_in = True

    if clients is None:
        for index in sorted(range(len(jobs)), key=lambda index: requests[index].sent_s):
            send(jobs[index], requests[index].sent_s)
    else:
        for job in jobs[:clients]:
            send(job, 0.0)
    while not all(job.done for job in jobs):
        # Who is there
        if counter >= policy.poll_steps:
            counter = 0
            if policy.look_ahead == 0:
                take_in(now)
            elif len(starts) >= policy.look_ahead:
                take_in(starts[-policy.look_ahead])
        if not any(job.taken_in and not job.done for job in sent):
            now = max(now, min(job.visible for job in sent if not job.taken_in))
            take_in(now)
            counter = 0
        # Who enters
        decoding = [job for job in sent if job.decodes]
        inside = [job for job in sent if job.admitted and not job.done]
        in_work = [job for job in inside if not job.made]
        left = policy.budget - (0 if policy.admission == "prefill_first" else len(decoding))
        plan: list[tuple[Job, int]] = []
        for job in in_work:
            plan.append((job, min(left, job.prompt - job.prefilled)))
            left -= plan[-1][1]
        short = False
        for job in [job for job in sent if job.taken_in and not job.admitted]:
            if left <= 0 or (policy.admission == "whole_prompts" and job.prompt > left):
                break
            with_it = [*inside, *(other for other, _ in plan if not other.admitted), job]
            reserved = sum(other.prompt + policy.reserved_output * other.output for other in with_it)
            if len(with_it) > policy.slots or reserved > policy.kv_tokens:
                short = True
                break
            plan.append((job, min(left, job.prompt)))
            left -= plan[-1][1]
        may_hold = plan and not in_work and decoding and held < policy.hold_steps
        if may_hold and len(decoding) + sum(tokens for _, tokens in plan) < policy.hold_tokens:
            held += 1
            plan, short = [], False
        if plan:
            held = 0
        for job, _ in plan:
            job.admitted = True
        # The step
        if plan and policy.admission == "prefill_first":
            decoding = []
        context = sum(job.prompt + job.made for job in decoding) / len(decoding) if decoding else 0.0
        chunk, past = sum(tokens for _, tokens in plan), 0.0
        if plan:
            pairs = sum(tokens * job.prefilled + tokens**2 / 2 for job, tokens in plan)
            past = pairs / chunk - chunk / (2 * len(plan))
        starts.append(now)
        now += step_s(len(decoding), context, chunk, past, len(plan))
        counter += 1000 if plan else 1
        if short:
            for job in sent:
                if not job.admitted:
                    job.queued += max(0.0, now - max(starts[-1], job.visible))
        # What it made
        before = {id(job) for job in sent if job.done}
        for job in decoding:
            job.made += 1
        begun = []
        for job, tokens in plan:
            job.prefilled += tokens
            if job.prefilled == job.prompt:
                job.made = 1
                begun.append(job)
        ended = [job for job in jobs if job.done and id(job) not in before]
        holders = [job for job in sent if job.decodes] + ended
        seen = now + policy.request_overhead_s / 2
        if policy.output_lag and (begun or ended):
            mean = sum(job.prompt + job.made for job in holders) / len(holders)
            seen += policy.output_lag * step_s(len(holders), mean, 0, 0.0, 0)
        for job in begun:
            job.first = seen
        for job in ended:
            job.end = seen
            if clients is not None and len(sent) < len(jobs):
                send(jobs[len(sent)], seen)
    results = [(job.first - job.sent, job.end - job.sent, job.queued) for job in jobs]
    return [*results, (max(job.end for job in jobs), len(starts))]


UNIT_S = (
    2.0**-16
)  # all times are whole numbers of it, so that floats add up exactly and no order of adding is better than another


def exact_step(decoders: int, context: float, chunk: int, past: float, pieces: int) -> float:
    """Affine in the context, the tokens and the pairs that attend to each other."""
    pairs = chunk * (past + chunk / (2 * pieces)) if chunk else 0.0
    halves = round(2 * decoders * context) + round(2 * pairs)
    return (640 + 64 * decoders + 48 * chunk + halves) * UNIT_S


moments = st.integers(0, 40000).map(lambda ticks: ticks * UNIT_S)


@st.composite
def small_cases(draw: st.DrawFn) -> tuple[list[Request], int | None, Policy]:
    sizes = draw(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40), moments), min_size=1, max_size=12))
    requests = [Request(*size) for size in sizes]
    share = draw(st.sampled_from([0.0, 0.25, 0.5, 1.0]))
    admission = draw(st.sampled_from(["mixed", "whole_prompts", "prefill_first"]))
    least = max(request.prompt for request in requests) if admission == "whole_prompts" else 1
    largest = max(request.prompt + share * request.output for request in requests)
    policy = Policy(
        admission=admission,
        budget=least + draw(st.integers(0, 60)),
        slots=draw(st.integers(1, 8)),
        kv_tokens=draw(st.sampled_from([math.inf, largest, largest + 30, largest + 80])),
        reserved_output=share,
        look_ahead=draw(st.integers(0, 3)),
        output_lag=draw(st.integers(0, 2)),
        request_overhead_s=draw(st.sampled_from([0, 2, 64, 1500, 5000])) * UNIT_S,
        tokenise_s_per_token=draw(st.sampled_from([0, 1, 50])) * UNIT_S,
        poll_steps=draw(st.sampled_from([0, 1, 2, 3, 7, 30, 1002, 2500])),
        hold_steps=draw(st.sampled_from([0, 0, 1, 3, 10])),
        hold_tokens=draw(st.integers(0, 100)),
    )
    return requests, draw(st.one_of(st.none(), st.integers(1, 8))), policy


@settings(max_examples=400)
@given(small_cases())
def test_jumps_change_nothing(case: tuple[list[Request], int | None, Policy]) -> None:
    requests, clients, policy = case
    outcome = run(requests, clients, policy, exact_step)
    found = [*zip(outcome.ttft_s, outcome.e2e_s, outcome.queued_s, strict=True), (outcome.end_s, outcome.steps)]
    assert found == step_by_step(requests, clients, policy, exact_step)


@pytest.mark.parametrize("policy", POLICIES)
def test_jumps_change_nothing_in_a_long_run(policy: Policy) -> None:
    requests = varied(120, 1024, 512)
    busy = replace(policy, budget=2048, look_ahead=1, output_lag=1, request_overhead_s=0.012, kv_tokens=9000)
    outcome = closed_loop(requests, 8, busy, affine_step)
    slow = step_by_step(requests, 8, busy, affine_step)
    assert outcome.ttft_s == approx([ttft for ttft, *_ in slow[:-1]])
    assert outcome.e2e_s == approx([e2e for _, e2e, *_ in slow[:-1]])
    assert (outcome.end_s, outcome.steps) == approx(slow[-1])
