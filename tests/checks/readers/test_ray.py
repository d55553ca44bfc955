"""Ray Serve LLM: configurations of models on their own, in Serve configs and in RayServices."""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent, indent

import pytest
from manifests import at, line_of, problem, reading, said, service

BY = "ray"

CONFIG = """\
model_loading_config:
  model_id: qwen
  model_source: Qwen/Qwen2.5-7B-Instruct
accelerator_type: A10G
engine_kwargs:
  max_model_len: 8192
  tensor_parallel_size: 2
  enable_prefix_caching: false
  gpu_memory_utilization: 0.85
deployment_config:
  num_replicas: 3
"""
SERVE = "applications:\n  - name: app\n    import_path: ray.serve.llm:build_openai_app\n    args:\n      llm_configs:\n        - "
IN_SERVE = SERVE + indent(CONFIG, " " * 10).lstrip()
SERVICE = (
    "apiVersion: ray.io/v1\nkind: RayService\nmetadata: {name: llm}\nspec:\n  serveConfigV2: |\n"
    + indent(IN_SERVE, " " * 4)
    + "  rayClusterConfig:\n    workerGroupSpecs:\n      - template:\n          spec:\n"
    + "            nodeSelector: {cloud.google.com/gke-accelerator: nvidia-l4}\n"
)
WANTED = {
    "model": "Qwen/Qwen2.5-7B-Instruct",
    "max_model_len": 8192,
    "tp": 2,
    "memory_utilization": 0.85,
    "hardware": "a10g",
}


@pytest.mark.parametrize("text", [CONFIG, IN_SERVE, SERVICE], ids=["config", "serve", "service"])
def test_a_configuration_is_read_wherever_it_stands(text: str) -> None:
    one = service(text, BY)
    assert (one.kind, one.engine.value) == ("ray", "vllm")
    assert one.name == ("llm/qwen" if text is SERVICE else "qwen")
    assert said(one) == WANTED
    assert one.features["prefix_caching"].value is False
    assert one.pod.replicas is not None
    assert one.pod.replicas.value == 3
    assert not one.pod.contained  # the operator of the cluster makes the pods


@pytest.mark.parametrize("text", [CONFIG, IN_SERVE, SERVICE], ids=["config", "serve", "service"])
def test_every_value_has_its_place_in_the_file(text: str) -> None:
    one = service(text, BY)
    assert one.options["model"].place == at(text, "Qwen/Qwen2.5")
    key = at(text, "tensor_parallel_size: 2")
    assert one.options["tp"].place == replace(key, column=key.column + len("tensor_parallel_size: "))
    assert one.options["max_model_len"].place == at(text, "8192")
    assert one.options["hardware"].place == at(text, "A10G")
    assert one.features["prefix_caching"].place == at(text, "false")


def test_json_is_read_as_yaml_is() -> None:
    text = '{"model_loading_config": {"model_id": "Qwen/Qwen3-8B"}, "engine_kwargs": {"max_model_len": 4096}}'
    assert said(service(text, BY, "m.json")) == {"model": "Qwen/Qwen3-8B", "max_model_len": 4096}


def test_several_models_and_roles_are_several_services() -> None:
    text = """\
    applications:
      - args:
          prefill_config: {model_loading_config: {model_id: a/b}}
          decode_config: {model_loading_config: {model_id: c/d}}
      - args: {llm_configs: [models/other.yaml, {model_loading_config: {model_id: e/f}}]}
      - {import_path: "app:main"}
    """
    found = reading(text, BY)
    assert [one.options["model"].value for one in found.services] == ["a/b", "c/d", "e/f"]
    assert dict(found.skipped) == {"LLMConfig in another file": 1, "Serve application": 1}


@pytest.mark.parametrize(
    ("loading", "model"),
    [
        ("{model_id: a/b}", "a/b"),
        ("{model_id: x, model_source: a/b}", "a/b"),
        ("{model_id: a/b, model_source: {bucket_uri: 's3://bucket/m'}}", "a/b"),
        ("{model_id: x, model_source: {bucket_uri: 's3://bucket/m'}}", "s3://bucket/m"),
    ],
)
def test_the_model_is_what_its_weights_are_called(loading: str, model: str) -> None:
    assert said(service(f"model_loading_config: {loading}", BY))["model"] == model


def test_another_engine_has_its_own_names() -> None:
    text = "llm_engine: SGLang\nmodel_loading_config: {model_id: a/b}\nengine_kwargs: {tp_size: 4, mem_fraction_static: 0.8}\n"
    one = service(text, BY)
    assert one.engine.value == "sglang"
    assert said(one) == {"model": "a/b", "tp": 4, "memory_utilization": 0.8}


def test_an_engine_that_nobody_knows_is_a_problem() -> None:
    said_of_it = problem(CONFIG + "llm_engine: NoSuch\n", BY)
    assert "engine: got nosuch, want one of" in said_of_it


# ------------------------------------------------------------------------------------------------ devices


@pytest.mark.parametrize(
    ("kind", "hardware"),
    [
        ("H100", "h100-sxm5-80gb"),
        ("A100-40G", "a100-sxm4-40gb"),
        ("A10", "a10g"),
        ("AMD-Instinct-MI300X-OAM", "mi300x"),
        ("TPU-V6E", "tpu-v6e"),
    ],
)
def test_accelerators_have_rays_names(kind: str, hardware: str) -> None:
    assert said(service(CONFIG.replace("A10G", kind), BY))["hardware"] == hardware


