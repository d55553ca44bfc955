"""Which machine is measured, what its driver says, and what is recorded of it; GPUs are stand-ins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from measured import CPU, GPU, NvmlError, cuda_torch, nvml_module, there

from roofplan.errors import MeasureError
from roofplan.measure import environment as environments
from roofplan.measure import machine as machines
from roofplan.measure import throttle
from roofplan.measure.environment import Environment, environment
from roofplan.measure.machine import Machine, find_machine
from roofplan.measure.nvml import NvmlDevice, open_device
from roofplan.measure.throttle import CountedThrottle, NeverThrottled, ReasonsThrottle, throttle_of


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    torch = cuda_torch(count=2)
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch


def use_driver(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml_module(**changes))


# ------------------------------------------------------------------------------------------------ finding


def test_the_processor_at_hand() -> None:
    found = find_machine("cpu")
    assert (found.kind, found.torch_device) == ("cpu", "cpu")
    assert found.name
    assert found.threads >= 1
    assert found.cache_bytes >= 2**18
    assert list(found.caches) == sorted(found.caches)
    assert found.memory_bytes > 2**28
    assert 0 < found.free_bytes() <= found.memory_bytes
    found.synchronise()


def test_a_flush_writes_twice_the_last_cache() -> None:
    small = replace(find_machine("cpu"), cache_bytes=2**16)
    small.flush()
    buffer = machines._flusher("cpu", 2 * 2**16)
    assert buffer() is not None
    assert buffer().nbytes == 2**17
    assert machines._flusher.cache_info().currsize == 1
    small.empty_cache()
    assert machines._flusher.cache_info().currsize == 0


def test_a_gpu_is_taken_where_there_is_one(gpu: types.SimpleNamespace) -> None:
    found = find_machine(None)
    assert found == replace(GPU, memory_bytes=150_754_820_096)
    assert find_machine("cuda:1").index == 1
    assert find_machine("cpu").kind == "cpu"
    found.synchronise()
    assert gpu.calls == ["synchronize"]
    assert found.free_bytes() == 2**36


def test_apples_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    mps = types.SimpleNamespace(is_available=lambda: True)
    cuda = types.SimpleNamespace(is_available=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", cuda_torch(cuda=cuda, backends=types.SimpleNamespace(mps=mps)))
    assert find_machine(None).kind == "mps"


@pytest.mark.parametrize("wrong", ["gpu", "cuda:", "cuda:x", "CPU", "cuda:0001", ""])
def test_names_that_are_none(wrong: str) -> None:
    with pytest.raises(MeasureError, match=r"--device: .*want cpu, cuda, cuda:1"):
        find_machine(wrong)


def test_no_gpu_with_cuda() -> None:
    with pytest.raises(MeasureError, match="got cuda, want a device that torch has: cpu"):
        find_machine("cuda")


def test_a_gpu_too_many(gpu: types.SimpleNamespace) -> None:
    with pytest.raises(MeasureError, match="got cuda:2, want cuda:0 to cuda:1"):
        find_machine("cuda:2")


def test_why_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    none = types.SimpleNamespace(is_available=lambda: False)
    version = types.SimpleNamespace(cuda="13.0", hip=None)
    monkeypatch.setitem(sys.modules, "torch", cuda_torch(cuda=none, version=version))
    with pytest.raises(MeasureError, match="no driver, no permission, or CUDA_VISIBLE_DEVICES"):
        find_machine("cuda")
    monkeypatch.setitem(sys.modules, "torch", cuda_torch(cuda=none, version=types.SimpleNamespace(cuda=None, hip=None)))
    with pytest.raises(MeasureError, match="built without CUDA"):
        find_machine("cuda")


def _without_torch(folder: Path, code: str, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "torch.py").write_text(code, encoding="utf-8")
    script = f"import roofplan.measure, sys\nsys.path.insert(0, {str(folder)!r})\n{text}"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)


def test_no_torch_names_the_extra(tmp_path: Path) -> None:
    code = "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')"
    done = _without_torch(tmp_path, code, "from roofplan.measure.machine import find_machine\nfind_machine('cpu')")
    assert "roofplan[measure]" in done.stderr
    assert "the extra measure" in done.stderr


def test_a_torch_that_does_not_load_is_told_apart(tmp_path: Path) -> None:
    code = "raise ImportError('libcudart.so.13: cannot open', name='torch._C')"
    done = _without_torch(tmp_path, code, "from roofplan.measure.machine import find_machine\nfind_machine('cpu')")
    assert "installed, but does not load: libcudart.so.13" in done.stderr


def test_the_room_loads_without_torch() -> None:
    script = "import sys, roofplan.measure\nassert 'torch' not in sys.modules\nassert 'pynvml' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0


def test_caches_of_sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for index, (kind, level, size) in enumerate(
        [("Data", 1, "48K"), ("Instruction", 1, "32K"), ("Unified", 2, "1024K"), ("Unified", 3, "32M")]
    ):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, value in (("type", kind), ("level", str(level)), ("size", size)):
            (folder / name).write_text(f"{value}\n", encoding="ascii")
    monkeypatch.setattr(machines, "_CACHES", tmp_path)
    assert machines.data_caches() == (48 * 2**10, 2**20, 32 * 2**20)


def test_caches_that_nobody_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "_CACHES", tmp_path)
    if sys.platform != "darwin":
        assert machines.data_caches() == ()


# ------------------------------------------------------------------------------------------------ the driver


def test_what_a_driver_says(gpu: types.SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    use_driver(monkeypatch)
    device = open_device(GPU)
    assert isinstance(device, NvmlDevice)
    assert device.handle == ("uuid", b"GPU-1")  # by its id: numbers are those of another order
    said = device.describe()
    assert said["name"] == "NVIDIA H200"
    assert (said["clock_hz"], said["memory_clock_hz"], said["power_limit_w"]) == (1.98e9, 3.201e9, 700)
    assert (said["ecc"], said["mig"], said["nvlinks"], said["pcie_generation"]) == (True, False, 18, 5)
    assert said["not_said"] == []


def test_a_slice_is_found_by_its_number(gpu: types.SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: bytes) -> None:
        raise NvmlError("not found")

    use_driver(monkeypatch, nvmlDeviceGetHandleByUUID=refuse)
    device = open_device(replace(GPU, torch_device="cuda:1"))
    assert isinstance(device, NvmlDevice)
    assert device.handle == ("index", 1)


def test_a_refused_question_is_named_and_no_other_lost(
    gpu: types.SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise NvmlError("Insufficient Permissions")

    use_driver(monkeypatch, nvmlDeviceGetEnforcedPowerLimit=refuse, nvmlDeviceGetMigMode=None)
    device = open_device(GPU)
    assert isinstance(device, NvmlDevice)
    said = device.describe()
    assert said["not_said"] == ["power_limit_w", "mig"]
    assert said["driver"] == "580.95"


def test_no_module_and_no_driver(gpu: types.SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden() -> None:
        raise NvmlError("Driver Not Loaded")

    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "NVML is missing: no module pynvml" in str(open_device(GPU))
    use_driver(monkeypatch, nvmlInit=forbidden)
    assert "NVML is refused: Driver Not Loaded" in str(open_device(GPU))
    assert isinstance(throttle_of(GPU), NeverThrottled)
    assert any("NVML is refused" in note for note in environment(GPU).notes)


def test_the_real_module_without_a_driver(gpu: types.SimpleNamespace) -> None:
    pytest.importorskip("pynvml")
    if not Path("/dev/nvidiactl").exists():
        assert "NVML is refused" in str(open_device(GPU))


# ------------------------------------------------------------------------------------------------ throttling


@pytest.mark.parametrize(
    ("bits", "slowed"),
    [(0x00, False), (0x01, False), (0x02, False), (0x08, True), (0x20, True), (0x40, True), (0x80, True)],
)
def test_reasons(gpu: types.SimpleNamespace, monkeypatch: pytest.MonkeyPatch, bits: int, slowed: bool) -> None:
    """Idle (1) and clocks that a person has set (2) are no throttling."""
    use_driver(monkeypatch, nvmlDeviceGetCurrentClocksEventReasons=lambda _: bits)
    assert throttle_of(GPU).seen() is slowed


def test_older_drivers_have_another_word(gpu: types.SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    use_driver(
        monkeypatch,
        nvmlDeviceGetCurrentClocksEventReasons=None,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda _: 0x40,
    )
    assert throttle_of(GPU).seen()


@pytest.mark.parametrize(("clock", "slowed"), [(1980, False), (1500, False), (1400, True)])
def test_a_power_cap_counts_where_clocks_are_low(
    gpu: types.SimpleNamespace, monkeypatch: pytest.MonkeyPatch, clock: int, slowed: bool
) -> None:
    """Large products are always capped; below 75 % of 1980 MHz (1485) they are thrown away."""
    use_driver(
        monkeypatch, nvmlDeviceGetCurrentClocksEventReasons=lambda _: 4, nvmlDeviceGetClockInfo=lambda _, __: clock
    )
    assert throttle_of(GPU).seen() is slowed


def test_a_reason_that_has_just_ended_still_counts() -> None:
    now = [8]
    watch = ReasonsThrottle(lambda: now[0], lambda: 1.0)
    assert watch.seen()
    now[0] = 0
    assert watch.seen()
    assert not watch.seen()


def test_a_containers_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = tmp_path / "cpu.stat"
    stat.write_text("usage_usec 10\nnr_periods 5\nnr_throttled 3\n", encoding="ascii")
    monkeypatch.setattr(throttle, "CPU_STAT", stat)
    watch = throttle_of(CPU)
    assert isinstance(watch, CountedThrottle)
    assert not watch.seen()
    stat.write_text("nr_throttled 4\n", encoding="ascii")
    assert watch.seen()
    assert not watch.seen()
    stat.unlink()
    assert not watch.seen()
    assert isinstance(throttle_of(CPU), NeverThrottled)


# ------------------------------------------------------------------------------------------------ the environment


def test_the_environment_at_hand() -> None:
    said = environment(find_machine("cpu"))
    assert said.kind == "cpu"
    assert {"roofplan", "python", "torch"} <= set(said.versions)
    assert said.date.endswith("+00:00")
    assert said.nvml == {}
    json.dumps(said.to_dict(), allow_nan=False)
    assert Environment.from_dict(json.loads(json.dumps(said.to_dict()))) == said


def test_the_environment_of_a_gpu(gpu: types.SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    use_driver(
        monkeypatch,
        nvmlDeviceGetComputeRunningProcesses=lambda _: [
            types.SimpleNamespace(pid=1),
            types.SimpleNamespace(pid=os.getpid()),
        ],
        nvmlDeviceGetMigMode=lambda _: [1, 1],
        nvmlDeviceGetEnforcedPowerLimit=lambda _: 500_000,
    )
    notes = "; ".join(environment(GPU).notes)
    assert "1 other processes compute on the device" in notes
    assert "MIG is on" in notes
    assert "the power limit is 500 W, below the usual 700 W" in notes


def test_rocm_has_no_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", cuda_torch(version=types.SimpleNamespace(cuda=None, hip="6.4")))
    said = environment(GPU)
    assert "ROCm" in said.nvml["missing"]
    assert said.versions["rocm"] == "6.4"


def test_other_work_and_quotas_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "usable_cores", lambda: 4)
    monkeypatch.setattr(environments, "_load", lambda: 3.5)
    monkeypatch.setattr(environments, "_quota", lambda: 1.5)
    notes = "; ".join(environment(CPU).notes)
    assert "other work runs: 3.5 processes in the last minute on 4 cores" in notes
    assert "the container has 1.5 processors' time for 2 threads" in notes
    assert "torch uses 2 of 4 cores" in notes


def test_a_quiet_machine_has_no_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "usable_cores", lambda: 2)
    monkeypatch.setattr(environments, "_load", lambda: 0.2)
    monkeypatch.setattr(environments, "_quota", lambda: None)
    assert environment(CPU).notes == ()


def test_an_environment_with_a_part_missing() -> None:
    said = there().to_dict()
    del said["threads"]
    with pytest.raises(KeyError):
        Environment.from_dict(said)


def test_the_index_of_a_device() -> None:
    assert [Machine("cuda", name, "", 1, 1).index for name in ("cuda:3", "cuda")] == [3, 0]
