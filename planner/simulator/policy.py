"""What a simulation is told: how an engine schedules, and what its steps cost.

Sources of the rules, as the engines' code has them:

- vLLM (``vllm/v1/core/sched/scheduler.py``): ``mixed``. Running sequences first, then prompts in order of arrival, the last one cut where
  ``max_num_batched_tokens`` ends. With ``--async-scheduling`` a step is planned while the one before it runs: a look-ahead of 1.
- TensorRT-LLM (``tensorrt_llm/_torch/pyexecutor/py_executor.py``): ``whole_prompts``, or ``mixed`` with chunked prefill.
  ``_waiting_requests`` holds prompts back while sequences decode, until ``batch_wait_max_tokens_ratio`` times ``max_num_tokens`` tokens
  would be in the step or ``batch_wait_timeout_iters`` steps were waited.
- SGLang (``python/sglang/srt/managers``): ``prefill_first``, steps of prompts only, of at most ``chunked_prefill_size`` tokens. With
  ``--scheduler-recv-interval`` requests are received when a counter reaches it (``scheduler_recv_skipper.py``).

What a request reserves stands in for what engines do about a full cache: TensorRT-LLM reserves the whole output (guaranteed no evict),
SGLang a share of it, and vLLM pre-empts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, get_args

from ...engines.timing import Admission
from ...errors import DomainError
from .. import domain


class StepTime(Protocol):
    """The time of a step; see :class:`~roofplan.planner.step.StepModel`."""

    def __call__(self, decoders: int, context: float, chunk: int, past: float, pieces: int, /) -> float:
        """Seconds of a step; affine in the context.

        Parameters
        ----------
        decoders, context : sequences that decode, and their mean tokens with the new one
        chunk, past, pieces : prompt tokens of the step, in so many equal pieces, each after ``past`` tokens of its own prompt
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How an engine schedules, with no delays as the default (see the module for what each engine does).

    Parameters
    ----------
    admission : who shares a step: decoding sequences and pieces of prompts (mixed) or prompts that fit whole, or prompts alone, first
    budget : tokens of a step
    slots : sequences at a time
    kv_tokens, reserved_output : tokens of the cache, and the share f of its output that a request reserves when it is admitted
    look_ahead : steps that are planned ahead: a request enters so many steps later than it could
    output_lag : decode steps by which a token reaches its client late, because outputs are handled behind the steps
    request_overhead_s : h, host time of a request, half of it before and half after
    tokenise_s_per_token : of a prompt; one prompt after the other
    poll_steps : a counter of this many fetches the requests that wait; a decode step adds 1, a step with prompt tokens 1000
    hold_steps, hold_tokens : prompts are held back for at most so many steps while a step would have fewer tokens than this

    Raises
    ------
    DomainError : for a value that no engine can have
    """

    admission: Admission
    budget: int
    slots: int
    kv_tokens: float = math.inf
    reserved_output: float = 1.0
    look_ahead: int = 0
    output_lag: int = 0
    request_overhead_s: float = 0.0
    tokenise_s_per_token: float = 0.0
    poll_steps: int = 0
    hold_steps: int = 0
    hold_tokens: int = 0

    def __post_init__(self) -> None:
        """Refuse what no engine can have."""
        if self.admission not in get_args(Admission):
            raise DomainError("admission", got=self.admission, wanted=" or ".join(get_args(Admission)))
        domain.count("budget", self.budget)
        domain.count("slots", self.slots)
        if not self.kv_tokens > 0:
            raise DomainError("kv_tokens", got=self.kv_tokens, wanted="a number above zero")
        domain.probability("reserved_output", self.reserved_output)
        for name in ("look_ahead", "output_lag", "poll_steps", "hold_steps", "hold_tokens"):
            domain.count(name, getattr(self, name), 0)
        domain.not_negative("request_overhead_s", self.request_overhead_s)
        domain.not_negative("tokenise_s_per_token", self.tokenise_s_per_token)

    def reserved_tokens(self, prompt: int, output: int) -> float:
        """Cache tokens that a request reserves when it is admitted: prompt + f output."""
        return prompt + self.reserved_output * output
