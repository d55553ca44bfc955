"""How clusters and clouds call devices: labels of nodes, instance types and accelerator names, and the device of the catalogue for each.

The names are data (``gpus.yaml``, ``schema: roofplan/accelerators/v1``), each with the repository, path and commit that it was read from;
what the catalogue of devices knows as an alias (``NVIDIA-H100-80GB-HBM3``) needs no row there.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import specfiles
from ..documents import parse_yaml
from ..errors import UnknownNameError
from ..hardware import CATALOGUE
from .record import Said

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_MIB_KINDS = "mebibytes"
_ORDER = ("name", "instance", "family")  # what tells a device best comes first
_SHARED = "-shared"  # ends the product of a device that several pods share in time
_MIG = "-mig-"  # stands in the product of a part of a device


@dataclass(frozen=True, slots=True)
class Device:
    """What a name stands for.

    Parameters
    ----------
    hardware : slug of the catalogue; empty where it does not hold the device, or where it is a part of one
    gpus : devices of an instance type; 0 where the name says nothing of a number
    """

    hardware: str = ""
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class Node:
    """What labels say of the nodes that a pod may run on; the texts are the labels with their values."""

    hardware: Said[str] | None = None
    unknown: Said[str] | None = None
    gpus: int = 0


PATH = Path(str(files("roofplan.checks") / "gpus.yaml"))


@functools.cache
def table(key: str) -> list[dict[str, Any]]:
    """One of the lists of ``gpus.yaml``; the others are not parsed for it, since that would be half of the time of a small check."""
    text = specfiles.read_text(PATH)
    section = re.search(rf"^{key}:.*\n(?:[ #].*\n|\n)*", text, re.MULTILINE)
    rows: list[dict[str, Any]] = parse_yaml(section[0], PATH.name).data[key] if section else []
    return rows


@functools.cache
def named(name: str) -> Device | None:
    """The device of an accelerator's name; None where nobody knows the name."""
    spelled = specfiles.spelled(name).removesuffix(_SHARED)
    if _MIG in spelled:
        return Device()
    own = _names().get(spelled)
    if own is not None:
        return Device(own)
    try:
        return Device(CATALOGUE.find(spelled).name.removesuffix(".yaml"))
    except UnknownNameError:
        return None


@functools.cache
def instance(name: str) -> Device | None:
    """The devices of an instance type (``p5.48xlarge``); None where nobody knows the type."""
    return _instances().get(name.lower()) or named(name)


@functools.cache
def family(name: str) -> Device | None:
    """The device of a family of instance types (``p5``); None where its types have several, or where nobody knows it."""
    devices = {one.hardware for kind, one in _instances().items() if kind.startswith(f"{name.lower()}.")}
    return Device(devices.pop()) if len(devices) == 1 else None


def is_device(name: str) -> bool:
    """Whether a container's resource counts devices."""
    return name in _resources()


def is_slice(name: str) -> bool:
    """Whether a container's resource is a part of a device."""
    return any(name.startswith(row["prefix"]) for row in table("slices"))


def node(labels: Mapping[str, Sequence[Said[str]]]) -> Node:
    """The device of the nodes that have some labels.

    Parameters
    ----------
    labels : by key, the values that are allowed; where they stand for several devices, the device is unknown, but no name is
    """
    kinds = _labels()
    said = {kind: [(key, labels[key]) for key in kinds if kinds[key] == kind and key in labels] for kind in _ORDER}
    mebibytes = _smallest(labels[key] for key in kinds if kinds[key] == _MIB_KINDS and key in labels)
    unknown: Said[str] | None = None
    find = {"name": named, "instance": instance, "family": family}
    for kind in _ORDER:
        for key, values in said[kind]:
            devices = [find[kind](value.value) for value in values]
            lost = next((v for v, d in zip(values, devices, strict=True) if d is None or not d.hardware), None)
            if lost is not None:
                unknown = unknown or Said(lost.value, lost.place, f"{key}: {lost.value}")
                continue
            slugs = {_sized(device.hardware, mebibytes) for device in devices if device is not None}
            if len(slugs) == 1:
                first, counts = values[0], {device.gpus for device in devices if device is not None}
                found = Said(slugs.pop(), first.place, f"{key}: {first.value}")
                return Node(found, gpus=counts.pop() if len(counts) == 1 else 0)
    return Node(unknown=unknown)


def _smallest(values: Iterable[Sequence[Said[str]]]) -> int:
    numbers = [
        int(one.value)
        for said in values
        for one in said
        if one.value.isascii() and one.value.isdigit() and len(one.value) < 10
    ]
    return min(numbers, default=0)


def _sized(hardware: str, mebibytes: int) -> str:
    """The device with that memory, where the name alone stands for several."""
    if mebibytes:
        for row in table("sizes"):
            is_in = mebibytes <= row.get("up_to_mib", mebibytes) and mebibytes >= row.get("at_least_mib", 0)
            if row["hardware"] == hardware and is_in:
                return str(row["is"])
    return hardware


@functools.cache
def _names() -> dict[str, str]:
    return {row["name"]: row.get("hardware", "") for row in table("names")}


@functools.cache
def _instances() -> dict[str, Device]:
    rows = table("instances")
    return {kind.lower(): Device(row.get("hardware", ""), row.get("gpus", 0)) for row in rows for kind in row["types"]}


@functools.cache
def _labels() -> dict[str, str]:
    return {row["key"]: row["holds"] for row in table("labels")}


@functools.cache
def _resources() -> frozenset[str]:
    return frozenset(row["name"] for row in table("resources"))
