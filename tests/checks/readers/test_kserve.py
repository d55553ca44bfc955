"""KServe: what the Hugging Face runtime and KServe's own templates make of a manifest, and containers of one's own."""

from __future__ import annotations

from textwrap import dedent

import pytest
from manifests import at, line_of, problem, reading, said, service

BY = "kserve"
GIB = 2**30

RUNTIME = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: llama}
spec:
  predictor:
    minReplicas: 2
    nodeSelector: {cloud.google.com/gke-accelerator: nvidia-l4}
    model:
      modelFormat: {name: huggingface}
      args:
        - --model_name=llama3
        - --model_id=meta-llama/Llama-3.1-8B-Instruct
        - --max_model_len=8192
        - --backend
        - vllm
      resources: {limits: {nvidia.com/gpu: "1", memory: 24Gi}}
"""


def test_the_hugging_face_runtime_is_vllm() -> None:
    one = service(RUNTIME, BY)
    assert (one.kind, one.name, one.engine.value) == ("kserve", "llama", "vllm")
    assert said(one) == {"model": "meta-llama/Llama-3.1-8B-Instruct", "max_model_len": 8192, "hardware": "l4"}
    assert one.options["model"].place == at(RUNTIME, "--model_id")
    assert one.options["max_model_len"].place == at(RUNTIME, "--max_model_len")
    assert (one.pod.gpus and one.pod.gpus.value, one.pod.replicas and one.pod.replicas.value) == (1, 2)
    assert not one.pod.contained  # the pod of the runtime stands in the cluster
    assert [flag.name for flag in one.flags if not flag.known] == []


@pytest.mark.parametrize(
    ("given", "model"),
    [
        ("storageUri: hf://Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("storageUri: hf://Qwen/Qwen3-8B@main", "Qwen/Qwen3-8B"),
        ("storageUri: hf://Qwen/Qwen3-8B:abc", "Qwen/Qwen3-8B"),
        ("storageUri: pvc://claim/qwen", "pvc://claim/qwen"),
        ("args: [--model_id, Qwen/Qwen3-8B]", "Qwen/Qwen3-8B"),
        ("args: [--model-id=Qwen/Qwen3-8B]", "Qwen/Qwen3-8B"),
        ("args: [--model_dir=/mnt/qwen]", "/mnt/qwen"),
    ],
)
def test_the_model_comes_from_its_id_or_its_storage(given: str, model: str) -> None:
    text = f"""\
    apiVersion: serving.kserve.io/v1beta1
    kind: InferenceService
    metadata: {{name: a}}
    spec: {{predictor: {{model: {{modelFormat: {{name: vLLM}}, {given}}}}}}}
    """
    assert said(service(text, BY)) == {"model": model}


def test_flags_of_the_runtime_are_not_the_engines() -> None:
    own = "--disable_lower_case\n        - --task=text_generation\n        - --model_revision=abc\n        - --max_length=4096"
    text = RUNTIME.replace("--max_model_len=8192", own)
    one = service(text, BY)
    assert said(one)["max_model_len"] == 4096
    assert one.features["revision"].value == "abc"
    assert [flag.name for flag in one.flags if not flag.known] == []


def test_a_flag_that_neither_knows_is_unknown() -> None:
    one = service(RUNTIME.replace("--max_model_len", "--max_model_length"), BY)
    assert [(flag.name, flag.value.place) for flag in one.flags if not flag.known] == [
        ("--max-model-length", at(RUNTIME, "--max_model_len"))
    ]


def test_workers_of_a_pipeline_are_pods() -> None:
    text = RUNTIME.replace(
        "    model:\n", "    workerSpec: {pipelineParallelSize: 2, tensorParallelSize: 4}\n    model:\n", 1
    )
    one = service(text, BY)
    assert (said(one)["tp"], said(one)["pp"]) == (4, 2)
    assert one.options["tp"].place == at(text, "4}\n    model")
    assert one.pod.pods is not None
    assert one.pod.pods.value == 2


def test_containers_of_ones_own_are_read_as_those_of_a_pod() -> None:
    text = """\
    apiVersion: serving.kserve.io/v1beta1
    kind: InferenceService
    metadata: {name: a}
    spec:
      predictor:
        hostIPC: true
        containers:
          - name: kserve-container
            image: vllm/vllm-openai:v0.9.2
            args: [--model, Qwen/Qwen3-8B]
            resources: {limits: {nvidia.com/gpu: 2}}
    """
    one = service(text, BY)
    assert said(one) == {"model": "Qwen/Qwen3-8B"}
    assert one.pod.contained
    assert one.pod.host_ipc
    assert (one.pod.gpus and one.pod.gpus.value) == 2


# ------------------------------------------------------------------------------------------------ LLMInferenceService

LLM = """\
apiVersion: serving.kserve.io/v1alpha1
kind: LLMInferenceService
metadata: {name: qwen}
spec:
  model: {uri: "hf://Qwen/Qwen3-32B", name: Qwen/Qwen3-32B}
  replicas: 2
  parallelism: {tensor: 2}
  template:
    nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
    containers:
      - name: main
        args: [--max-model-len, "16384"]
        env:
          - {name: VLLM_ADDITIONAL_ARGS, value: "--kv-cache-dtype fp8 --max-num-seqs 64"}
        resources: {limits: {nvidia.com/gpu: "2"}}
