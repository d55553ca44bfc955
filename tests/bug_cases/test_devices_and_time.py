"""Groups D and E: figures of devices, and time. See test_index."""

from __future__ import annotations

import pytest
from cases import logged
from pytest import approx

import roofplan
from roofplan import hardware, models
from roofplan.planner.costs import Load
from roofplan.planner.latency import time_per_output_token_s
from roofplan.planner.parameters import count_parameters
from roofplan.planner.step import Efficiency, StepModel

GB, TERA = 10**9, 10**12
ROUNDING = 1e-9  # of floats, so that a figure exactly between two printed ones is either


# case, device, arithmetic type, dense TFLOP/s of one device, within
PEAKS = [
    ("42", "l40s", "fp8", 733, 0.5),  # not 1466
    ("42", "l40s", "bf16", 362.05, 0.05),
    ("42", "h100-pcie-80gb", "bf16", 756.5, 0.05),  # not 1513
    ("42", "h100-sxm5-80gb", "bf16", 989.5, 0.1),  # half of the printed 1979; 132 units x 4096 x 1830 MHz give 989.4
    ("42", "h100-nvl-94gb", "bf16", 835.5, 0.05),  # not 3958, which is a pair with sparsity
    ("42", "a30", "bf16", 165, 0.05),  # not 330
    ("42", "gh200-96gb", "bf16", 989.5, 0.1),  # not 1979
    ("43", "a100-sxm4-80gb", "bf16", 312, 0.05),  # not 156
    ("43", "b200-sxm-180gb", "bf16", 2250, 0.05),  # not 4500
    ("43", "gb200-186gb", "bf16", 2500, 0.05),
    ("46", "l40s", "fp8", 733, 0.5),  # not 0
]


@pytest.mark.parametrize(
    ("name", "arithmetic", "expected", "within"), [pytest.param(*row[1:], id="-".join(row[:3])) for row in PEAKS]
)
def test_dense_peaks(name: str, arithmetic: str, expected: float, within: float) -> None:
    assert hardware.load(name).peak.rate(arithmetic) / TERA == approx(expected, abs=within + ROUNDING, rel=0)


def test_case_42_ridge_of_an_h100() -> None:
    assert hardware.load("h100").ridge("bf16") == approx(295, abs=0.5)  # not 591
    nvl = hardware.load("h100-nvl-94gb").memory  # one device of the pair: not 188 GB and 7.8 TB/s
    assert nvl.nameplate == 94 * GB
    assert nvl.bandwidth == approx(3.9 * TERA, abs=0.05 * TERA)


@pytest.mark.parametrize(
    ("name", "ratio"),
    [
        pytest.param(name, ratio, id=f"43-{name}")
        for name, ratio in (
            ("h100-sxm5-80gb", 2.0),
            ("h100-pcie-80gb", 2.0),
            ("h100-nvl-94gb", 2.0),
            ("h200-sxm-141gb", 2.0),
            ("gh200-96gb", 2.0),
            ("b200-sxm-180gb", 2.0),
            ("gb200-186gb", 2.0),
            ("b300-sxm-288gb", 2.0),
            ("l40s", 2.02),
        )
    ],
)
def test_case_43_fp8_over_bf16(name: str, ratio: float) -> None:
    peak = hardware.load(name).peak
    assert peak.rate("fp8") / peak.rate("bf16") == approx(ratio, abs=0.005)


def test_case_44_bandwidth_of_a_b200() -> None:
    b200, b300 = hardware.load("b200").memory, hardware.load("b300").memory
    assert b200.bandwidth == approx(7.7 * TERA)  # not 8, which made it beat a B300
    assert b200.bandwidth < b300.bandwidth
    assert b200.bus_bits / 8 * b200.data_rate / TERA == approx(7.672, abs=0.0005)


@pytest.mark.parametrize(
    ("device", "weights", "arithmetic"),
    [
        pytest.param("h100", "fp8", "fp8", id="46-W8A8-H100"),
        pytest.param("l40s", "fp8", "fp8", id="46-W8A8-L40S"),
        pytest.param("a100-80gb", "fp8", "bf16", id="46-W8A16-A100"),
        pytest.param("a100-80gb", "int4-g128", "bf16", id="46-W4A16-A100"),
        pytest.param("h100", "int4-g128", "bf16", id="46-W4A16-H100"),
    ],
)
def test_case_46_eight_bit_rates_need_eight_bit_operands(device: str, weights: str, arithmetic: str) -> None:
    intensity = roofplan.size("llama-3.1-8b", device, weights=weights).intensity
    assert intensity.arithmetic == arithmetic
    assert intensity.ridge_flop_per_byte == hardware.load(device).ridge(arithmetic)


def step_of(model: str, device: str, **options: int) -> StepModel:
    return StepModel.of(roofplan.deployment(model, device, **options))


