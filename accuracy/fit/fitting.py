"""The form of a kernel's time, and the fit of its constants.

    t = floor + (bytes/(bandwidth W)) (+)_p (FLOP/(compute F) (1 + ramp/e)),   x (+)_p y = (x^p + y^p)^(1/p)

with the nominal bandwidth W and dense peak F of the device; ``overlap`` p, or None for the larger of both. It is formula F1.3 with a fixed
time; the ramp is that of attention over prompts that end at token e. Every device of a fit counts alike, however many calls it has.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...errors import DomainError
from .calls import CACHED
from .robust import Bound, minimise

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .calls import Call
    from .robust import Array

NAMES = ("floor", "bandwidth", "compute", "ramp_tokens")
_DIGITS = {"floor": 3, "bandwidth": 3, "compute": 3, "ramp_tokens": 3}  # significant ones that are kept
_LEAST_FLOOR = 1e-7


@dataclass(frozen=True, slots=True)
class Constants:
    """What a kernel reaches: seconds of an empty launch, shares of the rates, and tokens at which attention reaches half of ``compute``."""

    floor: float
    bandwidth: float = 1.0
    compute: float = 1.0
    ramp_tokens: float = 0.0


@dataclass(frozen=True, slots=True)
class KernelClass:
    """Kernels that share constants.

    Parameters
    ----------
    section, label : where the constants stand in a file of kernels, and what distinguishes them there
    kinds : the kinds of calls that belong to it
    entry : the keys of its entry beside the constants
    free : the constants that are fitted, and where each is searched
    fixed : the others
    overlap : p of the join, or None for the larger of both
    engine : only calls of kernels of this engine; empty for all
    floor_shown : whether the table goes down to calls that do next to nothing
    """

    section: str
    label: str
    kinds: frozenset[str]
    entry: Mapping[str, object]
    free: Mapping[str, Bound]
    fixed: Mapping[str, float]
    overlap: float | None
    engine: str = ""
    floor_shown: bool = False

    def holds(self, call: Call) -> bool:
        """Whether a call counts for the constants."""
        return call.usable and call.kind in self.kinds and self.engine in call.engine


@dataclass(frozen=True, slots=True)
class Errors:
    """Absolute relative errors of predicted times: the median, and what nine of ten stay within, as fractions."""

    rows: int
    median: float
    p90: float


@dataclass(frozen=True, slots=True)
class Fitted:
    """Constants of a class on some devices, rounded as they are printed, and the errors of the rounded ones.

    ``left_out`` are the errors on each device of constants that were fitted on the others; ``together`` those of all these rows.
    """

    kernel: KernelClass
    devices: tuple[str, ...]
    constants: Constants
    errors: Errors
    left_out: Mapping[str, Errors]
    together: Errors | None


def predicted(constants: Constants, overlap: float | None, calls: Sequence[Call]) -> Array:
    """Seconds of each call."""
    read, computed, tokens = _columns(calls)
    return _times(constants, overlap, read, computed, tokens)


def errors(constants: Constants, overlap: float | None, calls: Sequence[Call]) -> Errors:
    """Absolute relative errors of the predicted times of calls."""
    return _summary(np.abs(predicted(constants, overlap, calls) / _measured(calls) - 1))


def fit(kernel: KernelClass, calls: Sequence[Call]) -> Constants:
    """The constants of a class that fit the calls best, rounded.

    Where small calls were left out because they read from the cache, the fixed time is at most that of the fastest call, whatever it read.

    Raises
    ------
    DomainError : for fewer calls of the class than constants
    """
    used = [call for call in calls if kernel.holds(call)]
    if len(used) < len(kernel.free):
        wanted = f"at least {len(kernel.free)} calls, one for each constant"
        raise DomainError(f"{kernel.section} {kernel.label}", got=len(used), wanted=wanted)
    bounds = dict(kernel.free)
    if not kernel.floor_shown and {call.gpu for call in used} <= CACHED:
        fastest = min(call.measured_s for call in calls if call.kind in kernel.kinds)
        bounds["floor"] = Bound(min(bounds["floor"].start, fastest), _LEAST_FLOOR, fastest)
    read, computed, tokens = _columns(used)
    per_device = Counter(call.gpu for call in used)
    weights = np.array([len(used) / len(per_device) / per_device[call.gpu] for call in used])

    def model(values: Array) -> Array:
        constants = Constants(**{**kernel.fixed, **dict(zip(bounds, values.tolist(), strict=True))})
        return _times(constants, kernel.overlap, read, computed, tokens)

    found = minimise(model, _measured(used), weights, list(bounds.values()))
    rounded = {name: _rounded(name, value) for name, value in zip(bounds, found.tolist(), strict=True)}
    return Constants(**{**kernel.fixed, **rounded})


def fit_class(kernel: KernelClass, calls: Sequence[Call], devices: Sequence[str], *, leave_out: bool) -> Fitted | None:
    """Fit a class on those of the devices that have calls of it, and on request with each device left out; None where none has any."""
    held = {gpu: [call for call in calls if call.gpu == gpu] for gpu in devices}
    used = {gpu: [call for call in of if kernel.holds(call)] for gpu, of in held.items()}
    present = tuple(gpu for gpu in devices if used[gpu])
    if not present:
        return None
    constants = fit(kernel, [call for gpu in present for call in held[gpu]])
    every = [call for gpu in present for call in used[gpu]]
    left_out, seen = {}, []
    if leave_out and len(present) > 1:
        for gpu in present:
            others = fit(kernel, [call for other in present if other != gpu for call in held[other]])
            seen.append(np.abs(predicted(others, kernel.overlap, used[gpu]) / _measured(used[gpu]) - 1))
            left_out[gpu] = _summary(seen[-1])
    together = _summary(np.concatenate(seen)) if seen else None
    return Fitted(kernel, present, constants, errors(constants, kernel.overlap, every), left_out, together)


def _times(constants: Constants, overlap: float | None, read: Array, computed: Array, tokens: Array) -> Array:
    reading = read / constants.bandwidth
    computing = computed / constants.compute * (1 + constants.ramp_tokens / tokens)
    return constants.floor + joined(reading, computing, overlap)


def joined(one: Array, other: Array, overlap: float | None) -> Array:
    """(x^p + y^p)^(1/p), the larger of both for None; scaled by the larger, so that small times do not underflow."""
    larger = np.maximum(one, other)
    if overlap is None:
        return larger
    share = np.minimum(one, other) / np.where(larger > 0, larger, 1)
    joint: Array = larger * (1 + share**overlap) ** (1 / overlap)
    return joint


def _columns(calls: Sequence[Call]) -> tuple[Array, Array, Array]:
    columns: tuple[Callable[[Call], float], ...] = (
        lambda call: call.read_s,
        lambda call: call.compute_s,
        lambda call: call.tokens,
    )
    read, computed, tokens = (np.array([column(call) for call in calls], dtype=np.float64) for column in columns)
    return read, computed, tokens


def _measured(calls: Sequence[Call]) -> Array:
    return np.array([call.measured_s for call in calls])


def _summary(relative: Array) -> Errors:
    return Errors(len(relative), float(np.median(relative)), float(np.percentile(relative, 90)))


def _rounded(name: str, value: float) -> float:
    return float(f"{value:.{_DIGITS[name]}g}")
