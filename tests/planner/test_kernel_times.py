"""Times of operators on kernels as they are reached, each worked out by hand: fixed times, shares of the rates, joins, exchanges.

Kernels are those of ``round_numbers``; expected times are formulas F1.3, F2.7, F2.10, F6.3, F12.1 and F12.4 written out again here.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from round_numbers import KERNELS, KIB, TIMING, US, linked, reach, table
from shapes import HH, M8

from roofplan import models
from roofplan.hardware.achieved import Kernel, UsualExchange, choose
from roofplan.planner.costs import (
    ActivationTraffic,
    Collective,
    Elementwise,
    Experts,
    Gemm,
    LatentScores,
    LayerFloor,
    Load,
    Operator,
    Scores,
    StateUpdate,
)
from roofplan.planner.kernel_times import ExchangeTimes, OperatorTime, nominal_time, reached_time
from roofplan.planner.operators import build_operators
from roofplan.planner.parallel import Layout
from roofplan.planner.step import StepModel

if TYPE_CHECKING:
    from roofplan.planner.deployment import Deployment

EXACT = 1e-12
F, W = 989.4e12, 3.35e12  # of HH: bf16 FLOP/s and bytes/s
MIB = 1024 * KIB
D = reach(M8, HH)


def seconds(operator: Operator, d: Deployment = D, **load: float) -> float:
    """Time of a step of one operator."""
    assert d.kernels is not None
    asked = {"decoders": 0, "context": 0, **load}
    return float(StepModel((operator,), (reached_time(d, d.kernels, operator),)).step_s(**asked))


# ------------------------------------------------------------------------------------------------ the join


@pytest.mark.parametrize(
    ("overlap", "together"), [(2, 1.4142135623730951), (4, 1.189207115002721), (8, 1.0905077326652577)]
)
def test_the_join_at_the_ridge(overlap: float, together: float) -> None:  # F1.3: a second of each
    one = Gemm("one", "bf16", flop_per_row=1.0, weight_bytes=1.0, activation_bytes_per_row=0.0)
    model = StepModel((one,), (OperatorTime(0.0, 1.0, 1.0, overlap),))
    assert model.step_s(1, 1) == approx(together, rel=EXACT)
    assert model.costs(Load(1, 1))[0].time_s == approx(together, rel=EXACT)


@pytest.mark.parametrize(("overlap", "together"), [(1, 1.75), (None, 1.0)])
def test_the_ends_of_the_join(overlap: float | None, together: float) -> None:  # F1.3: the sum, and the larger one
    one = Gemm("one", "bf16", flop_per_row=1.0, weight_bytes=0.75, activation_bytes_per_row=0.0)
    model = StepModel((one,), (OperatorTime(0.0, 1.0, 1.0, overlap),))
    assert model.step_s(1, 1) == approx(together, rel=EXACT)


# ------------------------------------------------------------------------------------------------ products


def product(arithmetic: str, launches: int = 3) -> Gemm:
    """Three layers of 4096 x 14336 in 16 bits."""
    size = 4096 * 14336
    return Gemm("up", arithmetic, 2.0 * 3 * size, 2.0 * 3 * size, 2.0 * 3 * (4096 + 14336), launches=launches)


@pytest.mark.parametrize("rows", [1, 64, 400, 8192])
def test_a_product(rows: int) -> None:
    moved = 3 * 2 * (4096 * 14336 + rows * (4096 + 14336)) / (0.8 * W)
    computed = 3 * 2 * rows * 4096 * 14336 / (0.75 * F)
    expected = 3 * 4e-6 + (moved**4 + computed**4) ** 0.25
    assert seconds(product("bf16"), decoders=rows) == approx(expected, rel=EXACT)


def test_rows_of_the_head_are_those_that_get_a_token() -> None:
    head = Gemm("head", "bf16", 2.0 * 4096 * 128256, 2.0 * 4096 * 128256, 0.0, rows="logits", launches=1)

    def by_hand(rows: int) -> float:
        moved, computed = 2 * 4096 * 128256 / (0.8 * W), 2 * rows * 4096 * 128256 / (0.75 * F)
        return 4e-6 + (moved**4 + computed**4) ** 0.25

    assert seconds(head, decoders=700, chunk=4096.0) == approx(by_hand(701), rel=EXACT)
    assert seconds(head, decoders=700, chunk=4096.0, pieces=50) == approx(by_hand(750), rel=EXACT)
    assert seconds(head, decoders=700, verify=2, chunk=0) == approx(by_hand(1400), rel=EXACT)


@pytest.mark.parametrize(("arithmetic", "floor"), [("fp8", 7e-6), ("bf16", 4e-6)])
@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_fused_quantisation_saves_a_part_of_the_launch_of_narrow_products(
    arithmetic: str, floor: float, share: float
) -> None:
    d = reach(M8, replace(HH, peak=replace(HH.peak, fp8=2 * F)), timing=replace(TIMING, fused_quantisation=share))
    kept = 1 - share if arithmetic == "fp8" else 1
    without = seconds(product(arithmetic, launches=0), d, decoders=1)
    assert seconds(product(arithmetic), d, decoders=1) - without == approx(3 * floor * kept, rel=1e-9)


def test_a_type_that_no_kernel_names_gets_the_widest_one() -> None:
    """The one with the most bits, which is the slowest; of several the first."""
    assert choose(KERNELS.gemm, "int4").floor == 4 * US
    assert choose(KERNELS.experts, "fp4", 4).floor == 28 * US
    assert choose((Kernel(arithmetic=("fp8",), bits=8, floor=1.0), Kernel(bits=16, floor=2.0)), "fp4", 32).floor == 2.0


def test_the_narrowest_kernel_that_fits_is_taken() -> None:
    assert choose(KERNELS.experts, "bf16", 4).floor == choose(KERNELS.experts, "bf16", 3.5).floor == 40 * US
    assert choose(KERNELS.experts, "bf16", 4.25).floor == choose(KERNELS.experts, "bf16", 16).floor == 28 * US
    assert (
        choose(KERNELS.decode_attention, "bf16", 8).floor
        == choose(KERNELS.decode_attention, "fp8", 4.5).floor
        == 13 * US
    )
    assert choose(KERNELS.decode_attention, "bf16", 16).floor == 11 * US
    assert choose(tuple(reversed(KERNELS.decode_attention)), "bf16", 8).floor == 13 * US
    assert choose((Kernel(floor=1.0), Kernel(bits=8, floor=2.0)), "bf16", 8).floor == 2.0


def test_shares_beyond_one_do_not_exist() -> None:
    doubled = Kernel(floor=1.0, bandwidth=0.6, compute=0.4).scaled(2, 2)
    assert (doubled.floor, doubled.bandwidth, doubled.compute) == (1.0, 1.0, 0.8)


# ------------------------------------------------------------------------------------------------ attention


def attention(phase: str, cap: float = math.inf) -> Scores:
    """Two layers of 32 query heads and 8 key heads of 128 elements in 16 bits; a query and its output are 2 x 32 x 128."""
    return Scores(
        "attention", "bf16", phase, 2.0 * 2 * 32 * 256, 2 * 2 * 8 * 128 * 2, 2 * 2 * 32 * 128 * 2, cap=cap, launches=2
    )


@pytest.mark.parametrize(("batch", "context"), [(1, 1), (1, 131072), (64, 4096)])
def test_attention_of_decoding(batch: int, context: int) -> None:  # F6.3: t_a + bytes / (0.9 W) for a layer
    moved = 2 * batch * (context * 2 * 8 * 128 * 2 + 2 * 32 * 128 * 2) / (0.9 * W)
    assert seconds(attention("decode"), decoders=batch, context=context) == approx(2 * 11e-6 + moved, rel=EXACT)


def test_attention_of_decoding_in_eight_bits() -> None:
    d = reach(M8, HH, kv="fp8")
    expected = 2 * 13e-6 + 2 * 3 * (5000 * 2 * 8 * 128 * 2 + 2 * 32 * 128 * 2) / (0.75 * W)
    assert seconds(attention("decode"), d, decoders=3, context=5000) == approx(expected, rel=EXACT)


def test_attention_is_launched_by_those_who_need_it() -> None:
    assert seconds(attention("decode"), chunk=100) == 0
    assert seconds(attention("prefill"), decoders=7, context=100) == 0


@pytest.mark.parametrize(("chunk", "past"), [(100, 0), (8192, 0), (512, 100_000)])
def test_attention_of_a_prompt(chunk: int, past: int) -> None:  # t_p + FLOP / (0.6 F) x (1 + 1000 / e), pairs by F2.7
    end = past + chunk
    pairs = end * (end + 1) / 2 - past * (past + 1) / 2
    computed = 2 * 4 * 32 * 128 * pairs / (0.6 * F)
    moved = 2 * ((past + chunk) * 2 * 8 * 128 * 2 + chunk * 2 * 32 * 128 * 2) / W
    expected = 2 * 12e-6 + max(computed, moved) * (1 + 1000 / end)
    assert seconds(attention("prefill"), chunk=chunk, past=past) == approx(expected, rel=EXACT)


def test_attention_of_a_prompt_in_a_window() -> None:
    pairs = 512 * 513 / 2 + (4096 - 512) * 512
    computed = 2 * 4 * 32 * 128 * pairs / (0.6 * F)
    assert seconds(attention("prefill", cap=512), chunk=4096) == approx(
        2 * 12e-6 + computed * (1 + 1000 / 4096), rel=EXACT
    )


def latent(phase: str) -> LatentScores:
    """One layer of 16 heads: latent 512 and rope 64, heads of 128 + 64 and 128, as in F2.8."""
    heads = 16
    return LatentScores(
        "attention",
        "bf16",
        phase,
        2.0 * heads * (2 * 512 + 64),
        2.0 * heads * (128 + 64 + 128),
        2.0 * 512 * heads * (128 + 128),
        2.0 * heads * (128 + 64 + 128) * 2,
        (512 + 64) * 2,
        heads * (128 + 64 + 128) * 2,
        math.inf,
        1 / F,
        1 / W,
        launches=1,
    )


def test_attention_over_latents_is_bound_by_bytes_or_by_flop() -> None:
    batch, context = 32, 8192
    moved = batch * (context * 576 * 2 + 16 * 320 * 2) / (0.9 * W)
    computed = batch * context * 16 * 2 * (2 * 512 + 64) / (0.5 * F)
    assert computed < moved
    assert seconds(latent("decode"), decoders=batch, context=context) == approx(11e-6 + moved, rel=EXACT)
    few_bytes = replace(latent("decode"), entry_bytes=64.0)
    assert seconds(few_bytes, decoders=batch, context=context) == approx(11e-6 + computed, rel=EXACT)


def test_attention_of_a_prompt_over_latents() -> (
    None
):  # nothing cached: heads of their own are cheaper, 320 per pair and head
    computed = 16 * 2 * 320 * (4096 * 4097 / 2) / (0.6 * F)
    assert seconds(latent("prefill"), chunk=4096) == approx(12e-6 + computed * (1 + 1000 / 4096), rel=EXACT)


# ------------------------------------------------------------------------------------------------ experts, states, the rest


def experts(arithmetic: str = "bf16") -> Experts:
    """Two layers of 64 experts of 3 x 2048 x 768 elements, 8 to a token."""
    one = 3 * 2048 * 768
    return Experts("experts", arithmetic, 2 * 64, 2.0 * one, 2.0 * one, 2.0 * 2 * (2048 + 768), 8 / 64, 1, launches=2)


@pytest.mark.parametrize("tokens", [1, 16, 4096])
def test_experts(tokens: int) -> None:  # t_m + (D w + rows a) / (0.9 W) + 6 h i rows / (0.5 F), summed
    touched = 2 * 64 * (1 - (1 - 8 / 64) ** tokens)
    rows = 2 * 8 * tokens
    moved = (touched * 3 * 2048 * 768 * 2 + rows * 2 * 2 * (2048 + 768)) / (0.9 * W)
    computed = 6 * 2048 * 768 * rows / (0.5 * F)
    assert seconds(experts(), decoders=tokens) == approx(2 * 28e-6 + moved + computed, rel=EXACT)


def test_experts_of_four_bits_have_a_kernel_of_their_own() -> None:
    d = reach(M8, HH, weights="experts=int4")
    assert D.kernels is not None
    four, sixteen = (reached_time(deployed, D.kernels, experts()) for deployed in (d, D))
    assert (four.fixed_s, sixteen.fixed_s) == (approx(80e-6), approx(56e-6))
    assert four.s_per_byte * W == approx(1 / 0.6)
    assert sixteen.s_per_byte * W == approx(1 / 0.9)


def test_a_recurrent_state() -> None:  # 8 us + B x state read and written / (0.7 W)
    state = StateUpdate("state", "bf16", 5.0 * 1000, 4.0 * 10**6, launches=48)
    assert seconds(state, decoders=10) == approx(48 * 8e-6 + 10 * 2 * 4e6 / (0.7 * W), rel=EXACT)
    assert seconds(state, decoders=10, chunk=1000.0, pieces=3) == approx(48 * 8e-6 + 26 * 4e6 / (0.7 * W), rel=EXACT)


@pytest.mark.parametrize(("verify", "moved"), [(1, 2), (2, 3), (5, 6)])
def test_each_verified_token_leaves_a_state(
    verify: int, moved: int
) -> None:  # F2.11: read once, written for each draft
    state = StateUpdate("state", "bf16", 0.0, 1000.0, launches=0)
    assert state.cost(Load(7, 100, verify)) == (0, 0, 7 * moved * 1000, 0)
    assert state.cost(Load(7, 100, verify, chunk=64, pieces=2))[2] == (7 * moved + 2 * 2) * 1000


@pytest.mark.parametrize("multiple", [0.0, 1.0, 1.8])
def test_small_kernels_take_a_multiple_of_the_devices(multiple: float) -> None:
    small = Elementwise("norm", "fp32", 0.0, 4.0 * 4096, 8192.0, launches=65)
    d = reach(M8, HH, timing=replace(TIMING, small_kernels=multiple))
    expected = 65 * multiple * 2e-6 + (8192 + 9 * 4 * 4096) / (0.7 * W)
    assert seconds(small, d, decoders=9) == approx(expected, rel=EXACT)


@pytest.mark.parametrize(
    ("kind", "floor"), [("routing", 6e-6), ("latent", 3e-6), ("gated_delta", 22e-6), ("sparse_index", 52e-6)]
)
def test_floors_of_layers(kind: str, floor: float) -> None:
    operator = LayerFloor("floor", kind, 58)
    assert seconds(operator, decoders=1) == seconds(operator, decoders=500, chunk=8192) == approx(58 * floor, rel=EXACT)


@pytest.mark.parametrize(("kind", "passes"), [("layer", 14), ("expert", 8)])
def test_activations_pass_by_memory(kind: str, passes: int) -> None:  # layers x 2 B x (14 d + 8 k' d) / (0.7 W) a token
    d = reach(M8, HH, timing=replace(TIMING, layer_passes=14, expert_passes=8))
    operator = ActivationTraffic("passes", kind, 32 * 4096 * 2)
    assert seconds(operator, d, decoders=5, chunk=1000) == approx(passes * 1005 * 32 * 4096 * 2 / (0.7 * W), rel=EXACT)
    assert seconds(operator, decoders=5) == 0  # an engine that says nothing has none
    assert nominal_time(d, operator) == OperatorTime(0.0, 0.0, 0.0)


# ------------------------------------------------------------------------------------------------ exchanges

POINTS = {1 * KIB: 1, 16 * KIB: 8, 64 * KIB: 8, 256 * KIB: 32}
TIMES = ExchangeTimes.of(table("quick", 8, POINTS))


@pytest.mark.parametrize(
    ("size", "microseconds"),
    [
        (0, 1),
        (1, 1),
        (1 * KIB, 1),
        (2 * KIB, 2**0.75),  # 1 to 8 over 1 to 16: the power 3/4
        (4 * KIB, 4**0.75),
        (16 * KIB, 8),
        (40 * KIB, 8),
        (64 * KIB, 8),
        (128 * KIB, 16),
        (256 * KIB, 32),
        (512 * KIB, 64),  # above, with the bytes
        (2560 * KIB, 320),
    ],
)
def test_exchanges_between_measured_sizes(size: int, microseconds: float) -> None:
    assert TIMES(size) == approx(microseconds * 1e-6, rel=EXACT)
    assert TIMES(np.array([size, size + 0.0])) == approx(microseconds * 1e-6, rel=EXACT)


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=20))
def test_exchanges_of_arrays_are_those_of_numbers(sizes: list[float]) -> None:
    assert TIMES(np.array(sizes)) == approx([TIMES(size) for size in sizes], rel=1e-9)
    ordered = [TIMES(size) for size in sorted(sizes)]
    assert all(less <= more * (1 + 1e-12) for less, more in itertools.pairwise(ordered))


def reduce(ranks: int, message: float = 8192.0, count: int = 160, operation: str = "all_reduce") -> Collective:
    """All-reduces of one vector a token; 2 (n - 1) / n of it is sent by each rank (F12.1)."""
    return Collective("all-reduce", operation, ranks, count, count * 2 * (ranks - 1) / ranks * message, message)


def test_a_measured_exchange_is_that_of_the_message() -> None:
    d = reach(M8, linked(HH), kernels=replace(KERNELS, collectives=(table("quick", 8, POINTS),)))
    assert seconds(reduce(8), d, decoders=1) == approx(160 * 8**0.75 * 1e-6, rel=EXACT)  # 8 KiB
    assert seconds(reduce(8), d, decoders=2, chunk=6) == approx(160 * 8e-6, rel=EXACT)  # 64 KiB


def test_the_first_kernel_of_the_engine_that_was_measured_is_taken() -> None:
    points = ({KIB: 5, MIB: 5}, {KIB: 6, MIB: 6}, {KIB: 7, MIB: 7})
    measured = tuple(table(name, 8, own) for name, own in zip(("c", "a", "b"), points, strict=True))
    kernels = replace(KERNELS, collectives=(table("b", 4, {KIB: 9, MIB: 9}), *measured))

    def with_kernels(*names: str) -> float:
        d = reach(M8, linked(HH), kernels=kernels, timing=replace(TIMING, exchange_kernels=names))
        return seconds(reduce(8), d, decoders=1) / 160 * 1e6

    assert with_kernels("a", "b", "c") == approx(6)
    assert with_kernels("unheard of", "c", "b") == approx(5)
    d = reach(M8, linked(HH), kernels=kernels, timing=replace(TIMING, exchange_kernels=("a", "b")))
    assert seconds(reduce(4), d, decoders=1) / 160 * 1e6 == approx(9)  # among four, only b was measured


@pytest.mark.parametrize(
    ("kernel", "ranks", "floor", "share"),
    [
        ("slow", 2, 10e-6, 0.5),
        ("slow", 8, 20e-6, 0.625),
        ("slow", 16, 20e-6, 0.625),  # the nearest in number, as a ratio
        ("slow", 3, 10e-6, 0.5),
        ("slow", 5, 20e-6, 0.625),
        ("quick", 8, 4e-6, 0.75),  # of this kernel only two ranks are known
    ],
)
def test_the_usual_exchange_where_none_was_measured(kernel: str, ranks: int, floor: float, share: float) -> None:
    names = (kernel, "quick" if kernel == "slow" else "slow")
    d = reach(M8, linked(HH, domain=16), timing=replace(TIMING, exchange_kernels=names))
    sent = 2 * (ranks - 1) / ranks * 3 * 8192
    assert seconds(reduce(ranks), d, decoders=3) == approx(160 * (floor + sent / (share * 450e9)), rel=EXACT)


def test_the_usual_exchange_is_the_first_of_the_engines_list_that_is_known() -> None:
    d = reach(M8, linked(HH), timing=replace(TIMING, exchange_kernels=("fastest", "quick", "slow")))
    assert seconds(reduce(2), d, decoders=1) == approx(160 * (4e-6 + 8192 / (0.75 * 450e9)), rel=EXACT)


def test_other_ranks_than_measured_ones_get_the_usual_times() -> None:
    d = reach(M8, linked(HH), kernels=replace(KERNELS, collectives=(table("quick", 8, POINTS),)))
    sent = 8192  # 2 (2 - 1) / 2 of it
    assert seconds(reduce(2), d, decoders=1) == approx(160 * (4e-6 + sent / (0.75 * 450e9)), rel=EXACT)


def test_other_operations_than_measured_ones_get_their_own_or_any_usual_times() -> None:
    exchange = UsualExchange(operation="alltoall", kernel="nccl", ranks=8, floor=11 * US, bandwidth=0.5)
    kernels = replace(KERNELS, collective=(*KERNELS.collective, exchange), collectives=(table("quick", 8, POINTS),))
    timing = replace(TIMING, exchange_kernels=("quick", "slow"))
    d = reach(M8, linked(HH), kernels=kernels, timing=timing)
    moved = Collective("all-to-all", "alltoall", 8, 116, 1e6, 65536.0)
    assert seconds(moved, d, decoders=2) == approx(116 * 11e-6 + 2e6 / (0.5 * 450e9), rel=EXACT)
    hop = Collective("stage hop", "send", 2, 3, 3 * 8192.0, 8192.0)
    assert seconds(hop, d, decoders=2) == approx(3 * 4e-6 + 6 * 8192 / (0.75 * 450e9), rel=EXACT)


def test_bytes_over_an_unknown_link_cost_nothing() -> None:
    assert HH.link(8) is None
    assert seconds(reduce(8), decoders=1) == approx(160 * 4e-6, rel=EXACT)  # "quick" among two, without its bytes
    assert nominal_time(D, reduce(8)) == OperatorTime(0.0, 0.0, 0.0)


def test_nominal_times_are_the_rates_alone() -> None:
    assert nominal_time(D, product("bf16")) == OperatorTime(0.0, 1 / F, 1 / W)
    d = reach(M8, linked(HH))
    assert nominal_time(d, reduce(8)) == OperatorTime(0.0, 0.0, 1 / 450e9)
    assert nominal_time(D, product("fp4")) == OperatorTime(0.0, 0.0, 1 / W)  # no such rate: its bytes are what is known


def test_products_of_an_engine_that_are_faster_than_those_that_were_measured() -> None:
    d = reach(M8, HH, timing=replace(TIMING, narrow_compute=1.2))
    for arithmetic, ratio in (("fp8", 1.2), ("bf16", 1.0)):
        product = Gemm("product", arithmetic, 2e9, 1e9, 1e4, launches=3)
        plain, own = reached_time(D, KERNELS, product), reached_time(d, KERNELS, product)
        assert plain.s_per_flop == approx(ratio * own.s_per_flop)
        assert (own.fixed_s, own.s_per_byte) == (plain.fixed_s, plain.s_per_byte)


@pytest.mark.parametrize(
    ("model", "tp", "bytes_per_token"),
    [
        ("llama-3.1-8b", 1, 32 * 3 * 14336 * 2),  # gate and up read, their product written
        ("llama-3.1-8b", 8, 32 * 3 * 14336 * 2 / 8),
        (
            "deepseek-v3",
            1,
            (3 * 3 * 18432 + 58 * 3 * 2048) * 2,
        ),  # dense layers and shared experts; the routed ones' is in their kernel
        ("mixtral-8x7b", 1, 0),
    ],
)
def test_activations_of_dense_parts_pass_through_memory_once(model: str, tp: int, bytes_per_token: float) -> None:
    d = reach(models.load(model), HH, layout=Layout(tp=tp))
    gates = [o for o in build_operators(d) if isinstance(o, ActivationTraffic) and o.kind == "gate"]
    assert sum(gate.bytes_per_token for gate in gates) == bytes_per_token
    for gate in gates:
        assert seconds(gate, chunk=100) == approx(100 * gate.bytes_per_token / (0.7 * W))
