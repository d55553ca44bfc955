"""Fits the constants of serving engines on published closed-loop rows: ``python -m roofplan.accuracy.fit.serving``.

Least squares of log(predicted / measured) over a scale, with a soft-L1 loss, every constant drawn towards what physics expects of it, and
every group of rows of one engine, device, model and precision with the weight of at most a dozen rows: else the two models with the most
rows would decide. Times per token come from the closed form, times to first token from the simulation.

What is fitted is physical and shared: nothing belongs to a row, a model or a benchmark.
"""

from __future__ import annotations

import argparse
import functools
import math
import sys
from collections import Counter
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from ... import specfiles
from ...engines.profile import parse_version
from ...engines.profiles import engine_of
from ...errors import UnknownNameError
from ..served import Case, case_of, predict
from ..serving import read_rows, read_speed_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from ..serving import ServingRow

# Profiles from whose version on constants of their own hold (None: all of them).
GENERATIONS: dict[str, tuple[str, ...] | None] = {
    "vllm@0.9": None,
    "vllm@0.12": ("prompt_floor",),
    "sglang@0.3": None,
    "tensorrt-llm-triton@0.8": None,
    "tensorrt-llm@0.19": None,
}
_LEFT_OUT = Path(str(files("roofplan.accuracy") / "data")) / "left_out.yaml"
_TPOT_SCALE, _TTFT_SCALE = 0.10, 0.20
_GROUP_ROWS = 12
_STEP = 0.25  # of a prior's deviation, for differences
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Prior:
    """What a constant is expected to be before any row is seen."""

    expected: float
    deviation: float


PER_ENGINE = {
    "host_per_step": Prior(0.2e-3, 0.05e-3),
    "host_per_sequence": Prior(15e-6, 6e-6),
    "small_kernels": Prior(1.5, 0.35),
    "prompt_floor": Prior(0.5e-3, 0.15e-3),
    "expert_prompt_floor": Prior(1.0e-3, 0.5e-3),
    "request_overhead": Prior(20e-3, 8e-3),
    "expert_request_overhead": Prior(0.0, 40e-3),
}
SHARED = {
    "fused_quantisation": Prior(0.2, 0.08),
    "layer_passes": Prior(10, 4),
    "expert_passes": Prior(4, 2),
    "routing": Prior(6e-6, 2e-6),
    "latent": Prior(3e-6, 1.5e-6),
    "gated_delta": Prior(22e-6, 5e-6),
    "sparse_index": Prior(52e-6, 10e-6),
}
# TensorRT-LLM has products of its own: tables of vLLM stand for them. Its first backend, in C++, behind Triton: its host is quicker with
# prompts than one in Python, but its kernels fuse less between products, and Triton passes the tokens of every sequence on.
OWN = {
    "tensorrt-llm@0.19.narrow_compute": Prior(1.0, 0.1),
    "tensorrt-llm-triton@0.8.layer_passes": Prior(15, 3),
}
_TRITON = {
    "tensorrt-llm-triton@0.8.prompt_floor": Prior(0.3e-3, 0.1e-3),
    "tensorrt-llm-triton@0.8.request_overhead": Prior(5e-3, 2e-3),
    "tensorrt-llm-triton@0.8.host_per_sequence": Prior(50e-6, 20e-6),
}
_FLOORS = ("routing", "latent", "gated_delta", "sparse_index")
PRIORS = {
    f"{generation}.{name}": prior
    for generation, names in GENERATIONS.items()
    for name, prior in PER_ENGINE.items()
    if names is None or name in names
}
PRIORS |= _TRITON | OWN | SHARED

Constants = dict[str, float]


def expected() -> Constants:
    """The constants before any row is seen."""
    return {name: prior.expected for name, prior in PRIORS.items()}


def published() -> Constants:
    """The constants as the catalogues have them."""
    from ...engines import load
    from ...hardware import KERNELS, kernels_from_document

    floors = kernels_from_document(KERNELS.read("generic")).floors
    found: Constants = {name: getattr(floors, name) for name in _FLOORS}
    for name in PRIORS:
        generation, _, own = name.rpartition(".")
        if name not in found:
            profile = load(generation or "vllm@0.9")
            part = profile.scheduling if own.endswith("request_overhead") else profile.timing
            found[name] = getattr(part, own)
    return found


