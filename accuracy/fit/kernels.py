"""Fits the constants of ``hardware/kernels/*.yaml`` on the tables of ``accuracy/data/kernels`` and prints them.

``python -m roofplan.accuracy.fit.kernels``                 a table of all constants, their errors, and those on a device left out
``python -m roofplan.accuracy.fit.kernels --yaml hopper``   the text of one file (without a name: of all of them)
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from . import collectives
from .classes import CLASSES, FOR_COMPARISON, LEVELS, fit_level, read_calls
from .written import kernel_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .fitting import Errors, Fitted

_COLUMNS = "{:14} {:18} {:15} {:>8} {:>9} {:>8} {:>6} {:>6} {:>7} {:>6}  {}"


def table_lines() -> list[str]:
    """One line for each class of kernels of each level: the constants and the errors in percent."""
    head = ("level", "kernels", "class", "floor us", "bandwidth", "compute", "ramp", "calls", "median%", "p90%")
    lines = [_COLUMNS.format(*head, "left out: median/p90 %").rstrip()]
    calls = read_calls()
    classes = (*CLASSES, *FOR_COMPARISON)
    lines += [_line(level.name, found) for level in LEVELS for found in fit_level(level, calls, classes)]
    every = collectives.read_series()
    usual = collectives.usual(every)
    lines += ["", "collectives, usual: floor + traffic/(share link)"]
    lines += [
        f"{' '.join(u.topologies) or 'any':6} {u.key.operation:14} {u.key.kernel:12} {u.key.ranks} ranks: "
        f"{u.floor * 1e6:6.3g} us, share {u.bandwidth:.2f}, "
        f"median {_percent(u.errors.median)} %, p90 {_percent(u.errors.p90)} % of {u.errors.rows}"
        for u in usual
    ]
    lines += ["", "collectives, tables: series, sizes kept, largest error of interpolation"]
    for level in LEVELS[1:]:
        kept = collectives.of_family(level.devices, every)
        sizes = [len(thinned.times) for thinned in kept]
        worst = max(thinned.error for thinned in kept)
        lines.append(f"{level.name:14} {len(kept):3} {min(sizes)} to {max(sizes)} {_percent(worst)} %")
    return lines


def _line(level: str, found: Fitted) -> str:
    c, kernel = found.constants, found.kernel
    return _COLUMNS.format(
        level,
        kernel.section,
        kernel.label,
        f"{c.floor * 1e6:.3g}",
        f"{c.bandwidth:.3g}",
        f"{c.compute:.3g}",
        f"{c.ramp_tokens:.4g}" if c.ramp_tokens else "-",
        found.errors.rows,
        _percent(found.errors.median),
        _percent(found.errors.p90),
        _left_out(found),
    ).rstrip()


def _left_out(found: Fitted) -> str:
    """Errors on each device of constants fitted without it."""
    if found.together is None:
        return ""
    return f"{_pair(found.together)}; " + ", ".join(f"{gpu} {_pair(of)}" for gpu, of in found.left_out.items())


def _pair(of: Errors) -> str:
    return f"{_percent(of.median)}/{_percent(of.p90)}"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of constants, or files of kernels."""
    names = [level.name for level in LEVELS]
    parser = argparse.ArgumentParser(prog="python -m roofplan.accuracy.fit.kernels", description=__doc__)
    parser.add_argument(
        "--yaml", nargs="?", const="", metavar="NAME", choices=["", *names], help="print this file, or all"
    )
    wanted = parser.parse_args(arguments).yaml
    if wanted is None:
        text = "\n".join(table_lines()) + "\n"
    elif wanted:
        text = kernel_text(wanted)
    else:
        text = "\n".join(f"# hardware/kernels/{name}.yaml\n{kernel_text(name)}" for name in names)
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
