"""More, fewer and other devices."""

from dataclasses import replace

import pytest
from levers import choices, levers, levers_of
from pytest import approx
from shapes import HA, HH, M8, M70, deploy, device

import roofplan
from roofplan import hardware
from roofplan.hardware.achieved import UsualExchange
from roofplan.hardware.spec import Link, Price
from roofplan.planner.levers.situation import Choices
from roofplan.planner.parallel import Layout

LINKED = replace(HH, links=(Link(name="switch", per_direction=450e9, topology="switch", domain=8),))


def test_two_tensor_ranks_read_half_the_weights_each() -> None:
    lever = levers(M8, LINKED, prompt=64, output=64)["layout.tp2"]
    assert lever.gains.tpot == approx(2, rel=0.03)
    assert lever.gains.cost == approx(lever.gains.throughput / 2)
    assert (lever.reason, lever.option, lever.exact) == ("each_rank_reads_less", "--tp 2", True)


def test_a_second_replica_does_nothing_for_one_user_but_doubles_the_room() -> None:
    lever = levers(M8, LINKED, prompt=64, output=64)["layout.dp2"]
    assert (lever.gains.ttft, lever.gains.tpot, lever.gains.throughput) == (1, 1, 1)
    assert (lever.gains.capacity, lever.gains.cost) == (2, 0.5)
    assert lever.reason == "single_sequence"


def test_a_second_stage_does_nothing_for_one_user() -> None:
    """Formula F12.3: a token passes every stage."""
    lever = levers(M8, LINKED, prompt=64, output=64)["layout.pp2"]
    assert lever.gains.tpot == approx(1, abs=0.01)
    assert lever.gains.capacity > 2
    assert lever.reason == "one_sequence_passes_every_stage"


def test_the_same_devices_in_other_divisions_are_compared() -> None:
    found = levers(M70, LINKED, layout=Layout(tp=8), prompt=1024, output=128, concurrency=16)
    assert {"layout.pp8", "layout.dp8", "layout.tp4-pp2", "layout.tp4-dp2", "layout.tp4"} <= set(found)
    assert found["layout.pp8"].after.devices == found["layout.dp8"].after.devices == 8
    assert found["layout.dp8"].no_gain_because("tpot") == "does_not_fit"
    assert found["layout.tp4"].after.devices == 4
    assert "layout.tp8" not in found


def test_layouts_that_the_heads_do_not_allow_are_not_offered() -> None:
    found = levers(M8, LINKED, layout=Layout(tp=32), prompt=64, output=64)
    assert not any("tp64" in name for name in found)


def test_without_a_known_link_the_gain_is_called_an_upper_bound() -> None:
    lever = levers(M8, HH, prompt=64, output=64)["layout.tp2"]
    assert lever.reason == "no_known_link"
    assert "upper bound" in lever.why


def test_slow_exchanges_make_two_ranks_slower() -> None:
    """user_demand row 41 (gpt-fast 111): 64 all-reduces of 0.5 ms add 32 ms to every token of a 7B model."""
    d = roofplan.deployment("llama-2-7b", "a100-80gb", prompt=64, output=64, devices=1)
    slow = UsualExchange(operation="all_reduce", kernel="nccl", ranks=2, floor=500e-6, bandwidth=0.5)
    kernels = replace(hardware.kernels_of(d.hardware), collectives=(), collective=(slow,))
    lever = levers_of(d, Choices(kernels=kernels))["layout.tp2"]
    assert lever.gains.tpot < 1
    assert lever.after.tpot_s - lever.before.tpot_s / 2 == approx(0.032, rel=0.15)
    assert lever.reason == "interconnect"
    assert lever.figures["exchanged_share_of_decode"] > 0.8


# ------------------------------------------------------------------------------------------------ other devices


def test_the_same_device_gains_nothing() -> None:
    twin = replace(HH, name="twin", price=Price(usd_per_hour=2.0, provider="p", as_of="2026-01"))
    d = deploy(M8, replace(twin, name="own"), prompt=512, output=64, concurrency=8)
    gains = levers_of(d, choices(devices=(twin,)))["device.twin"].gains
    assert (gains.ttft, gains.tpot, gains.throughput, gains.capacity, gains.cost) == (1, 1, 1, 1, 1)


def test_bandwidth_decides_decoding_and_price_the_cost() -> None:
    fast = replace(HA, name="fast", price=Price(usd_per_hour=3.0, provider="p", as_of="2026-01"))
    fast = replace(fast, memory=replace(fast.memory, bandwidth=4.0e12))
    own = replace(HA, price=Price(usd_per_hour=1.0, provider="p", as_of="2026-01"))
    lever = levers(M8, own, choices(devices=(fast,)), prompt=16, output=512)["device.fast"]
    assert lever.gains.tpot == approx(2, rel=0.01)
    assert lever.gains.cost == approx(lever.gains.throughput / 3)
    assert lever.reason == "faster_device"


def test_without_prices_the_cost_of_another_device_is_unknown() -> None:
    lever = levers(M8, HA, choices(devices=(HH,)), prompt=16, output=64)["device.hh"]
    assert (lever.gains.cost, lever.no_gain_because("cost")) == (None, "no_price")


@pytest.mark.parametrize("concurrency", [1, 64])
def test_more_memory_never_lowers_the_gain_in_capacity(concurrency: int) -> None:
    sizes = [20, 40, 80, 81, 141, 500]
    others = tuple(device(f"of-{size}", 1e15, 3e12, capacity=size * 10**9) for size in sizes)
    found = levers(M8, HH, choices(devices=others), prompt=1024, output=128, concurrency=concurrency)
    gains = [found[other.name and f"device.{other.name}"].gains.capacity for other in others]
    assert gains == sorted(gains)
    assert gains[2] == 1
    assert gains[0] < 1 < gains[-1]


def test_memory_that_was_given_is_that_of_the_device_at_hand() -> None:
    d = deploy(M8, HH, prompt=64, output=64)
    small = replace(d, memory=replace(d.memory, total_bytes=30 * 10**9))
    lever = levers_of(small, choices(devices=(replace(HH, name="twin"),)))["device.twin"]
    assert lever.changed.device_bytes == HH.memory.total_bytes
    assert lever.gains.capacity > 2


def test_a_device_without_the_arithmetic_is_left_out() -> None:
    no_bf16 = replace(HH, name="none", peak=replace(HH.peak, bf16=None, fp32=None, int8=1e15))
    assert "device.none" not in levers(M8, HH, choices(devices=(no_bf16,)), prompt=64, output=64)


def test_room_decides_where_times_do_not_compare() -> None:
    small = device("small", 989.4e12, 3.35e12, capacity=25 * 10**9)
    lever = levers(M8, HH, choices(devices=(small,)), prompt=4096, output=256, concurrency=32)["device.small"]
    assert lever.reason == "fewer_run_at_a_time"
    assert lever.gains.throughput < 1
