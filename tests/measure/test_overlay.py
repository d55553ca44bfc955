"""The measured machine as a device: constants that a run was made from are found again, and every verb takes what is written."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from measured import CPU, GPU, cpu_run, products, run_of, streams, timed
from pytest import approx

import roofplan
from roofplan import hardware, specfiles
from roofplan.documents import Document, parse_yaml
from roofplan.errors import MeasureError
from roofplan.hardware.lint import lint_device
from roofplan.hardware.spec import HardwareSpec
from roofplan.measure.gates import gates_of, likely_causes, warnings_of
from roofplan.measure.kernel_fit import Call, Fitted, fit_kernel
from roofplan.measure.overlay import catalogued, overlay, to_yaml
from roofplan.measure.records import Record, Run
from roofplan.measure.spec_text import as_mapping

H200 = hardware.load("h200-sxm-141gb")


def device_of(said: dict[str, Any]) -> HardwareSpec:
    return hardware.from_document(parse_yaml(to_yaml(said), "machine.yaml"))


# ------------------------------------------------------------------------------------------------ fitting a kernel


@pytest.mark.parametrize("overlap", [1.0, 2.0, 4.0, None])
def test_a_kernels_constants_are_found_again(overlap: float | None) -> None:
    """F1.3: calls made from known constants, 2 % of scatter, give them back."""
    truth, draw = Fitted(4e-6, 4e12, 800e12, overlap), random.Random(1)
    calls = [
        Call(moved, flop, truth.seconds(moved, flop) * draw.lognormvariate(0, 0.02))
        for side in (2048, 4096, 8192)
        for rows in (1, 4, 16, 64, 256, 1024, 4096)
        for moved, flop in [(2.0 * side * side + 4.0 * rows * side, 2.0 * rows * side * side)]
    ]
    found = fit_kernel(calls, stream_bytes_per_s=4e12)
    assert found.bytes_per_s == approx(4e12, rel=0.05)
    # Where nothing overlaps no call reaches the rate of computing itself, and fitted <= measured.
    assert found.flop_per_s == approx(800e12, rel=0.08)
    assert found.floor == approx(4e-6, rel=0.3)
    assert found.median_error < 0.03
    assert found.calls == len(calls)


def test_fitted_is_not_above_measured() -> None:
    calls = [Call(1e6, 0, 1e-3), Call(4e6, 0, 1e-3)]
    found = fit_kernel(calls)
    assert found.flop_per_s is None
    assert found.bytes_per_s <= 4e9 * (1 + 1e-12)
    assert found.floor <= 1e-3


def test_one_disturbed_call_does_not_bend_a_fit() -> None:
    calls = [Call(n * 1e6, 0, n * 1e-4) for n in range(1, 12)]
    calls[5] = Call(6e6, 0, 6e-3)
    assert fit_kernel(calls).bytes_per_s == approx(1e10, rel=0.02)


def test_calls_of_one_intensity_say_nothing_of_computing() -> None:
    """Decode attention has 4 FLOP to a byte at every length: how its time divides into reading and computing is not to be seen."""
    found = fit_kernel([Call(n * 1e6, n * 4e6, 3e-6 + n * 1e-4) for n in (1, 4, 16)])
    assert found.flop_per_s is None
    assert found.bytes_per_s == approx(1e10, rel=0.04)


def test_nothing_to_fit() -> None:
    with pytest.raises(MeasureError, match="without bytes"):
        fit_kernel([])
    with pytest.raises(MeasureError, match="without bytes"):
        fit_kernel([Call(0, 10, 1.0)])


# ------------------------------------------------------------------------------------------------ a spec as a mapping


def test_every_device_is_written_as_it_was_read() -> None:
    for slug in hardware.CATALOGUE.slugs():
        device = hardware.load(slug)
        assert hardware.from_document(Document(as_mapping(device), slug, {})) == device


# ------------------------------------------------------------------------------------------------ a processor that nobody listed


@pytest.fixture(scope="module")
def cpu_overlay() -> dict[str, Any]:
    return overlay(cpu_run())


def test_the_best_rates_are_the_nominal_ones(cpu_overlay: dict[str, Any]) -> None:
    device = device_of(cpu_overlay)
    assert device.name == "test-processor-9000-measured"
    assert device.memory.bandwidth == approx(30e9, rel=0.01)
    assert device.peak.fp32 == approx(100e9, rel=0.02)
    assert device.peak.bf16 == approx(200e9, rel=0.02)
    assert device.memory.nameplate == 16 * 2**30
    assert device.units.cache == 32 * 2**20
    assert device.memory.shared_with_host


def test_lint_finds_nothing(cpu_overlay: dict[str, Any]) -> None:
    assert lint_device(device_of(cpu_overlay)) == []


def test_lint_takes_what_a_library_reaches_for_what_it_is() -> None:
    """Without instructions for it, 16-bit products are slower than 32-bit ones by any factor; no data sheet says such, and none did."""
    records = [*cpu_run().records]
    for name, rate in (("fp16", 5e9), ("int8", 900e9)):
        records += products(name, lambda moved, flop, rate=rate: 3e-6 + max(moved / 30e9, flop / rate), 2048)  # type: ignore[misc]
    device = device_of(overlay(run_of(records)))
    assert device.peak.fp16 == approx(5e9, rel=0.02)
    assert device.peak.int8 == approx(900e9, rel=0.05)
    assert lint_device(device) == []
    stated = replace(device, evidence=(replace(device.evidence[0], kind="datasheet"),))
    assert {finding.rule for finding in lint_device(stated)} == {"sparse-headline", "rates-apart"}


def test_it_says_when_on_what_and_how(cpu_overlay: dict[str, Any]) -> None:
    device = device_of(cpu_overlay)
    evidence = device.evidence_of("memory.bandwidth")
    assert evidence is not None
    assert (evidence.kind, evidence.source[:19]) == ("measured", "measured 2026-11-30")
    for words in ("2026-11-30T12:00:00", "torch 2.13.0", "Linux 6.0", "2 threads"):
        assert words in device.notes
    kernels = hardware.kernels_of(device, 1)
    assert kernels.sources["gemm"].kind == "fitted"
    assert kernels.sources["elementwise"].kind == "measured"
    assert kernels.sources["floors"].kind == "derived"
    assert kernels.measured_on == (device.name,)
    assert kernels.spread.measured >= 1.05


def test_steps_are_predicted_as_calls_were_made(cpu_overlay: dict[str, Any]) -> None:
    """The product of 4 rows with 2048 x 2048 in fp32 takes 3 us + bytes / 30 GB/s: the planner's own kernel says so."""
    device = device_of(cpu_overlay)
    kernel = next(k for k in hardware.kernels_of(device, 1).gemm if "fp32" in k.arithmetic)
    moved = 4 * (2048 * 2048 + 2 * 4 * 2048)
    said = kernel.floor + moved / (kernel.bandwidth * device.memory.bandwidth)
    assert said == approx(3e-6 + moved / 30e9, rel=0.03)


