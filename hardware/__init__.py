"""Devices: what a spec says, and the catalogue of them."""

from __future__ import annotations

import functools
import json
import re
from importlib.resources import files
from pathlib import Path

from .. import specfiles
from ..documents import Document, parse_yaml
from ..errors import SpecError
from .achieved import Kernels
from .spec import SCHEMA, HardwareSpec

CATALOGUE = specfiles.Catalogue(Path(str(files("roofplan.hardware") / "catalogue")), "device", "roofplan hardware list")


KERNELS = specfiles.Catalogue(
    Path(str(files("roofplan.hardware") / "kernels")), "kernels", "the files of hardware/kernels"
)
GENERIC = "generic"
_COLLECTIVES = re.compile(r"^collectives?:\n(?:  - .*\n)*", re.MULTILINE)
_FAMILIES = re.compile(r"^families: \[(.*)\]", re.MULTILINE)


def load(name: str) -> HardwareSpec:
    """Load a device by slug (``h100-sxm5-80gb``), alias (``NVIDIA H100 80GB HBM3``), path, or from standard input (``-``).

    Raises
    ------
    UnknownNameError : with the nearest names
    SpecError : for a malformed file
    """
    return specfiles.load(CATALOGUE, name, from_document)


def from_document(document: Document) -> HardwareSpec:
    """Read a device from a document."""
    if not isinstance(document.data, dict):
        raise SpecError("document", got="no mapping", wanted=f"a device (schema: {SCHEMA})", where=document.where())
    return specfiles.validate(HardwareSpec, document)


def kernels_of(device: HardwareSpec, devices: int = 2) -> Kernels:
    """What kernels reach on a device: those of its family (else the generic ones), changed by what was measured on it.

    On a device whose family nobody measured, the shares of the generic kernels are scaled so that large products and reads reach what its
    ``achieved`` bands say. For one device alone nothing is read of collectives.

    Raises
    ------
    SpecError : for a malformed ``achieved.kernels``
    """
    own = device.achieved.kernels or {}
    named = own.get("extends")
    if named and (not isinstance(named, str) or named not in KERNELS.slugs()):
        wanted = f"one of {', '.join(KERNELS.slugs())}"
        raise SpecError("achieved.kernels.extends", got=str(named), wanted=wanted, where=device.name)
    family = named or _family_of(device.units.family, device.architecture)
    kernels = _kernels(family, json.dumps(own, sort_keys=True), device.name, devices > 1)
    if family != GENERIC:
        return kernels
    bandwidth, compute = device.achieved.bandwidth, device.achieved.compute
    return kernels.scaled(bandwidth.expected if bandwidth else None, compute.expected if compute else None)


@functools.cache
def _family_of(units: str, architecture: str) -> str:
    """The kernels whose ``families`` name the device's family of units, or a part of its architecture."""
    for slug in KERNELS.slugs():
        # The line is searched instead of parsing every file: a test proves that both agree.
        line = _FAMILIES.search(specfiles.read_text(KERNELS.folder / f"{slug}.yaml"))
        names = [name.strip(" '\"") for name in line[1].split(",")] if line else []
        if any(name and (name == units or name in architecture) for name in names):
            return slug
    return GENERIC


@functools.cache
def _kernels(family: str, own: str, device: str, collectives: bool) -> Kernels:
    changes = json.loads(own)
    document = _read(family, collectives)
    if changes:
        whole = {key: document.data[key] for key in ("schema", "families", "measured_on") if key in document.data}
        document = Document({**whole, "name": device, **changes, "extends": family}, device, {})
    return kernels_from_document(document, collectives=collectives)


def _read(slug: str, collectives: bool) -> Document:
    """A file of kernels; most of it are tables of collectives, which are cut off before parsing where they are not wanted."""
    path = KERNELS.folder / f"{slug}.yaml"
    text = specfiles.read_text(path)
    return parse_yaml(text if collectives else _COLLECTIVES.sub("", text), path.name)


def kernels_from_document(document: Document, *, collectives: bool = True) -> Kernels:
    """Complete what a document says of kernels with what it extends, and validate it.

    Raises
    ------
    SpecError : for a malformed one, or one that extends what is not there
    """
    layers: list[dict[str, object]] = []
    current = document
    while True:
        if not isinstance(current.data, dict) or len(layers) > len(KERNELS.slugs()):
            raise SpecError("kernels", got="no mapping, or a circle", wanted="a mapping", where=current.where())
        layers.append(current.data)
        parent = current.data.get("extends", "")
        if not parent:
            break
        if not isinstance(parent, str) or parent not in KERNELS.slugs():
            wanted = f"one of {', '.join(KERNELS.slugs())}"
            raise SpecError("extends", got=str(parent), wanted=wanted, where=current.where(("extends",)))
        current = _read(parent, collectives)
    merged: dict[str, object] = {}
    for layer in reversed(layers):
        merged = specfiles.laid_over(merged, layer)
    for key in ("schema", "name", "extends", "families", "measured_on"):  # said of one file alone
        merged.pop(key, None)
    merged |= {key: value for key, value in document.data.items() if key not in merged}
    if not collectives:
        merged |= {"collective": [], "collectives": []}
    return specfiles.validate(Kernels, Document(merged, document.name, document.places))


__all__ = [
    "CATALOGUE",
    "KERNELS",
    "HardwareSpec",
    "Kernels",
    "from_document",
    "kernels_from_document",
    "kernels_of",
    "load",
]
