"""Sweeps by names and options: axes as text in, the points and marks out."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, cast

from .. import hardware, models
from ..errors import DomainError
from ..hardware.spec import HardwareSpec
from ..models.spec import ModelSpec
from ..planner.sweep_points import Variant
from ..planner.sweeping import WORKLOAD_AXES, Axis, SweepResult, Traffic
from ..planner.sweeping import sweep as sweep_variants
from ..quantities import NUMBER, TIME, parse
from .axes import LEAST_CONTEXT, read_axes
from .building import check_context, deployment, loaded
from .options import Options, given, optional_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from os import PathLike
    from typing import Unpack

    from .options import Whole


def sweep(
    model: str | PathLike[str] | ModelSpec,
    device: str | PathLike[str] | HardwareSpec | None = None,
    *,
    over: str | Iterable[str] | Mapping[str, str | int | Iterable[int | str]],
    context: Whole | None = None,
    tpot: float | str | None = None,
    usd_per_hour: float | str | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Unpack[Options],
) -> SweepResult:
    """Vary one or two things, and give memory, times, rates and cost of every point, and what stands out on each curve.

    Parameters
    ----------
    device : may be left out where the devices are an axis
    over : axes as text (``"batch=1..256:x2"``) or as a mapping (``{"batch": [1, 2, 4]}``): batch, context, prompt, output, devices, tp, pp,
        dp, weights, kv, hardware
    context : tokens at which all sequences decode; then nobody sends prompts
    tpot : most time per output token, in seconds or as text (``"25 ms"``), for the marks
    usd_per_hour : price of one device; default: that of the catalogue
    progress : told how many of how many points are done
    options : see :class:`~roofplan.api.Options`

    Raises
    ------
    RoofplanError : for axes that are empty, unknown or contradict the options, and whatever :func:`~roofplan.api.deployment` refuses

    >>> found = sweep("llama-3.1-8b", "h100-sxm", over="batch=1,64", context=4096)
    >>> [row["fits"] for row in found.rows()]
    [True, True]
    """
    axes = read_axes(over)
    names = {axis.name for axis in axes}
    settings = given(options)
    decodes = context is not None or "context" in names
    _check_contradictions(names, settings, context, decodes=decodes)
    if ("hardware" in names) == (device is not None):
        got = "a device and an axis of devices" if device is not None else "nothing"
        raise DomainError("HARDWARE", got=got, wanted="a device, or the axis hardware")
    length = optional_tokens(context, "--context")
    if length is not None and length < LEAST_CONTEXT:
        raise DomainError(
            "--context", got=length, wanted=f"at least {LEAST_CONTEXT} tokens: one before, and the new one"
        )
    axes = tuple(_resolved(axis) for axis in axes)
    if decodes:
        shortest = length or min(cast("tuple[int, ...]", next(a.values for a in axes if a.name == "context")))
        settings |= {"prompt": shortest - 1, "output": 1}
    for axis in axes:
        if axis.name in {"prompt", "output"}:
            settings[axis.name] = min(axis.values)  # type: ignore[literal-required]  # one of two names, as asked above
    variants = _variants(
        model, device, [axis for axis in axes if axis.name not in WORKLOAD_AXES], settings, usd_per_hour
    )
    base = variants[0].deployment
    traffic = Traffic(base.workload.concurrency, base.workload.prompt, base.workload.output, length)
    result = sweep_variants(axes, variants, traffic, limit_s=_limit(tpot), progress=progress)
    if settings.get("strict"):
        check_context(base.model, result.longest)
    return result


def _check_contradictions(names: set[str], settings: Options, context: object, *, decodes: bool) -> None:
    """Refuse what is said in two ways, or makes no sense together."""
    for name in sorted(names):
        option = {"batch": "concurrency"}.get(name, name)
        if option in settings:
            raise DomainError(f"--over {name}", got=f"--{option} too", wanted="one of them")
    if context is not None and "context" in names:
        raise DomainError("--over context", got="--context too", wanted="one of them")
    lengths = sorted({"prompt", "output"} & (names | settings.keys()))
    if decodes and lengths:
        got, wanted = (
            f"a context and the {' and '.join(lengths)}",
            "a context, or a prompt and an output: one follows from the other",
        )
        raise DomainError("--context", got=got, wanted=wanted)


def _resolved(axis: Axis) -> Axis:
    """Names of devices as the catalogue has them, so that two names of one device are found out."""
    if axis.name != "hardware":
        return axis
    names = tuple(hardware.load(str(value)).name for value in axis.values)
    if len(set(names)) < len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise DomainError("--over hardware", got=f"{twice} twice", wanted="each device once")
    return Axis(axis.name, names)


def _variants(
    model: str | PathLike[str] | ModelSpec,
    device: str | PathLike[str] | HardwareSpec | None,
    axes: Sequence[Axis],
    settings: Options,
    usd_per_hour: float | str | None,
) -> list[Variant]:
    """A deployment for each combination of the axes that make another one."""
    spec = loaded(model, ModelSpec, models.load, "MODEL")
    price = None if usd_per_hour is None else float(parse(usd_per_hour, NUMBER, "--usd-per-hour"))
    fixed = None if device is None else loaded(device, HardwareSpec, hardware.load, "HARDWARE")
    made = []
    for values in itertools.product(*(axis.values for axis in axes)):
        named: dict[str, Any] = dict(zip((axis.name for axis in axes), values, strict=True))
        chosen = fixed if fixed is not None else hardware.load(str(named["hardware"]))
        changed = {name: value for name, value in named.items() if name != "hardware"}
        d = deployment(spec, chosen, **{**settings, **changed})
        own = price if price is not None else chosen.price.usd_per_hour if chosen.price else None
        made.append(Variant(tuple(named.items()), d, own))
    return made


def _limit(tpot: float | str | None) -> float | None:
    """A time per token in seconds, above zero."""
    if tpot is None:
        return None
    text = f"{tpot!r} s" if isinstance(tpot, (int, float)) and not isinstance(tpot, bool) else tpot
    limit = float(parse(text, TIME, "--tpot"))
    if not limit:
        raise DomainError("--tpot", got=text, wanted="a time above zero, such as 25 ms")
    return limit


__all__ = ["SweepResult", "sweep"]
