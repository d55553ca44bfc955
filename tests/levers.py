"""Levers of small deployments, by their ids."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shapes import deploy, formats, number_format

from roofplan.planner.levers import LEVERS
from roofplan.planner.levers.situation import Choices, Lever, Neighbour, Situation

if TYPE_CHECKING:
    from roofplan.hardware.spec import HardwareSpec
    from roofplan.models.spec import ModelSpec
    from roofplan.planner.deployment import Deployment


def choices(
    *weights: str, kv: tuple[str, ...] = (), devices: tuple[HardwareSpec, ...] = (), **assumed: float
) -> Choices:
    """Formats by name, and devices at nominal rates."""
    return Choices(
        weights=tuple(formats(name) for name in weights),
        kv=tuple(number_format(name) for name in kv),
        devices=tuple(Neighbour(device, None) for device in devices),
        **assumed,
    )


def levers_of(d: Deployment, asked: Choices | None = None) -> dict[str, Lever]:
    """All levers of a deployment."""
    situation = Situation.of(d, asked or Choices())
    return {lever.id: lever for pull in LEVERS for lever in pull(situation)}


def levers(model: ModelSpec, device: HardwareSpec, asked: Choices | None = None, **options: Any) -> dict[str, Lever]:
    """All levers of a deployment at nominal rates, with nothing in memory but weights and cache."""
    return levers_of(deploy(model, device, **options), asked)


def without_overhead(d: Deployment) -> Deployment:
    """The same without what the engine adds to a request outside of its steps."""
    scheduling = replace(d.engine.scheduling, request_overhead=0.0, tokenise_per_token=0.0)
    return replace(d, engine=replace(d.engine, scheduling=scheduling))
