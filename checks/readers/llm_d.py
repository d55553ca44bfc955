"""Values of llm-d's chart for model services: decode and prefill pods as the chart renders them.

Sources: llm-d-incubation/llm-d-modelservice, charts/llm-d-modelservice/values.yaml and templates/_helpers.tpl (024c0f2).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...errors import RoofplanError
from .. import gpus
from ..launching import read_command
from ..nodes import Node, root
from ..objects import copies
from ..pods import (
    Owner,
    as_expanded,
    devices_of,
    environment_of,
    pod_of,
    selector_of,
    templates,
    words_of,
)
from ..record import Pod, Reading, Said

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...documents import Document
    from ..sources import Source

ORDER = 46
KIND = "llm-d"
_NAME = re.compile(r"\{\{-?\s*\.Values\.modelArtifacts\.name\s*-?\}\}")
_ROLES = ("decode", "prefill")


class _LlmD:
    def recognises(self, source: Source, document: Document | None) -> bool:  # noqa: ARG002  # the document says it all
        if document is None:
            return False
        top = root(document)
        return bool(top.get("modelArtifacts")) and any(top.get(role, "containers") for role in _ROLES)

    def read(self, source: Source, document: Document | None) -> Reading:
        assert document is not None
        return Reading.joined(_role(root(document), role, source.text) for role in _ROLES)


READER = _LlmD()


@dataclass(frozen=True, slots=True)
class _Layout:
    """How a role is divided, as the chart completes what is left out."""

    tensor: Said[int]
    data: Said[int]
    local: Said[int]
    workers: Said[int]


def _role(top: Node, role: str, text: str) -> Reading:
    part = top.get(role)
    if part.get("create").value is False or part.get("replicas").value == 0 or not part.get("containers"):
        return Reading(skipped={f"llm-d {role}": 1})
    try:
        layout = _layout(part.get("parallelism"))
        workers = layout.workers if layout.workers.value > 1 else None
        model = _model(top.get("modelArtifacts"))
        name = top.get("modelArtifacts", "name").name("model")
        owner = Owner(KIND, f"{name}/{role}", workers, copies(part.get("replicas")))
        reading = Reading.joined(_containers(part, layout, model, owner, text))
    except RoofplanError as error:
        return Reading(problems=(error,))
    return reading if reading.services or reading.problems else Reading(skipped={f"llm-d {role}": 1})


def _layout(node: Node) -> _Layout:
    tensor, data, local, workers = (copies(node.get(key), key) for key in ("tensor", "data", "dataLocal", "workers"))
    one = Said(1, node.place)
    ranks = data or _times(local, workers or one) or one
    beside = local or (Said(max(1, ranks.value // (workers or one).value), ranks.place, ranks.text) if data else one)
    pods = workers or (Said(max(1, ranks.value // beside.value), ranks.place, ranks.text) if data and local else one)
    return _Layout(tensor or one, ranks, beside, pods)


def _times(left: Said[int] | None, right: Said[int]) -> Said[int] | None:
    return None if left is None else Said(left.value * right.value, left.place, left.text)


def _model(artifacts: Node) -> Said[str] | None:
    """What the chart gives the engine as the model."""
    uri = artifacts.get("uri").text()
    if uri is None:
        return None
    filled = _NAME.sub(lambda _: artifacts.get("name").name(), uri.value)
    scheme, found, path = filled.partition("://")
    if not found:
        return Said(filled, uri.place, uri.value)
    if scheme == "pvc+hf":
        path = "/".join(path.split("/")[-2:])
    elif scheme == "pvc":
        path = f"{artifacts.get('mountPath').name('/model-cache')}/{path.partition('/')[2]}"
    return Said(path, uri.place, uri.value)


def _containers(part: Node, layout: _Layout, model: Said[str] | None, owner: Owner, text: str) -> Iterator[Reading]:
    for container in part.get("containers").items():
        faults = list(templates([*container.get("command").items(), *container.get("args").items()]))
        if faults:
            yield Reading(problems=tuple(faults))
            continue
        variables = {
            "DP_SIZE": layout.data,
            "TP_SIZE": layout.tensor,
            "DP_SIZE_LOCAL": layout.local,
        }
        said = {name: Said(str(value.value), value.place) for name, value in variables.items()}
        environment = {**environment_of(container, said), **said}
        kind = container.get("modelCommand").name("custom")
        words = words_of(container, environment)
        if kind != "custom":
            words = [*_start(container, kind, layout, model), *words]
        yield read_command(
            words,
            environment=environment,
            image=container.get("image").text(),
            kind=KIND,
            name=owner.name,
            place=container.place,
            pod=_pod(part, container, layout, owner),
            text=as_expanded(text, words, environment),
            replaces_entrypoint=kind == "vllmServe" or bool(container.get("command")),
        )


def _start(container: Node, kind: str, layout: _Layout, model: Said[str] | None) -> list[Said[str]]:
    """The words that the chart puts before a container's own arguments."""
    place = container.place
    words = [Said("vllm", place), Said("serve", place)] if kind == "vllmServe" else []
    if model is not None:
        words += [model] if kind == "vllmServe" else [Said("--model", model.place), model]
    for flag, key, value in (
        ("--tensor-parallel-size", "tensor", layout.tensor),
        ("--data-parallel-size", "data", layout.data),
        ("--data-parallel-size-local", "dataLocal", layout.local),
    ):
        if value.value > 1:
            words.append(Said(f"{flag}={value.value}", value.place, f"{key}: {value.text or value.value}"))
    return words


def _pod(part: Node, container: Node, layout: _Layout, owner: Owner) -> Pod:
    pod = pod_of(part, container, owner)
    count, _ = devices_of(container)
    if count is None:  # the chart asks for as many as the layout has ranks in a pod
        ranks = layout.local.value * layout.tensor.value
        pod = replace(pod, gpus=Said(ranks, layout.tensor.place, f"tensor: {layout.tensor.value}"))
    kinds = part.get("acceleratorTypes")
    values = [said for one in kinds.get("labelValues").items() if (said := one.text()) is not None]
    if pod.hardware is not None or pod.unknown_hardware is not None or not values:
        return pod
    node = gpus.node({kinds.get("labelKey").name(): values, **selector_of(part.get("nodeSelector"))})
    return replace(pod, hardware=node.hardware, unknown_hardware=node.unknown)
