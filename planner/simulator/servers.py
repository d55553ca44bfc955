"""A server of :mod:`roofplan.planner.load` as the event simulation is told of it: its policy, and the times of its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .policy import Policy

if TYPE_CHECKING:
    from ..load import Server
    from ..step import StepModel
    from ..streams import StreamModel
    from .policy import StepTime


def policy_of(server: Server, longest_prompt: int) -> Policy:
    """How a server schedules requests whose prompts have at most so many tokens.

    Engines that keep prompts whole have to cut those that no step holds. Stages of a pipeline are left out.

    Raises
    ------
    DomainError : for a value that no engine can have
    """
    scheduling = server.scheduling
    is_cut = scheduling.admission == "whole_prompts" and longest_prompt > server.budget
    return Policy(
        admission="mixed" if is_cut else scheduling.admission,
        budget=server.budget,
        slots=server.places,
        reserved_output=scheduling.reserved_output,
        look_ahead=scheduling.look_ahead,
        output_lag=scheduling.output_lag,
        request_overhead_s=scheduling.request_overhead,
        tokenise_s_per_token=scheduling.tokenise_per_token,
        poll_steps=scheduling.poll_steps,
        hold_steps=scheduling.hold_steps,
        hold_tokens=round(scheduling.hold_share * server.budget) if scheduling.hold_steps else 0,
    )


def step_time_of(model: StepModel | StreamModel) -> StepTime:
    """The time of a step in seconds, as the simulation asks for it: by position, on numbers."""

    def step_s(decoders: int, context: float, chunk: int, past: float, pieces: int, /) -> float:
        return float(model.step_s(decoders, context, chunk=chunk, past=past, pieces=max(1, pieces)))

    return step_s
