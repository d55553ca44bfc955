"""Rules over rows of published serving benchmarks, as data: how a layout reads, what is not scored, settings of client and server.

A rule has a ``match`` on columns; of several that match, later ones override earlier ones, key by key. The files stand in ``settings/``:
``layouts.yaml``, ``excluded.yaml``, and one file of settings for each source of rows.
"""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from .. import specfiles
from ..errors import SpecError
from ..quantities import Count, Fraction, Number, PositiveCount

if TYPE_CHECKING:
    from collections.abc import Iterable

FOLDER = Path(str(files("roofplan.accuracy") / "settings"))
LAYOUTS, EXCLUDED = "layouts.yaml", "excluded.yaml"
_CONFIG: dict[str, Any] = {"extra": "forbid"}

# "default": what the code or documentation of client, launcher or engine gives; "measured": read off rows; "fitted": found by trying.
Kind = Literal["default", "measured", "derived", "fitted"]
Metric = Literal["tpot", "ttft"]
Columns = Mapping[str, str | int | None]  # a row by column, None where it says nothing
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """Whole numbers: some, or a closed interval that is open on the side that is left out. Files write ``[1024]`` for ``among``."""

    among: tuple[Count, ...] | None = None
    at_least: Count | None = None
    at_most: Count | None = None
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    def __post_init__(self) -> None:
        if not self.among and self.at_least is None and self.at_most is None:
            raise ValueError("got no number, want a list of some, at_least or at_most")

    def __contains__(self, value: int) -> bool:
        """Whether a number is one of them."""
        listed = self.among is None or value in self.among
        low, high = self.at_least, self.at_most
        return listed and (low is None or value >= low) and (high is None or value <= high)


