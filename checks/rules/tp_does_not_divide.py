"""Tensor-parallel ranks that do not divide the heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import LayoutError
from ...planner.parallel import Layout, check_layout
from ..finding import Rule
from ..spelling import setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...models.spec import ModelSpec
    from ..checked import Checked
    from ..finding import Finding

OPTIONS = ("tp", "devices")  # errors of the planner about these are this rule's


def check(checked: Checked) -> Iterator[Finding]:
    """Divide the heads of every kind of layer."""
    service = checked.service
    said = service.options.get("tp")
    if said is None:
        built = checked.built
        if isinstance(built, LayoutError) and built.what == "--devices":
            message = f"{built.got} devices as tensor-parallel ranks: want {built.wanted}"
            yield RULE.finding(checked, service.place_of("devices"), message, fix=built.hint)
        return
    error = _divides(checked.model, said.value) if isinstance(said.value, int) else None
    if error is None:
        return
    message = f"{said.value} tensor-parallel ranks: want {error.wanted}; {error.hint}"
    smaller = next((ways for ways in range(said.value - 1, 0, -1) if _divides(checked.model, ways) is None), 1)
    yield RULE.finding(
        checked, said.place, message, fix=setting(service, "tp", smaller), tp=said.value, largest_that_divides=smaller
    )


def _divides(model: ModelSpec, ways: int) -> LayoutError | None:
    """None where so many ranks divide a model."""
    try:
        check_layout(model, Layout(tp=ways))
    except LayoutError as error:
        return error
    return None


RULE = Rule(
    id="tp-does-not-divide",
    severity="error",
    title="The heads do not divide over the ranks",
    why="Each tensor-parallel rank computes an equal number of attention heads: an engine refuses a number that does not divide them.",
    fix="Use a number of ranks that divides the heads; other devices serve as pipeline stages or as further copies.",
    check=check,
    explains=True,
)
