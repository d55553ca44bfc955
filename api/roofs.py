"""The call behind ``roofplan roofline``: several devices or formats on one roofline, and points that were measured."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from os import PathLike, fspath
from typing import TYPE_CHECKING, cast

from .. import models, specfiles
from ..errors import DomainError, SpecError
from ..models.spec import ModelSpec
from ..quantities import NUMBER, parse, parse_count
from .building import deployment, loaded
from .options import Options, Whole, given

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Unpack

    from ..hardware.spec import HardwareSpec
    from ..planner.roofline_answer import MeasuredPoint, RooflineResult
    from ..planner.roofline_points import Further, Phase

MOST_SERIES = 6  # colours that are told apart
_MOST_BATCHES = 32
_LARGEST_BATCH = 2**20
_MOST_MEASURED = 500
# What people call the other ways of bytes.
_CEILINGS = {"cache": "cache", "l2": "cache", "link": "link", "nvlink": "link", "host": "host", "pcie": "host"}
_COLUMNS = ("name", "intensity", "flop_per_s")


def roofline(
    model: str | PathLike[str] | ModelSpec,
    *device: str | PathLike[str] | HardwareSpec,
    formats: str | Iterable[str] | None = None,
    batches: str | Iterable[Whole] | None = None,
    phases: str | Iterable[str] | None = None,
    ceilings: str | Iterable[str] | None = None,
    arithmetic: str | Iterable[str] | None = None,
    measured: str | PathLike[str] | Iterable[MeasuredPoint] | None = None,
    **options: Unpack[Options],
) -> RooflineResult:
    """Put a model on the roofline of one or several devices.

    Lists may be iterables, or texts with commas.

    Parameters
    ----------
    device : one or more names, paths or specs
    formats : weight formats that are overlaid, in the place of ``weights``
    batches : sequences of decode steps that make a path up the slope
    phases : prefill, decode; both where left out
    ceilings : others than memory and compute: cache (l2), link (nvlink), host (pcie)
    arithmetic : types whose roofs are drawn (``all``: every one); those that operators use where left out
    measured : points, or a CSV file of them with the columns name, intensity (FLOP per byte) and flop_per_s
    options : see :class:`~roofplan.api.options.Options`

    Raises
    ------
    RoofplanError : for anything that does not exist, does not divide or lies outside its domain

    >>> one = roofline("llama-3.1-8b", "h100-sxm", batches=[1, 8]).series[0]
    >>> round(one.roof.ridge(one.roof.compute[3]), 2), [step.batch for step in one.path]
    (295.34, [1.0, 8.0])
    """
    from ..hardware.spec import ARITHMETIC_TYPES
    from ..planner.roofline_answer import roofline_of
    from ..planner.roofline_points import PHASES

    _check_inputs(model, device, measured)
    spec = loaded(model, ModelSpec, models.load, "MODEL")
    weights = [formats] if isinstance(formats, str) else list(formats or ())
    if weights and options.get("weights") is not None:
        raise DomainError("--weights", got="both weights and formats", wanted="one of them")
    chosen: list[str | None] = [*weights] or [options.get("weights")]
    if len(device) * len(chosen) > MOST_SERIES:
        got = f"{len(device)} devices x {len(chosen)} weight formats"
        raise DomainError("roofline", got=got, wanted=f"at most {MOST_SERIES} together")
    types = ARITHMETIC_TYPES if arithmetic == "all" else arithmetic
    result = roofline_of(
        [deployment(spec, one, **given({**options, "weights": text})) for one in device for text in chosen],
        batches=_batches(batches),
        phases=cast("tuple[Phase, ...]", _chosen("--phase", phases, dict.fromkeys(PHASES)) or PHASES),
        further=cast("tuple[Further, ...]", _chosen("--ceilings", ceilings, _CEILINGS)),
        measured=read_measured(measured) if isinstance(measured, (str, PathLike)) else tuple(measured or ()),
        arithmetic=_chosen("--arithmetic", types, dict.fromkeys(ARITHMETIC_TYPES)),
    )
    for one in result.series:
        if not result.drawn(one):
            known = ", ".join(ceiling.name for ceiling in one.roof.compute)
            name = one.deployment.hardware.name
            raise DomainError(
                "--arithmetic", got=", ".join(result.arithmetic), wanted=f"a type that {name} has: {known}"
            )
    return result


def read_measured(path: str | PathLike[str]) -> tuple[MeasuredPoint, ...]:
    """Read measured points from a CSV file with a header; columns besides the three are left alone.

    Raises
    ------
    SpecError : for a file that cannot be read, lacks a column, or holds no point
    QuantityError : for what is no number above zero
    """
    from ..planner.roofline_answer import MeasuredPoint

    name = fspath(path)
    lines = csv.reader(specfiles.read_text(name).splitlines(), strict=True)
    points: list[MeasuredPoint] = []
    places: dict[str, int] = {}
    try:
        for cells in lines:
            where = f"{name}:{lines.line_num}"
            if not places:
                places = _header(cells, where)
            elif any(cell.strip() for cell in cells):
                if len(cells) <= max(places.values()):
                    wanted = f"{max(places.values()) + 1} or more, as in the header"
                    raise SpecError("row", got=f"{len(cells)} cells", wanted=wanted, where=where)
                numbers = (_number(cells[places[column]], column, where) for column in _COLUMNS[1:])
                points.append(MeasuredPoint(cells[places["name"]].strip() or "measured", *numbers))
    except csv.Error as error:
        raise SpecError(f"CSV: {error}", where=f"{name}:{lines.line_num}") from error
    if not 0 < len(points) <= _MOST_MEASURED:
        got = f"{len(points)} rows" if points else "none"
        raise SpecError("measured points", got=got, wanted=f"1 to {_MOST_MEASURED} rows under a header", where=name)
    return tuple(points)


def _header(cells: Sequence[str], where: str) -> dict[str, int]:
    named = [cell.strip() for cell in cells]
    for column in _COLUMNS:
        if named.count(column) != 1:
            got = "two of them" if column in named else "none"
            raise SpecError(f"column {column}", got=got, wanted=f"a header with {', '.join(_COLUMNS)}", where=where)
    return {column: named.index(column) for column in _COLUMNS}


def _number(cell: str, column: str, where: str) -> float:
    number = float(parse(cell, NUMBER, f"{where}: {column}"))
    if number == 0:
        raise SpecError(column, got="0", wanted="a number above zero", where=where)
    return number


def _check_inputs(model: object, device: Sequence[object], measured: object) -> None:
    if not device:
        raise DomainError("HARDWARE", got="nothing", wanted="a name or a path")
    for number, one in enumerate(device):
        if one in device[:number]:
            raise DomainError("HARDWARE", got=f"{one} twice", wanted="different devices")
    if [model, *device, measured].count("-") > 1:
        raise DomainError("HARDWARE", got="-", wanted="a name or path: standard input is already read")


def _several(what: str, asked: str | Iterable[object] | None) -> list[object]:
    """A list, from a text with commas or from any iterable.

    Raises
    ------
    DomainError : for an entry that stands twice, or is empty
    """
    if asked is None:
        return []
    entries: list[object] = [part.strip() for part in asked.split(",")] if isinstance(asked, str) else list(asked)
    for number, entry in enumerate(entries):
        if entry == "":
            raise DomainError(what, got="an empty entry", wanted="entries with commas between them")
        if entry in entries[:number]:
            raise DomainError(what, got=f"{entry} twice", wanted="different entries")
    if not entries:
        raise DomainError(what, got="an empty list", wanted="at least one entry")
    return entries


def _chosen(what: str, asked: str | Iterable[object] | None, known: Mapping[str, str | None]) -> tuple[str, ...]:
    """Entries of a list, by what each is called; several names of one thing give it once."""
    return tuple(dict.fromkeys(_known(what, known, entry) for entry in _several(what, asked)))


def _known(what: str, known: Mapping[str, str | None], entry: object) -> str:
    name = str(entry).lower()
    if name not in known:
        raise DomainError(what, got=str(entry), wanted=f"some of {', '.join(known)}")
    return known[name] or name


def _batches(asked: str | Iterable[Whole] | None) -> tuple[int, ...]:
    return tuple(sorted(_counts(asked)))


def _counts(asked: str | Iterable[Whole] | None) -> Iterator[int]:
    entries = _several("--batches", asked)
    if len(entries) > _MOST_BATCHES:
        raise DomainError("--batches", got=f"{len(entries)} of them", wanted=f"at most {_MOST_BATCHES}")
    for entry in entries:
        batch = parse_count(entry, "--batches")
        if batch > _LARGEST_BATCH:
            raise DomainError("--batches", got=f"{batch:,}", wanted=f"at most {_LARGEST_BATCH:,}")
        yield batch
