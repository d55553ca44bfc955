"""``roofplan accuracy``: predictions against logs and benchmarks that other people published, misses included."""

from typing import TYPE_CHECKING, Annotated

import typer

from . import options as o

if TYPE_CHECKING:
    from pathlib import Path

    from ..accuracy.results import MemoryAccuracy
    from ..accuracy.speculation import SpeculationAccuracy
    from ..accuracy.speed import SpeedAccuracy

_Rows = Annotated[str | None, typer.Option("--rows", metavar="FILE", help="Write every comparison to a CSV file.")]
_Force = Annotated[bool, typer.Option("--force", help="Replace existing files.")]

app = typer.Typer(help="Predictions against logs and benchmarks that other people published.", no_args_is_help=False)


@app.callback()
def accuracy() -> None:
    """Predictions against logs and benchmarks that other people published."""


@app.command()
def memory(
    data: Annotated[
        str | None,
        typer.Option(
            "--data", metavar="CSV", help="Rows in the columns of accuracy/data/memory.csv. Default: that file."
        ),
    ] = None,
    by: Annotated[
        str, typer.Option("--by", metavar="COLUMNS", help="Also by the values of these columns (gpu,model,engine).")
    ] = "",
    rows: _Rows = None,
    force: _Force = False,
    out: o.PageFile = None,
    output_format: o.OutputFormat = o.Format.text,
    color: o.ColorChoice = o.Color.auto,
) -> int:
    """Compare predicted memory with the start-up logs of real servers.

    Examples:
    roofplan accuracy memory

    roofplan accuracy memory --by engine,gpu --rows comparisons.csv

    roofplan accuracy memory --data my-logs.csv --format json
    """
    from ..accuracy.results import memory_accuracy
    from .render import check_page

    check_page(out, force=force, beside=rows)
    result = memory_accuracy(data, _names(by))
    return _given(result, rows, out, output_format, color, force=force)


@app.command()
def speed(
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="CSV",
            help="Rows in the columns of accuracy/data/e2e_serving.csv or speed.csv. Default: both files.",
        ),
    ] = None,
    by: Annotated[
        str, typer.Option("--by", metavar="LABELS", help="Also by the values of these labels (model,tp,precision).")
    ] = "",
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Closed loops request by request, not by the closed form.")
    ] = False,
    leave_one_out: Annotated[
        bool,
        typer.Option(
            "--leave-one-out", help="Also predict each model, device and engine with constants fitted without it."
        ),
    ] = False,
    rows: _Rows = None,
    force: _Force = False,
    out: o.PageFile = None,
    output_format: o.OutputFormat = o.Format.text,
    color: o.ColorChoice = o.Color.auto,
) -> int:
    """Compare predicted times and rates with published benchmarks.

    Examples:
    roofplan accuracy speed

    roofplan accuracy speed --simulate --by model,gpu --rows comparisons.csv

    roofplan accuracy speed --data my-rows.csv --format json
    """
    from ..accuracy.speed import speed_accuracy
    from .render import check_page, progress_on_stderr

    check_page(out, force=force, beside=rows)
    with progress_on_stderr("rows") as progress:
        result = speed_accuracy(data, _names(by), simulate=simulate, leave_one_out=leave_one_out, progress=progress)
    return _given(result, rows, out, output_format, color, force=force)


@app.command()
def speculation(
    data: Annotated[
        str | None,
        typer.Option(
            "--data", metavar="CSV", help="Rows in the columns of accuracy/data/speculation.csv. Default: that file."
        ),
    ] = None,
    by: Annotated[
        str, typer.Option("--by", metavar="COLUMNS", help="Also by the values of these columns (drafter,engine,k).")
    ] = "",
    rows: _Rows = None,
    force: _Force = False,
    out: o.PageFile = None,
    output_format: o.OutputFormat = o.Format.text,
    color: o.ColorChoice = o.Color.auto,
) -> int:
    """Compare predicted speed-ups of speculative decoding with published ones.

    Examples:
    roofplan accuracy speculation

    roofplan accuracy speculation --by engine,k --rows comparisons.csv

    roofplan accuracy speculation --data my-rows.csv --format json
    """
    from ..accuracy.speculation import speculation_accuracy
    from .render import check_page

    check_page(out, force=force, beside=rows)
    result = speculation_accuracy(data, _names(by))
    return _given(result, rows, out, output_format, color, force=force)


def _names(by: str) -> list[str]:
    return [name.strip() for name in by.split(",") if name.strip()]


def _given(
    result: "MemoryAccuracy | SpeedAccuracy | SpeculationAccuracy",
    rows: str | None,
    out: "Path | None",
    output_format: o.Format,
    color: o.Color,
    *,
    force: bool,
) -> int:
    """Write the files that are asked for, and print the answer."""
    from .. import specfiles
    from ..errors import ExitCode
    from ..report.answer_files import answer_file
    from .render import print_answer

    files: list[tuple[str | Path, bytes]] = [] if rows is None else [(rows, result.to_rows().encode("utf-8"))]
    files += [] if out is None else [(out, answer_file(result, out))]
    specfiles.write_all(files, overwrite=force)
    print_answer(result, output_format, color)
    return ExitCode.YES
