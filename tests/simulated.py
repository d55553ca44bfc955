"""Policies, step times and loads that the tests of the simulator share."""

import random
from dataclasses import replace

import numpy as np

from roofplan.planner.simulator.core import Outcome, Policy, Request, StepTime, closed_loop, open_loop

MANY = 10**6  # slots that never bind
MIXED = Policy(admission="mixed", budget=2000, slots=MANY)
WHOLE = replace(MIXED, admission="whole_prompts")
PROMPTS_FIRST = replace(MIXED, admission="prefill_first")
POLICIES = (MIXED, WHOLE, PROMPTS_FIRST)


def plain_step(decoders: int, context: float, chunk: int, past: float, pieces: int) -> float:
    """0.1 ms a token, and not below the 10 ms that the weights take."""
    return max(10.0, (decoders + chunk) / 10) / 1000


def affine_step(decoders: int, context: float, chunk: int, past: float, pieces: int) -> float:
    """A fixed time, a time per token and one per token of the cache."""
    return (8000 + 90 * (chunk + decoders) + 0.1 * decoders * context) * 1e-6


def equal(number: int, output: int, prompt: int = 1000) -> list[Request]:
    return [Request(prompt, output)] * number


def varied(number: int, prompt: int, output: int, seed: int = 0, spread: float = 0.1) -> list[Request]:
    draw = random.Random(seed)

    def around(mean: int) -> int:
        return max(1, round(mean * draw.uniform(1 - spread, 1 + spread)))

    return [Request(around(prompt), around(output)) for _ in range(number)]


def benchmark_lengths(number: int = 160) -> list[Request]:
    """1024/1024 of a public benchmark's client: uniform in [0.8 L, L], numpy's seed 0, all inputs drawn before the outputs."""
    draws = np.random.RandomState(0)
    prompts, outputs = draws.randint(819, 1025, number), draws.randint(819, 1025, number)
    return [Request(int(prompt), int(output)) for prompt, output in zip(prompts, outputs, strict=True)]


def run(requests: list[Request], clients: int | None, policy: Policy, step_s: StepTime = plain_step) -> Outcome:
    """A closed loop of clients, or an open loop where there are none."""
    return open_loop(requests, policy, step_s) if clients is None else closed_loop(requests, clients, policy, step_s)