def with_constants(case: Case, constants: Constants) -> Case:
    """The same row under other constants."""
    d = case.deployment
    own: dict[str, Any] = {name: constants[_key(d.engine.name, name)] for name in PER_ENGINE}
    overhead, of_experts = own.pop("request_overhead"), own.pop("expert_request_overhead")
    shared: dict[str, Any] = {name: constants[name] for name in SHARED if name not in _FLOORS}
    parts = {name: name.rpartition(".") for name in OWN}
    shared |= {own_name: constants[name] for name, (engine, _, own_name) in parts.items() if engine == d.engine.name}
    timing = replace(d.engine.timing, **own, **shared)
    assert d.kernels is not None
    floors = replace(d.kernels.floors, **{name: constants[name] for name in _FLOORS})
    engine, kernels = replace(d.engine, timing=timing), replace(d.kernels, floors=floors)
    return replace(
        case,
        deployment=replace(d, engine=engine, kernels=kernels),
        scheduling=replace(case.scheduling, request_overhead=overhead + of_experts * d.has_experts),
    )


def checked(case: Case) -> Case:
    """A row of an engine that constants are fitted for.

    Raises
    ------
    UnknownNameError : for another engine
    """
    _key(case.deployment.engine.name, next(iter(PER_ENGINE)))
    return case


@functools.cache
def _key(profile: str, name: str) -> str:
    """The constant that holds for a profile: that of the newest generation, not later, that has one of its own.

    Raises
    ------
    UnknownNameError : for a profile of no generation
    """
    engine, version = engine_of(profile)
    asked = parse_version(version) or ()
    older = [
        (first, f"{generation}.{name}")
        for generation, names in GENERATIONS.items()
        if engine_of(generation)[0] == engine
        and (names is None or name in names)
        and (first := parse_version(engine_of(generation)[1]) or ()) <= asked
    ]
    if not older:
        raise UnknownNameError(
            "engine", got=profile, wanted=f"one that constants are fitted for: {', '.join(GENERATIONS)}"
        )
    return max(older)[1]


def _concerns(name: str, profile: str) -> bool:
    """Whether a constant of one generation is that of a profile."""
    generation, _, own = name.rpartition(".")
    return generation == profile if name in OWN else _key(profile, own) == name


@dataclass(frozen=True, slots=True)
class Observation:
    """One figure that a row measured, and its weight."""

    case: Case
    metric: str
    measured_s: float
    scale: float
    weight: float

    @property
    def row(self) -> ServingRow:
        """The row that it is of."""
        return self.case.row


def observations(rows: Sequence[ServingRow]) -> list[Observation]:
    """What there is to see: times per token, and times to first token, of all rows that are scored on them."""
    return observed([case_of(row) for row in rows])


def observed(cases: Sequence[Case]) -> list[Observation]:
    """The same of cases that are put together already."""
    seen = [(case, "tpot", case.row.tpot_s, _TPOT_SCALE) for case in cases if not case.row.excluded_tpot]
    seen += [(case, "ttft", case.row.ttft_s, _TTFT_SCALE) for case in cases if not case.row.excluded_ttft]
    sizes = Counter((metric, *_group(case.row)) for case, metric, _, _ in seen)
    return [
        Observation(case, metric, measured, scale, min(1.0, _GROUP_ROWS / sizes[(metric, *_group(case.row))]))
        for case, metric, measured, scale in seen
    ]


def thinned(seen: Sequence[Observation]) -> list[Observation]:
    """What the fit sees: as many times to first token of a group as its weight counts, since each takes a simulation."""
    taken: Counter[tuple[str, ...]] = Counter()
    kept = []
    for observation in sorted(seen, key=lambda o: o.row.id):  # ids are hashes: an order that knows nothing of the rows
        group = _group(observation.row)
        if observation.metric == "tpot" or taken[group] < _GROUP_ROWS:
            taken[group] += observation.metric == "ttft"
            kept.append(observation if observation.metric == "tpot" else replace(observation, weight=1.0))
    return kept


