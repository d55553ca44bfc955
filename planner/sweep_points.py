"""The points of a sweep: for each batch and length its memory, times, rates and cost.

Two kinds of traffic. *Decode*: all sequences decode at one length, as a step model times them; many points at a time, as numpy arrays on
one step model. *Serving*: prompts of other requests come in between, as in a sizing; one point at a time.

Symbols: B sequences over all replicas, dp replicas, pp stages. A step of the fullest replica decodes for ceil(B / dp) / pp of them.
Source: the step model (:mod:`.step`), the memory plan (:mod:`.memory`) and the times of a sizing (:mod:`.times`); nothing is timed or
counted anew here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .deployment import Workload
from .evidence import evidence_of
from .fitting import conditions, reason_against
from .memory import engine_cache, plan_capacity, plan_memory
from .prices import cost_range
from .reached import reached_model
from .spending import usd_per_million_tokens
from .step import StepModel
from .times import times_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .costs import Amount
    from .deployment import Deployment
    from .memory import MemoryPlan
    from .ranges import Range
    from .streams import StreamModel
    from .times import Times

Columns = dict[str, list[Any]]  # of a range four columns: its name with .bound, .low, .expected and .high

FACTS = ("fits", "reason", "devices", "weights_bytes", "kv_bytes", "memory_bytes", "kv_budget_bytes", "free_bytes")
RATES = (
    "output_tokens_per_s",
    "output_tokens_per_s_per_device",
    "per_user_tokens_per_s",
    "usd_per_million_output_tokens",
)
DECODE_RANGES = ("step_s", "tpot_s", *RATES)
SERVING_RANGES = ("step_s", "tpot_s", "ttft_s", "e2e_s", *RATES)
PARTS = ("bound", "low", "expected", "high")

_SLICE = 20_000  # points between two reports of progress


@dataclass(frozen=True, slots=True)
class Variant:
    """One deployment of a sweep, without batch and lengths.

    Parameters
    ----------
    settings : what the other axes say of it, by name
    usd_per_hour : price of one of its devices, None where nobody knows
    """

    settings: tuple[tuple[str, int | str], ...]
    deployment: Deployment
    usd_per_hour: float | None

    @property
    def usd_per_hour_of_all(self) -> float | None:
        """Price of all devices."""
        return None if self.usd_per_hour is None else self.usd_per_hour * self.deployment.layout.devices


@dataclass(frozen=True, slots=True)
class ExpectedSteps:
    """Decode steps as they are expected, as a function of the sequences of a whole deployment: what is reached, not below the roof.

    It stands for a step model in :mod:`.batch_curve`. ``even`` divides sequences over replicas without a remainder, so that the curve has
    no stairs; else the fullest replica is timed.
    """

    nominal: StepModel
    reached: StepModel | StreamModel
    dp: int = 1
    pp: int = 1
    even: bool = False

    @classmethod
    def of(cls, d: Deployment) -> ExpectedSteps:
        """Those of a deployment.

        Raises
        ------
        SpecError : when the device has no rate for an arithmetic type that is needed
        """
        return cls(StepModel.of(d), reached_model(d), d.layout.dp, d.layout.pp)

    def decoders(self, batch: Amount) -> Amount:
        """Sequences of one step of one replica."""
        each = (batch / self.dp if self.even else -(-batch // self.dp)) / self.pp
        if isinstance(each, float):
            return max(1.0, each)
        import numpy as np

        return np.maximum(1.0, each)

    def step_s(self, batch: Amount, context: Amount, *, grouping: str = "operators") -> Amount:
        """Seconds of a decode step; there is one grouping."""
        assert grouping == "operators"
        bound, reached = self.both_s(batch, context)
        if isinstance(bound, float):
            return max(bound, reached)
        import numpy as np

        return np.maximum(bound, reached)

    def both_s(self, batch: Amount, context: Amount) -> tuple[Amount, Amount]:
        """The bound of the roofline, and what is reached."""
        decoders = self.decoders(batch)
        return self.nominal.step_s(decoders, context), self.reached.step_s(decoders, context)


def of_length(d: Deployment, length: int, batch: int = 1) -> Deployment:
    """A deployment whose sequences hold so many tokens, and of which so many decode."""
    return replace(d, workload=Workload(length - 1, 1, batch))


# ------------------------------------------------------------------------------------------------ decode


def decode_columns(
    variant: Variant,
    steps: ExpectedSteps,
    batches: Sequence[int],
    lengths: Sequence[int],
    tick: Callable[[int], None] = lambda _done: None,
) -> Columns:
    """Points of one deployment whose sequences decode at one length each, many at a time.

    Parameters
    ----------
    batches, lengths : of each point the sequences over all replicas, and the tokens of each (at least two)
    tick : told how many points are done
    """
    import numpy as np

    d = variant.deployment
    counts, tokens = np.asarray(batches, dtype=np.int64), np.asarray(lengths, dtype=np.int64)
    columns = _memory_columns(d, counts, tokens)
    if not d.hardware.has_rates:
        tick(len(counts))
        return columns | _nothing(DECODE_RANGES, len(counts))
    bounds, reached = [], []
    for start in range(0, len(counts), _SLICE):
        part = slice(start, start + _SLICE)
        bound, real = steps.both_s(counts[part].astype(float), tokens[part].astype(float))
        bounds.append(bound)
        reached.append(real)
        tick(min(start + _SLICE, len(counts)))
    width = evidence_of(d).width
    bound, real = np.concatenate(bounds), np.concatenate(reached)
    expected = np.maximum(bound, real)
    step = (bound, np.maximum(bound, expected / width), expected, expected * width)
    columns |= _spread("step_s", step)
    columns |= {f"tpot_s.{part}": columns[f"step_s.{part}"] for part in PARTS}
    rate = tuple(counts / time for time in (step[0], step[3], step[2], step[1]))
    return columns | _rate_columns(variant, rate, tuple(1 / time for time in (step[0], step[3], step[2], step[1])))


def _spread(name: str, figures: Sequence[Any]) -> Columns:
    """Four columns of a range, in the order of ``PARTS``."""
    return {f"{name}.{part}": figure.tolist() for part, figure in zip(PARTS, figures, strict=True)}


def _rate_columns(variant: Variant, rate: tuple[Any, ...], per_user: tuple[Any, ...]) -> Columns:
    devices, price = variant.deployment.layout.devices, variant.usd_per_hour_of_all
    columns = _spread(RATES[0], rate)
    if devices == 1:
        columns |= {f"{RATES[1]}.{part}": columns[f"{RATES[0]}.{part}"] for part in PARTS}
    else:
        columns |= _spread(RATES[1], [part / devices for part in rate])
    columns |= _spread(RATES[2], per_user)
    if price is None:
        return columns | _nothing(RATES[-1:], len(rate[0]))
    at_one = usd_per_million_tokens(price, 1.0)
    bound, low, expected, high = rate
    return columns | _spread(RATES[-1], [at_one / part for part in (bound, high, expected, low)])


def _nothing(names: Sequence[str], count: int) -> Columns:
    return {f"{name}.{part}": [None] * count for name in names for part in PARTS}


def _memory_columns(d: Deployment, batches: Any, lengths: Any) -> Columns:
    """Whether each point fits, and the memory that it takes of a device.

    A plan depends on the batch by the rows that are sampled alone, and on the length where the engine plans for the workload's longest
    sequence; so few plans serve many points.
    """
    import numpy as np

    some_batches, batch_of = np.unique(batches, return_inverse=True)
    some_lengths, length_of = np.unique(lengths, return_inverse=True)
    by_length = d.context_limit is None or d.layout.pp > 1
    cache = engine_cache(d)
    sizes: list[int] = []
    plans: list[list[_PlanFigures]] = []
    sized = of_length(d, int(some_lengths[-1]))  # refuses what the engine does not accept
    if not by_length:
        plans.append(_plans(sized, some_batches.tolist()))
    for length in some_lengths.tolist():
        if by_length:
            sized = of_length(d, length)
            cache = engine_cache(sized)
            plans.append(_plans(sized, some_batches.tolist()))
        sizes.append(cache.bytes_per_sequence(length))
    figures = np.array(plans, dtype=float)[length_of if by_length else np.zeros_like(length_of), batch_of]
    each = np.array(sizes, dtype=np.int64)[length_of]
    weights, fixed, budget, spare = figures[:, :4].astype(np.int64).T
    kept = -(-batches // d.layout.dp) * each
    held = np.maximum(0, budget) // np.maximum(1, each)
    running = d.layout.dp * (held if d.max_num_seqs is None else np.minimum(held, d.max_num_seqs))
    found = conditions(
        d,
        kv_budget=budget,
        spare=spare,
        per_sequence=each,
        free=budget - kept,
        at_limit=figures[:, 4],
        running=running,
        asked=batches,
    )
    reasons = np.select([holds for _, holds in found], [np.array(reason) for reason, _ in found], default=np.array(""))
    told = [reason or None for reason in reasons.tolist()]
    return {
        "fits": [reason is None for reason in told],
        "reason": told,
        "devices": [d.layout.devices] * len(told),
        "weights_bytes": weights.tolist(),
        "kv_bytes": kept.tolist(),
        "memory_bytes": (fixed + kept).tolist(),
        "kv_budget_bytes": budget.tolist(),
        "free_bytes": (budget - kept).tolist(),
    }


_PlanFigures = tuple[
    int, int, int, int, float
]  # weights, all but the cache, budget of the cache, spare; sequences of the longest length


def _plans(d: Deployment, batches: list[int]) -> list[_PlanFigures]:
    """What plans of ascending batches hold, most of them not made: those between two equal ones are equal, since rows only grow."""

    def figures(batch: int) -> _PlanFigures:
        sized = replace(d, workload=replace(d.workload, concurrency=batch))
        plan = plan_memory(sized)
        at_limit = plan_capacity(sized, plan).concurrency_at_limit
        return plan.weights_bytes, fixed_bytes(plan), plan.kv_budget_bytes, plan.spare_bytes, at_limit

    made = {0: figures(batches[0]), len(batches) - 1: figures(batches[-1])}
    found: list[_PlanFigures] = [made[0]] * len(batches)
    spans = [(0, len(batches) - 1)]
    while spans:
        first, last = spans.pop()
        if made[first] == made[last] or last - first < 2:
            found[first:last] = [made[first]] * (last - first)
            found[last] = made[last]
            continue
        middle = (first + last) // 2
        made[middle] = figures(batches[middle])
        spans += [(first, middle), (middle, last)]
    return found


def fixed_bytes(plan: MemoryPlan) -> int:
    """Bytes of a device that do not depend on the cache: weights, adapters, activations, runtime and graphs."""
    return plan.weights_bytes + plan.adapter_bytes + plan.activation_bytes + plan.non_torch_bytes + plan.graph_bytes


# ------------------------------------------------------------------------------------------------ serving


def served_times(d: Deployment, steps: ExpectedSteps, plan: MemoryPlan, running: int) -> Times | None:
    """Times of one point as a sizing gives them; None where nothing fits or no rate is known."""
    slots = running // d.layout.dp
    if plan.kv_budget_bytes < 0 or slots < 1 or not d.hardware.has_rates:
        return None
    return times_of(d, steps.nominal, steps.reached, slots)


def expected_tpot_s(d: Deployment, steps: ExpectedSteps) -> float | None:
    """Expected time per output token of one point; None as in :func:`served_times`, or for a single token."""
    plan = plan_memory(d)
    times = served_times(d, steps, plan, plan_capacity(d, plan).max_concurrency)
    return times.latency.tpot_s.expected if times and times.latency.tpot_s else None


def serving_columns(
    variant: Variant,
    steps: ExpectedSteps,
    workloads: Sequence[Workload],
    tick: Callable[[int], None] = lambda _done: None,
) -> Columns:
    """Points of one deployment that serves requests, each with its workload."""
    columns: Columns = {name: [] for name in FACTS}
    columns |= {f"{name}.{part}": [] for name in SERVING_RANGES for part in PARTS}
    price, devices = variant.usd_per_hour_of_all, variant.deployment.layout.devices
    for done, workload in enumerate(workloads, 1):
        d = replace(variant.deployment, workload=workload)
        plan = plan_memory(d)
        capacity = plan_capacity(d, plan)
        reason = reason_against(d, plan, capacity)
        kept = plan.sequences * plan.kv_bytes_per_sequence
        facts = (reason is None, reason, devices, plan.weights_bytes, kept, fixed_bytes(plan) + kept)
        for name, fact in zip(FACTS, (*facts, plan.kv_budget_bytes, plan.free_bytes), strict=True):
            columns[name].append(fact)
        times = served_times(d, steps, plan, capacity.max_concurrency)
        for name, figure in _served_ranges(times, devices, price).items():
            for part in PARTS:
                columns[f"{name}.{part}"].append(getattr(figure, part, None))
        tick(done)
    return columns


def _served_ranges(times: Times | None, devices: int, price: float | None) -> dict[str, Range | None]:
    if times is None:
        return dict.fromkeys(SERVING_RANGES)
    latency, rates = times.latency, times.throughput
    return {
        "step_s": latency.itl_s,
        "tpot_s": latency.tpot_s,
        "ttft_s": latency.ttft_s,
        "e2e_s": latency.e2e_s,
        "output_tokens_per_s": rates.output_tokens_per_s,
        "output_tokens_per_s_per_device": rates.output_tokens_per_s.scaled(1 / devices),
        "per_user_tokens_per_s": rates.per_user_tokens_per_s,
        "usd_per_million_output_tokens": None if price is None else cost_range(price, rates.output_tokens_per_s),
    }
