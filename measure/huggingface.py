"""A model of a local Hugging Face folder, run by transformers: with its cache and without, as stored and in 8 and 4 bits.

Nothing is fetched and no code of the folder runs: files are local, weights are safetensors, remote code and adapters are refused. Tokens
are chosen greedily by a loop of our own, so that each one's time is known; prompts are random tokens, since time does not depend on which.
"""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import DomainError, MeasureError, UnknownNameError, show
from ..quantities import parse_tokens
from .allocation import first_line, out_of_memory
from .huggingface_model import FORMATS, LoadedModel, check_folder, load_model, offline
from .huggingface_records import Predictions, records_of
from .known_devices import devices_of
from .machine import find_machine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike

    from ..hardware.spec import HardwareSpec
    from .machine import Machine
    from .records import Record, Run
    from .timing import Clock

COMMAND = "hf"
TOKENS = {False: 256, True: 32}  # that are generated; with --quick
PROMPT = {False: 64, True: 16}
MOST_S = {False: 180.0, True: 15.0}  # of one generation
MOST_TOKENS = 65_536
_LEAST_TOKENS = 4
_WARM_TOKENS = 2
_LOOK = 8
_PASSES, _PASSES_SHARE = 9, 0.1  # over the prompt alone: so many, in at most this share of a generation's time


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation.

    Parameters
    ----------
    use_cache : whether keys and values were kept
    prompt : tokens of the prompt
    seconds : of each token: the first is that of the pass over the prompt
    passes : seconds of passes over the prompt alone, before the generation; none without a cache, where they are the same
    tokens : which ones were chosen
    cache_bytes : of keys and values at the end, counted from the tensors; 0 without a cache
    peak_bytes : of memory while it ran, weights and cache with it; None where the system does not say
    ended_early : whether its time was over before all tokens came
    """

    use_cache: bool
    prompt: int
    seconds: tuple[float, ...]
    passes: tuple[float, ...]
    tokens: tuple[int, ...]
    cache_bytes: int
    peak_bytes: int | None
    ended_early: bool


@dataclass(slots=True)
class Taken:
    """What has been taken so far, so that an interruption keeps it."""

    records: list[Record] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def run_hf(
    path: str | PathLike[str],
    *,
    device: str | None = None,
    tokens: int | str | None = None,
    prompt: int | str | None = None,
    formats: str | Sequence[str] | None = None,
    hardware: str | PathLike[str] | HardwareSpec | None = None,
    quick: bool = False,
    most_s: float | None = None,
    tell: Callable[[str], None] | None = None,
    keep: Callable[[Run], None] | None = None,
    clock: Clock | None = None,
) -> Run:
    """Measure a model of a local Hugging Face folder.

    Parameters
    ----------
    path : folder with config.json and safetensors
    device : of torch; by default a GPU where there is one
    tokens, prompt : generated, and before them; 256 and 64, 32 and 16 with ``quick``
    formats : of the weights, separated by commas: ``stored``, ``int8``, ``nf4``; all three by default
    hardware : the catalogue's device or an overlay, for the predictions; by default the catalogue's, by the name that the driver prints
    quick : fewer tokens, less time
    most_s : seconds of one generation, after which it ends with the tokens that it has
    tell : told what happens, line by line
    keep : given what there is so far when the run is interrupted or fails
    clock : for tests

    Raises
    ------
    MeasureError : without transformers, for a folder that is none, or a model that cannot be loaded or run
    DomainError, QuantityError, UnknownNameError : for options that are wrong
    """
    wanted = _formats(formats)
    length = TOKENS[quick] if tokens is None else _tokens(tokens, "--tokens")
    before = PROMPT[quick] if prompt is None else _tokens(prompt, "--prompt")
    if length < _LEAST_TOKENS:
        raise DomainError("--tokens", got=length, wanted=f"at least {_LEAST_TOKENS}")
    folder, spec = check_folder(Path(path))
    if spec.max_context is not None and before + length > spec.max_context:
        got = f"{before} of prompt and {length} generated"
        raise DomainError("tokens", got=got, wanted=f"at most {spec.max_context} together, the model's context")
    machine = find_machine(device)
    from .environment import environment
    from .records import Run

    devices = devices_of(hardware, machine.name)
    started, there = dt.datetime.now(dt.UTC).isoformat(timespec="seconds"), environment(machine)
    taken = Taken()

    def so_far(*more: str) -> Run:
        return Run(COMMAND, there, tuple(taken.records), (*taken.notes, *more), started, quick)

    run = _Runner(machine, before, length, MOST_S[quick] if most_s is None else most_s, clock, tell or _silent, taken)
    try:
        with offline():
            for name in wanted:
                run.measure(folder, name, Predictions(folder, spec, devices, before, length))
    except BaseException as error:  # also Ctrl-C: what was taken is kept, then it is raised again
        if keep is not None and taken.records:
            is_break = isinstance(error, KeyboardInterrupt)
            keep(so_far("interrupted" if is_break else f"ended by {type(error).__name__}"))
        raise
    if not taken.records and run.failed is not None:
        raise run.failed
    return so_far()


def _silent(_: str) -> None:
    """Say nothing."""


def _formats(asked: str | Sequence[str] | None) -> list[str]:
    if asked is None:
        return list(FORMATS)
    names = [name.strip() for name in asked.split(",")] if isinstance(asked, str) else list(asked)
    for name in names:
        if name not in FORMATS:
            raise UnknownNameError("--formats", got=name or "nothing", wanted=f"some of {', '.join(FORMATS)}")
    return list(dict.fromkeys(names))


def _tokens(value: int | str, what: str) -> int:
    count = parse_tokens(value, what)
    if count > MOST_TOKENS:
        raise DomainError(what, got=count, wanted=f"at most {MOST_TOKENS}")
    return count


@dataclass(slots=True)
class _Runner:
    """Loads the model in one format after the other, and generates with each."""

    machine: Machine
    prompt: int
    tokens: int
    most_s: float
    clock: Clock | None
    tell: Callable[[str], None]
    taken: Taken
    failed: MeasureError | None = None

    def measure(self, folder: Path, name: str, predictions: Predictions) -> None:
        """Measure one format; one that cannot be loaded or run is said, and left out."""
        self.tell(f"{folder.name}, {FORMATS[name].title}: loading")
        try:
            self._measure(folder, name, predictions)
        except MeasureError as error:
            self.taken.notes.append(f"{FORMATS[name].title}: not measured: {error}")
            self.failed = self.failed or error

    def _measure(self, folder: Path, name: str, predictions: Predictions) -> None:
        model = load_model(folder, name, self.machine)
        try:
            done = []
            for use_cache in (True, False):
                self.tell(f"{folder.name}, {FORMATS[name].title}: {'with' if use_cache else 'without'} a cache")
                done.append(self._fitting(model, use_cache=use_cache))
            self.taken.records += records_of(name, model, done, predictions)
            self.taken.notes += _differences(FORMATS[name].title, *done)
        finally:
            model.close(self.machine)

    def _fitting(self, model: LoadedModel, *, use_cache: bool) -> Generation:
        """Generate; where there is no memory for it, half as many tokens."""
        count = self.tokens
        while True:
            try:
                found = generate(
                    model, self.machine, self.prompt, count, self.most_s, use_cache=use_cache, clock=self.clock
                )
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise _failed(model, error) from error
                if count // 2 < _LEAST_TOKENS:
                    raise MeasureError(
                        "measure hf", got="no memory", wanted="some for a few tokens", hint="--prompt"
                    ) from error
                self.machine.empty_cache()
                self.taken.notes.append(
                    f"{FORMATS[model.format].title}: no memory for {count} tokens, {count // 2} taken"
                )
                count //= 2
            except (TypeError, ValueError, AttributeError, NotImplementedError, IndexError, KeyError) as error:
                raise _failed(model, error) from error
            else:
                if found.ended_early:
                    cache = "with" if use_cache else "without"
                    said = f"{len(found.seconds)} of {count} tokens {cache} a cache in {self.most_s:g} s"
                    self.taken.notes.append(f"{FORMATS[model.format].title}: {said}")
                return found


def _failed(model: LoadedModel, error: Exception) -> MeasureError:
    got = show(first_line(error), 200)
    return MeasureError("measure hf", got=got, wanted="a model that runs", hint=f"as {FORMATS[model.format].title}")


def _differences(title: str, with_cache: Generation, without: Generation) -> list[str]:
    """Where generations with and without a cache chose other tokens: rounding does that where two are equally likely."""
    pairs = zip(with_cache.tokens, without.tokens, strict=False)
    at = next((place for place, (one, other) in enumerate(pairs) if one != other), None)
    return [] if at is None else [f"{title}: with and without a cache, tokens differ from position {at} on"]


def generate(
    model: LoadedModel,
    machine: Machine,
    prompt: int,
    tokens: int,
    most_s: float,
    *,
    use_cache: bool,
    clock: Clock | None = None,
) -> Generation:
    """Generate greedily after a random prompt, and time each token.

    With a cache the prompt passes once and each new token alone; without one every token is the last of a pass over all before it.
    """
    import torch

    from .timing import clock_of

    clock = clock or clock_of(machine)
    with torch.inference_mode():
        ids = model.prompt(prompt)
        for _ in range(_WARM_TOKENS):
            _, cache = model.step(ids, None, use_cache=use_cache)
            model.step(ids[:, :1], cache, use_cache=use_cache)
        machine.synchronise()
        began, passes = time.monotonic(), 0
        while use_cache and passes < _PASSES and time.monotonic() - began <= _PASSES_SHARE * most_s:
            clock.start()
            model.step(ids, None, use_cache=True)
            clock.stop()
            machine.synchronise()
            passes += 1
        memory = model.begin_peak(machine)
        chosen, cache, given = [], None, ids
        began = time.monotonic()
        for _ in range(tokens):
            clock.start()
            new, cache = model.step(given, cache, use_cache=use_cache)
            clock.stop()
            chosen.append(new)
            given = new if use_cache else torch.cat([given, new], dim=1)
            if len(chosen) % _LOOK == 0:
                machine.synchronise()  # so that the time that has passed is that of the device
            if time.monotonic() - began > most_s and len(chosen) >= _LEAST_TOKENS:
                break
        seconds = clock.intervals()
        return Generation(
            use_cache,
            prompt,
            tuple(seconds[passes:]),
            tuple(seconds[:passes]),
            tuple(int(token) for token in torch.cat(chosen, dim=1)[0].tolist()),
            model.bytes_of_cache(cache),
            memory(),
            len(chosen) < tokens,
        )
