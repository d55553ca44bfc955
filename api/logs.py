"""Settings from a start-up log of a serving engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import engines, specfiles
from ..engines.profile import parse_version
from ..errors import UnknownNameError

if TYPE_CHECKING:
    from ..engines.startup_log import StartupLog
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
    """A format that an engine names, where it is one of ours; else the model's own is meant."""
    try:
        return None if name is None else engines.load_format(name).name
    except UnknownNameError:
        return None
