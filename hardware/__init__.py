"""Devices: what a spec says, and the catalogue of them."""

from __future__ import annotations

import functools
import json
import re
from importlib.resources import files
from pathlib import Path

from .. import specfiles
from ..documents import Document
from ..errors import SpecError
from .achieved import Kernels
from .spec import SCHEMA, HardwareSpec

CATALOGUE = specfiles.Catalogue(Path(str(files("roofplan.hardware") / "catalogue")), "device", "roofplan hardware list")


KERNELS = specfiles.Catalogue(
    Path(str(files("roofplan.hardware") / "kernels")), "kernels", "the files of hardware/kernels"
)
GENERIC = "generic"
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


def kernels_of(device: HardwareSpec) -> Kernels:
    """What kernels reach on a device: those of its family (else the generic ones), changed by what was measured on it.

    On a device whose family nobody measured, the shares of the generic kernels are scaled so that large products and reads reach what its
    ``achieved`` bands say.

    Raises
    ------
    SpecError : for a malformed ``achieved.kernels``
    """
    own = device.achieved.kernels or {}
    family = own.get("extends") or _family_of(device.units.family, device.architecture)
    kernels = _kernels(family, json.dumps(own, sort_keys=True), device.name)
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
def _kernels(family: str, own: str, device: str) -> Kernels:
    changes = json.loads(own)
    layers = [changes] if changes else []
    name: str = family
    while name:
        document = KERNELS.read(name)
        layers.append(document.data)
        name = document.data.get("extends", "")
    merged: dict[str, object] = {}
    for layer in reversed(layers):
        merged = specfiles.laid_over(merged, layer)
    merged["extends"] = family if changes else layers[0].get("extends", "")
    return specfiles.validate(Kernels, Document(merged, device if changes else family, {}))


__all__ = ["CATALOGUE", "KERNELS", "HardwareSpec", "Kernels", "from_document", "kernels_of", "load"]
