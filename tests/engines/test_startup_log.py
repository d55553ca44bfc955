"""Start-up logs of serving engines are read for what they say, and refused where that cannot be."""

import contextlib
import dataclasses
import io
import re
import string
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofplan import quantities, specfiles
from roofplan.engines.log_spec import log_specs
from roofplan.engines.startup_log import StartupLog, parse_startup_log, read_startup_log
from roofplan.errors import RoofplanError, SpecError

LOGS = Path(__file__).resolve().parent.parent / "data" / "logs"
SPECS = {spec.engine: spec for spec in log_specs()}


def gib(size: float) -> int:
    return round(size * 2**30)


def mib(size: float) -> int:
    return round(size * 2**20)


def value(fact: str, written: object) -> object:
    """A fact as the tables write it: ``58.11 GiB``, or terms of a sum or difference."""
    if not fact.endswith("_bytes"):
        return written
    terms = re.findall(r"(^|[+-]) ?([0-9.]+ [A-Za-z]+)", str(written))
    return sum(-quantities.parse_bytes(size) if sign == "-" else quantities.parse_bytes(size) for sign, size in terms)


def table(name: str) -> Any:
    return specfiles.read_document(LOGS / name).data


# What each excerpt says: the comments of the file name the row and the source of each (M018, M004, M109, M167, M179, M188 and others).
EXPECTED = {
    name: {fact: value(fact, written) for fact, written in facts.items()}
    for name, facts in table("expected.yaml").items()
}


def said(log: StartupLog) -> dict[str, object]:
    return {name: value for name, value in dataclasses.asdict(log).items() if value is not None}


def test_every_excerpt_has_its_expectations() -> None:
    assert sorted(EXPECTED) == sorted(path.name.removesuffix(".log") for path in LOGS.glob("*.log"))


@pytest.mark.parametrize("name", EXPECTED)
def test_a_log_says_this_and_nothing_else(name: str) -> None:
    assert said(read_startup_log(LOGS / f"{name}.log")) == EXPECTED[name]


# ------------------------------------------------------------------------------------------------ other versions

SIZED = {
    "vllm": "Available KV cache memory: 5.00 GiB",
    "sglang": "KV Cache is allocated. #tokens: 1000, K size: 1.00 GB, V size: 1.00 GB",
    "tensorrt-llm": "[MemUsageChange] Allocated 5.95 GiB for max tokens in paged KV cache (86720).",
    "llama.cpp": "llama_kv_cache_init:      CUDA0 KV buffer size =   144.00 MiB",
}
LINES = [
    (entry["engine"], entry["line"], {fact: value(fact, written) for fact, written in entry["facts"].items()})
    for entry in table("lines.yaml")["lines"]
]


@pytest.mark.parametrize(("engine", "line", "facts"), LINES, ids=[line[:40] for _, line, _ in LINES])
def test_a_line_of_another_version_is_read_too(engine: str, line: str, facts: dict[str, object]) -> None:
    plain = said(parse_startup_log(SIZED[engine], "a.log"))
    assert said(parse_startup_log(f"{SIZED[engine]}\n{line}", "a.log")) == plain | facts


# ------------------------------------------------------------------------------------------------ ranks, starts, forms

VLLM_START = (
    "Initializing a V1 LLM engine (v0.19.0) with config: model='m', dtype=torch.bfloat16, max_seq_len=8192, "
    "tensor_parallel_size=1, pipeline_parallel_size=1, quantization=None, enforce_eager=True, kv_cache_dtype=fp8, device_config=cuda"
)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("(Worker_TP0 pid=9)", "(Worker_TP1 pid=1)"),
        ("(Worker_PP0_TP1 pid=9)", "(Worker_PP1_TP0 pid=1)"),
        ("(Worker_TP2 pid=9)", "(Worker_TP10 pid=1)"),
        ("(VllmWorker rank=0 pid=9)", "(VllmWorker rank=1 pid=1)"),
        ("INFO 03-15", "(VllmWorkerProcess pid=1)"),
        ("INFO 03-15", "(RayWorkerWrapper pid=1, ip=10.0.0.2)"),
        ("vllm-1 | (Worker_DP0_TP0_EP0 pid=9)", "vllm-1 | (Worker_DP1_TP0_EP4 pid=1)"),
    ],
)
def test_parts_are_those_of_rank_0_in_whatever_order_ranks_print(first: str, second: str) -> None:
    one, two = f"{first} Model loading took 2.00 GiB", f"{second} Model loading took 3.00 GiB"
    for text in (f"{one}\n{two}", f"{two}\n{one}"):
        assert parse_startup_log(f"{text}\n{SIZED['vllm']}", "a.log").weights_bytes == gib(2)


