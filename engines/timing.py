"""What a serving engine costs beside the kernels, and in which order it serves: plain data that the planner works on."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ..quantities import Count, Fraction, Number, Seconds

_CONFIG: dict[str, Any] = {"extra": "forbid"}

Admission = Literal["mixed", "whole_prompts", "prefill_first"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What one step costs beside its kernels.

    Parameters
    ----------
    host_per_step, host_per_sequence : seconds of the host that are not hidden behind the device
    small_kernels : how long a small kernel takes, as a multiple of the device's own floor
    fused_quantisation : share of the fixed time of a narrow product that is saved by quantising within the kernel before
    narrow_compute : how much more of the peak its products of narrow types reach than those that were measured (vLLM's), as a multiple
    layer_passes, expert_passes : how often the vector of a token is read or written in a layer beyond what the roofline counts, and that of
        a token at one of its experts
    shared_experts_beside : whether the shared expert is computed at the same time as the routed ones, or as one of them
    exchange_kernels : the collectives that it uses, best first
    prompt_floor : least seconds per layer of a step that holds prompt tokens, which is launched kernel by kernel
    expert_prompt_floor : the same for models with routed experts
    draft_round : seconds of a round of drafts beside the passes of drafter and target
    spread : 80 % of measured times per token lie within x/÷ this, of models and devices that it was compared with
    first_token_spread : the same of times to first token
    fitted_on : the models with which it was compared as a server under load
    compared_to : the last version that was
    """

    host_per_step: Seconds
    host_per_sequence: Seconds
    small_kernels: Number
    fused_quantisation: Number = 0.0
    narrow_compute: Number = 1.0
    layer_passes: Number = 0.0
    expert_passes: Number = 0.0
    shared_experts_beside: bool = False
    exchange_kernels: tuple[str, ...] = ("nccl",)
    prompt_floor: Seconds = 0.0
    expert_prompt_floor: Seconds = 0.0
    draft_round: Seconds = 0.0
    spread: Number = 1.2
    first_token_spread: Number = 1.4
    fitted_on: tuple[str, ...] = ()
    compared_to: str = ""
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """In which order requests are served.

    Parameters
    ----------
    admission : ``mixed``: what decoding leaves of a step's tokens goes to prompts, cut where it ends; ``whole_prompts``: the same, but no
        prompt is cut; ``prefill_first``: steps of prompts alone while any waits
    look_ahead : steps that are planned ahead, so that an arrival waits for them
    output_lag : steps by which outputs are handled late
    reserved_output : share of a request's output that cache is kept for when it is admitted
    request_overhead : seconds of a request outside the steps: network, queues, first chunk
    expert_request_overhead : by how much later the first token of a mixture of experts comes, while others' tokens are not held up by it
    tokenise_per_token : seconds of the host per token of a prompt
    poll_steps : decode steps after which new requests are fetched; zero: at every step
    hold_steps : steps for which prompts are held back to be computed together; zero: none
    hold_share : share of a step's tokens at which they are no longer held back
    """

    admission: Admission
    look_ahead: Count = 0
    output_lag: Count = 0
    reserved_output: Fraction = 1.0
    request_overhead: Seconds = 0.0
    expert_request_overhead: Seconds = 0.0
    tokenise_per_token: Seconds = 0.0
    poll_steps: Count = 0
    hold_steps: Count = 0
    hold_share: Fraction = 1.0
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG
