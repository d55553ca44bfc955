"""The library's calls: names, paths and options in, results out.

Everything above the planner (verbs, checks, measurements) builds its deployments here, so that a name, an option or a default
means the same everywhere.
"""

from __future__ import annotations

from dataclasses import replace
from os import PathLike, fspath
from typing import TYPE_CHECKING, TypeVar

from ..errors import DomainError, RoofplanError, UnknownNameError
from ..hardware.spec import HardwareSpec
from ..models.spec import ModelSpec
from ..planner.sizing import SizeResult, size_deployment
from ..quantities import parse_arrivals
from .building import deployment
from .caches import error_budget, kv
from .options import Options, given

if TYPE_CHECKING:
    from typing import Unpack

    from ..planner.deployment import Deployment
    from ..planner.solve import Question

Spec = TypeVar("Spec", ModelSpec, HardwareSpec)


def size(
    model: str | PathLike[str] | ModelSpec | None = None,
    device: str | PathLike[str] | HardwareSpec | None = None,
    *,
    solve: str | None = None,
    from_log: str | PathLike[str] | None = None,
    sensitivity: bool = False,
    rate: float | str | None = None,
    **options: Unpack[Options],
) -> SizeResult:
    """Size a model on devices: memory, capacity, latency, throughput, and what binds.

    Parameters
    ----------
    solve : also find a limit: max-context, max-concurrency, min-devices or min-utilization
    from_log : a start-up log of an engine; its settings stand for those that are left out, and its parts are compared with the prediction

    sensitivity : also find which input moves the answer most
    rate : requests per second that arrive at random, in place of ``concurrency``

    >>> size("llama-3.1-8b", "h100-sxm", prompt=4096, output=512, concurrency=64).fits
    True
    """
    question = _question(solve)
    if from_log is None:
        built = _at_rate(deployment(_named(model, "MODEL"), _named(device, "HARDWARE"), **options), rate, options)
        return _with_sensitivities(size_deployment(built, question), wanted=sensitivity)
    from ..engines.startup_log import read_startup_log
    from ..planner.logged import compare_log
    from .logs import contradictions, name_of_log, settings_of

    log = read_startup_log(fspath(from_log))
    model = name_of_log(log.model) if model is None else model
    device = name_of_log(log.device) if device is None else device
    said: Options = {**settings_of(log), **given(options)}
    built = deployment(_named(model, "MODEL"), _named(device, "HARDWARE"), **said)
    remarks = tuple(contradictions(log, built))
    built = _at_rate(built, rate, options)
    sized = replace(size_deployment(built, question), logged=compare_log(built, log), remarks=remarks)
    return _with_sensitivities(sized, wanted=sensitivity)


def _at_rate(built: Deployment, rate: float | str | None, options: Options) -> Deployment:
    if rate is None:
        return built
    from ..planner.times import at_rate

    if options.get("concurrency") is not None:
        raise DomainError("--rate", got=f"{rate} beside --concurrency", wanted="one of them: the other follows from it")
    if not built.hardware.has_rates:
        raise DomainError(
            "--rate", got=str(rate), wanted=f"a device whose rates are known, unlike {built.hardware.name}"
        )
    return at_rate(built, parse_arrivals(rate, "--rate"))


def _with_sensitivities(sized: SizeResult, *, wanted: bool) -> SizeResult:
    if not wanted:
        return sized
    from ..planner.sensitivity import sensitivities

    return replace(sized, sensitivities=sensitivities(sized.deployment))


def _named(asked: Spec | str | PathLike[str] | None, what: str) -> Spec | str | PathLike[str]:
    if asked is None:
        raise DomainError(
            what, got="nothing", wanted="a name or a path", hint="a start-up log may name it (--from-log)"
        )
    return asked


def _question(asked: str | None) -> Question | None:
    if asked is None:
        return None
    from ..planner.solve import QUESTIONS

    known = next((question for question in QUESTIONS if question == asked), None)
    if known is None:
        raise UnknownNameError("solve", got=asked, wanted=f"one of {', '.join(QUESTIONS)}")
    return known


__all__ = ["Options", "RoofplanError", "SizeResult", "deployment", "error_budget", "kv", "size"]
