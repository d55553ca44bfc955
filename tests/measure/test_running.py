"""One run: which steps it takes, what it predicts with, and what is kept when it is interrupted, fails or has no memory."""

from __future__ import annotations

import itertools
import types
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from measured import CPU, cpu_run, cuda_torch, there, timed

from roofplan.errors import MeasureError, RoofplanError, UnknownNameError
from roofplan.measure import ceilings as ceilings_module
from roofplan.measure import collectives as collectives_module
from roofplan.measure import experiments, running
from roofplan.measure.overlay import overlay, to_yaml
from roofplan.measure.records import Record, Run
from roofplan.measure.running import COMMANDS, EXPERIMENTS, IN_ROUNDS, ROUNDS, measure
from roofplan.measure.timing import QUICK, STANDARD, Limits

Taken = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Taken:
    """What was taken, in order: every step is a stand-in that records nothing but its own name."""
    steps: Taken = []

    def ceilings(machine: object, limits: Limits, *, into: list[Record], **others: Any) -> None:
        steps.append(("ceilings", {"machine": machine, "limits": limits, **others}))
        into.extend(cpu_run().records)

    def collectives(machine: object, limits: Limits, *, into: list[Record], **others: Any) -> None:
        steps.append(("collectives", {"limits": limits, **others}))
        into.extend(timed("collective.all_reduce", 1e-5, bytes=size, ranks=2, kernel="nccl") for size in (1024, 4096))

    def experiment(path: str, _package: str) -> types.SimpleNamespace:
        name = path.rpartition(".")[2]

        def run(machine: object, model: object, limits: Limits, *, into: list[Record], **others: Any) -> None:
            steps.append((name, {"machine": machine, "model": model, "limits": limits, **others}))
            into.append(timed(f"{name}.step", 0.1))

        return types.SimpleNamespace(run=run)

    monkeypatch.setattr(running, "find_machine", lambda _: CPU)
    monkeypatch.setattr(running, "environment", lambda _: there())
    monkeypatch.setattr(running, "import_module", experiment)
    monkeypatch.setattr(ceilings_module, "ceilings", ceilings)
    monkeypatch.setattr(collectives_module, "collectives", collectives)
    return steps


def failing(monkeypatch: pytest.MonkeyPatch, name: str, error: BaseException) -> None:
    """Let one experiment fail after its first record."""
    real: Callable[..., Any] = running.import_module

    def load(path: str, package: str) -> Any:
        found = real(path, package)
        if not path.endswith(f".{name}"):
            return found

        def run(*_: object, into: list[Record], **__: Any) -> None:
            into.append(timed(f"{name}.first", 0.1))
            raise error

        return types.SimpleNamespace(run=run)

    monkeypatch.setattr(running, "import_module", load)


def names(taken: Taken) -> list[str]:
    """The steps in their order; rounds of one step are one."""
    return [name for name, _ in itertools.groupby(name for name, _ in taken)]


# ------------------------------------------------------------------------------------------------ steps


def test_every_experiment_belongs_to_one_command() -> None:
    folder = Path(experiments.__file__).parent
    modules = {path.stem for path in folder.glob("*.py") if "\ndef run(" in path.read_text(encoding="utf-8")}
    listed = [name for group in EXPERIMENTS.values() for name in group]
    assert sorted(listed) == sorted(modules)
    assert ("ceilings", *EXPERIMENTS, "collectives", "all") == COMMANDS


def test_ceilings_alone(taken: Taken) -> None:
    found = measure("ceilings")
    assert names(taken) == ["ceilings"]
    assert [step["limits"] for _, step in taken] == [STANDARD.shared(ROUNDS)] * ROUNDS
    assert found.run.command == "ceilings"
    assert found.device is not None
    assert [gate.name for gate in found.gates] == ["memory", "bf16", "fp32"]
    assert found.datasheet == ""


def test_an_experiment_takes_short_ceilings_first(taken: Taken) -> None:
    found = measure("decode")
    assert names(taken) == ["ceilings", "decode", "prefill"]
    assert taken[0][1]["limits"] == QUICK
    assert taken[1][1]["limits"] == STANDARD.shared(ROUNDS)
    devices = taken[1][1]["devices"]
    assert devices.datasheet is None
    assert devices.measured.name == "test-processor-9000-measured"
    assert {record.name.partition(".")[0] for record in found.run.records} >= {"stream", "gemm", "decode", "prefill"}


