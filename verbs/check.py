"""``roofplan check``: do deployments hold what they promise."""

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options as o

if TYPE_CHECKING:
    from ..checks.settings import Settings

_RULES, _RESULT, _DEFAULTS = "Rules", "Output", "Where a file says nothing"


class CheckFormat(enum.StrEnum):
    """What findings are printed as."""

    text = "text"
    json = "json"
    github = "github"
    sarif = "sarif"
    junit = "junit"
    gitlab = "gitlab"
    markdown = "markdown"


class FailOn(enum.StrEnum):
    """The least severity that makes the exit code 1."""

    warning = "warning"
    error = "error"
    never = "never"


Paths = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE|DIR|-",
        help="Deployment files, manifests, scripts, folders of them, or - for standard input.",
        show_default=False,
    ),
]
ModelDefault = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="Model, as in roofplan size.",
        autocompletion=o.complete_model,
        rich_help_panel=_DEFAULTS,
    ),
]
HardwareDefault = Annotated[
    str | None,
    typer.Option(
        "--hardware",
        metavar="HARDWARE",
        help="Device, as in roofplan size.",
        autocompletion=o.complete_hardware,
        rich_help_panel=_DEFAULTS,
    ),
]
EngineDefault = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="ENGINE",
        help="Engine, and its version where a file names the engine only (vllm@0.19).",
        autocompletion=o.complete_engine,
        rich_help_panel=_DEFAULTS,
    ),
]
PromptDefault = Annotated[
    str | None,
    typer.Option("--prompt", metavar="TOKENS", help="Tokens of a prompt.", rich_help_panel=_DEFAULTS),
]
OutputDefault = Annotated[
    str | None,
    typer.Option("--output", metavar="TOKENS", help="Tokens that a request generates.", rich_help_panel=_DEFAULTS),
]
ConcurrencyDefault = Annotated[
    str | None,
    typer.Option("--concurrency", metavar="N", help="Requests at a time.", rich_help_panel=_DEFAULTS),
]
Select = Annotated[
    list[str] | None,
    typer.Option("--select", metavar="RULES", help="Only these rules (a,b).", rich_help_panel=_RULES),
]
Ignore = Annotated[
    list[str] | None,
    typer.Option("--ignore", metavar="RULES", help="Not these rules (a,b).", rich_help_panel=_RULES),
]
FailOnOption = Annotated[
    FailOn | None,
    typer.Option("--fail-on", help="What makes the exit code 1. Default: error.", rich_help_panel=_RULES),
]
ExitZero = Annotated[
    bool,
    typer.Option("--exit-zero", help="Findings do not make the exit code 1.", rich_help_panel=_RULES),
]
Baseline = Annotated[
    str | None,
    typer.Option(
        "--baseline", metavar="FILE", help="Leave out the findings that this file knows.", rich_help_panel=_RULES
    ),
]
UpdateBaseline = Annotated[
    bool,
    typer.Option("--update-baseline", help="Write what is found to the --baseline file.", rich_help_panel=_RULES),
]
ListRules = Annotated[bool, typer.Option("--list-rules", help="List the rules.", rich_help_panel=_RULES)]
ExplainRule = Annotated[
    str | None,
    typer.Option(
        "--explain", metavar="RULE", help="Say what a rule finds, why, and what to do.", rich_help_panel=_RULES
    ),
]
Diff = Annotated[
    str | None,
    typer.Option(
        "--diff",
        metavar="OLD",
        help="Show what changes from this file or folder, as a Markdown table: memory, capacity, times, cost.",
        rich_help_panel=_RESULT,
    ),
]
Init = Annotated[
    bool,
    typer.Option(
        "--init",
        help="Write a deployment file from the manifest, or from --model and --hardware, with limits that hold today.",
        rich_help_panel=_RESULT,
    ),
]
CheckOutput = Annotated[
    CheckFormat, typer.Option("--format", help="What to print.", show_default=True, rich_help_panel=_RESULT)
]
OutFile = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="FILE", help="Write it to a file.", rich_help_panel=_RESULT),
]


