"""What a run measured, beside what was predicted; and the file that keeps it.

Names of records are of two parts, the experiment and what was measured in it: ``stream.read``, ``gemm.bf16``, ``decode.step``. A record of
time has the unit ``s`` and, in its parameters, ``bytes`` and ``flop`` counted from the tensors, from which rates follow.
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .. import specfiles
from ..errors import SpecError, show
from .environment import Environment
from .samples import Summary, summarise

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SCHEMA = "roofplan/measured/v1"
LARGEST_FILE_BYTES = 256 * 2**20
_LONGEST_COUNT = 30  # digits of a whole number in a file


@dataclass(frozen=True, slots=True)
class Record:
    """One measured quantity.

    Parameters
    ----------
    name : ``experiment.quantity``
    unit : of the samples and of the predictions (``s``, ``B/s``, ``FLOP/s``, ``B``, ``1``)
    measured : the samples
    parameters : what it depends on (``bytes``, ``flop``, ``rows``, ``dtype``, ``batch``, ``context``, ``cold``): texts, numbers, booleans
    predicted_datasheet : by the planner on the catalogue's device, or None where there is none
    predicted_measured : by the planner on the measured roof, or None
    inputs : what the predictions took from this run beside the device (counted operations, the time of one): with them, device and model
        they are computed again (:mod:`~roofplan.measure.again`)
    """

    name: str
    unit: str
    measured: Summary
    parameters: dict[str, Any] = field(default_factory=dict)
    predicted_datasheet: float | None = None
    predicted_measured: float | None = None
    inputs: dict[str, float] = field(default_factory=dict, kw_only=True)

    @property
    def predicted(self) -> float | None:
        """By the measured roof, else by the data sheet."""
        return self.predicted_datasheet if self.predicted_measured is None else self.predicted_measured

    @property
    def ratio(self) -> float | None:
        """Measured over predicted; None without a prediction."""
        return self.measured.median / self.predicted if self.predicted else None

    @property
    def bytes_per_s(self) -> float | None:
        """The rate of bytes, of a time whose bytes were counted."""
        return self._rate("bytes")

    @property
    def flop_per_s(self) -> float | None:
        """The rate of operations, of a time whose operations were counted."""
        return self._rate("flop")

    def _rate(self, amount: str) -> float | None:
        counted = self.parameters.get(amount)
        return float(counted) / self.measured.median if counted and self.unit == "s" and self.measured.median else None

    def to_dict(self, *, samples: bool = True) -> dict[str, Any]:
        """Plain data."""
        return {
            "name": self.name,
            "unit": self.unit,
            "parameters": dict(self.parameters),
            "measured": self.measured.to_dict(samples=samples),
            "predicted_datasheet": self.predicted_datasheet,
            "predicted_measured": self.predicted_measured,
            "ratio": self.ratio,
            "inputs": dict(self.inputs),
        }

    @classmethod
    def from_dict(cls, said: dict[str, Any]) -> Record:
        """Read what :meth:`to_dict` wrote."""
        return cls(
            str(said["name"]),
            str(said["unit"]),
            Summary.from_dict(said["measured"]),
            dict(said.get("parameters", {})),
            _number_or_none(said.get("predicted_datasheet")),
            _number_or_none(said.get("predicted_measured")),
            inputs={str(name): float(value) for name, value in said.get("inputs", {}).items()},
        )


@dataclass(frozen=True, slots=True)
class Run:
    """All that one command measured.

    Parameters
    ----------
    command : what was asked (``ceilings``)
    environment : the machine and its software, when it ran
    records : in the order in which they were taken
    notes : what was left out, made smaller or interrupted, in words
    started : date and time with the zone (ISO 8601)
    quick : whether the short limits held
    """

    command: str
    environment: Environment
    records: tuple[Record, ...]
    notes: tuple[str, ...] = ()
    started: str = ""
    quick: bool = False

    def named(self, name: str) -> tuple[Record, ...]:
        """The records of this name, or of all names under it (``gemm`` for ``gemm.bf16``)."""
        return tuple(record for record in self.records if record.name == name or record.name.startswith(f"{name}."))

    def to_dict(self, *, samples: bool = True) -> dict[str, Any]:
        """Plain data, as the file holds it."""
        return {
            "schema": SCHEMA,
            "command": self.command,
            "started": self.started,
            "quick": self.quick,
            "environment": self.environment.to_dict(),
            "records": [record.to_dict(samples=samples) for record in self.records],
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, said: Any, where: str = "") -> Run:
        """Read what :meth:`to_dict` wrote.

        Raises
        ------
        SpecError : for what is no run, or of another version
        """
        found = said.get("schema") if isinstance(said, dict) else None
        if found != SCHEMA:
            raise SpecError(
                "schema", got=found or "none", wanted=SCHEMA, where=where, hint="a file of roofplan measure"
            )
        try:
            return cls(
                str(said["command"]),
                Environment.from_dict(said["environment"]),
                tuple(Record.from_dict(record) for record in said["records"]),
                tuple(str(note) for note in said.get("notes", ())),
                str(said.get("started", "")),
                bool(said.get("quick", False)),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SpecError(
                "measured run",
                got=f"{type(error).__name__}: {error}",
                wanted="what roofplan measure wrote",
                where=where,
            ) from error


def pooled(rounds: Sequence[Sequence[Record]]) -> list[Record]:
    """Put together what was measured several times: records of the same name and parameters become one, with the samples of all.

    Order and predictions are those of the first round that has them.
    """
    together: dict[tuple[str, str], list[Record]] = {}
    for record in itertools.chain.from_iterable(rounds):
        together.setdefault((record.name, json.dumps(record.parameters, sort_keys=True)), []).append(record)
    return [_pooled(same) for same in together.values()]


def _pooled(same: list[Record]) -> Record:
    first, *others = same
    if not others:
        return first
    parts = [record.measured for record in same]
    unmet = next((part.unmet for part in reversed(parts) if part.unmet), "")
    samples = itertools.chain.from_iterable(part.samples for part in parts)
    measured = summarise(samples, sum(part.dropped for part in parts), unmet)
    counted = all(part.count == 1 and not part.warnings for part in parts)  # a figure that was counted and not timed
    return replace(first, measured=parts[0] if counted else measured)


def save(run: Run, path: Path, *, overwrite: bool = False) -> None:
    """Write a run with every sample, at once or not at all.

    Raises
    ------
    RoofplanError : for a file that is there already, or cannot be written
    """
    specfiles.write_text(path, json.dumps(run.to_dict(), indent=1, allow_nan=False) + "\n", overwrite=overwrite)


def save_partial(run: Run, wanted: Path | None = None) -> Path:
    """Write what an interrupted run has, where it would have been written, else under a free name in the current folder.

    Raises
    ------
    RoofplanError : when it cannot be written
    """
    path = wanted or _free_name(run.command)
    save(run, path, overwrite=wanted is not None)
    return path


def _free_name(command: str) -> Path:
    from pathlib import Path

    stem = f"roofplan-measured-{command}-partial"
    names = itertools.chain([f"{stem}.json"], (f"{stem}-{number}.json" for number in itertools.count(2)))
    return next(path for name in names if not (path := Path(name)).exists())


def load(path: Path) -> Run:
    """Read a run.

    Raises
    ------
    SpecError : for a file that is none
    """
    text = specfiles.read_text(path, largest=LARGEST_FILE_BYTES)
    try:
        said = json.loads(text, parse_constant=_no_number, parse_float=_finite, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        raise SpecError("JSON", got=show(error), wanted="a file of roofplan measure", where=str(path)) from error
    return Run.from_dict(said, str(path))


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    """A number with a point or an exponent; ``1e999`` would be read as infinity."""
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)


def _whole(text: str) -> int:
    """A whole number, of no more digits than any count of bytes or operations has."""
    return int(text) if len(text) <= _LONGEST_COUNT else int(_no_number(f"{text[:_LONGEST_COUNT]}…"))


def _number_or_none(value: Any) -> float | None:
    number = None if value is None else float(value)
    if number is not None and not math.isfinite(number):
        raise ValueError(f"{number} is no prediction")
    return number
