"""What one means gains between two deployments that differ in it, and why it is no more: the figures behind the claim of a gain.

Sources: formulas F17 (cache), F4.3 (weights), F3.1 (cache formats), F11.5 to F11.7 (drafts), F12.1 (devices), F7.1 (users).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import DomainError
from . import domain
from .acceptance import expected_tokens
from .claim_means import NOTICED, drafts_fail, narrowing_fails
from .claim_speeds import Aid, Machine, all_reduces, drafted, exchange_s, speed_of, verify_ratios
from .costs import Load
from .notices import main_arithmetic
from .parallel import SINGLE
from .speculative import break_even_acceptance, speedup, speedup_of_times
from .step import StepModel
from .without_cache import CacheSaving, generation_s, token_passes

if TYPE_CHECKING:
    from ..engines.spec import NumberFormat
    from .claim_reasons import ClaimReason
    from .claim_speeds import Question
    from .claim_text import Claim
    from .formats import Formats
    from .ranges import Range
    from .speculative_steps import LargestBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """Drafts as they are used.

    Parameters
    ----------
    drafts : k of each round
    acceptance, tokens : independent acceptance, or tokens per round as counted; one of them
    round_s, step_s : measured times of a round and of a plain step, both or none
    """

    drafts: int
    acceptance: float | None = None
    tokens: float | None = None
    round_s: float | None = None
    step_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse what is stated twice or by half.

        Raises
        ------
        DomainError : for both or neither of acceptance and tokens, or one measured time alone
        """
        domain.drafts(self.drafts, 1)
        if (self.acceptance is None) == (self.tokens is None):
            ways = ("--acceptance", "--tokens-per-round")
            got = " nor ".join(("neither " + ways[0], ways[1])) if self.tokens is None else " and ".join(ways)
            raise DomainError("--by speculation", got=got, wanted="one of them: how often drafts are kept")
        if (self.round_s is None) != (self.step_s is None):
            got = "--step-time alone" if self.round_s is None else "--round-time alone"
            raise DomainError("--by speculation", got=got, wanted="both --round-time and --step-time, or neither")

    @property
    def yields(self) -> float:
        """E, tokens of a round."""
        if self.tokens is not None:
            return domain.tokens_per_round(self.tokens, self.drafts)
        assert self.acceptance is not None
        return expected_tokens(self.acceptance, self.drafts)


@dataclass(frozen=True, slots=True)
class Gain:
    """What one means gains at the roof and as reached, figures beside it, and why it is no more.

    ``most`` is what it can gain at all, whatever kernels reach, if they reach as much without it: a ratio of work, devices, or tokens. The
    ratio of two roofs is no such bound: both times lie above their roof, and either may be further from it. ``measured`` gains have no
    range, and are the most themselves.
    """

    roof: float
    expected: float
    most: float
    figures: dict[str, float | None]
    reasons: tuple[ClaimReason, ...]
    measured: bool = False


def _between(base: Range, now: Range) -> tuple[float, float]:
    return now.bound / base.bound, now.expected / base.expected


def _load(machine: Machine, question: Question) -> Load:
    return Load(machine.batch(machine.deployment.workload.concurrency), question.context)


def by_cache(machine: Machine, claim: Claim) -> Gain:
    """A cache against none: token passes, FLOP, and time, which is what counts (formula F17); at most the ratio of FLOP.

    Without a cache no bytes are spared: every pass reads the weights that a step with it reads.
    """
    d = machine.deployment
    prompt, output = d.workload.prompt, d.workload.output
    passes = token_passes(prompt, output).ratio
    nominal = machine.nominal
    reached = machine.reached if isinstance(machine.reached, StepModel) else nominal
    roof = generation_s(nominal, prompt, output, "whole").ratio
    expected = generation_s(reached, prompt, output).ratio
    flop = _flop(nominal, prompt, output).ratio
    figures: dict[str, float | None] = {"token_passes": passes, "flop": flop, "time": roof}
    counted = roof < claim.value <= passes * 1.005
    why: ClaimReason = "counts_token_passes_not_time" if counted else "decoding_is_memory_bound"
    return Gain(roof, expected, flop, figures, (why,))


def _flop(model: StepModel, prompt: int, output: int) -> CacheSaving:
    """FLOP of a generation, causal attention and the head counted."""
    import numpy as np

    lengths = prompt + np.arange(output, dtype=float)
    without = np.sum(model.totals(Load(0, 0, chunk=lengths))[0])
    first = model.totals(Load(0, 0, chunk=prompt))[0]
    later = np.sum(model.totals(Load(1, lengths[1:]))[0]) if output > 1 else 0.0
    return CacheSaving(float(without), float(first + later))


