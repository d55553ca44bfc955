"""Every option of every verb that takes numbers, read from the command line itself, with words beside which its value is looked at."""

from __future__ import annotations

from functools import cache

import typer

from roofplan.api.presets import PRESETS, names_of
from roofplan.cli import build_app

NUMBERS = {
    *("TOKENS", "N", "FRACTION", "SIZE", "RANK", "TIME", "USD", "C", "ALPHA", "SHARE", "K", "TV", "STEPS", "NUMBER"),
    *("N,N,...", "TOKENS,...", "ALPHA,...", "USD,...", "RATES", "RANKS", "P", "Q", "WIDTHxHEIGHT"),
    "PER_SECOND",
}
WORDS = {
    *("MODEL", "HARDWARE", "HARDWARE...", "TARGET", "[NAME]", "[NAME]...", "CLAIM", "MEANS", "FORMAT", "FORMAT,..."),
    *("ENGINE", "FILE", "CSV", "COLUMNS", "LABELS", "VARIANT", "METRIC=LIMIT", "AXIS=VALUES", "PHASE", "KIND,..."),
    *("TYPE,...", "RULE", "[HARDWARE]", "RULES", "OLD", "FILE|DIR|-"),
}
VERBS = {
    "size": "size mixtral-8x7b h100",
    "kv": "kv llama-3.1-8b --on h100",
    "roofline": "roofline llama-3.1-8b h100",
    "sweep": "sweep llama-3.1-8b h100 --over weights=bf16,fp8",
    "compare": "compare llama-3.1-8b h100 a100-80gb",
    "advise": "advise llama-3.1-8b h100",
    "claim": "claim 500tok/s llama-3.1-8b h100",
    "speculate": "speculate llama-3.1-8b h100",
    "check": "check deployment.yaml",
    "figure": "figure",
}
GROUPS = {"accuracy", "engine", "hardware", "model"}  # their commands read files and print them
_DRAFTER, _ACCEPTANCE, _GAIN = "--draft-cost 0.1", "--acceptance 0.8", "claim 2.4x llama-3.1-8b h100 --by speculation"
_RATES = ("--acceptance", "--per-position", "--mean-length", "--accepted-per-drafted", "--tree")
_TRIALS = ("--divergence", "--vocabulary", "--rounds", "--seed", "--seeds")
BESIDE = {  # what an option needs, where it is not refused for want of another
    **{("speculate", option): _DRAFTER for option in _RATES},
    **{("speculate", option): f"{_DRAFTER} --simulate" for option in _TRIALS},
    ("speculate", "--draft-cost"): _ACCEPTANCE,
    ("speculate", "--draft-tp"): f"{_ACCEPTANCE} --draft llama-3.2-1b",
    ("speculate", "--draft-layers"): f"{_ACCEPTANCE} --method layer-skip",
    ("speculate", "--draft-vocabulary"): f"{_ACCEPTANCE} --method eagle",
    ("speculate", "--hit-rate"): f"{_ACCEPTANCE} --method ngram",
    ("speculate", "--measured-at"): f"{_DRAFTER} --mean-length 2.5",
    ("speculate", "--target-probabilities"): f"{_DRAFTER} --simulate --draft-probabilities 0.5,0.5",
    ("speculate", "--draft-probabilities"): f"{_DRAFTER} --simulate --target-probabilities 0.5,0.5",
}
OTHER_WORDS = {  # in place of those of the verb
    ("claim", "--tokens-per-round"): f"{_GAIN} --round-time 30ms --step-time 10ms",
    ("claim", "--round-time"): f"{_GAIN} --tokens-per-round 2.5 --step-time 10ms",
    ("claim", "--step-time"): f"{_GAIN} --tokens-per-round 2.5 --round-time 30ms",
}


@cache
def metavars() -> dict[str, dict[str, str]]:
    """For each verb that is no group the metavar of each option and argument that takes a text."""
    commands = typer.main.get_command(build_app()).commands
    return {
        verb: {option.opts[0]: option.metavar for option in command.params if option.metavar is not None}
        for verb, command in commands.items()
        if verb not in GROUPS
    }


@cache
def numeric_options() -> dict[tuple[str, str], tuple[str, ...]]:
    """The words of a command line before each option that takes a number."""
    found = {}
    for verb, options in metavars().items():
        for option, metavar in options.items():
            if metavar in NUMBERS:
                begin = OTHER_WORDS.get((verb, option), VERBS[verb])
                found[verb, option] = tuple(f"{begin} {_beside(verb, option)}".split())
    return found


def _beside(verb: str, option: str) -> str:
    if option == "--size":  # of a picture
        return f"{_figure_with('--context') if verb == 'figure' else ''} -o nowhere.png"
    if verb == "figure":
        return _figure_with(option)
    return BESIDE.get((verb, option), f"{_DRAFTER} {_ACCEPTANCE}" if verb == "speculate" else "")


def _figure_with(option: str) -> str:
    """A figure that takes an option."""
    return next(name for name, preset in PRESETS.items() if option in dict(names_of(preset)))
