"""One run of ``roofplan measure``: its steps one after the other, what is kept when it is interrupted, and what becomes of its ceilings."""

from __future__ import annotations

import datetime as dt
import os
import time
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .. import hardware as devices_room
from ..documents import Document
from ..errors import MeasureError, RoofplanError, UnknownNameError
from .allocation import out_of_memory
from .environment import environment
from .gates import gates_of
from .known_devices import Devices, devices_of
from .machine import find_machine, torch_module
from .overlay import overlay
from .records import Run, pooled
from .results import MeasureResult
from .roof import beside, measured_roof
from .timing import QUICK, STANDARD

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from ..hardware import HardwareSpec
    from ..models.spec import ModelSpec
    from .environment import Environment
    from .machine import Machine
    from .records import Record
    from .timing import Limits

# The experiments of each command, by their modules; each has ``run(machine, model, limits, ...)``.
EXPERIMENTS: dict[str, tuple[str, ...]] = {
    "decode": ("decode", "prefill"),
    "cache": ("cache", "kv_formats", "heavy_hitters", "prefix"),
    "batching": ("batching", "paged", "chunked"),
    "quantization": ("weight_formats", "attention"),
    "speculation": ("speculation",),
}
COMMANDS = ("ceilings", *EXPERIMENTS, "collectives", "all")
# Shared machines drift by tenths within minutes: what is compared with each other is taken in rounds, so that no figure is of one moment.
ROUNDS = 3
IN_ROUNDS = frozenset({"decode", "prefill", "cache"})
# Of a quick run and of another: what has not begun by then is left out. A step that has begun ends; the longest takes some 10 s of a
# quick run on two busy cores, so that it ends within a minute, and another within a quarter of an hour.
BUDGET_S = {True: 50.0, False: 840.0}


