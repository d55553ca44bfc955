"""Exchanges between ranks: bytes of messages, what one rank sends, the slowest rank's time, and ranks that fail or are interrupted."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from measured import GPU, products, run_of, streams, timed  # noqa: E402  # after importorskip
from torch_standin import CUDA, EVENT_S, CudaTorch, Ticking  # noqa: E402  # after importorskip

from roofplan import hardware  # noqa: E402  # after importorskip
from roofplan.errors import MeasureError  # noqa: E402  # after importorskip
from roofplan.measure import collectives, machine, timing  # noqa: E402  # after importorskip
from roofplan.measure.overlay import overlay  # noqa: E402  # after importorskip
from roofplan.measure.records import Record  # noqa: E402  # after importorskip
from roofplan.measure.samples import summarise  # noqa: E402  # after importorskip

CPU = machine.Machine("cpu", "cpu", "Test CPU", 2**16, 2, 2**30, (2**14, 2**16))
SHORT = timing.Limits(least=2, noise=0.5, most_s=0.02, most=4, sample_s=0.0, warm_s=0.0)
RANK = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK")


@pytest.fixture(autouse=True)
def apart(monkeypatch):
    """No rank of anybody's group."""
    for name in RANK:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def alone(tmp_path):
    """A group of one rank, real gloo."""
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


class Ranks:
    """A group of so many ranks as one of them sees it; the others are always as slow as they are told to be."""

    ReduceOp = torch.distributed.ReduceOp

    def __init__(self, count: int, others_s: float = 0.0, *, ready: bool = False) -> None:
        self.count, self.others_s, self.ready = count, others_s, ready
        self.calls: list[str] = []

    def is_available(self):
        return True

    def is_initialized(self):
        return self.ready

    def init_process_group(self, backend):
        self.calls.append(backend)
        self.ready = True

    def destroy_process_group(self):
        self.calls.append("destroyed")
        self.ready = False

    def get_world_size(self):
        return self.count

    def barrier(self):
        self.calls.append("barrier")

    def all_reduce(self, tensor, op=None):
        self.calls.append("all_reduce")
        if op is self.ReduceOp.MAX:
            tensor.clamp_(min=self.others_s)

    def all_gather_into_tensor(self, whole, part):
        self.calls.append("all_gather")
        assert whole.nbytes == self.count * part.nbytes


def test_two_ranks_exchange_over_gloo():
    """The whole way: torchrun starts two ranks, which exchange; the first writes what it measured."""
    device = hardware.load("h100-sxm5-80gb")
    found = collectives.collectives(CPU, SHORT, hardware=device, sizes=[1024, 4096])
    assert [(r.name, r.parameters["bytes"], r.parameters["sent_bytes"]) for r in found] == [
        ("collective.all_reduce", 1024, 1024.0),  # 2 (n-1)/n = 1 of the message with two ranks
        ("collective.all_reduce", 4096, 4096.0),
        ("collective.all_gather", 1024, 512.0),  # (n-1)/n: the half that the other rank has
        ("collective.all_gather", 4096, 2048.0),
    ]
    for one in found:
        assert one.measured.median > 0
        assert one.measured.count >= SHORT.least
        assert (one.parameters["ranks"], one.parameters["kernel"]) == (2, "gloo")
        assert one.predicted_datasheet == pytest.approx(one.parameters["sent_bytes"] / 450e9)


def test_a_group_that_is_there_is_used_and_left(alone):
    (found,) = collectives.collectives(CPU, SHORT, sizes=[4096], operations=["all_reduce"], clock=Ticking(1e-4))
    assert torch.distributed.is_initialized()
    assert found.measured.median == 1e-4
    assert found.parameters["sent_bytes"] == 0  # alone there is nobody to send to


@pytest.mark.parametrize("operation", collectives.OPERATIONS)
@pytest.mark.parametrize(("size", "ranks", "message"), [(1024, 2, 1024), (1000, 3, 996), (1, 4, 16)])
def test_messages_are_whole_elements_of_every_rank(monkeypatch, operation, size, ranks, message):
    # float32; 1000 bytes over three ranks are 83 elements each.
    monkeypatch.setattr(torch, "distributed", Ranks(ranks))
    call, counted = collectives.exchange_of(torch, operation, size, ranks, CPU)
    call()
    assert counted == message


