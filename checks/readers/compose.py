"""Docker compose: services that start an engine.

Source: compose-spec/compose-spec, 05-services.md and deploy.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import RoofplanError, SpecError
from ..interpolation import filled, filled_text, without_open
from ..launching import read_command
from ..nodes import Node, root
from ..pods import SHM, UNBOUNDED, templates
from ..record import Pod, Reading, Said
from ..starts import docker_bytes
from ..words import Locator, split

if TYPE_CHECKING:
    from ...documents import Document
    from ..sources import Source

ORDER = 50
KIND = "compose"
_KEYS = {"image", "build", "command", "entrypoint", "extends"}  # of which every service has one
_MOST_BASES = 16


class _Compose:
    def recognises(self, source: Source, document: Document | None) -> bool:  # noqa: ARG002  # the document says it all
        data = None if document is None else document.data
        services = data.get("services") if isinstance(data, dict) else None
        if not isinstance(services, dict) or "apiVersion" in (data or {}):
            return False
        return any(isinstance(one, dict) and not _KEYS.isdisjoint(one) for one in services.values())

    def read(self, source: Source, document: Document | None) -> Reading:
        assert document is not None
        services = root(document).get("services")
        return Reading.joined(_read(_Service(name, one, services), source.text) for name, one in services.entries())


READER = _Compose()


@dataclass(frozen=True, slots=True)
class _Service:
    """One service; what it does not say stands in the services that it extends."""

    name: str
    node: Node
    services: Node

    def bases(self) -> list[Node]:
        """The service and those that it extends, within the file."""
        found, name = [self.node], self.name
        while len(found) < _MOST_BASES:
            extends = found[-1].get("extends")
            base = extends.name() or (extends.get("service").name() if not extends.get("file") else "")
            if not base or base == name or not self.services.get(base):
                break
            name = base
            found.append(self.services.get(base))
        return found

    def get(self, *keys: str) -> Node:
        """What it says, or what the nearest of those says that it extends."""
        for one in self.bases():
            found = one.get(*keys)
            if found.value is not None:
                return found
        return self.node.get(*keys)

    def environment(self) -> dict[str, Said[str]]:
        """Its variables whose values the file holds."""
        found: dict[str, Said[str]] = {}
        for one in reversed(self.bases()):
            for name, said in _variables(one.get("environment")):
                found[name] = filled(said)
        return found


def _variables(node: Node) -> list[tuple[str, Said[str]]]:
    found = [(key, said) for key, value in node.entries() if (said := value.text()) is not None]
    for one in node.items():
        name, equals, value = one.name().partition("=")
        if equals:
            found.append((name, Said(value, one.place, one.name())))
    return found


def _read(service: _Service, text: str) -> Reading:
    image = service.get("image").text()
    faults = list(templates([*service.get("command").items(), service.get("command"), service.get("image")]))
    if faults:
        return Reading(problems=tuple(faults))
    environment = service.environment()
    try:
        entrypoint = _words(service.get("entrypoint"), text)
        words = [*entrypoint, *_words(service.get("command"), text)]
    except RoofplanError as error:
        return Reading(problems=(error,))
    fault: RoofplanError | None = None
    try:
        pod = _pod(service, environment)
    except RoofplanError as error:
        pod, fault = Pod(contained=True), error
    reading = read_command(
        words,
        environment=environment,
        image=None if image is None else filled(image),
        kind=KIND,
        name=service.name,
        place=service.node.place,
        pod=pod,
        text=filled_text(text),
        replaces_entrypoint=service.get("entrypoint").value is not None,
    )
    if not reading.services and not reading.problems:
        return Reading(skipped={"compose service": 1})
    return Reading(problems=(fault,)) if fault is not None else without_open(reading)


def _words(node: Node, text: str) -> list[Said[str]]:
    if isinstance(node.value, list):
        return [filled(said) for one in node.items() if (said := one.text()) is not None]
    said = node.text()
    if said is None:
        return []
    # Variables are filled in before words are split, so that a default may hold several words.
    return list(split(filled(said), Locator(filled_text(text), said.place)))


# ------------------------------------------------------------------------------------------------ devices


def _pod(service: _Service, environment: dict[str, Said[str]]) -> Pod:
    return Pod(
        gpus=_devices(service, environment),
        replicas=_count(service.get("deploy", "replicas"), "replicas") or _count(service.get("scale"), "scale"),
        shm_bytes=_shm(service),
        host_ipc=service.get("ipc").value == "host" or _binds_host_shm(service),
        contained=True,
    )


def _count(node: Node, what: str) -> Said[int] | None:
    said = node.text()
    if said is None:
        return None
    value = filled(said).value
    if not (value.isascii() and value.isdigit() and len(value) < 10):
        raise SpecError(what, got=value, wanted="a whole number", where=str(said.place))
    return Said(int(value), said.place, f"{what}: {value}") if int(value) else None


def _devices(service: _Service, environment: dict[str, Said[str]]) -> Said[int] | None:
    """The devices that a service reserves; None where it takes all of them, or where it says nothing."""
    reserved = service.get("deploy", "resources", "reservations")
    wanted = [*reserved.get("devices").items(), *service.get("gpus").items()]
    for one in wanted:
        capabilities = {str(value.value).lower() for value in one.get("capabilities").items()}
        if capabilities and not capabilities & {"gpu", "nvidia", "compute"}:
            continue
        if one.get("device_ids"):
            ids = list(one.get("device_ids").items())
            return Said(len(ids), one.get("device_ids").place, f"device_ids: {len(ids)} of them")
        if one.get("count").value not in (None, "all", -1):  # it may be a list
            return _count(one.get("count"), "count")
    for one in reserved.get("generic_resources").items():
        if "gpu" in one.get("discrete_resource_spec", "kind").name().lower():
            return _count(one.get("discrete_resource_spec", "value"), "value")
    given = [one for one in service.get("devices").items() if "nvidia.com/gpu=" in one.name()]
    if given and not any(one.name().endswith("=all") for one in given):
        return Said(len(given), given[0].place, given[0].name())
    visible = environment.get("NVIDIA_VISIBLE_DEVICES")
    if visible is not None and service.get("runtime").value == "nvidia":
        chosen = [one for one in visible.value.split(",") if one.strip()]
        if chosen and not {"all", "none", "void"} & set(chosen) and "$" not in visible.value:
            return Said(len(chosen), visible.place, f"NVIDIA_VISIBLE_DEVICES={visible.value}")
    return None


# ------------------------------------------------------------------------------------------------ shared memory


def _shm(service: _Service) -> Said[int] | None:
    node = service.get("shm_size")
    if node.value is not None:
        return _size(node, "shm_size")
    for one in service.get("volumes").items():
        if one.get("type").value == "tmpfs" and one.get("target").name().rstrip("/") == SHM:
            size = one.get("tmpfs", "size")
            return _size(size, "size") if size.value is not None else Said(UNBOUNDED, one.place)
    mounts = service.get("tmpfs")
    for one in [mounts, *mounts.items()]:
        path, _, options = one.name().partition(":")
        if path.rstrip("/") == SHM:
            sizes = [option[5:] for option in options.split(",") if option.startswith("size=")]
            size_bytes = docker_bytes(sizes[0]) if sizes else UNBOUNDED
            return None if size_bytes is None else Said(size_bytes, one.place, one.name())
    return None


def _size(node: Node, what: str) -> Said[int]:
    said = node.text()
    value = "" if said is None else filled(said).value
    size = docker_bytes(value)
    if size is None:
        raise SpecError(what, got=value or "nothing", wanted="a size such as 16gb", where=str(node.place))
    return Said(size, node.place, f"{what}: {value}")


def _binds_host_shm(service: _Service) -> bool:
    for one in service.get("volumes").items():
        source, _, target = one.name().partition(":")
        long_form = one.get("source").name(), one.get("target").name()
        for pair in ((source, target.partition(":")[0]), long_form):
            if tuple(path.rstrip("/") for path in pair) == (SHM, SHM):
                return True
    return False
