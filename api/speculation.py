"""The call behind ``roofplan speculate``: names, options and acceptance in; a table, trials of the rule, or both out."""

from __future__ import annotations

import re
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, get_args

from ..errors import DomainError, LayoutError, UnknownNameError
from ..planner.drafters import METHODS, of_cost, of_method, of_model, round_overhead
from ..planner.given_acceptance import given_acceptance
from ..planner.results import Notice
from ..planner.speculation import Planned, SpeculationResult
from ..planner.speculation_table import Timing, table_of
from ..quantities import FRACTION, NUMBER, TIME, parse, parse_count, parse_tokens
from .building import deployment, sixteen_bits
from .options import Options, Whole, optional_count, optional_text
from .trials import TrialOptions, contradiction, read_pair, tried

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Unpack

    from ..hardware.spec import HardwareSpec
    from ..models.spec import ModelSpec
    from ..planner.deployment import Deployment
    from ..planner.drafters import DraftPlan, Method
    from ..planner.given_acceptance import GivenAcceptance

Share = float | str
Shares = str | float | list[float] | tuple[float, ...]
DEFAULT_DRAFTS = "1..8"
_MOST_NUMBERS = 256  # of drafts, or of concurrencies
_MOST_K = 1000
_SHARE = replace(FRACTION, zero=True)
_RANGE = re.compile(r"(\d{1,9}) ?\.\. ?(\d{1,9})", re.ASCII)


class AcceptanceOptions(TrialOptions, total=False):
    """How often drafts are kept, one of five ways, and the trials of the rule; None is as good as left out."""

    acceptance: Share | None
    per_position: Shares | None
    mean_length: Share | None
    accepted_per_drafted: Share | None
    tree: str | list[list[float]] | None
    measured_at: Whole | None


class DraftOptions(AcceptanceOptions, total=False):
    """How drafts are made and counted."""

    draft: str | PathLike[str] | ModelSpec | None
    draft_cost: Share | None
    method: str | None
    draft_weights: str | None
    draft_tp: Whole | None
    draft_layers: Whole | None
    draft_vocabulary: Whole | None
    k: Whole | list[int] | None
    context: Whole | None
    timing: str | None
    overhead: Share | None
    hit_rate: Share | None


class SpeculateOptions(DraftOptions, Options, total=False):
    """All options of :func:`speculate`."""


def speculate(
    target: str | PathLike[str] | ModelSpec | None = None,
    device: str | PathLike[str] | HardwareSpec | None = None,
    *,
    simulate: bool = False,
    **options: Unpack[SpeculateOptions],
) -> SpeculationResult:
    """Find out whether drafts pay, with how many of them, and up to which load; or try the acceptance rule on random drafts.

    Parameters
    ----------
    target, device : names, paths or specs; with ``simulate`` they may be left out
    simulate : draw rounds by the exact and by a relaxed rule (``rounds``, ``seed``, ``seeds``, ``divergence``, ``vocabulary``,
        ``target_probabilities``, ``draft_probabilities``, ``relaxed``)
    options : one drafter (``draft``: a model; ``draft_cost``: of a draft in plain steps; ``method``: mtp, medusa, eagle, ngram or
        layer-skip), one acceptance (``acceptance``, ``per_position``, ``mean_length``, ``accepted_per_drafted`` or ``tree``), ``k`` and
        ``concurrency`` (a number, ``1..12`` or ``1,8,64``), and the options of :func:`~roofplan.api.size`

    Raises
    ------
    RoofplanError : for anything that does not exist, does not divide, contradicts itself or lies outside its domain

    >>> speculate("llama-3-8b", "h100-sxm", draft_cost=0.1, acceptance=0.8, k="1..12", timing="two-part").planned.table.best.k
    6
    """
    from .options import given as without_none

    asked: dict[str, Any] = dict(without_none(options))
    trial = {name: asked.pop(name) for name in TrialOptions.__annotations__ if name in asked}
    if trial and not simulate:
        raise DomainError(f"--{next(iter(trial)).replace('_', '-')}", got="no trials", wanted="--simulate beside it")
    drafts = {name: asked.pop(name) for name in _DRAFT_NAMES if name in asked}
    if target is None and not simulate:
        raise DomainError("TARGET", got="nothing", wanted="a name or a path (or --simulate alone)")
    pair = read_pair(trial, _alpha(drafts)) if simulate else None
    if pair is not None:
        contradiction(pair, _alpha(drafts))
        if not any(drafts.get(name) is not None for name in _ACCEPTANCE_NAMES[:-1]):
            drafts["acceptance"] = 1 - pair.divergence
    planned = None if target is None else _planned(target, device, drafts, asked)
    if target is None:
        _check_alone(drafts, asked)
    rules = None
    if pair is not None:
        best = planned.table.best.k if planned else 0
        rules = tried(pair, trial, best or _numbers(drafts.get("k", "4"), "--k", _MOST_K)[-1])
    return SpeculationResult(planned, rules)


