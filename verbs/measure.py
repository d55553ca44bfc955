"""``roofplan measure``: the real machine against its roofline."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from . import measured_clients
from . import options as o

_RUN, _OUTPUT = "Run", "Output"
ALL = "all"


class _DefaultsToAll(TyperGroup):
    """A group of which ``all`` may be left out: ``roofplan measure --quick`` is ``roofplan measure all --quick``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put ``all`` before options that stand alone."""
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = [ALL, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=_DefaultsToAll, help="The real machine against its roofline.", no_args_is_help=False)

Quick = Annotated[
    bool, typer.Option("--quick", help="At most a minute: fewer sizes and samples.", rich_help_panel=_RUN)
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device", metavar="NAME", help="cpu, cuda, cuda:1 or mps. Default: a GPU, else the CPU.", rich_help_panel=_RUN
    ),
]
Shape = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="Whose shape experiments have. Default: one that suits the machine.",
        autocompletion=o.complete_model,
        rich_help_panel=_RUN,
    ),
]
Predicting = Annotated[
    str | None,
    typer.Option(
        "--hardware",
        metavar="HARDWARE",
        help="Device or measured machine to predict with. Default: the catalogue's of this name, and this run's own ceilings.",
        autocompletion=o.complete_hardware,
        rich_help_panel=_RUN,
    ),
]
Save = Annotated[
    Path | None,
    typer.Option(
        "--save",
        metavar="FILE.yaml",
        help="Write the measured machine, which every verb takes as HARDWARE.",
        rich_help_panel=_OUTPUT,
    ),
]
Json = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write the whole run with every sample.", rich_help_panel=_OUTPUT),
]
Samples = Annotated[
    bool, typer.Option("--samples", help="Every sample in what --format json prints.", rich_help_panel=_OUTPUT)
]

_WHAT = {
    "ceilings": (
        "Measure the machine's rates: memory by working set, products by type and rows, launches, the link to the host.",
        "roofplan measure ceilings --save machine.yaml -o roof.png",
    ),
    "decode": ("Measure decode and prefill steps of a reference transformer.", "roofplan measure decode --quick"),
    "cache": (
        "Measure decoding with and without a KV cache, cache formats, prefix reuse.",
        "roofplan measure cache --model llama-3.2-1b",
    ),
    "batching": (
        "Measure static and continuous batching, paged caches, chunked prefill.",
        "roofplan measure batching --format json",
    ),
    "quantization": (
        "Measure weight formats (bytes, speed, error) and attention, fused and not.",
        "roofplan measure quantization --json formats.json",
    ),
    "speculation": (
        "Measure speculative decoding with a smaller draft, from end to end.",
        "roofplan measure speculation --quick",
    ),
    "collectives": (
        "Measure exchanges between ranks by size, also under torchrun.",
        "roofplan measure collectives --device cpu",
    ),
    ALL: ("Measure everything: at most a quarter of an hour, or a minute with --quick.", "roofplan measure --quick"),
}


def _add(what: str, summary: str, example: str) -> None:
    def command(
        quick: Quick = False,
        device: Device = None,
        model: Shape = None,
        hardware: Predicting = None,
        save: Save = None,
        json: Json = None,
        samples: Samples = False,
        out: o.ReportFile = None,
        size: o.PictureSize = None,
        dark: o.Dark = False,
        force: o.Force = False,
        output_format: o.OutputFormat = o.Format.text,
        color: o.ColorChoice = o.Color.auto,
    ) -> int:
        from ..errors import ExitCode
        from ..measure.files import check_files
        from ..measure.running import measure
        from ..report.answer_files import check_answer_file, write_answer
        from .render import print_answer

        pixels = check_answer_file(out, size, dark=dark, overwrite=force)
        check_files(save, json, overwrite=force)
        result = measure(
            what,
            device=device,
            model=model,
            hardware=hardware,
            quick=quick,
            wants_device=save is not None,
            tell=measured_clients.tell,
            keep=lambda run: measured_clients.keep(run, json),
        )
        if measured_clients.is_another_rank():
            return ExitCode.YES
        result = measured_clients.write(result, save, json, force=force, samples=samples)
        if out is not None:
            write_answer(result, out, size=pixels, dark=dark, overwrite=force)
        print_answer(result, output_format, color)
        return ExitCode.YES

    command.__doc__ = f"{summary}\n\nExample: {example}\n\nExit code: 0 measured, 2 it cannot be, 130 interrupted."
    app.command(what)(command)


for _name, (_summary, _example) in _WHAT.items():
    _add(_name, _summary, _example)


@app.command()
def compare(
    first: Annotated[Path, typer.Argument(metavar="A.json", help="A run that --json wrote.")],
    second: Annotated[Path, typer.Argument(metavar="B.json", help="A later run of the same.")],
    out: o.PageFile = None,
    force: o.Force = False,
    output_format: o.OutputFormat = o.Format.text,
    color: o.ColorChoice = o.Color.auto,
) -> int:
    """Compare two runs: a figure differs only where a rank test says so.

    Example: roofplan measure compare before.json after.json

    Exit code: 0 nothing became slower, 1 something did, 2 the runs cannot be compared.
    """
    from ..errors import ExitCode
    from ..measure import records
    from ..measure.comparing import compare as compare_runs
    from .render import check_page, print_answer, write_page

    check_page(out, force=force)
    result = compare_runs(records.load(first), records.load(second))
    write_page(result, out, force=force)
    print_answer(result, output_format, color)
    return ExitCode.YES if result.good else ExitCode.NO


measured_clients.add_to(app)