def test_case_48_resident_is_not_read() -> None:
    result = roofplan.size("llama-3.1-8b", "h100")
    assert result.model.weights_bytes_read_per_step / GB == approx(15.01, abs=0.005)
    assert result.model.weights_bytes / GB == approx(16.06, abs=0.005)
    counted = count_parameters(models.load("llama-3.1-8b"))
    assert counted.total - counted.by_class["embedding"] == 7504924672  # layers, head and norms
    assert counted.multiplied + counted.by_class["norm"] == 7504924672
    assert step_of("llama-3.1-8b", "h100").step_s(1, 0, grouping="whole") == approx(4.48e-3, abs=0.005e-3)


def test_case_50_weights_are_read_once() -> None:
    """Llama 2 70B on 8 A100 40 GB at 90 % of 1555 GB/s, batch 32, 1,024 + 128 tokens: not 40.5 ms."""
    device = hardware.load("a100-sxm4-40gb")
    assert device.memory.bandwidth == 1555 * GB
    _, weights, cache = step_of("llama-2-70b", device.name, tp=8).totals(Load(32, 1024 + 128))
    reached = 0.9 * device.memory.bandwidth
    assert weights / GB == approx(17.18, abs=0.005)
    assert cache / GB == approx(1.51, abs=0.005)
    assert weights / reached == approx(12.3e-3, abs=0.05e-3)
    assert cache / reached == approx(1.08e-3, abs=0.005e-3)
    assert (weights + cache) / reached == approx(13.4e-3, abs=0.05e-3)


def test_case_50_the_step_model_takes_that_share_itself() -> None:
    model = step_of("llama-2-70b", "a100-sxm4-40gb", tp=8)
    step = model.at(Efficiency(bandwidth=0.9))
    alone = sum(
        cost.time_s for cost in step.costs(Load(32, 1152)) if cost.bound in {"weight_bandwidth", "kv_bandwidth"}
    )
    assert alone == approx(13.4e-3, rel=0.01)  # token vectors, which the case leaves out, are less than 1 %


def test_case_51_grouped_heads_share_what_decode_reads() -> None:
    assert step_of("llama-3.1-8b", "h100").totals(Load(1, 4096))[2] == 536870912  # not 2,147,483,648


def test_case_52_rows_of_the_input_table_and_all_of_the_head() -> None:
    moved = {cost.name: cost.bytes_moved for cost in step_of("llama-3.1-8b", "h100").costs(Load(1, 1))}
    table = 128256 * 4096 * 2
    assert table / GB == approx(1.05, abs=0.005)
    assert moved["embedding"] == 2 * 4096 * 2  # one row, read and written
    assert table < moved["head"] < 1.001 * table
    tied = {cost.name: cost.bytes_moved for cost in step_of("qwen3-0.6b", "h100").costs(Load(1, 1))}
    assert tied["head"] > 151936 * 1024 * 2 > 1000 * tied["embedding"]


def test_case_54_flop_of_a_prefill() -> None:
    work = roofplan.size("llama-3.1-8b", "h100", prompt=2048).work
    assert work.prefill_flop / TERA == approx(29.69, abs=0.005)  # not 2.20
    costs = step_of("llama-3.1-8b", "h100").costs(Load(0, 0, chunk=2048))
    attention = sum(cost.flop for cost in costs if cost.name == "attention prefill")
    assert attention / TERA == approx(1.10, abs=0.005)
    assert (work.prefill_flop - attention) / TERA == approx(28.59, abs=0.005)


def test_case_58_time_per_output_token_leaves_out_the_first() -> None:
    assert time_per_output_token_s(10.0, 2.0, 101) == approx(80.0e-3)  # not 99.0 ms
    result = roofplan.size("llama-3.1-8b", "h100", prompt=1024, output=101)
    latency = result.to_dict()["result"]["latency"]
    assert latency["tpot_s"]["expected"] == approx((latency["e2e_s"]["expected"] - latency["ttft_s"]["expected"]) / 100)


@pytest.mark.parametrize(
    ("weights", "kv", "sequences"),
    [
        pytest.param("bf16", "bf16", 105, id="61-bf16"),
        pytest.param("all=fp8", "bf16", 158, id="61-fp8-weights"),
        pytest.param("all=fp8", "fp8", 316, id="61-fp8-both"),
    ],
)
def test_case_61_sequences_of_4096_tokens_on_four_h100(weights: str, kv: str, sequences: int) -> None:
    """The claim was about 360 for a 70B model."""
    options = {"devices": 4, "prompt": 4000, "output": 96, "weights": weights, "kv": kv}
    assert roofplan.size("llama-3-70b", "h100", **options, **logged(0.9, 5.4, 0)).capacity.max_concurrency == sequences