def by_weights(machine: Machine, question: Question, wide: Formats) -> Gain:
    """Narrower weights against wider ones (formula F4.3): at most the ratio of bytes that a step reads, or that of the arithmetic's rates.

    Raises
    ------
    DomainError : unless a decode step reads fewer bytes of them
    """
    d, aid = machine.deployment, Aid(users=machine.deployment.workload.concurrency)
    kept = replace(d.memory, weights_bytes=None)
    before = Machine.of(replace(d, formats=replace(wide, kv=d.formats.kv), memory=kept), question)
    load = _load(before, question)
    wide_bytes, narrow_bytes = (float(model.totals(load)[1]) for model in (before.nominal, machine.nominal))
    if narrow_bytes >= wide_bytes:
        raise DomainError("--weights", got=d.formats.name, wanted=f"a format narrower than {wide.name}")
    roof, expected = _between(speed_of(before, question, aid), speed_of(machine, question, aid))
    reason = narrowing_fails(machine, load)
    most = _most(before, machine, question)
    return Gain(roof, expected, most, {"weight_bytes_ratio": wide_bytes / narrow_bytes}, (reason,))


def _most(before: Machine, now: Machine, question: Question, users_before: int | None = None) -> float:
    """What kernels that reach as much on both sides gain at most: the largest of the ratios of bytes, of FLOP by their rates, and of steps.

    A step takes max(FLOP / F, bytes / W) and a fixed time, and max(a, b) / max(c, d) <= max(a / c, b / d), (a + b) / (c + d) too, whatever
    share of F and W is reached. All are counted for each token, of which a step with more sequences makes more.
    """
    users = now.deployment.workload.concurrency
    old, new = (
        _of_a_token(machine, question, count) for machine, count in ((before, users_before or users), (now, users))
    )
    return max(a / b for a, b in zip(old, new, strict=True))


def _of_a_token(machine: Machine, question: Question, users: int) -> tuple[float, float, float]:
    """Bytes, FLOP over the rate of most of the arithmetic (1 where none is known), and steps for each token, on one rank."""
    d = machine.deployment
    flop, weights, cache = machine.nominal.totals(Load(machine.batch(users), question.context))
    tokens = min(users, machine.running(users) * d.layout.dp)
    rate = d.hardware.peak.rate(main_arithmetic(d)) or 1.0
    return float(weights + cache) / tokens, float(flop) / rate / tokens, 1 / tokens


def by_kv(machine: Machine, question: Question, wide: NumberFormat) -> Gain:
    """A narrower cache against a wider one (formula F3.7): at most the ratio of bytes that a step reads.

    Raises
    ------
    DomainError : unless its elements take fewer bytes
    """
    d, aid = machine.deployment, Aid(users=machine.deployment.workload.concurrency)
    if d.formats.kv.bytes_per_element >= wide.bytes_per_element:
        raise DomainError("--kv", got=d.formats.kv.name, wanted=f"a format narrower than {wide.name}")
    before = Machine.of(replace(d, formats=replace(d.formats, kv=wide)), question)
    roof, expected = _between(speed_of(before, question, aid), speed_of(machine, question, aid))
    share = _cache_share(before.nominal, _load(before, question))
    most = _most(before, machine, question)
    return Gain(roof, expected, most, {"cache_share_of_bytes": share}, ("cache_is_a_part_of_what_is_read",))


def _cache_share(model: StepModel, load: Load) -> float:
    _, weights, cache = model.totals(load)
    return float(cache / (weights + cache))


def by_batching(machine: Machine, question: Question) -> Gain:
    """All users together against one (formula F7.1): at most as many times as they are, where a step takes a fixed time.

    Raises
    ------
    DomainError : for a single user
    """
    users = machine.deployment.workload.concurrency
    if users < 2:
        raise DomainError("--users", got=users, wanted="at least 2, to gain by batching")
    alone, now = (speed_of(machine, question, Aid(users=count)) for count in (1, users))
    roof, expected = _between(alone, now)
    load = _load(machine, question)
    reason: ClaimReason = "cache_of_every_user_is_read"
    if machine.running(users) * machine.deployment.layout.dp < users:
        reason = "memory_holds_fewer_users"
    elif machine.nominal.bottleneck(load) == "compute":
        reason = "compute_bound"
    most = _most(machine, machine, question, users_before=1)
    return Gain(roof, expected, most, {"cache_share_of_bytes": _cache_share(machine.nominal, load)}, (reason,))


