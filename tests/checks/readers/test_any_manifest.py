"""Manifests of every kind with anything in any place: what is wrong is a problem with a place, never a traceback, and fast."""

from __future__ import annotations

import json
import time
from copy import deepcopy
from typing import Any

import manifests
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roofplan.checks import nodes
from roofplan.checks.record import Place
from roofplan.documents import Document
from roofplan.errors import RoofplanError

KUBERNETES = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: a}
spec:
  replicas: 2
  template:
    spec:
      hostIPC: false
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-L4}
      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
        {matchExpressions: [{key: node.kubernetes.io/instance-type, operator: In, values: [g6.xlarge]}]}]}}}
      containers:
        - name: c
          image: vllm/vllm-openai:v0.9.0
          command: [sh, -c]
          args: ["vllm serve $(M) --max-model-len 8192"]
          env: [{name: M, value: Qwen/Qwen3-8B}]
          resources: {limits: {nvidia.com/gpu: 1, memory: 4Gi}}
          volumeMounts: [{name: s, mountPath: /dev/shm}]
      volumes: [{name: s, emptyDir: {medium: Memory, sizeLimit: 1Gi}}]
"""
COMPOSE = """
services:
  a:
    image: vllm/vllm-openai:v0.9.0
    command: [--model, Qwen/Qwen3-8B]
    extends: {service: b}
    environment: [A=b]
    shm_size: 1g
    volumes: [{type: tmpfs, target: /dev/shm, tmpfs: {size: 1}}]
    tmpfs: ["/dev/shm:size=1g"]
    deploy: {replicas: 1, resources: {reservations: {devices: [{count: 1, capabilities: [gpu]}]}}}
  b: {image: vllm/vllm-openai, environment: {C: d}, gpus: all}
