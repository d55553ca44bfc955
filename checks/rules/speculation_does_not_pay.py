"""Rounds of drafts cost more than the tokens that they yield at this load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ...errors import RoofplanError
from ...quantities import show_count
from ..finding import Rule
from ..serving import load
from ..spelling import setting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ...planner.speculation_table import Choice, Table
    from ..checked import Checked
    from ..finding import Finding

# Published: 0.53 to 0.82 for small draft models, 0.85 to 0.9 for one MTP head (planner/given_acceptance.py): the assumption of ``advise``.
_TRAINED_ACCEPTANCE = 0.7
_LARGEST_K = 64


def check(checked: Checked) -> Iterator[Finding]:
    """Time rounds of this many drafts at the load, as ``roofplan speculate`` does (formulas F11.5 to F11.8)."""
    said = checked.service.features.get("speculation")
    if said is None or not isinstance(said.value, dict):
        return
    drafts, drafter = said.value.get("k"), _drafter(said.value)
    if drafter is None or not isinstance(drafts, int) or not 1 <= drafts <= _LARGEST_K:
        return
    from ...planner.levers.speculation import LOOKUP_ACCEPTANCE, MOST_DRAFTS

    alpha = said.value.get("acceptance") or (
        LOOKUP_ACCEPTANCE if drafter.get("method") == "ngram" else _TRAINED_ACCEPTANCE
    )
    requests = load(checked)
    if requests is None:
        return  # without a load nobody knows what verifying costs
    table = _table(checked, drafter, alpha, requests, str(drafts))
    (row,), (choice,) = table.rows, table.choices
    if row.speedup > 1 and row.within_budget:
        return
    best = _table(checked, drafter, alpha, requests, f"1..{MOST_DRAFTS}").best
    better = "no number of drafts pays"
    fix = "leave speculation out"
    if best.k:
        fix = setting(checked.service, "speculation.k", best.k)
        better = f"{best.k} would, {best.speedup:.2f}x"
    budget = "" if row.within_budget else ", which exceed the tokens of a step"
    assumed = "as said" if "acceptance" in said.value else "assumed"
    message = (
        f"with {show_count(requests)} sequences a round of {_drafts(drafts)}{budget} costs {row.round_cost:.2f} plain steps"
        f" ({row.verify_ratio:.2f} to verify, {row.draft_cost:.2f} to draft) and yields {row.expected_tokens:.2f} tokens at an acceptance"
        f" of {alpha:.2g} ({assumed}): {row.speedup:.2f}x; {better}{_break_even(choice)}"
    )
    yield RULE.finding(
        checked,
        said.place,
        message,
        fix=fix,
        severity="warning" if "concurrency" in checked.service.options else "note",
        speedup_ratio=row.speedup,
        round_cost=row.round_cost,
        expected_tokens=row.expected_tokens,
    )


def _drafts(count: int) -> str:
    return "1 draft" if count == 1 else f"{count} drafts"


def _drafter(said: Mapping[str, Any]) -> dict[str, str] | None:
    """The drafter by the words of ``speculate``; None for one that it does not know."""
    model = said.get("model")
    method = str(said.get("method") or "").lower().replace("-", "_")
    if not method and isinstance(model, str):
        method = "eagle" if "eagle" in model.lower() else "draft_model"
    for ours, known in (
        ("ngram", ("ngram", "suffix", "lookup", "prompt_lookup")),
        ("eagle", ("eagle", "eagle3")),
        ("medusa", ("medusa",)),
        ("mtp", ("mtp", "nextn")),
    ):
        if (
            method in known
            or (ours == "mtp" and method.endswith("_mtp"))
            or (ours == "ngram" and method.startswith(ours))
        ):
            return {"method": ours}
    if method in {"draft", "draft_model", "standalone"} and isinstance(model, str):
        return {"draft": model}
    return None


def _table(checked: Checked, drafter: dict[str, str], alpha: float, requests: int, drafts: str) -> Table:
    from ...api.speculation import speculate

    d = checked.deployment
    said = checked.service.plain_options()
    options = {name: value for name, value in said.items() if name not in {"model", "hardware", "concurrency"}}
    asked: dict[str, Any] = {**options, **drafter, "engine": d.engine, "acceptance": alpha, "k": drafts}

    def made() -> Table:
        planned = speculate(d.model, d.hardware, concurrency=requests, **cast("Any", asked)).planned
        if planned is None:
            raise RoofplanError("speculation", got="nothing")
        return planned.table

    return checked.once(f"speculation {sorted(drafter.items())} {alpha} {requests} {drafts}", made)


def _break_even(choice: Choice) -> str:
    """At which load, or from which acceptance on, so many drafts pay."""
    words = []
    if choice.most_batch is not None and choice.most_batch.break_even:
        words.append(f"these pay up to a batch of {show_count(choice.most_batch.break_even)}")
    if choice.acceptance is not None:
        words.append(f"{'' if words else 'these pay '}from an acceptance of {choice.acceptance:.2f} on")
    return f"; {', or '.join(words)}" if words else ""


RULE = Rule(
    id="speculation-does-not-pay",
    severity="warning",
    title="Speculation slows this load down",
    why=(
        "Verifying drafts is nearly free while reading the weights binds a step. With many sequences, with experts that drafts "
        "multiply, or with drafts that are rarely kept, a round costs more than the tokens that it yields. It is a note where the load is "
        "not said and only as many sequences as the file admits are that many."
    ),
    fix="Fewer drafts, or none above the batch at which they break even; measure the acceptance of your own traffic.",
    check=check,
)
