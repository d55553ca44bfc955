"""Command lines of SGLang, llama-server and trtllm-serve: what each spelling fills, by version, as the engines' own parsers read it."""

from __future__ import annotations

import csv
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from roofplan import engines
from roofplan.api.options import Options
from roofplan.checks.flag_values import si_integer
from roofplan.checks.launcher_spec import launchers
from roofplan.checks.launching import read_command
from roofplan.checks.record import Place, Pod, Said
from roofplan.errors import SpecError

if TYPE_CHECKING:
    from roofplan.checks.record import Reading, Service

TABLE = Path(__file__).parents[1] / "data" / "other_launcher_flags.csv"
with TABLE.open(newline="", encoding="utf-8") as opened:
    # What follows the fifth comma is the source, whatever it holds.
    ROWS = [line.rstrip("\n").split(",", 5) for line in opened][1:]
PROGRAMS = {
    "sglang": "python3 -m sglang.launch_server",
    "llama.cpp": "llama-server",
    "tensorrt-llm": "trtllm-serve nvidia/m",
}
IMAGES = {
    "sglang": "lmsysorg/sglang:v{}-cu126",
    "llama.cpp": "ghcr.io/ggml-org/llama.cpp:server-cuda-{}",
    "tensorrt-llm": "nvcr.io/nvidia/tensorrt-llm/release:{}",
}
OTHERS = tuple(PROGRAMS)
FEATURES = {
    *("prefix_caching", "chunked_prefill", "speculation", "cpu_offload_bytes", "quantization", "sliding_window", "trust_remote_code"),
    *("load_format", "revision", "expert_parallel", "context_length_factor", "attention_dp", "nodes", "long_context_allowed"),
    *("repository", "repository_file", "shared_context", "pooling", "gpu_layers", "partly_on_host", "tensor_split"),
}  # fmt: skip


def read(text: str, image: str = "", **environment: str) -> Reading:
    words = [Said(word, Place("serve.sh", 1, index + 1), word) for index, word in enumerate(shlex.split(text))]
    return read_command(
        words,
        environment={name: Said(value, Place("serve.sh", 2), value) for name, value in environment.items()},
        image=Said(image, Place("serve.sh", 3)) if image else None,
        kind="command",
        name="",
        place=Place("serve.sh", 1, 1),
        pod=Pod(),
    )


def served(text: str, image: str = "", **environment: str) -> Service:
    (service,) = read(text, image, **environment).services
    return service


def value(service: Service, path: str) -> Any:
    room, name, *part = path.split(".")
    said = {"options": service.options, "features": service.features}[room].get(name)
    found = None if said is None else said.value
    return found.get(part[0]) if part else found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: " ".join(row[:3]))
def test_each_spelling_is_read_as_the_engine_reads_it(row: list[str]) -> None:
    engine, version, written, fills, wanted, _ = row
    reading = read(f"{PROGRAMS[engine]} {written}", IMAGES[engine].format(version) if version else "")
    (service,) = reading.services
    unknown = [flag.name for flag in service.flags if not flag.known]
    if fills == "unknown":
        assert [
            name for name in unknown if wanted in (name, *(name.split("=")[:1]), f"{name}={wanted.partition('=')[2]}")
        ]
        return
    assert not unknown
    if fills == "problem":
        (problem,) = reading.problems
        assert wanted in str(problem)
        return
    assert not reading.problems
    if fills == "nothing":
        said = {*service.options, *service.features} - ({"model"} if engine == "tensorrt-llm" else set())
        assert not said
    else:
        assert str(value(service, fills)) == wanted


def test_the_table_is_long_and_names_a_source_in_every_row() -> None:
    assert len(ROWS) >= 100
    assert all(len(row) == 6 and row[5] for row in ROWS)
    assert {row[0] for row in ROWS} == set(OTHERS)
    next(csv.reader([",".join(ROWS[0])]))


@pytest.mark.parametrize("engine", OTHERS)
def test_every_launcher_fills_what_there_is_and_names_its_files(engine: str) -> None:
    launcher = launchers()[engine]
    for flag in (*launcher.flags, *launcher.environment):
        assert flag.option in {"", "model", *Options.__annotations__}
        assert flag.feature.partition(".")[0] in {"", *FEATURES}
        for default in flag.defaults:
            assert default.since
        for text in (flag.since, flag.until):
            assert re.fullmatch(r"|b?\d+(\.\d+)*", text)
        assert not flag.source or flag.source in launcher.sources
    assert all(one.repository and one.path and one.commit for one in launcher.sources.values())
    assert engines.load(engine).engine == engine


@pytest.mark.parametrize("engine", OTHERS)
def test_no_two_flags_of_one_version_share_a_name(engine: str) -> None:
    launcher = launchers()[engine]
    versions = (
        {flag.since for flag in launcher.flags}
        | {flag.until for flag in launcher.flags}
        | {launcher.first, launcher.last}
    )
    for text in versions - {""}:
        seen: dict[str, str] = {}
        numbers = engines.profile.parse_version(text)
        for flag in (one for one in launcher.flags if one.is_in(numbers)):
            for name in (flag.name, *flag.aliases, *flag.negated):
                assert name not in seen, f"{text}: {name} of {flag.name} and {seen[name]}"
                seen[name] = flag.name


