"""Rows of published serving benchmarks: read, counted once, classified, and turned into deployments.

``data/e2e_serving.csv`` (aiconfigurator-core 0.12.0, Apache-2.0) holds closed loops. The rows ``AICS-…`` of ``data/speed.csv`` are the
same measurements (two lines for each) and are not read; of that file come the rows of clients that a file of settings describes.

Copies: a measurement stands in the file again under another name of the model, from another collection and rounded, or as it is. Two rows
are one measurement if engine, GPU, precision, lengths and concurrency are the same and TTFT and TPOT differ by at most 0.2 %, whatever the
model is called. Of copies the first with a date is kept (the collection that the others were rounded from), without one the first.
"""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import math
import re
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import api
from ..errors import SpecError, UnknownNameError
from . import names
from .limits import check_sizes
from .serving_rules import exclusions, layouts, source_of
from .serving_settings import ServingSettings, resolve
from .truth import TruthRow, read_truth

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..models.spec import ModelSpec
    from ..planner.deployment import Deployment
    from .serving_rules import Columns

DATA = Path(str(files("roofplan.accuracy") / "data"))
_NAMES = ("gpu", "engine", "engine_version", "model", "precision", "measured", "origin")
_SIZES = ("isl", "osl", "concurrency", "tp", "pp", "attention_dp", "ep")
_COUNTS = ("isl", "osl", "concurrency", "tp", "pp", "attention_dp", "moe_tp", "moe_ep")
COLUMNS = (*_NAMES, *_COUNTS, "ttft_ms", "tpot_ms")
SPEED_COLUMNS = (
    *("id", "source", "engine", "engine_version", "model", "weights_dtype", "kv_dtype", "gpu", "tp", "pp", "ep"),
    *("isl", "osl", "batch_or_concurrency", "metric", "value"),
)
_TOLERANCE = 0.002
_RATE = re.compile(r"[1-9]\d{0,8}", re.ASCII)
_MS = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingRow:
    """One measurement of a served model under load.

    Parameters
    ----------
    id : made of the cells of the row, so that it stays when rows come and go
    engine, version, model, gpu, precision, origin, measured : as recorded; empty where it is not
    concurrency : requests in flight, or None: not recorded, or at a rate
    request_rate : requests per second, infinite for all at once; None for a closed loop
    tp, attention_dp, ep : the layout as it reads (settings/layouts.yaml): attention over ``tp`` ranks in ``attention_dp`` replicas
    kv : recorded format of the cache, or empty
    ttft_s, tpot_s : mean time to the first token, and per further token
    excluded_tpot, excluded_ttft : why it is not scored on them (settings/excluded.yaml); empty where it is
    precision_unstated : the format of the weights is not recorded, and taken as 16 bits since TPOT says so
    copies : rows of the file that hold this measurement
    """

    id: str
    gpu: str
    engine: str
    version: str
    model: str
    precision: str
    isl: int
    osl: int
    concurrency: int | None
    request_rate: float | None = None
    tp: int
    pp: int
    attention_dp: int
    ep: int
    kv: str = ""
    ttft_s: float
    tpot_s: float
    measured: str
    origin: str
    excluded_tpot: str = ""
    excluded_ttft: str = ""
    copies: int = 1

    @property
    def devices(self) -> int:
        """GPUs that served it."""
        return self.tp * self.pp * self.attention_dp

    @property
    def precision_unstated(self) -> bool:
        """Whether the format of the weights is not recorded."""
        return not self.precision

    @property
    def columns(self) -> Columns:
        """What rules match on."""
        names_of = {"engine_version": self.version}
        names_of |= {name: getattr(self, name) for name in _NAMES if name not in names_of}
        return {**names_of, **{name: getattr(self, name) for name in _SIZES}}

    @property
    def labels(self) -> dict[str, str]:
        """The columns by which results are grouped."""
        shown = {name: "" if value is None else str(value) for name, value in self.columns.items()}
        return shown | {"devices": str(self.devices), "precision": self.precision or "not stated"}


# ------------------------------------------------------------------------------------------------ reading


def read_rows(path: str | Path = DATA / "e2e_serving.csv") -> list[ServingRow]:
    """Read closed loops: every measurement once, with why it is not scored.

    Raises
    ------
    SpecError : for a file that lacks columns, or a cell that is not what its column wants
    """
    return [_classified(row) for row in distinct(_recorded(truth) for truth in read_truth(path, COLUMNS))]


