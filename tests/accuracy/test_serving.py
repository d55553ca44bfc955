"""Rows of serving benchmarks: counted once, classified, and turned into deployments with the settings of client and server.

Expected counts are those that the research notes state (they were taken on a slightly larger collection; where a group is whole in both,
the counts are equal), or counted here again from the file alone.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from roofplan.accuracy import names, serving, serving_rules
from roofplan.accuracy.serving import DATA, ServingRow, deployment_of, read_rows, read_speed_rows, settings_of
from roofplan.accuracy.truth import read_truth
from roofplan.errors import RoofplanError, SpecError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Callable

FILE = DATA / "e2e_serving.csv"
Cells = dict[str, str]


def cells_of(file: Path) -> list[Cells]:
    with file.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


RAW = cells_of(FILE)
ROWS = read_rows()
ONLINE = read_speed_rows()
RULES = {rule.name: rule for rule in serving_rules.exclusions().rules}


# ------------------------------------------------------------------------------------------------ copies


def test_every_row_is_counted_once() -> None:
    assert len(RAW) == 1725
    assert len(ROWS) == 1557
    assert Counter(row.copies for row in ROWS) == {1: 1411, 2: 124, 3: 22}
    assert sum(row.copies for row in ROWS) == len(RAW)


def close(one: str, other: str) -> bool:
    return abs(float(one) - float(other)) <= 0.002 * max(float(one), float(other))


def same(one: Cells, other: Cells) -> bool:
    setting = ("engine", "gpu", "precision", "isl", "osl", "concurrency")
    return all(one[name] == other[name] for name in setting) and all(
        close(one[name], other[name]) for name in ("ttft_ms", "tpot_ms")
    )


def test_copies_are_those_that_a_count_of_all_pairs_finds() -> None:
    """Every row after the first of its like; likeness is an equivalence here, so the order does not matter."""
    copies = sum(any(same(row, earlier) for earlier in RAW[:place]) for place, row in enumerate(RAW))
    assert copies == len(RAW) - len(ROWS) == 168


def test_no_two_rows_that_are_kept_are_copies() -> None:
    groups: dict[tuple[object, ...], list[ServingRow]] = {}
    for row in ROWS:
        key = (row.engine, row.gpu, row.precision, row.isl, row.osl, row.concurrency)
        for other in groups.setdefault(key, []):
            near = [
                math.isclose(*pair, rel_tol=0.002) for pair in ((row.ttft_s, other.ttft_s), (row.tpot_s, other.tpot_s))
            ]
            assert not all(near), (row.id, other.id)
        groups[key].append(row)


def test_the_copy_with_a_date_is_kept() -> None:
    repeated = {"moonshotai/Kimi-K2.5", "Qwen/Qwen3.5-397B-A17B"}
    assert sum(cells["model"] in repeated and not cells["measured"] for cells in RAW) == 103
    assert not [row.id for row in ROWS if row.model in repeated and not row.measured]


def test_names_of_rows_are_unique_and_stay() -> None:
    assert len({row.id for row in ROWS}) == len(ROWS)
    assert ROWS[0].id == "E2E-f494ba4519"


def test_the_rows_of_speed_csv_are_the_same_measurements() -> None:
    """Each stands there as two lines, TTFT then TPOT; all are in the file of serving rows, so none of them is counted again."""
    lines = [cells for cells in cells_of(DATA / "speed.csv") if cells["id"].startswith("AICS-")]
    gpus = {"H100-SXM": "h100_sxm", "H200": "h200_sxm", "B200": "b200_sxm"}
    here = {
        (
            *(cells[name] for name in ("gpu", "engine", "engine_version", "model", "isl", "osl", "concurrency", "tp")),
            *times(cells),
        )
        for cells in RAW
    }
    pairs = list(zip(lines[::2], lines[1::2], strict=True))
    assert len(pairs) == 885
    for ttft, tpot in pairs:
        assert (ttft["metric"], tpot["metric"]) == ("ttft_ms", "tpot_ms")
        named = [
            ttft[name] for name in ("engine", "engine_version", "model", "isl", "osl", "batch_or_concurrency", "tp")
        ]
        assert (gpus[ttft["gpu"]], *named, float(ttft["value"]), float(tpot["value"])) in here
    assert not [row.id for row in ONLINE if row.id.startswith("AICS")]


def times(cells: Cells) -> tuple[float, float]:
    return float(cells["ttft_ms"]), float(cells["tpot_ms"])


# ------------------------------------------------------------------------------------------------ layouts


def devices_by_hand(cells: Cells) -> int:
    """GPUs: max(tp, moe_tp x moe_ep, attention_dp), where a product of two sizes of the same machine is the size."""
    tp, attention, experts = (int(cells[name] or 1) for name in ("tp", "attention_dp", "moe_ep"))
    if tp in {16, 64} or attention in {16, 64}:
        return math.isqrt(max(tp, attention))
    if attention in {2, 4}:
        assert experts == tp * attention == tp**2
        return tp
    return max(tp, attention, int(cells["moe_tp"] or 1) * experts)


def test_layouts_are_those_of_real_machines() -> None:
    for cells, truth in zip(RAW, read_truth(FILE, serving.COLUMNS), strict=True):
        row = serving._recorded(truth)
        assert row.devices == devices_by_hand(cells) in {1, 2, 4, 8}, truth.where
        assert 1 <= row.ep <= row.devices


@pytest.mark.parametrize(
    ("recorded", "read"),
    [
        ({"tp": 64, "attention_dp": 1, "moe_tp": 8, "moe_ep": 8}, (8, 1, 8)),
        ({"tp": 16, "attention_dp": 1, "moe_tp": 4, "moe_ep": 4}, (4, 1, 4)),
        ({"tp": 1, "attention_dp": 64, "moe_tp": 8, "moe_ep": 8}, (1, 8, 8)),
        ({"tp": 1, "attention_dp": 8, "moe_tp": 1, "moe_ep": 8}, (1, 8, 8)),
        ({"tp": 4, "attention_dp": 4, "moe_tp": 1, "moe_ep": 16}, (4, 1, 4)),
        ({"tp": 4, "attention_dp": None, "moe_tp": 0, "moe_ep": 0}, (4, 1, 1)),
    ],
    ids=str,
)
def test_products_in_the_columns_are_read_as_sizes(recorded: dict[str, int | None], read: tuple[int, int, int]) -> None:
    layout = serving_rules.layouts().read({"model": "", "gpu": "", "precision": "", **recorded})
    assert (layout["tp"], layout["attention_dp"], layout["ep"]) == read


# ------------------------------------------------------------------------------------------------ exclusions


def is_deepseek(cells: Cells) -> bool:
    return "DeepSeek" in cells["model"]


def has_parallel_attention(cells: Cells) -> bool:
    return cells["tp"] == "1" and cells["attention_dp"] in {"8", "16", "64"}


BY_HAND: dict[str, Callable[[Cells], bool]] = {
    "no-concurrency": lambda c: not c["concurrency"],
    "cached-prefixes": lambda c: c["model"] == "nvidia/Llama-3.1-8B-Instruct-FP8" and c["engine"] == "vllm",
    "unrecorded-speculation-deepseek": lambda c: (
        c["gpu"] == "h200_sxm"
        and c["engine_version"] == "1.1.0rc2.post2"
        and (c["measured"] == "2026-01-14" or (c["measured"] == "2026-01-28" and has_parallel_attention(c)))
    ),
    "unrecorded-speculation-qwen3.5": lambda c: (
        "Qwen3.5" in c["model"] and (c["precision"], c["tp"], c["moe_ep"]) == ("fp8", "4", "1")
    ),
    "concurrency-of-several-replicas": lambda c: c["model"].endswith("NVFP4"),
    "no-warm-up": lambda c: (
        is_deepseek(c) and (c["engine"], c["precision"], c["measured"][:4]) == ("sglang", "fp4", "2025")
    ),
    "not-a-burst": lambda c: "Llama-3.1-8B" in c["model"] and c["gpu"] == "h200_sxm",
    "deepseek-tensorrt-llm": lambda c: (
        is_deepseek(c) and c["engine"] == "trtllm" and (int(c["concurrency"]) > 32 or has_parallel_attention(c))
    ),
    "kimi-expert-parallel": lambda c: "Kimi" in c["model"] and c["precision"] == "fp4" and c["moe_ep"] in {"4", "16"},
    "qwen3-32b-one-gpu": lambda c: (c["model"], c["engine"], c["tp"]) == ("Qwen/Qwen3-32B", "sglang", "1"),
    "other-lengths": lambda c: c["isl"] in {"4000", "15000"} and c["origin"] == "InferenceX dump",
}
DISTINCT = {
    "no-concurrency": 7,  # so do the notes
    "cached-prefixes": 15,  # 21 in the larger collection
    "unrecorded-speculation-deepseek": 22,  # with the next 43, so do the notes
    "unrecorded-speculation-qwen3.5": 21,
    "concurrency-of-several-replicas": 8,  # so do the notes
    "no-warm-up": 36,
    "not-a-burst": 57,
    "deepseek-tensorrt-llm": 61,
    "kimi-expert-parallel": 20,
    "qwen3-32b-one-gpu": 4,
    "other-lengths": 15,
}


def test_every_exclusion_is_counted_here() -> None:
    assert list(RULES) == list(BY_HAND) == list(DISTINCT)


@pytest.mark.parametrize("name", DISTINCT)
def test_exclusions_are_about_the_rows_that_a_count_by_hand_finds(name: str) -> None:
    hit = [row for row in ROWS if serving_rules.any_holds(RULES[name].match, row.columns)]
    assert len(hit) == DISTINCT[name]
    assert sum(row.copies for row in hit) == sum(map(BY_HAND[name], RAW))
    for metric in RULES[name].excludes:
        assert all(getattr(row, f"excluded_{metric}") for row in hit)


def test_what_is_left_to_score() -> None:
    """TPOT: 22 + 21 + 8 of the 72 rows of the notes are whole here, of the last 21 there are 15; 7 lack a concurrency."""
    assert sum(bool(row.excluded_tpot) for row in ROWS) == 66 + 7
    assert sum(not row.excluded_tpot for row in ROWS) == 1484
    assert sum(not row.excluded_ttft for row in ROWS) == 1359


def test_rows_without_a_precision_are_marked_and_scored() -> None:
    unstated = [row for row in ROWS if row.precision_unstated]
    assert {row.labels["precision"] for row in unstated} == {"not stated"}
    assert Counter((row.engine, row.model) for row in unstated) == {
        ("trtllm", "meta-llama/Llama-3.1-8B-Instruct"): 147,
        ("vllm", "Qwen/Qwen3-32B"): 75,
        ("sglang", "Qwen/Qwen3-32B"): 72,
    }
    assert not any(row.excluded_tpot for row in unstated)
    assert {deployment_of(row, settings_of(row)).formats.name for row in unstated} == {"bf16"}


# ------------------------------------------------------------------------------------------------ deployments


def test_every_row_resolves_to_a_deployment() -> None:
    for row in ROWS:
        settings = settings_of(row)
        built = deployment_of(row, settings)
        assert built.layout.devices == row.devices
        assert built.workload.concurrency == (row.concurrency or 1)
        assert built.workload.prompt == settings.client.mean_length(row.isl)
        assert built.formats.kv.name == settings.launch.kv
        assert built.max_model_len is None or built.workload.length <= built.max_model_len


def test_what_differs_in_the_measurement_alone_shares_a_deployment() -> None:
    row = ROWS[0]
    settings = settings_of(row)
    assert deployment_of(row, settings) is deployment_of(ROWS[0], settings_of(row))


@pytest.mark.parametrize(
    ("model", "precision", "experts", "attention"),
    [
        ("moonshotai/Kimi-K2.5", "int4", "int4-g32-sym", "bf16"),
        ("moonshotai/Kimi-K2.5", "fp4", "nvfp4", "bf16"),
        ("deepseek-ai/DeepSeek-V3", "fp8", "fp8-block128", "fp8-block128"),
        ("deepseek-ai/DeepSeek-V3", "fp4", "nvfp4", "bf16"),
        ("MiniMaxAI/MiniMax-M2.5", "fp4", "nvfp4", "bf16"),
        ("Qwen/Qwen3.5-397B-A17B", "bf16", "bf16", "bf16"),
        ("Qwen/Qwen3.5-397B-A17B", "fp8", "fp8-block128", "fp8-block128"),
        ("Qwen/Qwen3.5-397B-A17B", "fp4", "nvfp4", "bf16"),
        ("zhipuai/GLM-5", "fp4", "nvfp4", "bf16"),
    ],
)
def test_a_precision_is_that_of_a_checkpoint(model: str, precision: str, experts: str, attention: str) -> None:
    """Attention of 4-bit mixtures of experts stays in 16 bits."""
    row = next(row for row in ROWS if (row.model, row.precision) == (model, precision))
    weights = deployment_of(row, settings_of(row)).formats.weights
    assert (weights["experts"].name, weights["attention"].name) == (experts, attention)


def test_checkpoints_are_of_models_in_the_file_and_have_the_same_architecture() -> None:
    labels = {(cells["model"], cells["precision"]) for cells in RAW}
    for model, stated in names.table()["checkpoints"].items():
        known = names.model_of(model)
        assert known is not None
        for precision, checkpoint in stated.items():
            assert (model, precision) in labels
            found = names.model_of(checkpoint)
            assert found is not None
            assert found.layers == known.layers


def test_a_precision_that_no_checkpoint_has_is_refused() -> None:
    with pytest.raises(UnknownNameError, match=r"int4 of Qwen/Qwen3-32B, want one that names\.yaml knows: fp8"):
        serving.checkpoint_of("Qwen/Qwen3-32B", "int4")
    with pytest.raises(UnknownNameError, match="model: got nobody/nothing"):
        serving.checkpoint_of("nobody/nothing", "fp8")


# ------------------------------------------------------------------------------------------------ other clients


def test_rows_at_a_rate_and_of_the_blog() -> None:
    rates = [row for row in ONLINE if row.request_rate is not None]
    assert Counter(row.model for row in rates) == {"LLaMA-3.1-70B": 36, "LLaMA-3.1-8B": 18}
    assert Counter(row.request_rate for row in rates) == dict.fromkeys((2, 4, 8, 16, 32, math.inf), 9)
    for row in rates:
        settings = settings_of(row)
        assert (settings.client.arrivals, settings.client.requests, settings.launch.look_ahead) == ("poisson", 500, 0)
        assert deployment_of(row, settings).engine.engine == "tensorrt-llm-triton"
    blog = [row for row in ONLINE if row.request_rate is None]
    assert [(row.kv, row.concurrency, round(1e3 * row.ttft_s, 1)) for row in blog] == [
        ("bf16", 8, 763.6),
        ("fp8", 8, 742.8),
    ]
    assert [deployment_of(row, settings_of(row)).workload.prompt for row in blog] == [20000, 20000]


# ------------------------------------------------------------------------------------------------ malformed rows

GOOD = dict(RAW[0])


def written(path: Path, **cells: str) -> Path:
    file = path / "rows.csv"
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(GOOD))
        writer.writeheader()
        writer.writerow({**GOOD, **cells})
    return file


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"tpot_ms": "0"}, ":2: tpot_ms: got 0, want milliseconds above 0"),
        ({"ttft_ms": ""}, ":2: ttft_ms: got nothing, want milliseconds above 0"),
        ({"ttft_ms": "fast"}, ":2: ttft_ms: got fast, want a plain number, or nothing"),
        ({"concurrency": "0"}, ":2: concurrency: got 0, want a whole number, at least 1"),
        ({"isl": ""}, ":2: isl: got nothing, want a whole number, at least 1"),
        ({"tp": "-1"}, ":2: tp: got -1, want a whole number"),
        ({"moe_ep": "1.5"}, ":2: moe_ep: got 1.5, want a whole number"),
        ({"measured": "22 April"}, ":2: measured: got 22 April, want a day such as 2026-01-21, or nothing"),
    ],
    ids=str,
)
def test_malformed_rows_name_the_place(tmp_path: Path, cells: dict[str, str], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_rows(written(tmp_path, **cells))
    assert message in str(caught.value)


@pytest.mark.parametrize("rate", ["many", "0", "-3", "1e9", "2.5", "9" * 400, ""])
def test_a_rate_that_is_no_number_is_refused(rate: str, tmp_path: Path) -> None:
    lines = [cells for cells in cells_of(DATA / "speed.csv") if cells["id"] in {"TRTO-0001", "TRTO-0002"}]
    file = tmp_path / "speed.csv"
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(lines[0]))
        writer.writeheader()
        writer.writerows({**cells, "batch_or_concurrency": f"qps={rate}"} for cells in lines)
    with pytest.raises(
        SpecError,
        match=rf"batch_or_concurrency: got {rate[:50] or 'nothing'}.*want qps= and a whole number above 0, or INF",
    ):
        read_speed_rows(file)


@pytest.mark.parametrize(
    ("cells", "error", "message"),
    [
        ({"origin": "elsewhere"}, SpecError, "a row of elsewhere, want a source that has settings"),
        ({"engine_version": "", "measured": "", "engine": "other"}, SpecError, "no engine_version for a row"),
        ({"gpu": "abacus"}, UnknownNameError, "gpu: got abacus"),
        ({"engine": "other"}, RoofplanError, "other"),
    ],
    ids=str,
)
def test_rows_that_nothing_describes_are_refused(
    tmp_path: Path, cells: dict[str, str], error: type[RoofplanError], message: str
) -> None:
    (row,) = read_rows(written(tmp_path, **cells))
    with pytest.raises(error) as caught:
        deployment_of(row, settings_of(row))
    assert message in str(caught.value)
