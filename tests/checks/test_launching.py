"""Command lines and settings of engines, and the neutral record that they become."""

import json
import shlex

import pytest
from hypothesis import given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st

from roofplan.api.building import deployment
from roofplan.api.options import Options
from roofplan.checks.launcher_spec import launcher_of
from roofplan.checks.launching import read_command
from roofplan.checks.record import Place, Pod, Said
from roofplan.checks.starts import docker_bytes
from roofplan.errors import RoofplanError

PLACE = Place("x.yaml", 1, 1)


def command(words, *, image=None, environment=None, kind="compose", text="", **options):
    if isinstance(words, str):
        words = shlex.split(words)
    return read_command(
        [
            word if isinstance(word, Said) else Said(word, Place("x.yaml", index, 3), word)
            for index, word in enumerate(words, 2)
        ],
        environment={name: Said(value, PLACE, f"{name}={value}") for name, value in (environment or {}).items()},
        image=None if image is None else Said(image, PLACE, image),
        kind=kind,
        name="",
        place=PLACE,
        pod=options.pop("pod", Pod()),
        text=text,
        **options,
    )


def only(words, **options):
    reading = command(words, **options)
    assert not reading.problems
    (service,) = reading.services
    return service


def values(said):
    return {name: one.value for name, one in said.items()}


SERVE = "vllm serve meta-llama/Llama-3.1-8B-Instruct "


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("-tp 2 -pp 3 -dp 4 -pcp 2", {"tp": 2, "pp": 3, "dp": 4, "cp": 2}),
        (
            "--max-model-len 8k --max-num-seqs 64 --max-num-batched-tokens 4K",
            {"max_model_len": 8000, "max_num_seqs": 64, "max_num_batched_tokens": 4096},
        ),
        ("--gpu-memory-utilization 0.85 --block-size 32", {"memory_utilization": 0.85, "block_size": 32}),
        ("--kv-cache-memory-bytes 10g", {"kv_cache_bytes": 10**10}),
        ("--kv-cache-dtype fp8_e5m2", {"kv": "fp8"}),
        ("--kv-cache-dtype auto --max-model-len auto", {}),
        ("--enforce-eager", {"eager": True}),
        ("-cc.cudagraph_mode NONE", {"eager": True}),
        ("-cc.cudagraph_mode FULL", {}),
        ("--quantization fp8", {"weights": "fp8"}),
        ("--quantization awq", {}),
        ("--quantization fp8_per_block", {"weights": "fp8-block128"}),
        ("--dtype float32", {"weights": "fp32", "kv": "fp32", "activations": "fp32"}),
        ("--dtype float32 --kv-cache-dtype fp8", {"weights": "fp32", "kv": "fp8", "activations": "fp32"}),
        ("--dtype bfloat16", {}),
        ("--enable-lora --max-loras 4 --max-lora-rank 64", {"max_loras": 4, "max_lora_rank": 64}),
        ("--enable-lora", {"max_loras": 1}),
        ("--max-loras 4 --max-lora-rank 64", {}),
        ("--enable-expert-parallel -tp 4 -dp 2", {"tp": 4, "dp": 2, "ep": 8}),
        ("--enable-expert-parallel", {}),
    ],
)
def test_flags_become_options(words, options):
    found = values(only(SERVE + words).options)
    assert found.pop("model") == "meta-llama/Llama-3.1-8B-Instruct"
    assert found == options