def check(
    paths: Paths = None,
    model: ModelDefault = None,
    hardware: HardwareDefault = None,
    engine: EngineDefault = None,
    prompt: PromptDefault = None,
    output: OutputDefault = None,
    concurrency: ConcurrencyDefault = None,
    select: Select = None,
    ignore: Ignore = None,
    fail_on: FailOnOption = None,
    exit_zero: ExitZero = False,
    baseline: Baseline = None,
    update_baseline: UpdateBaseline = False,
    list_rules: ListRules = False,
    explain: ExplainRule = None,
    diff: Diff = None,
    init: Init = False,
    output_format: CheckOutput = CheckFormat.text,
    out: OutFile = None,
    force: o.Force = False,
    color: o.ColorChoice = o.Color.auto,
) -> int:
    """Check deployments: do they fit, do they hold their limits, and do their settings do what is meant.

    Reads deployment files of roofplan, command lines of engines in scripts, compose files, and manifests of Kubernetes, KServe, Ray and
    the vLLM production stack, as they are; nothing is run. Settings stand in [check] of .roofplan.toml or [tool.roofplan.check] of
    pyproject.toml; a comment "roofplan: ignore[RULE] reason" on a line, or above it, accepts a finding.

    Examples:
    roofplan check deployment.yaml

    roofplan check deploy/ --hardware h100-sxm --prompt 4096 --concurrency 64 --format github

    roofplan check serve.sh --hardware l40s --fail-on warning

    roofplan check deploy/ --baseline known.json --update-baseline

    roofplan check new/ --diff old/

    roofplan check serve.sh --hardware h100-sxm --init -o deployment.yaml

    roofplan check --explain does-not-fit

    Exit code: 0 nothing found, 1 findings (--fail-on), 2 the input is wrong or a part of it could not be checked.
    """
    from ..checks import settings as asked
    from ..errors import DomainError, ExitCode
    from ..report.check_outputs import print_check, rendered
    from ..specfiles import check_free, write_text
    from .render import progress_on_stderr

    if list_rules or explain is not None:
        return _rules(explain, output_format)
    if out is not None:
        check_free(out, overwrite=force)
    settings = asked.load(
        asked.folder_of(paths or []),
        model=model,
        hardware=hardware,
        engine=engine,
        prompt=prompt,
        output=output,
        concurrency=concurrency,
        select=select,
        ignore=ignore,
        fail_on="never" if exit_zero else fail_on and fail_on.value,
        baseline=baseline,
    )
    if init:
        return _init(paths, settings, out, force=force)
    if not paths:
        raise DomainError("FILE", got="nothing", wanted="deployment files, manifests, scripts, folders of them, or -")
    if update_baseline and not settings.baseline:
        raise DomainError("--update-baseline", got="no file", wanted="--baseline FILE beside it")
    from ..checks import run

    with progress_on_stderr("files") as progress:
        result = run.check_paths(paths, settings, progress, use_baseline=not update_baseline)
        old = None if diff is None else run.check_paths([diff], settings, progress, use_baseline=False)
    if update_baseline:
        result = run.made_known(result, force=force)
    change = None
    if old is not None:
        from ..checks import diff as diffs

        change = diffs.diff(old, result)
        result = run.with_problems_of(result, old)
    if out is not None:
        write_text(out, rendered(result, output_format.value, change), overwrite=force)
    is_read_here = out is None or output_format is CheckFormat.github
    print_check(result, output_format.value if is_read_here else "text", color.value, change)
    return ExitCode(result.exit_code)


def _rules(explain: str | None, output_format: CheckFormat) -> int:
    """Print the list of rules, or what one is about."""
    import sys

    from ..checks.rules import all_rules
    from ..checks.settings import check_rule
    from ..errors import ExitCode
    from ..report.check_rules import rule_text, rules_json, rules_text

    if explain is not None:
        check_rule(explain, "--explain")
    rules = [rule for rule in all_rules() if explain in {None, rule.id}]
    if output_format is CheckFormat.json:
        sys.stdout.write(rules_json(rules))
    else:
        sys.stdout.write(rules_text(rules) if explain is None else rule_text(rules[0]))
    return ExitCode.YES


def _init(paths: list[str] | None, settings: "Settings", out: Path | None, *, force: bool) -> int:
    """Write the first deployment file of a service."""
    import sys

    from ..checks.initial import initial
    from ..checks.run import only_service
    from ..errors import ExitCode
    from ..specfiles import write_text

    text = initial(only_service(paths or [], settings))
    if out is None:
        sys.stdout.write(text)
    else:
        write_text(out, text, overwrite=force)
    return ExitCode.YES