Texts = tuple[str, ...]
_WHOLE = frozenset({"isl", "osl", "concurrency", "tp", "attention_dp", "moe_tp", "moe_ep", "ep"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """Days from one on, and before another (``"2026-01-21"``)."""

    on_or_after: str | None = None
    before: str | None = None
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    def __post_init__(self) -> None:
        if self.on_or_after is None and self.before is None:
            raise ValueError("got no day, want on_or_after or before")
        for day in (self.on_or_after, self.before):
            if day is not None:
                dt.date.fromisoformat(day)

    def __contains__(self, day: str) -> bool:
        """Whether a day (ISO 8601) lies in it; what has no date does not."""
        first, end = self.on_or_after, self.before
        return bool(day) and (first is None or day >= first) and (end is None or day < end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """What rows a rule is about: every column that it names has one of the values, or lies within the bounds; an empty one is all rows.

    ``version_starts`` are beginnings of ``engine_version``; ``unrecorded`` are columns that say nothing. ``tp``, ``attention_dp`` and
    ``ep`` are those of the layout as it reads; in layouts.yaml all parts of it are those of the file.
    """

    origin: Texts | None = None
    gpu: Texts | None = None
    engine: Texts | None = None
    engine_version: Texts | None = None
    version_starts: Texts | None = None
    model: Texts | None = None
    precision: Texts | None = None
    measured: Period | None = None
    isl: Whole | None = None
    osl: Whole | None = None
    concurrency: Whole | None = None
    unrecorded: tuple[Literal["concurrency"], ...] | None = None
    tp: Whole | None = None
    attention_dp: Whole | None = None
    moe_tp: Whole | None = None
    moe_ep: Whole | None = None
    ep: Whole | None = None
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) == ():
                raise ValueError(f"got no value for {field.name}, want at least one")

    def holds(self, row: Columns) -> bool:
        """Whether it is about a row."""
        return all(_holds(name, wanted, row) for name, wanted in _named(self))


def _named(match: Match) -> list[tuple[str, Any]]:
    return [(field.name, wanted) for field in fields(match) if (wanted := getattr(match, field.name)) is not None]


def _holds(name: str, wanted: Any, row: Columns) -> bool:
    if name == "version_starts":
        return str(row["engine_version"]).startswith(wanted)
    if name == "unrecorded":
        return all(row[column] is None for column in wanted)
    value = row[name]
    return value is not None and value in wanted


def any_holds(matches: Iterable[Match], row: Columns) -> bool:
    """Whether one of several is about a row."""
    return any(match.holds(row) for match in matches)


# ------------------------------------------------------------------------------------------------ layouts

Part = Literal["one", "tp", "attention_dp", "moe_tp", "moe_ep"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutRule:
    """From which column of the file each part of a layout is read."""

    match: Match
    tp: Part
    attention_dp: Part
    ep: Part
    source: str
    why: str
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutFile:
    """How the columns of layouts read: the last rule that matches."""

    schema: Literal["roofplan/layouts/v1"]
    rules: tuple[LayoutRule, ...]
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    def read(self, row: Columns) -> dict[str, int]:
        """The tensor, attention-data and expert parallelism of a row."""
        last = [rule for rule in self.rules if rule.match.holds(row)][-1]
        parts = {"tp": last.tp, "attention_dp": last.attention_dp, "ep": last.ep}
        return {name: _size(row[column]) if column != "one" else 1 for name, column in parts.items()}


def _size(value: str | int | None) -> int:
    """A part of a layout: empty and zero stand for one."""
    return max(1, value) if isinstance(value, int) else 1


# ------------------------------------------------------------------------------------------------ exclusions


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """Rows (of any of the matches) that are not scored, from what, and why."""

    name: str
    match: tuple[Match, ...]
    excludes: tuple[Metric, ...]
    reason: str
    source: str
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusionFile:
    """All exclusions."""

    schema: Literal["roofplan/exclusions/v1"]
    rules: tuple[Exclusion, ...]
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    def reason(self, metric: Metric, row: Columns) -> str:
        """Why a row is not scored, by the first rule that says so; empty where it is."""
        hits = (rule.reason for rule in self.rules if metric in rule.excludes and any_holds(rule.match, row))
        return next(hits, "")


# ------------------------------------------------------------------------------------------------ settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """constant + per_prompt x S + per_output x G + per_concurrency x C with nominal lengths S and G, rounded up, then bounded."""

    constant: float = 0  # may be negative: one place fewer than requests
    per_prompt: Number = 0
    per_output: Number = 0
    per_concurrency: Number = 0
    multiple_of: PositiveCount | None = None
    at_least: Count | None = None
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    def at(self, prompt: int, output: int, concurrency: int | None) -> int | None:
        """The whole number for one row; None where it depends on a concurrency that the row does not record."""
        if concurrency is None and self.per_concurrency:
            return None
        lengths = self.per_prompt * prompt + self.per_output * output
        value = round(self.constant + lengths + self.per_concurrency * (concurrency or 0))
        if self.multiple_of is not None:
            value = -(-value // self.multiple_of) * self.multiple_of
        return max(value, self.at_least or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRule:
    """Settings of the client that a rule gives."""

    arrivals: Literal["closed", "poisson"] | None = None
    waves: PositiveCount | None = None
    requests: PositiveCount | None = None
    length_from: Fraction | None = None
    length_to: Number | None = None
    length_sigma: Number | None = None
    seed: Count | None = None
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRule:
    """Settings of the server that a rule gives."""

    engine_version: str | None = None
    kv: str | None = None
    batched_tokens: Linear | None = None
    max_num_seqs: Linear | None = None
    max_model_len: Linear | None = None
    memory_utilization: Fraction | None = None
    poll_steps: Count | None = None
    hold_steps: Count | None = None
    hold_tokens: Fraction | None = None
    look_ahead: Count | None = None
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsRule:
    """Settings of some rows, where they come from, and how they were found."""

    match: Match = Match()
    client: ClientRule = ClientRule()
    launch: LaunchRule = LaunchRule()
    source: str
    kind: Kind
    why: str = ""
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsFile:
    """The settings of one source of rows; ``rows`` says which rows are its own."""

    schema: Literal["roofplan/settings/v1"]
    title: str
    rows: tuple[Match, ...]
    rules: tuple[SettingsRule, ...]
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    def of(self, row: Columns) -> dict[str, tuple[Any, SettingsRule]]:
        """Every setting of a row by its key (``client.waves``), with the rule that gives it."""
        found: dict[str, tuple[Any, SettingsRule]] = {}
        for rule in self.rules:
            if rule.match.holds(row):
                for group, part in (("client", rule.client), ("launch", rule.launch)):
                    for field in fields(part):
                        value = getattr(part, field.name)
                        if value is not None:
                            found[f"{group}.{field.name}"] = (value, rule)
        return found


# ------------------------------------------------------------------------------------------------ files


def _read(cls: type[T], path: Path) -> T:
    document = specfiles.read_document(path)
    return specfiles.validate(cls, document, _spelled_out(document.data))


def _spelled_out(data: Any) -> Any:
    """Data with lists of whole numbers written as mappings: ``{isl: [1024]}`` as ``{isl: {among: [1024]}}``."""
    if isinstance(data, list):
        return [_spelled_out(item) for item in data]
    if not isinstance(data, dict):
        return data
    lists = {key: {"among": value} for key, value in data.items() if key in _WHOLE and isinstance(value, list)}
    return {key: lists.get(key) or _spelled_out(value) for key, value in data.items()}


@functools.cache
def layouts(folder: Path = FOLDER) -> LayoutFile:
    """How columns of layouts read.

    Raises
    ------
    SpecError : with its place, for a malformed file; so the other two
    """
    return _read(LayoutFile, folder / LAYOUTS)


@functools.cache
def exclusions(folder: Path = FOLDER) -> ExclusionFile:
    """The rules by which rows are not scored."""
    return _read(ExclusionFile, folder / EXCLUDED)


@functools.cache
def sources(folder: Path = FOLDER) -> dict[str, SettingsFile]:
    """The settings by source of rows (the name of the file)."""
    paths = sorted(path for path in folder.glob("*.yaml") if path.name not in {LAYOUTS, EXCLUDED})
    return {path.stem: _read(SettingsFile, path) for path in paths}


def source_of(row: Columns, folder: Path = FOLDER) -> str | None:
    """The one source that a row belongs to, or None.

    Raises
    ------
    SpecError : where two files claim it
    """
    found = [name for name, file in sources(folder).items() if any_holds(file.rows, row)]
    if len(found) > 1:
        raise SpecError(
            "rows", got=f"a row that {' and '.join(found)} claim", wanted="each row in one file of settings"
        )
    return found[0] if found else None
