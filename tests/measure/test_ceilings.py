"""Ceilings: that operations do the work whose bytes and FLOP are counted, and that times become rates and predictions as they should."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from torch_standin import CUDA, EVENT_S, FREE_BYTES, CudaTorch, Graph, Ticking  # noqa: E402  # after importorskip

from roofplan import hardware  # noqa: E402  # after importorskip
from roofplan.errors import MeasureError  # noqa: E402  # after importorskip
from roofplan.measure import allocation, attention, ceilings, machine, products, roof, streaming, timing  # noqa: E402  # after importorskip
from roofplan.measure.records import Record  # noqa: E402  # after importorskip
from roofplan.measure.samples import summarise  # noqa: E402  # after importorskip

CPU = machine.Machine("cpu", "cpu", "Test CPU", 2**16, 2, 2**30, (2**14, 2**16))
SHORT = timing.Limits(least=2, noise=0.5, most_s=0.02, most=4, sample_s=0.0, warm_s=0.0)
KIB = 1024


@pytest.fixture
def cuda(monkeypatch):
    """The stand-in, wherever torch is asked for."""
    found = CudaTorch()
    monkeypatch.setattr(machine, "torch_module", lambda: found)
    return found


@pytest.fixture(scope="module")
def h100():
    return hardware.load("h100-sxm5-80gb")


def record(name, seconds, **parameters):
    return Record(name, "s", summarise([seconds]), parameters)


# ------------------------------------------------------------------------------------------------ streaming


@pytest.mark.parametrize("size", [64 * KIB, 1024 * KIB])
def test_each_operation_moves_its_working_set_once(size):
    # A read has one buffer, a copy two halves, a triad three thirds, in whole rows of 16 KiB; a read writes one float per row.
    row = 16 * KIB
    moved = {name: streaming.stream_of(torch, name, size, "cpu").bytes for name in streaming.OPERATIONS}
    assert moved == {"read": size + 4 * (size // row), "copy": size, "triad": 3 * (size // 3 // row) * row}


def test_read_sees_every_element():
    buffer = torch.arange(3 * 4096, dtype=torch.float32).view(3, 4096)
    read = streaming.read_of(torch, buffer)
    for place in (0, 4095, 4096, 2 * 4096 + 77):
        before = read.call().clone()
        buffer.view(-1)[place] += 4096
        assert (read.call() - before).tolist() == [4096.0 * (row == place // 4096) for row in range(3)]
        buffer.view(-1)[place] -= 4096


def buffers_of(stream):
    """What the call of a stream holds on to, by its name there."""
    return dict(zip(stream.call.__code__.co_freevars, (c.cell_contents for c in stream.call.__closure__), strict=True))


def test_copy_and_triad_write_what_they_say():
    copy = streaming.stream_of(torch, "copy", 64 * KIB, "cpu")
    own = buffers_of(copy)
    own["first"].fill_(7)
    copy.call()
    assert own["second"].eq(7).all()
    triad = streaming.stream_of(torch, "triad", 64 * KIB, "cpu")
    own = buffers_of(triad)
    own["first"].fill_(2)
    own["second"].fill_(5)
    triad.call()
    assert own["third"].eq(2 + 3 * 5).all()


def test_working_sets_show_each_cache_and_lie_beyond_the_last(monkeypatch):
    big = replace(CPU, cache_bytes=2**26)
    monkeypatch.setattr(machine.Machine, "free_bytes", lambda _: 2**34)
    sizes, coarse = streaming.working_sets(big), streaming.working_sets(big, coarse=True)
    assert sizes[0] == 64 * KIB
    assert sizes[-1] == 8 * big.cache_bytes
    assert all(after == 2 * before for before, after in itertools.pairwise(sizes))
    assert set(coarse) < set(sizes)
    assert coarse[-1] == sizes[-1]
    assert coarse == sorted(coarse)


def test_working_sets_leave_three_quarters_of_the_free_memory(monkeypatch):
    monkeypatch.setattr(machine.Machine, "free_bytes", lambda _: 2**24)
    assert streaming.working_sets(CPU)[-1] == 2**22
    monkeypatch.setattr(machine.Machine, "free_bytes", lambda _: 0)  # a system that does not say
    assert streaming.working_sets(CPU)[-1] == 2**28


def test_rates_and_predictions_of_streams(h100):
    sizes = [64 * KIB, 512 * KIB]
    found = streaming.streaming(CPU, SHORT, hardware=h100, sizes=sizes, clock=Ticking(1e-3))
    assert [r.name for r in found] == ["stream.read"] * 2 + ["stream.copy"] * 2 + ["stream.triad"] * 2
    for one in found:
        assert one.measured.median == 1e-3
        assert one.bytes_per_s == pytest.approx(one.parameters["bytes"] * 1000)
    # The cache of this machine has 64 KiB: memory's roof holds from four times that.
    assert [r.predicted_datasheet is None for r in found[:2]] == [True, False]
    assert found[1].predicted_datasheet == pytest.approx(found[1].parameters["bytes"] / 3.35e12)


def test_cold_streams_flush_before_each_sample(monkeypatch, h100):
    flushed = []
    monkeypatch.setattr(machine.Machine, "flush", lambda _: flushed.append(1))
    (found,) = streaming.streaming(
        CPU, SHORT, hardware=h100, sizes=[64 * KIB], operations=["read"], cold=True, clock=Ticking()
    )
    assert len(flushed) == found.measured.count
    assert found.parameters["cold"]
    assert found.predicted_datasheet == pytest.approx(found.parameters["bytes"] / 3.35e12)


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried")]
)
def test_without_memory_the_smaller_sizes_are_kept_and_it_is_said(monkeypatch, error):
    plain, said = streaming.stream_of, []

    def scarce(torch, operation, size, device):
        if size > 128 * KIB:
            raise error
        return plain(torch, operation, size, device)

    monkeypatch.setattr(streaming, "stream_of", scarce)
    sizes = [64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB]
    found = streaming.streaming(CPU, SHORT, sizes=sizes, operations=["read"], clock=Ticking(), say=said.append)
    assert [r.parameters["size"] for r in found] == sizes[:2]
    assert said == ["stream.read: no memory for 262,144 bytes; the sizes below were taken"]


def test_other_errors_are_not_taken_for_a_lack_of_memory(monkeypatch):
    def broken(*_):
        raise RuntimeError("device-side assert")

    monkeypatch.setattr(streaming, "stream_of", broken)
    with pytest.raises(RuntimeError, match="device-side"):
        streaming.streaming(CPU, SHORT, sizes=[64 * KIB], clock=Ticking())


def test_the_name_of_torchs_own_error_is_known():
    assert allocation.out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"))
    assert not allocation.out_of_memory(RuntimeError("expected scalar type"))


def test_records_made_before_an_interrupt_are_kept(monkeypatch):
    plain, kept = streaming.stream_of, []

    def interrupted(torch, operation, size, device):
        if size > 64 * KIB:
            raise KeyboardInterrupt
        return plain(torch, operation, size, device)

    monkeypatch.setattr(streaming, "stream_of", interrupted)
    with pytest.raises(KeyboardInterrupt):
        streaming.streaming(CPU, SHORT, sizes=[64 * KIB, 128 * KIB], clock=Ticking(), into=kept)
    assert [r.parameters["size"] for r in kept] == [64 * KIB]


# ------------------------------------------------------------------------------------------------ launches, transfers


def test_launches_on_a_cpu():
    found = ceilings.launch(CPU, SHORT, clock=Ticking(5e-6))
    assert {r.name: r.measured.median for r in found} == {"launch.call": 5e-6, "launch.gemm": 5e-6}


def test_launches_on_cuda_are_graphed_and_divided(cuda):
    Graph.replays = 0
    found = {r.name: r for r in ceilings.launch(CUDA, SHORT)}
    assert set(found) == {"launch.call", "launch.synchronised", "launch.graph", "launch.gemm"}
    assert found["launch.graph"].measured.median == pytest.approx(EVENT_S / ceilings.IN_GRAPH)
    assert found["launch.gemm"].measured.median == EVENT_S
    assert found["launch.gemm"].parameters["in_graph"]
    assert Graph.replays > 0
    assert found["launch.synchronised"].measured.median < EVENT_S  # by the host's clock


def test_launches_without_graphs_are_taken_one_by_one(cuda):
    def refuse(_):
        raise RuntimeError("operation not permitted when stream is capturing")

    cuda.cuda.graph, said = refuse, []
    found = ceilings.launch(CUDA, SHORT, say=said.append)
    assert [r.name for r in found] == ["launch.call", "launch.synchronised", "launch.gemm"]
    assert said == ["launch.graph: RuntimeError: operation not permitted when stream is capturing; left out"]


def test_a_cpu_has_no_transfers():
    assert ceilings.host_to_device(CPU, SHORT) == []


def test_transfers_go_both_ways_from_pinned_and_pageable_memory(cuda, h100):
    found = ceilings.host_to_device(CUDA, SHORT, hardware=h100, sizes=[4096])
    assert [(r.name, r.parameters["pinned"]) for r in found] == [
        ("transfer.host_to_device", True),
        ("transfer.device_to_host", True),
        ("transfer.host_to_device", False),
        ("transfer.device_to_host", False),
    ]
    assert cuda.asked.count(("zeros", "pinned")) == 1
    assert cuda.asked.count(("zeros", "cuda:0")) == 2
    # PCIe 5 x16: 63 GB/s in one direction.
    assert [r.predicted_datasheet for r in found] == [pytest.approx(4096 / 63e9)] * 2 + [None] * 2
    assert found[0].bytes_per_s == pytest.approx(4096 / EVENT_S)


def test_transfers_stop_at_the_size_for_which_there_is_no_memory(cuda):
    plain, said = cuda.zeros, []

    def scarce(size, **options):
        if options.get("pin_memory") and size > 4096:
            raise RuntimeError("CUDA error: out of memory")
        return plain(size, **options)

    cuda.zeros = scarce
    found = ceilings.host_to_device(CUDA, SHORT, sizes=[4096, 8192], say=said.append)
    assert [(r.parameters["bytes"], r.parameters["pinned"]) for r in found[::2]] == [
        (4096, True),
        (4096, False),
        (8192, False),
    ]
    assert said == ["transfer: no pinned memory for 8,192 bytes; the sizes below were taken"]


def test_errors_of_a_transfer_that_are_not_of_memory_are_raised(cuda):
    def broken(*_, **__):
        raise RuntimeError("CUDA error: unspecified launch failure")

    cuda.zeros = broken
    with pytest.raises(RuntimeError, match="launch failure"):
        ceilings.host_to_device(CUDA, SHORT, sizes=[64])


def test_samples_that_were_all_throttled_leave_a_measurement_out(monkeypatch, cuda):
    def throttled(*_, **__):
        raise MeasureError("samples", got="none", hint="all 10 were taken while the machine was throttled")

    for module in (streaming, products, attention, ceilings):
        monkeypatch.setattr(module, "time_call", throttled)
    said = []
    found = ceilings.launch(CPU, SHORT, say=said.append)
    found += streaming.streaming(CPU, SHORT, sizes=[64 * KIB], operations=["read"], say=said.append)
    found += products.gemm(CPU, SHORT, types=["fp32"], rows=[1], side=16, say=said.append)
    found += attention.attention(CPU, SHORT, decode=[(1, 8)], prefill=[8], say=said.append)
    found += ceilings.host_to_device(CUDA, SHORT, sizes=[64], say=said.append)
    assert found == []
    assert len(said) == 10
    assert all("throttled" in note for note in said)


# ------------------------------------------------------------------------------------------------ roofs


def test_the_measured_roof_takes_the_best_of_memory_and_of_each_type():
    records = [
        record("stream.read", 1e-6, bytes=2**17),  # within the cache: 131 GB/s, not memory
        record("stream.read", 1e-3, bytes=2**20),
        record("stream.read", 3e-3, bytes=2**21),
        record("stream.copy", 1e-5, bytes=2**21),
        record("gemm.bf16", 1e-3, bytes=1, flop=10**9, arithmetic="bf16"),
        record("gemm.bf16", 1e-3, bytes=1, flop=4 * 10**9, arithmetic="bf16"),
        record("gemm.fp32", 1e-3, bytes=1, flop=2 * 10**9, arithmetic="fp32"),
        record("transfer.host_to_device", 1e-3, bytes=10**6),
    ]
    found = roof.measured_roof(records, 2**18)
    assert found.bytes_per_s == 2**20 * 1e3
    assert found.flop_per_s == {"bf16": 4e12, "fp32": 2e12}
    assert found.host_bytes_per_s == pytest.approx(1e9)
    assert roof.cache_bytes_per_s(records, 2**18) == pytest.approx(2**17 / 1e-6)


def test_what_a_measured_roof_predicts():
    under = roof.Roof(1e9, {"bf16": 1e12}, 2**18, 1e8)
    records = [
        record("stream.read", 1.0, bytes=2**17, cold=False),
        record("stream.read", 1.0, bytes=2**17, cold=True),
        record("stream.triad", 1.0, bytes=2**21),
        record("gemm.bf16", 1.0, bytes=10**6, flop=10**10, arithmetic="bf16"),
        record("gemm.int8", 1.0, bytes=10**6, flop=10**10, arithmetic="int8"),
        record("attention.decode", 1.0, bytes=10**9, flop=10, arithmetic="bf16"),
        record("transfer.host_to_device", 1.0, bytes=10**6),
        record("launch.call", 1.0),
    ]
    predicted = [one.predicted_measured for one in roof.beside(records, under)]
    assert predicted == [None, 2**17 / 1e9, 2**21 / 1e9, 1e-2, None, 1.0, 1e-2, None]


def test_a_device_without_a_data_sheet_predicts_nothing():
    assert roof.datasheet_roof(None, 1).seconds(1e6) is None


def test_a_whole_run_of_ceilings_on_this_machine(monkeypatch):
    monkeypatch.setitem(streaming.LARGEST_BYTES, "cpu", 2**19)
    monkeypatch.setitem(products.SIDES, "cpu", 32)
    monkeypatch.setattr(products, "COARSE_ROWS", (1, 16))
    monkeypatch.setattr(attention, "COARSE_DECODE", ((1, 16),))
    monkeypatch.setattr(attention, "COARSE_PREFILL", (8,))
    found = ceilings.ceilings(CPU, SHORT)
    names = {r.name for r in found}
    assert names == {
        *("stream.read", "stream.copy", "stream.triad", "gemm.fp32", "gemm.bf16"),
        *("attention.decode", "attention.prefill", "launch.call", "launch.gemm"),
    }
    assert all(r.measured.median > 0 for r in found)
    under = roof.measured_roof(found, CPU.cache_bytes)
    for one in found:
        if one.name == "stream.read" and one.predicted_measured is not None:
            assert one.measured.median >= one.predicted_measured * (1 - 1e-9)  # no read of memory beats the best one
        if one.name.startswith("gemm."):
            assert one.flop_per_s <= under.flop_per_s[one.parameters["arithmetic"]]


def test_long_runs_measure_what_the_cache_holds_cold_as_well(monkeypatch):
    asked = []

    def noted(machine, limits, **options):
        asked.append((options.get("cold", False), options.get("sizes"), options.get("coarse")))

    big = replace(CPU, cache_bytes=2**22)
    for name in ("launch", "gemm", "attention", "host_to_device"):
        monkeypatch.setattr(ceilings, name, lambda *_, **__: None)
    monkeypatch.setattr(ceilings, "streaming", noted)
    ceilings.ceilings(big, timing.STANDARD)
    ceilings.ceilings(big, timing.QUICK)
    assert asked == [(False, None, False), (True, [2**20, 2**21], None), (False, None, True)]


def test_free_memory_of_cuda_is_the_devices(cuda):
    assert CUDA.free_bytes() == FREE_BYTES
    assert streaming.working_sets(CUDA)[-1] == FREE_BYTES // 4
