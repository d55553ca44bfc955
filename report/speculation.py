"""What an answer on speculation shows: whether it pays and why, speed-ups by drafts and requests, costs, memory, trials of the rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import show
from ..planner.explain_speculation import where_it_ends
from ..planner.speculation import LEAST
from ..quantities import show_bytes, show_count, show_rate, show_time
from .sections import Report, Section

if TYPE_CHECKING:
    from ..planner.draft_trials import Measured, Trials
    from ..planner.ranges import Range
    from ..planner.speculation import Planned, SpeculationResult, TriedRules
    from ..planner.speculation_table import Choice, Row

_MOST_COLUMNS = 8  # concurrencies beside one another

REASONS = {
    "draft_too_expensive": "drafting takes more than its tokens save",
    "fixed_cost_per_round": "every round costs a fixed time that its tokens do not save",
    "experts_multiply": "the tokens of a verification touch more experts, whose weights all have to be read",
    "batch_above_break_even": "so many requests fill the device's arithmetic: verification is no longer free; fewer requests would gain",
    "verification_too_expensive": "verifying several tokens takes longer than one step saves",
    "acceptance_too_low": "too few drafts are kept",
    "no_room_in_step": "the tokens of a step have no room for a single draft of each request",
}


DECODING_ALONE = "Decoding alone: prompts of a server's other requests come between its rounds and are not counted (roofplan advise does)."


def speculation_report(r: SpeculationResult) -> Report:
    """Arrange speculation: verdict, speed-ups, the best of each concurrency, what a round costs, memory; and trials."""
    sections: list[Section] = []
    remarks = [f"warning: {warning.message}" for warning in r.warnings]
    heading, verdict = "", ""
    if r.planned is not None:
        p = r.planned
        heading, verdict = heading_of(p), _verdict(p)
        sections += [_speedups(p), _best(p), *_ends(p), _costs(p), _memory(p)]
        remarks += _remarks(p)
    if r.tried is not None:
        t = r.tried
        if r.planned is None:
            heading = f"The acceptance rule on {show_count(t.tokens)} tokens, TV(p, q) = {t.divergence:.4g}"
            verdict = _tried_verdict(t)
        sections += [_trials(t), *_seeds(t)]
        remarks.append(
            "chi-square: how likely tokens that far from the target are if the rule gives the target; below 1e-6 the rule fails."
        )
    return Report(heading, verdict, r.good, tuple(sections), tuple(remarks))


def heading_of(p: Planned) -> str:
    """Target, device, drafter, acceptance."""
    d = p.deployment
    devices = f"{d.layout.devices} x {d.hardware.name}" if d.layout.devices > 1 else d.hardware.name
    context = show_count(d.workload.mean_context)
    return show(
        f"{d.model.name} on {devices}, drafts by {p.plan.name}, {_given(p)}, at a context of {context} tokens", 300
    )


def _given(p: Planned) -> str:
    given = p.given
    if given.kind == "per_position":
        text = "cumulative rates " + ", ".join(f"{rate:g}" for rate in given.rates[:4])
        text += ", ..." if len(given.rates) > 4 else ""
    elif given.kind == "tree":
        text = f"a tree of {len(given.ranks)} levels"
    elif given.kind == "acceptance":
        text = f"acceptance {given.alpha:g}"
    else:
        text = f"acceptance {given.alpha:.3f} from the {given.kind.replace('_', ' ')} at k = {given.measured_at}"
    return text if p.hit_rate is None else f"{text}, found in {p.hit_rate:.0%} of the rounds"


def _verdict(p: Planned) -> str:
    best = p.table.best
    if best.k:
        losing = [choice for choice in p.table.choices if not choice.k]
        drafts = f"{best.k} nodes" if p.given.kind == "tree" else f"{best.k} draft{'s' if best.k > 1 else ''}"
        text = f"Speculation pays: {best.speedup:.2f}x at {_requests(best.concurrency)} with {drafts} a round."
        if losing:
            text += f" It does not pay at {_requests(losing[0].concurrency)}: {_why(losing[0])}"
        return text
    return f"Speculation does not pay at {_requests(best.concurrency)}: {_why(best)}"


def _requests(count: int) -> str:
    return f"{show_count(count)} request{'s' if count > 1 else ''}"


def _why(choice: Choice) -> str:
    reason = REASONS[choice.reason or "acceptance_too_low"]
    row = choice.nearest
    if row is None:
        return f"{reason}."
    worth = f"a round of {row.k} costs {row.round_cost:.2f} steps and yields {row.expected_tokens:.2f} tokens"
    if choice.acceptance is not None:
        needed = f"it would pay above an acceptance of {choice.acceptance:.3f}"
    elif row.round_cost >= row.k + 1:
        needed = "not even perfect acceptance would pay"
    else:
        needed = "it pays when it yields more tokens than it costs steps"
    return f"{reason} ({worth}; {needed})."


def _shown(p: Planned) -> list[Choice]:
    return list(p.table.choices[:_MOST_COLUMNS])


def _speedups(p: Planned) -> Section:
    shown = _shown(p)
    by_place = {(row.k, row.concurrency): row for row in p.table.rows}
    drafts = sorted({row.k for row in p.table.rows})
    best = {choice.concurrency: choice.k for choice in shown}
    rows = []
    for k in drafts:
        cells = [by_place[k, choice.concurrency] for choice in shown]
        marked = tuple(_speedup(cell, chosen=best[cell.concurrency] == k) for cell in cells)
        rows.append((str(k), f"{cells[0].expected_tokens:.3f}", *marked))
    of = "nodes" if p.given.kind == "tree" else "drafts"
    header = (of, "tokens a round", *(f"at {show_count(choice.concurrency)}" for choice in shown))
    more = len(p.table.choices) - len(shown)
    title = "Speed-up by drafts of a round and requests at a time" + (f" ({more} more in JSON and CSV)" if more else "")
    return Section(title, header, tuple(rows))


def _speedup(row: Row, *, chosen: bool) -> str:
    if not row.within_budget:
        return ""
    return f"{row.speedup:.3f}" + (" best" if chosen else "")


def _best(p: Planned) -> Section:
    plain = {each.concurrency: each for each in p.table.plain}
    rows = []
    for choice in p.table.choices:
        without = plain[choice.concurrency]
        row = choice.nearest if choice.k else None
        tpot, rate = (without.tpot_s, without.output_tokens_per_s)
        after = (tpot, rate) if row is None else (row.tpot_s, row.output_tokens_per_s)
        rows.append(
            (
                show_count(choice.concurrency),
                str(choice.k) if choice.k else "none",
                f"{choice.speedup:.3f}",
                show_time(tpot.expected),
                _time(after[0]),
                show_rate(after[1].expected),
            )
        )
    header = ("requests", "best", "speed-up", "TPOT without", "TPOT with (low to high)", "tokens/s")
    return Section("The best at each concurrency", header, tuple(rows))


def _ends(p: Planned) -> list[Section]:
    rows = []
    for choice in p.table.choices:
        row = choice.nearest
        if row is not None:
            rows.append((show_count(choice.concurrency), str(row.k), _break_even(choice), _most(choice)))
    header = ("requests", "k", "pays above acceptance", "pays up to batch")
    return [Section("Where it stops to pay", header, tuple(rows))] if rows else []


def _time(figure: Range) -> str:
    if figure.low == figure.high:
        return show_time(figure.expected)
    return f"{show_time(figure.expected)} ({show_time(figure.low)} to {show_time(figure.high)})"


def _break_even(choice: Choice) -> str:
    row = choice.nearest
    if choice.acceptance is not None:
        return f"{choice.acceptance:.4f}"
    return "none" if row is not None and row.round_cost >= row.k + 1 else ""


def _most(choice: Choice) -> str:
    return "" if choice.most_batch is None else where_it_ends(choice.most_batch)


def _costs(p: Planned) -> Section:
    rows = []
    for choice in p.table.choices:
        row = choice.nearest
        if row is not None:
            cells = (row.draft_cost, row.verify_ratio, row.fixed_cost, row.round_cost, row.expected_tokens)
            size = f"{show_count(row.batch)} x {row.k + 1}"
            rows.append((show_count(choice.concurrency), str(row.k), size, *(f"{cell:.3f}" for cell in cells)))
    header = ("requests", "k", "tokens verified", "drafting", "verification", "fixed", "a round", "yields tokens")
    return Section("What a round costs, in steps without drafts", header, tuple(rows))


def _memory(p: Planned) -> Section:
    rows = []
    for choice in p.table.choices:
        row = choice.nearest
        if row is not None:
            m = row.memory
            parts = (m.draft_weights_bytes, m.draft_cache_bytes, m.slots_bytes + m.states_bytes, m.total_bytes)
            fits = "yes" if row.fits else "no"
            rows.append((show_count(choice.concurrency), str(row.k), *(show_bytes(part) for part in parts), fits))
    header = ("requests", "k", "draft weights", "draft cache", "unverified tokens", "together", "fits")
    return Section("Memory on the fullest device", header, tuple(rows))


def _remarks(p: Planned) -> list[str]:
    how = {
        "reached": "Steps as kernels and engine reach them; low to high: 80 % of cases. JSON has the roofline's bound beside them.",
        "roofline": "Steps at nominal rates (the roofline), every operator by itself.",
        "two-part": "Steps at nominal rates, one bound for the linear part and one for attention (formula F11.6).",
    }
    remarks = [how[p.timing], DECODING_ALONE]
    overhead = next(each for each in p.assumed if each.name == "round_overhead_s")
    if overhead.kind == "fitted":
        remarks.append(
            f"each round also takes {show_time(float(overhead.value))}: {overhead.source} (--overhead replaces it)"
        )
    if p.given.measured_at is not None:
        remarks.append(
            f"other k than {p.given.measured_at} by one acceptance: later drafts are kept less often where it falls."
        )
    return remarks


# ------------------------------------------------------------------------------------------------ trials


def _tried_verdict(t: TriedRules) -> str:
    exact = f"The exact rule gives the target's distribution (p = {_p(t.exact.fit.p_value)})"
    if not t.holds:
        exact = f"The exact rule does not give the target's distribution (p = {_p(min(t.p_values))})"
    relaxed = max(t.relaxed_p_values)
    fails = "does not" if relaxed < LEAST else "is not found out by so few rounds"
    return f"{exact}; {t.relaxed.rule} {fails} (p = {_p(relaxed)})."


def _p(value: float) -> str:
    return f"{value:.3g}" if value >= 1e-300 else "below 1e-300"


def _trials(t: TriedRules) -> Section:
    columns = [_column(t.exact), _column(t.relaxed)]
    formulas = {
        "acceptance (95 %)": f"1 - TV = {t.exact.acceptance.formula:.4f}",
        "tokens a round (95 %)": f"{t.exact.tokens_per_round.formula:.4f}",
    }
    rows = tuple((name, *(column[name] for column in columns), formulas.get(name, "")) for name in columns[0])
    title = f"Trials: {t.exact.drafts} drafts a round, seed {t.exact.seed}"
    return Section(title, ("", "exact rule", str(t.relaxed.rule), "formula of the exact rule"), rows)


def _column(x: Trials) -> dict[str, str]:
    return {
        "rounds": f"{x.rounds:,}",
        "tokens that came out": f"{x.tokens:,}",
        "chi-square": f"{x.fit.statistic:,.1f} with {x.fit.degrees:,} degrees of freedom",
        "p-value": _p(x.fit.p_value),
        "TV to the target": f"{x.distance:.4f}",
        "acceptance (95 %)": _measured(x.acceptance),
        "tokens a round (95 %)": _measured(x.tokens_per_round),
    }


def _measured(measured: Measured) -> str:
    return f"{measured.value:.4f} ({measured.low:.4f} to {measured.high:.4f})"


def _seeds(t: TriedRules) -> list[Section]:
    if len(t.p_values) < 2:
        return []
    rows = [
        ("p-values of the exact rule", f"{_p(min(t.p_values))} to {_p(max(t.p_values))}"),
        (f"largest p-value of {t.relaxed.rule}", _p(max(t.relaxed_p_values))),
    ]
    if t.uniformity is not None:
        rows.append(("are they uniform? (Kolmogorov)", f"p = {_p(t.uniformity)}"))
    return [Section(f"{len(t.p_values)} seeds", ("", ""), tuple(rows))]
