"""``roofplan figure``: drawings that have a name, of the closed forms, as numbers or as a picture."""

from typing import TYPE_CHECKING, Annotated

import typer

from . import options as o

if TYPE_CHECKING:
    from ..api.presets import PresetOptions

_ABOUT = "What is drawn (each figure takes some)"
Name = Annotated[
    str | None,
    typer.Argument(metavar="[NAME]", help="The figure; left out: all of them with their options.", show_default=False),
]


def _text(name: str, metavar: str, text: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(name, metavar=metavar, help=text, rich_help_panel=_ABOUT)
    return option


Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="Model, or several: given more than once, or with commas.",
        autocompletion=o.complete_model,
        rich_help_panel=_ABOUT,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--hardware",
        metavar="HARDWARE",
        help="The device.",
        autocompletion=o.complete_hardware,
        rich_help_panel=_ABOUT,
    ),
]
Weights = Annotated[str | None, _text("--weights", "FORMAT,...", "Weight format, or several to compare.")]
Kv = Annotated[str | None, _text("--kv", "FORMAT", "Format of the KV cache.")]
Prompt = Annotated[str | None, _text("--prompt", "TOKENS", "Tokens of a prompt.")]
Output = Annotated[str | None, _text("--output", "TOKENS", "Tokens that a request generates.")]
Context = Annotated[
    str | None, _text("--context", "TOKENS,...", "Tokens of each sequence; or the longest, where it is an axis.")
]
Concurrency = Annotated[
    str | None, _text("--concurrency", "N", "Sequences that decode; or the largest batch, where it is an axis.")
]
Cached = Annotated[str | None, _text("--cached", "TOKENS", "Tokens of the prompt that are cached.")]
BlockSize = Annotated[str | None, _text("--block-size", "TOKENS,...", "Tokens of a cache block.")]
MaxModelLen = Annotated[str | None, _text("--max-model-len", "TOKENS,...", "Longest sequences for which room is kept.")]
Acceptance = Annotated[
    str | None,
    _text("--acceptance", "ALPHA,...", "Probability that a draft is kept; the first one is looked at by batch."),
]
DraftCost = Annotated[str | None, _text("--draft-cost", "C", "Time of a draft in steps of the target.")]
Drafts = Annotated[str | None, _text("--k", "K", "Drafts of a round.")]


def figure(
    name: Name = None,
    model: Models = None,
    hardware: Device = None,
    weights: Weights = None,
    kv: Kv = None,
    prompt: Prompt = None,
    output: Output = None,
    context: Context = None,
    concurrency: Concurrency = None,
    cached: Cached = None,
    block_size: BlockSize = None,
    max_model_len: MaxModelLen = None,
    acceptance: Acceptance = None,
    draft_cost: DraftCost = None,
    k: Drafts = None,
    out: o.ReportFile = None,
    size: o.PictureSize = None,
    dark: o.Dark = False,
    force: o.Force = False,
    output_format: o.OutputFormat = o.Format.text,
    explain: o.Explain = False,
    color: o.ColorChoice = o.Color.auto,
) -> int:
    """Draw one of the figures that explain serving: caches, batching, prefixes, chunks, drafts, attention, experts.

    Examples:
    roofplan figure

    roofplan figure batch-curve -o batching.svg

    roofplan figure cache-growth --model llama-3.1-8b,gemma-3-27b --context 65536

    roofplan figure speculation --acceptance 0.7,0.9 --draft-cost 0.05 --format csv

    Times are those at nominal rates, the roof, unless a figure says otherwise. Without -o the points are printed.

    Exit code: 0 drawn, 2 the input is wrong.
    """
    from ..api.presets import PRESETS, names_of
    from ..api.presets import figure as figure_by_name
    from ..errors import DomainError, ExitCode
    from ..report.answer_files import check_answer_file, write_answer
    from .render import print_answer, print_short

    pixels = check_answer_file(out, size, dark=dark, overwrite=force)
    asked: PresetOptions = {
        "model": ",".join(model) if model else None,
        "hardware": hardware,
        "weights": weights,
        "kv": kv,
        "prompt": prompt,
        "output": output,
        "context": context,
        "concurrency": concurrency,
        "cached": cached,
        "block_size": block_size,
        "max_model_len": max_model_len,
        "acceptance": acceptance,
        "draft_cost": draft_cost,
        "k": k,
    }
    if name is None:
        from ..report.presets import list_presets

        if out is not None or any(value is not None for value in asked.values()):
            raise DomainError("NAME", got="nothing", wanted=f"one of {', '.join(PRESETS)}")
        listed = list_presets({name: (preset.shows, names_of(preset)) for name, preset in PRESETS.items()})
        print_answer(listed, output_format, color)
        return ExitCode.YES
    result = figure_by_name(name, **asked)
    if out is not None:
        write_answer(result, out, size=pixels, dark=dark, overwrite=force)
    if out is not None and output_format is o.Format.text and not explain:
        print_short(result)
    else:
        print_answer(result, output_format, color, explain=explain)
    return ExitCode.YES
