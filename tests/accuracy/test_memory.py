"""The accuracy of memory on other people's start-up logs: every promise of the page, computed by the harness on the committed rows."""

from __future__ import annotations

import pytest
from pytest import approx

from roofplan.accuracy import activations
from roofplan.accuracy.memory import ARGUMENTS, COLUMNS, COMPUTE_BUFFER, GIVEN_WEIGHTS, PARTS, TOKENS
from roofplan.accuracy.metrics import Comparison
from roofplan.accuracy.results import DATA, memory_accuracy
from roofplan.accuracy.truth import GIB, TruthRow, read_truth

ROWS = {row.name: row for row in read_truth(DATA / "memory.csv", COLUMNS)}
RESULT = memory_accuracy()
FOUND: dict[tuple[str, str], Comparison] = {(c.row, c.metric): c for c in RESULT.comparisons}
TRUSTED = [row for row in ROWS.values() if row.trusted == "yes"]
INCOMPLETE = [row for row in ROWS.values() if row.trusted == "incomplete"]
NAMELESS = {"M153", "M154"}  # "Flash-Next hybrid model (78.47 GiB)": no model is named, and no shape


def test_the_rows_are_all_there() -> None:
    assert (len(TRUSTED), len(INCOMPLETE), len(ROWS)) == (80, 55, 138)


@pytest.mark.parametrize("row", [row for row in TRUSTED if row.name not in NAMELESS], ids=lambda row: row.name)
def test_tokens_follow_from_the_bytes_of_the_cache(row: TruthRow) -> None:
    limit = 0.015 if (row.count("pp") or 1) > 1 or "21348" in row.text("source") else 0.003
    error = FOUND[row.name, TOKENS].error
    assert error is not None
    assert abs(error) <= limit


@pytest.mark.parametrize("row", [ROWS[name] for name, metric in FOUND if metric == PARTS], ids=lambda row: row.name)
def test_the_cache_follows_from_the_logged_parts(row: TruthRow) -> None:
    found = FOUND[row.name, PARTS]
    assert found.predicted is not None
    assert abs(found.predicted - found.measured) / GIB <= 0.08


def test_most_trusted_rows_log_all_parts() -> None:
    assert sum((row.name, PARTS) in FOUND for row in TRUSTED) >= 74


def test_the_cache_from_arguments_alone() -> None:
    metric = RESULT.figures()["metrics"][ARGUMENTS]
    assert metric.median_ape <= 0.01
    assert metric.mean_ape <= 0.02
    assert metric.answered >= 57


H100 = [row for row in TRUSTED if row.text("engine_version") == "0.19.0" and row.text("gpu").startswith("H100")]


def test_there_are_many_starts_of_one_version() -> None:
    assert len(H100) == 52


@pytest.mark.parametrize("row", H100, ids=lambda row: row.name)
def test_every_start_of_0_19_on_h100_from_arguments(row: TruthRow) -> None:
    found = FOUND.get((row.name, ARGUMENTS)) or FOUND[row.name, GIVEN_WEIGHTS]
    weights = row.gib("weights_gib_per_gpu")
    assert found.predicted is not None
    assert weights is not None
    assert abs(found.predicted - found.measured) <= 0.3 * GIB + 0.01 * weights


def test_weights_are_derived_wherever_they_can_be() -> None:
    """Towers, adapters without a rank, and mixed formats alone are scored with the logged weights."""
    given = {c.row for c in RESULT.scored if c.metric == GIVEN_WEIGHTS}
    for name in given:
        text = f"{ROWS[name].text('model')} {ROWS[name].text('notes')}".lower()
        assert any(
            part in text for part in ("vl", "vision", "gemma-3", "llava", "lora", "mistral-small-3", "scout", "qwen3.5")
        ), name


# ------------------------------------------------------------------------------------------------ incomplete rows

FREE = ["M179", "M181", "M182", "M183"]  # TensorRT-LLM: free memory and fraction are logged


@pytest.mark.parametrize("name", FREE)
def test_a_share_of_free_memory_is_exact(name: str) -> None:
    assert FOUND[name, PARTS].error == approx(0, abs=0.003)


@pytest.mark.parametrize("name", ["M169", "M170"])
def test_sglang_leaves_a_share_of_the_memory_before_loading(name: str) -> None:
    assert FOUND[name, PARTS].error == approx(0, abs=0.003)


@pytest.mark.parametrize(
    "name", [row.name for row in INCOMPLETE if row.text("engine") == "SGLang" and row.name != "M175"]
)
def test_tokens_of_sglang(name: str) -> None:
    """M175, granite-4.0-h-micro, is no model of the catalogue and states no shape."""
    assert FOUND[name, TOKENS].error == approx(0, abs=0.003)


@pytest.mark.parametrize("name", ["M181", "M182", "M183", "M184", "M185"])
def test_tokens_of_tensorrt_llm(name: str) -> None:
    assert FOUND[name, TOKENS].error == approx(0, abs=0.003)


@pytest.mark.parametrize("name", ["M188", "M189"])
def test_llama_cpp_cache_and_compute_buffer(name: str) -> None:
    assert FOUND[name, TOKENS].predicted == FOUND[name, TOKENS].measured
    assert FOUND[name, COMPUTE_BUFFER].error == approx(0, abs=1e-3)


def test_what_is_missing_is_said() -> None:
    assert all(c.reason for c in RESULT.unanswered)
    assert {c.row for c in RESULT.unanswered if c.row in NAMELESS} == NAMELESS


def test_rows_that_name_model_and_device_are_answered() -> None:
    assert RESULT.coverage is not None
    assert RESULT.coverage >= 0.98


def test_rows_that_contradict_themselves_are_not_scored() -> None:
    assert not {c.row for c in RESULT.comparisons} & {row.name for row in ROWS.values() if row.trusted == "no"}


# ------------------------------------------------------------------------------------------------ the fit


def test_the_fit_is_close_to_the_profile_and_holds_for_models_left_out() -> None:
    fit = RESULT.fit
    assert fit is not None
    assert fit.models >= 20
    assert fit.logit_bytes == approx(fit.profile_logit_bytes, rel=0.1)
    assert fit.error_bytes <= 0.06 * GIB
    assert fit.error_bytes <= fit.left_out_error_bytes <= 1.25 * fit.error_bytes
    assert fit.profile_error_bytes <= 0.06 * GIB


def test_the_fit_finds_constants_that_were_put_in() -> None:
    """An independent check of the fit: peaks made with other constants give those back."""
    samples = [
        activations._Sample(f"m{i % 5}", 10 * logits + 1000 + 7, logits, 7.0, 0, 0)
        for i, logits in enumerate(range(10_000, 200_000, 10_000))
    ]
    slope, intercept = activations._fit(samples)
    assert (slope, intercept) == approx((10, 1000))
