"""Fit of the constants of single streams: ``python -m roofplan.accuracy.fit.single_stream`` prints them with their errors.

Constants of a block of classes are fitted together, in the logarithm and robustly (:mod:`.robust`): some are shared, because they belong to
the chips (bandwidth, bytes per clock) and not to a build, others to a build and not to the chips (launches). Errors are also given with all
rows of a device left out of the fit (leave-one-GPU). Where a class consists of that device alone, its own constants are then those of the
first class of the block: a device that nobody has fitted.
"""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...engines.streams import WIDTHS
from ...planner.streams import Work, constants, width_of
from ..single_stream import Run, read_runs
from .robust import Bound, minimise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from .robust import Array

NARROW = (8, 4)


@dataclass(frozen=True, slots=True)
class Free:
    """One constant to fit: its name in the formulas, the classes that share it, where it may lie, and for which bits of the weights."""

    name: str
    streams: tuple[str, ...]
    bound: Bound
    bits: tuple[int, ...] = WIDTHS

    @property
    def is_time(self) -> bool:
        """Whether it is in seconds."""
        return self.name.startswith(("per_", "prompt_per_"))

    def concerns(self, run: Run) -> bool:
        """Whether a row's prediction takes this constant."""
        return run.stream.name in self.streams and width_of(run.bits) in self.bits


@dataclass(frozen=True, slots=True)
class Block:
    """Classes that are fitted together, for tokens that are generated or for prompts."""

    title: str
    prompts: bool
    constants: tuple[Free, ...]

    @property
    def streams(self) -> tuple[str, ...]:
        """The classes, the first one first."""
        return tuple(dict.fromkeys(name for free in self.constants for name in free.streams))

    def rows(self, runs: Iterable[Run]) -> list[Run]:
        """The rows that it is about."""
        return [run for run in runs if run.is_prompt == self.prompts and run.stream.name in self.streams]


def _launch(start: float) -> Bound:
    return Bound(start * 1e-6, 1e-6, 5e-3)


_SHARE, _RATE = Bound(0.9, 0.3, 1.0), Bound(7, 2, 40)
_OLD, _NEW = ("cuda-2024", "pascal"), ("cuda-2025", "spark", "amd", "intel")
_APPLE = ("apple", "apple-ultra")
# With flash attention a cache is read about as fast as weights (notes: 0.78 to 0.93 of the bandwidth for one, 0.83 to 0.9 for the other).
_WITH_FLASH = Bound(0.85, 0.6, 1.0)

BLOCKS = (
    Block(
        "NVIDIA, AMD, Intel: generation",
        False,
        (
            Free("bandwidth", ("cuda-2024", "cuda-2025", "pascal", "amd", "amd-rocm"), _SHARE),
            Free("bytes_per_clock", ("cuda-2024", "cuda-2025", "pascal"), _RATE),
            Free("per_layer", _OLD, _launch(90)),
            Free("per_layer", _NEW, _launch(45)),
            Free("per_layer", ("amd-rocm",), _launch(190)),
            Free("per_expert_layer", ("cuda-2024", *_NEW, "amd-rocm"), _launch(30)),
            Free("per_device", ("cuda-2024", "cuda-2025"), _launch(250)),
            Free("cache_bandwidth", _OLD, Bound(0.45, 0.1, 1.0)),
            Free("cache_bandwidth", (*_NEW, "amd-rocm"), _WITH_FLASH),
            Free("bandwidth", ("spark",), _SHARE),
            Free("bandwidth", ("intel",), _SHARE),
        ),
    ),
    Block(
        "Apple: generation",
        False,
        (
            Free("per_layer", _APPLE, _launch(170)),
            Free("per_expert_layer", _APPLE, _launch(20)),
            Free("bandwidth", ("apple",), _SHARE),
            Free("bandwidth", ("apple-ultra",), _SHARE),
            Free("cache_bandwidth", _APPLE, Bound(0.45, 0.1, 1.0)),
        ),
    ),
    Block(
        "CPU: generation",
        False,
        (Free("per_layer", ("cpu",), _launch(1000)), Free("bandwidth", ("cpu",), _SHARE)),
    ),
    Block(
        "NVIDIA until early 2025: prompts",
        True,
        (
            Free("compute", ("cuda-2024",), _SHARE),
            Free("prompt_per_layer", ("cuda-2024",), _launch(490)),
            Free("attention_per_byte", ("cuda-2024", "pascal"), Bound(18, 2, 200)),
            Free("layers_ahead", ("cuda-2024",), Bound(27, 5, 100)),
            Free("compute", ("pascal",), Bound(0.25, 0.05, 1.0)),
        ),
    ),
    Block(
        "NVIDIA since, AMD, Intel: prompts",
        True,
        (
            Free("flop_per_clock", ("cuda-2025",), Bound(450, 50, 4000), NARROW),
            Free("expert_compute", ("cuda-2025", "spark", "amd", "amd-rocm", "intel"), Bound(0.6, 0.1, 1.0)),
            Free("attention_compute", ("cuda-2025", "spark", "amd", "amd-rocm", "intel"), Bound(0.6, 0.1, 1.0)),
            Free("compute", ("spark",), Bound(0.3, 0.05, 1.0)),
            Free("compute", ("amd", "amd-rocm"), Bound(0.3, 0.05, 1.0)),
            Free("compute", ("intel",), Bound(0.6, 0.05, 1.0)),
        ),
    ),
    Block(
        "Apple: prompts",
        True,
        (
            Free("compute", _APPLE, _SHARE, (16,)),
            Free("compute", _APPLE, _SHARE, NARROW),
            Free("attention_compute", _APPLE, Bound(0.35, 0.05, 1.0)),
        ),
    ),
    Block("CPU: prompts", True, (Free("compute", ("cpu",), _SHARE),)),
)


