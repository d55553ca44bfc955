"""Settings from a start-up log of a serving engine, and what in it contradicts what was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import engines, models, specfiles
from ..engines.profile import parse_version
from ..errors import RoofplanError, UnknownNameError
from ..planner.results import Notice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..engines.startup_log import StartupLog
    from ..planner.deployment import Deployment
    from .options import Options


def name_of_log(name: str | None) -> str | None:
    """What a log names; never a path, since a log must not choose which files are read."""
    return None if name is None or specfiles.looks_like_path(name) else name


def settings_of(log: StartupLog) -> Options:
    """The options that a start-up log states."""
    version = f"@{log.version}" if log.version and parse_version(log.version) else ""
    said: Options = {"engine": f"{log.engine}{version}"}
    if log.eager:
        said["eager"] = True
    numbers: Options = {
        "tp": log.tp,
        "pp": log.pp,
        "max_model_len": log.max_model_len,
        "memory_utilization": log.memory_utilization,
        "max_num_batched_tokens": log.max_num_batched_tokens,
        "max_num_seqs": log.max_num_seqs,
        "block_size": log.block_size,
        "device_memory": log.total_bytes,
    }
    said.update(numbers)
    if log.max_model_len is not None:  # a workload that the server accepts
        said["prompt"], said["output"] = max(1, log.max_model_len - 1), 1
    said["weights"], said["kv"] = _format_or_none(log.weights_format), _format_or_none(log.kv_format)
    return said


def _format_or_none(name: str | None) -> str | None:
    """A format that an engine names, where it is one of ours."""
    try:
        return None if name is None else engines.load_format(name).name
    except UnknownNameError:
        return None


def contradictions(log: StartupLog, d: Deployment) -> Iterator[Notice]:
    """Where a log says something else than the deployment that it is compared with, or names what is not known."""
    if log.kv_format is not None and _format_or_none(log.kv_format) is None:
        yield Notice(
            "log_format_unknown",
            f"the log's cache format {log.kv_format!r} is not known: {d.formats.kv.name} is assumed",
        )
    if log.engine != d.engine.engine:
        yield Notice("log_contradicts", f"the log is one of {log.engine}, and the plan one for {d.engine.engine}")
    named = _model_or_none(name_of_log(log.model))
    if named is not None and named != d.model.name:
        yield Notice("log_contradicts", f"the log serves {named}, and the plan is for {d.model.name}")
    for what, said, planned in (
        ("tensor-parallel ranks", log.tp, d.layout.tp),
        ("pipeline stages", log.pp, d.layout.pp),
    ):
        if said is not None and said != planned:
            yield Notice("log_contradicts", f"the log has {said} {what}, and the plan {planned}")


def _model_or_none(name: str | None) -> str | None:
    try:
        return None if name is None else models.load(name).name
    except RoofplanError:
        return None