@pytest.mark.parametrize("kind", ["Intel-GAUDI", "X900"])
def test_an_accelerator_that_the_catalogue_lacks_is_said(kind: str) -> None:
    one = service(CONFIG.replace("A10G", kind), BY)
    assert one.pod.unknown_hardware is not None
    assert one.pod.unknown_hardware.value == kind
    assert "hardware" not in one.options


def test_without_an_accelerator_the_workers_nodes_tell() -> None:
    one = service("\n".join(line for line in SERVICE.split("\n") if "accelerator_type" not in line), BY)
    assert said(one)["hardware"] == "l4"
    assert one.options["hardware"].text == "cloud.google.com/gke-accelerator: nvidia-l4"


@pytest.mark.parametrize(
    ("group", "gpus"),
    [
        ("{bundles: [{GPU: 1, CPU: 2}, {GPU: 1}]}", 2),
        ("{bundles: [{GPU: 4}]}", 4),
        ("{bundles: [{CPU: 1}]}", None),
        ("{bundles: [{GPU: 0.5}]}", None),
        ("{bundle_per_worker: {GPU: 1}}", None),
        ("{bundles: [{GPU: many}]}", None),
    ],
)
def test_bundles_are_devices(group: str, gpus: int | None) -> None:
    one = service(f"{CONFIG}placement_group_config: {group}\n", BY)
    assert (one.pod.gpus and one.pod.gpus.value) == gpus


@pytest.mark.parametrize(
    ("given", "replicas"),
    [
        ("num_replicas: 2", 2),
        ("num_replicas: auto", None),
        ("autoscaling_config: {min_replicas: 2, max_replicas: 8}", 2),
        ("autoscaling_config: {min_replicas: 0}", None),
    ],
)
def test_copies_are_those_that_always_run(given: str, replicas: int | None) -> None:
    one = service(CONFIG.replace("num_replicas: 3", given), BY)
    assert (one.pod.replicas and one.pod.replicas.value) == replicas


# ------------------------------------------------------------------------------------------------ faults


def test_a_flag_that_the_engine_lacks_is_unknown() -> None:
    text = CONFIG.replace("max_model_len", "max_model_length")
    one = service(text, BY)
    unknown = [flag for flag in one.flags if not flag.known]
    assert [(flag.name, flag.value.place) for flag in unknown] == [("--max-model-length", at(text, "8192"))]


@pytest.mark.parametrize(
    ("old", "new", "part", "what"),
    [
        ("max_model_len: 8192", "max_model_len: long", "long", "max-model-len"),
        ("tensor_parallel_size: 2", "tensor_parallel_size: '{{ tp }}'", "'{{", "template: got {{ tp }}"),
        ("num_replicas: 3", "num_replicas: some", "some", "num_replicas: got 'some', want a whole number"),
    ],
)
@pytest.mark.parametrize("around", [CONFIG, SERVICE], ids=["config", "service"])
def test_one_fault_is_a_problem_with_its_place(around: str, old: str, new: str, part: str, what: str) -> None:
    text = around.replace(old, new)
    found = reading(text, BY)
    (fault,) = found.problems
    assert f"m.yaml:{line_of(text, part)}:" in str(fault)
    assert what in str(fault)


def test_broken_yaml_inside_has_the_files_line() -> None:
    text = SERVICE.replace("engine_kwargs:", "engine_kwargs: ]")
    (fault,) = reading(text, BY).problems
    assert str(fault).startswith(f"m.yaml:{line_of(text, 'engine_kwargs')}:")
    assert "malformed YAML" in str(fault)


def test_a_template_inside_that_is_no_yaml_is_said_to_be_one() -> None:
    text = SERVICE.replace("engine_kwargs:", "{{- if .Values.x }}")
    (fault,) = reading(text, BY).problems
    assert "template: got {{- if .Values.x }}, want a rendered manifest" in str(fault)


def test_a_service_without_models_is_passed_over() -> None:
    text = "apiVersion: ray.io/v1\nkind: RayService\nspec: {serveConfigV2: 'applications: [{import_path: a}]'}\n"
    assert dict(reading(text, BY).skipped) == {"RayService": 1}


@pytest.mark.parametrize(
    "text",
    [
        "model_loading_config: 3\n",
        "model_loading_config: {model_id: [a]}\nengine_kwargs: [1]\n",
        "apiVersion: ray.io/v1\nkind: RayService\nspec: {serveConfigV2: 5}\n",
        "apiVersion: ray.io/v1\nkind: RayService\nspec: {serveConfigV2: {applications: 3}}\n",
        "apiVersion: ray.io/v1\nkind: RayService\nspec: [1]\n",
    ],
)
def test_shapes_that_nobody_wants_give_no_traceback(text: str) -> None:
    reading(dedent(text), BY)


def test_other_objects_of_a_list_are_counted() -> None:
    inner = indent(SERVICE, "    ").replace("    apiVersion", "  - apiVersion", 1)
    text = f"apiVersion: v1\nkind: List\nitems:\n{inner}  - {{apiVersion: v1, kind: Secret}}\n"
    found = reading(text, BY)
    assert [one.name for one in found.services] == ["llm/qwen"]
    assert dict(found.skipped) == {"Secret": 1}