def test_disturbances_are_written_down() -> None:
    said = overlay(replace(cpu_run(), environment=replace(cpu_run().environment, notes=("other work runs",))))
    assert "Disturbed by: other work runs" in said["notes"]


def test_attention_is_taken_where_it_was_measured() -> None:
    records = [*cpu_run().records]
    for tokens in (512, 2048, 8192):
        moved = 8192 * tokens
        own = {"bytes": moved, "flop": 4 * moved, "tokens": tokens, "arithmetic": "fp32", "cold": True}
        records.append(timed("attention.decode", 4e-6 + moved / 15e9, **own))
    for tokens in (64, 256, 1024, 2048):
        flop = 8192 * tokens * (tokens + 1)
        own = {"bytes": 32768 * tokens, "flop": flop, "tokens": tokens, "arithmetic": "fp32", "cold": False}
        records.append(timed("attention.prefill", flop * (1 + 128 / tokens) / 50e9, **own))
    device = device_of(overlay(run_of(records)))
    kernels = hardware.kernels_of(device, 1)
    (decode,) = kernels.decode_attention
    assert decode.bandwidth * device.memory.bandwidth == approx(15e9, rel=0.05)
    assert kernels.sources["decode_attention"].kind == "measured"
    assert kernels.prefill_attention.ramp_tokens == approx(128, rel=0.01)
    assert kernels.prefill_attention.compute * (device.peak.fp32 or 0) == approx(50e9, rel=0.05)


@pytest.mark.parametrize("flop_per_s", [100e9, None])
def test_attention_computes_where_more_queries_take_longer(flop_per_s: float | None) -> None:
    """A byte of cache has as many operations as queries share it: calls with one, four and eight tell whether they take time."""
    records, rate = [*cpu_run().records], 15e9
    for queries in (1, 4, 8):
        for tokens in (512, 2048, 8192):
            moved, flop = 8192 * tokens, queries * 4096 * tokens
            own = {"bytes": moved, "flop": flop, "tokens": tokens, "arithmetic": "fp32", "cold": True}
            seconds = 4e-6 + moved / rate + (flop / flop_per_s if flop_per_s else 0)
            records.append(timed("attention.decode", seconds, **own))
    device = device_of(overlay(run_of(records)))
    (decode,) = hardware.kernels_of(device, 1).decode_attention
    assert decode.bandwidth * device.memory.bandwidth == approx(rate, rel=0.05)
    peak = device.peak.fp32 or 0
    assert decode.compute * peak == approx(flop_per_s or peak, rel=0.1)


