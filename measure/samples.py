"""Samples of one quantity, and what is said of them: median, quartiles, scatter, and whether they are fit to be believed.

Median and quartiles instead of mean and deviation: a machine that other work interrupts gives samples that are too long, never too short,
so that a mean says more of the interruptions than of the work.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import MeasureError, show

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LEAST_SAMPLES = 10
WIDE = 0.10  # half the range between the quartiles, over the median, from which on a summary is called unsteady (pyperf warns at 10 %)
FAR = 0.50  # a sample so far from the median, over the median, is named (pyperf)
SIGMA_OF_MAD = 1.4826  # standard deviations in a median absolute deviation of normal samples


@dataclass(frozen=True, slots=True)
class Summary:
    """What samples of one quantity say, in the unit that the record names.

    Parameters
    ----------
    median, q1, q3 : of the samples that were kept; quartiles interpolated between ranks
    relative_mad : median absolute deviation from the median, over the median
    count : samples that were kept
    samples : these samples, in the order in which they were taken
    dropped : samples that were thrown away because the machine was throttled
    warnings : what makes the samples doubtful, in words
    unmet : the criterion that was not met before a limit ended the measurement; empty when it was met
    """

    median: float
    q1: float
    q3: float
    relative_mad: float
    count: int
    samples: tuple[float, ...]
    dropped: int = 0
    warnings: tuple[str, ...] = ()
    unmet: str = ""

    def to_dict(self, *, samples: bool = True) -> dict[str, Any]:
        """Plain data; ``samples`` says whether every sample is in it."""
        said: dict[str, Any] = {
            "median": self.median,
            "q1": self.q1,
            "q3": self.q3,
            "relative_mad": self.relative_mad,
            "count": self.count,
            "dropped": self.dropped,
            "warnings": list(self.warnings),
            "unmet": self.unmet,
        }
        return said | ({"samples": list(self.samples)} if samples else {})

    @classmethod
    def from_dict(cls, said: dict[str, Any]) -> Summary:
        """Read what :meth:`to_dict` wrote; without samples the figures stand alone.

        Raises
        ------
        KeyError, TypeError, ValueError : for what it did not write, as a figure that is no finite number of zero or more
        """
        return cls(
            _figure(said["median"]),
            _figure(said["q1"]),
            _figure(said["q3"]),
            _figure(said["relative_mad"]),
            int(_figure(said["count"])),
            tuple(_figure(sample) for sample in said.get("samples", ())),
            int(_figure(said.get("dropped", 0))),
            tuple(str(warning) for warning in said.get("warnings", ())),
            str(said.get("unmet", "")),
        )

    def scaled(self, by: float) -> Summary:
        """The same samples in another unit, each multiplied by a number above zero (seconds into microseconds)."""
        return Summary(
            self.median * by,
            self.q1 * by,
            self.q3 * by,
            self.relative_mad,
            self.count,
            tuple(sample * by for sample in self.samples),
            self.dropped,
            self.warnings,
            self.unmet,
        )

    def inverted(self, amount: float) -> Summary:
        """The samples as rates: ``amount`` over each of them (bytes over seconds)."""
        return summarise([amount / sample for sample in self.samples], self.dropped, self.unmet)


def summarise(samples: Iterable[float], dropped: int = 0, unmet: str = "") -> Summary:
    """Summarise samples.

    Raises
    ------
    MeasureError : when no sample was kept, or one is not a finite number above zero
    """
    kept = tuple(float(sample) for sample in samples)
    if not kept:
        why = f"all {dropped} were taken while the machine was throttled" if dropped else "none was taken"
        raise MeasureError("samples", got="none", wanted="at least one", hint=why)
    for sample in kept:
        if not math.isfinite(sample) or sample < 0:
            raise MeasureError("samples", got=sample, wanted="finite numbers, zero or more")
    ordered = sorted(kept)
    middle = quantile(ordered, 0.5)
    q1, q3 = quantile(ordered, 0.25), quantile(ordered, 0.75)
    return Summary(
        middle,
        q1,
        q3,
        relative_mad(ordered),
        len(kept),
        kept,
        dropped,
        _doubts(ordered, middle, q1, q3, dropped),
        unmet,
    )


def _figure(said: object) -> float:
    """A number of a file that samples can have: a rank test of anything else would never end, or say nonsense."""
    if isinstance(said, bool) or not isinstance(said, (int, float)) or not 0 <= said < math.inf:
        raise ValueError(f"{show(said)} is no finite number of zero or more")
    try:
        return float(said)
    except OverflowError as error:
        raise ValueError("a number beyond all reason") from error


def quantile(ordered: Sequence[float], share: float) -> float:
    """The quantile of ordered samples, interpolated between ranks (type 7 of Hyndman and Fan 1996)."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def relative_mad(samples: Sequence[float]) -> float:
    """The median absolute deviation from the median, over the median; 0 where that is 0."""
    middle = quantile(sorted(samples), 0.5)
    return quantile(sorted(abs(sample - middle) for sample in samples), 0.5) / middle if middle else 0.0


def noise(samples: Sequence[float]) -> float:
    """The relative deviation of samples as if they were normal: 1.4826 x the relative MAD."""
    return SIGMA_OF_MAD * relative_mad(samples)


def _doubts(ordered: Sequence[float], middle: float, q1: float, q3: float, dropped: int) -> tuple[str, ...]:
    found = []
    if len(ordered) < LEAST_SAMPLES:
        found.append(f"only {len(ordered)} samples, want {LEAST_SAMPLES}")
    if middle and (q3 - q1) / 2 >= WIDE * middle:
        found.append(f"unsteady: the quartiles lie {q1 / middle - 1:+.0%} and {q3 / middle - 1:+.0%} from the median")
    far = sum(1 for sample in ordered if abs(sample - middle) >= FAR * middle) if middle else 0
    if far:
        found.append(f"{far} of {len(ordered)} samples lie {FAR:.0%} or more from the median")
    if dropped:
        found.append(f"{dropped} samples were dropped: the machine was throttled")
    return tuple(found)