_ACCEPTANCE_NAMES = tuple(
    name for name in AcceptanceOptions.__annotations__ if name not in TrialOptions.__annotations__
)
_DRAFT_NAMES = tuple(name for name in DraftOptions.__annotations__ if name not in TrialOptions.__annotations__)


def _check_alone(drafts: dict[str, Any], asked: dict[str, Any]) -> None:
    """Trials need no deployment: an option of one is a mistake."""
    spare = [name for name in (*drafts, *asked) if name not in {"acceptance", "k"}]
    if spare:
        raise DomainError("TARGET", got="nothing", wanted=f"a target for --{spare[0].replace('_', '-')}")


def _alpha(drafts: dict[str, Any]) -> float | None:
    value = drafts.get("acceptance")
    return None if value is None else float(parse(value, _SHARE, "--acceptance"))


def _planned(
    target: str | PathLike[str] | ModelSpec,
    device: str | PathLike[str] | HardwareSpec | None,
    drafts: dict[str, Any],
    asked: dict[str, Any],
) -> Planned:
    if device is None:
        raise DomainError("HARDWARE", got="nothing", wanted="a name or a path")
    timing = _timing(optional_text(drafts.get("timing"), "--timing"))
    counts = _numbers(asked.pop("concurrency", "1"), "--concurrency", 2**20)
    given = _acceptance(drafts)
    largest = given.most_drafts or _MOST_K
    default = DEFAULT_DRAFTS if largest >= 8 else f"1..{largest}"
    numbers = _numbers(drafts.get("k", default), "--k", _MOST_K)
    asked["concurrency"] = max(counts)
    d = deployment(target, device, **_with_context(drafts.get("context"), asked))
    overhead = drafts.get("overhead")
    if overhead is not None:
        overhead = float(parse(overhead, replace(TIME, bare=not isinstance(overhead, str)), "--overhead"))
    overhead_s, assumed = round_overhead(d, overhead)
    plan = _plan(d, device, drafts, asked, overhead_s)
    if timing != "reached":  # a roofline knows no host, but for what was given
        plan = replace(plan, nominal=replace(plan.nominal, overhead_s=overhead or 0.0))
        assumed = replace(assumed, value=overhead or 0.0)
    hit_rate = drafts.get("hit_rate")
    if hit_rate is not None:
        hit_rate = float(parse(hit_rate, _SHARE, "--hit-rate"))
        if plan.method != "ngram":
            raise DomainError("--hit-rate", got=plan.method, wanted="--method ngram, whose drafts are not always found")
    table = table_of(d, plan, given, numbers, counts, timing=timing, hit_rate=hit_rate)
    return Planned(d, plan, given, timing, hit_rate, table, (assumed,))


def _timing(text: str | None) -> Timing:
    names: tuple[Timing, ...] = get_args(Timing)
    found = next((name for name in names if name == (text or "reached")), None)
    if found is None:
        raise UnknownNameError("--timing", got=text, wanted=f"one of {', '.join(names)}")
    return found


def _with_context(context: Whole | None, asked: dict[str, Any]) -> Options:
    """The options of the deployment; a context stands for prompt and output."""
    options: Options = asked  # type: ignore[assignment]  # checked when the deployment is built
    if context is None:
        return options
    said = [f"--{name}" for name in ("prompt", "output") if name in asked]
    if said:
        raise DomainError("--context", got=f"{' and '.join(said)} too", wanted="one of them: it is prompt + output / 2")
    tokens = parse_tokens(context, "--context")
    if tokens < 2:
        raise DomainError("--context", got=tokens, wanted="at least 2 tokens")
    return {**options, "prompt": tokens - 1, "output": 2}


# ------------------------------------------------------------------------------------------------ the drafter


def _plan(
    d: Deployment,
    device: str | PathLike[str] | HardwareSpec,
    drafts: dict[str, Any],
    asked: dict[str, Any],
    overhead_s: float,
) -> DraftPlan:
    ways = [name for name in ("draft", "draft_cost", "method") if name in drafts]
    if len(ways) != 1:
        got = " and ".join(f"--{name.replace('_', '-')}" for name in ways) or "nothing"
        wanted = f"one of --draft MODEL, --draft-cost C, --method {'|'.join(METHODS)}"
        raise DomainError("drafter", got=got, wanted=wanted)
    for name, way in (
        ("draft_weights", "draft"),
        ("draft_tp", "draft"),
        ("draft_layers", "method"),
        ("draft_vocabulary", "method"),
    ):
        if name in drafts and ways != [way]:
            raise DomainError(
                f"--{name.replace('_', '-')}", got=f"--{ways[0].replace('_', '-')}", wanted=f"--{way} beside it"
            )
    match ways[0]:
        case "draft":
            return _of_draft(d, device, drafts, asked, overhead_s)
        case "draft_cost":
            return of_cost(float(parse(drafts["draft_cost"], NUMBER, "--draft-cost")), overhead_s)
    method: Method | None = next((name for name in METHODS if name == drafts["method"]), None)
    if method is None:
        raise UnknownNameError("--method", got=drafts["method"], wanted=f"one of {', '.join(METHODS)}")
    return of_method(
        d,
        method,
        sixteen_bits(d.formats),
        overhead_s=overhead_s,
        layers=optional_count(drafts.get("draft_layers"), "--draft-layers"),
        vocabulary=optional_count(drafts.get("draft_vocabulary"), "--draft-vocabulary"),
    )


