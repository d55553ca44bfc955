"""A server as the simulation is told of it: every field of its scheduler, and the times of its steps."""

from __future__ import annotations

from dataclasses import fields

import pytest
from servers import FIRST, MIXED, SMALL, WHOLE, server

from roofplan.engines.timing import Scheduling
from roofplan.planner.simulator.policy import Policy
from roofplan.planner.simulator.servers import policy_of, step_time_of


def test_every_field_of_the_scheduler_is_told() -> None:
    scheduling = Scheduling(
        admission="prefill_first",
        look_ahead=1,
        output_lag=2,
        reserved_output=0.7,
        request_overhead=3e-3,
        tokenise_per_token=4e-6,
        poll_steps=5,
        hold_steps=6,
        hold_share=0.9,
    )
    policy = policy_of(server(SMALL, scheduling, 1000, places=64), 100)
    assert policy == Policy(
        admission="prefill_first",
        budget=1000,
        slots=64,
        look_ahead=1,
        output_lag=2,
        reserved_output=0.7,
        request_overhead_s=3e-3,
        tokenise_s_per_token=4e-6,
        poll_steps=5,
        hold_steps=6,
        hold_tokens=900,
    )
    told_by_the_deployment = {"expert_request_overhead"}  # a part of request_overhead by then
    assert len(fields(Scheduling)) - len(told_by_the_deployment) == 9  # a new one has to be told too


def test_nothing_is_held_by_an_engine_that_does_not_hold() -> None:
    assert policy_of(server(scheduling=MIXED), 100).hold_tokens == 0


@pytest.mark.parametrize(("longest", "admission"), [(1000, "whole_prompts"), (1001, "mixed")])
def test_prompts_that_no_step_holds_are_cut(longest: int, admission: str) -> None:
    assert policy_of(server(scheduling=WHOLE, budget=1000), longest).admission == admission
    assert policy_of(server(scheduling=FIRST, budget=1000), longest).admission == "prefill_first"


def test_times_of_steps_are_those_of_the_model() -> None:
    step_s = step_time_of(SMALL)
    assert step_s(3, 1000.0, 0, 0.0, 0) == SMALL.step_s(3, 1000.0)
    assert step_s(3, 1000.0, 512, 100.0, 2) == SMALL.step_s(3, 1000.0, chunk=512, past=100, pieces=2)
