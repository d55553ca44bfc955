"""``roofplan model``: the catalogue of models, and the reader of configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options as o

app = typer.Typer(help="The catalogue of models: list, show, lint, import, diff.", no_args_is_help=False)

Specs = Annotated[
    list[str] | None,
    typer.Argument(metavar="[MODEL]...", help="Names, spec files or config.json files. Default: the whole catalogue."),
]
Target = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write it. Default: standard output.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]


@app.command("list")
def list_models(output_format: o.OutputFormat = o.Format.text, color: o.ColorChoice = o.Color.auto) -> int:
    """List the models: parameters, KV bytes per token, context, weight format.

    Example: roofplan model list --format csv
    """
    from .. import engines, models
    from ..errors import ExitCode
    from ..report import listings
    from .render import print_answer

    listing = listings.list_models(map(models.load, models.CATALOGUE.slugs()), engines.load_format("bf16"))
    print_answer(listing, output_format, color)
    return ExitCode.YES


@app.command()
def show(model: o.Model, output_format: o.OutputFormat = o.Format.text, color: o.ColorChoice = o.Color.auto) -> int:
    """Show the shape of a model, layer group by layer group.

    Examples:
    roofplan model show gemma-3-27b

    roofplan model show ./config.json
    """
    from .. import models
    from ..errors import ExitCode
    from ..report.listings import show_entry
    from .render import print_answer

    print_answer(show_entry("model show", models.load(model)), output_format, color)
    return ExitCode.YES


@app.command()
def lint(
    specs: Specs = None, output_format: o.OutputFormat = o.Format.text, color: o.ColorChoice = o.Color.auto
) -> int:
    """Check models against rules that a schema cannot say; exit code 1 when something is found.

    Example: roofplan model lint my-model.yaml
    """
    from .. import models
    from ..errors import ExitCode
    from ..models.lint import lint_model
    from ..report.listings import list_findings
    from .render import print_answer

    names = specs or models.CATALOGUE.slugs()
    findings = [finding for name in names for finding in lint_model(models.load(name))]
    print_answer(list_findings("model lint", "models", len(names), findings), output_format, color)
    return ExitCode.NO if findings else ExitCode.YES


@app.command("import")
def import_model(model: o.Model, output: Target = None, force: Force = False) -> int:
    """Turn a config.json (a folder with one, a GGUF or safetensors file) into a spec in YAML.

    Examples:
    roofplan model import ./my-model/config.json

    roofplan model import ./my-model -o my-model.yaml
    """
    import sys

    from .. import models
    from ..errors import ExitCode
    from ..models.write import to_yaml
    from ..specfiles import write_text

    text = to_yaml(models.load(model))
    if output is None:
        sys.stdout.write(text)
    else:
        write_text(output, text, overwrite=force)
    return ExitCode.YES


@app.command()
def diff(
    first: o.Model,
    second: Annotated[str, typer.Argument(metavar="OTHER", help="The same, for the other one.")],
    output_format: o.OutputFormat = o.Format.text,
    color: o.ColorChoice = o.Color.auto,
) -> int:
    """Compare the architectures of two models; exit code 1 when they differ.

    Example: roofplan model diff llama-3.1-8b ./config.json
    """
    from .. import models
    from ..errors import ExitCode
    from ..report.listings import list_differences
    from .render import print_answer

    listing = list_differences(models.load(first), models.load(second))
    print_answer(listing, output_format, color)
    return ExitCode.YES if listing.good else ExitCode.NO
