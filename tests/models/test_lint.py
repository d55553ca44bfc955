"""Every lint rule finds its fault and nothing else, and finds nothing in the catalogue."""

from dataclasses import replace

import pytest

from roofplan import models
from roofplan.models.lint import RULES, lint_model
from roofplan.models.spec import LayerGroup, ModelId, ModelSpec, Moe

MODEL = models.load("llama-3.1-8b")
LAYER = MODEL.layers[0]
ATTENTION = LAYER.attention[0]


def with_attention(**changes: object) -> ModelSpec:
    return replace(MODEL, layers=(LayerGroup(count=1, attention=(replace(ATTENTION, **changes),)),))


FAULTS = {
    "source-missing": replace(MODEL, sources=()),
    "shared-without-owner": with_attention(cache="shared"),
    "window-beyond-context": with_attention(kind="sliding", window=10**6),
    "experts-idle": replace(
        MODEL,
        layers=(replace(LAYER, mlp=(Moe(kind="moe", num_experts=8, experts_per_token=8, intermediate_size=64),)),),
    ),
    "head-too-wide": with_attention(head_dim=4096),
    "context-too-short": replace(MODEL, max_context=128),
    "format-unknown": replace(MODEL, ids=(ModelId(id="example/of-no-format", weights="mlp=int5-g7"),)),
    "alias-taken": replace(MODEL, aliases=("openai-community/gpt2",)),
    "alias-repeated": replace(MODEL, aliases=(*MODEL.aliases, MODEL.ids[0].id.upper())),
}


def test_every_rule_has_a_fault() -> None:
    assert set(FAULTS) == set(RULES)


@pytest.mark.parametrize(("rule", "spec"), FAULTS.items())
def test_a_rule_finds_its_fault_and_no_other(rule: str, spec: ModelSpec) -> None:
    assert {finding.rule for finding in lint_model(spec)} == {rule}


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("int5", "weights: int5 is no number format"),
        ("bf16,,head=int8", "weights: nothing is no number format"),
        ("experts=", "weights: nothing is no number format"),
        ("ears=int8", "weights: ears is no class of tensors"),
    ],
)
def test_a_weight_format_is_read_part_by_part(weights: str, message: str) -> None:
    assert [finding.message for finding in lint_model(replace(MODEL, weights=weights))] == [message]


@pytest.mark.parametrize("weights", ["bf16", "all=int8", "int8, head = int8", "experts=mxfp4,mlp=q8_0"])
def test_known_weight_formats(weights: str) -> None:
    assert lint_model(replace(MODEL, weights=weights)) == []


def test_a_name_is_the_same_in_all_its_spellings() -> None:
    twice = replace(MODEL, ids=(), aliases=("Some Model", "some_model"))
    assert {finding.rule for finding in lint_model(twice)} == {"alias-repeated"}
    taken = replace(MODEL, ids=(), aliases=("GPT2",))
    assert [finding.message for finding in lint_model(taken)] == ["gpt2 is a name of gpt2"]


@pytest.mark.parametrize("slug", models.CATALOGUE.slugs())
def test_the_catalogue_is_clean(slug: str) -> None:
    assert lint_model(models.load(slug)) == []
