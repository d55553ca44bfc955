"""What every answer offers: a stable dictionary, an explanation, and a table for notebooks."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from dataclasses import dataclass
from typing import Any

SCHEMA = "roofplan/result/v1"


@dataclass(frozen=True, slots=True)
class Assumption:
    """An input that was not given: its value, and where it comes from."""

    name: str
    value: Any
    source: str
    kind: str


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that the user should know about the answer: a stable code, and one sentence."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """How one figure came about.

    Parameters
    ----------
    figure, value : its name (as in the JSON) and its value, printed with the unit
    formula : in symbols, with the formula's number and source
    numbers : the same with the numbers put in
    inputs : (name, value, source) of what went in
    binds : the limit that decides it, or empty
    """

    figure: str
    value: str
    formula: str
    numbers: str
    inputs: tuple[tuple[str, str, str], ...] = ()
    binds: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """Base of all results.

    ``to_dict`` gives the envelope that ``--format json`` prints: base units in the key names, no rounding, no NaN or infinity.
    """

    @property
    def command(self) -> str:
        """The verb that this answers."""
        return ""

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """What the user should know."""
        return ()

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Inputs that were not given."""
        return ()

    def inputs(self) -> dict[str, Any]:
        """What was asked."""
        return {}

    def figures(self) -> dict[str, Any]:
        """What was found."""
        return {}

    def explain(self) -> tuple[Explanation, ...]:
        """How each figure came about."""
        return ()

    def to_dict(self) -> dict[str, Any]:
        """Give the whole answer as plain data."""
        return {
            "schema": SCHEMA,
            "command": self.command,
            "inputs": plain(self.inputs()),
            "result": plain(self.figures()),
            "assumptions": [plain(assumption) for assumption in self.assumptions],
            "warnings": [plain(warning) for warning in self.warnings],
        }

    def _repr_html_(self) -> str:
        import html

        rows = "".join(
            f"<tr><th>{html.escape(line.figure)}</th><td>{html.escape(line.value)}</td>"
            f"<td><code>{html.escape(line.numbers)}</code></td></tr>"
            for line in self.explain()
        )
        return f"<table><tr><th>figure</th><th>value</th><th>derivation</th></tr>{rows}</table>"


# Names of what is counted: bytes and FLOP (not those of a second, nor FLOP of a byte), tokens and sequences. Ratios of them stand apart.
_COUNTED = re.compile(r"(?:^|_)(?:bytes|flop)(?!.*_per_(?:s|byte)(?:_|$))(?:_|$)|^(?:tokens|context|batch)$")
_RATIOS = frozenset({"times", "ratios"})


def plain(value: Any, name: str = "") -> Any:
    """Turn dataclasses and tuples into dictionaries and lists, and counts that are whole into integers.

    A number that is not finite is a fault of ours.

    Parameters
    ----------
    name : the key of the value, by which it is known whether it counts something

    Raises
    ------
    ArithmeticError : for NaN or infinity
    """
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ArithmeticError(f"{value} in a result")
        return whole(value) if _is_counted(name) else value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name), field.name) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        # Of ratios, and of what is keyed by names of people's, the keys do not say what is counted.
        return {key: plain(item, "" if name in _RATIOS else key) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, name) for item in value]
    return value


@functools.cache
def _is_counted(name: str) -> bool:
    return _COUNTED.search(name) is not None


def whole(value: float) -> float | int:
    """A number of things as an integer where it is one.

    >>> whole(1152.0), whole(1152.5)
    (1152, 1152.5)
    """
    return int(value) if value == int(value) else value
