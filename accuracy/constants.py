"""Which constants behind predicted speeds were fitted: counted from the YAML files that state them, by name.

A figure is fitted where the source that stands nearest above its key says so. Figures with the same name and value are one constant: files
repeat what a fit has in common, and classes of devices share constants. Left out: the factors of :mod:`roofplan.planner.load`, which were
chosen against the event simulation and no measurement.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import engines, hardware, specfiles
from .serving_rules import FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_QUANTITY = re.compile(r"-?\d")
# Said with fitted figures, but what an entry is about, or a form that was chosen.
_NOT_FITTED = frozenset(
    {"bits", "ranks", "overlap", "since", "units_at_least", "copies", "dequantised", "compared_to", "fitted_on"}
)
_OF_TIME = ("timing", "scheduling")  # of an engine; its other constants are of memory


@dataclass(frozen=True, slots=True)
class FittedFile:
    """The fitted figures of a file: dotted names, each with its value as written."""

    file: str
    figures: tuple[tuple[str, str], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The dotted names."""
        return tuple(name for name, _ in self.figures)


def fitted_files() -> tuple[FittedFile, ...]:
    """Every file with fitted constants of kernels, engines, single streams and clients, in this order."""
    return tuple(found for found in (*_of_kernels(), *_of_engines(), *_of_streams(), *_of_settings()) if found.figures)


def distinct(found: tuple[FittedFile, ...]) -> int:
    """Constants that differ in name or value; widths of weights and places in a list do not count as names."""
    return len({(_own_name(name), value) for file in found for name, value in file.figures})


def _own_name(figure: str) -> str:
    return next((part for part in reversed(figure.split(".")) if not part.isdecimal()), figure)


def _of_kernels() -> Iterator[FittedFile]:
    for slug in hardware.KERNELS.slugs():
        yield FittedFile(f"hardware/kernels/{slug}", _sourced(hardware.KERNELS.read(slug).data))


def _of_engines() -> Iterator[FittedFile]:
    for slug in engines.CATALOGUE.slugs():
        data = engines.CATALOGUE.read(slug).data
        parts = {key: data[key] for key in (*_OF_TIME, "sources") if key in data}
        yield FittedFile(f"engines/catalogue/{slug}", _sourced(parts))


def _of_streams() -> Iterator[FittedFile]:
    for path in sorted(Path(str(files("roofplan.engines") / "streams")).glob("*.yaml")):
        streams = {stream["name"]: stream for stream in specfiles.read_document(path).data["streams"]}
        yield FittedFile(f"engines/streams/{path.stem}", tuple(_figures(streams, "")))


def _of_settings() -> Iterator[FittedFile]:
    for path in sorted(FOLDER.glob("*.yaml")):
        rules = specfiles.read_document(path).data.get("rules", [])
        own = {
            str(place): {key: rule[key] for key in ("client", "launch") if key in rule}
            for place, rule in enumerate(rules)
            if rule.get("kind") == "fitted"
        }
        yield FittedFile(f"accuracy/settings/{path.stem}", tuple(_figures(own, "")))


def _sourced(data: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    sources = data.get("sources", {})
    stated = {key: value for key, value in data.items() if key != "sources"}
    return tuple((name, value) for name, value in _figures(stated, "") if _is_fitted(name, sources))


def _is_fitted(figure: str, sources: Mapping[str, Any]) -> bool:
    above = [key for key in sources if figure == key or figure.startswith(f"{key}.")]
    return bool(above) and sources[max(above, key=len)]["kind"] == "fitted"


def _figures(data: Any, path: str) -> Iterator[tuple[str, str]]:
    """Numbers and quantities with their dotted names."""
    if isinstance(data, dict):
        for name, value in data.items():
            if name not in _NOT_FITTED:
                yield from _figures(value, f"{path}.{name}".lstrip("."))
    elif isinstance(data, list):
        for place, value in enumerate(data):
            yield from _figures(value, f"{path}.{place}")
    elif (isinstance(data, int | float) and not isinstance(data, bool)) or (
        isinstance(data, str) and _QUANTITY.match(data)
    ):
        yield path, str(data)
