"""Devices: what a spec says, and the catalogue of them."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from .. import specfiles
from ..documents import Document
from ..errors import SpecError
from .spec import SCHEMA, HardwareSpec

CATALOGUE = specfiles.Catalogue(Path(str(files("roofplan.hardware") / "catalogue")), "device", "roofplan hardware list")


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


__all__ = ["CATALOGUE", "HardwareSpec", "from_document", "load"]