def _group(row: ServingRow) -> tuple[str, ...]:
    return (row.engine, row.gpu, row.model, row.precision)


def log_errors(seen: Sequence[Observation], constants: Constants, simulate: bool = True) -> list[float]:
    """log(predicted / measured) of every observation; times to first token by simulation, or all by the closed form."""
    return [_log_error(observation, constants, simulate) for observation in seen]


def _log_error(observation: Observation, constants: Constants, simulate: bool) -> float:
    case = with_constants(observation.case, constants)
    found = predict(case, simulate=simulate and observation.metric == "ttft")
    return math.log((found.tpot_s if observation.metric == "tpot" else found.ttft_s) / observation.measured_s)


def fit(
    seen: Sequence[Observation], start: Constants, say: Callable[[str], None], rounds: int = _ROUNDS
) -> tuple[Constants, np.ndarray, np.ndarray]:
    """Gauss-Newton from a start; gives the constants, and errors and their slopes there (per deviation of each prior)."""
    constants = start
    for number in range(rounds):
        errors, slopes = linearised(seen, constants)
        constants = _moved(constants, _solved(seen, errors, slopes, constants))
        say(f"round {number + 1}: mean square of residuals {_mean_square(seen, errors):.3f}")
    errors, slopes = linearised(seen, constants)
    return constants, errors, slopes