def test_ranks_of_the_others() -> None:
    lines = [
        f"[2026-01-01 00:00:00 {rank}] Load weight begin. avail mem={size} GB"
        for rank, size in (("TP1", 3), ("TP0 EP0", 2))
    ]
    assert parse_startup_log("\n".join([*lines, SIZED["sglang"]]), "a.log").free_before_bytes == gib(2)
    text = "[1,{}]<stdout>:[TensorRT-LLM][INFO] Loaded engine size: {} MiB"
    lines = [text.format(1, 3), text.format(0, 2)]
    assert parse_startup_log("\n".join([*lines, SIZED["tensorrt-llm"]]), "a.log").weights_bytes == mib(2)
    lines = [f"[TRT-LLM] [RANK {rank}] [I] device total memory {size} GiB, " for rank, size in ((3, 3), (0, 2))]
    assert parse_startup_log("\n".join([*lines, SIZED["tensorrt-llm"]]), "a.log").total_bytes == gib(2)


def test_on_a_machine_without_device_main_memory_is_it() -> None:
    text = SIZED["llama.cpp"].replace("CUDA0", "CPU")
    assert parse_startup_log(text, "a.log").kv_bytes == mib(144)


@pytest.mark.parametrize("rank", ["EngineCore_DP1", "EngineCore_DP0"])
def test_the_same_start_of_many_processes_is_one(rank: str) -> None:
    lines = [f"(EngineCore_DP0 pid=1) {VLLM_START}", f"({rank} pid=2) {VLLM_START}", SIZED["vllm"]]
    assert parse_startup_log("\n".join(lines), "a.log").kv_format == "fp8"


def test_another_replica_may_begin_after_the_first_has_its_cache() -> None:
    lines = [f"(EngineCore_DP0 pid=1) {VLLM_START}", SIZED["vllm"], f"(EngineCore_DP1 pid=2) {VLLM_START}"]
    assert parse_startup_log("\n".join(lines), "a.log").kv_bytes == gib(5)


def test_of_a_start_that_failed_no_size_is_kept() -> None:
    begin, end = "Load weight begin. avail mem={} GB", "Load weight end. type=M, avail mem=1.00 GB"
    server = "server_args=ServerArgs(model_path='m', tp_size=1)"
    lines = [server, begin.format(9), server, begin.format(5), end, SIZED["sglang"]]
    assert parse_startup_log("\n".join(lines), "a.log").weights_bytes == gib(4)
    lines = [VLLM_START, "Model loading took 3.00 GiB", VLLM_START, "Model loading took 2.00 GiB", SIZED["vllm"]]
    assert parse_startup_log("\n".join(lines), "a.log").weights_bytes == gib(2)


@pytest.mark.parametrize("end", ["\r\n", "\r", "\n\n"])
def test_lines_end_as_they_like(end: str) -> None:
    text = (LOGS / "vllm-0.19-llama-8b.log").read_text().replace("\n", end)
    assert said(parse_startup_log(text, "a.log")) == EXPECTED["vllm-0.19-llama-8b"]


@pytest.mark.parametrize("colour", ["\x1b[1;36m", "#033[0m", "^[[32m"])
def test_colours_are_no_part_of_a_line(colour: str) -> None:
    text = f"GPU KV cache {colour}size: {colour}1,024 tokens"
    assert parse_startup_log(text, "a.log").kv_tokens == 1024


def test_a_difference_below_zero_says_nothing() -> None:  # GB10: graphs of -0.03 GiB, since memory is shared
    text = f"{SIZED['vllm']}\nGraph capturing finished in 5 secs, took -0.03 GiB"
    assert parse_startup_log(text, "a.log").graph_bytes is None


def test_what_says_nothing_is_left_to_the_next_line() -> None:
    text = f"{SIZED['vllm']}\nnon-default args: {{'max_model_len': None}}\nUsing max model len 2048"
    assert parse_startup_log(text, "a.log").max_model_len == 2048


def test_a_long_line_is_cut() -> None:
    text = f"{SIZED['vllm']}\n{'x' * 20_000} GPU KV cache size: 7 tokens"
    assert parse_startup_log(text, "a.log").kv_tokens is None


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(SIZED["vllm"].encode())))
    assert read_startup_log("-").kv_bytes == gib(5)


# ------------------------------------------------------------------------------------------------ faults

