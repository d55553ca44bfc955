"""Ray Serve LLM: ``LLMConfig`` on its own, in a Serve config, or in the ``serveConfigV2`` of a RayService.

Sources: ray-project/ray, python/ray/llm/_internal/serve/core/configs/llm_config.py (1190ecb), python/ray/util/accelerators/accelerators.py
(00501e2), doc/source/serve/llm/quick-start.md (fce2fc4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...documents import Document, parse_manifests
from ...errors import RoofplanError
from .. import gpus
from ..launching import read_settings
from ..nodes import Node, root, template
from ..objects import copies, is_object, name_of, objects
from ..pods import node_of
from ..record import Pod, Reading, Said

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..sources import Source

ORDER = 40
KIND = "ray"
_MODELS = {"vllm": "model", "sglang": "model_path"}  # what the engine calls the model
_CONFIGS = ("llm_configs", "prefill_config", "decode_config", "llm_config")
_NOT_THE_ENGINES = {"hf_token"}  # taken by Ray before the engine sees it


class _Ray:
    def recognises(self, source: Source, document: Document | None) -> bool:  # noqa: ARG002  # the document says it all
        if document is None or not isinstance(document.data, dict):
            return False
        if is_object(document):
            return any(_is_ray_service(one) for one in objects(root(document)))
        if "model_loading_config" in document.data:
            return True
        return any(_llm_configs(one) for one in root(document).get("applications").items())

    def read(self, source: Source, document: Document | None) -> Reading:
        assert document is not None
        top = root(document)
        if is_object(document):
            return Reading.joined(_ray_service(one, source.text) for one in objects(top))
        if top.has("model_loading_config"):
            return _config(top, Pod())
        return Reading.joined(_application(one, Pod()) for one in top.get("applications").items())


READER = _Ray()


def _is_ray_service(top: Node) -> bool:
    return top.get("kind").value == "RayService" and top.get("apiVersion").name().startswith("ray.io/")


def _llm_configs(application: Node) -> list[Node]:
    """The configurations of models that an application is built of."""
    found: list[Node] = []
    for key in _CONFIGS:
        one = application.get("args", key)
        found += [one] if isinstance(one.value, dict) else one.items()
    return [one for one in found if one]


def _application(application: Node, pod: Pod) -> Reading:
    # A text is the path of a file that holds the configuration: it is read where it stands.
    elsewhere = Reading(skipped={"LLMConfig in another file": 1})
    readings = [_config(one, pod) if isinstance(one.value, dict) else elsewhere for one in _llm_configs(application)]
    return Reading.joined(readings) if readings else Reading(skipped={"Serve application": 1})


def _ray_service(top: Node, text: str) -> Reading:
    """The applications of a RayService, which stand in it as one text, on the nodes of its workers."""
    if not _is_ray_service(top):
        return Reading(skipped={top.get("kind").name("nothing"): 1})
    serve = top.get("spec", "serveConfigV2")
    try:
        inner = [root(one) for one in _inside(serve, text)]
    except RoofplanError as error:
        return Reading(problems=(template(serve) or error,))
    pod = _workers(top.get("spec", "rayClusterConfig"))
    reading = Reading.joined(_application(one, pod) for config in inner for one in config.get("applications").items())
    named = reading if reading.services or reading.problems else Reading(skipped={"RayService": 1})
    return _prefixed(named, name_of(top))


def _prefixed(reading: Reading, name: str) -> Reading:
    from dataclasses import replace

    if not name:
        return reading
    services = tuple(replace(one, name=f"{name}/{one.name}") for one in reading.services)
    return replace(reading, services=services)


def _inside(node: Node, text: str) -> Iterator[Document]:
    """The documents of a text that stands in a document, with the places that they have in the file."""
    if isinstance(node.value, dict):
        yield Document(
            node.value,
            node.document.name,
            {
                path[len(node.path) :]: place
                for path, place in node.document.places.items()
                if path[: len(node.path)] == node.path
            },
        )
        return
    if not isinstance(node.value, str):
        return
    line, column = _start(node, text)
    # Empty lines before it give what is wrong with it the line of the file.
    for document in parse_manifests("\n" * line + node.value, node.document.name):
        places = {path: (place[0], place[1] + column) for path, place in document.places.items()}
        yield Document(document.data, document.name, places)


def _start(node: Node, text: str) -> tuple[int, int]:
    """By how many lines and columns a text that stands in a block begins later than the file."""
    lines, at = text.split("\n"), node.place.line
    first = next((line for line in node.value.split("\n") if line.strip()), "")
    for number in range(at, min(at + 64, len(lines)) + 1):
        found = lines[number - 1].find(first) if first else -1
        if found >= 0 and lines[number - 1].strip() == first.strip():
            blank = node.value.split("\n").index(first)
            return max(0, number - 1 - blank), found
    return at - 1, 0


def _workers(cluster: Node) -> Pod:
    """The nodes of the workers, where all groups have the same. Its /dev/shm is the operator's business."""
    nodes = [node_of(group.get("template", "spec")) for group in cluster.get("workerGroupSpecs").items()]
    hardware = [one.hardware for one in nodes if one.hardware is not None]
    if len({one.value for one in hardware}) == 1:
        return Pod(hardware=hardware[0])
    unknown = next((one.unknown for one in nodes if one.unknown is not None), None)
    return Pod(unknown_hardware=unknown if not hardware else None)