@pytest.mark.parametrize(
    ("image", "engine"),
    [
        ("lmsysorg/sglang:v0.5.6.post2-cu129", "sglang@0.5.6"),
        ("docker.io/lmsysorg/sglang:v0.4.10.post2", "sglang@0.4.10"),
        ("lmsysorg/sglang:latest", "sglang"),
        ("ghcr.io/ggml-org/llama.cpp:server-cuda-b7900", "llama.cpp@b7900"),
        ("ghcr.io/ggml-org/llama.cpp:server-b5150", "llama.cpp@b5150"),
        ("ghcr.io/ggml-org/llama.cpp:server-cuda", "llama.cpp"),
        ("nvcr.io/nvidia/tensorrt-llm/release:1.2.1", "tensorrt-llm@1.2.1"),
        ("nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc20", "tensorrt-llm@1.3.0"),
    ],
)
def test_the_version_is_that_of_the_image(image: str, engine: str) -> None:
    program = PROGRAMS[engine.partition("@")[0]]
    assert served(f"{program} --host 0.0.0.0", image).engine.value == engine


def test_programs_are_found_where_they_stand() -> None:
    assert served("sglang serve Qwen/Qwen3-8B --tp-size 2").options["model"].value == "Qwen/Qwen3-8B"
    assert served("/opt/venv/bin/python -m sglang.launch_server --model-path m").options["model"].value == "m"
    assert served("/app/llama-server -m a.gguf").options["model"].value == "a.gguf"
    assert served("trtllm-serve serve nvidia/m --tp_size 2").options["model"].value == "nvidia/m"
    assert served("trtllm-serve nvidia/m").options["model"].value == "nvidia/m"
    assert served("-m a.gguf", "ghcr.io/ggml-org/llama.cpp:server-cuda").engine.value == "llama.cpp"
    assert not read("--model-path m", "lmsysorg/sglang:v0.5.6").services  # the image starts nothing on its own
    assert not read("llama-cli -m a.gguf").services


def test_variables_of_llama_server_hold_where_no_flag_does() -> None:
    service = served(
        "llama-server -c 4096", LLAMA_ARG_MODEL="/m.gguf", LLAMA_ARG_CTX_SIZE="8192", LLAMA_ARG_N_PARALLEL="2"
    )
    assert service.options["model"].value == "/m.gguf"
    assert service.options["max_num_seqs"].value == 2
    assert service.options["max_model_len"].value == 2048
    assert served("llama-server -m /m.gguf", LLAMA_ARG_SWA_FULL="1").features["sliding_window"].value is False
    assert served("llama-server", LLAMA_ARG_HF_REPO="a/b:Q8_0").options["weights"].value == "q8_0"


def test_a_variable_of_sglang_allows_a_long_context() -> None:
    service = served("sglang serve m --context-length 1Mi", SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN="1")
    assert service.features["long_context_allowed"].value is True


def in_file(folder: Path, text: str) -> Reading:
    """A command line that stands in a script of a folder."""
    script = str(folder / "serve.sh")
    words = [Said(word, Place(script, 1, index + 1), word) for index, word in enumerate(shlex.split(text))]
    return read_command(
        words, environment={}, image=None, kind="command", name="", place=Place(script, 1, 1), pod=Pod()
    )


def test_the_file_of_settings_of_trtllm_serve(tmp_path: Path) -> None:
    (tmp_path / "extra.yaml").write_text(
        "kv_cache_config:\n  free_gpu_memory_fraction: 0.8\n  dtype: fp8\n  enable_block_reuse: false\n  tokens_per_block: 64\n"
        "max_batch_size: 128\ncuda_graph_config: {enable_padding: true}\nenable_chunked_prefill: true\n"
        "speculative_config: {decoding_type: MTP, num_nextn_predict_layers: 3}\n"
    )
    reading = in_file(tmp_path, "trtllm-serve nvidia/m --max_batch_size 64 --extra_llm_api_options extra.yaml")
    assert not reading.problems
    (service,) = reading.services
    assert {name: said.value for name, said in service.options.items()} == {
        "model": "nvidia/m",
        "max_num_seqs": 64,
        "memory_utilization": 0.8,
        "kv": "fp8",
        "block_size": 64,
    }
    assert {name: said.value for name, said in service.features.items()} == {
        "prefix_caching": False,
        "chunked_prefill": True,
        "speculation": {"method": "MTP", "k": 3},
    }
    place = service.options["kv"].place
    assert (Path(place.file).name, place.line) == ("extra.yaml", 2)
    assert all(flag.known for flag in service.flags)


def test_the_file_of_flags_of_sglang(tmp_path: Path) -> None:
    (tmp_path / "server.yaml").write_text(
        "model-path: m\ntp-size: 2\ncontext_length: 4096\ndisable-radix-cache: true\n"
    )
    (service,) = in_file(tmp_path, "python -m sglang.launch_server --config server.yaml --tp-size 4").services
    assert {name: said.value for name, said in service.options.items()} == {
        "model": "m",
        "tp": 4,
        "max_model_len": 4096,
    }
    assert service.features["prefix_caching"].value is False


def test_data_parallel_attention_divides_the_ranks() -> None:
    service = served("python3 -m sglang.launch_server --model m --tp 8 --dp 8 --enable-dp-attention")
    assert {name: said.value for name, said in service.options.items()} == {"model": "m", "tp": 1, "dp": 8, "ep": 8}
    assert service.features["attention_dp"].value == 8


@pytest.mark.parametrize(
    ("text", "number"),
    [("1k", 1000), ("1Ki", 1024), ("25.6k", 25600), ("1M", 10**6), ("1Mi", 2**20), ("2G", 2 * 10**9), ("1Gi", 2**30), ("1T", 10**12)],
)  # fmt: skip
def test_suffixes_of_sglang(text: str, number: int) -> None:
    assert si_integer(text) == number


@pytest.mark.parametrize("text", ["1K", "1m", "1ki", "1.5Ki", "", "k", "1kk", "1e3", "nan", "9" * 5000])
def test_what_is_no_suffix_of_sglang_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        si_integer(text)
