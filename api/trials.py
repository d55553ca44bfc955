"""Trials of the acceptance rule: distributions and rules as text in, what was measured out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypedDict

from ..errors import DomainError
from ..planner.draft_trials import Pair, Rule, random_pair, read_rule, run_trials
from ..planner.goodness import FEWEST, kolmogorov_distance, kolmogorov_tail
from ..planner.speculation import TriedRules
from ..quantities import COUNT, FRACTION, parse, parse_count

if TYPE_CHECKING:
    from .options import Whole

DEFAULT_ROUNDS = 100_000
DEFAULT_VOCABULARY = 1000
DEFAULT_DIVERGENCE = 0.3
DEFAULT_RULE = "top:2"
_MOST_SEEDS = 100
_FEWEST_SEEDS = 5  # p-values of which Kolmogorov's test says something
_SAME = 1e-9


class TrialOptions(TypedDict, total=False):
    """Distributions, rule and rounds of the trials; None is as good as left out."""

    target_probabilities: str | list[float] | None
    draft_probabilities: str | list[float] | None
    divergence: float | str | None
    vocabulary: Whole | None
    rounds: Whole | None
    seed: Whole | None
    seeds: Whole | None
    relaxed: str | None


def read_pair(trial: dict[str, Any], alpha: float | None) -> Pair:
    """The distributions that were given, or random ones at a stated divergence: 1 - alpha where an acceptance was given.

    Raises
    ------
    RoofplanError : for half a pair, a pair and a divergence, or distributions that are none
    """
    from .speculation import read_shares

    given = [name for name in ("target_probabilities", "draft_probabilities") if name in trial]
    if len(given) == 1:
        other = {"target_probabilities": "--draft-probabilities", "draft_probabilities": "--target-probabilities"}
        raise DomainError(
            f"--{given[0].replace('_', '-')}", got="one distribution", wanted=f"{other[given[0]]} beside it"
        )
    drawn = [name for name in ("divergence", "vocabulary") if name in trial]
    if given and drawn:
        raise DomainError(f"--{drawn[0]}", got="given distributions too", wanted="one of them")
    if given:
        target, draft = (read_shares(trial[name], f"--{name.replace('_', '-')}") for name in given)
        pair = Pair(tuple(target), tuple(draft))
        if len(target) < 2:
            raise DomainError("--target-probabilities", got=f"{len(target)} token", wanted="at least two")
        _ = pair.divergence  # checks both
        return pair
    divergence = DEFAULT_DIVERGENCE if alpha is None else 1 - alpha
    if "divergence" in trial:
        from dataclasses import replace

        divergence = float(parse(trial["divergence"], replace(FRACTION, zero=True), "--divergence"))
    vocabulary = parse_count(trial.get("vocabulary", DEFAULT_VOCABULARY), "--vocabulary")
    return random_pair(vocabulary, divergence, _seed(trial))


def contradiction(pair: Pair, alpha: float | None) -> None:
    """Refuse an acceptance that the distributions do not have.

    Raises
    ------
    DomainError : where alpha is not 1 - TV(p, q)
    """
    if alpha is not None and abs(1 - pair.divergence - alpha) > _SAME:
        wanted = f"{1 - pair.divergence:.6g}, which is 1 - the divergence of the distributions, or none"
        raise DomainError("--acceptance", got=f"{alpha:g}", wanted=wanted)


def tried(pair: Pair, trial: dict[str, Any], drafts: int) -> TriedRules:
    """Try the exact rule and a relaxed one, over several seeds where asked.

    Raises
    ------
    RoofplanError : for a rule that does not exist, or numbers outside their domain
    """
    rounds = parse_count(trial.get("rounds", DEFAULT_ROUNDS), "--rounds")
    first, seeds = _seed(trial), parse_count(trial.get("seeds", 1), "--seeds")
    if seeds > _MOST_SEEDS:
        raise DomainError("--seeds", got=seeds, wanted=f"at most {_MOST_SEEDS}")
    rule = read_rule(str(trial.get("relaxed", DEFAULT_RULE)))
    if rule.kept == "exact":
        raise DomainError("--relaxed", got="exact", wanted="typical or top:N: the exact rule is tried in any case")
    if sum(share > 0 for share in pair.target) < 2:
        wanted = (
            "two tokens that are possible: where one alone is, nothing else can come out, and there is nothing to test"
        )
        raise DomainError("--target-probabilities", got="one possible token", wanted=wanted)
    runs = range(first, first + seeds)
    try:
        exact = [run_trials(pair, Rule("exact"), drafts, rounds, seed) for seed in runs]
        relaxed = [run_trials(pair, rule, drafts, rounds, seed) for seed in runs]
    except DomainError as error:
        if error.what != "counts":
            raise
        *others, likeliest = sorted(pair.target)
        enough = math.ceil(FEWEST / min(likeliest, math.fsum(others)))
        wanted = f"at least {enough:,}: chi-square says something when {FEWEST:g} tokens of two kinds are expected"
        raise DomainError("--rounds", got=rounds, wanted=wanted) from error
    p_values = tuple(each.fit.p_value for each in exact)
    even = kolmogorov_tail(kolmogorov_distance(p_values), seeds) if seeds >= _FEWEST_SEEDS else None
    return TriedRules(
        exact=exact[0],
        relaxed=relaxed[0],
        divergence=pair.divergence,
        tokens=len(pair.target),
        p_values=p_values,
        relaxed_p_values=tuple(each.fit.p_value for each in relaxed),
        uniformity=even,
    )


def _seed(trial: dict[str, Any]) -> int:
    return int(parse(trial.get("seed", 0), COUNT, "--seed"))
