"""Compose files: commands as compose reads them, devices, shared memory, and variables that only a shell would know."""

from __future__ import annotations

import time
from textwrap import dedent

import pytest
from manifests import at, line_of, problem, reading, readings, said, service

from roofplan.checks.interpolation import filled
from roofplan.checks.record import Place, Said

BY = "compose"
GIB = 2**30

FULL = """\
services:
  llm:
    image: vllm/vllm-openai:v0.9.2
    command: --model Qwen/Qwen3-32B --tensor-parallel-size 2 --max-model-len 16k
    shm_size: 16gb
    environment:
      - HF_TOKEN=${HF_TOKEN}
    deploy:
      replicas: 3
      resources:
        reservations:
          devices:
            - driver: nvidia
              count: 2
              capabilities: [gpu]
  web:
    image: nginx
    ports: ["80:80"]
"""


def changed(old: str, new: str) -> str:
    """The full file with one thing changed."""
    assert old in FULL
    return FULL.replace(old, new)


def test_a_service_gives_its_command_devices_and_copies() -> None:
    found = reading(FULL, BY)
    (one,) = found.services
    assert (one.kind, one.name, one.engine.value) == ("compose", "llm", "vllm@0.9.2")
    assert said(one) == {"model": "Qwen/Qwen3-32B", "tp": 2, "max_model_len": 16_000}
    assert one.pod.gpus is not None
    assert (one.pod.gpus.value, one.pod.gpus.place) == (2, at(FULL, "2\n              cap"))
    assert one.pod.replicas is not None
    assert one.pod.replicas.value == 3
    assert one.pod.shm_bytes is not None
    assert (one.pod.shm_bytes.value, one.pod.shm_bytes.place) == (16 * GIB, at(FULL, "16gb"))
    assert one.pod.contained
    assert dict(found.skipped) == {"compose service": 1}


def test_words_of_one_text_have_their_own_places() -> None:
    one = service(FULL.partition("  web:")[0], BY)
    assert one.options["tp"].place == at(FULL, "--tensor-parallel-size")
    assert one.options["max_model_len"].place == at(FULL, "--max-model-len")


FOLDED = """\
services:
  llm:
    image: vllm/vllm-openai:${TAG:-v0.9.2}
    command: >
      --model ${MODEL:-Qwen/Qwen3-32B}
      --max-model-len ${LEN-16K}

      --gpu-memory-utilization 0.9
"""


def test_defaults_of_variables_are_their_values() -> None:
    one = service(FOLDED, BY)
    assert one.engine.value == "vllm@0.9.2"
    assert said(one) == {"model": "Qwen/Qwen3-32B", "max_model_len": 16_384, "memory_utilization": 0.9}


def test_words_of_a_folded_text_have_the_lines_that_they_stand_in() -> None:
    options = service(FOLDED, BY).options
    wanted = {"model": "--model", "max_model_len": "--max-model-len", "memory_utilization": "--gpu-memory"}
    assert {name: options[name].place.line for name in wanted} == {
        name: line_of(FOLDED, part) for name, part in wanted.items()
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a$$b", "a$b"),
        ("$${A}", "${A}"),
        ("${A:-x}", "x"),
        ("${A-x}", "x"),
        ("${A:-}", ""),
        ("${A:-${B:-y}}", "y"),
        ("${A:+x}", ""),
        ("${A:?needed}", "${A}"),
        ("$A/b", "${A}/b"),
        ("${A}", "${A}"),
        ("plain", "plain"),
        ("${A:-$$x}", "$x"),
        ("{$}", "{$}"),
    ],
)
def test_variables_are_filled_in_as_compose_does(text: str, value: str) -> None:
    assert filled(Said(text, Place("m.yaml", 1, 1))).value == value


def test_filling_in_takes_no_longer_than_the_text_is_long() -> None:
    text = "${A:-" * 10_000 + "}" * 10_000
    start = time.process_time()
    filled(Said(text, Place("m.yaml", 1, 1)))
    assert time.process_time() - start < 2


def test_a_setting_that_is_an_unknown_variable_is_a_problem() -> None:
    text = FOLDED.replace("${MODEL:-Qwen/Qwen3-32B}", "${MODEL}")
    said_of_it = problem(text, BY)
    assert said_of_it.startswith(
        f"m.yaml:{line_of(text, '--model')}:7: variable: got ${{MODEL}}, want a value, or a default"
    )


