"""A setting is left out whose default depends on the version of the engine, and the version is not pinned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...engines.profile import parse_version
from ..finding import Rule
from ..launcher_spec import launcher_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding
    from ..launcher_spec import FlagSpec
    from ..record import Service

_MOST = 4  # settings that one message lists


def check(checked: Checked) -> Iterator[Finding]:
    """List the defaults that moved."""
    service = checked.service
    engine, _, version = service.engine.value.partition("@")
    # By a word of the file, or by an image; no script pins what is installed.
    can_pin = service.kind == "deployment" or bool(service.engine.text)
    launcher = launcher_of(engine) if can_pin and parse_version(version) is None else None
    if launcher is None:
        return
    moved = [text for flag in launcher.flags if flag.matters and not _is_said(service, flag) for text in _changes(flag)]
    if not moved:
        return
    more = f" and {len(moved) - _MOST} more" if len(moved) > _MOST else ""
    message = (
        f"the version of {engine} is not pinned, and what is left out depends on it: {'; '.join(moved[:_MOST])}{more}"
    )
    yield RULE.finding(checked, service.engine.place, message, changed=len(moved))


def _is_said(service: Service, flag: FlagSpec) -> bool:
    named = flag.option or flag.feature.partition(".")[0]
    return named in service.options or named in service.features or any(one.name == flag.name for one in service.flags)


def _changes(flag: FlagSpec) -> Iterator[str]:
    """One text for a flag whose default is another one in some versions: each value, and from when it holds."""
    steps = [one for i, one in enumerate(flag.defaults) if i == 0 or one.value != flag.defaults[i - 1].value]
    if len(steps) > 1:
        first, *later = steps
        yield f"{flag.name} {_value(first.value)}, " + ", ".join(
            f"{_value(one.value)} from {one.since}" for one in later
        )


def _value(value: object) -> str:
    return "by device" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


RULE = Rule(
    id="default-changed-between-versions",
    severity="note",
    title="A default depends on the version, which is not pinned",
    why=(
        "Engines change defaults between releases, the share of memory and the tokens of a step among them. An image without a version "
        "takes the next release's defaults at its next start, and the same file then serves fewer users, or does not start."
    ),
    fix="Pin the version of the engine (the tag of the image), or state the settings.",
    check=check,
)
