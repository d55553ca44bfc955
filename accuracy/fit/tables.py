"""The measured kernel tables of ``accuracy/data/kernels``, read strictly, and the devices they were measured on.

Tables: aiconfigurator-core 0.12.0 (Apache-2.0); collectives also microsoft/vidur 7d475133 (MIT). Times are in microseconds.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from ... import hardware
from ...errors import SpecError
from ..truth import TruthRow, read_truth

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...hardware.spec import HardwareSpec

FOLDER = Path(str(files("roofplan.accuracy") / "data" / "kernels"))

# How the tables name a device, and its entry of the catalogue, which gives the nominal rates.
DEVICES = {
    "a100_sxm": "a100-sxm4-80gb",
    "h100_sxm": "h100-sxm5-80gb",
    "h200_sxm": "h200-sxm-141gb",
    "b200_sxm": "b200-sxm-180gb",
    "b300_sxm": "b300-sxm-288gb",
    "gb200": "gb200-186gb",
    "gb300": "gb300-288gb",
    "l40s": "l40s",
    "rtx_pro_6000_server": "rtx-pro-6000-blackwell-server",
    "b60": "arc-pro-b60",
}


def table(name: str, columns: Iterable[str], folder: Path | None = None) -> list[TruthRow]:
    """Read one table of the folder (``gemm``), whose header has these columns.

    Raises
    ------
    SpecError : for a file that is no CSV, lacks columns, or has a row of another length
    """
    return read_truth((folder or FOLDER) / f"{name}.csv", columns)


def count(row: TruthRow, column: str) -> int:
    """The whole number of a column, at least 1.

    Raises
    ------
    SpecError : for anything else, also where the cell is empty
    """
    value = row.count(column)
    if value is None:
        raise SpecError(column, got="nothing", wanted="a whole number, at least 1", where=row.where)
    return value


def seconds(row: TruthRow, column: str = "time_us") -> float:
    """The time of a row, in seconds.

    Raises
    ------
    SpecError : for anything but a number above zero
    """
    value = row.number(column)
    if value is None or value <= 0:
        raise SpecError(column, got=row.text(column) or "nothing", wanted="microseconds, above zero", where=row.where)
    return value * 1e-6


def one_of(row: TruthRow, column: str, known: Iterable[str]) -> str:
    """The text of a column that holds one of a few names.

    Raises
    ------
    SpecError : for another name
    """
    text = row.text(column)
    names = sorted(known)
    if text not in names:
        raise SpecError(column, got=text or "nothing", wanted=f"one of {', '.join(names)}", where=row.where)
    return text


@cache
def device(label: str) -> HardwareSpec:
    """The catalogue's entry of a device of the tables."""
    return hardware.load(DEVICES[label])