def test_a_gather_fills_its_result(alone):
    caught = []

    class Watched:
        distributed = torch.distributed
        float32 = torch.float32

        def zeros(self, *arguments, **options):
            caught.append(torch.zeros(*arguments, **options))
            return caught[-1]

    call, _ = collectives.exchange_of(Watched(), "all_gather", 64, 1, CPU)
    whole, part = caught
    part.fill_(3)
    call()
    assert whole.eq(3).all()


def test_a_sample_is_the_time_of_the_slowest_rank(monkeypatch):
    ranks = Ranks(2, others_s=5e-3)
    monkeypatch.setattr(torch, "distributed", ranks)
    calls = []
    found = collectives.time_together(torch, lambda: calls.append(1), CPU, SHORT, Ticking(1e-3))
    assert set(found.samples) == {5e-3}
    assert ranks.calls.count("barrier") == 3 + found.count  # each sample starts together
    assert len(calls) == 1 + ranks.calls.count("barrier")


def test_the_end_of_samples_is_agreed_upon(monkeypatch):
    # This rank has spent no time; the other one says that the limit is reached.
    monkeypatch.setattr(torch, "distributed", Ranks(2, others_s=2.0))
    noisy = dataclasses.replace(SHORT, noise=-1.0, most_s=1.5, most=1000)
    found = collectives.time_together(torch, lambda: None, CPU, noisy, Ticking(1e-3))
    assert found.count == noisy.least
    assert found.unmet == "noise -100.0% (got 0.0% in 1.5 s)"


def test_samples_end_at_their_most(monkeypatch):
    monkeypatch.setattr(torch, "distributed", Ranks(2))
    noisy = dataclasses.replace(SHORT, noise=-1.0, most_s=60.0)
    found = collectives.time_together(torch, lambda: None, CPU, noisy, Ticking(1e-3))
    assert found.count == noisy.most
    assert "in 4 samples" in found.unmet


# ------------------------------------------------------------------------------------------------ NCCL, by a stand-in


@pytest.fixture
def cuda(monkeypatch):
    found = CudaTorch()
    monkeypatch.setattr(machine, "torch_module", lambda: found)
    return found


def test_ranks_of_torchrun_use_nccl_on_their_own_gpu(monkeypatch, cuda):
    for name in RANK:
        monkeypatch.setenv(name, "1")
    cuda.distributed = Ranks(8)
    third = dataclasses.replace(CUDA, torch_device="cuda:3")
    device = hardware.load("h100-sxm5-80gb")
    (found,) = collectives.collectives(third, SHORT, hardware=device, sizes=[2**20], operations=["all_reduce"])
    assert ("set_device", 3) in cuda.asked
    assert (cuda.distributed.calls[0], cuda.distributed.calls[-1]) == ("nccl", "destroyed")
    assert found.parameters["dtype"] == "bfloat16"
    assert found.parameters["sent_bytes"] == 2 * 7 / 8 * 2**20
    assert found.measured.median == EVENT_S
    assert found.predicted_datasheet == pytest.approx(2 * 7 / 8 * 2**20 / 450e9)


def test_the_measured_machine_has_what_nccl_took(monkeypatch, cuda):
    """Records as they are made here, and not as a test would write them, become the device's tables."""
    for name in RANK:
        monkeypatch.setenv(name, "0")
    cuda.distributed = Ranks(2)
    found = collectives.collectives(CUDA, SHORT, sizes=[2**12, 2**20])
    rates = [timed("launch.graph", 1e-6), *streams(4e12, [2**33]), *products("bf16", lambda b, f: 1e-6 + f / 8e14)]
    said = overlay(run_of([*rates, *found], GPU), hardware.load("h200-sxm-141gb"))
    own = [e for e in said["achieved"]["kernels"]["collectives"] if (e["kernel"], e["ranks"]) == ("nccl", 2)]
    for operation in collectives.OPERATIONS:
        (table,) = [entry for entry in own if entry["operation"] == operation]
        assert table["bytes"] == ["4096 B", "1048576 B"]
        assert table["us"] == pytest.approx([EVENT_S * 1e6] * 2, rel=1e-3)
    assert said["achieved"]["kernels"]["sources"]["collectives"]["kind"] == "measured"


def test_the_group_is_left_when_an_exchange_fails(monkeypatch, cuda):
    for name in RANK:
        monkeypatch.setenv(name, "0")
    cuda.distributed = Ranks(2)
    with pytest.raises(MeasureError, match="operation"):
        collectives.collectives(CUDA, SHORT, sizes=[64], operations=["broadcast"])
    assert cuda.distributed.calls == ["nccl", "destroyed"]