def by_devices(machine: Machine, question: Question) -> Gain:
    """Several devices against one: what they save, and what they exchange; at most the ratio of what one has to do (formula F12.1)."""
    d = machine.deployment
    if d.layout.devices < 2:
        raise DomainError("--devices", got=d.layout.devices, wanted="at least 2, to gain by devices")
    kept, aid = replace(d.memory, weights_bytes=None), Aid(users=d.workload.concurrency)
    alone = Machine.of(replace(d, layout=SINGLE, memory=kept), question)
    before, now = speed_of(alone, question, aid), speed_of(machine, question, aid)
    roof, expected = _between(before, now)
    load, single = _load(machine, question), _load(alone, question)
    exchanged = exchange_s(machine.reached, load)
    saved = float(alone.reached.step_s(single.decoders, single.context)) - (
        float(machine.reached.step_s(load.decoders, load.context)) - exchanged
    )
    figures: dict[str, float | None] = {
        "all_reduces": float(all_reduces(machine.reached)),
        "exchange_s": exchanged,
        "saved_s": saved,
    }
    reasons: list[ClaimReason] = ["exchanges_take_a_part"]
    if d.layout.tp == 1:
        reasons = ["devices_take_turns" if d.layout.pp > 1 else "every_replica_reads_the_weights"]
    elif exchanged >= saved:
        reasons = ["exchanges_outweigh"]
    if not alone.runs:
        reasons.append("one_device_does_not_hold_it")
    return Gain(roof, expected, _most(alone, machine, question), figures, tuple(reasons))


# ------------------------------------------------------------------------------------------------ drafts


def by_speculation(machine: Machine, question: Question, drafting: Drafting, claim: Claim) -> Gain:
    """Drafts as used: tokens of a round over its cost, as modelled or as measured (formulas F11.5, F11.6); at most those tokens."""
    k, tokens, cost = drafting.drafts, drafting.yields, question.draft_cost
    batch, context = machine.batch(machine.deployment.workload.concurrency), question.context
    verify = verify_ratios(machine.nominal, k, batch, context, "whole")[-1]
    verify_reached = verify_ratios(machine.reached, k, batch, context)[-1]
    modelled = k * cost + verify
    users, layout, largest = machine.deployment.workload.concurrency, machine.deployment.layout, None
    reasons: list[ClaimReason] = ["no_more_than_the_tokens_of_a_round"] if claim.value > tokens else []
    if drafting.round_s is not None and drafting.step_s is not None:
        roof = expected = speedup_of_times(tokens, drafting.round_s, drafting.step_s)
        round_cost = drafting.round_s / drafting.step_s
        if round_cost > modelled * NOTICED:
            reasons.append("verification_is_not_free")
    else:
        roof, expected = speedup(tokens, k, cost, verify), speedup(tokens, k, cost, verify_reached)
        round_cost = k * cost + verify_reached
        if verify > NOTICED:
            reasons.append(drafts_fail(replace(question, most_drafts=k), machine, users))
        found = _break_even_batch(machine, question, drafting)
        largest = found.break_even
        if found.batch is None:
            reasons.append("gains_at_no_batch")
        elif largest is not None and largest < batch:
            reasons.append("batch_above_break_even")
    if tokens <= round_cost:
        reasons.append("round_costs_more_than_its_tokens")
    best = _best(machine, question, drafting, batch)
    if best is not None and best < k:
        reasons.append("too_many_drafts_for_their_cost")
    figures: dict[str, float | None] = {
        "expected_tokens": tokens,
        "round_cost": round_cost,
        "verify_ratio": verify,
        "beside_model_s": None if drafting.step_s is None else (round_cost - modelled) * drafting.step_s,
        "break_even_acceptance": break_even_acceptance(k, 0.0, round_cost),
        "best_drafts": None if best is None else float(best),
        "break_even_users": None if largest is None else float(largest * layout.dp * layout.pp),
    }
    if not reasons:
        reasons.append("draft_cost_limits_the_gain")
    measured = drafting.round_s is not None
    return Gain(roof, expected, expected if measured else tokens, figures, tuple(reasons), measured)


def _best(machine: Machine, question: Question, drafting: Drafting, batch: float) -> int | None:
    """The number of drafts that gains most at the acceptance that is stated, as reached; None where it is not."""
    if drafting.acceptance is None:
        return None
    asked = replace(question, most_drafts=max(drafting.drafts, question.most_drafts))
    return drafted(machine.reached, asked, drafting.acceptance, batch, "operators").drafts


def _break_even_batch(machine: Machine, question: Question, drafting: Drafting) -> LargestBatch:
    """The largest batch at which these drafts still gain at the roof, where there is an end of it."""
    from .speculative_steps import MOST_SEQUENCES, Drafter, break_even_batch

    drafter = Drafter(relative_cost=question.draft_cost)
    context = max(1.0, question.context)
    most = max(MOST_SEQUENCES, math.ceil(machine.batch(machine.deployment.workload.concurrency)) + 1)
    return break_even_batch(
        machine.nominal, drafter, drafting.yields, drafting.drafts, context, most=min(most, 2**20), grouping="whole"
    )
