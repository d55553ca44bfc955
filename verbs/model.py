"""``roofplan model``: the catalogue of models, and the reader of configurations."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from . import options as o

app = typer.Typer(help="The catalogue of models: list, show, lint, import, fetch, diff.", no_args_is_help=False)

Specs = Annotated[
    list[str] | None,
    typer.Argument(metavar="[MODEL]...", help="Names, spec files or config.json files. Default: the whole catalogue."),
]
Target = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write it. Default: standard output.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]


@app.command("list")
def list_models(
    text: o.Part = "", output_format: o.OutputFormat = o.Format.text, color: o.ColorChoice = o.Color.auto
) -> int:
    """List the models: parameters, KV bytes per token, context, weight format.

    Examples:
    roofplan model list qwen3

    roofplan model list --format csv
    """
    from .. import engines, models
    from ..errors import ExitCode
    from ..report import listings
    from .render import print_answer

    listing = listings.list_models(map(models.load, models.CATALOGUE.matching(text)), engines.load_format("bf16"))
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
def fetch(
    repository: Annotated[str, typer.Argument(metavar="ID", help="Repository on the hub: owner/name.")],
    revision: Annotated[
        str | None, typer.Option("--revision", metavar="REV", help="Branch, tag or commit. Default: the main branch.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="New folder. Default: the name of the ID.")
    ] = None,
    file: Annotated[
        str | None, typer.Option("--file", metavar="NAME", help="A GGUF file, in place of the safetensors files.")
    ] = None,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="TIME", help="Longest wait for the hub to connect or go on.")
    ] = "10 s",
    force: Annotated[bool, typer.Option("--force", help="Replace what an earlier fetch has left.")] = False,
) -> int:
    """Fetch the config.json and the headers of the weights from a hub, never the weights. The one command that uses the network.

    Needs huggingface_hub (the extra called hub); HF_ENDPOINT and HF_TOKEN hold as they do there. A file of weights is stored as its
    header and a hole, in the size that it has on the hub.

    Examples:
    roofplan model fetch Qwen/Qwen3-32B -o ./qwen3-32b

    roofplan model fetch Qwen/Qwen3-8B-GGUF --file Qwen3-8B-Q4_K_M.gguf
    """
    from ..errors import ExitCode
    from ..errors import show as plain
    from ..models import hub
    from ..quantities import TIME, parse, show_bytes

    progress = _line_on_terminal if sys.stderr.isatty() else None
    try:
        fetched = hub.fetch(
            repository,
            output,
            revision=revision,
            file=file,
            overwrite=force,
            timeout_s=parse(timeout, TIME, "--timeout"),
            progress=progress,
        )
    finally:
        if progress:
            progress("")
    folder = f"./{fetched.folder}" if len(fetched.folder.parts) == 1 else fetched.folder  # as MODEL takes it
    stored, whole = fetched.stored_bytes, fetched.size_bytes
    sys.stdout.write(
        f"{plain(folder)}: {repository} at commit {fetched.commit}\n"
        f"{len(fetched.files)} files, {show_bytes(stored)} stored of {show_bytes(whole)} on the hub\n"
    )
    return ExitCode.YES


def _line_on_terminal(text: str) -> None:
    """Write over the line that says what is going on."""
    from ..errors import show as plain

    sys.stderr.write(f"\r{plain(text, 78):<78}\r")
    sys.stderr.flush()


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

    listing = list_differences("model diff", models.load(first), models.load(second), "the same architecture")
    print_answer(listing, output_format, color)
    return ExitCode.YES if listing.good else ExitCode.NO
