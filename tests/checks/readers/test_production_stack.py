"""Values of vLLM's production stack and of llm-d: what the charts render of them."""

from __future__ import annotations

import pytest
from manifests import at, problem, reading, said, service

BY = "production_stack"
GIB = 2**30

VALUES = """\
servingEngineSpec:
  modelSpec:
    - name: mistral
      repository: vllm/vllm-openai
      tag: v0.9.0
      modelURL: mistralai/Mistral-7B-Instruct-v0.2
      replicaCount: 2
      requestGPU: 2
      vllmConfig:
        maxModelLen: 16384
        dtype: bfloat16
        tensorParallelSize: 2
        maxNumSeqs: 32
        gpuMemoryUtilization: 0.95
        enablePrefixCaching: true
        enableChunkedPrefill: false
        extraArgs: ["--kv-cache-dtype", "fp8"]
      nodeSelectorTerms:
        - matchExpressions:
            - {key: nvidia.com/gpu.product, operator: In, values: [NVIDIA-A100-SXM4-80GB]}
routerSpec: {}
"""


def test_a_model_gives_the_command_that_the_chart_renders() -> None:
    one = service(VALUES, BY)
    assert (one.kind, one.name, one.engine.value) == ("production-stack", "mistral", "vllm@0.9.0")
    options = said(one)
    assert options.pop("weights", None) in {None, "bf16"}
    assert options == {
        "model": "mistralai/Mistral-7B-Instruct-v0.2",
        "max_model_len": 16_384,
        "tp": 2,
        "max_num_seqs": 32,
        "memory_utilization": 0.95,
        "kv": "fp8",
        "hardware": "a100-sxm4-80gb",
    }
    assert {name: one.features[name].value for name in ("prefix_caching", "chunked_prefill")} == {
        "prefix_caching": True,
        "chunked_prefill": False,
    }
    assert (one.pod.gpus and one.pod.gpus.value, one.pod.replicas and one.pod.replicas.value) == (2, 2)
    assert [flag.name for flag in one.flags if not flag.known] == []


def test_every_value_has_its_place() -> None:
    one = service(VALUES, BY)
    assert one.options["max_model_len"].place == at(VALUES, "16384")
    assert one.options["max_model_len"].text == "maxModelLen: 16384"
    assert one.options["kv"].place == at(VALUES, '"--kv-cache-dtype"')
    assert one.options["model"].place == at(VALUES, "mistralai/")
    assert one.pod.gpus is not None
    assert one.pod.gpus.place == at(VALUES, "2\n      vllmConfig")
    assert one.engine.place == at(VALUES, "v0.9.0")


def test_the_chart_switches_prefix_caching_off_where_nothing_is_said() -> None:
    one = service(VALUES.replace("        enablePrefixCaching: true\n", ""), BY)
    assert one.features["prefix_caching"].value is False
    without = VALUES[: VALUES.index("      vllmConfig")] + "      hf_token: x\n"
    assert "prefix_caching" not in service(without, BY).features


@pytest.mark.parametrize(
    ("old", "new", "size"),
    [
        ("requestGPU: 2", "requestGPU: 2", 20 * GIB),
        ("requestGPU: 2", "requestGPU: 2\n      shmSize: 6Gi", 6 * GIB),
        ("        tensorParallelSize: 2\n", "", None),
        ("        tensorParallelSize: 2\n", "        tensorParallelSize: 1\n", 20 * GIB),
    ],
)
def test_the_chart_mounts_shared_memory_where_a_model_is_divided(old: str, new: str, size: int | None) -> None:
    one = service(VALUES.replace(old, new), BY)
    assert (one.pod.shm_bytes and one.pod.shm_bytes.value) == size


def test_resources_beat_what_is_requested() -> None:
    one = service(VALUES.replace("requestGPU: 2", "requestGPU: 2\n      resources: {limits: {amd.com/gpu: 4}}"), BY)
    assert one.pod.gpus is not None
    assert (one.pod.gpus.value, one.pod.gpus.text) == (4, "amd.com/gpu: 4")


def test_a_part_of_a_device_is_said() -> None:
    one = service(VALUES.replace("requestGPU: 2", "requestGPU: 1\n      requestGPUType: nvidia.com/mig-4g.71gb"), BY)
    assert one.pod.unknown_hardware is not None
    assert one.pod.unknown_hardware.value == "nvidia.com/mig-4g.71gb"


