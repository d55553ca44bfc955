"""What ggml (llama.cpp, Ollama) stores: its tensor types and file types, as data of ``ggml.yaml`` and ``ggml_mixes.yaml``."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar, Literal

from .. import specfiles
from ..errors import UnknownNameError
from ..quantities import Count, PositiveCount
from .spec import NumberFormat

_CONFIG: dict[str, Any] = {"extra": "forbid"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorType:
    """A way in which ggml stores a tensor: ``bytes`` for every ``elements`` along its contiguous side."""

    name: str
    id: Count
    elements: PositiveCount
    bytes: PositiveCount
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    def bytes_of(self, elements: int) -> int:
        """Bytes of so many elements, whole blocks."""
        return -(-elements // self.elements) * self.bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPattern:
    """Which layers of an architecture are windowed: every ``every``-th is full, the last of each period (or the first)."""

    architecture: str
    every: PositiveCount
    full_first: bool = False
    kind: Literal["sliding", "chunked"] = "sliding"
    window: PositiveCount | None = None
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class _Types:
    schema: Literal["roofplan/ggml/v1"]
    source: str
    types: tuple[TensorType, ...]
    removed: tuple[Count, ...]
    windows_source: str
    windows: tuple[WindowPattern, ...]
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of a mix: the type of a tensor where all that it asks for holds; the comments of ``ggml_mixes.yaml`` say what that is."""

    tensor: str
    type: str
    layers: str | None = None
    min_gqa: PositiveCount | None = None
    imatrix: bool | None = None
    experts: PositiveCount | None = None
    min_experts: PositiveCount | None = None
    model_layers: PositiveCount | None = None
    only: tuple[str, ...] = ()
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """A file type: a ``base`` type, that of the ``head`` (null: as in most) and the input ``table`` (null: the base), rules for tensors."""

    name: str
    base: str
    head: str | None = None
    table: str | None = None
    expert_type: str | None = None
    rules: tuple[Rule, ...] = ()
    raised: bool = True
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixes:
    """All file types, and what they have in common."""

    schema: Literal["roofplan/ggml-mixes/v1"]
    source: str
    head: str
    indivisible_head: str
    fallbacks: dict[str, str]
    raised: tuple[Rule, ...]
    mixes: tuple[Mix, ...]
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    def has(self, name: str) -> bool:
        """Whether a name is that of a file type."""
        return _file_type(name) in {mix.name for mix in self.mixes}

    def named(self, name: str) -> Mix:
        """Find a file type by name, in any case.

        Raises
        ------
        UnknownNameError : with the names that are known
        """
        wanted = _file_type(name)
        known = {mix.name: mix for mix in self.mixes}
        if wanted not in known:
            raise UnknownNameError("file type", got=name or "nothing", wanted=f"one of {', '.join(known)}")
        return known[wanted]


def _file_type(name: str) -> str:
    return name.strip().upper().replace("-", "_")


@functools.cache
def _types() -> _Types:
    return specfiles.validate(_Types, specfiles.read_document(_file("ggml.yaml")))


@functools.cache
def mixes() -> Mixes:
    """Read the file types."""
    return specfiles.validate(Mixes, specfiles.read_document(_file("ggml_mixes.yaml")))


def _file(name: str) -> Path:
    return Path(str(files("roofplan.engines") / name))


@functools.cache
def types_by_id() -> dict[int, TensorType]:
    """Map the ids that files use to tensor types."""
    return {known.id: known for known in _types().types}


@functools.cache
def types_by_name() -> dict[str, TensorType]:
    """Map names (``Q4_K``) to tensor types."""
    return {known.name: known for known in _types().types}


def format_of(block: TensorType) -> NumberFormat:
    """A block type as a number format: whole bits of an element, and what is left of the block as its scale.

    Known to be inexact: kernels that multiply such blocks in 8 bits count as 16-bit arithmetic.
    """
    bits, rest = divmod(block.bytes * 8, block.elements)
    return NumberFormat(
        schema="roofplan/format/v1",
        name=block.name.lower(),
        bits=bits,
        group=block.elements if rest else None,
        scale_bits=rest,
        arithmetic=("bf16", "fp16", "fp32"),
        activations="bf16",
        source=_types().source,
    )


def removed_ids() -> tuple[int, ...]:
    """List the ids that ggml dropped: no current reader accepts them."""
    return _types().removed


def window_pattern(architecture: str) -> WindowPattern | None:
    """Find which layers of an architecture (``general.architecture``) are windowed where the file does not say it."""
    return next((known for known in _types().windows if known.architecture == architecture), None)
