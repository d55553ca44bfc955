"""The options that verbs share, each described once. Values are read as text: the library checks them, so that all ways in agree."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer


class Format(enum.StrEnum):
    """What a result is printed as."""

    text = "text"
    json = "json"
    markdown = "markdown"
    csv = "csv"


class Color(enum.StrEnum):
    """When to colour."""

    auto = "auto"
    always = "always"
    never = "never"


_ROOM = Path(__file__).parent.parent


def _slugs(folder: str, incomplete: str) -> list[str]:
    """Names of catalogue entries, from the names of the files alone: completion must not wait for the engine."""
    return sorted(file.stem for file in (_ROOM / folder).glob("*.yaml") if file.stem.startswith(incomplete.lower()))


def complete_model(incomplete: str) -> list[str]:
    """Complete the name of a model."""
    return _slugs("models/catalogue", incomplete)


def complete_hardware(incomplete: str) -> list[str]:
    """Complete the name of a device."""
    return _slugs("hardware/catalogue", incomplete)


def complete_format(incomplete: str) -> list[str]:
    """Complete the name of a number format."""
    return _slugs("engines/formats", incomplete)


def complete_engine(incomplete: str) -> list[str]:
    """Complete the name of an engine profile."""
    return _slugs("engines/catalogue", incomplete)


_WORKLOAD, _LAYOUT, _FORMATS, _MEMORY, _OUTPUT = "Workload", "Devices", "Number formats", "Memory", "Output"

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="Name, Hugging Face id, alias, spec YAML, config.json, a folder with one, or - for standard input.",
        autocompletion=complete_model,
    ),
]
Part = Annotated[str, typer.Argument(metavar="[TEXT]", help="Only entries of which some name holds this text.")]
Hardware = Annotated[
    str,
    typer.Argument(metavar="HARDWARE", help="Name, alias, spec YAML, or -.", autocompletion=complete_hardware),
]
Prompt = Annotated[
    str, typer.Option("--prompt", metavar="TOKENS", help="Tokens of a prompt.", rich_help_panel=_WORKLOAD)
]
Output = Annotated[
    str, typer.Option("--output", metavar="TOKENS", help="Tokens that a request generates.", rich_help_panel=_WORKLOAD)
]
Concurrency = Annotated[
    str,
    typer.Option("--concurrency", metavar="N", help="Requests in flight at a time.", rich_help_panel=_WORKLOAD),
]
Devices = Annotated[
    str | None,
    typer.Option("--devices", metavar="N", help="Devices; those no layout names go to --tp.", rich_help_panel=_LAYOUT),
]
Tp = Annotated[str | None, typer.Option("--tp", metavar="N", help="Tensor-parallel ranks.", rich_help_panel=_LAYOUT)]
Pp = Annotated[str | None, typer.Option("--pp", metavar="N", help="Pipeline stages.", rich_help_panel=_LAYOUT)]
Dp = Annotated[str | None, typer.Option("--dp", metavar="N", help="Data-parallel replicas.", rich_help_panel=_LAYOUT)]
Ep = Annotated[
    str | None,
    typer.Option("--ep", metavar="N", help="Ranks over which experts are spread.", rich_help_panel=_LAYOUT),
]
Weights = Annotated[
    str | None,
    typer.Option(
        "--weights",
        metavar="FORMAT",
        help="Weight format (int8: matrices of the layers; all=int8: everything; experts=mxfp4). Default: as published.",
        autocompletion=complete_format,
        rich_help_panel=_FORMATS,
    ),
]
Kv = Annotated[
    str | None,
    typer.Option(
        "--kv",
        metavar="FORMAT",
        help="Format of the KV cache. Default: bf16.",
        autocompletion=complete_format,
        rich_help_panel=_FORMATS,
    ),
]
Activations = Annotated[
    str | None,
    typer.Option(
        "--activations",
        metavar="FORMAT",
        help="Format of activations at a product. Default: as the weight format is served.",
        autocompletion=complete_format,
        rich_help_panel=_FORMATS,
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="ENGINE",
        help="Engine profile.",
        autocompletion=complete_engine,
        rich_help_panel=_MEMORY,
    ),
]
MemoryUtilization = Annotated[
    str | None,
    typer.Option(
        "--memory-utilization",
        metavar="FRACTION",
        help="Share of a device's memory that is used. Default: the engine's.",
        rich_help_panel=_MEMORY,
    ),
]
DeviceMemory = Annotated[
    str | None,
    typer.Option(
        "--device-memory",
        metavar="SIZE",
        help="Memory of a device (80 GB, 80 GiB). Default: as the driver reports it.",
        rich_help_panel=_MEMORY,
    ),
]
ActivationMemory = Annotated[
    str | None,
    typer.Option("--activation-memory", metavar="SIZE", help="Replaces the estimate.", rich_help_panel=_MEMORY),
]
RuntimeMemory = Annotated[
    str | None,
    typer.Option("--runtime-memory", metavar="SIZE", help="Replaces the engine's figure.", rich_help_panel=_MEMORY),
]
MaxModelLen = Annotated[
    str | None,
    typer.Option(
        "--max-model-len",
        metavar="TOKENS",
        help="Longest sequence that the engine accepts. Default: the model's.",
        rich_help_panel=_MEMORY,
    ),
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="A context beyond the model's is an error.", rich_help_panel=_OUTPUT),
]
Context = Annotated[
    str | None,
    typer.Option("--context", metavar="TOKENS", help="Tokens of a sequence. Default: 8192.", rich_help_panel=_WORKLOAD),
]
OutputFormat = Annotated[
    Format, typer.Option("--format", help="What to print.", show_default=True, rich_help_panel=_OUTPUT)
]
Explain = Annotated[
    bool,
    typer.Option("--explain", help="Show formula, numbers and sources of each figure.", rich_help_panel=_OUTPUT),
]
ColorChoice = Annotated[Color, typer.Option("--color", help="When to colour.", rich_help_panel=_OUTPUT)]
