"""The first deployment file of a service: what ``roofplan check --init`` writes.

The file says what was found or given, the workload that it was planned for, and as limits what the plan holds today with some room, so that
it checks clean now and fails when a later change takes more than that room.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from ..api.deployments import SCHEMA
from ..api.options import Options
from ..errors import DomainError, RoofplanError, show
from ..planner.spending import usd_per_million_tokens
from ..quantities import BYTES, show_quantity
from .checked import Checked, Unbuilt
from .settings import COMMAND_LINE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..planner.sizing import SizeResult
    from .record import Service

ROOM = 1.25  # by how much a limit may be above what is expected today, or below for a rate
_WORKLOAD = ("prompt", "output", "concurrency")
_LEFT_OUT = {"strict", *_WORKLOAD}
_SWITCHES = {"eager", "offline"}
_PLAIN = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/@")


def initial(service: Service) -> str:
    """The text of a deployment file that describes a service, with limits that its plan holds today.

    Where it does not fit, the only limit is that it fits, and a comment says what is missing.

    Parameters
    ----------
    service : as a reader gives it, completed by the settings; what no key of a deployment file holds becomes a comment

    Raises
    ------
    RoofplanError : where model or hardware is missing or unknown, or the settings do not exist
    """
    for name, hint in (("model", "--model"), ("hardware", "--hardware")):
        if name not in service.options:
            where = str(service.place)
            raise DomainError(name, got="nothing", wanted="a name", hint=f"{hint} says it", where=where)
    checked = Checked(service)
    if isinstance(checked.built, RoofplanError):
        raise checked.built.at(str(service.place))
    try:
        plan = checked.plan
    except Unbuilt as unbuilt:
        raise unbuilt.__cause__ or unbuilt from None
    lines = [*_head(service), "", *_settings(service), "", *_workload(service, plan), "", *_limits(service, plan)]
    return "\n".join(lines) + "\n"


def written(said: Mapping[str, Any], limits: Mapping[str, Any]) -> str:
    """A deployment file of options and limits as they are given; None is as good as left out.

    Raises
    ------
    DomainError : for a value that is neither text nor a number, true or false
    """
    lines = [f"schema: {SCHEMA}", *_pairs(said), "limits:", *(f"  {line}" for line in _pairs(limits))]
    return "\n".join(lines) + "\n"


def _pairs(said: Mapping[str, Any]) -> Iterator[str]:
    for name, value in said.items():
        if value is None:
            continue
        if not isinstance(value, (str, int, float)):
            raise DomainError(name, got=type(value).__name__, wanted="a text or a number")
        yield f"{_scalar(name)}: {_scalar(_with_unit(name, value))}"


def _head(service: Service) -> Iterator[str]:
    origin = "options" if service.place.file == COMMAND_LINE else show(service.place.file)
    yield f"# From {origin}, by roofplan check --init. `roofplan check` fails when a change breaks a limit of this file."
    yield from (f"# Not in this file: {text}." for text in _not_held(service))
    yield f"schema: {SCHEMA}"
    yield f"name: {_scalar(service.name)}"


def _not_held(service: Service) -> Iterator[str]:
    """What was said of a service and has no key."""
    for name, said in sorted(service.features.items()):
        yield f"{show(name)} ({show(said.text or said.value)})"
    replicas = service.pod.replicas
    if replicas is not None and replicas.value > 1:
        yield f"{replicas.value} replicas: it describes one of them"


def _settings(service: Service) -> Iterator[str]:
    said = service.options
    yield f"model: {_scalar(said['model'].value)}"
    yield f"hardware: {_scalar(said['hardware'].value)}"
    yield f"engine: {_scalar(service.engine.value)}"
    for name in Options.__annotations__:
        if name in said and name not in _LEFT_OUT and name != "engine":
            value = said[name].value
            if name in _SWITCHES and not value:
                continue
            yield f"{name}: {_scalar(_with_unit(name, value))}"
    if service.usd_per_hour is not None:
        yield f"usd_per_hour: {_scalar(service.usd_per_hour.value)}"


def _with_unit(name: str, value: Any) -> Any:
    is_bytes = name.endswith(("_memory", "_bytes"))
    return show_quantity(value, BYTES) if is_bytes and isinstance(value, int) else value


def _workload(service: Service, plan: SizeResult) -> Iterator[str]:
    workload = plan.deployment.workload
    assumed = [name for name in _WORKLOAD if name not in service.options]
    if assumed:
        yield f"# What it is planned for. Nothing was said of {', '.join(assumed)}: write what you expect."
    for name in _WORKLOAD:
        yield f"{name}: {getattr(workload, name)}"
    if service.shared_prefix_tokens is not None:
        yield f"shared_prefix_tokens: {service.shared_prefix_tokens.value}"


def _limits(service: Service, plan: SizeResult) -> Iterator[str]:
    if not plan.fits:
        yield f"# It does not fit today: {show(', '.join(plan.reasons))}."
        yield from (f"# To make it fit: {show(remedy)}." for remedy in plan.remedies)
        yield from ("limits:", "  fits: true")
        return
    yield f"# What the plan holds today, times and costs with {100 * (ROOM - 1):.0f} % of room. Write here what you promise."
    yield "limits:"
    for name, value in limits_of(plan, None if service.usd_per_hour is None else service.usd_per_hour.value).items():
        yield f"  {name}: {_scalar(value)}"
    if plan.decode_limit is not None:
        yield from ("expect:", f"  - bottleneck: {plan.decode_limit}")


def limits_of(plan: SizeResult, usd_per_hour: float | None = None) -> Mapping[str, Any]:
    """Limits that a plan holds: what it can hold at least, and its times, rates and costs with :data:`ROOM`.

    Parameters
    ----------
    usd_per_hour : price of one device; without one no cost is limited
    """
    d, most = plan.deployment, plan.capacity.max_context
    found: dict[str, Any] = {
        "fits": True,
        "context": d.longest_sequence if most is None else min(most, d.longest_sequence),
        "concurrency": d.workload.concurrency,
    }
    if plan.times is None:
        return found
    latency, output = plan.times.latency, plan.times.throughput.output_tokens_per_s.expected
    found["ttft"] = _time_above(latency.ttft_s.expected)
    if latency.tpot_s is not None:
        found["tpot"] = _time_above(latency.tpot_s.expected)
    found["output_tokens_per_s"] = _rounded(output / ROOM, up=False)
    if usd_per_hour is not None:
        cost = usd_per_million_tokens(usd_per_hour * d.layout.devices, output)
        found["usd_per_million_output_tokens"] = _rounded(cost * ROOM, up=True)
    return found


def _time_above(seconds: float) -> str:
    scale, unit = (1, "s") if seconds * ROOM >= 1 else (1000, "ms")
    return f"{_rounded(seconds * scale * ROOM, up=True)} {unit}"


def _rounded(value: float, *, up: bool) -> int | float:
    """Two digits, away from the value in the direction that is asked."""
    if value == 0:
        return 0
    digits = 1 - math.floor(math.log10(value))
    steps = (math.ceil if up else math.floor)(value * 10.0**digits)
    rounded = round(steps * 10.0**-digits, max(0, digits))
    return int(rounded) if rounded == int(rounded) else rounded


def _scalar(value: Any) -> str:
    """A value as YAML: text without quotes only where nothing but text can be read from it."""
    if not isinstance(value, str):
        return json.dumps(value)
    is_word = value.lower() not in {"true", "false", "null"}
    if set(value) <= _PLAIN and value[:1].isalpha() and is_word:
        return value
    return "".join(c if c.isprintable() else _escaped(ord(c)) for c in json.dumps(value, ensure_ascii=False))


def _escaped(code: int) -> str:
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


__all__ = ["ROOM", "initial", "limits_of", "written"]
