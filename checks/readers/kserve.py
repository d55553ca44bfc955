"""KServe: InferenceService (the Hugging Face runtime, or containers of one's own) and LLMInferenceService.

Sources: kserve/kserve, python/huggingfaceserver/huggingfaceserver/__main__.py (00397f1), config/runtimes/kserve-huggingfaceserver.yaml
(0a9dd8d), config/llmisvcconfig/config-llm-template.yaml (01a639a), config-llm-sglang-template.yaml (63bf24f),
config-llm-worker-data-parallel.yaml (70e53e8), config-llm-worker-pipeline-parallel.yaml (04184a4).
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import RoofplanError
from ..launching import read_command
from ..nodes import Node, plain_text, root
from ..objects import copies, is_object, name_of, objects
from ..pods import Owner, as_expanded, environment_of, node_of, pod_of, read_containers, templates, words_of
from ..record import Pod, Reading, Said
from ..words import split

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...documents import Document
    from ..sources import Source

ORDER = 30
KIND = "kserve"
_GROUP = "serving.kserve.io/"
# Flags of the Hugging Face runtime that vLLM does not know; of those with a value the next word is one too.
_OWN_VALUES = {
    "--model_name", "--model_id", "--model_dir", "--model_revision", "--tensor_input_names", "--task", "--backend", "--http_port",
    "--grpc_port", "--workers", "--max_threads", "--max_asyncio_workers", "--max_log_len", "--predictor_host", "--predictor_protocol",
    "--predictor_request_timeout_seconds", "--log_config_file", "--access_log_format",
}  # fmt: skip
_OWN_SWITCHES = {
    "--disable_lower_case", "--disable_special_tokens", "--return_token_type_ids", "--return_probabilities", "--predictor_use_ssl",
    "--enable_grpc", "--enable_docs_url", "--enable_latency_logging", "--configure_logging",
}  # fmt: skip
_FORMATS = {"huggingface", "vllm"}
_SHM_BYTES = 2**30  # of KServe's own template
_PIPELINE_SHM_BYTES = 8 * 2**30


class _KServe:
    def recognises(self, source: Source, document: Document | None) -> bool:  # noqa: ARG002  # the document says it all
        if document is None or not is_object(document):
            return False
        return any(one.get("apiVersion").name().startswith(_GROUP) for one in objects(root(document)))

    def read(self, source: Source, document: Document | None) -> Reading:
        assert document is not None
        return Reading.joined(_read(one, source.text) for one in objects(root(document)))


READER = _KServe()


def _read(top: Node, text: str) -> Reading:
    kind = top.get("kind").name("nothing")
    read = {"InferenceService": _inference_service, "LLMInferenceService": _llm_inference_service}.get(kind)
    if read is None:
        return Reading(skipped={kind: 1})
    try:
        reading = Reading.joined(read(top, text))
    except RoofplanError as error:
        return Reading(problems=(error,))
    return reading if reading.services or reading.problems else Reading(skipped={kind: 1})


# ------------------------------------------------------------------------------------------------ InferenceService


def _inference_service(top: Node, text: str) -> Iterator[Reading]:
    predictor, name = top.get("spec", "predictor"), name_of(top, "predictor")
    worker = predictor.get("workerSpec")
    # A pipeline has one stage a pod.
    stages = copies(worker.get("pipelineParallelSize"), "pipelineParallelSize")
    owner = Owner(KIND, name, pods=stages, replicas=copies(predictor.get("minReplicas"), "minReplicas"))
    yield read_containers(predictor, owner, text)
    model = predictor.get("model")
    if model and model.get("modelFormat", "name").name().lower() in _FORMATS:
        yield _runtime(predictor, model, owner, text)


def _runtime(predictor: Node, model: Node, owner: Owner, text: str) -> Reading:
    """What a runtime of the cluster starts with the arguments of a model."""
    faults = list(templates([*model.get("args").items(), model.get("storageUri")]))
    if faults:
        return Reading(problems=tuple(faults))
    environment = environment_of(model)
    own, rest = _taken(words_of(model, environment))
    served = own.get("--model_id") or _without_scheme(model.get("storageUri").text()) or own.get("--model_dir")
    if "--model_revision" in own:
        revision = own["--model_revision"]
        rest += [Said("--revision", revision.place, "--model_revision"), revision]
    worker = predictor.get("workerSpec")
    for key, flag in (
        ("tensorParallelSize", "--tensor-parallel-size"),
        ("pipelineParallelSize", "--pipeline-parallel-size"),
    ):
        rest += _flag(flag, worker.get(key), rest)
    pod = pod_of(predictor, model, owner)
    # The runtime's own pod, with its /dev/shm, stands in the cluster and not in this file.
    pod = replace(pod, contained=False)
    return _served("vllm", served, rest, environment, model, pod, owner, text)


def _taken(words: Sequence[Said[str]]) -> tuple[dict[str, Said[str]], list[Said[str]]]:
    """The runtime's own flags with their values, and the words that remain for the engine."""
    own: dict[str, Said[str]] = {}
    rest: list[Said[str]] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        flag, equals, value = word.value.partition("=")
        flag = flag.replace("-", "_").replace("__", "--", 1) if flag.startswith("--") else flag
        if flag == "--max_length":  # an older name of the engine's flag
            rest.append(
                Said(word.value.replace(word.value.partition("=")[0], "--max-model-len", 1), word.place, word.value)
            )
        elif flag in _OWN_VALUES:
            if not equals and index < len(words):
                value = words[index].value
                index += 1
            own[flag] = Said(value, word.place, word.value if equals else f"{word.value} {value}")
        elif flag not in _OWN_SWITCHES:
            rest.append(word)
    return own, rest


