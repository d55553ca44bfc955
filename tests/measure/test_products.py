"""Products and attention: that the bytes and FLOP that are counted are the planner's, and what is left out and said."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from torch_standin import CUDA, EVENT_S, CudaTorch, Ticking  # noqa: E402  # after importorskip

from roofplan import hardware  # noqa: E402  # after importorskip
from roofplan.errors import MeasureError  # noqa: E402  # after importorskip
from roofplan.measure import attention, machine, products, timing  # noqa: E402  # after importorskip
from roofplan.planner.costs import Gemm, Load, Scores  # noqa: E402  # after importorskip

CPU = machine.Machine("cpu", "cpu", "Test CPU", 2**16, 2, 2**30, (2**14, 2**16))
SHORT = timing.Limits(least=2, noise=0.5, most_s=0.02, most=4, sample_s=0.0, warm_s=0.0)


@pytest.fixture
def cuda(monkeypatch):
    """The stand-in, wherever torch is asked for."""
    found = CudaTorch()
    monkeypatch.setattr(machine, "torch_module", lambda: found)
    return found


@pytest.fixture(scope="module")
def h100():
    return hardware.load("h100-sxm5-80gb")


# ------------------------------------------------------------------------------------------------ products


@pytest.mark.parametrize(("name", "stored", "result"), [("fp32", 4, 4), ("bf16", 2, 2), ("int8", 1, 4)])
@pytest.mark.parametrize("rows", [1, 24])
def test_products_have_the_bytes_and_flop_of_the_planner(name, stored, result, rows):
    weight = torch.ones((32, 64), dtype=getattr(torch, products.TYPES[name].operand))
    product = products.product_of(torch, products.TYPES[name], rows, [weight])
    planned = Gemm("w", name, 2 * 32 * 64, stored * 32 * 64, stored * 64 + result * 32)
    flop, weights, cached, activations = planned.cost(Load(decoders=rows, context=1))
    assert (product.flop, product.bytes) == (flop, weights + cached + activations)


@pytest.mark.parametrize("name", ["fp32", "bf16", "int8"])
def test_products_multiply_all_rows_with_all_weights(name):
    kind = products.TYPES[name]
    weights = [torch.full((8, 16), number, dtype=getattr(torch, kind.operand)) for number in (1, 2)]
    product = products.product_of(torch, kind, 3, weights)
    results = [product.call().clone() for _ in range(3)]
    assert all(result.shape == (3, 8) for result in results)
    seen = [set(result.flatten().tolist()) for result in results]
    assert seen == [{16}, {32}, {16}]  # sums of 16 ones, and of 16 twos: the weights take turns


def test_weights_come_from_memory():
    # Five caches of other weights lie between two uses of one (flashinfer's rule).
    weights = products.weights_of(torch, products.TYPES["fp32"], 64, 64, CPU)
    assert len({weight.data_ptr() for weight in weights}) == len(weights)
    assert (len(weights) - 1) * weights[0].nbytes >= 5 * CPU.cache_bytes


def test_predictions_of_products_are_the_longer_of_reading_and_computing(h100):
    found = products.gemm(CPU, SHORT, hardware=h100, types=["bf16"], rows=[1, 2048], side=64, clock=Ticking(1e-6))
    assert [r.name for r in found] == ["gemm.bf16"] * 2
    for one, rows in zip(found, (1, 2048), strict=True):
        moved, flop = 2 * (64 * 64 + 2 * 64 * rows), 2 * 64 * 64 * rows
        assert one.parameters["rows"] == rows
        assert one.predicted_datasheet == pytest.approx(max(moved / 3.35e12, flop / 989.4e12))


def test_rows_that_last_too_long_are_left_out_and_said():
    said, slow = [], Ticking(1.0)
    found = products.gemm(CPU, SHORT, types=["fp32"], rows=[1, 2, 4], side=32, clock=slow, say=said.append)
    assert [r.parameters["rows"] for r in found] == [1]
    assert said == ["gemm.fp32: 2 rows and more would last 2 s each; left out"]


def test_slow_calls_get_fewer_samples_but_three():
    limits = timing.Limits(least=10, most_s=2.0)
    assert [products.patient(limits, lasts).least for lasts in (0.0, 0.1, 0.4, 5.0)] == [10, 10, 5, 3]
    assert products.patient(replace(limits, least=2), 5.0).least == 2


def test_types_that_torch_does_not_have_are_left_out_and_said(cuda):
    cuda.missing["_int_mm"] = AttributeError("this torch has none\nand a long story")
    said = []
    found = products.gemm(CUDA, SHORT, types=["int8", "fp32"], rows=[1, 2], side=16, clock=Ticking(), say=said.append)
    assert [r.name for r in found] == ["gemm.fp32"] * 2
    assert said == ["gemm.int8: AttributeError: this torch has none; left out"]


def test_rows_that_a_kernel_refuses_are_said_once(cuda):
    def picky(left, right, *, out):
        if left.shape[0] <= 16:
            raise RuntimeError(f"self.size(0) needs to be greater than 16, but got {left.shape[0]}")
        out.zero_()

    cuda._int_mm, said = picky, []
    found = products.gemm(CUDA, SHORT, types=["int8"], rows=[1, 16, 32], side=16, clock=Ticking(), say=said.append)
    assert [r.parameters["rows"] for r in found] == [32]
    assert said == [
        "gemm.int8: rows 1, 16: RuntimeError: self.size(0) needs to be greater than 16, but got 1; left out"
    ]


def test_an_unknown_type_is_an_error():
    with pytest.raises(MeasureError, match="got fp5, want one of fp32, tf32"):
        products.gemm(CPU, SHORT, types=["fp5"])


def test_tf32_is_allowed_for_its_own_products_alone(cuda):
    seen, plain, settings = [], torch.mm, cuda.backends.cuda.matmul

    def watched(left, right, *, out):
        seen.append(settings.allow_tf32)
        return plain(left, right, out=out)

    cuda.mm = watched
    settings.allow_tf32 = True  # as some programs have it
    found = products.gemm(CUDA, SHORT, types=["fp32", "tf32"], rows=[1], side=16)
    each = len(seen) // 2
    assert seen == [False] * each + [True] * each
    assert settings.allow_tf32
    assert [r.parameters["arithmetic"] for r in found] == ["fp32", "tf32"]
    assert {r.measured.median for r in found} == {EVENT_S}  # the events' time


def test_fp8_has_its_own_product(cuda):
    def scaled(left, right, *, scale_a, scale_b, out_dtype, use_fast_accum, out):
        assert use_fast_accum
        assert left.dtype == right.dtype == torch.float8_e4m3fn
        assert out_dtype == out.dtype == torch.bfloat16
        out.copy_((left.float() @ right.float()) * scale_a * scale_b)

    cuda._scaled_mm = scaled
    (found,) = products.gemm(CUDA, SHORT, types=["fp8"], rows=[2], side=16)
    assert found.parameters["bytes"] == 16 * 16 + 2 * 16 + 2 * 2 * 16


# ------------------------------------------------------------------------------------------------ attention


def test_attention_of_one_token_has_the_bytes_and_flop_of_the_planner():
    batch, context, heads, width = 3, 40, 32, 128
    _, moved, flop = attention.decode_of(torch, torch.float32, batch, context, CPU)
    entry, query = 2 * 8 * width * 4, 2 * heads * width * 4
    planned = Scores("a", "fp32", "decode", 2 * heads * 2 * width, entry, query)
    counted, weights, cached, activations = planned.cost(Load(decoders=batch, context=context))
    assert (flop, moved) == (counted, weights + cached + activations)


def test_attention_of_a_prompt_counts_pairs_up_to_the_diagonal():
    tokens, heads, width = 24, 32, 128
    attend, moved, flop = attention.prefill_of(torch, torch.float32, tokens, CPU)
    assert flop == sum(4 * heads * width * seen for seen in range(1, tokens + 1))
    assert moved == 4 * width * tokens * (2 * heads + 2 * 8)
    assert attend().shape == (1, heads, tokens, width)


def test_attention_takes_shapes_that_fit(monkeypatch):
    said = []
    monkeypatch.setattr(machine.Machine, "free_bytes", lambda _: 2**22)
    found = attention.attention(CPU, SHORT, decode=[(1, 16), (4, 4096)], prefill=[8], clock=Ticking(), say=said.append)
    assert [(r.name, r.parameters["tokens"]) for r in found] == [("attention.decode", 16), ("attention.prefill", 8)]
    assert said == ["attention.decode: no memory for 4 x 4,096 tokens; left out"]