FAULTS = {
    "empty": ("", "no line of a known engine"),
    "another engine": ("INFO mlc: KV cache 5 GiB", "no line of a known engine"),
    "cut after loading": (
        f"{VLLM_START}\nModel loading took 2.00 GiB\n",
        "a.log:2: start-up log: got no size of the cache",
    ),
    "a first pass without sizes": ("llama_kv_cache: CUDA0 KV buffer size = 0.00 MiB", "--verbose"),
    "two engines": (f"{SIZED['vllm']}\n{SIZED['sglang']}", "a.log:2: start-up log: got lines of vllm and sglang"),
    "another model": (
        f"{VLLM_START}\n{VLLM_START.replace(chr(39) + 'm' + chr(39), chr(39) + 'n' + chr(39))}\n{SIZED['vllm']}",
        "a.log:2: start-up log: got a second server: model n after m",
    ),
    "another setting": (
        f"{VLLM_START}\n{VLLM_START.replace('max_seq_len=8192', 'max_seq_len=4096')}\n{SIZED['vllm']}",
        "max_model_len 4096 after 8192",
    ),
    "another server of SGLang": (
        f"server_args=ServerArgs(model_path='m', tp_size=1, )\n{SIZED['sglang']}\nserver_args=ServerArgs(model_path='m', tp_size=2, )",
        "a.log:3: start-up log: got a second server: tp 2 after 1",
    ),
    "a restart": (
        f"{VLLM_START}\n{SIZED['vllm']}\n{VLLM_START}\n{SIZED['vllm']}",
        "a.log:3: start-up log: got a second start",
    ),
    "a restart of llama.cpp": (
        f"build: 4701 (0cf867160)\n{SIZED['llama.cpp']}\nbuild: 4701 (0cf867160)",
        "a.log:3: start-up log: got a second start",
    ),
    "a zero byte": (f"{SIZED['vllm']}\0", "zero byte"),
    "no memory left": ("Available KV cache memory: -1.07 GiB", "a.log:1: kv_bytes: got '-1.07 GiB'"),
    "not a number": ("Available KV cache memory: nan GiB", "kv_bytes"),
    "infinity": ("Available KV cache memory: inf GiB", "kv_bytes"),
    "400 digits": (f"GPU KV cache size: {'9' * 400} tokens", "a text of 400 characters"),
    "more memory than there is": ("Available KV cache memory: 99999999999999 GiB", "kv_bytes"),
    "more than all": (f"{SIZED['vllm']}\nDesired GPU memory utilization is (1.5, 75.23 GiB)", "memory_utilization"),
    "a broken number": ("GPU KV cache size: 4,76,016 tokens", "kv_tokens"),
    "two points": ("Model loading took 14.9.9 GiB\nGPU KV cache size: 4 tokens", "weights_bytes"),
    "neither yes nor no": (f"{VLLM_START.replace('eager=True', 'eager=Maybe')}\n{SIZED['vllm']}", "true or false"),
    "no process": (f"{VLLM_START.replace('tensor_parallel_size=1', 'tensor_parallel_size=0')}\n{SIZED['vllm']}", "tp"),
    "too many lines": ("\n".join(["GPU KV cache size: 4 tokens"] * 10_001), "a.log:10001"),
}


@pytest.mark.parametrize(("text", "message"), FAULTS.values(), ids=FAULTS)
def test_a_log_with_a_fault_is_refused(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=re.escape(message)):
        parse_startup_log(text, "a.log")


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\xff\xfeG\x00P\x00U\x00", "UTF-8"), (b"\x7fELF\x02\x01\x01\x00", "zero byte"), (None, "no such file")],
)
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "server.log"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SpecError, match=message):
        read_startup_log(path)


# ------------------------------------------------------------------------------------------------ whatever the text

SLOT = re.compile(r"<[^>]*>")
TEXTS = [SLOT.sub("8", text) for spec in log_specs() for line in spec.lines for text in (line.line, *line.also)]
PIECES = st.one_of(
    st.sampled_from(TEXTS),
    st.sampled_from([mark for spec in log_specs() for mark in spec.marks]),
    st.text(max_size=20),
    st.text(alphabet=string.digits + "-.,eEnaif% ", max_size=12),
    st.sampled_from(["\n", "\r", "\x1b[0m", "None", "auto", "(Worker_TP1 pid=2) ", " GiB", " MiB", "'", ", "]),
)


@given(st.lists(PIECES, max_size=40))
def test_no_text_breaks_the_reader(pieces: list[str]) -> None:
    with contextlib.suppress(RoofplanError):
        log = parse_startup_log("".join(pieces), "a.log")
        assert all(value >= 0 for value in said(log).values() if isinstance(value, (int, float)))


@given(st.sampled_from(sorted(EXPECTED)), st.data())
def test_a_damaged_log_is_read_or_refused(name: str, data: st.DataObject) -> None:
    text = (LOGS / f"{name}.log").read_text()
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 50)))
    damaged = text[:start] + data.draw(st.text(max_size=10)) + text[end:]
    with contextlib.suppress(RoofplanError):
        assert parse_startup_log(damaged, "a.log").engine in SPECS
