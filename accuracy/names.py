"""What the labels of logs and benchmarks stand for: by the catalogues, by the table of one-off names, or by what the label itself states.

A label is never guessed: what neither a catalogue nor the table knows, and which states no shape, stands for nothing.
"""

from __future__ import annotations

import functools
import re
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import engines, hardware, models, specfiles
from ..engines.profile import EngineProfile, parse_version
from ..errors import RoofplanError, UnknownNameError

if TYPE_CHECKING:
    from ..hardware.spec import HardwareSpec
    from ..models.spec import ModelSpec

_SHAPE = re.compile(r"\b(\d{1,4})x(\d{1,4})x(\d{1,4})\b")
_PER_TOKEN = re.compile(r"\(([\d,]{4,12}) B/token\)")
_REMARK = re.compile(r"\s*\([^)]*\)|\s+class\b")  # "(79.19 GiB)", "class"
_SIZE = re.compile(r"\(~?([\d.]{1,8}) GiB")
_INFERRED = re.compile(r"\bclass\b|\binferred\b", re.IGNORECASE)


@functools.cache
def table() -> dict[str, Any]:
    """The table of one-off names."""
    data: dict[str, Any] = specfiles.read_document(Path(str(files("roofplan.accuracy") / "names.yaml"))).data
    return data


def model_of(label: str) -> ModelSpec | None:
    """The model that a label stands for, or None."""
    entry = table()["models"].get(label)
    name = entry["stands_for"] if entry is not None else label
    return _loaded_model(name) if name else None


@functools.cache
def _loaded_model(name: str) -> ModelSpec | None:
    if specfiles.looks_like_path(name):  # a label of a table is a name, and opens no file
        return None
    try:
        return models.load(name)
    except RoofplanError:
        return None


def named_model(label: str) -> ModelSpec:
    """The model that a label stands for.

    Raises
    ------
    UnknownNameError : where it stands for none; a label of a table opens no file
    """
    found = model_of(label)
    if found is None:
        raise UnknownNameError("model", got=label or "nothing", wanted="a model of the catalogue")
    return found


def is_inferred(label: str) -> bool:
    """Whether a label was inferred from sizes, so that it tells shapes and not a checkpoint."""
    entry = table()["models"].get(label) or {}
    return bool(entry.get("inferred")) or bool(_INFERRED.search(label))


def is_named(model: str, device: str) -> bool:
    """Whether labels name a model (not merely its shape) and a device, be they known or not."""
    return names_model(model) and names_device(device)


def names_model(label: str) -> bool:
    """Whether a label names a model, known or not."""
    return _names(label, "models") and not is_inferred(label)


def names_device(label: str) -> bool:
    """Whether a label names a device, known or not."""
    return _names(label, "devices")


def _names(label: str, kind: str) -> bool:
    entry = table()[kind].get(label)
    return bool(label) if entry is None else bool(entry.get("named", entry["stands_for"] is not None))


def is_described_whole(label: str, model: ModelSpec) -> bool:
    """Whether the model has no towers beside its language model that a server loads: their bytes are not derived here."""
    entry = table()["models"].get(label) or {}
    return not entry.get("tower") and not any(part.loaded for part in model.parts)


def bytes_per_token(label: str, element_bytes: float, tp: int) -> int | None:
    """Cache bytes per token and device that a label states: layers x KV heads x head size, ``(36x2x128)``, or ``(131,072 B/token)``."""
    shape = _SHAPE.search(label)
    if shape is not None:
        layers, heads, width = (int(part) for part in shape.groups())
        return round(layers * max(1, -(-heads // tp)) * 2 * width * element_bytes)
    stated = _PER_TOKEN.search(label)
    return int(stated[1].replace(",", "")) // tp if stated else None


def device_of(label: str) -> HardwareSpec | None:
    """The device that a label stands for, remarks in it left out; or None."""
    entry = table()["devices"].get(label)
    if entry is not None:
        return _loaded_device(entry["stands_for"]) if entry["stands_for"] else None
    return _loaded_device(label) or _loaded_device(_REMARK.sub("", label).strip())


def named_device(label: str) -> HardwareSpec:
    """The device that a label stands for.

    Raises
    ------
    UnknownNameError : where it stands for none
    """
    found = device_of(label)
    if found is None:
        raise UnknownNameError("gpu", got=label or "nothing", wanted="a device of the catalogue")
    return found


@functools.cache
def _loaded_device(name: str) -> HardwareSpec | None:
    if not name or specfiles.looks_like_path(name):
        return None
    try:
        return hardware.load(name)
    except RoofplanError:
        return None


def stated_gib(label: str) -> float | None:
    """The memory in GiB that a device's label states."""
    match = _SIZE.search(label)
    return float(match[1]) if match else None


def format_of(label: str) -> str | None:
    """The number format that a label of a truth file names, or None where only the checkpoint would say."""
    known = table()["formats"]
    if label in known:
        name: str | None = known[label]
        return name
    try:
        return engines.load_format(label).name if label else None
    except UnknownNameError:
        return None


def cache_format_of(label: str) -> str:
    """The number format of a cache: 16 bits where the label says nothing, or leaves it to the checkpoint.

    Raises
    ------
    UnknownNameError : for a label that is no format
    """
    found = format_of(label)
    if found is None and label and label not in table()["formats"]:
        raise UnknownNameError("kv_dtype", got=label, wanted="a number format, or nothing")
    return found or "bf16"


def engine_name(label: str, version: str) -> str:
    """The name by which the profile of an engine and version is loaded.

    Raises
    ------
    UnknownNameError : for a name that would open a file
    """
    name = f"{table()['engines'].get(label, label)}@{version}"
    if specfiles.looks_like_path(name):
        raise UnknownNameError("engine", got=name, wanted="an engine of the catalogue, with its version")
    return name


def engine_of(label: str, version: str, notes: str) -> EngineProfile | None:
    """The profile of an engine and version; None where the version is not stated or no profile describes it.

    Remarks may name the engine's generation against its version (engine V0 in vLLM 0.9).
    """
    entry = table()["versions"].get(version)
    stated = entry["stands_for"] if entry is not None else version
    name = specfiles.spelled(label)
    for generation in table()["generations"]:
        if generation["engine"] == name and generation["remark"] in notes:
            stated = _within(stated, generation.get("at_least"), generation.get("at_most"))
    return _loaded_engine(f"{name}@{stated}") if stated else None


def _within(version: str | None, at_least: str | None, at_most: str | None) -> str | None:
    """A version moved into a range."""
    numbers = parse_version(version or "")
    if at_most is not None and (numbers is None or numbers > (parse_version(at_most) or ())):
        return at_most
    if at_least is not None and (numbers is None or numbers < (parse_version(at_least) or ())):
        return at_least
    return version


def remark_on(row: str) -> str:
    """What a row's own figures say about it, or empty."""
    remark: str = table()["remarks"].get(row, "")
    return remark


def newest_engine(label: str) -> EngineProfile | None:
    """The newest profile of an engine: for what is the same in all versions."""
    return _loaded_engine(specfiles.spelled(label))


def _loaded_engine(name: str) -> EngineProfile | None:
    if specfiles.looks_like_path(name):
        return None
    try:
        return engines.load(name)
    except RoofplanError:
        return None
