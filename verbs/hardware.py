"""``roofplan hardware``: the catalogue of devices."""

from typing import Annotated

import typer

from . import options as o

app = typer.Typer(help="The catalogue of devices: list, show, lint.", no_args_is_help=False)

Specs = Annotated[
    list[str] | None,
    typer.Argument(metavar="[SPEC]...", help="Names or spec files. Default: the whole catalogue."),
]


@app.command("list")
def list_hardware(
    text: o.Part = "", output_format: o.OutputFormat = o.Format.text, color: o.ColorChoice = o.Color.auto
) -> int:
    """List the devices: memory, bandwidth, dense peak, ridge, price.

    Examples:
    roofplan hardware list h100

    roofplan hardware list --format csv
    """
    from .. import hardware
    from ..errors import ExitCode
    from ..report.listings import list_devices
    from .render import print_answer

    print_answer(list_devices(map(hardware.load, hardware.CATALOGUE.matching(text))), output_format, color)
    return ExitCode.YES


@app.command()
def show(
    hardware: o.Hardware, output_format: o.OutputFormat = o.Format.text, color: o.ColorChoice = o.Color.auto
) -> int:
    """Show every figure of a device, with its evidence.

    Example: roofplan hardware show h100-sxm
    """
    from .. import hardware as devices
    from ..errors import ExitCode
    from ..report.listings import show_entry
    from .render import print_answer

    print_answer(show_entry("hardware show", devices.load(hardware)), output_format, color)
    return ExitCode.YES


@app.command()
def lint(
    specs: Specs = None, output_format: o.OutputFormat = o.Format.text, color: o.ColorChoice = o.Color.auto
) -> int:
    """Check devices against rules that a schema cannot say; exit code 1 when something is found.

    Examples:
    roofplan hardware lint

    roofplan hardware lint my-device.yaml
    """
    from .. import hardware
    from ..errors import ExitCode
    from ..hardware.lint import lint_device
    from ..report.listings import list_findings
    from .render import print_answer

    names = specs or hardware.CATALOGUE.slugs()
    findings = [finding for name in names for finding in lint_device(hardware.load(name))]
    print_answer(list_findings("hardware lint", "devices", len(names), findings), output_format, color)
    return ExitCode.NO if findings else ExitCode.YES