"""


def test_a_model_and_its_parallelism_are_a_command() -> None:
    one = service(LLM, BY)
    wanted = {
        "model": "Qwen/Qwen3-32B",
        "tp": 2,
        "max_model_len": 16_384,
        "kv": "fp8",
        "max_num_seqs": 64,
        "hardware": "h100-sxm5-80gb",
    }
    assert said(one) == wanted
    assert one.options["tp"].place == at(LLM, "2}\n  template")
    assert one.options["model"].place == at(LLM, '"hf://')
    assert one.options["kv"].place.line == line_of(LLM, "VLLM_ADDITIONAL_ARGS")
    assert (one.pod.gpus and one.pod.gpus.value, one.pod.replicas and one.pod.replicas.value) == (2, 2)


def test_kserve_mounts_shared_memory_of_its_own() -> None:
    pod = service(LLM, BY).pod
    assert pod.shm_bytes is not None
    assert pod.shm_bytes.value == GIB
    own = (
        LLM.replace("        resources:", "        volumeMounts: [{name: s, mountPath: /dev/shm}]\n        resources:")
        + "    volumes: [{name: s, emptyDir: {medium: Memory, sizeLimit: 12Gi}}]\n"
    )
    pod = service(own, BY).pod
    assert pod.shm_bytes is not None
    assert pod.shm_bytes.value == 12 * GIB


def test_an_argument_beats_the_parallelism() -> None:
    one = service(LLM.replace('"16384"]', '"16384", --tensor-parallel-size=4]'), BY)
    assert said(one)["tp"] == 4


def test_experts_and_data_are_divided_over_pods() -> None:
    text = LLM.replace("{tensor: 2}", "{tensor: 1, data: 16, dataLocal: 8, expert: true}")
    one = service(text, BY)
    assert (said(one)["dp"], said(one)["ep"]) == (16, 16)
    assert one.pod.pods is not None
    assert one.pod.pods.value == 2


def test_stages_of_a_pipeline_are_pods_with_more_shared_memory() -> None:
    text = LLM.replace("{tensor: 2}", "{tensor: 2, pipeline: 3}").replace(
        "  replicas: 2\n", "  replicas: 2\n  worker: {nodeSelector: {a: b}}\n"
    )
    pod = service(text, BY).pod
    assert pod.pods is not None
    assert pod.shm_bytes is not None
    assert (pod.pods.value, pod.shm_bytes.value) == (3, 8 * GIB)


def test_prefill_is_a_service_of_its_own() -> None:
    text = (
        LLM
        + """\
  prefill:
    replicas: 3
    parallelism: {tensor: 1}
    template:
      containers: [{name: main, resources: {limits: {nvidia.com/gpu: "1"}}}]
