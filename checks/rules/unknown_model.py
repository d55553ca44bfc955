"""A model that nothing is known of: nothing about it can be checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import RoofplanError, UnknownNameError, show
from ..finding import Rule
from ..spelling import near_miss

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding


def check(checked: Checked) -> Iterator[Finding]:
    """Look the model up."""
    found = checked.named_model
    said = checked.service.options.get("model")
    if said is None or not said.value or not isinstance(found, RoofplanError):
        return  # one that is not named is a problem of the run
    if isinstance(found, UnknownNameError):
        message = f"no model {show(said.value)} in the catalogue{near_miss(found)}"
        fix = "--model NAME or PATH: a config.json or a spec of it"
    else:
        message = f"the model {show(said.value)} cannot be read: {found}"
        fix = "--model NAME of what lies at this path"
    yield RULE.finding(checked, checked.service.place_of("model"), message, fix=fix)


RULE = Rule(
    id="unknown-model",
    severity="error",
    title="The model is not known",
    why=(
        "Memory and times follow from a model's shape, and a shape is never guessed from a name: of a service whose model is not known "
        "nothing can be checked, and a check that says so is better than one that passes."
    ),
    fix="Correct the name; or name the model that it is a variant of, or its `config.json`, with `--model` or in the settings.",
    check=check,
    explains=True,
)
