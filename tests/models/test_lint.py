"""Every lint rule finds its fault and nothing else, and finds nothing in the catalogue."""

from dataclasses import replace

import pytest

from roofplan import models
from roofplan.models.lint import RULES, lint_model
from roofplan.models.spec import LayerGroup, ModelSpec, Moe

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
    "alias-repeated": replace(MODEL, aliases=(*MODEL.aliases, MODEL.ids[0].id.upper())),
}


def test_every_rule_has_a_fault() -> None:
    assert set(FAULTS) == set(RULES)


@pytest.mark.parametrize(("rule", "spec"), FAULTS.items())
def test_a_rule_finds_its_fault_and_no_other(rule: str, spec: ModelSpec) -> None:
    assert {finding.rule for finding in lint_model(spec)} == {rule}


@pytest.mark.parametrize("slug", models.CATALOGUE.slugs())
def test_the_catalogue_is_clean(slug: str) -> None:
    assert lint_model(models.load(slug)) == []
