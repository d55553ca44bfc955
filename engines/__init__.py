"""Engines and number formats: what a spec says, and the catalogues of them."""

from __future__ import annotations

import functools
from importlib.resources import files
from pathlib import Path

from .. import specfiles
from .spec import EngineProfile, NumberFormat, StorageFormat, StoredFormat

CATALOGUE = specfiles.Catalogue(Path(str(files("roofplan.engines") / "catalogue")), "engine")
FORMATS = specfiles.Catalogue(Path(str(files("roofplan.engines") / "formats")), "number format")


@functools.cache
def load_format(name: str) -> NumberFormat:
    """Load a number format by name (``bf16``, ``int4-g128``).

    Raises
    ------
    UnknownNameError : with the nearest names
    """
    return specfiles.validate(NumberFormat, FORMATS.find(name))


@functools.cache
def load(name: str) -> EngineProfile:
    """Load an engine profile by name (``plain``).

    Raises
    ------
    UnknownNameError : with the nearest names
    """
    return specfiles.validate(EngineProfile, CATALOGUE.find(name))


__all__ = [
    "CATALOGUE",
    "FORMATS",
    "EngineProfile",
    "NumberFormat",
    "StorageFormat",
    "StoredFormat",
    "load",
    "load_format",
]
