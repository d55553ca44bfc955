"""Which single change would hold a limit: settings, formats, divisions of the devices and loads are tried, each sized anew.

Nothing is derived here: a change holds where :func:`~roofplan.planner.sizing.size_deployment` of the changed deployment says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..quantities import show_count
from .serving import laid_out, sized
from .spelling import setting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..planner.deployment import Deployment
    from ..planner.parallel import Layout
    from ..planner.sizing import SizeResult
    from .record import Service

_MOST_DEVICES = 16
_MOST_REQUESTS = 4096
_MOST_CHANGES = 3  # that a message names
_TOKENS = (512, 1024, 2048, 4096, 8192, 16384)


@dataclass(frozen=True, slots=True)
class Change:
    """One change: how it is written, the deployment that it makes, and whether it is a setting of the file (and not of its load)."""

    text: str
    deployment: Deployment
    is_setting: bool = True


Sized = tuple[Change, "SizeResult"]


def changes_that_hold(
    service: Service, d: Deployment, holds: Callable[[SizeResult], bool], *, more_requests: bool
) -> tuple[list[Sized], list[Sized]]:
    """Up to three changes with which a limit is held, those that take no other devices first, and those that were tried in vain.

    Parameters
    ----------
    holds : whether a sizing holds the limit
    more_requests : whether more requests at a time bring it nearer (rates, cost), or fewer (times)
    """
    found: list[Sized] = []
    tried: list[Sized] = []
    for kind in (_steps, _formats, _divisions, _loads(holds, more=more_requests), _devices):
        for change in kind(service, d):
            answer = sized(change.deployment)
            if answer is not None and holds(answer):
                found.append((change, answer))
                break  # the mildest of its kind
            if answer is not None:
                tried.append((change, answer))
        if len(found) == _MOST_CHANGES:
            break
    return found, tried


def _steps(service: Service, d: Deployment) -> Iterator[Change]:
    """Other limits of the tokens of a step, the nearest first."""
    if d.streams is not None or d.engine.engine == "plain":
        return
    now = d.max_batched_tokens
    for tokens in sorted(_TOKENS, key=lambda tokens: abs(tokens - now)):
        if tokens != now and tokens >= (d.settings.max_num_seqs or 0):
            changed = replace(d, settings=replace(d.settings, max_batched_tokens=tokens))
            yield Change(setting(service, "max_num_batched_tokens", tokens), changed)


def _formats(service: Service, d: Deployment) -> Iterator[Change]:
    """Narrower caches and weights that the device computes, the mildest first."""
    from ..api.narrowing import narrower_kv, narrower_weights

    for kv in narrower_kv(d):
        yield Change(setting(service, "kv", kv.name), replace(d, formats=replace(d.formats, kv=kv)))
    for formats in narrower_weights(d, {"engine": d.engine}):
        memory = replace(d.memory, weights_bytes=None)
        changed = replace(d, formats=replace(formats, kv=d.formats.kv), memory=memory)
        yield Change(f"weights in {formats.name}", changed)


def _divisions(service: Service, d: Deployment) -> Iterator[Change]:
    """The same devices, divided otherwise."""
    now = d.layout
    for layout in (
        replace(now, tp=now.tp * now.pp, pp=1),
        replace(now, pp=1, dp=now.dp * now.pp),
        replace(now, tp=1, dp=now.dp * now.tp),
    ):
        changed = None if layout == now else laid_out(d, layout)
        if changed is not None:
            yield Change(layout_text(service, now, layout), changed)


def _loads(holds: Callable[[SizeResult], bool], *, more: bool) -> Callable[[Service, Deployment], Iterator[Change]]:
    """The nearest number of requests at a time with which the limit is held, by halving: beyond it, it is held or never was."""

    def possible(d: Deployment, requests: int) -> bool:
        answer = sized(_serving(d, requests))
        return answer is not None and holds(answer)

    def nearest(_: Service, d: Deployment) -> Iterator[Change]:
        now = d.workload.concurrency
        far = 1
        if more:
            far = now * 2
            while far < _MOST_REQUESTS and not possible(d, far) and sized(_serving(d, far)) is not None:
                far *= 2
        if far == now or not possible(d, far):
            if now > 1 and not more:
                yield Change("1 request at a time", _serving(d, 1), is_setting=False)
            return
        near = now
        while abs(far - near) > 1:
            middle = (near + far) // 2
            near, far = (near, middle) if possible(d, middle) else (middle, far)
        word = "at least" if more else "at most"
        yield Change(f"{word} {show_count(far)} requests at a time", _serving(d, far), is_setting=False)

    return nearest


def _serving(d: Deployment, requests: int) -> Deployment:
    return replace(d, workload=replace(d.workload, concurrency=requests))


def _devices(service: Service, d: Deployment) -> Iterator[Change]:
    """More devices: ranks within a machine, else replicas; or fewer, which cost less."""
    now = d.layout
    for factor in (2, 4, 8):
        for layout in (replace(now, tp=now.tp * factor), replace(now, dp=now.dp * factor)):
            changed = laid_out(d, layout) if layout.devices <= _MOST_DEVICES else None
            if changed is not None:
                yield Change(layout_text(service, now, layout), changed)
    for name in ("dp", "tp"):
        if getattr(now, name) % 2 == 0:
            layout = replace(now, **{name: getattr(now, name) // 2})
            changed = laid_out(d, layout)
            if changed is not None:
                yield Change(layout_text(service, now, layout), changed)


def layout_text(service: Service, now: Layout, layout: Layout) -> str:
    """The settings in which one layout differs from another."""
    changed = [name for name in ("tp", "pp", "dp") if getattr(now, name) != getattr(layout, name)]
    joined = ", " if service.kind in {"deployment", "ray"} else " "
    return joined.join(setting(service, name, getattr(layout, name)) for name in changed)