def test_with_ray_the_copies_are_pods_of_one() -> None:
    one = service(VALUES.replace("requestGPU: 2", "requestGPU: 2\n      raySpec: {enabled: true}"), BY)
    assert one.pod.pods is not None
    assert (one.pod.pods.value, one.pod.replicas) == (3, None)


def test_models_that_are_not_deployed_are_passed_over() -> None:
    more = "    - {name: off, enabled: false, modelURL: a/b, repository: vllm/vllm-openai}\n    - {name: none}\n"
    found = reading(VALUES.replace("routerSpec", f"{more}routerSpec", 1), BY)
    assert [one.name for one in found.services] == ["mistral"]
    assert dict(found.skipped) == {"modelSpec": 2}
    off = VALUES.replace("servingEngineSpec:\n", "servingEngineSpec:\n  enableEngine: false\n")
    assert dict(reading(off, BY).skipped) == {"modelSpec": 1}


def test_a_chat_template_is_none_of_the_chart() -> None:
    text = VALUES.replace(
        "requestGPU: 2", "requestGPU: 2\n      chatTemplate: \"{% for m in messages %}{{ m['content'] }}{% endfor %}\""
    )
    assert "model" in said(service(text, BY))


@pytest.mark.parametrize(
    ("old", "new", "part", "what"),
    [
        ("requestGPU: 2", "requestGPU: two", "two", "requestGPU: got 'two', want a whole number"),
        ("replicaCount: 2", "replicaCount: 1.5", "1.5", "replicaCount: got 1.5, want a whole number"),
        (
            "requestGPU: 2",
            "requestGPU: 2\n      shmSize: 20 gigs",
            "20 gigs",
            "shmSize: got '20 gigs', want a quantity",
        ),
        ("mistralai/Mistral-7B-Instruct-v0.2", '"{{ .Values.m }}"', '"{{', "template: got {{ .Values.m }}"),
        ("maxModelLen: 16384", 'maxModelLen: "{{ len }}"', '"{{', "template: got {{ len }}"),
    ],
)
def test_one_fault_is_one_problem_with_its_place(old: str, new: str, part: str, what: str) -> None:
    text = VALUES.replace(old, new)
    assert problem(text, BY).startswith(f"{at(text, part)}: {what}")


def test_a_setting_that_the_engine_refuses_is_a_problem_beside_the_rest() -> None:
    text = VALUES.replace("maxModelLen: 16384", "maxModelLen: long")
    found = reading(text, BY)
    assert [one.name for one in found.services] == ["mistral"]
    (fault,) = found.problems
    assert str(fault).startswith(str(at(text, "long")))


@pytest.mark.parametrize("value", ["[]", "[3]", "[null]", "[{modelURL: [a]}]", "[{modelURL: a/b, vllmConfig: 3}]"])
def test_shapes_that_nobody_wants_give_no_traceback(value: str) -> None:
    reading(f"servingEngineSpec: {{modelSpec: {value}}}\n", BY)


# ------------------------------------------------------------------------------------------------ llm-d

LLM_D = """\
modelArtifacts:
  name: Qwen/Qwen3-32B
  uri: "hf://{{ .Values.modelArtifacts.name }}"
decode:
  replicas: 2
  parallelism: {tensor: 2}
  acceleratorTypes: {labelKey: nvidia.com/gpu.product, labelValues: [NVIDIA-H200]}
  containers:
    - name: vllm
      image: vllm/vllm-openai:v0.10.0
      modelCommand: vllmServe
      args: [--max-model-len, "32768"]
      volumeMounts: [{name: shm, mountPath: /dev/shm}]
  volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 8Gi}}]
prefill: {create: false}
"""


def test_a_role_of_llm_d_gives_the_command_that_the_chart_renders() -> None:
    found = reading(LLM_D, "llm_d")
    (one,) = found.services
    assert (one.kind, one.name, one.engine.value) == ("llm-d", "Qwen/Qwen3-32B/decode", "vllm@0.10.0")
    assert said(one) == {"model": "Qwen/Qwen3-32B", "tp": 2, "max_model_len": 32_768, "hardware": "h200-sxm-141gb"}
    assert one.options["tp"].place == at(LLM_D, "2}")
    assert (one.pod.gpus and one.pod.gpus.value, one.pod.shm_bytes and one.pod.shm_bytes.value) == (2, 8 * GIB)
    assert dict(found.skipped) == {"llm-d prefill": 1}