def test_rounds_are_put_together(taken: Taken) -> None:
    """What is compared is taken in rounds, each with its share of the samples and of the time; the samples of all are one record."""
    found = measure("all")
    counts = Counter(name for name, _ in taken)
    assert {name for name, count in counts.items() if count == ROUNDS} == {"ceilings", *IN_ROUNDS}
    assert {count for name, count in counts.items() if name not in {"ceilings", *IN_ROUNDS}} == {1}
    one = [record for record in found.run.records if record.name == "decode.step"]
    assert [record.measured.count for record in one] == [ROUNDS * timed("decode.step", 0.1).measured.count]
    taken.clear()
    measure("all", quick=True)
    assert set(Counter(name for name, _ in taken).values()) == {1}


def test_rounds_share_the_limits() -> None:
    shared = STANDARD.shared(3)
    assert 3 * shared.most_s == pytest.approx(STANDARD.most_s)
    assert STANDARD.least <= 3 * shared.least < STANDARD.least + 3
    assert (shared.noise, shared.sample_s) == (STANDARD.noise, STANDARD.sample_s)


def test_a_measured_machine_needs_none(taken: Taken, tmp_path: Path) -> None:
    path = tmp_path / "machine.yaml"
    path.write_text(to_yaml(overlay(cpu_run())), encoding="utf-8")
    found = measure("cache", hardware=str(path), quick=True)
    assert names(taken) == list(EXPERIMENTS["cache"])
    assert taken[0][1]["devices"].measured.name == "test-processor-9000-measured"
    assert found.device is None
    assert found.gates == ()
    assert found.run.quick


def test_all_takes_everything_once(taken: Taken) -> None:
    measure("all", quick=True)
    assert names(taken) == ["ceilings", *(name for group in EXPERIMENTS.values() for name in group), "collectives"]
    assert all(own["limits"] == QUICK for _, own in taken)


def test_the_device_of_all_has_the_exchanges_that_were_taken_last(taken: Taken) -> None:
    found = measure("all", hardware="h200-sxm-141gb", quick=True)
    assert names(taken)[-1] == "collectives"
    assert found.device is not None
    listed = found.device["achieved"]["kernels"]["collectives"]
    assert {
        "operation": "all_reduce",
        "kernel": "nccl",
        "ranks": 2,
        "bytes": ["1024 B", "4096 B"],
        "us": [10.0] * 2,
    } in [entry | {"us": [round(time, 3) for time in entry["us"]]} for entry in listed]


def test_collectives_need_no_ceilings(taken: Taken) -> None:
    assert {record.name for record in measure("collectives").run.records} == {"collective.all_reduce"}
    assert names(taken) == ["collectives"]


def test_the_data_sheet_is_the_catalogues(taken: Taken) -> None:
    found = measure("ceilings", hardware="laptop-ddr5-5600")
    assert taken[0][1]["hardware"].name == "laptop-ddr5-5600"
    assert found.datasheet == "laptop-ddr5-5600"
    assert found.device is not None
    assert found.device["name"] == "laptop-ddr5-5600-measured"


def test_the_model_is_the_one_asked_for(taken: Taken) -> None:
    measure("speculation", model="llama-3.2-1b")
    assert taken[-1][1]["model"].name == "llama-3.2-1b"
    assert taken[-1][1]["machine"] == CPU


def test_it_tells_what_it_takes(taken: Taken) -> None:
    said: list[str] = []
    measure("decode", tell=said.append)
    assert [line.partition(" ")[0] for line in said] == ["ceilings", "decode", "prefill"]
    assert names(taken)


def test_a_run_that_makes_no_machine_is_refused_before_it_begins(taken: Taken) -> None:
    with pytest.raises(MeasureError, match="--save: got collectives"):
        measure("collectives", wants_device=True)
    measure("decode", wants_device=True)
    assert names(taken)[0] == "ceilings"