@pytest.mark.parametrize(
    ("words", "features"),
    [
        ("--no-enable-prefix-caching", {"prefix_caching": False}),
        ("--enable-prefix-caching --no-enable-chunked-prefill", {"prefix_caching": True, "chunked_prefill": False}),
        ("--cpu-offload-gb 2.5", {"cpu_offload_bytes": 5 * 2**29}),
        ("--cpu-offload-gb 1e308", {"cpu_offload_bytes": 2**63}),
        ("--disable-sliding-window", {"sliding_window": False}),
        (
            "--trust-remote-code --revision abc --load-format dummy",
            {"trust_remote_code": True, "revision": "abc", "load_format": "dummy"},
        ),
        ("--quantization awq", {"quantization": "awq"}),
        (
            "--speculative-config.method ngram --speculative-config.num_speculative_tokens 3",
            {"speculation": {"method": "ngram", "k": 3}},
        ),
        (
            """--speculative-config '{"model": "x/EAGLE3-y", "num_speculative_tokens": 2}'""",
            {"speculation": {"method": "eagle3", "k": 2, "model": "x/EAGLE3-y"}},
        ),
        (
            """--speculative-config '{"model": "x/small", "num_speculative_tokens": 2}'""",
            {"speculation": {"method": "draft_model", "k": 2, "model": "x/small"}},
        ),
        ("""--hf-overrides '{"rope_scaling": {"factor": 4.0}}'""", {"context_length_factor": 4.0}),
        ("--hf-overrides.rope_parameters.factor 2", {"context_length_factor": 2}),
        ("--data-parallel-size-local 2", {"local_data_parallel": 2}),
        ("--nnodes 2 --distributed-executor-backend ray", {"nodes": 2, "executor": "ray"}),
        ("--disable-hybrid-kv-cache-manager", {"sliding_window": False}),
        ("--no-disable-hybrid-kv-cache-manager", {"sliding_window": True}),
        ("-dcp 2", {"decode_context_parallel": 2}),
    ],
)
def test_flags_become_features(words, features):
    assert values(only(SERVE + words).features) == features


def test_speculation_of_the_oldest_releases():
    service = only(
        "vllm serve m --speculative-model [ngram] --num-speculative-tokens 5", image="vllm/vllm-openai:v0.8.0"
    )
    assert service.features["speculation"].value == {"method": "ngram", "k": 5}


@pytest.mark.parametrize(
    ("words", "image", "engine", "model"),
    [
        ("vllm serve m", None, "vllm", "m"),
        ("vllm serve --model m", None, "vllm", "m"),
        ("/opt/venv/bin/vllm serve m", None, "vllm", "m"),
        ("python3 -m vllm.entrypoints.openai.api_server --model m", None, "vllm", "m"),
        ("python3.12 -u -m vllm.entrypoints.openai.api_server --model m", None, "vllm", "m"),
        ("exec nohup env A=1 vllm serve m", None, "vllm", "m"),
        ("uv run vllm serve m", None, "vllm", "m"),
        ("--model m", "vllm/vllm-openai:v0.19.0", "vllm@0.19.0", "m"),
        ("m --port 8000", "vllm/vllm-openai:v0.19.1-cu130", "vllm@0.19.1", "m"),
        ("--model m", "docker.io/vllm/vllm-openai:latest", "vllm", "m"),
        ("--model m", "registry.local:5000/mirror/vllm/vllm-openai:v0.11.0@sha256:abc", "vllm@0.11.0", "m"),
        ("--model m", "vllm/vllm-openai@sha256:abc", "vllm", "m"),
        ("vllm serve m", "vllm/vllm-openai:v0.8.5.post1", "vllm@0.8.5", "m"),
        ("vllm serve m", "acme/vllm:v0.8.5", "vllm", "m"),
        ("sh -c 'exec vllm serve m'", "vllm/vllm-openai:v0.19.0", "vllm@0.19.0", "m"),
        ("/bin/bash -lc 'cd /x && vllm serve m &'", None, "vllm", "m"),
        ("bash -c \"bash -c 'vllm serve m'\"", None, "vllm", "m"),
        ("docker run --rm --gpus all vllm/vllm-openai:v0.9.2 --model m", None, "vllm@0.9.2", "m"),
    ],
)
def test_where_an_engine_starts(words, image, engine, model):
    service = only(words, image=image)
    assert (service.engine.value, service.options["model"].value) == (engine, model)


@pytest.mark.parametrize(
    ("words", "image"),
    [
        ("sleep infinity", "vllm/vllm-openai:v0.19.0"),
        ("sleep infinity", None),
        ("echo vllm serve m", None),
        ("pip install vllm serve", None),
        ("/bin/bash", "vllm/vllm-openai:v0.19.0"),
        ("sh -c 'sleep 1'", "vllm/vllm-openai:v0.19.0"),
        ("python3 -m http.server", None),
        ("vllm bench serve --model m", None),
        ("--model m", "acme/other:v1"),
        ("", None),
    ],
)
def test_where_none_starts(words, image):
    reading = command(words, image=image)
    assert not reading.services
    assert not reading.problems


def test_an_image_does_not_start_by_itself_where_its_program_is_replaced():
    assert not command("serve.sh --x", image="vllm/vllm-openai:v0.19.0", replaces_entrypoint=True).services


def test_an_image_without_arguments_serves_its_default_model():
    service = only("", image="vllm/vllm-openai:v0.19.0")
    assert "model" not in service.options