# ------------------------------------------------------------------------------------------------ LLMInferenceService


def _llm_inference_service(top: Node, text: str) -> Iterator[Reading]:
    spec, name = top.get("spec"), name_of(top, "llm")
    model = spec.get("model")
    served = _without_scheme(model.get("uri").text()) or model.get("name").text()
    if served is None:
        return
    yield _workload(spec, spec, served, name, text)
    if spec.get("prefill"):
        yield _workload(spec, spec.get("prefill"), served, f"{name}/prefill", text)


def _workload(spec: Node, part: Node, served: Said[str], name: str, text: str) -> Reading:
    """The pods that decode, or those that prefill. KServe lays what is written here over a template of its own."""
    template, parallelism = part.get("template"), part.get("parallelism")
    container = next(
        (one for one in template.get("containers").items() if one.get("name").value == "main"),
        template.get("containers", 0),
    )
    faults = list(templates([*container.get("command").items(), *container.get("args").items()]))
    if faults:
        return Reading(problems=tuple(faults))
    owner = Owner(KIND, name, _pods(part), copies(part.get("replicas")))
    pod = _llm_pod(part, template, container, owner)
    environment = environment_of(container)
    words = words_of(container, environment)
    image = container.get("image").text()
    if container.get("command"):
        mounted = [replace(word, value=served.value) if word.value == "/mnt/models" else word for word in words]
        return read_command(
            mounted,
            environment=environment,
            image=image,
            kind=KIND,
            name=name,
            place=container.place,
            pod=pod,
            text=as_expanded(text, words, environment),
            replaces_entrypoint=True,
        )
    extra = environment.get("VLLM_ADDITIONAL_ARGS")
    if extra is not None:
        words += split(extra)
    engine = "sglang" if "sglang" in spec.get("runtime").name() else "vllm"
    for key, flag in _PARALLEL.items():
        words += _flag(flag, parallelism.get(key), words)
    if parallelism.get("expert").value is True and engine == "vllm":
        words.append(Said("--enable-expert-parallel", parallelism.get("expert").place, "expert: true"))
    if engine == "vllm" and part is spec:
        words += _speculator(spec.get("speculator"))
    return _served(engine, served, words, environment, container or part, pod, owner, text)