"""
RAY = """
applications:
  - args:
      llm_configs:
        - model_loading_config: {model_id: a/b, model_source: {bucket_uri: s3://a}}
          accelerator_type: L4
          engine_kwargs: {max_model_len: 8192, tensor_parallel_size: 1}
          placement_group_config: {bundles: [{GPU: 1}]}
          runtime_env: {env_vars: {A: b}}
          deployment_config: {autoscaling_config: {min_replicas: 1}}
"""
KSERVE = """
apiVersion: serving.kserve.io/v1alpha1
kind: LLMInferenceService
metadata: {name: a}
spec:
  model: {uri: "hf://a/b"}
  parallelism: {tensor: 1, data: 2, dataLocal: 1, expert: true}
  speculator: {model: {uri: "hf://c/d"}, config: {method: eagle3, num_speculative_tokens: "3"}}
  worker: {}
  template: {containers: [{name: main, args: [--max-model-len, "1k"], env: [{name: VLLM_ADDITIONAL_ARGS, value: -v}]}]}
  prefill: {template: {containers: [{name: main}]}}
"""
INFERENCE = """
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
spec:
  predictor:
    minReplicas: 1
    workerSpec: {pipelineParallelSize: 2}
    model: {modelFormat: {name: huggingface}, storageUri: "hf://a/b", args: [--model_name=x, --backend, vllm], env: [{name: A, value: b}]}
"""
VALUES = """
servingEngineSpec:
  modelSpec:
    - name: a
      repository: vllm/vllm-openai
      tag: v0.9.0
      modelURL: a/b
      replicaCount: 1
      requestGPU: 1
      requestGPUType: nvidia.com/gpu
      raySpec: {enabled: false}
      vllmConfig: {maxModelLen: 8192, tensorParallelSize: 1, enablePrefixCaching: true, extraArgs: [-v]}
      nodeSelectorTerms: [{matchExpressions: [{key: nvidia.com/gpu.product, operator: In, values: [NVIDIA-L4]}]}]
"""
LLM_D = """
modelArtifacts: {name: a/b, uri: "hf://a/b"}
decode:
  parallelism: {tensor: 1, data: 2, dataLocal: 1, workers: 2}
  acceleratorTypes: {labelKey: nvidia.com/gpu.product, labelValues: [NVIDIA-L4]}
  containers: [{name: v, image: vllm/vllm-openai, modelCommand: vllmServe, args: [-v], env: [{name: A, value: b}]}]
"""
ALL = {
    "kubernetes": KUBERNETES,
    "compose": COMPOSE,
    "ray": RAY,
    "kserve": KSERVE,
    "inference": INFERENCE,
    "values": VALUES,
    "llm-d": LLM_D,
}


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values but the outermost."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [one for key, item in inner for one in [(*path, key), *paths(item, (*path, key))]]


TEXTS = st.one_of(
    st.sampled_from(
        [
            "",
            "{{ x }}",
            "$(M)",
            "${A:-",
            "$",
            "--",
            "-",
            "=",
            "'",
            '"',
            "/dev/shm",
            "all",
            "-1",
            "0",
            "1e99",
            "16Gi",
            "x" * 99,
        ]
    ),
    st.text(max_size=8),
)
ANY = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-3, 2**70), st.floats(allow_nan=False, allow_infinity=False), TEXTS
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=4), inner, max_size=2)),
    max_leaves=4,
)


@pytest.mark.parametrize("name", ALL)
def test_the_untouched_ones_are_read(name: str) -> None:
    ((_, found),) = manifests.readings(ALL[name])
    assert found.services
    assert not found.problems


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_anything_may_stand_anywhere(name: str, data: st.DataObject) -> None:
    document = deepcopy(yaml.safe_load(ALL[name]))
    for _ in range(data.draw(st.integers(1, 3))):
        *way, last = data.draw(st.sampled_from(paths(document)))
        inner = document
        for key in way:
            inner = inner[key]
        inner[last] = data.draw(ANY)
    for _, found in manifests.readings(json.dumps(document), "m.json"):
        for problem in found.problems:
            assert isinstance(problem, RoofplanError)
            assert problem.where.startswith("m.json"), str(problem)
        for service in found.services:
            assert service.name
            assert service.place.file == "m.json"


@pytest.mark.parametrize("name", ALL)
def test_reading_takes_as_long_as_the_text_is_long(name: str) -> None:
    took = []
    for repeat in (1, 16):
        text = "\n---\n".join([ALL[name]] * repeat * 4)
        start = time.process_time()
        manifests.readings(text)
        took.append(time.process_time() - start)
    assert took[1] < 16 * 6 * took[0] + 1


# ------------------------------------------------------------------------------------------------ values


def node(value: Any) -> nodes.Node:
    """A value that stands in line 2."""
    return nodes.Node(Document({"a": value}, "m.yaml", {(): (1, 1), ("a",): (2, 4)}), ("a",), value)


# Kubernetes' own examples of quantities and the bytes that they stand for (kubernetes/apimachinery, pkg/api/resource/quantity.go).
@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1Gi", 2**30),
        ("0.5Gi", 2**29),
        ("1G", 10**9),
        ("12e6", 12_000_000),
        ("1500m", 2),
        ("7", 7),
        (7, 7),
        ("1E", 10**18),
        ("0", 0),
        ("1Ki", 1024),
    ],
)
def test_a_quantity_is_read_as_kubernetes_reads_it(written: Any, value: int) -> None:
    found = node(written).quantity("memory")
    assert found is not None
    assert (found.value, found.place) == (value, Place("m.yaml", 2, 4))


@pytest.mark.parametrize(
    "written", ["1 Gi", "1GB", "1gi", "-1Gi", "Gi", "1.Gi", "1e", "٣Gi", "9" * 50, "100E", [1], {"a": 1}, "1Gi1"]
)
def test_another_quantity_is_refused_with_its_place(written: Any) -> None:
    with pytest.raises(RoofplanError) as caught:
        node(written).quantity("memory")
    assert caught.value.where == "m.yaml:2:4"


@pytest.mark.parametrize(("written", "value"), [("8", 8), (8, 8), ("0", 0), ("", None), (None, None), (8.0, 8)])
def test_a_whole_number_may_be_a_text(written: Any, value: int | None) -> None:
    found = node(written).whole("count")
    assert (found and found.value) == value


@pytest.mark.parametrize("written", ["8.5", 8.5, -1, "-1", "٣", True, [8], "9" * 20, 2**60, "0x8", " 8"])
def test_another_number_is_refused(written: Any) -> None:
    with pytest.raises(RoofplanError):
        node(written).whole("count")


@pytest.mark.parametrize(
    ("text", "is_template"),
    [
        ("{{ .Values.a }}", True),
        ("a-{{- .Values.a -}}-b", True),
        ("{% if x %}", True),
        ("{{x}}", True),
        ('{"a": {"b": {}}}', False),
        ("${A}", False),
        ("{a}", False),
        ('{{"a": 1}}', False),
    ],
)
def test_marks_of_templates_are_told_from_json(text: str, is_template: bool) -> None:  # a parameter of the table
    assert (nodes.template(node(text)) is not None) == is_template