def test_a_shell_text_has_its_places_in_the_file():
    text = "command:\n  - sh\n  - -c\n  - |\n    export TP=2\n    vllm serve m \\\n      -tp $TP\n"
    words = [Said("sh", Place("x.yaml", 2, 5)), Said("-c", Place("x.yaml", 3, 5))]
    words.append(Said("export TP=2\nvllm serve m \\\n  -tp $TP\n", Place("x.yaml", 4, 5)))
    service = only(words, text=text)
    assert str(service.options["tp"].place) == "x.yaml:7:7"
    assert service.options["tp"].value == 2
    assert str(service.place) == "x.yaml:6:5"


def test_variables_of_the_container_are_known_to_a_shell_only():
    environment = {"MODEL": "org/m", "TP": "4"}
    service = only(["sh", "-c", "vllm serve $MODEL -tp ${TP:-1}"], environment=environment)
    assert values(service.options) == {"model": "org/m", "tp": 4}
    assert only(["vllm", "serve", "$MODEL"], environment=environment).options["model"].value == "$MODEL"


def test_what_only_a_shell_would_tell_is_a_problem_where_it_matters():
    reading = command(["sh", "-c", "vllm serve m --api-key $KEY -tp $(nproc)"])
    assert [str(problem) for problem in reading.problems] == [
        "x.yaml:4:35: command: got $(nproc), want a value that is known without running it (write its value)"
    ]
    assert values(reading.services[0].options) == {"model": "m"}


def test_flags_keep_how_they_were_written():
    service = only("vllm serve m --max_model_len=1K -tp 2 --no-enable-prefix-caching --bogus x")
    assert [(flag.name, flag.value.value, flag.value.text, flag.known) for flag in service.flags] == [
        ("--model", "m", "m", True),
        ("--max-model-len", 1024, "--max_model_len=1K", True),
        ("--tensor-parallel-size", 2, "-tp 2", True),
        ("--enable-prefix-caching", False, "--no-enable-prefix-caching", True),
        ("--bogus", "x", "--bogus x", False),
    ]


def test_a_flag_said_twice_holds_as_said_last_and_is_a_problem_where_they_differ():
    reading = command("vllm serve m -tp 2 --tensor-parallel-size 4 --port 1 --port 2 -pp 2 -pp 2")
    assert values(reading.services[0].options) == {"model": "m", "tp": 4, "pp": 2}
    (problem,) = reading.problems
    assert str(problem).startswith(
        "x.yaml:7:3: --tensor-parallel-size: got --tensor-parallel-size 4 after -tp 2, want it once "
    )
    assert "x.yaml:5:3" in str(problem)


def test_a_switch_on_and_off_is_a_problem():
    reading = command("vllm serve m --enable-prefix-caching --no-enable-prefix-caching")
    assert len(reading.problems) == 1
    assert reading.services[0].features["prefix_caching"].value is False


def test_two_models_are_a_problem():
    reading = command("vllm serve a --model b")
    assert len(reading.problems) == 1
    assert reading.services[0].options["model"].value == "b"


@pytest.mark.parametrize(
    "words",
    [
        "-tp two",
        "--max-model-len 1.5K",
        "--max-model-len",
        "--enforce-eager=true",
        "--kv-cache-dtype int3",
        "stray",
        "--speculative-config '{'",
    ],
)
def test_a_value_that_cannot_be_read_is_a_problem_at_its_place(words):
    reading = command(SERVE + words)
    assert len(reading.problems) == 1
    assert str(reading.problems[0]).startswith("x.yaml:5:3: ")
    assert values(reading.services[0].options) == {"model": "meta-llama/Llama-3.1-8B-Instruct"}


def test_a_model_is_never_read_from_standard_input():
    reading = command("vllm serve -")
    assert "model" not in reading.services[0].options
    assert "standard input" in str(reading.problems[0])


def test_docker_run_says_what_it_runs_on():
    service = only(
        "docker run --gpus '\"device=0,2\"' --shm-size=16g --ipc host -e VLLM_USE_V1=0 vllm/vllm-openai:v0.8.5 --model m -tp 2"
    )
    assert service.pod.gpus.value == 2
    assert service.pod.shm_bytes.value == 16 * 2**30
    assert service.pod.host_ipc
    assert service.pod.contained
    assert service.features["engine_v1"].value is False
    assert only("docker run --gpus 4 vllm/vllm-openai --model m").pod.gpus.value == 4
    assert only("docker run --gpus all vllm/vllm-openai --model m").pod.gpus is None