_PARALLEL = {
    "tensor": "--tensor-parallel-size",
    "pipeline": "--pipeline-parallel-size",
    "data": "--data-parallel-size",
}


def _pods(part: Node) -> Said[int] | None:
    """The pods of one copy: the stages of a pipeline, or the ranks of data parallelism by those of one pod."""
    parallelism = part.get("parallelism")
    pipeline = copies(parallelism.get("pipeline"), "pipeline")
    if pipeline is not None and part.get("worker"):
        return pipeline
    data, local = copies(parallelism.get("data"), "data"), copies(parallelism.get("dataLocal"), "dataLocal")
    if data is not None and local is not None and data.value >= local.value:
        return Said(data.value // local.value, local.place, f"dataLocal: {local.text}")
    return None


def _llm_pod(part: Node, template: Node, container: Node, owner: Owner) -> Pod:
    pod = pod_of(template, container, owner) if container else _pod_without_container(template, owner)
    if pod.shm_bytes is None:
        size = _PIPELINE_SHM_BYTES if part.get("worker") and part.get("parallelism", "pipeline") else _SHM_BYTES
        pod = replace(pod, shm_bytes=Said(size, template.place, "of KServe's own template"))
    return pod


def _pod_without_container(template: Node, owner: Owner) -> Pod:
    node = node_of(template)
    return Pod(
        hardware=node.hardware, unknown_hardware=node.unknown, pods=owner.pods, replicas=owner.replicas, contained=True
    )


def _speculator(node: Node) -> list[Said[str]]:
    """The flag that a speculator stands for; its numbers are texts."""
    config = {key: _plain(value) for key, value in node.get("config").entries() if value.text() is not None}
    model = _without_scheme(node.get("model", "uri").text())
    if model is not None:
        config["model"] = model.value
    if not config:
        return []
    place, written = node.get("config").place, f"speculator: {config.get('method', '')}".rstrip(": ")
    return [Said(f"--speculative-config={json.dumps(config)}", place, written)]


def _plain(node: Node) -> object:
    text = plain_text(node.value)
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else node.value


# ------------------------------------------------------------------------------------------------ both


def _flag(flag: str, node: Node, words: Sequence[Said[str]]) -> list[Said[str]]:
    """A key of the manifest as the flag that KServe makes of it, where the arguments do not have it already."""
    said = node.whole(flag)
    if said is None or any(word.value.partition("=")[0].replace("_", "-") == flag for word in words):
        return []
    return [Said(f"{flag}={said.value}", said.place, f"{node.path[-1]}: {said.text}")]


def _without_scheme(uri: Said[str] | None) -> Said[str] | None:
    """What a URI names: of ``hf://org/model@revision`` the model; others as they are."""
    if uri is None or not uri.value:
        return None
    if not uri.value.startswith("hf://"):
        return uri
    return Said(uri.value.removeprefix("hf://").partition("@")[0].partition(":")[0], uri.place, uri.value)


def _served(
    engine: str,
    served: Said[str] | None,
    words: Sequence[Said[str]],
    environment: dict[str, Said[str]],
    container: Node,
    pod: Pod,
    owner: Owner,
    text: str,
) -> Reading:
    place = container.place
    start = ["vllm", "serve"] if engine == "vllm" else ["python", "-m", "sglang.launch_server"]
    command = [Said(word, place) for word in start]
    if served is not None:
        command += (
            [served] if engine == "vllm" else [Said("--model-path", served.place, served.text or served.value), served]
        )
    return read_command(
        [*command, *words],
        environment=environment,
        image=container.get("image").text(),
        kind=KIND,
        name=owner.name,
        place=place,
        pod=pod,
        text=as_expanded(text, words, environment),
        replaces_entrypoint=True,
    )