def test_an_unknown_variable_that_changes_nothing_is_none() -> None:
    text = changed("--max-model-len 16k", "--api-key ${KEY}").partition("  web:")[0]
    assert said(service(text, BY)) == {"model": "Qwen/Qwen3-32B", "tp": 2}


@pytest.mark.parametrize(
    "command",
    [
        "command: [--model, Qwen/Qwen3-32B, -tp, '2']",
        "command: --model 'Qwen/Qwen3-32B' -tp 2",
        "entrypoint: [vllm, serve]\n    command: Qwen/Qwen3-32B -tp=2",
        "entrypoint: vllm serve\n    command: [Qwen/Qwen3-32B, --tensor_parallel_size, 2]",
        "entrypoint: []\n    command: vllm serve Qwen/Qwen3-32B -tp 2",
        'entrypoint: ["/bin/bash", "-c"]\n    command: ["vllm serve Qwen/Qwen3-32B -tp 2"]',
        "command: [--model, $$MODEL, -tp, 2]\n    entrypoint: sh -c 'vllm serve Qwen/Qwen3-32B -tp 2'",
    ],
)
def test_a_command_is_split_as_compose_splits_it(command: str) -> None:
    text = f"services:\n  llm:\n    image: vllm/vllm-openai\n    {command}\n"
    assert said(service(text, BY)) == {"model": "Qwen/Qwen3-32B", "tp": 2}


def test_an_entrypoint_of_its_own_replaces_that_of_the_image() -> None:
    text = "services:\n  llm:\n    image: vllm/vllm-openai\n    entrypoint: [sleep]\n    command: [--model, x]\n"
    assert dict(reading(text, BY).skipped) == {"compose service": 1}


def test_a_shell_sees_the_variables_of_the_service() -> None:
    text = """\
    services:
      llm:
        image: vllm/vllm-openai
        entrypoint: [sh, -c]
        command: ["vllm serve $$MODEL --max-model-len $${LEN}"]
        environment: {MODEL: Qwen/Qwen3-32B, LEN: 8192, OTHER: null}
    """
    assert said(service(text, BY)) == {"model": "Qwen/Qwen3-32B", "max_model_len": 8192}


# ------------------------------------------------------------------------------------------------ devices

DEVICES = FULL[FULL.index("    deploy:") : FULL.index("  web:")]


@pytest.mark.parametrize(
    ("given", "gpus"),
    [
        (
            "deploy: {resources: {reservations: {devices: [{driver: nvidia, device_ids: ['0', '3'], capabilities: [gpu]}]}}}",
            2,
        ),
        ("deploy: {resources: {reservations: {devices: [{count: 4, capabilities: [gpu]}]}}}", 4),
        ("deploy: {resources: {reservations: {devices: [{count: '4', capabilities: [gpu]}]}}}", 4),
        ("deploy: {resources: {reservations: {devices: [{count: '${N:-4}', capabilities: [gpu]}]}}}", 4),
        ("deploy: {resources: {reservations: {devices: [{count: all, capabilities: [gpu]}]}}}", None),
        ("deploy: {resources: {reservations: {devices: [{count: 1, capabilities: [tpm]}]}}}", None),
        (
            "deploy: {resources: {reservations: {generic_resources: [{discrete_resource_spec: {kind: NVIDIA-GPU, value: 2}}]}}}",
            2,
        ),
        ("gpus: all", None),
        ("gpus: [{driver: nvidia, count: 2}]", 2),
        ("devices: ['nvidia.com/gpu=0', 'nvidia.com/gpu=1']", 2),
        ("devices: ['nvidia.com/gpu=all']", None),
        ("runtime: nvidia\n    environment: {NVIDIA_VISIBLE_DEVICES: '0,1,2'}", 3),
        ("runtime: nvidia\n    environment: [NVIDIA_VISIBLE_DEVICES=all]", None),
        ("environment: [NVIDIA_VISIBLE_DEVICES=0]", None),
        ("restart: always", None),
    ],
)
def test_devices_are_counted_where_the_file_counts_them(given: str, gpus: int | None) -> None:
    text = f"services:\n  llm:\n    image: vllm/vllm-openai\n    command: --model Qwen/Qwen3-32B\n    {given}\n"
    one = service(text, BY)
    assert (one.pod.gpus and one.pod.gpus.value) == gpus


