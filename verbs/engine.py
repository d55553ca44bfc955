"""``roofplan engine``: the profiles of serving engines, by version."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from . import options as o

if TYPE_CHECKING:
    from ..engines.profile import EngineProfile

app = typer.Typer(help="Profiles of serving engines: list, show, diff.", no_args_is_help=False)


def _profile(metavar: str) -> typer.models.ArgumentInfo:
    text = "Engine, with a version if wanted (vllm@0.19), or a YAML file."
    argument: typer.models.ArgumentInfo = typer.Argument(metavar=metavar, help=text, autocompletion=o.complete_engine)
    return argument


@app.command("list")
def list_engines(
    text: o.Part = "", output_format: o.OutputFormat = o.Format.text, color: o.ColorChoice = o.Color.auto
) -> int:
    """List the profiles: share of memory, tokens and sequences of a step, blocks, what is taken out of the share.

    Example: roofplan engine list vllm
    """
    from .. import engines
    from ..errors import ExitCode
    from ..report.listings import list_profiles
    from .render import print_answer

    found = set(engines.CATALOGUE.matching(text))
    names = [slug for engine in engines.profiles.known_engines() for _, slug in engines.profiles.versions_of(engine)]
    print_answer(list_profiles(engines.load(name) for name in names if name in found), output_format, color)
    return ExitCode.YES


@app.command()
def show(
    engine: Annotated[str, _profile("ENGINE")],
    output_format: o.OutputFormat = o.Format.text,
    color: o.ColorChoice = o.Color.auto,
) -> int:
    """Show every figure of a profile, also those it has from the version that it changes, with sources.

    Example: roofplan engine show vllm@0.19
    """
    from .. import engines
    from ..errors import ExitCode
    from ..report.listings import show_entry
    from .render import print_answer

    print_answer(show_entry("engine show", engines.load(engine)), output_format, color)
    return ExitCode.YES


@app.command()
def diff(
    first: Annotated[str, _profile("ENGINE")],
    second: Annotated[str, _profile("ENGINE")],
    output_format: o.OutputFormat = o.Format.text,
    color: o.ColorChoice = o.Color.auto,
) -> int:
    """Show what differs between two profiles; exit code 1 when something does.

    Example: roofplan engine diff vllm@0.16 vllm@0.19
    """
    from .. import engines
    from ..errors import ExitCode
    from ..report.listings import list_differences
    from .render import print_answer

    left, right = (_as_asked(engines.load(name)) for name in (first, second))
    result = list_differences("engine diff", left, right, "the same figures")
    print_answer(result, output_format, color)
    return ExitCode.YES if result.good else ExitCode.NO


def _as_asked(profile: "EngineProfile") -> "EngineProfile":
    """Called by the version that was asked for, not by the one from which it holds."""
    return replace(profile, name=f"{profile.engine}@{profile.version}") if profile.version else profile
