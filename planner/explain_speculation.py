"""Showing the work of speculation: tokens of a round, what it costs, the speed-up, where it stops to pay, and the memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..quantities import show_bytes, show_count, show_rate, show_time
from .results import Explanation

if TYPE_CHECKING:
    from .ranges import Range
    from .speculation import Planned
    from .speculation_table import Choice, Row
    from .speculative_steps import LargestBatch


def explain_speculation(p: Planned) -> tuple[Explanation, ...]:
    """Explain the figures of the best row: of the concurrency with the largest speed-up, the number of drafts that comes nearest to pay."""
    choice = p.table.best
    row = choice.nearest
    if row is None:
        return ()
    return (_tokens(p, row), _round(p, row), _speedup(row), _tpot(p, row), _break_even(choice, row), _memory(p, row))


def _tokens(p: Planned, row: Row) -> Explanation:
    given = p.given
    found = "" if p.hit_rate is None else f", in {p.hit_rate:g} of the rounds"
    match given.kind:
        case "per_position":
            formula = "1 + sum of the cumulative rates R_j (F11.4)"
            numbers = " + ".join(["1", *(f"{rate:g}" for rate in given.rates[: row.k])])
        case "tree":
            formula, numbers = (
                "1 + sum over nodes of the product of probabilities on their path (F11.8)",
                f"the best {row.k} nodes",
            )
        case _:
            formula = "(1 - alpha^(k+1)) / (1 - alpha) (F11.2; Leviathan et al. 2023)"
            numbers = f"(1 - {given.alpha:.6g}^{row.k + 1}) / (1 - {given.alpha:.6g})"
    inputs = () if given.alpha is None else (("alpha", f"{given.alpha:.6g}", _source(p)),)
    return Explanation("best.expected_tokens", f"{row.expected_tokens:.4f}", formula, numbers + found, inputs)


def _source(p: Planned) -> str:
    given = p.given
    if given.kind == "acceptance":
        return "as given"
    return f"the one alpha that gives the {given.kind.replace('_', ' ')} at {given.measured_at} drafts (F11.4)"


def _round(p: Planned, row: Row) -> Explanation:
    largest = max(
        (("the drafter", row.draft_cost), ("verification", row.verify_ratio - 1), ("what is fixed", row.fixed_cost)),
        key=lambda part: part[1],
    )
    overhead = next(each for each in p.assumed if each.name == "round_overhead_s")
    return Explanation(
        "best.round_cost",
        f"{row.round_cost:.4f} plain steps",
        "passes x c_d + v + fixed time / step (F11.5, F11.6)",
        f"{row.draft_cost:.4f} for {row.passes} passes of {p.plan.name} + {row.verify_ratio:.4f} for {row.batch} x {row.k + 1} tokens"
        f" at a context of {show_count(p.deployment.workload.mean_context)} + {row.fixed_cost:.4f}",
        (("fixed time of a round", show_time(float(overhead.value)), overhead.source),),
        f"{largest[0]} costs most beside the step itself",
    )


def _speedup(row: Row) -> Explanation:
    return Explanation(
        "best.speedup",
        f"{row.speedup:.4f}",
        "tokens of a round / its cost in plain steps (F11.5)",
        f"{row.expected_tokens:.4f} / {row.round_cost:.4f}",
    )


def _tpot(p: Planned, row: Row) -> Explanation:
    plain = next(each for each in p.table.plain if each.concurrency == row.concurrency)
    return Explanation(
        "best.tpot_s",
        _spread(row.tpot_s),
        "time of a round / its tokens; all requests together give requests / TPOT tokens/s",
        f"plain TPOT {show_time(plain.tpot_s.expected)} / {row.speedup:.4f}; {show_rate(row.output_tokens_per_s.expected)} output tokens/s",
    )


def _spread(figure: Range) -> str:
    return f"{show_time(figure.expected)} ({show_time(figure.low)} to {show_time(figure.high)}; roof {show_time(figure.bound)})"


def _break_even(choice: Choice, row: Row) -> Explanation:
    value = "none: not even perfect acceptance" if choice.acceptance is None else f"{choice.acceptance:.4f}"
    if choice.acceptance is None and row.round_cost < row.k + 1:
        value = "not of one acceptance"
    batch = "" if choice.most_batch is None else f"; up to batch: {where_it_ends(choice.most_batch)}"
    return Explanation(
        "break_even.acceptance",
        value + batch,
        "E(alpha, k) = cost of a round, solved for alpha (F11.5); the round may cost as many steps as it yields tokens",
        f"E(alpha, {row.k}) = {row.round_cost:.4f}",
    )


_ENDS = {"step_budget": "the step holds", "memory": "memory holds", "search_end": "looked up to"}


def where_it_ends(most: LargestBatch) -> str:
    """The batch up to which drafts pay in words: a break-even, or that there is none and what limits the batch instead."""
    if most.limit is not None:
        return f"never stops to pay ({_ENDS[most.binds]} {show_count(most.limit)})"
    if most.batch is not None:
        return show_count(most.batch)
    return "at none that memory holds" if most.binds == "memory" else "at none"


def _memory(p: Planned, row: Row) -> Explanation:
    memory = row.memory
    return Explanation(
        "best.memory.total_bytes",
        f"{show_bytes(memory.total_bytes)} ({memory.total_bytes:,} B) on the fullest device",
        "draft weights + draft cache of every sequence + k + 1 slots of target cache each + k states of recurrent layers (F11.11)",
        f"{memory.draft_weights_bytes:,} + {memory.draft_cache_bytes:,} + {memory.slots_bytes:,} + {memory.states_bytes:,} B,"
        f" {row.batch} sequences of {show_count(p.deployment.workload.length)} tokens",
    )