def test_one_gpu_has_nothing_to_exchange_with(cuda):
    cuda.distributed, said = Ranks(1), []
    assert collectives.collectives(CUDA, SHORT, say=said.append) == []
    assert said == ["collectives: one device has nothing to exchange with; left out"]


def test_devices_and_torches_without_exchanges():
    with pytest.raises(MeasureError, match="got mps, want a CPU"):
        collectives.collectives(dataclasses.replace(CPU, kind="mps"), SHORT)


def test_a_torch_without_distributed(monkeypatch):
    monkeypatch.setattr(torch, "distributed", SimpleNamespace(is_available=lambda: False))
    with pytest.raises(MeasureError, match=r"torch without torch\.distributed"):
        collectives.collectives(CPU, SHORT)


# ------------------------------------------------------------------------------------------------ processes


class Process:
    """In place of ``torchrun``: writes one record, and then does what it is told to."""

    returncode = 0

    def __init__(self, then, command, **options):
        self.then, self.command, self.options = then, command, options
        self.ended = []
        record = Record("collective.all_reduce", "s", summarise([1e-3]), {"bytes": 64, "sent_bytes": 64.0})
        Path(command[command.index("roofplan.measure.collectives") + 1]).write_text(json.dumps([record.to_dict()]))

    def communicate(self, timeout=None):
        if self.ended:
            return "", ""
        if isinstance(self.then, BaseException):
            raise self.then
        return "", self.then

    def terminate(self):
        self.ended.append("terminate")

    def kill(self):
        self.ended.append("kill")


@pytest.fixture
def started(monkeypatch):
    """Start stand-ins; gives the list of those that were started."""
    found = []

    def using(then, returncode=0):
        def start(command, **options):
            found.append(Process(then, command, **options))
            found[-1].returncode = returncode
            return found[-1]

        monkeypatch.setattr(subprocess, "Popen", start)
        return found

    return using


def test_ranks_share_the_cores(started):
    processes = started("")
    collectives.collectives(dataclasses.replace(CPU, threads=8), SHORT, ranks=4, sizes=[64])
    assert "--nproc-per-node=4" in processes[0].command
    assert processes[0].options["env"]["OMP_NUM_THREADS"] == "2"


def test_an_interrupt_ends_the_ranks_and_keeps_what_they_measured(started):
    processes, kept = started(KeyboardInterrupt()), []
    with pytest.raises(KeyboardInterrupt):
        collectives.collectives(CPU, SHORT, sizes=[64], into=kept)
    assert [r.name for r in kept] == ["collective.all_reduce"]
    assert processes[0].ended == ["terminate"]


def test_ranks_that_never_answer_are_ended(started):
    processes = started(subprocess.TimeoutExpired("torchrun", 1))
    with pytest.raises(MeasureError, match="no answer within"):
        collectives.collectives(CPU, SHORT, sizes=[64])
    assert processes[0].ended == ["terminate"]


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        (
            "[rank0]: Traceback\n[rank0]: RuntimeError: no route\nW elastic/multiprocessing: ChildFailedError",
            "no route",
        ),
        (
            "[rank1]:   raise E\n[rank1]: roofplan.errors.MeasureError: operation: got x\nE elastic/multiprocessing",
            "got x",
        ),
        ("Killed", "Killed"),
    ],
)
def test_the_error_of_a_rank_is_told(started, said, hint):
    started(said, 1)
    with pytest.raises(MeasureError, match=f"ended with code 1.*{hint}"):
        collectives.collectives(CPU, SHORT, sizes=[64])


def test_a_rank_other_than_the_first_writes_nothing(monkeypatch, tmp_path, alone):
    out = tmp_path / "records.json"
    asked = json.dumps(
        {"kind": "cpu", "limits": dataclasses.asdict(SHORT), "sizes": [64], "operations": ["all_reduce"]}
    )
    monkeypatch.setenv("RANK", "1")
    collectives.main([str(out), "--asked", asked])
    assert not out.exists()
    monkeypatch.setenv("RANK", "0")
    collectives.main([str(out), "--asked", asked])
    assert [one["name"] for one in json.loads(out.read_text())] == ["collective.all_reduce"]
    assert not out.with_suffix(".part").exists()
