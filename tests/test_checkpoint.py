"""A checkpoint's own bytes outrank the computed ones, and a difference is named with its likely cause."""

from dataclasses import replace

import pytest
from pytest import approx

import roofplan
from roofplan import models
from roofplan.models.spec import ModelSpec, Stored
from roofplan.planner.parameters import count_parameters

MODEL = models.load("qwen3-0.6b")


def stored_in(bits: float, *more: Stored, model: ModelSpec = MODEL) -> ModelSpec:
    """The same model with a checkpoint of so many bits an element."""
    classes = count_parameters(model).by_class.items()
    exact = tuple(
        Stored(kind=kind, parameters=count, bytes=int(count * bits / 8), types="Q4_K, Q6_K")
        for kind, count in classes
        if count
    )
    return replace(model, checkpoint=(*exact, *more))


@pytest.mark.parametrize("bits", [4.5, 8.5, 16])
def test_stored_bytes_are_those_of_the_header(bits: float) -> None:
    model = stored_in(bits)
    result = roofplan.size(model, "rtx-4090")
    assert result.model.weights_bytes == sum(part.bytes for part in model.checkpoint)
    assert result.deployment.formats.name == "as stored (Q4_K, Q6_K)"
    assert result.warnings == ()


def test_a_step_reads_the_stored_bytes_of_its_matrices() -> None:
    four, sixteen = (roofplan.size(stored_in(bits), "rtx-4090").model.weights_bytes_read_per_step for bits in (4, 16))
    assert four == approx(sixteen / 4, rel=1e-3)


def test_asking_for_a_format_outranks_the_checkpoint() -> None:
    assert roofplan.size(stored_in(4.5), "rtx-4090", weights="bf16").model.weights_bytes == 2 * 596049920


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("buffer", "masks or rotary tables"),
        ("duplicate", "a second time"),
        ("mtp", "draft layers"),
        ("vision", "towers"),
    ],
)
def test_what_is_stored_beside_is_named(kind: str, cause: str) -> None:
    beside = Stored(kind=kind, parameters=1000, bytes=2000, types="BF16")
    plain, more = roofplan.size(stored_in(8), "rtx-4090"), roofplan.size(stored_in(8, beside), "rtx-4090")
    assert [notice.code for notice in more.warnings] == ["checkpoint_differs"]
    assert cause in more.warnings[0].message
    loaded = 2000 if kind == "vision" else 0
    assert more.memory.weights_bytes - plain.memory.weights_bytes == loaded


def test_other_parameters_than_the_shape_has_are_named() -> None:
    model = stored_in(8)
    odd = replace(
        model,
        checkpoint=(replace(model.checkpoint[0], parameters=model.checkpoint[0].parameters + 7), *model.checkpoint[1:]),
    )
    (notice,) = roofplan.size(odd, "rtx-4090").warnings
    assert "+7 attention parameters" in notice.message


def test_a_class_that_the_checkpoint_lacks_is_named() -> None:
    untied = models.load("llama-3.2-1b")
    untied = replace(untied, tied_embeddings=False)
    whole = stored_in(16, model=untied)
    without = replace(whole, checkpoint=tuple(part for part in whole.checkpoint if part.kind != "head"))
    assert roofplan.size(whole, "rtx-4090").warnings == ()
    (notice,) = roofplan.size(without, "rtx-4090").warnings
    assert notice.message == "the checkpoint stores no head: taken as 16 bits (is it tied?)"


def test_a_checkpoint_says_what_an_unknown_quantisation_does_not() -> None:
    unknown = replace(MODEL, weights="unknown", assumed=("its quantisation is not known (mystery)",))
    with pytest.raises(roofplan.RoofplanError, match="weight files beside"):
        roofplan.size(unknown, "rtx-4090")
    stored = replace(unknown, checkpoint=stored_in(4.5).checkpoint)
    assert roofplan.size(stored, "rtx-4090").model.weights_bytes == sum(part.bytes for part in stored.checkpoint)
