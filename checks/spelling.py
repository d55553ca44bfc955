"""How a file would say a setting: as the flag that stands there, the engine's own flag, or a key of a file."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from ..api.options import Options
from ..engines.profile import parse_version
from .launcher_spec import launcher_of

if TYPE_CHECKING:
    from .launcher_spec import FlagSpec
    from .record import Service

_OPTION = re.compile(
    r"--([a-z][a-z-]*[a-z])(?: (\d+))?", re.ASCII
)  # as the planner's texts name an option, perhaps with its value


def setting(service: Service, option: str, value: object) -> str:
    """A setting as it would be written in a service's file.

    Parameters
    ----------
    option : a name of :class:`~roofplan.api.options.Options`, or a part of a feature (``speculation.k``)
    value : what to set it to

    The flag that stands in the file is kept as it is documented; elsewhere it is that of the engine, or the key of a deployment file.
    """
    spelled = None if service.kind == "deployment" else _flag(str(service.engine.value), option)
    said = service.options.get(option)
    stated = "" if said is None else next((flag.name for flag in service.flags if flag.value.place == said.place), "")
    if stated:
        return f"{stated} {value if spelled is None else _text(spelled[1], value)}"
    if spelled is None:
        return f"{option}: {value}"
    name, spec = spelled
    text = _text(spec, value)
    if service.kind == "ray":
        return f"{name.removeprefix('--').replace('-', '_')}: {text}"
    return f"{name} {text}"


@functools.cache
def _flag(engine: str, option: str) -> tuple[str, FlagSpec] | None:
    """The flag of an engine's version that fills an option, or a part of a feature (``speculation.k``); None where there is none."""
    name, _, version = engine.partition("@")
    launcher = launcher_of(name)
    if launcher is None:
        return None
    for spec in launcher.flags:
        if not spec.is_in(parse_version(version)):
            continue
        if option in {spec.option, spec.feature}:
            return spec.name, spec
        for path, part in spec.parts.items():
            if f"{spec.feature}.{part}" == option:
                return f"{spec.name}.{path}" if launcher.parsing.dotted else spec.name, spec
    return None


def _text(spec: FlagSpec, value: object) -> object:
    """A value as a flag takes it: of words that mean the same, the shortest, the last of equals."""
    if value in spec.choices:
        return value
    meaning = [text for text, meant in spec.reads.items() if meant == value]
    return min(reversed(meaning), key=len, default=value)


def with_flags(service: Service, text: str) -> str:
    """A text of the planner that names options of roofplan (``--tp 2``) with the settings as a service's file would say them."""

    def said(found: re.Match[str]) -> str:
        option = found[1].replace("-", "_")
        if option not in Options.__annotations__:
            return found[0]
        return setting(service, option, found[2] or "").rstrip(" :")

    return _OPTION.sub(said, text)
