"""``roofplan roofline``: operators and whole steps under the roofs of one or several devices, as a picture or in the terminal."""

from pathlib import Path
from typing import Annotated

import typer

from . import options as o

_ROOFLINE = "Roofline"
Devices = Annotated[
    list[str],
    typer.Argument(
        metavar="HARDWARE...",
        help="One or more devices: names, aliases or spec YAML files; several are overlaid.",
        autocompletion=o.complete_hardware,
        show_default=False,
    ),
]
Weights = Annotated[
    list[str] | None,
    typer.Option(
        "--weights",
        metavar="FORMAT",
        help="Weight format; given several times: overlaid. Default: as published.",
        autocompletion=o.complete_format,
        rich_help_panel=o.FORMATS_PANEL,
    ),
]
Batches = Annotated[
    str | None,
    typer.Option(
        "--batches",
        metavar="N,N,...",
        help="Decode steps of these batches, as a path up the slope.",
        rich_help_panel=_ROOFLINE,
    ),
]
Phases = Annotated[
    str | None,
    typer.Option(
        "--phase", metavar="PHASE", help="prefill or decode. Default: prefill,decode.", rich_help_panel=_ROOFLINE
    ),
]
Ceilings = Annotated[
    str | None,
    typer.Option(
        "--ceilings",
        metavar="KIND,...",
        help="Also slopes of other ways of bytes: l2, nvlink (any link to other devices), pcie (the host's).",
        rich_help_panel=_ROOFLINE,
    ),
]
Arithmetic = Annotated[
    str | None,
    typer.Option(
        "--arithmetic",
        metavar="TYPE,...",
        help="Draw the roofs of these types, or all. Default: those that products and attention use.",
        rich_help_panel=_ROOFLINE,
    ),
]
Measured = Annotated[
    Path | None,
    typer.Option(
        "--measured",
        metavar="FILE",
        help="Overlay measured points: a CSV file with name, intensity (FLOP per byte) and flop_per_s.",
        rich_help_panel=_ROOFLINE,
    ),
]


def roofline(
    model: o.Model,
    hardware: Devices,
    out: o.ReportFile = None,
    size: o.PictureSize = None,
    dark: o.Dark = False,
    data: o.DataFile = None,
    force: o.Force = False,
    batches: Batches = None,
    phase: Phases = None,
    ceilings: Ceilings = None,
    arithmetic: Arithmetic = None,
    measured: Measured = None,
    prompt: o.Prompt = None,
    output: o.Output = None,
    concurrency: o.Concurrency = None,
    devices: o.Devices = None,
    tp: o.Tp = None,
    pp: o.Pp = None,
    dp: o.Dp = None,
    ep: o.Ep = None,
    weights: Weights = None,
    kv: o.Kv = None,
    activations: o.Activations = None,
    engine: o.Engine = None,
    max_num_batched_tokens: o.MaxNumBatchedTokens = None,
    eager: o.Eager = False,
    output_format: o.OutputFormat = o.Format.text,
    explain: o.Explain = False,
    color: o.ColorChoice = o.Color.auto,
) -> int:
    """Draw the roofline: each operator of prefill and decode, and the whole steps, under the nominal roof and what kernels reach.

    Examples:
    roofplan roofline llama-3.1-8b h100-sxm --prompt 4096 --concurrency 64

    roofplan roofline llama-3.1-8b h100-sxm -o roof.png --batches 1,8,64,256

    roofplan roofline llama-3-70b h100-sxm h200-sxm --devices 8 --phase decode -o roof.svg --dark

    roofplan roofline llama-3.1-8b h100-sxm --weights bf16 --weights fp8 --data points.csv

    Exit code: 0 drawn, 2 the input is wrong.
    """
    from ..api.roofs import roofline as roofline_by_name
    from ..errors import ExitCode
    from ..report.answer_files import answer_file, check_answer_file
    from ..report.roofline_files import data_file, data_kind
    from ..specfiles import write_all
    from .render import print_answer, print_short

    if data is not None:
        data_kind(data)
    pixels = check_answer_file(out, size, dark=dark, overwrite=force, beside=data)
    result = roofline_by_name(
        model,
        *hardware,
        formats=weights,
        batches=batches,
        phases=phase,
        ceilings=ceilings,
        arithmetic=arithmetic,
        measured=measured,
        prompt=prompt,
        output=output,
        concurrency=concurrency,
        devices=devices,
        tp=tp,
        pp=pp,
        dp=dp,
        ep=ep,
        kv=kv,
        activations=activations,
        engine=engine,
        max_num_batched_tokens=max_num_batched_tokens,
        eager=eager or None,
    )
    files = [] if out is None else [(out, answer_file(result, out, size=pixels, dark=dark))]
    files += [] if data is None else [(data, data_file(result, data))]
    write_all(files, overwrite=force)
    if output_format is o.Format.text and out is not None and not explain:
        print_short(result)
        return ExitCode.YES
    print_answer(result, output_format, color, explain=explain)
    return ExitCode.YES
