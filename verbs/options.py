"""The options that verbs share, each described once. Values are read as text: the library checks them, so that all ways in agree."""

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


class SizeFormat(enum.StrEnum):
    """What a sizing is printed as."""

    text = "text"
    json = "json"
    markdown = "markdown"
    csv = "csv"
    prometheus = "prometheus"


class Color(enum.StrEnum):
    """When to colour."""

    auto = "auto"
    always = "always"
    never = "never"


class Question(enum.StrEnum):
    """The limits that ``--solve`` finds."""

    max_context = "max-context"
    max_concurrency = "max-concurrency"
    min_devices = "min-devices"
    min_utilization = "min-utilization"


class AdviceGoal(enum.StrEnum):
    """What levers are ranked by."""

    ttft = "ttft"
    tpot = "tpot"
    throughput = "throughput"
    capacity = "capacity"
    cost = "cost"


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


_WORKLOAD, _LAYOUT, _FORMATS, _ENGINE = "Workload", "Devices", "Number formats", "Engine"
FORMATS_PANEL = _FORMATS
_MEMORY, _OUTPUT = "Memory", "Output"

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
MaybeModel = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        help="Name, Hugging Face id, alias, spec YAML, config.json, a folder with one, or - for standard input."
        " With --from-log it may be left out.",
        autocompletion=complete_model,
        show_default=False,
    ),
]
MaybeHardware = Annotated[
    str | None,
    typer.Argument(
        metavar="HARDWARE",
        help="Name, alias, spec YAML, or -.",
        autocompletion=complete_hardware,
        show_default=False,
    ),
]
Prompt = Annotated[
    str | None,
    typer.Option("--prompt", metavar="TOKENS", help="Tokens of a prompt. Default: 1024.", rich_help_panel=_WORKLOAD),
]
Output = Annotated[
    str | None,
    typer.Option(
        "--output", metavar="TOKENS", help="Tokens that a request generates. Default: 256.", rich_help_panel=_WORKLOAD
    ),
]
Concurrency = Annotated[
    str | None,
    typer.Option("--concurrency", metavar="N", help="Requests at a time. Default: 1.", rich_help_panel=_WORKLOAD),
]
Rate = Annotated[
    str | None,
    typer.Option(
        "--rate",
        metavar="PER_SECOND",
        help="Requests per second that arrive at random, in place of --concurrency.",
        rich_help_panel=_WORKLOAD,
    ),
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
Cp = Annotated[
    str | None,
    typer.Option("--cp", metavar="N", help="Ranks that divide the tokens of each sequence.", rich_help_panel=_LAYOUT),
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
    str | None,
    typer.Option(
        "--engine",
        metavar="ENGINE",
        help="Engine profile, with a version if wanted (vllm@0.19), or a YAML file of one. Default: plain.",
        autocompletion=complete_engine,
        rich_help_panel=_ENGINE,
    ),
]
MaxNumBatchedTokens = Annotated[
    str | None,
    typer.Option(
        "--max-num-batched-tokens",
        metavar="TOKENS",
        help="Tokens of one step. Default: the engine's for the device.",
        rich_help_panel=_ENGINE,
    ),
]
MaxNumSeqs = Annotated[
    str | None,
    typer.Option(
        "--max-num-seqs",
        metavar="N",
        help="Sequences that run at a time. Default: the engine's for the device.",
        rich_help_panel=_ENGINE,
    ),
]
BlockSize = Annotated[
    str | None,
    typer.Option(
        "--block-size",
        metavar="TOKENS",
        help="Tokens of a cache block. Default: the engine's.",
        rich_help_panel=_ENGINE,
    ),
]
KvCacheBytes = Annotated[
    str | None,
    typer.Option(
        "--kv-cache-bytes",
        metavar="SIZE",
        help="Cache of a device, whatever the share of its memory says.",
        rich_help_panel=_ENGINE,
    ),
]
Eager = Annotated[bool, typer.Option("--eager", help="No graphs are captured.", rich_help_panel=_ENGINE)]
Offline = Annotated[
    bool,
    typer.Option(
        "--offline", help="The defaults of a program that calls the engine, not of its server.", rich_help_panel=_ENGINE
    ),
]
MaxLoras = Annotated[
    str | None,
    typer.Option("--max-loras", metavar="N", help="LoRA adapters that are held at a time.", rich_help_panel=_ENGINE),
]
MaxLoraRank = Annotated[
    str | None,
    typer.Option(
        "--max-lora-rank", metavar="RANK", help="Rank that room is kept for. Default: 16.", rich_help_panel=_ENGINE
    ),
]
Solve = Annotated[
    Question | None,
    typer.Option("--solve", help="Also find the limit of one setting, all others as given.", rich_help_panel=_OUTPUT),
]
FromLog = Annotated[
    str | None,
    typer.Option(
        "--from-log",
        metavar="FILE",
        help="Compare with a start-up log of vLLM, SGLang, TensorRT-LLM or llama.cpp, part by part; settings are read from it.",
        rich_help_panel=_ENGINE,
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
GraphMemory = Annotated[
    str | None,
    typer.Option("--graph-memory", metavar="SIZE", help="Replaces the estimate.", rich_help_panel=_MEMORY),
]
BesideMemory = Annotated[
    str | None,
    typer.Option(
        "--beside-memory",
        metavar="SIZE",
        help="Weights that are loaded beside the model: a projector, a draft model.",
        rich_help_panel=_MEMORY,
    ),
]
MaxModelLen = Annotated[
    str | None,
    typer.Option(
        "--max-model-len",
        metavar="TOKENS",
        help="Longest sequence that the engine accepts. Default: the model's.",
        rich_help_panel=_ENGINE,
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
SizeOutputFormat = Annotated[
    SizeFormat, typer.Option("--format", help="What to print.", show_default=True, rich_help_panel=_OUTPUT)
]
Explain = Annotated[
    bool,
    typer.Option("--explain", help="Show formula, numbers and sources of each figure.", rich_help_panel=_OUTPUT),
]
ColorChoice = Annotated[Color, typer.Option("--color", help="When to colour.", rich_help_panel=_OUTPUT)]
Sensitivity = Annotated[
    bool,
    typer.Option(
        "--sensitivity",
        help="Show which input moves the times most: by how many per cent for one per cent more of it.",
        rich_help_panel=_OUTPUT,
    ),
]
Goal = Annotated[
    AdviceGoal, typer.Option("--goal", help="Rank the levers by their gain in this.", rich_help_panel=_OUTPUT)
]
PrefixHit = Annotated[
    str | None,
    typer.Option(
        "--prefix-hit",
        metavar="FRACTION",
        help="Share of every prompt that all requests have in common, for the prefix cache. Default: 0.5.",
        rich_help_panel=_WORKLOAD,
    ),
]
Acceptance = Annotated[
    str | None,
    typer.Option(
        "--acceptance",
        metavar="FRACTION",
        help="Probability that a draft of a trained draft layer is kept, for speculation. Default: 0.7.",
        rich_help_panel=_WORKLOAD,
    ),
]
ReportFile = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FILE",
        help="Write a picture (.png, .svg, .pdf) or a page for a browser (.html).",
        rich_help_panel=_OUTPUT,
    ),
]
PageFile = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="FILE", help="Write a page for a browser: .html.", rich_help_panel=_OUTPUT),
]
SizeFile = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FILE",
        help="Write a page for a browser (.html), or metrics for Prometheus (.prom).",
        rich_help_panel=_OUTPUT,
    ),
]
PictureSize = Annotated[
    str | None,
    typer.Option(
        "--size", metavar="WIDTHxHEIGHT", help="Pixels of a picture. Default: 1200x800.", rich_help_panel=_OUTPUT
    ),
]
Dark = Annotated[bool, typer.Option("--dark", help="A picture on dark paper.", rich_help_panel=_OUTPUT)]
DataFile = Annotated[
    Path | None,
    typer.Option("--data", metavar="FILE", help="Write what is drawn: .csv or .json.", rich_help_panel=_OUTPUT),
]
Force = Annotated[bool, typer.Option("--force", help="Replace existing files.", rich_help_panel=_OUTPUT)]