def _recorded(truth: TruthRow) -> ServingRow:
    named = {name: truth.text(name) for name in _NAMES}
    sizes = {name: _size(truth, name) for name in _COUNTS}
    layout = layouts().read({**named, **sizes})
    ttft, tpot = (_seconds(truth, name) for name in ("ttft_ms", "tpot_ms"))
    return ServingRow(
        id=_id(truth, COLUMNS),
        gpu=named["gpu"],
        engine=named["engine"],
        version=named["engine_version"],
        model=named["model"],
        precision=named["precision"],
        isl=_given(truth, "isl"),
        osl=_given(truth, "osl"),
        concurrency=truth.count("concurrency"),
        pp=sizes["pp"] or 1,
        tp=layout["tp"],
        attention_dp=layout["attention_dp"],
        ep=layout["ep"],
        ttft_s=ttft,
        tpot_s=tpot,
        measured=_day(truth, "measured"),
        origin=named["origin"],
    )


def _id(truth: TruthRow, columns: Iterable[str]) -> str:
    text = "\n".join(truth.text(column) for column in columns)
    return f"E2E-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def _size(truth: TruthRow, column: str) -> int | None:
    """A whole number, zero included; None where it is empty."""
    value = truth.number(column)
    if value is not None and (value < 0 or value != int(value)):
        raise SpecError(column, got=truth.text(column), wanted="a whole number", where=truth.where)
    return None if value is None else int(value)


def _given(truth: TruthRow, column: str) -> int:
    value = truth.count(column)
    if value is None:
        raise SpecError(column, got="nothing", wanted="a whole number, at least 1", where=truth.where)
    return value


def _seconds(truth: TruthRow, column: str) -> float:
    value = truth.number(column)
    if value is None or value <= 0:
        raise SpecError(column, got=truth.text(column) or "nothing", wanted="milliseconds above 0", where=truth.where)
    return value * _MS


def _day(truth: TruthRow, column: str) -> str:
    """A day (ISO 8601), or empty."""
    text = truth.text(column)
    try:
        return dt.date.fromisoformat(text).isoformat() if text else ""
    except ValueError:
        raise SpecError(column, got=text, wanted="a day such as 2026-01-21, or nothing", where=truth.where) from None


def _classified(row: ServingRow) -> ServingRow:
    rules, columns = exclusions(), row.columns
    return replace(row, excluded_tpot=rules.reason("tpot", columns), excluded_ttft=rules.reason("ttft", columns))


# ------------------------------------------------------------------------------------------------ copies


def distinct(rows: Iterable[ServingRow]) -> list[ServingRow]:
    """Every measurement once, in the order of the file, with how many rows hold it (see the module's text for what a copy is)."""
    asked = list(rows)
    kept: dict[tuple[object, ...], list[ServingRow]] = {}
    counts: dict[int, int] = {}
    for row in sorted(asked, key=lambda row: not row.measured):  # stable: those with a date first
        known = kept.setdefault(_setting(row), [])
        original = next((other for other in known if _is_copy(row, other)), row)
        if original is row:
            known.append(row)
        counts[id(original)] = counts.get(id(original), 0) + 1
    return [replace(row, copies=counts[id(row)]) for row in asked if id(row) in counts]


def _setting(row: ServingRow) -> tuple[object, ...]:
    return (row.engine, row.gpu, row.precision, row.isl, row.osl, row.concurrency)


def _is_copy(row: ServingRow, other: ServingRow) -> bool:
    pairs = ((row.ttft_s, other.ttft_s), (row.tpot_s, other.tpot_s))
    return all(math.isclose(mine, theirs, rel_tol=_TOLERANCE) for mine, theirs in pairs)


# ------------------------------------------------------------------------------------------------ rows of other clients


def read_speed_rows(path: str | Path = DATA / "speed.csv") -> list[ServingRow]:
    """Read the serving rows of a table with one line for each figure: those with TTFT and TPOT of sources that have settings.

    Raises
    ------
    SpecError : as :func:`read_rows`
    """
    return [_classified(row) for row, _ in _with_lines(path)]


def figure_ids(path: str | Path) -> set[str]:
    """Ids of the lines that :func:`read_speed_rows` makes its rows of."""
    return {name for _, ids in _with_lines(path) for name in ids}


def _with_lines(path: str | Path) -> Iterator[tuple[ServingRow, tuple[str, str]]]:
    lines: dict[tuple[str, ...], dict[str, TruthRow]] = {}
    for truth in read_truth(path, SPEED_COLUMNS):
        setting = tuple(truth.text(name) for name in SPEED_COLUMNS if name not in {"id", "metric", "value"})
        lines.setdefault(setting, {}).setdefault(truth.text("metric"), truth)
    for own in lines.values():
        ttft, tpot = own.get("ttft_ms"), own.get("tpot_ms")
        if ttft is not None and tpot is not None and ttft.text("isl") and source_of(_columns_of(ttft)) is not None:
            yield _from_lines(ttft, tpot), (ttft.name, tpot.name)


