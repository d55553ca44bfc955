"""Finding an engine profile by name and version, and completing it with what it extends.

A profile file states only what changed against the one it extends. ``vllm@0.19`` is answered by the newest file that is not later; a
version newer than any file by the newest one, and ``EngineProfile.version`` keeps what was asked for.
"""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from .. import specfiles
from ..documents import Document
from ..errors import SpecError, UnknownNameError
from .profile import EngineProfile, Version, parse_version

CATALOGUE = specfiles.Catalogue(Path(str(files("roofplan.engines") / "catalogue")), "engine", "roofplan engine list")
_LONGEST_CHAIN = 32


def engine_of(name: str) -> tuple[str, str]:
    """Split ``engine@version``; the version is empty where none is given.

    >>> engine_of("vLLM@0.19.0")
    ('vllm', '0.19.0')
    """
    engine, _, version = specfiles.spelled(name).partition("@")
    return engine, version


@functools.cache
def load(name: str) -> EngineProfile:
    """Load an engine profile by name (``plain``, ``vllm``, ``vllm@0.19``), or from a YAML file.

    Raises
    ------
    UnknownNameError : for an engine or version that no profile describes, with what there is
    SpecError : for a malformed profile
    """
    if specfiles.looks_like_path(name):
        return from_document(specfiles.read_document(name))
    slug, version = _resolve(name)
    return replace(from_document(CATALOGUE.read(slug)), version=version)


def from_document(document: Document) -> EngineProfile:
    """Complete a profile with what it extends, and validate it."""
    return specfiles.validate(EngineProfile, Document(_completed(document), document.name, document.places))


def versions_of(engine: str) -> list[tuple[Version, str]]:
    """List the profiles of an engine, oldest first: (first version, slug); one without versions has the version ()."""
    found = []
    for slug in CATALOGUE.slugs():
        name, version = engine_of(slug)
        if _letters(name) == _letters(engine):
            found.append((parse_version(version) or (), slug))
    return sorted(found)


def known_engines() -> list[str]:
    """Names of all engines, in order."""
    return sorted({engine_of(slug)[0] for slug in CATALOGUE.slugs()})


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name)


def _resolve(name: str) -> tuple[str, str]:
    engine, version = engine_of(name)
    known = versions_of(engine)
    if not known:
        import difflib

        engines = known_engines()
        near = difflib.get_close_matches(engine, engines, n=2)
        hint = f"did you mean {' or '.join(near)}?" if near else ""
        raise UnknownNameError("engine", got=name or "an empty name", wanted=f"one of {', '.join(engines)}", hint=hint)
    if "@" not in name:
        return known[-1][1], ""
    asked = parse_version(version)
    if known[0][0] == ():
        raise UnknownNameError("engine", got=name, wanted=f"{known[0][1]}: its profile has no versions")
    oldest = known[0][1]
    if asked is None:
        raise UnknownNameError("engine", got=name, wanted=f"{engine}@VERSION, such as {known[-1][1]}")
    fitting = [slug for first, slug in known if first <= asked]
    if not fitting:
        raise UnknownNameError("engine", got=name, wanted=f"a version from {oldest} on")
    return fitting[-1], version


def _completed(document: Document) -> dict[str, Any]:
    """Lay a profile over those that it extends, oldest first."""
    layers: list[dict[str, Any]] = []
    current = document
    while True:
        if not isinstance(current.data, dict):
            raise SpecError("document", got="no mapping", wanted="a mapping", where=current.name)
        layers.append(current.data)
        parent = current.data.get("extends", "")
        if not parent:
            break
        if parent not in CATALOGUE.slugs() or len(layers) > _LONGEST_CHAIN:
            where = current.where(("extends",))
            raise SpecError("extends", got=parent, wanted="the name of a profile in the catalogue", where=where)
        current = CATALOGUE.read(parent)
    merged: dict[str, Any] = {}
    for layer in reversed(layers):
        merged = specfiles.laid_over(merged, layer)
    return merged | {key: layers[0].get(key, "") for key in ("extends",)}
