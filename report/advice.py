"""What a report shows of advice: where the deployment stands, the levers with their gains, and why each does or does not pay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import show
from ..planner.levers.outcomes import GOALS
from ..quantities import show_bytes, show_count, show_rate, show_time
from .sections import Report, Section, deployment_heading

if TYPE_CHECKING:
    from ..planner.advice import Advice
    from ..planner.levers.outcomes import Goal, Outcome
    from ..planner.levers.situation import Lever, Status
    from .sections import Row

_NAMES: dict[Goal, str] = {
    "ttft": "TTFT",
    "tpot": "TPOT",
    "throughput": "tokens/s",
    "capacity": "capacity",
    "cost": "cost",
}
_TITLES: dict[Status, str] = {
    "available": "What can be changed",
    "in_use": "In use already: what each gives",
    "training": "Decided when a model is trained",
    "not_applicable": "Nothing to pull here",
}
_SHORT = {
    "makes_it_fit": "makes it fit",
    "does_not_fit": "does not fit",
    "not_applicable": "",
    "single_token_has_no_gap": "no gap",
    "no_price": "no price",
    "no_dense_rate": "no rate",
}
_LIMITS = {
    "compute": "arithmetic",
    "weight_bandwidth": "reading weights",
    "kv_bandwidth": "reading the cache",
    "interconnect": "exchanges between devices",
    "overhead": "fixed times of kernels and host",
    None: "unknown",
}


def advice_report(r: Advice) -> Report:
    """Arrange advice: the outcome now, the levers by what one can do with them, each ranked, and the reasons."""
    sections = [_now(r)]
    for status, title in _TITLES.items():
        levers = [lever for lever in r.levers if lever.status == status]
        if levers:
            sections.append(_none(title, levers) if status == "not_applicable" else _gains(r, title, levers))
    sections.append(_reasons(r))
    return Report(
        deployment_heading(r.situation.deployment), _verdict(r), r.best is not None, tuple(sections), _remarks(r)
    )


def _verdict(r: Advice) -> str:
    best, goal = r.best, _NAMES[r.goal]
    if best is None:
        return f"No lever that can be pulled here improves {goal}."
    gain = best.gains.of(r.goal)
    brings = "makes it fit" if gain is None else f"{gain:.2f} times as good"
    return show(f"Best for {goal}: {best.title} ({brings}).", 300)


def _now(r: Advice) -> Section:
    outcome, situation = r.now, r.situation
    rows: list[Row] = [
        ("TTFT in steady state", _time(outcome.ttft_s), f"prompts are bound by {_LIMITS[situation.prefill_limit]}"),
        ("TPOT", _time(outcome.tpot_s), f"decoding is bound by {_LIMITS[situation.decode_limit]}"),
        (
            "output tokens/s",
            "none" if outcome.output_tokens_per_s is None else show_rate(outcome.output_tokens_per_s),
            "",
        ),
        ("sequences at full length", show_count(outcome.max_concurrency), outcome.refused or ""),
        ("a million output tokens", _price(outcome), ""),
    ]
    return Section("As it stands", ("", "", ""), tuple(rows))


def _time(value: float | None) -> str:
    return "none" if value is None else show_time(value)


def _price(outcome: Outcome) -> str:
    dollars, seconds = outcome.usd_per_million_output_tokens, outcome.device_s_per_million_output_tokens
    if dollars is not None:
        return f"{dollars:.3g} $"
    return "none" if seconds is None else f"{seconds:,.0f} device-seconds"


def _gains(r: Advice, title: str, levers: list[Lever]) -> Section:
    """Levers with their gains, the goal first."""
    goals = [r.goal, *(goal for goal in GOALS if goal != r.goal)]
    header = ("", *(_NAMES[goal] for goal in goals), "memory", "exact")
    rows = tuple(
        (
            lever.title,
            *(_gain(lever, goal) for goal in goals),
            _memory(lever.memory_bytes),
            "yes" if lever.exact else "no",
        )
        for lever in levers
    )
    return Section(title, header, rows)


def _gain(lever: Lever, goal: Goal) -> str:
    gain = lever.gains.of(goal)
    if gain is None:
        return _SHORT[lever.no_gain_because(goal) or "not_applicable"]
    if 0 < gain < 0.1:
        return f"{gain:.2g}"
    return f"{gain:.2f}" if gain < 100 else f"{gain:,.0f}"


def _memory(size: int) -> str:
    return "" if not size else f"{'+' if size > 0 else '-'}{show_bytes(abs(size), 3)}"


def _none(title: str, levers: list[Lever]) -> Section:
    return Section(title, ("", ""), tuple((lever.title, lever.why) for lever in levers))


def _reasons(r: Advice) -> Section:
    """Why each lever pays or does not, and what it costs, in the order of the tables before."""
    order = list(_TITLES)
    levers = sorted(r.levers, key=lambda lever: order.index(lever.status))
    rows = []
    for lever in levers:
        if lever.status != "not_applicable":
            option = f" [{lever.option}]" if lever.option else ""
            costs = f"Quality: {lever.quality}. Effort: {lever.complexity}."
            rows.append((f"{lever.title}{option}", f"{lever.why}. {costs}"))
    return Section("Why, and at what cost", ("", ""), tuple(rows))


def _remarks(r: Advice) -> tuple[str, ...]:
    choices = r.situation.choices
    assumed = (
        f"assumed: {choices.prefix_hit:.0%} of every prompt in common (--prefix-hit), {choices.acceptance:.0%} of the drafts of a trained"
        " layer kept (--acceptance), output lengths geometric for static batches."
    )
    return (
        *(f"warning: {warning.message}" for warning in r.warnings),
        "gains: how many times as good, each lever alone, at the asked concurrency; they do not multiply. Below 1 it gets worse.",
        "memory: bytes per device beside what is taken without the lever, with as many sequences as run now.",
        assumed,
    )