def test_each_rank_has_a_gpu_of_its_own(taken: Taken, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []
    monkeypatch.setattr(running, "find_machine", lambda device: asked.append(device) or CPU)
    monkeypatch.setattr(running, "torch_module", cuda_torch)
    measure("collectives")
    for name, value in (("RANK", "1"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    measure("collectives")
    measure("collectives", device="cpu")
    assert asked == [None, "cuda:1", "cpu"]
    assert len(taken) == 3


def test_only_the_first_rank_tells_and_writes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from roofplan.verbs import measured_clients

    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    measured_clients.tell("collectives")
    measured_clients.keep(cpu_run(), tmp_path / "run.json")
    assert capsys.readouterr().err == ""
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("RANK", "0")
    measured_clients.tell("collectives")
    measured_clients.keep(cpu_run(), tmp_path / "run.json")
    assert "measuring collectives" in capsys.readouterr().err
    assert (tmp_path / "run.json").is_file()


# ------------------------------------------------------------------------------------------------ what is left out


def test_time_that_is_over_leaves_the_rest_out(taken: Taken, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 30))
    monkeypatch.setattr(running.time, "monotonic", lambda: float(next(clock)))
    found = measure("all", quick=True)
    assert "ceilings" in names(taken)
    assert len(taken) < 1 + sum(map(len, EXPERIMENTS.values()))
    assert any("left out, since" in note for note in found.run.notes)


@pytest.mark.parametrize(
    "error",
    [RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), MemoryError(), RuntimeError("can't allocate")],
)
def test_no_memory_is_said(taken: Taken, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    failing(monkeypatch, "decode", error)
    found = measure("decode")
    assert "decode: no memory for it; left out" in found.run.notes
    assert names(taken)[-1] == "prefill"
    assert "decode.first" in [record.name for record in found.run.records]


def test_of_all_one_that_cannot_be_taken_is_left_out(taken: Taken, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, "paged", MeasureError("paged", got="nothing", wanted="something"))
    found = measure("all")
    assert "paged: paged: got nothing, want something" in found.run.notes
    assert names(taken)[-1] == "collectives"


def test_alone_it_is_an_error(taken: Taken, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, "paged", MeasureError("paged", got="nothing", wanted="something"))
    with pytest.raises(MeasureError, match="paged: got nothing"):
        measure("batching")
    assert names(taken)


def test_ceilings_of_which_no_device_can_be_made(taken: Taken, monkeypatch: pytest.MonkeyPatch) -> None:
    def few(_machine: object, _limits: Limits, *, into: list[Record], **_: Any) -> None:
        into.append(timed("launch.call", 1e-6))

    monkeypatch.setattr(ceilings_module, "ceilings", few)
    found = measure("decode")
    assert found.device is None
    assert any("no device was made of the ceilings" in note for note in found.run.notes)
    assert names(taken) == ["decode", "prefill"]


def test_nothing_at_all(taken: Taken, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives_module, "collectives", lambda *_, say, **__: say("gloo: refused"))
    with pytest.raises(MeasureError, match="gloo: refused"):
        measure("collectives")
    assert taken == []


# ------------------------------------------------------------------------------------------------ interruptions


@pytest.mark.parametrize(
    ("error", "word"), [(KeyboardInterrupt(), "interrupted"), (ValueError("broken"), "ended by ValueError")]
)
def test_what_was_taken_is_kept(taken: Taken, monkeypatch: pytest.MonkeyPatch, error: BaseException, word: str) -> None:
    failing(monkeypatch, "prefill", error)
    kept: list[Run] = []
    with pytest.raises(type(error)):
        measure("decode", keep=kept.append)
    (run,) = kept
    assert run.notes == (word,)
    assert [record.name for record in run.records][-2:] == ["decode.step", "prefill.first"]
    assert names(taken) == ["ceilings", "decode"]


def test_nothing_is_kept_of_nothing(taken: Taken, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ceilings_module, "ceilings", stop)
    kept: list[Run] = []
    with pytest.raises(KeyboardInterrupt):
        measure("ceilings", keep=kept.append)
    assert kept == []
    assert taken == []


# ------------------------------------------------------------------------------------------------ wrong words


@pytest.mark.parametrize(
    ("command", "options", "error"),
    [
        ("everything", {}, UnknownNameError),
        ("decode", {"model": "no-such-model"}, UnknownNameError),
        ("decode", {"hardware": "no-such-device"}, UnknownNameError),
        ("decode", {"model": "-x.yaml"}, RoofplanError),
    ],
)
def test_what_there_is_not(taken: Taken, command: str, options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        measure(command, **options)
    assert taken == []
