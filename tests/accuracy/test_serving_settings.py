"""Settings of clients and launches: what rows get, where it comes from, and that malformed files name the place.

Expected values are those of the research notes on load (launch scripts of InferenceX, what was found by trying on NVIDIA's rows).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roofplan.accuracy import serving_rules
from roofplan.accuracy.serving import ServingRow, deployment_of, read_rows, read_speed_rows, settings_of
from roofplan.accuracy.serving_rules import EXCLUDED, LAYOUTS, Linear
from roofplan.errors import SpecError

ROWS = read_rows()
ONLINE = read_speed_rows()


# ------------------------------------------------------------------------------------------------ settings


def test_every_row_has_one_source_and_every_rule_is_used() -> None:
    used: set[int] = set()
    for row in [*ROWS, *ONLINE]:
        source = serving_rules.source_of(row.columns)
        assert source is not None
        used |= {id(rule) for rule in serving_rules.sources()[source].rules if rule.match.holds(row.columns)}
    for name, file in serving_rules.sources().items():
        for place, rule in enumerate(file.rules):
            assert id(rule) in used, f"{name}: rule {place} is about no row"


def test_every_rule_says_where_it_comes_from() -> None:
    for file in serving_rules.sources().values():
        assert all(len(rule.source) >= 8 for rule in file.rules)
    fitted = [rule for rule in serving_rules.sources()["nvidia-sweeps"].rules if rule.kind == "fitted"]
    assert len(fitted) == 5  # what was found by trying says so: waves, budgets, lags, spread lengths, one place fewer


def found(**wanted: object) -> ServingRow:
    hits = [row for row in ROWS if all(getattr(row, name) == value for name, value in wanted.items())]
    assert hits, wanted
    return hits[0]


LLAMA, V3, QWEN = "meta-llama/Llama-3.1-70B", "deepseek-ai/DeepSeek-V3", "Qwen/Qwen3.5-397B-A17B"
SHORT, LONG = {"isl": 1024, "osl": 1024}, {"isl": 8192, "osl": 1024}
OLD: dict[str, Any] = {"waves": 10, "length_from": 0.8, "seed": 0}


@pytest.mark.parametrize(
    ("row", "client", "launch"),
    [
        (
            {"engine": "trtllm", "model": LLAMA, "gpu": "h200_sxm", "tp": 2, "concurrency": 16, **SHORT},
            OLD,
            {
                "batched_tokens": 16384,
                "kv": "fp8",
                "hold_steps": 20,
                "hold_tokens": 0.9,
                "engine_version": "1.1.0rc2.post2",
            },
        ),
        (
            {"engine": "trtllm", "model": LLAMA, "gpu": "h200_sxm", "tp": 8, "concurrency": 16, **SHORT},
            OLD,
            {"batched_tokens": 16384, "kv": "fp8", "hold_steps": 0, "look_ahead": 1},
        ),
        (
            {"engine": "vllm", "model": LLAMA, "gpu": "h200_sxm", "concurrency": 32, **LONG},
            OLD,
            {"batched_tokens": 8192, "kv": "fp8", "max_num_seqs": 32, "look_ahead": 1, "engine_version": "0.10.2"},
        ),
        (
            {"engine": "vllm", "model": LLAMA, "gpu": "b200_sxm", "precision": "fp4", "concurrency": 8},
            OLD,
            {"batched_tokens": 8192, "kv": "fp8", "max_num_seqs": 512},
        ),
        (
            {
                "engine": "sglang",
                "model": V3,
                "gpu": "b200_sxm",
                "precision": "fp4",
                "measured": "2026-03-25",
                "concurrency": 8,
            },
            {"length_from": 0.8},
            {"batched_tokens": 16384, "max_num_seqs": 256, "poll_steps": 10, "kv": "fp8", "look_ahead": 0},
        ),
        (
            {
                "engine": "sglang",
                "model": V3,
                "gpu": "b200_sxm",
                "precision": "fp8",
                "tp": 8,
                "concurrency": 16,
                **SHORT,
            },
            {},
            {"batched_tokens": 32768, "max_num_seqs": 128, "poll_steps": 30, "kv": "fp8"},
        ),
        (
            {"engine": "sglang", "gpu": "h200_sxm", "precision": "fp8", "measured": "2026-03-25", "concurrency": 64},
            {},
            {"batched_tokens": 32768, "poll_steps": 0, "kv": "bf16"},
        ),
        (
            {
                "engine": "trtllm",
                "model": V3,
                "precision": "fp8",
                "measured": "2026-01-29",
                "concurrency": 128,
                **SHORT,
            },
            {},
            {"batched_tokens": 8192, "hold_steps": 40, "hold_tokens": 0.8, "kv": "fp8"},
        ),
        (
            {"engine": "trtllm", "model": V3, "precision": "fp4", "measured": "2026-02-03", "concurrency": 128, **LONG},
            {},
            {"batched_tokens": 8384, "hold_steps": 0, "kv": "fp8"},  # 8192 + 128 + 64 is a multiple of 64
        ),
        (
            {"engine": "sglang", "model": QWEN, "precision": "fp4", "concurrency": 8, **LONG},
            {},
            {"batched_tokens": 16384, "poll_steps": 10, "max_num_seqs": 128, "kv": "fp8", "engine_version": "0.5.9"},
        ),
        (
            {"engine": "sglang", "model": "zhipuai/GLM-5", "gpu": "b200_sxm", "precision": "fp8", "concurrency": 16},
            {},
            {"batched_tokens": 32768, "poll_steps": 0, "kv": "fp8"},
        ),
        (
            {"engine": "sglang", "model": "zhipuai/GLM-5", "gpu": "h200_sxm", "concurrency": 16},
            {"waves": 5},
            {"batched_tokens": None, "poll_steps": 0, "kv": "bf16"},
        ),
        (
            {"engine": "vllm", "model": "MiniMaxAI/MiniMax-M2.5", "gpu": "b200_sxm", "version": "0.19.0", **SHORT},
            {},
            {"batched_tokens": 2048, "kv": "fp8"},
        ),
        (
            {"engine": "vllm", "model": "MiniMaxAI/MiniMax-M2.5", "gpu": "h100_sxm", **LONG},
            {},
            {"batched_tokens": None, "kv": "bf16"},
        ),
        (
            {
                "engine": "vllm",
                "model": "moonshotai/Kimi-K2.5",
                "precision": "int4",
                "gpu": "h200_sxm",
                "concurrency": 32,
            },
            {},
            {"batched_tokens": None, "max_num_seqs": 32, "kv": "bf16"},
        ),
        (
            {"engine": "vllm", "model": "Qwen/Qwen3-32B", "isl": 4096, "osl": 512, "concurrency": 8},
            {"waves": 10, "requests": None, "length_from": 1.0, "seed": None},
            {"batched_tokens": 4104, "kv": "bf16", "look_ahead": None, "engine_version": "0.12.0"},
        ),
        (
            {
                "engine": "trtllm",
                "model": "meta-llama/Llama-3.1-8B-Instruct",
                "isl": 1024,
                "osl": 512,
                "concurrency": 8,
            },
            {"length_from": 1.0},
            {"batched_tokens": 1032, "max_num_seqs": 7, "kv": "bf16"},
        ),
    ],
    ids=lambda value: " ".join(str(part) for part in value.values()) if isinstance(value, dict) else str(value),
)
def test_settings_of_rows(row: dict[str, Any], client: dict[str, Any], launch: dict[str, Any]) -> None:
    settings = settings_of(found(**row))
    assert settings.client.arrivals == "closed"
    assert {name: getattr(settings.client, name) for name in client} == client
    assert {name: getattr(settings.launch, name) for name in launch} == launch


def test_a_setting_names_the_rule_that_gave_it() -> None:
    row = found(engine="trtllm", model=LLAMA, gpu="h200_sxm", tp=2, **SHORT)
    (origin,) = (origin for origin in settings_of(row).origins if origin.key == "launch.hold_steps")
    assert origin.kind == "default"
    assert "70b_fp8_h200_trt_slurm.sh" in origin.source


def test_without_a_concurrency_nothing_that_depends_on_it_is_known() -> None:
    row = found(concurrency=None, engine="vllm")
    settings = settings_of(row)
    assert settings.launch.max_num_seqs is None
    assert deployment_of(row, settings).workload.concurrency == 1


def test_forms_round_up_and_are_bounded() -> None:
    form = Linear(constant=64, per_prompt=1, per_concurrency=1, multiple_of=64, at_least=8192)
    assert form.at(1024, 1024, 128) == 8192
    assert form.at(8192, 1024, 4) == 8320  # 8260 rounded up
    assert Linear(constant=-1, per_concurrency=1).at(1024, 512, 8) == 7
    assert Linear(per_output=2).at(1024, 512, None) == 1024


# ------------------------------------------------------------------------------------------------ malformed files

LAYOUT_RULE = '{match: {}, tp: tp, attention_dp: one, ep: moe_ep, source: "the file", why: "as written"}'
EXCLUSION = '{name: one, match: [{isl: [1024]}], excludes: [tpot], reason: "it is", source: "here"}'
SETTINGS = """schema: roofplan/settings/v1
title: "one"
rows:
  - {origin: ["here"]}
