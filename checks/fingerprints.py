"""What makes a finding the same one in the next run: rule, file, service and setting, and not the line or the figures."""

from __future__ import annotations

import functools
import hashlib
import os
from collections import Counter
from pathlib import PurePath
from typing import TYPE_CHECKING

from .files import STDIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .finding import Finding
    from .record import Place, Service

Identity = tuple[str, str, str, str]


def identity(finding: Finding) -> Identity:
    """Rule, file, service and setting of a finding, as text that any file can hold: names of files may be no Unicode."""
    return finding.rule, _text(relative_file(finding.place.file)), _text(finding.service), _text(finding.subject)


def _text(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def fingerprints(findings: Iterable[Finding]) -> list[str]:
    """A mark for each of some findings, all different."""
    return marks(map(identity, findings))


def marks(identities: Iterable[tuple[str, ...]]) -> list[str]:
    """A mark for each identity, all different: equal ones are numbered in their order."""
    seen: Counter[tuple[str, ...]] = Counter()
    made = []
    for same in identities:
        content = "\0".join((*same, str(seen[same])))
        made.append(hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:32])
        seen[same] += 1
    return made


@functools.lru_cache(4096)
def relative_file(file: str) -> str:
    """A file's name as seen from the working folder, with slashes; as it is where it lies elsewhere.

    >>> relative_file("./deploy//today.yaml")
    'deploy/today.yaml'
    """
    if file == STDIN:
        return file
    try:
        inside = os.path.relpath(file)
    except (OSError, ValueError):  # another drive
        return file
    return PurePath(file if inside.startswith("..") else inside).as_posix()


def subject_of(service: Service, place: Place) -> str:
    """The name of the setting of a service that stands at a place; empty where the place is that of the service itself."""
    if place == service.place:
        return ""
    return next((name for name, stands in _settings(service) if stands == place), "")


def _settings(service: Service) -> Iterator[tuple[str, Place]]:
    """Everything that a service says, by name, with its place."""
    for group in (service.options, service.features, service.limits):
        yield from ((name, said.place) for name, said in group.items())
    yield from ((flag.name, flag.value.place) for flag in service.flags)
    for name in ("gpus", "hardware", "unknown_hardware", "pods", "replicas", "shm_bytes"):
        said = getattr(service.pod, name)
        if said is not None:
            yield name, said.place
    yield from ((f"{one.kind} {one.value.value}", one.value.place) for one in service.expectations)
    yield "engine", service.engine.place