def linearised(
    seen: Sequence[Observation], constants: Constants, simulate: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Errors, and their slopes per deviation of each prior, by differences."""
    import multiprocessing

    import numpy as np

    names = list(PRIORS)
    profiles = [o.case.deployment.engine.name for o in seen]
    touched = [
        [i for i, profile in enumerate(profiles) if name in SHARED or _concerns(name, profile)] for name in names
    ]
    jobs = [(list(seen), constants, simulate)]
    for name, indices in zip(names, touched, strict=True):
        moved = constants | {name: constants[name] + _STEP * PRIORS[name].deviation}
        jobs.append(([seen[i] for i in indices], moved, simulate))
    with multiprocessing.get_context("fork").Pool() as pool:
        results = pool.starmap(log_errors, jobs, chunksize=1)
    errors = np.array(results[0])
    slopes = np.zeros((len(seen), len(names)))
    for column, (indices, new) in enumerate(zip(touched, results[1:], strict=True)):
        slopes[indices, column] = (np.array(new) - errors[indices]) / _STEP
    return errors, slopes


def _solved(
    seen: Sequence[Observation],
    errors: np.ndarray,
    slopes: np.ndarray,
    constants: Constants,
    keep: np.ndarray | None = None,
) -> np.ndarray:
    """The step, in deviations, that minimises the loss of the linearised errors; reweighted for the soft-L1 loss."""
    import numpy as np

    scales = np.array([o.scale for o in seen])
    weights = np.array([o.weight for o in seen]) * (1.0 if keep is None else keep)
    lean = np.array([(constants[name] - prior.expected) / prior.deviation for name, prior in PRIORS.items()])
    step = np.zeros(len(PRIORS))
    for _ in range(12):
        residuals = (errors + slopes @ step) / scales
        robust = weights / np.sqrt(1 + residuals**2)
        design = slopes / scales[:, None]
        left = design.T @ (design * robust[:, None]) + np.eye(len(PRIORS))
        right = -design.T @ (robust * (errors / scales)) - lean
        step = np.linalg.solve(left, right)
    return step


def _moved(constants: Constants, step: np.ndarray) -> Constants:
    """Constants a step further; none becomes negative."""
    return {
        name: max(0.0, constants[name] + float(by) * prior.deviation)
        for (name, prior), by in zip(PRIORS.items(), step, strict=True)
    }


def _mean_square(seen: Sequence[Observation], errors: np.ndarray) -> float:
    return math.fsum(o.weight * (float(e) / o.scale) ** 2 for o, e in zip(seen, errors, strict=True)) / sum(
        o.weight for o in seen
    )


def without(
    seen: Sequence[Observation],
    fitted: tuple[Constants, np.ndarray, np.ndarray],
    label: Callable[[ServingRow], str],
) -> dict[str, Constants]:
    """Constants fitted without the observations of each label in turn, from the slopes at the full fit.

    They move by what the step without those observations differs from the step with all of them, which is nothing at the fit itself.
    """
    import numpy as np

    constants, errors, slopes = fitted
    labels = [label(o.row) for o in seen]
    whole = _solved(seen, errors, slopes, constants)
    found = {}
    for held in sorted(set(labels)):
        keep = np.array([0.0 if own == held else 1.0 for own in labels])
        found[held] = _moved(constants, _solved(seen, errors, slopes, constants, keep) - whole)
    return found


def left_out(
    judged: Sequence[Observation],
    others: Mapping[str, Constants],
    otherwise: Constants,
    label: Callable[[ServingRow], str],
    simulate: bool = True,
) -> list[float]:
    """Errors of the judged observations with constants fitted without those of their own label (``otherwise`` where there were none)."""
    return [_log_error(o, others.get(label(o.row), otherwise), simulate) for o in judged]


def write_left_out(path: Path, found: Mapping[str, Mapping[str, Constants]]) -> None:
    """Write constants by what is left out."""
    lines = [
        "# Made by python -m roofplan.accuracy.fit.serving --left-out: constants fitted without the rows of each label."
    ]
    for kind, by_label in found.items():
        lines.append(f"{kind}:")
        for held, own in by_label.items():
            lines += [f"  {held}:", *(f"    {name}: {value:.4g}" for name, value in own.items())]
    specfiles.write_text(path, "\n".join(lines) + "\n", overwrite=True)


@functools.cache
def read_left_out() -> dict[str, dict[str, Constants]]:
    """The same as committed: by what is left out (a model, a device, an engine), and its label."""
    return TypeAdapter(dict[str, dict[str, Constants]]).validate_python(specfiles.read_document(_LEFT_OUT).data)


def summary(seen: Sequence[Observation], errors: Sequence[float], metric: str) -> str:
    """Median and mean of the absolute errors of one metric, in percent."""
    import statistics

    own = [abs(math.exp(e) - 1) for o, e in zip(seen, errors, strict=True) if o.metric == metric]
    return f"{metric}: {len(own)} rows, median {100 * statistics.median(own):.1f} %, mean {100 * statistics.fmean(own):.1f} %"


LABELS: dict[str, Callable[[ServingRow], str]] = {
    "model": lambda row: row.model.rpartition("/")[2].replace("DeepSeek-R1", "DeepSeek-V3"),
    "device": lambda row: row.gpu,
    "engine": lambda row: row.engine,
}


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit, and print constants and errors; or write the constants without each model, device and engine."""
    parser = argparse.ArgumentParser(prog="python -m roofplan.accuracy.fit.serving", description=__doc__)
    parser.add_argument(
        "--left-out", type=Path, metavar="YAML", help="write the constants of leave-one-out, from the published ones on"
    )
    wanted = parser.parse_args(arguments).left_out
    judged = observations([*read_rows(), *(row for row in read_speed_rows() if row.concurrency is None)])
    seen = thinned(judged)
    fitted = (published(), *linearised(seen, published())) if wanted else fit(seen, expected(), say=_say)
    constants = fitted[0]
    others = {name: without(seen, fitted, label) for name, label in LABELS.items()}
    if wanted:
        write_left_out(wanted, others)
        return
    for name, value in constants.items():
        _say(f"{name:36s} {value:.4g}   (expected {PRIORS[name].expected:.4g})")
    for title, errors in (
        ("in sample", log_errors(judged, constants)),
        ("before any row", log_errors(judged, expected())),
        *(
            (f"leave one {name} out", left_out(judged, others[name], constants, label))
            for name, label in LABELS.items()
        ),
    ):
        for metric in ("tpot", "ttft"):
            _say(f"{title}, {summary(judged, errors, metric)}")


if __name__ == "__main__":
    main()
