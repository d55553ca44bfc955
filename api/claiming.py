"""A claim by names and options: what is claimed, what it is measured by, and which formats may explain it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .. import engines, hardware
from ..errors import DomainError, UnknownNameError
from ..planner import domain
from ..planner.claim_speeds import Question
from ..planner.claim_text import parse_claim
from ..planner.claims import ClaimResult, check_claim
from ..quantities import NUMBER, TIME, TOKENS, parse, parse_count, parse_fraction
from .building import deployment
from .narrowing import narrower_kv, narrower_weights
from .options import DEFAULT_OUTPUT, Options, given

if TYPE_CHECKING:
    from os import PathLike
    from typing import Unpack

    from ..hardware.spec import HardwareSpec
    from ..models.spec import ModelSpec
    from ..planner.claim_gains import GainResult
    from ..planner.claim_levers import Drafting
    from ..planner.claim_text import Claim
    from .options import Whole

_MOST_DRAFTS = 64
_DEFAULT_DRAFTS = 4  # of a round, where a gain by drafts does not say


def claim(
    text: str,
    model: str | PathLike[str] | ModelSpec,
    device: str | PathLike[str] | HardwareSpec,
    *,
    by: str | None = None,
    context: Whole | None = None,
    draft_cost: float | str | None = None,
    acceptance: float | str | None = None,
    drafts: Whole | None = None,
    tokens_per_round: float | str | None = None,
    round_time: str | None = None,
    step_time: str | None = None,
    all_reduce: str | None = None,
    **options: Unpack[Options],
) -> ClaimResult | GainResult:
    """Say whether a claimed figure is possible, and if not by itself, by which means.

    Parameters
    ----------
    text : ``500 tok/s``, ``40 tok/s/user``, ``900 tok/s/gpu``, ``20 ms/token``, ``300 ms TTFT``, ``360 sequences``, or a gain: ``2.4x``
    by : of a gain, what it is said to come from: cache, weights, kv, speculation, batching or devices
    context : tokens of a sequence while it decodes (of a time to first token: of the prompt); none is the most favourable. ``prompt`` and
        ``output`` in its place count the prompts too
    draft_cost : of one draft in plain steps; 0.05 unless given
    acceptance, drafts : most that drafts reach, and most of them (0.9 and 16); of a gain by speculation: as they are used
    tokens_per_round, round_time, step_time : of a gain by speculation: as counted and measured
    all_reduce : measured time of one all-reduce, in place of what is known of the link
    options : as of :func:`roofplan.size`; ``concurrency`` is the users

    Raises
    ------
    RoofplanError : for a claim without a unit, and for anything that does not exist, does not divide or lies outside its domain

    >>> result = claim("500 tok/s", "llama-3-8b", "a100-80gb")
    >>> result.verdict, round(result.ratio, 2)
    ('needs_help', 3.68)
    """
    said = parse_claim(text)
    options = given(options)
    tokens = None if context is None else int(parse(context, replace(TOKENS, zero=True), "--context"))
    served = "prompt" in options or "output" in options
    _check_together(said, by, tokens, served=served)
    if not served:
        tokens = tokens or 0
        options |= {"prompt": max(1, tokens - 1), "output": 1}
        if said.kind == "first_token":
            options |= {"prompt": max(1, tokens), "output": DEFAULT_OUTPUT}
    if "concurrency" in options:
        parse_count(options["concurrency"], "--users")
    built = deployment(model, device, **options)
    for_drafts: dict[str, object] = {"--drafts": drafts, "--acceptance": acceptance, "--draft-cost": draft_cost}
    as_used: dict[str, object] = {
        "--tokens-per-round": tokens_per_round,
        "--round-time": round_time,
        "--step-time": step_time,
    }
    _check_drafts(by, for_drafts, as_used)
    question = Question(
        kind=said.kind,
        context=built.workload.mean_context if tokens is None else float(tokens),
        served=served,
        draft_cost=0.05 if draft_cost is None else float(parse(draft_cost, NUMBER, "--draft-cost")),
        most_acceptance=0.9 if acceptance is None else parse_fraction(acceptance, "--acceptance"),
        most_drafts=16 if drafts is None else _drafts(drafts),
        all_reduce_s=_seconds(all_reduce, "--all-reduce"),
    )
    if by is None:
        weights, kv = tuple(narrower_weights(built, options)), tuple(narrower_kv(built))
        several = None if built.kernels is None else hardware.kernels_of(built.hardware)
        return check_claim(said, built, question, weights=weights, kv=kv, kernels=several)
    from ..planner.claim_gains import BY, check_gain

    chosen = next((known for known in BY if known == by), None)
    if chosen is None:
        raise UnknownNameError("--by", got=by, wanted=f"one of {', '.join(BY)}")
    in_16_bits: Options = {**options, "weights": "bf16"}
    wide = deployment(model, device, **in_16_bits).formats if chosen == "weights" else None
    used = None
    if chosen == "speculation":
        used = _drafting(question, drafts, acceptance, tokens_per_round, round_time, step_time)
    return check_gain(said, built, question, chosen, weights=wide, kv=engines.load_format("bf16"), drafting=used)


def _check_together(said: Claim, by: str | None, tokens: int | None, *, served: bool) -> None:
    """Refuse what does not go together.

    Raises
    ------
    DomainError : for a gain without its means, a means without a gain, two ways to say a length, or a length that is missing
    """
    if (said.kind == "gain") != (by is not None):
        if by is None:
            hint = "a gain by what? --by cache, weights, kv, speculation, batching or devices"
            raise DomainError("CLAIM", got=said.text, wanted="--by beside it", hint=hint)
        raise DomainError("--by", got=by, wanted="the claim of a gain, such as 2.4x")
    if tokens is not None and served:
        raise DomainError("--context", got=tokens, wanted="either --context, or --prompt and --output")
    if by == "cache" and not served:
        raise DomainError("--by", got=by, wanted="--prompt and --output: what a cache saves depends on them")
    if said.kind in {"first_token", "sequences"} and not (tokens or served):
        what = "the prompt" if said.kind == "first_token" else "a sequence"
        raise DomainError("--context", got="nothing", wanted=f"the tokens of {what}: the claim depends on them")


def _check_drafts(by: str | None, for_drafts: dict[str, object], as_used: dict[str, object]) -> None:
    """Refuse options of drafts where no drafts are meant."""
    stray = {} if by == "speculation" else as_used if by is None else for_drafts | as_used
    for name, value in stray.items():
        if value is not None:
            raise DomainError(name, got=value, wanted="--by speculation beside it")


def _drafts(value: Whole) -> int:
    return domain.count("--drafts", parse_count(value, "--drafts"), 1, _MOST_DRAFTS)


def _seconds(value: str | None, what: str) -> float | None:
    return None if value is None else float(parse(value, replace(TIME, zero=False), what))


def _drafting(
    question: Question,
    drafts: Whole | None,
    acceptance: float | str | None,
    tokens: float | str | None,
    round_time: str | None,
    step_time: str | None,
) -> Drafting:
    from ..planner.claim_levers import Drafting

    return Drafting(
        drafts=_DEFAULT_DRAFTS if drafts is None else _drafts(drafts),
        acceptance=None if acceptance is None else question.most_acceptance,
        tokens=None if tokens is None else float(parse(tokens, NUMBER, "--tokens-per-round")),
        round_s=_seconds(round_time, "--round-time"),
        step_s=_seconds(step_time, "--step-time"),
    )