# ------------------------------------------------------------------------------------------------ one model


def _config(config: Node, workers: Pod) -> Reading:
    loading, kwargs = config.get("model_loading_config"), config.get("engine_kwargs")
    faults = [fault for _, value in kwargs.entries() if (fault := template(value)) is not None]
    if faults:
        return Reading(problems=tuple(faults))
    engine = config.get("llm_engine").name("vLLM").lower()
    settings: dict[str, Said[Any]] = {}
    model = _model(loading)
    if model is not None:
        settings[_MODELS.get(engine, "model")] = model
    settings |= {
        key: value.said() for key, value in kwargs.entries() if key not in _NOT_THE_ENGINES and value.value is not None
    }
    try:
        pod = _pod(config, workers)
    except RoofplanError as error:
        return Reading(problems=(error,))
    return read_settings(
        engine,
        settings,
        environment=_environment(config.get("runtime_env", "env_vars")),
        kind=KIND,
        name=loading.get("model_id").name(),
        place=config.place,
        pod=pod,
    )


def _environment(variables: Node) -> dict[str, Said[str]]:
    return {key: said for key, value in variables.entries() if (said := value.text()) is not None}


def _model(loading: Node) -> Said[str] | None:
    """Where the weights come from: the source, or the id that users say; of a bucket the id, where that is one of Hugging Face."""
    source, name = loading.get("model_source"), loading.get("model_id").text()
    if isinstance(source.value, str):
        return source.text()
    if name is not None and ("/" in name.value or not source):
        return name
    return source.get("bucket_uri").text() or name


def _pod(config: Node, workers: Pod) -> Pod:
    hardware, unknown = workers.hardware, workers.unknown_hardware
    kind = config.get("accelerator_type").text()
    if kind is not None:
        # Ray takes A10 for A10G (llm_config.py).
        device = gpus.named("A10G" if kind.value == "A10" else kind.value)
        if device is not None and device.hardware:
            hardware, unknown = Said(device.hardware, kind.place, f"accelerator_type: {kind.value}"), None
        else:
            hardware, unknown = None, Said(kind.value, kind.place, f"accelerator_type: {kind.value}")
    return Pod(gpus=_bundles(config), hardware=hardware, unknown_hardware=unknown, replicas=_replicas(config))


def _bundles(config: Node) -> Said[int] | None:
    """The devices of a placement group: those of all its bundles."""
    group = config.get("placement_group_config")
    bundles = [one.get("GPU") for one in group.get("bundles").items()]
    per_worker = group.get("bundle_per_worker", "GPU")
    if per_worker:
        return None  # as many bundles as the layout has ranks
    counts = [one.value for one in bundles if isinstance(one.value, (int, float)) and not isinstance(one.value, bool)]
    if not counts or any(count != int(count) for count in counts) or sum(counts) <= 0:
        return None
    return Said(int(sum(counts)), group.get("bundles").place, f"{len(counts)} bundles")


def _replicas(config: Node) -> Said[int] | None:
    deployment = config.get("deployment_config")
    count = deployment.get("num_replicas")
    if count.value not in (None, "auto"):  # it may be a list
        return copies(count, "num_replicas")
    return copies(deployment.get("autoscaling_config", "min_replicas"), "min_replicas")
