"""Drafters against their shapes: bytes counted by hand, times from bytes, what is said of odd ones."""

from dataclasses import replace

import pytest
from pytest import approx
from shapes import DS, HA, HH, M7, M8, M70, dense, deploy, formats

from roofplan.api.building import deployment
from roofplan.engines import load as load_engine
from roofplan.errors import DomainError
from roofplan.models.spec import Moe
from roofplan.planner import drafters
from roofplan.planner.drafters import METHODS
from roofplan.planner.speculative_steps import relative_draft_cost
from roofplan.planner.step import StepModel

DRAFT = dense(2048, 16, 32, 8, 64, 8192, 128256, name="draft", tied_embeddings=True)
D8 = deploy(M8, HH, prompt=1000, output=48)
BF16 = formats()
LAYER_8 = 4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336 + 2 * 4096  # matrices and norms of a layer of M8
EXACT = 1e-12


def plan(method: str, model=M8, **options):
    return drafters.of_method(deploy(model, HH, prompt=1000, output=48), method, BF16, **options)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------ draft models


def test_a_draft_model_and_its_cache() -> None:  # F11.11
    found = drafters.of_model(deploy(M8, HH, prompt=8000, output=192), deploy(DRAFT, HH, prompt=8000, output=192))
    assert found.weights_bytes == 1235814400 * 2
    assert found.cache is not None
    assert found.weights_bytes + found.cache.bytes_per_sequence(8192) == 2740064256
    assert found.parameters == 1235814400
    assert found.notices == ()


def test_odd_drafts_are_said_and_not_refused() -> None:
    small = replace(M8, vocab_size=32000, max_context=512)
    found = drafters.of_model(deploy(small, HH, prompt=1000, output=48), deploy(M70, HH))
    assert [notice.code for notice in found.notices] == ["draft_larger_than_target", "draft_vocabulary_differs"]
    short = drafters.of_model(D8, deploy(replace(DRAFT, max_context=512), HH))
    assert [notice.code for notice in short.notices] == ["draft_context_exceeded"]


def test_a_known_cost_is_nothing_else() -> None:
    found = drafters.of_cost(0.1, 0.001)
    assert (found.nominal.relative_cost, found.nominal.overhead_s, found.nominal.model) == (0.1, 0, None)
    assert (found.reached.relative_cost, found.reached.overhead_s) == (0.1, 0.001)
    assert (found.weights_bytes, found.cache) == (0, None)


# ------------------------------------------------------------------------------------------------ parts of the target


def test_half_of_the_layers() -> None:  # F11.9
    d = deploy(M7, HA)
    found = drafters.of_method(d, "layer-skip", BF16)
    expected = (6476005376 / 2 + 4096 * 32000) / 6607077376
    assert found.nominal.model is not None
    assert relative_draft_cost(found.nominal.model, StepModel.of(d), 1, 1e-9, grouping="whole") == approx(
        expected, rel=1e-9
    )
    assert (found.weights_bytes, found.cache) == (0, None)  # they are the target's
    assert drafters.of_method(d, "layer-skip", BF16, layers=8).name == "8 of 32 layers"


@pytest.mark.parametrize("method", ["mtp", "eagle"])
def test_a_layer_and_a_projection(method: str) -> None:
    found = plan(method)
    assert found.weights_bytes == 2 * (LAYER_8 + 4096 + 2 * 4096**2)  # and the last norm
    assert found.cache is not None
    assert found.cache.bytes_per_token == 2 * 1024 * 2
    assert found.nominal.model is not None
    # The layer, the projection and the head of 128256 tokens are read once.
    read = 2 * (LAYER_8 - 2 * 4096 + 2 * 4096**2 + 4096 * 128256)
    assert found.nominal.model.step_s(1, 1e-9, grouping="whole") == approx(read / 3.35e12, rel=1e-9)


def test_a_small_vocabulary_has_a_head_of_its_own() -> None:  # EAGLE-3
    found = plan("eagle", vocabulary=32000)
    assert found.weights_bytes == 2 * (LAYER_8 + 4096 + 3 * 4096**2 + 4096 * 32000)


