"""Levers of number formats against hand-computed bytes."""

from dataclasses import replace

import pytest
from levers import choices, levers, levers_of, without_overhead
from pytest import approx
from shapes import HH, M7, M8, deploy, device, formats, number_format

from roofplan.hardware.spec import Peak
from roofplan.planner.levers.situation import Choices

LAYERS = 32 * (4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336)  # multiplied parameters of M8
HEAD = 128256 * 4096
CLAIMED = device("claimed", 312e12, 2.039e12)


def test_int4_weights_speed_up_a_bandwidth_bound_decode_by_the_bytes_that_are_left() -> None:
    """Formula 16: 135.85 tokens/s at 2 bytes a weight, 436.00 with 4-bit blocks of 128 and a 16-bit head."""
    lever = levers(M8, CLAIMED, choices("int4-g128"), prompt=1, output=2)["weights.int4-g128"]
    read, left = 2 * (LAYERS + HEAD), LAYERS * 4.15625 / 8 + 2 * HEAD
    assert (2.039e12 / read, 2.039e12 / left) == (approx(135.849, abs=1e-3), approx(435.996, abs=1e-3))
    assert lever.gains.tpot == approx(read / left, rel=5e-3)  # what is left: vectors between the products
    assert (lever.status, lever.exact, lever.reason) == ("available", False, "fewer_weight_bytes")
    assert lever.memory_bytes == approx(-LAYERS * (16 - 4.15625) / 8, rel=1e-6)


def test_int4_weights_do_not_shorten_a_compute_bound_prompt() -> None:
    lever = levers(M8, CLAIMED, choices("int4-g128"), prompt=8192, output=1)["weights.int4-g128"]
    assert lever.gains.ttft == approx(1, abs=1e-3)
    assert "still multiplied in bf16" in lever.why


def test_fp8_weights_shorten_prompts_only_on_a_device_that_multiplies_them() -> None:
    """Products at twice the rate; causal attention, 2 x 4096 x 32 x S^2 FLOP, stays in 16 bits."""
    native = replace(CLAIMED, peak=Peak(bf16=312e12, fp8=624e12, fp32=312e12))
    weights = formats("fp8")
    asked = Choices(weights=(replace(weights, activations=number_format("fp8")),))
    with_units, without = (
        levers_of(without_overhead(deploy(M8, device, prompt=8192, output=1)), asked)["weights.fp8"]
        for device in (native, CLAIMED)
    )
    products, attention = 2 * LAYERS * 8192, 2 * 4096 * 32 * 8192**2
    expected = (products + attention) / (products / 2 + attention)
    assert with_units.gains.ttft == approx(expected, rel=0.05)
    assert without.gains.ttft == approx(1, abs=1e-3)
    assert "fp8 instead of bf16, at 2 times the rate" in with_units.why


def test_four_bit_weights_gain_little_in_a_large_batch() -> None:
    """user_demand row 42: at a batch of 256 the ceiling is not four-fold: the cache and the arithmetic bind."""
    gains = [
        levers(M8, HH, choices("int4-g128"), prompt=128, output=256, concurrency=batch)["weights.int4-g128"].gains.tpot
        for batch in (1, 64, 256)
    ]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 3
    assert gains[2] < 1.6


def test_an_eight_bit_cache_doubles_the_room_and_halves_what_is_read_of_it() -> None:
    lever = levers(M7, HH, choices(kv=("fp8",)), prompt=16, output=8160, concurrency=13)["kv.fp8"]
    # 72e9 B less 13.477e9 B of weights over 524288 B x 8176 tokens, and over half of that
    room = 72 * 10**9 - 2 * 6738415616
    assert (lever.before.max_concurrency, lever.after.max_concurrency) == (
        room // (524288 * 8176),
        room // (262144 * 8176),
    )
    weights, cache = 2 * (6738415616 - 32000 * 4096), 13 * 524288 * 4096
    assert lever.gains.tpot == approx((weights + cache) / (weights + cache / 2), rel=0.02)
    assert lever.reason == "fewer_cache_bytes"


def test_an_eight_bit_cache_does_not_help_one_short_sequence() -> None:
    lever = levers(M8, HH, choices(kv=("fp8",)), prompt=64, output=64)["kv.fp8"]
    assert lever.gains.tpot == approx(1, abs=0.01)
    assert lever.reason == "weight_bandwidth"


@pytest.mark.parametrize("name", ["weights", "kv"])
def test_without_a_narrower_format_there_is_nothing_to_pull(name: str) -> None:
    lever = levers(M8, HH)[name]
    assert lever.status == "not_applicable"
    assert "bits: no narrower format" in lever.why


def test_the_format_in_use_gains_nothing() -> None:
    found = levers(M8, HH, choices("bf16", kv=("bf16",)), prompt=512, output=64, concurrency=8)
    for name in ("weights.bf16", "kv.bf16"):
        gains = found[name].gains
        assert (gains.ttft, gains.tpot, gains.throughput, gains.capacity, gains.cost) == (1, 1, 1, 1, 1)
        assert found[name].memory_bytes == 0
