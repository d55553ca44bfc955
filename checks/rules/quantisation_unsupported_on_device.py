"""A format that the engine has no kernels for on this device, or that saves memory there and no time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...planner.formats import main_class
from ..capabilities import capability, requirements
from ..finding import Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..capabilities import Requirement
    from ..checked import Checked
    from ..finding import Finding
    from ..record import Place

_NARROW = ("fp8", "int8", "fp4", "int4")
_TYPES = {"bf16": "bfloat16", "bfloat16": "bfloat16"}


def check(checked: Checked) -> Iterator[Finding]:
    """Compare what was asked for with the device's compute capability, and the weights with its arithmetic."""
    refused = _refused(checked)
    if refused is not None:
        yield refused
        return
    d = checked.deployment
    weights = d.formats.weights[main_class(d.model)]
    best = weights.arithmetic[0] if weights.arithmetic else ""
    if best in _NARROW and d.hardware.has_rates and d.hardware.peak.rate(best) is None:
        message = (
            f"{d.hardware.name} has no {best} units: {weights.name} weights save memory there and are multiplied in "
            f"{d.formats.arithmetic(main_class(d.model), d.hardware)}"
        )
        place = checked.service.place_of("quantization", "weights", "model")
        yield RULE.finding(checked, place, message, severity="note", bits=weights.bits_per_element)


def _refused(checked: Checked) -> Finding | None:
    """What the engine refuses on this device: a type, a method or a format."""
    device, have = checked.hardware, capability(checked.hardware)
    if have is None:
        return None
    engine = checked.engine.engine
    for place, name, needed in _asked(checked):
        if needed.engine == engine and have < needed.capability:
            message = (
                f"{engine} has no kernels for {name} on {device.name}: compute capability {have[0]}.{have[1]}, "
                f"want at least {needed.least}"
            )
            fix = "--dtype half" if name == "bfloat16" else ""
            return RULE.finding(checked, place, message, fix=fix, capability=have[0] + have[1] / 10)
    return None


def _asked(checked: Checked) -> Iterator[tuple[Place, str, Requirement]]:
    """Everything that was asked for and has a requirement: its place, its name and what it needs."""
    service, known = checked.service, requirements()
    kind = service.features.get("dtype")
    if kind is not None and str(kind.value) in _TYPES:
        yield from _matching(kind.place, _TYPES[str(kind.value)], known.types)
    method = service.features.get("quantization")
    if method is not None:
        yield from _matching(method.place, str(method.value).lower(), known.methods)
    model = service.options.get("model")
    if method is None and model is not None:
        for naming in known.names:
            if re.search(naming.pattern, str(model.value).lower()):
                yield from _matching(model.place, naming.method, known.methods)
    weights = service.options.get("weights")
    if weights is not None:
        name, place = str(weights.value).lower(), weights.place
    else:
        name, place = checked.model.weights, service.place_of("model")
    for needed in known.formats:
        if any(name.startswith(start) for start in needed.methods):
            yield place, name, needed


def _matching(place: Place, name: str, known: Iterable[Requirement]) -> Iterator[tuple[Place, str, Requirement]]:
    return ((place, name, needed) for needed in known if name in needed.methods)


RULE = Rule(
    id="quantisation-unsupported-on-device",
    severity="error",
    title="The device cannot use the format",
    why=(
        "Kernels of a format exist from some generation of devices on: below it the engine stops at its start. A note, not an error, is "
        "given where kernels exist and the arithmetic does not: the weights are then unpacked to 16 bits, so that prompts are no faster."
    ),
    fix="Choose a format that the device has arithmetic for, 16-bit floats (`half`) instead of bfloat16 before Ampere, or a later device.",
    check=check,
)
