"""Which means explain a claim that a deployment does not reach by itself: each alone, and the fewest together.

Narrower weights, a narrower cache, drafts, fewer weights read, more users, more devices; for a time to first token a cached part of the
prompt, for sequences in memory a shorter context. Each is looked at from its mildest setting on, up to what is known to be done:

- acceptance of drafts up to 0.9: one draft head of DeepSeek-V3 reaches 0.85 to 0.9 (arXiv 2412.19437), separate draft models less
- half of the weights: GPUs skip 2 of 4 values (arXiv 2104.08378); 64 devices, in doublings
- formats that are given: those of usual checkpoints for the device

Sources: formulas F4.3 (bytes of formats), F7.1 (users), F11.5 and F11.6 (drafts), F12.2 (devices), F16 (the check itself).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .claim_search import HALVINGS, Mean, least, least_acceptance
from .claim_speeds import drafted, exchange_s, verify_ratios
from .costs import Experts, Load
from .ranges import Range
from .times import places_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from .claim_reasons import ClaimReason
    from .claim_search import Search
    from .claim_speeds import Aid, Machine, Question
    from .parallel import Layout

HALF = 0.5  # of the weights: 2 of 4 values
_LEAST_SHARE = 1e-6
NOTICED = 1.05  # a verification that costs so many plain steps is not free


def means_of(s: Search) -> tuple[Mean, ...]:
    """Every means alone, for the kind of the claim."""
    looked_at: tuple[Callable[[Search], Mean], ...] = (
        more_users,
        narrower_weights,
        narrower_cache,
        speculation,
        fewer_weights,
        more_devices,
    )
    if s.claim.kind == "sequences":
        looked_at = (narrower_weights, narrower_cache, shorter_context, more_devices)
    elif s.claim.kind == "first_token":
        looked_at = (more_users, narrower_weights, prefix_cache, speculation, fewer_weights, more_devices)
    return tuple(find(s) for find in looked_at)


def more_users(s: Search) -> Mean:
    """Batching: the figure is the sum over so many users."""
    if s.claim.kind == "first_token":
        return Mean("batching", {}, None, "others_only_add_waiting")
    if s.claim.kind in {"user_rate", "token_time"}:
        return Mean("batching", {}, None, "figure_is_of_one_user")
    machine = s.machine()
    if not machine.runs:
        return Mean("batching", {}, None, machine.reason)

    def with_users(users: int) -> Aid:
        return replace(s.aid, users=users)

    most = max(s.users, machine.most_users)
    users = least(lambda users: s.suffices(machine, with_users(users)), s.users, most)
    speed = s.speed(machine, with_users(users or most))
    if users is not None:
        return Mean("batching", {"users": users}, speed, None)
    endless = replace(machine, places=2**20)
    if s.suffices(endless, with_users(endless.most_users)):
        return Mean("batching", {"users": most}, speed, "memory_holds_fewer_users")
    limit = machine.nominal.bottleneck(Load(machine.batch(most), s.question.context))
    reads = limit == "kv_bandwidth"
    return Mean("batching", {"users": most}, speed, "cache_of_every_user_is_read" if reads else "compute_bound")


def narrower_weights(s: Search) -> Mean:
    """Quantisation of the weights."""
    machines = [s.machine(weights=n) for n in range(1, len(s.weights) + 1)]
    settings = [(machine, {"weights": machine.deployment.formats.name}) for machine in machines]
    return _first("weight_quantisation", s, settings, lambda machine: _weights_fail(s, machine))


def narrower_cache(s: Search) -> Mean:
    """Quantisation of the cache."""
    if not s.question.context and s.claim.kind != "sequences":
        return Mean("kv_quantisation", {}, None, "no_cache_is_read")
    machines = [s.machine(kv=n) for n in range(1, len(s.kv) + 1)]
    settings = [(machine, {"kv": machine.deployment.formats.kv.name}) for machine in machines]
    return _first("kv_quantisation", s, settings, lambda _: "cache_is_a_part_of_what_is_read")


def more_devices(s: Search) -> Mean:
    """More devices: ranks that share each layer, and replicas where there are sequences to share."""
    settings = [(s.machine(layout=layout), named_layout(layout)) for layout in s.layouts()]
    return _first("devices", s, settings, lambda machine: _devices_fail(s, machine))


def named_layout(layout: Layout) -> dict[str, Any]:
    """A layout by the names of the options."""
    return {"devices": layout.devices, "tp": layout.tp, "dp": layout.dp}


def _first(
    name: str,
    s: Search,
    settings: list[tuple[Machine, dict[str, Any]]],
    why_not: Callable[[Machine], ClaimReason],
) -> Mean:
    """The first setting that explains the claim, else the fastest that runs."""
    for machine, setting in settings:
        if s.suffices(machine):
            return Mean(name, setting, s.speed(machine), None)
    running = [(s.speed(machine), machine, setting) for machine, setting in settings if machine.runs]
    if not settings:
        return Mean(name, {}, None, "no_link_or_layout_is_known" if name == "devices" else "no_narrower_format")
    if not running:
        machine, setting = settings[-1]
        return Mean(name, setting, None, machine.reason or "kv_less_than_one_sequence")
    speed, machine, setting = max(running, key=lambda each: each[0].bound if s.roof else each[0].high)
    return Mean(name, setting, speed, why_not(machine))


def _weights_fail(s: Search, machine: Machine) -> ClaimReason:
    if s.claim.kind == "sequences":
        return "weights_are_a_part_of_memory"
    prefill = s.claim.kind == "first_token"
    load = Load(0, 0, chunk=s.base.workload.prompt) if prefill else Load(machine.batch(s.users), s.question.context)
    return narrowing_fails(machine, load)


def narrowing_fails(machine: Machine, load: Load) -> ClaimReason:
    """Why narrower weights do not make a step shorter in proportion to their bytes."""
    limit = machine.nominal.bottleneck(load)
    if limit != "compute":
        return "only_the_weights_shrink" if limit == "weight_bandwidth" else "cache_is_read_too"
    formats = machine.deployment.formats
    wide = formats.activations.bits >= 16 > min(each.bits for each in formats.weights.values())
    return "dequantised_to_16_bit_compute" if wide else "compute_bound"


def _devices_fail(s: Search, machine: Machine) -> ClaimReason:
    together, alone = s.speed(machine), s.speed(s.machine())
    if together.expected > alone.expected:
        return "not_enough_devices"
    exchanged = exchange_s(machine.reached, Load(machine.batch(s.users), s.question.context))
    return "exchanges_outweigh" if exchanged else "devices_take_turns"


def speculation(s: Search) -> Mean:
    """Drafts at the stated cost: the acceptance that they need, and how many of them are best."""
    if s.claim.kind == "first_token":
        return Mean("speculation", {}, None, "drafts_come_after_the_first_token")
    machine = s.machine()
    if not machine.runs:
        return Mean("speculation", {}, None, machine.reason)
    acceptance = least_acceptance(s, machine, s.aid)
    setting = {"draft_cost": s.question.draft_cost}
    if acceptance is None:
        aid = replace(s.aid, acceptance=1.0)
        return Mean("speculation", setting, s.speed(machine, aid), drafts_fail(s.question, machine, s.users))
    aid = replace(s.aid, acceptance=acceptance)
    best = drafted(machine.nominal, s.question, acceptance, machine.batch(s.users), "whole")
    setting = {"acceptance": acceptance, "drafts": best.drafts, **setting}
    reason: ClaimReason | None = (
        None if acceptance <= s.question.most_acceptance else "acceptance_above_what_is_published"
    )
    return Mean("speculation", setting, s.speed(machine, aid), reason)


def drafts_fail(question: Question, machine: Machine, users: int) -> ClaimReason:
    """What keeps perfect drafts from gaining more: their own cost, or that of verification at this batch."""
    batch = machine.batch(users)
    load = Load(batch, question.context, question.most_drafts + 1)
    ratio = verify_ratios(machine.nominal, question.most_drafts, batch, question.context, "whole")[-1]
    if ratio < NOTICED:
        return "draft_cost_limits_the_gain"
    if machine.nominal.bottleneck(load) == "compute":
        return "verification_is_compute_bound"
    mixture = any(isinstance(operator, Experts) for operator in machine.nominal.operators)
    return "experts_multiply_with_drafts" if mixture else "verification_is_not_free"


def fewer_weights(s: Search) -> Mean:
    """Sparsity: the share of the weights that may be read and multiplied."""
    machine = s.machine()
    if not machine.runs:
        return Mean("sparsity", {}, None, machine.reason)

    def with_share(share: float) -> Aid:
        return replace(s.aid, weights=share)

    low, high = _LEAST_SHARE, 1.0
    if not s.suffices(machine, with_share(low)):
        speed = s.speed(machine, with_share(HALF))
        return Mean("sparsity", {"weights_share": HALF}, speed, "the_rest_alone_is_too_slow")
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if s.suffices(machine, with_share(middle)) else (low, middle)
    reason: ClaimReason | None = None if low >= HALF else "sparser_than_hardware_skips"
    return Mean("sparsity", {"weights_share": low}, s.speed(machine, with_share(low)), reason)


def prefix_cache(s: Search) -> Mean:
    """How many tokens of the prompt have to be in a prefix cache."""
    machine, prompt = s.machine(), s.base.workload.prompt
    if not machine.runs:
        return Mean("prefix_cache", {}, None, machine.reason)
    cached = least(lambda tokens: s.suffices(machine, replace(s.aid, cached=tokens)), 0, prompt - 1)
    tokens = prompt - 1 if cached is None else cached
    reason: ClaimReason | None = "one_new_token_is_too_slow" if cached is None else None
    speed = s.speed(machine, replace(s.aid, cached=tokens))
    return Mean("prefix_cache", {"cached_tokens": tokens, "cached_share": tokens / prompt}, speed, reason)


def shorter_context(s: Search) -> Mean:
    """The longest sequences of which as many as claimed are held."""
    d = s.base

    def held(tokens: int) -> int:
        workload = replace(d.workload, prompt=max(1, tokens - 1), output=1)
        return places_of(replace(d, workload=workload, max_model_len=tokens)) * d.layout.dp

    beyond = least(lambda tokens: held(tokens) < s.claim.value, 2, max(2, d.workload.length))
    tokens = d.workload.length if beyond is None else beyond - 1
    if tokens < 2:
        return Mean("shorter_context", {}, None, "weights_leave_too_little")
    count = float(held(tokens))
    return Mean("shorter_context", {"context": tokens}, Range(count, count, count, count), None)