@pytest.mark.parametrize(
    "records",
    [
        [],
        list(streams(1e10, [2**28])),
        list(products("fp32", lambda moved, flop: 1e-6 + moved / 1e10 + flop / 1e12)),
    ],
)
def test_runs_without_ceilings(records: list[Record]) -> None:
    with pytest.raises(MeasureError, match="roofplan measure ceilings takes"):
        overlay(run_of(records))


# ------------------------------------------------------------------------------------------------ a device of the catalogue


def h200_run(bandwidth: float = 0.92, bf16: float = 0.75, **extra: Any) -> Run:
    nominal = H200.memory.bandwidth, H200.peak.bf16 or 0.0, H200.peak.fp8 or 0.0
    rate, floor = nominal[0] * bandwidth, 4e-6

    def made(peak: float) -> Callable[[float, float], float]:
        return lambda moved, flop: floor + ((moved / rate) ** 4 + (flop / peak) ** 4) ** 0.25

    records = [timed("launch.graph", 1.6e-6), *streams(rate, [2**31, 2**33])]
    records += products("bf16", made(nominal[1] * bf16))
    records += products("fp8", made(nominal[2] * 0.6), width=1)
    records += [
        timed("collective.all_reduce", 8e-6 + size / 400e9, bytes=size, ranks=2, kernel="nccl")
        for size in (2**12, 2**20, 2**28)
    ]
    return run_of(records, GPU, **extra)


def test_the_catalogue_knows_what_a_driver_prints() -> None:
    assert catalogued(h200_run()) == H200
    assert catalogued(cpu_run()) is None


def test_a_known_device_keeps_its_data_sheet() -> None:
    said = overlay(h200_run(), H200)
    device = device_of(said)
    assert device.name == "h200-sxm-141gb-measured"
    assert (device.memory, device.peak, device.links, device.power) == (H200.memory, H200.peak, H200.links, H200.power)
    assert lint_device(device) == []
    kernels, family = hardware.kernels_of(device, 2), hardware.kernels_of(H200, 2)
    bf16 = next(k for k in kernels.gemm if "bf16" in k.arithmetic)
    assert bf16.bandwidth == approx(0.92, rel=0.02)
    assert bf16.compute == approx(0.75, rel=0.02)
    assert kernels.elementwise.bandwidth == approx(0.92, rel=0.02)
    # What was not measured is the family's.
    assert (
        next(k for k in kernels.gemm if "int8" in k.arithmetic).compute
        == next(k for k in family.gemm if "int8" in k.arithmetic).compute
    )
    assert (kernels.decode_attention, kernels.experts, kernels.floors) == (
        family.decode_attention,
        family.experts,
        family.floors,
    )


def test_exchanges_of_nccl_take_the_place_of_the_familys() -> None:
    kernels = hardware.kernels_of(device_of(overlay(h200_run(), H200)), 2)
    (two,) = [k for k in kernels.collectives if (k.operation, k.kernel, k.ranks) == ("all_reduce", "nccl", 2)]
    assert two.bytes == (2**12, 2**20, 2**28)
    assert two.us == approx([8e6 * 1e-6 + size / 400e9 * 1e6 for size in two.bytes], rel=1e-3)
    assert any(k.kernel == "vllm" for k in kernels.collectives)
    assert kernels.link == approx(450e9)


def test_times_follow_what_was_measured() -> None:
    """A device that reaches three quarters of the bandwidth decodes more slowly, by nearly as much."""
    fast, slow = (device_of(overlay(h200_run(bandwidth=share), H200)) for share in (0.92, 0.69))
    times = [roofplan.size("llama-3.1-70b", device, weights="bf16", devices=2).times for device in (fast, slow)]
    tpot = [found.latency.tpot_s.expected for found in times if found is not None and found.latency.tpot_s is not None]
    assert 1.2 < tpot[1] / tpot[0] < 1.34


def test_a_share_is_at_most_one() -> None:
    said = overlay(h200_run(bandwidth=1.2, bf16=1.1), H200)
    device_of(said)
    assert said["achieved"]["kernels"]["elementwise"]["bandwidth"] == 1.0