@dataclass
class Taking:
    """A run in the making."""

    command: str
    machine: Machine
    there: Environment
    limits: Limits
    quick: bool
    model: ModelSpec | None
    devices: Devices
    tell: Callable[[str], None]
    began: float
    started: str
    records: list[Record] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def say(self, note: str) -> None:
        """Keep what was left out, or made smaller."""
        if note not in self.notes:
            self.notes.append(note)

    def run(self, *more: str) -> Run:
        """What there is so far."""
        return Run(self.command, self.there, tuple(self.records), (*self.notes, *more), self.started, self.quick)

    @property
    def spent_s(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.began


def measure(
    command: str,
    *,
    device: str | None = None,
    model: str | PathLike[str] | ModelSpec | None = None,
    hardware: str | PathLike[str] | HardwareSpec | None = None,
    quick: bool = False,
    wants_device: bool = False,
    limits: Limits | None = None,
    tell: Callable[[str], None] | None = None,
    keep: Callable[[Run], None] | None = None,
) -> MeasureResult:
    """Measure the machine at hand.

    Experiments are predicted by the data sheet and by the measured machine: unless ``hardware`` is one, short ceilings are taken first.

    Parameters
    ----------
    command : one of :data:`COMMANDS`
    device : of torch (``cpu``, ``cuda:1``, ``mps``); by default a GPU where there is one
    model : whose shape the experiments have, at full or reduced depth; by default one that suits the machine
    hardware : the catalogue's device or an overlay, for the predictions; by default the catalogue's, by the name that the driver prints
    quick : shorter, with fewer sizes
    wants_device : whether the measured machine is wanted, so that a run which would not make one is refused
    limits : of each measurement, for tests; those of :data:`QUICK` or :data:`STANDARD` otherwise
    tell : told what begins
    keep : given what there is so far when the run is interrupted or fails

    Raises
    ------
    UnknownNameError : for a command, model or device that there is not
    MeasureError : without torch, without the device, or when nothing could be measured
    """
    if command not in COMMANDS:
        raise UnknownNameError("measure", got=command, wanted=f"one of {', '.join(COMMANDS)}")
    began = time.monotonic()  # loading torch is part of the time
    spec, asked = _model(model), None if hardware is None else devices_of(hardware)
    if wants_device and not _takes_ceilings(command, asked):
        got = f"{command} with a measured machine" if asked and asked.measured else command
        raise MeasureError("--save", got=got, wanted="a run that takes ceilings", hint="roofplan measure ceilings does")
    machine = find_machine(device or _of_this_rank())
    taking = Taking(
        command,
        machine,
        environment(machine),
        limits or (QUICK if quick else STANDARD),
        quick,
        spec,
        asked or devices_of(None, machine.name),
        tell or _silent,
        began,
        dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
    )
    try:
        made = _take(taking)
    except BaseException as error:  # also Ctrl-C: what was taken is kept, then it is raised again
        if keep is not None and taking.records:
            keep(
                taking.run(
                    "interrupted" if isinstance(error, KeyboardInterrupt) else f"ended by {type(error).__name__}"
                )
            )
        raise
    if not taking.records:
        taking.notes = taking.notes or ["nothing was left out, and yet nothing was taken"]
        raise MeasureError(f"measure {command}", got="nothing", wanted="a measurement", hint="; ".join(taking.notes))
    run, datasheet = taking.run(), taking.devices.datasheet
    return MeasureResult(run, gates_of(run, datasheet, made), made, datasheet.name if datasheet else "")


def _model(asked: str | PathLike[str] | ModelSpec | None) -> ModelSpec | None:
    if asked is None:
        return None
    from .. import models
    from ..api.building import loaded
    from ..models.spec import ModelSpec

    return loaded(asked, ModelSpec, models.load, "--model")


def _of_this_rank() -> str | None:
    """The GPU of a rank that ``torchrun`` started, where there are GPUs: each has its own."""
    local = os.environ.get("LOCAL_RANK", "")
    return (
        f"cuda:{local}"
        if local.isdigit() and "WORLD_SIZE" in os.environ and torch_module().cuda.is_available()
        else None
    )


def _silent(_: str) -> None:
    """Say nothing."""


# ------------------------------------------------------------------------------------------------ its steps


def _take(taking: Taking) -> dict[str, Any] | None:
    """Take all steps; returns the overlay of the ceilings, where they were taken."""
    command, made = taking.command, None
    if _takes_ceilings(command, taking.devices):
        made = _ceilings(taking)
    for name in [name for group, names in EXPERIMENTS.items() if command in {group, "all"} for name in names]:
        _step(taking, name, lambda name=name: _experiment(taking, name))  # type: ignore[misc]  # mypy: defaults bind the loop
    if command in {"collectives", "all"}:
        _step(taking, "collectives", lambda: _collectives(taking))
        made = made and (_device_of(taking) or made)  # exchanges are part of it
    return made


def _takes_ceilings(command: str, devices: Devices | None) -> bool:
    """Whether a command measures ceilings: for their own sake, or since nothing else says what the measured machine reaches."""
    if command in {"ceilings", "all"}:
        return True
    return command != "collectives" and (devices is None or devices.measured is None)


def _step(taking: Taking, name: str, take: Callable[[], None]) -> None:
    """Take one step; of several, one that cannot be taken is left out and said."""
    if taking.spent_s > BUDGET_S[taking.quick]:
        taking.say(f"{name}: left out, since {taking.spent_s:.0f} s were spent")
        return
    taking.tell(f"{name} ({taking.spent_s:.0f} s)")
    try:
        take()
    except RoofplanError as error:
        if taking.command != "all":
            raise
        taking.say(f"{name}: {error}")
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        taking.machine.empty_cache()
        taking.say(f"{name}: no memory for it; left out")


def _ceilings(taking: Taking) -> dict[str, Any] | None:
    from .ceilings import ceilings

    taking.tell(f"ceilings ({taking.spent_s:.0f} s)")
    # Before an experiment alone they need be no finer than what the fit of kernels wants.
    limits = taking.limits if taking.command in {"ceilings", "all"} or taking.quick else QUICK

    def take(limits: Limits, into: list[Record]) -> None:
        ceilings(taking.machine, limits, hardware=taking.devices.datasheet, say=taking.say, into=into)

    _in_rounds(taking, limits, take)
    taking.records[:] = beside(taking.records, measured_roof(taking.records, taking.machine.cache_bytes))
    return _device_of(taking)


def _device_of(taking: Taking) -> dict[str, Any] | None:
    """The overlay of what was taken so far, by which what follows is predicted."""
    try:
        made = overlay(taking.run(), taking.devices.datasheet)
        measured = devices_room.from_document(Document(made, "the measured machine", {}))
    except RoofplanError as error:
        taking.say(f"no device was made of the ceilings: {error}")
        return None
    taking.devices = Devices(taking.devices.datasheet, measured)
    return made


def _experiment(taking: Taking, name: str) -> None:
    experiment = import_module(f".experiments.{name}", __package__)

    def take(limits: Limits, into: list[Record]) -> None:
        experiment.run(taking.machine, taking.model, limits, devices=taking.devices, say=taking.say, into=into)

    if name in IN_ROUNDS:
        _in_rounds(taking, taking.limits, take)
    else:
        take(taking.limits, taking.records)


def _in_rounds(taking: Taking, limits: Limits, take: Callable[[Limits, list[Record]], object]) -> None:
    """Take records in several rounds, each with its share of the limits, and keep those of all together; quick ones in one."""
    began, rounds = len(taking.records), 1 if limits.most_s <= QUICK.most_s else ROUNDS
    found: list[list[Record]] = []
    for _ in range(rounds):
        found.append([])
        try:
            take(limits.shared(rounds), found[-1])
        finally:  # also when it is interrupted: what was taken is kept
            taking.records[began:] = pooled(found)


def _collectives(taking: Taking) -> None:
    from .collectives import collectives

    collectives(taking.machine, taking.limits, hardware=taking.devices.datasheet, say=taking.say, into=taking.records)
