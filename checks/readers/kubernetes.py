"""Kubernetes: whatever has pods. Of other kinds it is said how many were passed over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import RoofplanError
from ..nodes import root
from ..objects import copies, is_object, name_of, objects
from ..pods import Owner, read_containers
from ..record import Reading, Said

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...documents import Document, Key
    from ..nodes import Node
    from ..sources import Source

ORDER = 60
KIND = "kubernetes"

# Where the pod's spec and the number of copies stand.
_WORKLOADS: dict[str, tuple[tuple[Key, ...], tuple[Key, ...]]] = {
    "Pod": (("spec",), ()),
    "PodTemplate": (("template", "spec"), ()),
    "Deployment": (("spec", "template", "spec"), ("spec", "replicas")),
    "ReplicaSet": (("spec", "template", "spec"), ("spec", "replicas")),
    "ReplicationController": (("spec", "template", "spec"), ("spec", "replicas")),
    "StatefulSet": (("spec", "template", "spec"), ("spec", "replicas")),
    "DaemonSet": (("spec", "template", "spec"), ()),
    "Rollout": (("spec", "template", "spec"), ("spec", "replicas")),
    "Job": (("spec", "template", "spec"), ("spec", "parallelism")),
    "CronJob": (("spec", "jobTemplate", "spec", "template", "spec"), ("spec", "jobTemplate", "spec", "parallelism")),
}


class _Kubernetes:
    def recognises(self, source: Source, document: Document | None) -> bool:  # noqa: ARG002  # the document says it all
        return document is not None and is_object(document)

    def read(self, source: Source, document: Document | None) -> Reading:
        assert document is not None
        return Reading.joined(_read(one, source.text) for one in objects(root(document)))


READER = _Kubernetes()


def _read(top: Node, text: str) -> Reading:
    kind = top.get("kind").name("nothing")
    try:
        reading = Reading.joined(read_containers(spec, owner, text) for spec, owner in _pods(top, kind))
    except RoofplanError as error:
        return Reading(problems=(error,))
    return reading if reading.services or reading.problems else Reading(skipped={kind: 1})


def _pods(top: Node, kind: str) -> Iterator[tuple[Node, Owner]]:
    name = name_of(top, kind)
    if kind == "LeaderWorkerSet":
        yield from _leader_and_workers(top, name)
    elif kind == "JobSet":
        for job in top.get("spec", "replicatedJobs").items():
            spec = job.get("template", "spec")
            owner = Owner(KIND, f"{name}/{job.get('name').name()}", replicas=copies(job.get("replicas")))
            yield spec.get("template", "spec"), owner
    elif kind in _WORKLOADS:
        where, replicas = _WORKLOADS[kind]
        count = copies(top.get(*replicas), str(replicas[-1])) if replicas else None
        yield top.get(*where), Owner(KIND, name, replicas=count)


def _leader_and_workers(top: Node, name: str) -> Iterator[tuple[Node, Owner]]:
    """The pods of a LeaderWorkerSet: groups of ``size`` pods serve one copy, whose first one is the leader.

    Source: kubernetes-sigs/lws, api/leaderworkerset/v1/leaderworkerset_types.go.
    """
    group = top.get("spec", "leaderWorkerTemplate")
    size = copies(group.get("size"), "size")
    place = group.get("size").place
    variables = {"LWS_GROUP_SIZE": Said(str(size.value if size is not None else 1), place)}
    owner = Owner(KIND, name, pods=size, replicas=copies(top.get("spec", "replicas")), variables=variables)
    leader = group.get("leaderTemplate", "spec")
    # The workers of a leader join it, and serve nothing on their own: where there is no leader, they are all alike.
    yield (leader or group.get("workerTemplate", "spec")), owner