@pytest.mark.parametrize(
    ("uri", "model"),
    [
        ("hf://a/b", "a/b"),
        ("pvc://claim/path/to/b", "/model-cache/path/to/b"),
        ("pvc+hf://claim/cache/a/b", "a/b"),
    ],
)
def test_the_model_is_what_the_chart_makes_of_its_address(uri: str, model: str) -> None:
    text = LLM_D.replace("hf://{{ .Values.modelArtifacts.name }}", uri)
    (one,) = reading(text, "llm_d").services
    assert said(one)["model"] == model


def test_the_images_own_command_gets_the_model_as_a_flag() -> None:
    (one,) = reading(LLM_D.replace("vllmServe", "imageDefault"), "llm_d").services
    assert said(one) == {"model": "Qwen/Qwen3-32B", "tp": 2, "max_model_len": 32_768, "hardware": "h200-sxm-141gb"}


def test_a_command_of_its_own_sees_the_layout() -> None:
    text = LLM_D.replace(
        "modelCommand: vllmServe",
        'modelCommand: custom\n      command: ["sh", "-c", "vllm serve a/b -tp $TP_SIZE -dp $DP_SIZE"]',
    )
    text = text.replace("{tensor: 2}", "{tensor: 2, dataLocal: 4, workers: 2}").replace(
        '      args: [--max-model-len, "32768"]\n', ""
    )
    (one,) = reading(text, "llm_d").services
    assert (said(one)["tp"], said(one)["dp"]) == (2, 8)
    assert one.pod.pods is not None
    assert (one.pod.pods.value, one.pod.gpus and one.pod.gpus.value) == (2, 8)


def test_a_fault_of_llm_ds_values_has_its_place() -> None:
    text = LLM_D.replace("tensor: 2", "tensor: two")
    assert problem(text, "llm_d").startswith(f"{at(text, 'two')}: tensor: got 'two', want a whole number")


def test_both_roles_are_services_and_other_containers_none() -> None:
    text = (
        LLM_D.replace("prefill: {create: false}\n", "")
        + """\
prefill:
  nodeSelector: {nvidia.com/gpu.product: NVIDIA-L4}
  parallelism: {data: 4, dataLocal: 2}
  containers:
    - {name: vllm, image: "vllm/vllm-openai:v0.10.0", modelCommand: imageDefault, resources: {limits: {nvidia.com/gpu: 2}}}
    - {name: proxy, image: envoy, command: [envoy]}
"""
    )
    found = reading(text, "llm_d")
    assert [one.name.rpartition("/")[2] for one in found.services] == ["decode", "prefill"]
    prefill = found.services[1]
    assert (said(prefill)["dp"], said(prefill)["hardware"]) == (4, "l4")
    assert prefill.pod.pods is not None
    assert (prefill.pod.pods.value, prefill.pod.gpus and prefill.pod.gpus.text) == (2, "nvidia.com/gpu: 2")


@pytest.mark.parametrize(("uri", "model"), [("", None), ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B")])
def test_an_address_without_a_scheme_is_a_name(uri: str, model: str | None) -> None:
    text = LLM_D.replace('  uri: "hf://{{ .Values.modelArtifacts.name }}"\n', f"  uri: {uri}\n" if uri else "")
    (one,) = reading(text, "llm_d").services
    assert said(one).get("model") == model


def test_arguments_that_are_not_filled_in_are_a_problem() -> None:
    text = LLM_D.replace('"32768"', '"{{ .Values.len }}"')
    where = at(text, '"{{ .Values.len')
    assert problem(text, "llm_d").startswith(f"{where}: template: got {{{{ .Values.len }}}}")


def test_loras_are_switched_on_by_the_chart() -> None:
    one = service(VALUES.replace("requestGPU: 2", "requestGPU: 2\n      enableLoRA: true"), BY)
    assert "--enable-lora" in [flag.name for flag in one.flags]
    text = VALUES.replace("requestGPU: 2", 'requestGPU: "{{ gpus }}"')
    where = at(text, '"{{ gpus')
    assert problem(text, BY).startswith(f"{where}: template")
