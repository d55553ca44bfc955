"""Showing the work of a claim: the roof, what is reached, the ratio, and the formula of each means that explains it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..quantities import show_bandwidth, show_bytes, show_compute, show_count, show_flop
from .caching import source_of_model
from .claim_speeds import NOTHING_RUNS
from .costs import Load
from .evidence import evidence_of
from .memory import plan_memory
from .notices import main_arithmetic
from .results import Explanation

if TYPE_CHECKING:
    from .claim_gains import GainResult
    from .claim_search import Mean
    from .claims import ClaimResult

_MEANS = {
    "batching": "B / t(B) over users B, one cache each (F7.1)",
    "weight_quantisation": "matrices x bytes per parameter of the format; head, table and norms as the format leaves them (F4.3)",
    "kv_quantisation": "cache bytes per token x bytes of the format / bytes now (F3.7)",
    "speculation": "max over k of E(alpha, k) / (k c + v) = claim / speed now, solved for alpha (F11.5, F11.6)",
    "sparsity": "share s of W_read and its FLOP with which the step takes the claimed time (F16)",
    "devices": "each rank reads its part of the weights; 2 exchanges a layer at the link's rate (F12.2)",
    "prefix_cache": "time of the rest of the prompt after the cached tokens (F9.2)",
    "shorter_context": "cache budget / bytes of a sequence, solved for its tokens (F7.5)",
}


def explain_claim(r: ClaimResult) -> tuple[Explanation, ...]:
    """Explain the figures of a claim of a rate, a time or sequences in memory."""
    lines = [_held(r)] if r.claim.kind == "sequences" else [_roof(r), _reached(r)]
    ratio = "none: nothing runs" if r.ratio is None else f"{r.ratio:.4g}"
    numbers = f"{r.claim.show(r.claim.speed)} against {r.claim.show(r.speed.bound)}"
    binds = ", ".join(r.reasons)
    lines.append(Explanation("ratio", ratio, "claim / roof; of a time: roof / claim (F16)", numbers, binds=binds))
    return (*lines, *(_means(r, means) for means in r.means if means.setting))


def _unit(r: ClaimResult) -> str:
    return "bound_s" if r.claim.kind == "first_token" else "bound_tokens_per_s"


def _roof(r: ClaimResult) -> Explanation:
    d, machine = r.deployment, r.machine
    arithmetic, hardware = main_arithmetic(d), d.hardware
    rate = hardware.peak.rate(arithmetic)
    if r.claim.kind == "first_token":
        load = Load(0, 0, chunk=d.workload.prompt)
        formula = "max(FLOP / F, (W_read + S c) / W_bw) over the whole prompt, in one pass (F6.1)"
        what = f"{show_count(d.workload.prompt)} tokens"
    else:
        load = Load(machine.batch(r.users), r.question.context)
        formula = "B / max(FLOP / F, (W_read + B L c) / W_bw) over the whole step (F6.2, F16)"
        what = f"B = {load.decoders:g}, L = {load.context:g}"
        if r.question.served:
            formula += "; for all users with B / G prompts of S tokens in each step"
    flop, weights, cache = machine.nominal.totals(load)
    bandwidth = show_bandwidth(hardware.memory.bandwidth)
    compute = "unknown" if rate is None else show_compute(rate)
    return Explanation(
        _unit(r),
        r.claim.show(r.speed.bound),
        formula,
        f"{what}: max({show_flop(flop)} / {compute}, ({show_bytes(weights)} + {show_bytes(cache)}) / {bandwidth})"
        f"; one of {d.layout.tp} rank(s)",
        (
            ("shape", d.model.name, source_of_model(d.model)),
            ("bandwidth", bandwidth, _source(r, "memory.bandwidth")),
            (f"dense {arithmetic} peak", compute, _source(r, f"peak.{arithmetic}")),
        ),
        binds=str(r.roof_bottleneck or ""),
    )


def _source(r: ClaimResult, figure: str) -> str:
    evidence = r.deployment.hardware.evidence_of(figure)
    return f"{r.deployment.hardware.name}: {evidence.source}" if evidence else "no source given"


def _reached(r: ClaimResult) -> Explanation:
    evidence = evidence_of(r.deployment)
    width = evidence.first_token_width if r.claim.kind == "first_token" else evidence.width
    parts = ", ".join(f"{why} x/÷ {part:g}" for why, part in evidence.parts) or "nothing is known: the roof stands in"
    shown = [r.claim.show(value) for value in (r.speed.low, r.speed.expected, r.speed.high)]
    return Explanation(
        "range.expected",
        f"{shown[1]} ({shown[0]} to {shown[2]})",
        "the step on kernels as they are reached, with launches, exchanges and host time; the range x/÷ the width",
        f"width {width:.3g}: {parts}",
        binds=str(r.bottleneck or ""),
    )


def _held(r: ClaimResult) -> Explanation:
    plan, d = plan_memory(r.deployment), r.deployment
    reason = r.machine.reason if r.machine.reason in NOTHING_RUNS else ""
    return Explanation(
        "bound_sequences",
        r.claim.show(r.speed.bound),
        "replicas x floor((u C - weights - activations - runtime) / bytes of a sequence) (F7.5)",
        f"{d.layout.dp} x floor({show_bytes(plan.kv_budget_bytes)} / {show_bytes(plan.kv_bytes_per_sequence)})"
        f" of {show_count(d.workload.length)} tokens",
        binds=reason or "",
    )


def _means(r: ClaimResult, means: Mean) -> Explanation:
    setting = ", ".join(f"{name} = {value}" for name, value in means.setting.items())
    value = "not at all" if means.speed is None else r.claim.show(means.speed.bound)
    return Explanation(f"means.{means.id}", value, _MEANS[means.id], setting, binds=means.reason or "")


_GAINS = {
    "cache": "time of G passes over all tokens so far / time of one pass over the prompt and G - 1 steps (F17)",
    "weights": "step with the wider weights / step with these (F4.3, F6.2)",
    "kv": "step with the wider cache / step with this one (F3.7, F6.2)",
    "speculation": "E / (k c + v), or E t_plain / t_round where both were measured (F11.5, F11.6)",
    "batching": "B t(1) / t(B) (F7.1)",
    "devices": "step on one device / step on all, exchanges counted (F12.1, F12.2)",
}


_MOST = {
    "cache": "FLOP without the cache / with it: no bytes are spared (F17)",
    "weights": "bytes of a step with the wider weights / with these, or the ratio of the arithmetic's rates where that is more (F4.3)",
    "kv": "bytes of a step with the wider cache / with this one, for each sequence (F3.7)",
    "speculation": "E, tokens of a round, which takes a plain step at least; as measured: the gain itself (F11.5)",
    "batching": "users that run: no step of all is shorter than that of one (F7.1)",
    "devices": "bytes, FLOP or steps of one device for each token, alone / of several: their number, or more where one holds fewer users"
    " (F12.1)",
}


def explain_gain(r: GainResult) -> tuple[Explanation, ...]:
    """Explain the figures of a claimed gain."""
    shown = ", ".join(f"{name} = {value:.6g}" for name, value in r.figures_beside.items() if value is not None)
    low, high = r.gain.low, r.gain.high
    most = "none: kernels reach as much" if r.most is None else f"{r.most:.4g}"
    ratio = "none: nothing bounds it" if r.ratio is None else f"{r.ratio:.4g}"
    return (
        Explanation("bound_gain", most, _MOST[r.by], shown),
        Explanation("roof_gain", f"{r.gain.bound:.4g}", f"{_GAINS[r.by]}, both at their roofs: no bound", shown),
        Explanation("expected_gain", f"{r.gain.expected:.4g}", "the same as reached", f"{low:.3g} to {high:.3g}"),
        Explanation("ratio", ratio, "claim / most that the means gives", f"{r.claim.value:g} / {most}"),
    )
