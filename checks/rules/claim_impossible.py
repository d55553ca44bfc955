"""A figure that the file claims of its deployment is not what it is expected to be: possible without help, as a rule."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ...errors import DomainError, RoofplanError
from ...quantities import show_count
from ..finding import Rule
from ..serving import is_quick

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...planner.claims import ClaimResult
    from ..checked import Checked
    from ..finding import Finding
    from ..record import Place

_VERDICTS = {
    "impossible": "impossible, whatever helps",
    "needs_help": "out of reach without help",
    "plausible": "plausible",
    "slower_than_it_should_be": "below what is reached",
}
_DEFAULT = "plausible"
_NAMES = {"users": "concurrency"}  # of settings, as files say them


def check(checked: Checked) -> Iterator[Finding]:
    """Check each claim at the workload of the file, as ``roofplan claim`` does (formula F16)."""
    for expectation in checked.service.expectations:
        if expectation.kind != "claim":
            continue
        text, wanted = expectation.value.value, expectation.wanted or _DEFAULT
        result = checked.once(f"claim {text}", partial(_asked, checked, text))
        if isinstance(result, RoofplanError):
            yield RULE.finding(checked, expectation.value.place, f"the claim cannot be checked: {result}")
        elif result.verdict != wanted:
            yield _finding(checked, expectation.value.place, result, wanted)


def _asked(checked: Checked, text: str) -> ClaimResult | RoofplanError:
    from ...api.claiming import claim
    from ...planner.claims import ClaimResult

    d, workload = checked.deployment, checked.deployment.workload
    if not is_quick(d):
        pieces = f"prompts of {show_count(workload.prompt)} tokens in steps of {show_count(d.max_batched_tokens)}"
        return DomainError("claim", got=pieces, wanted="fewer steps for a prompt")
    options = {
        name: value for name, value in checked.service.plain_options().items() if name not in {"model", "hardware"}
    }
    options |= {"prompt": workload.prompt, "output": workload.output, "concurrency": workload.concurrency}
    try:
        result = claim(text, d.model, d.hardware, **cast("Any", options | {"engine": d.engine}))
    except RoofplanError as error:
        return error
    assert isinstance(result, ClaimResult)  # a gain wants a means, without which the call refuses it
    return result


def _finding(checked: Checked, place: Place, result: ClaimResult, wanted: str) -> Finding:
    said, speed = result.claim, result.speed
    message = (
        f"{said.show(said.speed)} is {_VERDICTS[result.verdict]} ({result.verdict}), and {wanted} is expected of it: the roof is"
        f" {said.show(speed.bound)}, {said.show(speed.expected)} is what is reached"
    )
    helps, fix = _helps(result), ""
    if helps:
        message, fix = f"{message}; {helps[0]} would explain it", helps[0]
    # Still possible, so that the promise holds: the claim may be raised.
    is_kept = wanted == _DEFAULT and result.verdict == "slower_than_it_should_be"
    return RULE.finding(
        checked,
        place,
        message,
        fix=fix,
        severity="note" if is_kept else None,
        claimed=said.value,
        headroom_ratio=speed.expected / said.speed,
    )


def _helps(result: ClaimResult) -> list[str]:
    """The fewest means that explain a claim, as their settings."""
    return [
        ", ".join(f"{_NAMES.get(name, name.replace('_', ' '))} {_value(value)}" for name, value in each.setting.items())
        for each in result.combinations
        if each.setting
    ]


def _value(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


RULE = Rule(
    id="claim-impossible",
    severity="error",
    title="A claim does not hold",
    why=(
        "The file claims a figure of its deployment. Against the roof of its devices and what kernels reach, the figure is no "
        "longer what the file expects of it; a change of formats, devices or workload is the usual cause."
    ),
    fix="Take the change back, pull one of the levers that the message names, or change the claim.",
    check=check,
)