@pytest.mark.parametrize(
    ("given", "size", "host"),
    [
        ("shm_size: 8g", 8 * GIB, False),
        ("shm_size: 8GB", 8 * GIB, False),
        ("shm_size: 512m", GIB // 2, False),
        ("shm_size: 1073741824", GIB, False),
        ("shm_size: '${SHM:-2g}'", 2 * GIB, False),
        ("tmpfs: ['/dev/shm:size=4g']", 4 * GIB, False),
        ("volumes: [{type: tmpfs, target: /dev/shm, tmpfs: {size: 4294967296}}]", 4 * GIB, False),
        ("ipc: host", None, True),
        ("volumes: ['/dev/shm:/dev/shm']", None, True),
        ("volumes: [{type: bind, source: /dev/shm, target: /dev/shm}]", None, True),
        ("ipc: private", None, False),
    ],
)
def test_shared_memory_is_what_the_file_says(given: str, size: int | None, host: bool) -> None:
    text = f"services:\n  llm:\n    image: vllm/vllm-openai\n    command: --model Qwen/Qwen3-32B\n    {given}\n"
    one = service(text, BY)
    assert ((one.pod.shm_bytes and one.pod.shm_bytes.value), one.pod.host_ipc) == (size, host)


# ------------------------------------------------------------------------------------------------ sharing within the file


def test_a_service_may_extend_another() -> None:
    text = """\
    services:
      base:
        image: vllm/vllm-openai:v0.9.2
        environment: {LEN: "8192"}
        shm_size: 16g
      llm:
        extends: {service: base}
        entrypoint: [sh, -c]
        command: ["vllm serve Qwen/Qwen3-32B --max-model-len $$LEN"]
        environment: [A=b]
    """
    found = reading(text, BY)
    one = next(one for one in found.services if one.name == "llm")
    assert said(one) == {"model": "Qwen/Qwen3-32B", "max_model_len": 8192}
    assert one.pod.shm_bytes is not None


def test_services_that_extend_each_other_end() -> None:
    text = "services:\n  a: {extends: b}\n  b: {extends: a}\n  c: {extends: c}\n"
    assert dict(reading(text, BY).skipped) == {"compose service": 3}


def test_anchors_and_merge_keys_are_followed() -> None:
    text = """\
    x-llm: &llm
      image: vllm/vllm-openai:v0.9.2
      shm_size: 16g
    services:
      a:
        <<: *llm
        command: --model Qwen/Qwen3-32B
      b:
        <<: *llm
        command: --model Qwen/Qwen3-8B
    """
    found = reading(text, BY)
    assert [(one.name, one.options["model"].value, one.pod.shm_bytes is not None) for one in found.services] == [
        ("a", "Qwen/Qwen3-32B", True),
        ("b", "Qwen/Qwen3-8B", True),
    ]


# ------------------------------------------------------------------------------------------------ faults


@pytest.mark.parametrize(
    ("old", "new", "part", "what"),
    [
        ("16gb", "lots", "lots", "shm_size: got lots, want a size such as 16gb"),
        ("16gb", "[1]", "[1]", "shm_size: got nothing, want a size such as 16gb"),
        ("count: 2", "count: two", "two", "count: got two, want a whole number"),
        ("replicas: 3", "replicas: -1", "-1", "replicas: got -1, want a whole number"),
        ("Qwen/Qwen3-32B", "'Qwen", "--model", "quote"),
        (
            "--max-model-len 16k",
            "--max-model-len {{ LEN }}",
            "--model",
            "template: got {{ LEN }}, want a rendered manifest",
        ),
    ],
)
def test_one_fault_is_one_problem_with_its_place(old: str, new: str, part: str, what: str) -> None:
    text = changed(old, new).partition("  web:")[0]
    said_of_it = problem(text, BY)
    assert said_of_it.startswith(f"m.yaml:{line_of(text, part)}:"), said_of_it
    assert what in said_of_it


@pytest.mark.parametrize(
    "text",
    [
        "services: {a: {image: nginx}, b: null, c: [1]}",
        "services: {a: {build: ., command: 5}}",
        "services: {a: {image: {b: c}, command: {a: b}, environment: 5, volumes: {a: b}, deploy: [x]}}",
        "services: {a: {image: vllm/vllm-openai, entrypoint: [], command: null}}",
    ],
)
def test_shapes_that_nobody_wants_are_passed_over(text: str) -> None:
    found = reading(text, BY)
    assert (found.services, found.problems) == ((), ())


@pytest.mark.parametrize("text", ["services: 3", "services: {a: 1}", "a: b", "- 1", "services:\n  a: {url: x}\n"])
def test_what_is_no_compose_file_is_not_taken_for_one(text: str) -> None:
    assert [by for by, _ in readings(dedent(text))] == []
