"""Engines and number formats: what a spec says, and the catalogues of them."""

from __future__ import annotations

import functools
from importlib.resources import files
from pathlib import Path

from .. import specfiles
from ..errors import UnknownNameError
from .profile import EngineProfile
from .profiles import CATALOGUE, load
from .spec import NumberFormat, StorageFormat, StoredFormat

FORMATS = specfiles.Catalogue(Path(str(files("roofplan.engines") / "formats")), "number format")


@functools.cache
def load_format(name: str) -> NumberFormat:
    """Load a number format by name (``bf16``, ``int4-g128``), or that of a ggml type (``q8_0``, ``q4_k``).

    Raises
    ------
    UnknownNameError : with the nearest names
    """
    try:
        return specfiles.validate(NumberFormat, FORMATS.find(name))
    except UnknownNameError:
        from . import ggml

        block = ggml.types_by_name().get(name.strip().upper())
        if block is None or block.elements == 1:
            raise
        return ggml.format_of(block)


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
