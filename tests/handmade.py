"""Services for rules, made by hand: each value stands on a line of its own, so that a finding's line tells what it is about."""

from __future__ import annotations

from typing import Any

from roofplan.checks.checked import Checked, Unbuilt
from roofplan.checks.finding import Finding
from roofplan.checks.record import Expectation, Flag, Place, Said, Service
from roofplan.checks.rules import all_rules

FILE = "handmade.yaml"
FEATURES, LIMITS, PREFIX, EXPECTED = 100, 200, 300, 400  # first lines


def service(
    model: str = "llama-3.1-8b",
    hardware: str = "h100-sxm",
    *,
    kind: str = "deployment",
    engine: str = "vllm@0.19.0",
    features: dict[str, Any] | None = None,
    limits: dict[str, Any] | None = None,
    expect: tuple[tuple[str, str, str], ...] = (),
    flags: tuple[str, ...] = (),
    usd_per_hour: float | None = None,
    shared_prefix_tokens: int | None = None,
    **options: Any,
) -> Service:
    """A service; ``expect`` holds (kind, value, wanted)."""
    said = {"model": model, "hardware": hardware, **options}
    start = Place(FILE, 1, 1)
    return Service(
        kind=kind,
        name="handmade",
        place=start,
        engine=Said(engine, Place(FILE, 2, 1)),
        options={name: Said(value, Place(FILE, 3 + line, 1)) for line, (name, value) in enumerate(said.items())},
        features=_said(features, FEATURES),
        limits=_said(limits, LIMITS),
        flags=tuple(Flag(name, Said(True, Place(FILE, 50 + line, 1))) for line, name in enumerate(flags)),
        expectations=tuple(
            Expectation(what, Said(value, Place(FILE, EXPECTED + line, 1)), wanted)
            for line, (what, value, wanted) in enumerate(expect)
        ),
        usd_per_hour=None if usd_per_hour is None else Said(usd_per_hour, start),
        shared_prefix_tokens=None
        if shared_prefix_tokens is None
        else Said(shared_prefix_tokens, Place(FILE, PREFIX, 1)),
    )


def _said(values: dict[str, Any] | None, first: int) -> dict[str, Said[Any]]:
    return {
        name: Said(value, Place(FILE, first + line, 1)) for line, (name, value) in enumerate((values or {}).items())
    }


def found(rule: str, described: Service) -> list[Finding]:
    """What one rule says of a service; nothing where it cannot be built."""
    check = next(each.check for each in all_rules() if each.id == rule)
    try:
        return list(check(Checked(described)))
    except Unbuilt:
        return []


def line_of(described: Service, name: str) -> int:
    """The line of an option."""
    return described.options[name].place.line