def _of_draft(
    d: Deployment,
    device: str | PathLike[str] | HardwareSpec,
    drafts: dict[str, Any],
    asked: dict[str, Any],
    overhead_s: float,
) -> DraftPlan:
    """A draft model on as many ranks as the target, on one where its heads do not divide."""
    tp = optional_count(drafts.get("draft_tp"), "--draft-tp")
    own: Options = {
        "weights": drafts.get("draft_weights"),
        "kv": asked.get("kv"),
        "engine": asked.get("engine"),
        "prompt": d.workload.prompt,
        "output": d.workload.output,
        "tp": tp or d.layout.tp,
    }
    try:
        draft = deployment(drafts["draft"], device, **own)
    except LayoutError as error:
        if tp is not None:
            raise LayoutError("--draft-tp", got=tp, wanted=error.wanted, hint=error.hint) from error
        if d.layout.tp == 1:
            raise
        whole: Options = {**own, "tp": 1}
        plan = of_model(d, deployment(drafts["draft"], device, **whole), overhead_s)
        message = f"the heads of {plan.name} do not divide by {d.layout.tp}: each rank runs the whole draft"
        return replace(plan, notices=(*plan.notices, Notice("draft_not_divided", message)))
    return of_model(d, draft, overhead_s)


# ------------------------------------------------------------------------------------------------ figures as text


def _acceptance(drafts: dict[str, Any]) -> GivenAcceptance:
    def share(name: str) -> float | None:
        value = drafts.get(name)
        return None if value is None else float(parse(value, _SHARE, f"--{name.replace('_', '-')}"))

    length = drafts.get("mean_length")
    positions, tree = drafts.get("per_position"), drafts.get("tree")
    at = optional_count(drafts.get("measured_at"), "--measured-at")
    if at is None and {"mean_length", "accepted_per_drafted"} & drafts.keys() and "k" in drafts:
        numbers = _numbers(drafts["k"], "--k", _MOST_K)
        at = numbers[0] if len(numbers) == 1 else None
    return given_acceptance(
        acceptance=share("acceptance"),
        per_position=None if positions is None else read_shares(positions, "--per-position"),
        mean_length=None if length is None else float(parse(length, NUMBER, "--mean-length")),
        accepted_per_drafted=share("accepted_per_drafted"),
        tree=None if tree is None else _ranks(tree),
        measured_at=at,
    )


def read_shares(values: Shares, what: str) -> list[float]:
    """Probabilities: a list, or a text with commas.

    Raises
    ------
    QuantityError : for what is no number from 0 to 1

    >>> read_shares("0.8, 0.5", "--per-position")
    [0.8, 0.5]
    """
    listed: Iterable[Any] = (
        values.split(",") if isinstance(values, str) else values if isinstance(values, (list, tuple)) else [values]
    )
    return [float(parse(value, _SHARE, what)) for value in listed]


def _ranks(tree: str | Sequence[Sequence[float]]) -> list[list[float]]:
    depths: Iterable[Any] = tree.split(";") if isinstance(tree, str) else tree
    return [read_shares(depth if isinstance(depth, str) else list(depth), "--tree") for depth in depths]


def _numbers(value: Any, what: str, largest: int) -> list[int]:
    """Whole numbers in rising order: one, ``1..12``, ``1,8,64``, or several of these."""
    items = value.split(",") if isinstance(value, str) else list(value) if isinstance(value, (list, tuple)) else [value]
    found: list[int] = []
    for item in items:
        span = _RANGE.fullmatch(item.strip()) if isinstance(item, str) else None
        if span is None:
            found.append(parse_count(item, what))
            continue
        first, last = int(span[1]), int(span[2])
        if not 1 <= first <= last or last - first >= _MOST_NUMBERS:
            wanted = f"FIRST..LAST with 1 <= FIRST <= LAST, at most {_MOST_NUMBERS} numbers"
            raise DomainError(what, got=item.strip(), wanted=wanted)
        found += range(first, last + 1)
    if not found or len(found) > _MOST_NUMBERS or len(set(found)) < len(found) or max(found) > largest:
        got = (
            "a number twice"
            if 0 < len(set(found)) < len(found)
            else f"{len(found)} numbers up to {max(found, default=0)}"
        )
        raise DomainError(what, got=got, wanted=f"1 to {_MOST_NUMBERS} different whole numbers, at most {largest}")
    return sorted(found)