def _columns_of(line: TruthRow) -> Columns:
    """What the sources of rows match on, of a line of a table."""
    texts = {name: line.text(name) for name in ("gpu", "engine", "engine_version", "model")}
    return {**dict.fromkeys((*_NAMES, *_SIZES)), **texts, "origin": line.text("source")}


def _from_lines(ttft: TruthRow, tpot: TruthRow) -> ServingRow:
    load = ttft.text("batch_or_concurrency")
    is_rate = load.startswith("qps=")
    return ServingRow(
        id=ttft.name,
        gpu=ttft.text("gpu"),
        engine=ttft.text("engine"),
        version=ttft.text("engine_version"),
        model=ttft.text("model"),
        precision=ttft.text("weights_dtype"),
        isl=_given(ttft, "isl"),
        osl=_given(ttft, "osl"),
        concurrency=None if is_rate else ttft.count("batch_or_concurrency"),
        request_rate=_rate(ttft, load.removeprefix("qps=")) if is_rate else None,
        tp=ttft.count("tp") or 1,
        pp=ttft.count("pp") or 1,
        attention_dp=1,
        ep=_size(ttft, "ep") or 1,
        kv=ttft.text("kv_dtype"),
        ttft_s=_seconds(ttft, "value"),
        tpot_s=_seconds(tpot, "value"),
        measured="",
        origin=ttft.text("source"),
    )


def _rate(truth: TruthRow, text: str) -> float:
    if text == "INF":
        return math.inf
    if not _RATE.fullmatch(text):
        wanted = "qps= and a whole number above 0, or INF"
        raise SpecError("batch_or_concurrency", got=text or "nothing", wanted=wanted, where=truth.where)
    return float(text)


# ------------------------------------------------------------------------------------------------ settings and deployments


def settings_of(row: ServingRow) -> ServingSettings:
    """What the client did and how the server was launched.

    Raises
    ------
    SpecError : for a row of no known source, or one whose rules leave out what is needed
    """
    columns = row.columns
    source = source_of(columns)
    if source is None:
        raise SpecError("settings", got=f"a row of {row.origin or 'no origin'}", wanted="a source that has settings")
    return resolve(source, columns, {"engine_version": row.version, "kv": row.kv})


def deployment_of(row: ServingRow, settings: ServingSettings) -> Deployment:
    """The deployment that a row measured: lengths are the means of the client, formats those of the checkpoint that was served.

    Rows that differ in what was measured only share one. At a rate, where nobody says how many run at a time, concurrency is 1.

    Raises
    ------
    UnknownNameError : for a model, precision, engine or device that nothing describes
    RoofplanError : for settings that the engine or the model does not allow
    """
    launch, client = settings.launch, settings.client
    check_sizes(row.isl, row.osl, row.concurrency or 1)
    options = {
        "engine": names.engine_name(row.engine, launch.engine_version),
        "kv": launch.kv,
        "tp": row.tp,
        "pp": row.pp,
        "dp": row.attention_dp,
        "ep": row.ep,
        "prompt": client.mean_length(row.isl),
        "output": client.mean_length(row.osl),
        "concurrency": row.concurrency or 1,
        "max_num_batched_tokens": launch.batched_tokens,
        "max_num_seqs": launch.max_num_seqs,
        "max_model_len": launch.max_model_len,
        "memory_utilization": launch.memory_utilization,
    }
    return _built(row.model, row.precision, row.gpu, tuple(options.items()))


@functools.lru_cache(maxsize=4096)
def _built(model: str, precision: str, gpu: str, options: tuple[tuple[str, Any], ...]) -> Deployment:
    return api.deployment(checkpoint_of(model, precision), names.named_device(gpu), **dict(options))


def checkpoint_of(model: str, precision: str) -> ModelSpec:
    """The model with its weights in a precision: those of the checkpoint that names.yaml gives for the two, or 16 bits and as published.

    Raises
    ------
    UnknownNameError : where nothing says what a precision means for a model
    """
    stated = names.table()["checkpoints"].get(model, {})
    spec = names.named_model(stated.get(precision, model))
    if precision not in stated and precision not in {"", "bf16"}:
        known = ", ".join(stated) or "none but 16 bits"
        raise UnknownNameError("precision", got=f"{precision} of {model}", wanted=f"one that names.yaml knows: {known}")
    return spec