def test_experts_are_drafted_by_a_dense_layer_of_their_width() -> None:
    eagle, mtp = plan("eagle", DS), plan("mtp", DS)
    assert eagle.nominal.model is not None
    assert mtp.nominal.model is not None
    widths = {operator.name for operator in eagle.nominal.model.operators}
    assert not any("expert" in name for name in widths)
    assert any("expert" in operator.name for operator in mtp.nominal.model.operators)
    moe = DS.layers[-1].mlp[0]
    assert isinstance(moe, Moe)
    # The dense layers of DS are wider than 8 experts and a shared one of 2048.
    assert max(18432, 8 * 2048 + 2048) == 18432
    assert eagle.weights_bytes > 2 * 3 * 7168 * 18432


def test_heads_take_no_host_and_grow_with_the_round() -> None:
    found = plan("medusa")
    assert found.head_bytes == 2 * (4096**2 + 4096 * 128256)
    assert found.weights_bytes == 0
    assert found.nominal.model is not None
    assert found.nominal.model.step_s(1, 1e-9, grouping="whole") == approx(found.head_bytes / 3.35e12, rel=1e-9)
    reached = drafters.of_method(deployment("llama-3-8b", "h100-sxm", engine="vllm@0.19"), "medusa", BF16).reached
    assert reached.model is not None
    assert reached.model.host.per_step_s == 0


def test_ranks_hold_their_part() -> None:
    one = deployment("llama-3.1-70b", "h100-sxm")
    four = deployment("llama-3.1-70b", "h100-sxm", tp=4)
    whole, part = (drafters.of_method(d, "eagle", BF16).weights_bytes for d in (one, four))
    assert part == approx(whole / 4, abs=1)


@pytest.mark.parametrize("method", METHODS)
def test_ranks_of_experts_have_nothing_to_divide_of_a_drafter_without_any(method: str) -> None:
    """A dense drafter of a mixture whose experts are spread over ranks, and its first three layers, which are dense."""
    target = deployment("deepseek-v3", "h200", tp=8, ep=8)
    layers = 3 if method == "layer-skip" else None
    found = drafters.of_method(target, method, BF16, layers=layers)  # type: ignore[arg-type]
    step = found.nominal.time_s(1, 4, 1000, 1.0, "operators")
    assert (step > 0) == (method != "ngram")


def test_an_mtp_layer_that_nobody_knows_of_is_said() -> None:
    assert [notice.code for notice in plan("mtp").notices] == ["mtp_not_known"]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_both_rates(method: str) -> None:
    d = deployment("llama-3.1-8b", "h100-sxm", engine="vllm@0.19")
    found = drafters.of_method(d, method, BF16, overhead_s=0.001)  # type: ignore[arg-type]
    assert found.reached.overhead_s == 0.001
    assert found.nominal.overhead_s == 0
    if found.nominal.model is not None and found.reached.model is not None:
        assert found.reached.model.step_s(4, 1000) > found.nominal.model.step_s(4, 1000)


def test_fixed_times_of_rounds() -> None:
    plain, sglang = deploy(M8, HH), replace(deploy(M8, HH), engine=load_engine("sglang@0.5"))
    assert drafters.round_overhead(plain, None)[0] == 0
    seconds, assumed = drafters.round_overhead(sglang, None)
    assert seconds == 3.2e-3
    assert (assumed.kind, "4247" in assumed.source) == ("fitted", True)
    assert drafters.round_overhead(sglang, 0.0) == (0.0, assumed.__class__("round_overhead_s", 0.0, "as given", "user"))


@pytest.mark.parametrize(
    "call",
    [
        lambda: plan("mtp", layers=4),
        lambda: plan("ngram", vocabulary=100),
        lambda: plan("layer-skip", vocabulary=100),
        lambda: plan("layer-skip", layers=33),
        lambda: plan("layer-skip", layers=0),
        lambda: plan("eagle", vocabulary=10**6),
        lambda: drafters.of_cost(-0.1),
        lambda: drafters.round_overhead(D8, -1.0),
    ],
)
def test_domains(call) -> None:
    with pytest.raises(DomainError):
        call()
