"""``roofplan accuracy``: predictions against logs and benchmarks that other people published, misses included."""

from typing import Annotated

import typer

from . import options as o

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
    rows: Annotated[
        str | None, typer.Option("--rows", metavar="FILE", help="Write every comparison to a CSV file.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
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
    from pathlib import Path

    from .. import specfiles
    from ..accuracy.results import memory_accuracy
    from ..errors import ExitCode
    from .render import check_page, print_answer, write_page

    check_page(out, force=force)
    columns = [column.strip() for column in by.split(",") if column.strip()]
    result = memory_accuracy(data, columns)
    if rows is not None:
        specfiles.write_text(Path(rows), result.to_rows(), overwrite=force)
    write_page(result, out, force=force)
    print_answer(result, output_format, color)
    return ExitCode.YES


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
    rows: Annotated[
        str | None, typer.Option("--rows", metavar="FILE", help="Write every comparison to a CSV file.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
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
    from pathlib import Path

    from .. import specfiles
    from ..accuracy.speed import speed_accuracy
    from ..errors import ExitCode
    from .render import check_page, print_answer, progress_on_stderr, write_page

    check_page(out, force=force)
    labels = [name.strip() for name in by.split(",") if name.strip()]
    with progress_on_stderr("rows") as progress:
        result = speed_accuracy(data, labels, simulate=simulate, leave_one_out=leave_one_out, progress=progress)
    if rows is not None:
        specfiles.write_text(Path(rows), result.to_rows(), overwrite=force)
    write_page(result, out, force=force)
    print_answer(result, output_format, color)
    return ExitCode.YES


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
    rows: Annotated[
        str | None, typer.Option("--rows", metavar="FILE", help="Write every comparison to a CSV file.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
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
    from pathlib import Path

    from .. import specfiles
    from ..accuracy.speculation import speculation_accuracy
    from ..errors import ExitCode
    from .render import check_page, print_answer, write_page

    check_page(out, force=force)
    columns = [column.strip() for column in by.split(",") if column.strip()]
    result = speculation_accuracy(data, columns)
    if rows is not None:
        specfiles.write_text(Path(rows), result.to_rows(), overwrite=force)
    write_page(result, out, force=force)
    print_answer(result, output_format, color)
    return ExitCode.YES
