"""The files that a run leaves: the measured machine, and the run itself with every sample."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .. import specfiles
from ..errors import MeasureError, SpecError
from . import records
from .overlay import to_yaml

if TYPE_CHECKING:
    from pathlib import Path

    from .results import MeasureResult


def check_files(save: Path | None, run_file: Path | None, *, overwrite: bool) -> None:
    """Refuse files that cannot be written, before anything is measured.

    Raises
    ------
    SpecError : for an existing file, or a name by which nobody would find out what it is
    """
    for path, suffixes in ((save, (".yaml", ".yml")), (run_file, (".json",))):
        if path is None:
            continue
        if path.suffix.lower() not in suffixes:
            raise SpecError("file", got=str(path), wanted=f"a name that ends in {suffixes[0]}")
        specfiles.check_free(path, overwrite=overwrite)


def write_files(
    result: MeasureResult, save: Path | None, run_file: Path | None, *, overwrite: bool, samples: bool = False
) -> MeasureResult:
    """Write the files that were asked for; returns the result that says so.

    Raises
    ------
    MeasureError : where the measured machine is asked for, and the run has none
    SpecError : for a file that cannot be written
    """
    if run_file is not None:
        records.save(result.run, run_file, overwrite=overwrite)
    if save is not None:
        if result.device is None:
            hint = "roofplan measure ceilings takes them"
            raise MeasureError(
                "--save", got=f"a run of {result.run.command} without ceilings", wanted="some", hint=hint
            )
        specfiles.write_text(save, to_yaml(result.device), overwrite=overwrite)
    return replace(result, samples=samples, saved=str(save or ""))
