"""What a report shows of a claim: the roof and what is reached, the means that explain it, and why others do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import show
from ..quantities import show_bandwidth, show_count, show_time
from .sections import REASONS as MEMORY_REASONS
from .sections import Report, Section

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..planner.claim_gains import GainResult
    from ..planner.claim_search import Mean
    from ..planner.claims import Cause, ClaimResult
    from ..planner.deployment import Deployment
    from ..planner.ranges import Range
    from .sections import Row

REASONS = {
    **MEMORY_REASONS,
    # the claim itself
    "above_the_roof": "one bound over the bytes and FLOP of a step at nominal rates: no kernel is faster",
    "datasheet_is_not_reached": "kernels reach less than the rates of the datasheet (roofplan measure shows those of a machine)",
    "below_what_is_reached": "slower than kernels of this kind of device usually are",
    "memory_holds_fewer": "the cache beside the weights holds fewer sequences",
    # users
    "figure_is_of_one_user": "the figure is of one user: more of them do not raise it",
    "others_only_add_waiting": "more users only add waiting",
    "memory_holds_fewer_users": "it would take more users than memory holds",
    "cache_of_every_user_is_read": "every user brings a cache of its own that each step reads",
    "compute_bound": "the arithmetic binds",
    # formats
    "no_narrower_format": "no narrower format is served here",
    "only_the_weights_shrink": "only the matrices shrink: the head and what stays in 16 bits is read as before",
    "cache_is_read_too": "the cache is read as before",
    "dequantised_to_16_bit_compute": "the arithmetic binds, and narrow weights are multiplied in 16 bits",
    "weights_are_a_part_of_memory": "the weights are only a part of what memory holds",
    "no_cache_is_read": "no context was given: no cache is read",
    "cache_is_a_part_of_what_is_read": "the cache is only a part of what is read and held",
    # drafts
    "drafts_come_after_the_first_token": "drafts begin after the first token",
    "draft_cost_limits_the_gain": "even if every draft were kept, drafting costs too much (--draft-cost)",
    "verification_is_compute_bound": "at this batch the arithmetic binds: every draft that is verified takes its time",
    "verification_is_not_free": "a round takes longer than its drafts and one plain step",
    "experts_multiply_with_drafts": "drafts that are verified together touch more experts, which are read too",
    "acceptance_above_what_is_published": "drafts would have to be kept more often than any published drafter's (--acceptance)",
    "no_more_than_the_tokens_of_a_round": "no round gains more than the tokens that it yields",
    "round_costs_more_than_its_tokens": "a round costs more plain steps than it yields tokens: it loses",
    "batch_above_break_even": "more users than the batch up to which these drafts gain",
    "gains_at_no_batch": "these drafts gain at no batch",
    "too_many_drafts_for_their_cost": "fewer drafts a round gain more at this acceptance and cost",
    # sparsity, devices, prompts, memory
    "sparser_than_hardware_skips": "GPUs skip 2 of 4 values; less than half of the weights is another model",
    "the_rest_alone_is_too_slow": "what is not weights takes longer alone",
    "exchanges_outweigh": "exchanges between devices take more than the shares save",
    "exchanges_take_a_part": "exchanges between devices take a part of what the shares save",
    "devices_take_turns": "one device works at a time: more of them hold more and are not faster",
    "every_replica_reads_the_weights": "every replica reads all weights for its own users",
    "not_enough_devices": "not even the most devices that were looked at suffice",
    "no_link_or_layout_is_known": "no known link joins more of these devices, or the heads do not divide",
    "one_device_does_not_hold_it": "one device does not hold the model: the comparison is on paper",
    "one_new_token_is_too_slow": "even a single new token takes longer",
    "weights_leave_too_little": "the weights leave too little memory for sequences of any length",
    # causes and the cache
    "waiting": "waiting for prompts of others",
    "host_time": "host time in each step",
    "exchange_time": "exchanges between devices",
    "prompts_are_computed_too": "prompts that are computed among the steps (--prompt and --output count them)",
    "counts_token_passes_not_time": "that counts tokens that pass through the model; their time is another matter",
    "decoding_is_memory_bound": "decoding with a cache is bound by memory, passes without one by arithmetic",
}
_MEANS = {
    "batching": "more users",
    "weight_quantisation": "narrower weights",
    "kv_quantisation": "narrower cache",
    "speculation": "drafts",
    "sparsity": "fewer weights read",
    "devices": "more devices",
    "prefix_cache": "prefix cache",
    "shorter_context": "shorter sequences",
}
_BY = {
    "cache": "a KV cache",
    "weights": "narrower weights",
    "kv": "a narrower cache",
    "speculation": "drafts",
    "batching": "batching",
    "devices": "devices",
}


def claim_report(r: ClaimResult | GainResult) -> Report:
    """Arrange a claim of a figure or of a gain."""
    from ..planner.claims import ClaimResult

    return _of_figure(r) if isinstance(r, ClaimResult) else _of_gain(r)


# ------------------------------------------------------------------------------------------------ a figure


def _of_figure(r: ClaimResult) -> Report:
    sections = [_figures(r)]
    if r.means:
        sections.append(_means(r))
    if r.combinations and len(r.combinations[0].ids) > 1:
        sections.append(_together(r))
    if r.causes:
        sections.append(_causes(r))
    remarks = [f"warning: {warning.message}" for warning in r.warnings]
    if r.claim.kind != "sequences":
        remarks.append("roof: the bound at nominal rates. low to high: 80 % of cases. --explain shows the work.")
    return Report(_heading(r), _verdict(r), r.is_possible, tuple(sections), tuple(remarks))


def _heading(r: ClaimResult | GainResult) -> str:
    d = r.deployment
    devices = f"{d.layout.devices} x {d.hardware.name} ({d.layout})" if d.layout.devices > 1 else d.hardware.name
    users = d.workload.concurrency
    load = f"{show_count(users)} {'user' if users == 1 else 'users'}, {_length(r)}"
    return show(f"{r.claim.text} · {d.model.name} on {devices} · {_formats(d)} · {load} · engine {d.engine.name}", 300)


def _formats(d: Deployment) -> str:
    return f"weights {d.formats.name}, KV {d.formats.kv.name}"


def _length(r: ClaimResult | GainResult) -> str:
    workload = r.deployment.workload
    if r.claim.kind == "first_token":
        return f"a prompt of {show_count(workload.prompt)} tokens"
    if r.claim.kind == "sequences":
        return f"sequences of {show_count(workload.length)} tokens"
    if r.question.served:
        return f"{show_count(workload.prompt)} in + {show_count(workload.output)} out"
    return f"a context of {show_count(r.question.context)} tokens" if r.question.context else "no context"


def _verdict(r: ClaimResult) -> str:
    own, bound, ratio = r.speed, r.claim.show(r.speed.bound), r.ratio
    if r.verdict == "plausible":
        held = f"memory holds {bound}" if r.claim.kind == "sequences" else f"{r.claim.show(own.expected)} is expected"
        return f"Plausible: {held}."
    if r.verdict == "slower_than_it_should_be":
        slowest = f"at {'most' if r.claim.is_time else 'least'} {r.claim.show(own.low)}"
        return f"Slower than it should be: {r.claim.show(own.expected)} is expected, {slowest}."
    if not r.machine.runs:
        above = REASONS[r.reasons[0]]
    elif "datasheet_is_not_reached" in r.reasons:
        above = f"below the roof of {bound}, above the {r.claim.show(own.high)} that are reached at best"
    else:
        what = "what memory holds" if r.claim.kind == "sequences" else "the roof"
        above = f"{_times(ratio or 0.0)} times {what}, {bound}"
    if r.verdict == "impossible":
        return f"Impossible: {above}; no means explains it, nor do all of them together."
    named = [" + ".join(_MEANS[name] for name in each.ids) for each in r.combinations]
    at = "" if any(_is_reached(r, each.speed) for each in r.combinations) else " at the roof"
    explained = f"{', or '.join(named)} would explain it{at}" if named else "no means was found"
    return f"Needs help: {above}; {explained}."


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 1000 else f"{ratio:.4g}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _figures(r: ClaimResult) -> Section:
    shown = r.claim.show
    if r.claim.kind == "sequences":
        rows: list[Row] = [("claimed", shown(r.claim.value), ""), ("memory holds", shown(r.speed.bound), "")]
    else:
        known = "" if r.machine.is_known else "nothing is known of what is reached"
        least, most = (r.speed.high, r.speed.low) if r.claim.is_time else (r.speed.low, r.speed.high)
        spread = f"{shown(least)} to {shown(most)}"
        rows = [
            ("claimed", shown(r.claim.speed), ""),
            ("expected", shown(r.speed.expected), known or spread),
            ("roof", shown(r.speed.bound), f"limited by {r.roof_bottleneck}" if r.roof_bottleneck else ""),
        ]
    rows.append(
        (
            "claim / roof",
            "none" if r.ratio is None else _times(r.ratio),
            "; ".join(REASONS[code] for code in r.reasons),
        )
    )
    return Section("The claim", ("", "", ""), tuple(rows))


def _is_reached(r: ClaimResult, speed: Range | None) -> bool:
    """Whether a means reaches the claim on kernels as they are, and not at nominal rates alone."""
    return speed is None or r.claim.speed <= speed.high * (1 + 1e-12)


def _explains(r: ClaimResult, speed: Range | None) -> str:
    if speed is None or r.claim.speed <= speed.expected * (1 + 1e-12):
        return "explains it"
    return "explains it at best" if _is_reached(r, speed) else "explains it at the roof"


def _means(r: ClaimResult) -> Section:
    in_memory = r.claim.kind == "sequences"

    def row(means: Mean) -> Row:
        speed = means.speed
        figures = [] if speed is None else [r.claim.show(value) for value in (speed.bound, speed.expected)]
        why = _explains(r, speed) if means.reason is None else REASONS[means.reason]
        columns = (figures or ["", ""])[in_memory:]  # memory has no roof
        return _MEANS[means.id], _setting(means.setting), *columns, why

    header = ("each alone", "with", "memory holds", "") if in_memory else ("each alone", "with", "roof", "expected", "")
    return Section("What would explain it", header, tuple(row(means) for means in r.means))


def _together(r: ClaimResult) -> Section:
    rows = tuple(
        (
            " + ".join(_MEANS[name] for name in each.ids),
            _setting(each.setting),
            r.claim.show(each.speed.bound),
            r.claim.show(each.speed.expected),
        )
        for each in r.combinations
    )
    return Section("The fewest together", ("", "with", "roof", "expected"), rows)


_SETTINGS: dict[str, Callable[[Any], str]] = {
    "users": lambda users: f"{show_count(users)} users",
    "weights": lambda name: f"{name} weights",
    "kv": lambda name: f"{name} cache",
    "acceptance": lambda share: f"acceptance {share:.4f}",
    "drafts": lambda drafts: f"{drafts} drafts",
    "draft_cost": lambda cost: f"{cost:g} steps a draft",
    "weights_share": lambda share: f"{_percent(share)} of the weights",
    "devices": lambda devices: f"{devices} devices",
    "tp": lambda tp: f"tp {tp}" if tp > 1 else "",
    "dp": lambda dp: f"dp {dp}" if dp > 1 else "",
    "cached_tokens": lambda tokens: f"{show_count(tokens)} tokens cached",
    "cached_share": lambda share: f"{_percent(share)} of the prompt",
    "context": lambda tokens: f"{show_count(tokens)} tokens",
}


def _setting(setting: Mapping[str, Any]) -> str:
    return ", ".join(text for name, value in setting.items() if (text := _SETTINGS[name](value)))


def _causes(r: ClaimResult) -> Section:
    rows = tuple((REASONS[cause.code], _all_of_it(cause)) for cause in r.causes)
    return Section("What may take the time, and how much would explain all of it", ("", ""), rows)


def _all_of_it(cause: Cause) -> str:
    f = cause.figures
    match cause.code:
        case "datasheet_is_not_reached":
            return f"{_percent(f['share_of_roof'])} of the roof, {show_bandwidth(f['bandwidth_bytes_per_s'])}"
        case "exchange_time":
            return (
                f"{show_time(f['all_reduce_s'])} for each all-reduce ({show_time(f['exchange_s'])} a step as expected)"
            )
        case "dequantised_to_16_bit_compute":
            return f"at {f['batch']:g} sequences a step"
        case _:
            return f"{show_time(next(iter(f.values())))}{' a step' if cause.code != 'waiting' else ''}"


# ------------------------------------------------------------------------------------------------ a gain


def _of_gain(r: GainResult) -> Report:
    gain, shown = r.gain, r.claim.show
    rows: list[Row] = [
        ("claimed", shown(r.claim.value), ""),
        ("expected", shown(gain.expected), f"{shown(gain.low)} to {shown(gain.high)}"),
        ("at the roofs of both", shown(gain.bound), ""),
        ("at most", "" if r.most is None else shown(r.most), _MOST[r.by] if r.most else "kernels reach as much"),
        *(
            (_LABELS[name], _beside(name, value), "")
            for name, value in r.figures_beside.items()
            if name in _LABELS and value is not None
        ),
    ]
    sections = [Section(f"The gain by {_BY[r.by]}", ("", "", ""), tuple(rows))]
    if r.reasons:
        sections.append(Section("Why it is no more", ("",), tuple((REASONS[code],) for code in r.reasons)))
    most = "and nothing bounds it" if r.most is None else f"{shown(r.most)} the most there is"
    verdict = {
        "impossible": f"Impossible: {shown(gain.expected)} is expected, {most}.",
        "needs_help": f"Needs help: {shown(gain.expected)} is expected, {most}.",
        "plausible": f"Plausible: {shown(gain.expected)} is expected.",
        "slower_than_it_should_be": f"Slower than it should be: {shown(gain.expected)} is expected.",
    }[r.verdict]
    remarks = tuple(f"warning: {warning.message}" for warning in r.warnings)
    return Report(_heading(r), verdict, r.is_possible, tuple(sections), remarks)


_LABELS = {
    "token_passes": "token passes without it / with it",
    "flop": "FLOP without it / with it",
    "weight_bytes_ratio": "weight bytes of a step before / now",
    "cache_share_of_bytes": "cache of the bytes of a step",
    "all_reduces": "all-reduces of a step",
    "exchange_s": "exchanges of a step",
    "saved_s": "saved by the shares of a step",
    "expected_tokens": "tokens of a round",
    "round_cost": "cost of a round in plain steps",
    "verify_ratio": "verification in plain steps, at the roof",
    "beside_model_s": "time of a round beside drafts and verification",
    "break_even_acceptance": "acceptance from which such rounds gain",
    "best_drafts": "best number of drafts",
    "break_even_users": "most users with whom they gain",
}
_MOST = {
    "cache": "the ratio of FLOP",
    "weights": "the ratio of bytes or of rates",
    "kv": "the ratio of bytes",
    "speculation": "the tokens of a round; as measured: the gain itself",
    "batching": "the users that run",
    "devices": "the ratio of what each has to do",
}


def _beside(name: str, value: float) -> str:
    return show_time(value) if name.endswith("_s") and value >= 0 else f"{value:.4g}"