"""
    )
    found = reading(text, BY)
    assert [(one.name, one.options["tp"].value) for one in found.services] == [("qwen", 2), ("qwen/prefill", 1)]


def test_a_speculator_is_a_setting() -> None:
    text = LLM.replace(
        "  replicas: 2\n",
        '  replicas: 2\n  speculator:\n    model: {uri: "hf://RedHatAI/Qwen3-32B-speculator.eagle3"}\n'
        '    config: {method: eagle3, num_speculative_tokens: "3"}\n',
    )
    one = service(text, BY)
    assert one.features["speculation"].value == {
        "method": "eagle3",
        "k": 3,
        "model": "RedHatAI/Qwen3-32B-speculator.eagle3",
    }
    assert one.features["speculation"].place.line == line_of(text, "config:")


def test_sglang_is_another_runtime() -> None:
    text = LLM.replace("  replicas: 2\n", "  replicas: 2\n  runtime: kserve-llm-sglang\n").replace(
        '--max-model-len, "16384"', '--context-length, "16384"'
    )
    one = service(text.replace("--kv-cache-dtype fp8 --max-num-seqs 64", ""), BY)
    assert one.engine.value == "sglang"
    assert said(one) == {"model": "Qwen/Qwen3-32B", "tp": 2, "max_model_len": 16_384, "hardware": "h100-sxm5-80gb"}


def test_a_command_of_its_own_is_read_as_it_is() -> None:
    text = LLM.replace(
        "        args: [", '        command: ["/bin/sh", "-c", "vllm serve /mnt/models -tp 4"]\n        ignored: ['
    )
    one = service(text, BY)
    assert said(one)["tp"] == 4
    mounted = LLM.replace("        args: [", "        command: [vllm, serve, /mnt/models]\n        args: [")
    assert said(service(mounted, BY))["model"] == "Qwen/Qwen3-32B"


def test_a_service_without_containers_is_what_kserve_makes_of_it() -> None:
    text = """\
    apiVersion: serving.kserve.io/v1alpha1
    kind: LLMInferenceService
    metadata: {name: a}
    spec: {model: {uri: "hf://Qwen/Qwen3-8B"}, template: {nodeSelector: {nvidia.com/gpu.product: NVIDIA-L4}}}
    """
    assert said(service(text, BY)) == {"model": "Qwen/Qwen3-8B", "hardware": "l4"}


# ------------------------------------------------------------------------------------------------ what is passed over, and faults


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: serving.kserve.io/v1alpha1\nkind: ClusterServingRuntime\nspec: {containers: [{args: ['{{.Name}}']}]}\n",
        "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nspec: {predictor: {sklearn: {storageUri: gs://a}}}\n",
        "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nspec: {predictor: {model: {modelFormat: {name: sklearn}}}}\n",
        "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nspec: [1]\n",
        "apiVersion: serving.kserve.io/v1alpha1\nkind: LLMInferenceService\nspec: {baseRefs: [{name: a}]}\n",
        "apiVersion: serving.kserve.io/v1alpha1\nkind: LLMInferenceService\nspec: {model: {uri: [a]}, template: 4}\n",
    ],
)
def test_what_serves_no_language_model_is_passed_over(text: str) -> None:
    found = reading(dedent(text), BY)
    assert (found.services, found.problems) == ((), ())
    assert sum(found.skipped.values()) == 1


@pytest.mark.parametrize(
    ("around", "old", "new", "part", "what"),
    [
        (RUNTIME, "minReplicas: 2", "minReplicas: few", "few", "minReplicas: got 'few', want a whole number"),
        (RUNTIME, 'gpu: "1"', "gpu: one", "one", "nvidia.com/gpu: got 'one', want a whole number"),
        (
            RUNTIME,
            "--model_id=meta-llama/Llama-3.1-8B-Instruct",
            '"--model_id={{ .m }}"',
            '"--model_id',
            "template: got {{ .m }}",
        ),
        (LLM, "tensor: 2", "tensor: two", "two", "got 'two', want a whole number"),
        (LLM, '"16384"', '"{{ .Values.len }}"', '"{{', "template: got {{ .Values.len }}"),
        (LLM, "replicas: 2", "replicas: 1.5", "1.5", "replicas: got 1.5, want a whole number"),
    ],
)
def test_one_fault_is_one_problem_with_its_place(around: str, old: str, new: str, part: str, what: str) -> None:
    text = around.replace(old, new, 1)
    said_of_it = problem(text, BY)
    assert said_of_it.startswith(f"{at(text, part)}: "), said_of_it
    assert what in said_of_it


def test_a_setting_that_the_engine_refuses_is_a_problem_beside_the_rest() -> None:
    text = RUNTIME.replace("--max_model_len=8192", "--max_model_len=8k5")
    found = reading(text, BY)
    assert [str(at(text, "--max_model_len"))] == [str(one).partition(": ")[0] for one in found.problems]