def test_a_processor_whose_peaks_no_sheet_says() -> None:
    laptop = hardware.load("laptop-ddr5-5600")
    device = device_of(overlay(cpu_run(), laptop))
    assert device.peak.fp32 == approx(100e9, rel=0.02)
    assert device.memory.bandwidth == laptop.memory.bandwidth
    assert lint_device(device) == []


# ------------------------------------------------------------------------------------------------ gates


def test_gates_hold_for_a_run_as_it_should_be() -> None:
    run = h200_run()
    said = overlay(run, H200)
    gates = gates_of(run, H200, said)
    assert [gate.name for gate in gates] == ["memory", "bf16", "fp8"]
    assert all(gate.holds for gate in gates)
    for gate in gates:
        assert gate.fitted <= gate.measured * 1.02
        assert gate.peak is not None
        assert gate.measured <= gate.peak
    assert warnings_of(gates, run.environment) == ()


def test_above_the_data_sheet() -> None:
    run = h200_run(bandwidth=1.1, bf16=1.1)
    found = {w.code: w.message for w in warnings_of(gates_of(run, H200), run.environment)}
    assert set(found) == {"above_datasheet"}
    messages = [w.message for w in warnings_of(gates_of(run, H200), run.environment)]
    assert "memory: 5.28 TB/s measured, 4.80 TB/s on the data sheet: a cache answered" in messages[0]
    assert "the clock is above the one that the data sheet counts with" in messages[1]


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"nvml": {"power_limit_w": 400.0, "power_default_w": 700.0}}, "the power cap (400 of 700 W)"),
        ({"nvml": {"memory_clock_hz": 1e9, "memory_clock_most_hz": 3.2e9}}, "a clock of 1000 of 3200 MHz"),
        ({"nvml": {"ecc": True}}, "ECC"),
        ({"nvml": {"mig": True}}, "MIG"),
        ({"nvml": {"other_processes": 2}}, "2 other processes on the device"),
        ({}, "other work on the machine, heat, or a library without kernels for this type"),
    ],
)
def test_far_below_names_a_likely_cause(changes: dict[str, Any], cause: str) -> None:
    run = h200_run(bandwidth=0.5, **changes)
    (warning,) = warnings_of(gates_of(run, H200), run.environment)
    assert warning.code == "far_below_datasheet"
    assert "50% of the data sheet's 4.80 TB/s" in warning.message
    assert cause in warning.message


def test_causes_on_a_processor() -> None:
    run = cpu_run()
    there = replace(run.environment, cores=8, load=6.0, container={"cpus": 1.0})
    said = "; ".join(likely_causes(there, "B/s"))
    assert "2 threads on 8 cores" in said
    assert "a container with 1 processors' time" in said
    assert "other work (6.0 processes were running)" in said


def test_fitted_above_measured_is_told() -> None:
    run = h200_run()
    said = overlay(run, H200)
    said["achieved"]["kernels"]["elementwise"]["bandwidth"] = 0.99
    found = [w.code for w in warnings_of(gates_of(run, H200, said), run.environment)]
    assert found == ["fitted_above_measured"]


def test_without_a_data_sheet_gates_have_no_peak() -> None:
    run = cpu_run()
    gates = gates_of(run, None, overlay(run))
    assert [(gate.name, gate.peak, gate.share) for gate in gates] == [
        ("memory", None, None),
        ("bf16", None, None),
        ("fp32", None, None),
    ]
    assert all(gate.holds for gate in gates)


# ------------------------------------------------------------------------------------------------ every verb


def test_the_file_is_plain_yaml(tmp_path: Path, cpu_overlay: dict[str, Any]) -> None:
    path = tmp_path / "machine.yaml"
    path.write_text(to_yaml(cpu_overlay), encoding="utf-8")
    assert "&" not in path.read_text(encoding="utf-8").replace("&amp;", "")
    device = hardware.load(str(path))
    assert device == device_of(cpu_overlay)
    assert specfiles.read_document(path).data["achieved"]["kernels"]["measured_on"] == [device.name]


def test_ranges_are_those_of_a_measured_machine(cpu_overlay: dict[str, Any]) -> None:
    sized = roofplan.size("llama-3.2-1b", device_of(cpu_overlay), weights="fp32")
    assert sized.times is not None
    tpot = sized.times.latency.tpot_s
    assert tpot is not None
    assert tpot.low < tpot.expected < tpot.high
    assert math.isfinite(tpot.high)
    assert CPU.name  # the machine that the run was made for