rules:
  - {client: {arrivals: closed}, launch: {kv: bf16}, source: "here", kind: default}
"""


def read_all(folder: Path) -> None:
    serving_rules.layouts(folder)
    serving_rules.exclusions(folder)
    serving_rules.sources(folder)


def folder_with(path: Path, name: str, text: str) -> Path:
    (path / LAYOUTS).write_text(f"schema: roofplan/layouts/v1\nrules:\n  - {LAYOUT_RULE}\n", encoding="utf-8")
    (path / EXCLUDED).write_text(f"schema: roofplan/exclusions/v1\nrules:\n  - {EXCLUSION}\n", encoding="utf-8")
    (path / "one.yaml").write_text(SETTINGS, encoding="utf-8")
    (path / name).write_text(text, encoding="utf-8")
    return path


def test_the_files_of_these_tests_are_well_formed(tmp_path: Path) -> None:
    read_all(folder_with(tmp_path, "one.yaml", SETTINGS))


def changed(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, old
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("settings/v1", "settings/v2", "one.yaml:1:9: schema: got 'roofplan/settings/v2', want 'roofplan/settings/v1'"),
        ('title: "one"\n', "", "one.yaml:1:1: title: got nothing, want this key"),
        ('origin: ["here"]', "origin: here", "one.yaml:4:14: rows.0.origin: got 'here', want a list"),
        ('origin: ["here"]', "origin: []", "one.yaml:4:5: rows.0: got no value for origin, want at least one"),
        ('origin: ["here"]', 'oringin: ["here"]', "one.yaml:4:15: rows.0.oringin: got an unknown key"),
        ('origin: ["here"]', "isl: {least: 4}", "one.yaml:4:19: rows.0.isl.least: got an unknown key"),
        ('origin: ["here"]', "isl: {}", "one.yaml:4:11: rows.0.isl: got no number, want a list of some, at_least or at_most"),
        ('origin: ["here"]', "isl: []", "one.yaml:4:11: rows.0.isl: got no number, want a list of some, at_least or at_most"),
        ('origin: ["here"]', "isl: 1024", "one.yaml:4:11: rows.0.isl: got 1024, want a mapping"),
        ('origin: ["here"]', "isl: [1.5]", "one.yaml:4:12: rows.0.isl.0"),
        ('origin: ["here"]', "measured: {}", "one.yaml:4:16: rows.0.measured: got no day, want on_or_after or before"),
        ('origin: ["here"]', 'measured: {before: "2026-13-01"}', "one.yaml:4:16: rows.0.measured: "),
        ("arrivals: closed", "arrivals: open", "one.yaml:6:25: rules.0.client.arrivals: got 'open', want 'closed' or 'poisson'"),
        ("arrivals: closed", "waves: 0", "one.yaml:6:22: rules.0.client.waves: "),
        ("arrivals: closed", "length_from: 1.5", "one.yaml:6:28: rules.0.client.length_from: "),
        ("kv: bf16", "max_num_seqs: 2", "one.yaml:6:57: rules.0.launch.max_num_seqs: got 2, want a mapping"),
        ("kv: bf16", "kv: 16", "one.yaml:6:47: rules.0.launch.kv: got 16, want a text"),
        ("kv: bf16", "batched_tokens: {per_propmt: 1}", "one.yaml:6:72: rules.0.launch.batched_tokens.per_propmt: got an unknown key"),
        ("kv: bf16", "batched_tokens: {multiple_of: 0}", "one.yaml:6:73: rules.0.launch.batched_tokens.multiple_of: "),
        ("kv: bf16", "hold_tokens: 90", "one.yaml:6:56: rules.0.launch.hold_tokens: "),
        ("kind: default", "kind: guessed", "one.yaml:6:76: rules.0.kind: got 'guessed', want 'default', 'measured', 'derived' or 'fitted'"),
        (', source: "here"', "", "one.yaml:6:5: rules.0.source: got nothing, want this key"),
    ],
)  # fmt: skip
def test_malformed_settings_name_the_place(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_all(folder_with(tmp_path, "one.yaml", changed(SETTINGS, old, new)))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "rule", "old", "new", "message"),
    [
        (
            EXCLUDED,
            EXCLUSION,
            "excludes: [tpot]",
            "excludes: [itl]",
            "rules.0.excludes.0: got 'itl', want 'tpot' or 'ttft'",
        ),
        (EXCLUDED, EXCLUSION, ', reason: "it is"', "", "rules.0.reason: got nothing, want this key"),
        (
            EXCLUDED,
            EXCLUSION,
            "match: [{isl: [1024]}]",
            "match: {isl: [1024]}",
            "rules.0.match: got a mapping, want a list",
        ),
        (
            LAYOUTS,
            LAYOUT_RULE,
            "ep: moe_ep",
            "ep: 8",
            "rules.0.ep: got 8, want 'one', 'tp', 'attention_dp', 'moe_tp' or 'moe_ep'",
        ),
        (LAYOUTS, LAYOUT_RULE, "attention_dp: one, ", "", "rules.0.attention_dp: got nothing, want this key"),
    ],
)
def test_malformed_rules_name_the_place(tmp_path: Path, name: str, rule: str, old: str, new: str, message: str) -> None:
    kind = {EXCLUDED: "exclusions", LAYOUTS: "layouts"}[name]
    text = f"schema: roofplan/{kind}/v1\nrules:\n  - {changed(rule, old, new)}\n"
    with pytest.raises(SpecError, match=rf"{name}:3:\d+: ") as caught:
        read_all(folder_with(tmp_path, name, text))
    assert message in str(caught.value)


def test_a_row_that_two_files_claim_is_refused(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "two.yaml", SETTINGS)
    with pytest.raises(SpecError, match="a row that one and two claim, want each row in one file of settings"):
        serving_rules.source_of({"origin": "here"}, folder)
    assert serving_rules.source_of({"origin": "elsewhere"}, folder) is None