def stacked(runs: Sequence[Run]) -> Work:
    """The work of several rows, as arrays."""
    names = [field.name for field in dataclasses.fields(Work)]
    return Work(**{name: np.array([getattr(run.work, name) for run in runs], float) for name in names})


def predictor(block: Block, runs: Sequence[Run]) -> Callable[[Array], Array]:
    """Seconds of all rows as a function of the block's constants."""
    work = stacked(runs)
    given = [constants(run.stream, run.bits) for run in runs]
    base = {name: np.array([one[name] for one in given]) for name in given[0]}
    places = [np.array([free.concerns(run) for run in runs]) for free in block.constants]
    formula = runs[0].formula

    def seconds(x: Array) -> Array:
        chosen = dict(base)
        for free, place, value in zip(block.constants, places, x, strict=True):
            chosen[free.name] = np.where(place, value, chosen[free.name])
        predicted: Array = formula(work, chosen)
        return predicted

    return seconds


def fit(block: Block, runs: Sequence[Run]) -> Array:
    """The constants that are nearest to what was measured; those that no row takes stay where they start."""
    rows = [run for run in runs if block.prompts or run.work.sequences == 1]
    measured = np.array([run.measured_s for run in rows])
    return minimise(predictor(block, rows), measured, np.ones(len(rows)), [free.bound for free in block.constants])


def errors(block: Block, runs: Sequence[Run], x: Array) -> Array:
    """Relative errors of tokens per second."""
    measured: Array = np.array([run.measured_s for run in runs])
    return measured / predictor(block, runs)(x) - 1


def without_device(block: Block, runs: Sequence[Run]) -> Array:
    """Errors of each device's rows with constants that were fitted without them."""
    found = np.full(len(runs), np.nan)
    for device in sorted({run.device.name for run in runs}):
        left = [run for run in runs if run.device.name != device]
        held = [i for i, run in enumerate(runs) if run.device.name == device]
        if len(left) >= len(block.constants):
            x = _borrowed(block, left, fit(block, left))
            found[held] = errors(block, [runs[i] for i in held], x)
    return found


def _borrowed(block: Block, left: Sequence[Run], x: Array) -> Array:
    """Constants that no row is left for, taken from the first of the block with that name."""
    borrowed = x.copy()
    for i, free in enumerate(block.constants):
        if not any(free.concerns(run) for run in left):
            borrowed[i] = next(x[j] for j, other in enumerate(block.constants) if other.name == free.name)
    return borrowed


@dataclass(frozen=True, slots=True)
class Fitted:
    """A block with its constants, its rows, and their errors in the fit and with their device left out."""

    block: Block
    x: Array
    runs: list[Run]
    inside: Array
    outside: Array


def fit_block(block: Block, runs: Iterable[Run]) -> Fitted:
    """Fit one block and judge it."""
    rows = block.rows(runs)
    x = fit(block, rows)
    return Fitted(block, x, rows, errors(block, rows, x), without_device(block, rows))


def summary(errors_of_rows: Array) -> str:
    """Median and mean absolute error in percent, of the rows that have one."""
    known = np.abs(errors_of_rows[~np.isnan(errors_of_rows)])
    return f"{100 * np.median(known):5.1f} {100 * known.mean():6.1f}" if len(known) else "     -      -"


def within(errors_of_rows: Array, share: float = 0.8) -> float:
    """The x/÷ that holds a share of the rows."""
    known = errors_of_rows[~np.isnan(errors_of_rows)]
    return float(np.exp(np.quantile(np.abs(np.log1p(known)), share)))


def described(one: Fitted) -> Iterator[str]:
    """A block as text: its constants, and the errors of its classes."""
    yield f"\n{one.block.title}: {len(one.runs)} rows; median and mean error in %, fitted | leave-one-GPU; x/÷ of 80 %"
    for free, value in zip(one.block.constants, one.x, strict=True):
        shown = f"{value * 1e6:9.1f} us" if free.is_time else f"{value:9.3f}   "
        widths = "" if free.bits == WIDTHS else f" at {' and '.join(map(str, free.bits))} bits"
        yield f"  {free.name:20s} {shown}  {', '.join(free.streams)}{widths}"
    for name in one.block.streams:
        place = np.array([run.stream.name == name for run in one.runs])
        if place.any():
            inside, outside = one.inside[place], one.outside[place]
            errors_of = f"{summary(inside)} | {summary(outside)}; {within(inside):.3f} | {within(outside):.3f}"
            yield f"  {name:12s} {int(place.sum()):4d} rows  {errors_of}"


def main() -> None:
    """Fit all blocks and print them."""
    runs = [run for run in read_runs() if isinstance(run, Run)]
    fitted = [fit_block(block, runs) for block in BLOCKS]
    lines = [line for one in fitted for line in described(one)]
    for prompts, title in ((False, "generation"), (True, "prompts")):
        chosen = [one for one in fitted if one.block.prompts == prompts]
        inside, outside = (np.concatenate(part) for part in zip(*((o.inside, o.outside) for o in chosen), strict=True))
        lines.append(f"\nall {title}: {len(inside)} rows  {summary(inside)} | {summary(outside)}")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
