"""What decides between a finding and none in the rules about memory, layout and configuration: services made by hand."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofplan.api.options import Options
from roofplan.checks.checked import Checked, Unbuilt
from roofplan.checks.record import Flag, Place, Pod, Said, Service
from roofplan.checks.rules import all_rules

RULES = {rule.id: rule for rule in all_rules()}
FILE = "service.yaml"
FEATURES = [
    "cpu_offload_bytes",
    "speculation",
    "quantization",
    "context_length_factor",
    "chunked_prefill",
    "dtype",
    "trust_remote_code",
]


def said(value: Any, line: int = 1) -> Said[Any]:
    return Said(value, Place(FILE, line, 1))


def service(engine: str = "vllm@0.19", kind: str = "kubernetes", **changes: Any) -> Service:
    """A service; ``limits``, ``features`` and ``flags`` are plain mappings, what is left are options, each on a line of its own."""
    names = {name: changes.pop(name) for name in ("pod", "limits", "features", "flags") if name in changes}
    options = {"model": "llama-3.1-8b", "hardware": "h100-sxm", **changes}
    return Service(
        kind=kind,
        name="chat",
        place=Place(FILE, 1, 1),
        engine=said(engine, 2),
        options={name: said(value, line) for line, (name, value) in enumerate(options.items(), 3) if value is not None},
        features={name: said(value, 50) for name, value in names.get("features", {}).items()},
        limits={name: said(value, 60) for name, value in names.get("limits", {}).items()},
        flags=tuple(Flag(name, said(value, 70)) for name, value in names.get("flags", {}).items()),
        pod=names.get("pod", Pod()),
    )


def found(rule: str, one: Service) -> list[Any]:
    try:
        return list(RULES[rule].check(Checked(one)))
    except Unbuilt:
        return []


@pytest.mark.parametrize("engine", ["plain", "vllm@0.19", "vllm@0.26", "sglang@0.5", "tensorrt-llm@0.19", "llama.cpp"])
def test_parts_of_memory_add_up_to_what_is_lacking(engine: str) -> None:
    (one,) = found("does-not-fit", service(engine, model="llama-3.1-70b"))
    gib = [
        float(size) * {"GiB": 1, "MiB": 1 / 1024}[unit] for size, unit in re.findall(r"([\d.]+) (GiB|MiB)", one.message)
    ]
    *parts, room, total, lacking = gib
    assert room <= total
    assert sum(parts) - room == pytest.approx(lacking, abs=0.1)  # four digits of each are printed


def test_too_large_a_cache_is_at_its_own_line() -> None:
    (one,) = found("does-not-fit", service(kv_cache_bytes="70 GiB"))
    assert one.place.line == 5
    assert "cache of 70" in one.message


@pytest.mark.parametrize(("wanted", "fits", "over"), [(True, 1, 0), (False, 0, 1), (None, 0, 1)])
def test_sequences_that_do_not_fit_are_an_error_where_the_file_says_that_it_fits(
    wanted: bool | None, fits: int, over: int
) -> None:
    limits = {} if wanted is None else {"fits": wanted}
    one = service(prompt=8000, output=192, concurrency=512, max_model_len=8192, limits=limits)
    assert len(found("does-not-fit", one)) == fits
    assert len(found("concurrency-over-capacity", one)) == over


def test_engine_that_admits_fewer_is_told_with_the_number_to_set() -> None:
    (one,) = found("concurrency-over-capacity", service(prompt=500, output=100, concurrency=64, max_num_seqs=16, dp=2))
    assert "the engine admits 32" in one.message
    assert one.fix == "--max-num-seqs 32"
    assert one.severity == "warning"


def test_sequences_times_longest_length_is_a_note() -> None:
    (one,) = found("concurrency-over-capacity", service(max_model_len=32768, max_num_seqs=256))
    assert one.severity == "note"
    assert not found("concurrency-over-capacity", service(max_model_len=32768))
    assert not found("concurrency-over-capacity", service(max_model_len=1024, max_num_seqs=16))


def test_longest_sequence_that_the_engine_fits_itself_is_no_finding() -> None:
    one = service(hardware="l4", model="llama-3.1-8b")
    (finding,) = found("kv-less-than-one-sequence", one)
    assert "the limit of llama-3.1-8b" in finding.message
    assert not found("kv-less-than-one-sequence", service(hardware="l4", flags={"--max-model-len": "auto"}))


def test_proposed_longest_sequence_fits() -> None:
    (one,) = found("kv-less-than-one-sequence", service(hardware="l4"))
    proposed = int(one.fix.split()[-1])
    assert not found("kv-less-than-one-sequence", service(hardware="l4", max_model_len=proposed))
    assert found("kv-less-than-one-sequence", service(hardware="l4", max_model_len=proposed + 1024))


@pytest.mark.parametrize(
    ("engine", "severity"),
    [("vllm@0.19", "error"), ("sglang@0.5", "error"), ("llama.cpp", "warning"), ("plain", "warning")],
)
def test_context_beyond_the_model_is_an_error_where_the_engine_refuses(engine: str, severity: str) -> None:
    (one,) = found("context-exceeds-model", service(engine, max_model_len=262144))
    assert one.severity == severity


def test_context_beyond_the_model_needs_no_device() -> None:
    assert found("context-exceeds-model", service(hardware=None, max_model_len=131073))
    assert not found("context-exceeds-model", service(hardware=None, max_model_len=131072))


def test_context_beyond_the_model_that_is_allowed_by_a_variable_is_a_warning() -> None:
    (one,) = found("context-exceeds-model", service(max_model_len=262144, features={"long_context_allowed": True}))
    assert one.severity == "warning"


def test_stretched_positions_reach_further() -> None:
    stretched = {"context_length_factor": 2.0}
    assert not found("context-exceeds-model", service(max_model_len=262144, features=stretched))
    assert found("context-exceeds-model", service(max_model_len=262145, features=stretched))


def test_workload_beyond_the_model_is_an_error() -> None:
    (one,) = found("context-exceeds-model", service(prompt=131000, output=73))
    assert one.severity == "error"
    assert not found("context-exceeds-model", service(prompt=131000, output=72))


def test_workload_shorter_than_the_usual_one_is_planned_within_a_short_context() -> None:
    one = service(max_model_len=512)
    assert Checked(one).deployment.workload.length == 512
    assert not found("workload-exceeds-context", one)
    assert not found("cannot-be-planned", one)


def test_devices_that_become_ranks_must_divide_too() -> None:
    (one,) = found("tp-does-not-divide", service(model="qwen2.5-7b", devices=8))
    assert "28 heads" in one.message
    assert not found("cannot-be-planned", service(model="qwen2.5-7b", devices=8))


def test_proposed_ranks_divide() -> None:
    (one,) = found("tp-does-not-divide", service(model="qwen2.5-7b", tp=8))
    assert one.fix == "--tensor-parallel-size 7"
    assert not found("tp-does-not-divide", service(model="qwen2.5-7b", tp=7))


def test_latent_cache_on_every_rank_is_a_note() -> None:
    (one,) = found("kv-heads-replicated", service(model="deepseek-v3", hardware="h200-sxm", tp=8))
    assert one.severity == "note"
    assert one.figures["copies"] == 8


def test_copies_of_heads_that_the_weights_need_are_a_note() -> None:
    (one,) = found("kv-heads-replicated", service(model="qwen3-235b-a22b", tp=8, max_model_len=8192))
    assert (one.severity, one.fix, one.figures["copies"]) == ("note", "", 2)


# ------------------------------------------------------------------------------------------------ pods


def pod(gpus: int = 4, **changes: Any) -> Pod:
    return Pod(gpus=said(gpus, 80), contained=True, **changes)


@pytest.mark.parametrize(
    ("one", "idle", "lacking"),
    [
        (service(tp=4, pod=pod(4)), False, False),
        (service(tp=2, pod=pod(4)), True, False),
        (service(tp=2, pp=2, pod=pod(4)), False, False),
        (service(tp=8, pod=pod(4)), False, True),
        (service(tp=8, pod=pod(4, pods=said(2))), False, False),  # LeaderWorkerSet of two
        (service(tp=4, pod=pod(4, pods=said(2))), True, False),
        (service(dp=8, pod=pod(4), features={"local_data_parallel": 4}), False, False),
        (service(dp=8, pod=pod(4), features={"local_data_parallel": 2}), True, False),
        (service(tp=8, pod=pod(4), features={"nodes": 2}), False, False),
        (service(tp=8, pod=pod(4), features={"executor": "ray"}), False, False),
        (service("llama.cpp", pod=pod(4)), False, False),  # spreads its layers over all
        (service(pod=Pod(contained=True)), False, False),  # nothing is said of devices
    ],
)
def test_devices_of_a_pod_against_its_ranks(one: Service, idle: bool, lacking: bool) -> None:
    assert bool(found("gpus-requested-not-used", one)) is idle
    assert bool(found("gpu-limit-mismatch", one)) is lacking


def test_a_pod_that_no_node_can_hold_is_told() -> None:
    label = Said("a10g", Place(FILE, 81, 1), "node.kubernetes.io/instance-type: g5.12xlarge")
    (one,) = found("gpu-limit-mismatch", service(tp=8, pod=pod(8, node_gpus=4, hardware=label)))
    assert (one.place.line, one.figures) == (80, {"requested": 8, "node_gpus": 4})
    assert "instance-type: g5.12xlarge" in one.message
    assert not found("gpu-limit-mismatch", service(tp=4, pod=pod(4, node_gpus=4, hardware=label)))


def test_fewer_ranks_are_proposed_where_they_fit() -> None:
    assert found("gpu-limit-mismatch", service(tp=4, pod=pod(2)))[0].fix == "--tensor-parallel-size 2"
    assert found("gpu-limit-mismatch", service(model="llama-3.1-70b", tp=4, pod=pod(1)))[0].fix == ""


def test_all_requested_devices_are_proposed_where_heads_divide() -> None:
    assert found("gpus-requested-not-used", service(tp=2, pod=pod(4)))[0].fix == "--tensor-parallel-size 4"
    assert found("gpus-requested-not-used", service(model="qwen2.5-7b", tp=4, pod=pod(8)))[0].fix == ""


RING = 100 * 2**20  # of messages, and two segments of NCCL a rank: the sources stand in the rule
SEGMENT = 9_637_888


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (service(tp=2, pod=pod(2)), True),
        (service(tp=1, pod=pod(1)), False),
        (service(tp=2, pod=pod(2, host_ipc=True)), False),
        (service(tp=2, pod=Pod(gpus=said(2))), False),  # no container: the machine's own shared memory
        (service(tp=2, pod=pod(2, shm_bytes=said(RING + 4 * SEGMENT))), False),
        (service(tp=2, pod=pod(2, shm_bytes=said(RING + 4 * SEGMENT - 1))), True),
        (service(tp=4, pod=pod(4, shm_bytes=said(RING + 4 * SEGMENT))), True),
        (service("sglang@0.5", tp=2, pod=pod(2)), True),
        (service("llama.cpp", tp=2, pod=pod(2)), False),
    ],
)
def test_shared_memory_of_a_container(one: Service, expected: bool) -> None:
    assert bool(found("missing-shm", one)) is expected


# ------------------------------------------------------------------------------------------------ formats and settings


@pytest.mark.parametrize(
    ("one", "severity"),
    [
        (service(hardware="t4", model="qwen2.5-3b", weights="fp8"), "error"),  # 7.5, and fp8 from 8.0 on
        (service(hardware="a100-80gb", weights="fp8"), "note"),  # unpacked
        (service(hardware="h100-sxm", weights="fp8"), None),
        (service(hardware="v100-32gb", weights="int8"), "error"),  # 7.0, and int8 from 7.5 on
        (service(hardware="t4", model="qwen2.5-3b", weights="int8"), None),
        (service(hardware="v100-32gb", features={"quantization": "awq"}, weights="int4-g128"), "error"),
        (service(hardware="t4", model="qwen2.5-3b", features={"quantization": "awq"}, weights="int4-g128"), None),
        (
            service(hardware="t4", model="qwen2.5-3b", features={"quantization": "gptq_marlin"}, weights="int4-g128"),
            "error",
        ),
        (service(hardware="t4", model="qwen2.5-3b", features={"dtype": "bfloat16"}), "error"),
        (service(hardware="t4", model="qwen2.5-3b"), None),  # auto falls back to half
        (service("plain", hardware="t4", model="qwen2.5-3b", weights="fp8"), "note"),
        (service(hardware="mi300x", weights="fp8"), None),
    ],
)
def test_format_against_the_device(one: Service, severity: str | None) -> None:
    assert [finding.severity for finding in found("quantisation-unsupported-on-device", one)] == (
        [severity] if severity else []
    )


def test_drafts_take_memory_beside_the_model() -> None:
    drafts = {"speculation": {"model": "llama-3.1-8b", "k": 4}}
    tight = {"model": "llama-3.3-70b", "weights": "fp8", "max_model_len": 2048, "features": drafts}
    (one,) = found("drafts-do-not-fit", service(**tight))
    assert one.figures["draft_weights_bytes"] == 16_060_522_496  # 8,030,261,248 parameters of two bytes
    assert not found("drafts-do-not-fit", service(**tight, tp=2))
    assert not found("drafts-do-not-fit", service(**tight | {"features": {"speculation": {"method": "ngram", "k": 4}}}))
    assert not found(
        "drafts-do-not-fit", service(**tight | {"features": {"speculation": {"model": "no/such", "k": 4}}})
    )


def test_share_that_is_proposed_leaves_room() -> None:
    (one,) = found("utilisation-risky", service(memory_utilization=0.995))
    proposed = float(one.fix.split()[-1])
    assert not found("utilisation-risky", service(memory_utilization=proposed))
    assert found("utilisation-risky", service(memory_utilization=proposed + 0.01))


def test_steps_without_cut_prompts_take_the_longest_sequence() -> None:
    whole = {"chunked_prefill": False}
    assert found("batched-tokens-too-few", service(max_num_batched_tokens=4096, max_model_len=8192, features=whole))
    assert not found("batched-tokens-too-few", service(max_num_batched_tokens=8192, max_model_len=8192, features=whole))
    assert not found("batched-tokens-too-few", service(max_num_batched_tokens=4096, max_model_len=8192))
    assert not found("batched-tokens-too-few", service("sglang@0.5", max_num_batched_tokens=64, max_num_seqs=128))


def test_offloaded_weights_are_not_on_the_device() -> None:
    offloaded = service(model="llama-3.1-70b", max_model_len=4096, features={"cpu_offload_bytes": 80 * 2**30})
    assert found("does-not-fit", service(model="llama-3.1-70b", max_model_len=4096))
    assert not found("does-not-fit", offloaded)
    (one,) = found("offload-slows-every-step", offloaded)
    assert one.figures["tpot_s"] == pytest.approx(80 * 2**30 / 63e9)  # PCIe 5 x16 of the catalogue


@pytest.mark.parametrize(
    ("features", "model", "expected"),
    [
        ({"trust_remote_code": True}, "Qwen/Qwen2.5-7B-Instruct", 1),
        ({"trust_remote_code": True, "revision": "a09a354"}, "Qwen/Qwen2.5-7B-Instruct", 0),
        ({"trust_remote_code": True}, "/models/qwen", 0),
        ({"trust_remote_code": False}, "Qwen/Qwen2.5-7B-Instruct", 0),
        ({}, "Qwen/Qwen2.5-7B-Instruct", 0),
    ],
)
def test_remote_code(features: dict[str, Any], model: str, expected: int) -> None:
    assert len(found("remote-code-unpinned", service(model=model, features=features))) == expected


def test_unknown_accelerator_is_named_where_no_device_is() -> None:
    strange = Pod(unknown_hardware=said("nvidia-x1", 90))
    (one,) = found("unknown-device", service(hardware=None, pod=strange))
    assert one.place.line == 90
    assert not found("unknown-device", service(pod=strange))
    assert not found("unknown-device", service(hardware=None))  # a problem of the run, see tests/checks/test_run.py


def test_device_of_the_pod_is_planned_with() -> None:
    one = service(hardware=None, pod=Pod(hardware=said("l4", 91)))
    assert Checked(one).deployment.hardware.name == "l4"


def test_hostile_names_are_shown_harmless() -> None:
    (one,) = found("unknown-model", service(model="a\x1b[31m/b"))
    assert "\x1b" not in one.message
    (flag,) = found(
        "unknown-flag", Service(**{**_fields(service()), "flags": (Flag("--\x1b]0;x", said(1), known=False),)})
    )
    assert "\x1b" not in flag.message


def _fields(one: Service) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__slots__}


@pytest.mark.parametrize(
    ("changes", "line"), [({"kv": "fp9"}, 5), ({"pp": 99}, 5), ({"ep": 4}, 5), ({"memory_utilization": 1.5}, 5)]
)
def test_what_no_other_rule_is_about_cannot_be_planned(changes: dict[str, Any], line: int) -> None:
    (one,) = found("cannot-be-planned", service(**changes))
    assert one.place.line == line


def test_unknown_engine_cannot_be_planned() -> None:
    (one,) = found("cannot-be-planned", service("vlm"))
    assert one.place.line == 2


STRANGE = (
    st.none()
    | st.booleans()
    | st.integers(-5, 2**70)
    | st.floats()
    | st.text(max_size=5)
    | st.lists(st.integers(), max_size=2)
)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.sampled_from(sorted(Options.__annotations__)), STRANGE, max_size=4),
    st.dictionaries(
        st.sampled_from(FEATURES), STRANGE | st.dictionaries(st.sampled_from(["model", "k"]), STRANGE), max_size=3
    ),
    st.sampled_from(["vllm", "vllm@0.19", "sglang@0.5", "llama.cpp", "plain", "?"]),
    st.integers(-1, 3) | st.none(),
)
def test_strange_values_are_told_or_passed_over(
    options: dict[str, Any], features: dict[str, Any], engine: str, gpus: int | None
) -> None:
    given_pod = Pod(
        gpus=None if gpus is None else said(gpus), pods=None if gpus is None else said(gpus), contained=True
    )
    named = {name: value for name, value in options.items() if name != "engine"}
    one = service(engine, features=features, pod=given_pod, **named)
    for rule in RULES:
        for finding in found(rule, one):
            assert finding.message
            assert "\n" not in finding.message


@pytest.mark.parametrize(("engine", "kind", "text", "expected"), [
    ("vllm", "kubernetes", "vllm/vllm-openai:latest", 1),
    ("vllm", "deployment", "", 1),
    ("vllm", "command", "", 0),  # a script cannot pin what is installed
    ("vllm@0.19.0", "kubernetes", "vllm/vllm-openai:v0.19.0", 0),
    ("plain", "deployment", "", 0),
])  # fmt: skip
def test_defaults_that_moved_where_no_version_is_pinned(engine: str, kind: str, text: str, expected: int) -> None:
    one = Service(**{**_fields(service(engine, kind)), "engine": Said(engine, Place(FILE, 2, 1), text)})
    assert len(found("default-changed-between-versions", one)) == expected
