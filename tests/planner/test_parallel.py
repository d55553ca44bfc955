"""Layouts: what exists, what one rank holds, what exchanges cost."""

import pytest
from pytest import approx
from shapes import DS, M7, M8, M70

import roofplan
from roofplan import models
from roofplan.errors import LayoutError
from roofplan.planner.parallel import Layout, all_reduce_bytes, all_to_all_bytes, check_layout, kv_heads_per_rank


@pytest.mark.parametrize(("heads", "tp", "held"), [(8, 1, 8), (8, 8, 1), (8, 16, 1), (4, 8, 1), (6, 4, 2), (1, 32, 1)])
def test_kv_heads_per_rank(heads: int, tp: int, held: int) -> None:  # F3.8, bug case 20
    assert kv_heads_per_rank(heads, tp) == held


@pytest.mark.parametrize(("ranks", "factor"), [(2, 1), (4, 1.5), (8, 1.75)])
def test_all_reduce_factor(ranks: int, factor: float) -> None:  # F12.1
    assert all_reduce_bytes(1000, ranks) == approx(1000 * factor)
    assert all_to_all_bytes(1000, ranks) == approx(1000 * factor / 2)


@pytest.mark.parametrize(
    ("model", "layout", "devices", "fragment"),
    [
        (M7, Layout(tp=3), None, "a divisor of the 32 heads"),
        (M70, Layout(pp=81), None, "at most 80"),
        (M8, Layout(tp=2, dp=2), 8, "tp 2 x pp 1 x dp 2 = 4"),
        (M8, Layout(tp=2, ep=2), None, "has no experts"),
        (DS, Layout(tp=128, dp=4, ep=512), None, "at most 256"),
        (DS, Layout(tp=8, ep=16), None, "divides tp x dp"),
        (DS, Layout(tp=6, dp=1, ep=4), None, "--tp"),
        (models.load("qwen3-next-80b-a3b"), Layout(tp=32), None, "a divisor of the 16 heads"),
    ],
)
def test_layouts_that_do_not_exist(model, layout: Layout, devices: int | None, fragment: str) -> None:
    with pytest.raises(LayoutError, match=fragment):
        check_layout(model, layout, devices)


@pytest.mark.parametrize(
    ("options", "layout"),
    [
        ({"devices": 8}, Layout(tp=8)),
        ({"devices": 8, "pp": 2}, Layout(tp=4, pp=2)),
        ({"devices": 8, "tp": 2}, Layout(tp=2, dp=4)),
        ({"devices": 8, "tp": 2, "pp": 2, "dp": 2}, Layout(2, 2, 2)),
        ({"tp": 4}, Layout(tp=4)),
        ({}, Layout()),
    ],
)
def test_devices_that_no_layout_names_are_used(options: dict[str, int], layout: Layout) -> None:
    assert roofplan.deployment("llama-3-70b", "h100", **options).layout == layout


@pytest.mark.parametrize(
    "options", [{"devices": 6, "tp": 4}, {"devices": 8, "tp": 2, "pp": 2, "dp": 1}, {"devices": 3}]
)
def test_devices_that_no_layout_can_use_are_an_error(options: dict[str, int]) -> None:
    with pytest.raises(LayoutError):
        roofplan.deployment("llama-3-70b", "h100", **options)


def test_expert_groups_inside_and_across_replicas() -> None:
    assert (Layout(tp=8, ep=4).expert_cut, Layout(tp=8, ep=4).replicas_per_expert_group) == (2, 1)
    assert (Layout(tp=4, dp=4, ep=16).expert_cut, Layout(tp=4, dp=4, ep=16).replicas_per_expert_group) == (1, 4)
    assert Layout(tp=8).expert_cut == 8


def test_a_layout_names_what_is_not_one() -> None:
    assert str(Layout(tp=4, pp=2)) == "tp 4, pp 2"
    assert str(Layout()) == "one device"