def test_visible_devices_are_those_of_the_service():
    assert only("vllm serve m", environment={"CUDA_VISIBLE_DEVICES": "0,1,3"}).pod.gpus.value == 3
    assert only("vllm serve m", environment={"CUDA_VISIBLE_DEVICES": "GPU-abc"}).pod.gpus is None
    assert only("env CUDA_VISIBLE_DEVICES=1 vllm serve m").pod.gpus.value == 1
    assert (
        only("vllm serve m", environment={"CUDA_VISIBLE_DEVICES": "0"}, pod=Pod(gpus=Said(8, PLACE))).pod.gpus.value
        == 8
    )


def test_variables_that_vllm_reads():
    service = only(
        "vllm serve m", environment={"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1", "VLLM_ATTENTION_BACKEND": "FLASHINFER"}
    )
    assert values(service.features) == {"long_context_allowed": True, "attention_backend": "FLASHINFER"}


def test_hardware_of_the_pod_is_an_option():
    service = only("vllm serve m", pod=Pod(hardware=Said("h100-sxm", PLACE)))
    assert service.options["hardware"].value == "h100-sxm"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16g", 2**34),
        ("16GB", 2**34),
        ("64m", 2**26),
        ("1024", 1024),
        ("1.5g", 3 * 2**29),
        ("2 kb", 2048),
        ("8b", 8),
        ("x", None),
        ("", None),
        ("g", None),
    ],
)
def test_sizes_as_docker_reads_them(text, size):
    assert docker_bytes(text) == size


def test_what_is_read_can_be_planned():
    service = only(
        SERVE + "-tp 2 --max-model-len 8k --kv-cache-dtype fp8 --max-num-seqs 64", image="vllm/vllm-openai:v0.19.0"
    )
    options = values(service.options)
    built = deployment(options.pop("model"), "h100-sxm", engine=service.engine.value, **options)
    assert (built.layout.tp, built.max_model_len, built.engine.version) == (2, 8000, "0.19.0")
    assert json.dumps(values(service.features)) == "{}"


@pytest.mark.parametrize(
    "words",
    [
        "docker run --gpus 2 --entrypoint bash acme/image:1 -lc 'exec vllm serve m -tp 2'",
        "docker run --gpus 2 --entrypoint=/bin/sh vllm/vllm-openai:v0.19.0 -c 'exec vllm serve m -tp 2'",
        "docker run --gpus=2 acme/image:1 vllm serve m -tp 2",
        "docker run --gpus 2 --entrypoint vllm acme/image:1 serve m -tp 2",
        "sudo podman run --gpus 2 acme/image:1 python3 -m vllm.entrypoints.openai.api_server --model m -tp 2",
    ],
)
def test_containers_of_any_image_that_start_an_engine(words):
    service = only(words, environment={"CUDA_VISIBLE_DEVICES": "0"})
    assert values(service.options) == {"model": "m", "tp": 2}
    assert service.pod.gpus.value == 2
    assert service.pod.contained


WORDS = st.one_of(
    st.sampled_from(
        [
            *launcher_of("vllm").flags_in(None),
            "--",
            "-",
            "--speculative-config.a.b",
            "--hf-overrides.x+",
            "--no-",
            "-tp=",
            "--=",
        ]
    ),
    st.sampled_from(
        [
            "1",
            "1k",
            "-1",
            "{}",
            '{"a": [1]}',
            "true",
            "m",
            "$(X)",
            "sh",
            "-c",
            "docker",
            "run",
            "vllm/vllm-openai:v0.19.0",
        ]
    ),
    st.text(max_size=12),
)


@settings_of_hypothesis(max_examples=300, deadline=None)
@given(st.lists(WORDS, max_size=12), st.sampled_from(["v0.8.0", "v0.19.0", "v0.33.0", "v9", "latest"]), st.booleans())
def test_any_words_are_read_without_a_fault(words, tag, dotted_first):
    start = ["vllm", "serve", "m"] if dotted_first else []
    reading = command([*start, *words], image=f"vllm/vllm-openai:{tag}", kind="kubernetes")
    assert all(isinstance(problem, RoofplanError) for problem in reading.problems)
    for service in reading.services:
        assert all(name in Options.__annotations__ or name in {"model", "hardware"} for name in service.options)
