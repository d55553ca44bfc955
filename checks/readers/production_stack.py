"""Values of the Helm chart of vLLM's production stack: each model as the command that the chart renders for it.

Sources: vllm-project/production-stack, helm/templates/deployment-vllm-multi.yaml (f1f9822), helm/templates/_helpers.tpl (18328b5),
helm/templates/ray-cluster.yaml (06bd6fb), helm/values.yaml (00c38d1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import RoofplanError
from .. import gpus
from ..launching import read_command
from ..nodes import Node, root, template
from ..objects import copies
from ..pods import affinity_of, devices_of, environment_of, selector_of, templates, terms_of
from ..record import Pod, Reading, Said

if TYPE_CHECKING:
    from ...documents import Document
    from ..sources import Source

ORDER = 45
KIND = "production-stack"
_SHM_BYTES = 20 * 2**30  # the chart's default
# Keys of vllmConfig that become a flag with a value; those that the chart's newer versions have as well.
_FLAGS = {
    "maxModelLen": "--max-model-len",
    "dtype": "--dtype",
    "tensorParallelSize": "--tensor-parallel-size",
    "pipelineParallelSize": "--pipeline-parallel-size",
    "maxNumSeqs": "--max-num-seqs",
    "maxNumBatchedTokens": "--max-num-batched-tokens",
    "gpuMemoryUtilization": "--gpu-memory-utilization",
    "maxLoras": "--max-loras",
    "runner": "--runner",
    "convert": "--convert",
}


class _ProductionStack:
    def recognises(self, source: Source, document: Document | None) -> bool:  # noqa: ARG002  # the document says it all
        return document is not None and isinstance(root(document).get("servingEngineSpec", "modelSpec").value, list)

    def read(self, source: Source, document: Document | None) -> Reading:
        assert document is not None
        engines = root(document).get("servingEngineSpec")
        if engines.get("enableEngine").value is False:
            return Reading(skipped={"modelSpec": len(engines.get("modelSpec").value)})
        return Reading.joined(_read(one, source.text) for one in engines.get("modelSpec").items())


READER = _ProductionStack()


def _read(model: Node, text: str) -> Reading:
    if model.get("enabled").value is False or not model.get("modelURL"):
        return Reading(skipped={"modelSpec": 1})
    config = model.get("vllmConfig")
    read = [
        model.get("modelURL"),
        model.get("tag"),
        *(value for _, value in config.entries()),
        *config.get("extraArgs").items(),
    ]
    faults = list(templates(read))
    if faults:
        return Reading(problems=tuple(faults))
    try:
        pod = _pod(model)
    except RoofplanError as error:
        return Reading(problems=(error,))
    return read_command(
        _words(model),
        environment=environment_of(model),
        image=_image(model),
        kind=KIND,
        name=model.get("name").name("model"),
        place=model.place,
        pod=pod,
        text=text,
        replaces_entrypoint=True,
    )


def _image(model: Node) -> Said[str] | None:
    repository, tag = model.get("repository").text(), model.get("tag").text()
    if repository is None:
        return None
    name = repository.value if tag is None else f"{repository.value}:{tag.value}"
    return Said(name, (tag or repository).place, name)


def _words(model: Node) -> list[Said[str]]:
    """The command of a model's container."""
    config = model.get("vllmConfig")
    words = [Said("vllm", model.place), Said("serve", model.place)]
    url = model.get("modelURL").text()
    words += [] if url is None else [url]
    if model.get("enableLoRA").value is True:
        words.append(_switch(model.get("enableLoRA"), "--enable-lora"))
    if config:
        chunked = config.get("enableChunkedPrefill")
        if chunked.value is not None:
            words.append(
                _switch(chunked, "--enable-chunked-prefill" if _is_on(chunked) else "--no-enable-chunked-prefill")
            )
        # The chart switches prefix caching off where nothing is said of it.
        prefix = config.get("enablePrefixCaching")
        words.append(_switch(prefix, "--enable-prefix-caching" if _is_on(prefix) else "--no-enable-prefix-caching"))
    for key, flag in _FLAGS.items():
        said = config.get(key).text()
        if said is not None:
            words.append(Said(f"{flag}={said.value}", said.place, f"{key}: {said.value}"))
    return words + [said for one in config.get("extraArgs").items() if (said := one.text()) is not None]


def _is_on(node: Node) -> bool:
    """Whether Helm takes a value for true."""
    return bool(node.value)


def _switch(node: Node, flag: str) -> Said[str]:
    return Said(
        flag, node.place, f"{node.path[-1]}: {'' if node.value is None else str(node.value).lower()}".rstrip(": ")
    )


# ------------------------------------------------------------------------------------------------ devices


def _pod(model: Node) -> Pod:
    count, part = devices_of(model)
    if count is None:
        count, part = _requested(model)
    node = gpus.node(
        {
            **terms_of(model.get("nodeSelectorTerms")),
            **affinity_of(model.get("affinity")),
            **selector_of(model.get("nodeSelector")),
        }
    )
    ray = model.get("raySpec", "enabled").value is True
    copies_of = copies(model.get("replicaCount"), "replicaCount")
    # With Ray the copies are the workers of one, beside its head.
    pods = (
        None
        if copies_of is None or not ray
        else Said(copies_of.value + 1, copies_of.place, f"replicaCount: {copies_of.text}")
    )
    return Pod(
        gpus=count,
        hardware=None if part is not None else node.hardware,
        unknown_hardware=part or node.unknown,
        node_gpus=node.gpus,
        pods=pods,
        replicas=None if ray else copies_of,
        shm_bytes=_shm(model),
        host_ipc=model.get("lmcacheConfig", "enablePD").value is True,
        contained=True,
    )


def _requested(model: Node) -> tuple[Said[int] | None, Said[str] | None]:
    """What requestGPU asks for, of the resource that requestGPUType names."""
    node = model.get("requestGPU")
    fault = template(node)
    if fault is not None:
        raise fault
    said, kind = node.whole("requestGPU"), model.get("requestGPUType").text()
    if said is None or not said.value:
        return None, None
    count = Said(said.value, said.place, f"requestGPU: {said.text}")
    is_slice = kind is not None and gpus.is_slice(kind.value)
    return count, kind if is_slice else None


def _shm(model: Node) -> Said[int] | None:
    """The chart mounts a /dev/shm where the model is divided over devices, and only there."""
    parallel = model.get("vllmConfig", "tensorParallelSize")
    if parallel.value is None:
        return None
    said = model.get("shmSize").quantity("shmSize")
    return said if said is not None else Said(_SHM_BYTES, parallel.place, "shmSize: 20Gi of the chart")
