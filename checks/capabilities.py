"""What an engine asks of a device for a format: the least compute capability, as data (capabilities.yaml)."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from .. import specfiles

if TYPE_CHECKING:
    from ..hardware.spec import HardwareSpec

_CONFIG: dict[str, Any] = {"extra": "forbid"}
_CAPABILITY = re.compile(r"\bsm_(\d+)(\d)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """What one engine asks for.

    Parameters
    ----------
    engine : whose kernels they are
    methods : ways to quantise as the engine names them, or beginnings of a number format's name
    least : compute capability below which the engine refuses (``"8.0"``)
    source : repository, path and commit
    """

    engine: str
    methods: tuple[str, ...]
    least: str
    source: str
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    @property
    def capability(self) -> tuple[int, int]:
        """``(8, 0)``."""
        major, minor = self.least.split(".")
        return int(major), int(minor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """How the checkpoints of a method are called: an expression that is looked for in a published id, in lower case."""

    method: str
    pattern: str
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """The file: what engines ask for, of methods, of formats and of 16-bit types, and how methods are told from names."""

    schema: Literal["roofplan/capabilities/v1"]
    methods: tuple[Requirement, ...]
    names: tuple[Naming, ...]
    formats: tuple[Requirement, ...]
    types: tuple[Requirement, ...]
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@functools.cache
def requirements() -> Requirements:
    """Read the file."""
    path = Path(str(files("roofplan.checks") / "capabilities.yaml"))
    return specfiles.validate(Requirements, specfiles.read_document(path))


def capability(device: HardwareSpec) -> tuple[int, int] | None:
    """Compute capability of an NVIDIA device; None for others.

    >>> from roofplan import hardware
    >>> capability(hardware.load("h100"))
    (9, 0)
    """
    found = _CAPABILITY.search(device.architecture)
    return (int(found[1]), int(found[2])) if found else None
