"""How a file would say a setting: as the flag that stands there, the engine's own flag, or a key of a file."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from ..api.options import Options
from ..engines.profile import parse_version
from ..errors import RoofplanError, UnknownNameError
from .launcher_spec import launcher_of

if TYPE_CHECKING:
    from .launcher_spec import FlagSpec
    from .record import Place, Service

_OPTION = re.compile(
    r"--([a-z][a-z-]*[a-z])(?: (\d+))?", re.ASCII
)  # as the planner's texts name an option, perhaps with its value

_IN_BRACKETS = re.compile(r" \(--([a-z][a-z-]*[a-z]) \d+\)", re.ASCII)


def setting(service: Service, option: str, value: object) -> str:
    """A setting as it would be written in a service's file.

    Parameters
    ----------
    option : a name of :class:`~roofplan.api.options.Options`, or a part of a feature (``speculation.k``)
    value : what to set it to

    The flag that stands in the file is kept as it is documented; elsewhere it is that of the engine, or the key of a deployment file.
    """
    value = _of_all_slots(service, option, value)
    spelled = None if service.kind == "deployment" else _flag(str(service.engine.value), option)
    said = service.options.get(option)
    stated = "" if said is None else _stated(service, option, said.place)
    if stated:
        return f"{stated} {value if spelled is None else _text(spelled[1], value)}"
    if spelled is None:
        return f"{option}: {value}"
    name, spec = spelled
    text = _text(spec, value)
    if service.kind == "ray":
        return f"{name.removeprefix('--').replace('-', '_')}: {text}"
    return f"{name} {text}"


def _stated(service: Service, option: str, place: Place) -> str:
    """The flag that fills an option where it stands; words of one variable all stand in one place."""
    launcher = launcher_of(str(service.engine.value).partition("@")[0])
    for flag in service.flags:
        if flag.value.place == place:
            spec = None if launcher is None else launcher.flag(flag.name.partition(".")[0])
            if spec is None or option in {spec.option, spec.feature}:
                return flag.name
    return ""


def flag_for(service: Service, option: str) -> str:
    """The flag of a service's engine that fills an option; empty where there is none."""
    found = _flag(str(service.engine.value), option)
    return "" if found is None else found[0]


def _of_all_slots(service: Service, option: str, value: object) -> object:
    """The longest sequence as an engine takes it whose slots divide it."""
    slots, shared = service.options.get("max_num_seqs"), service.features.get("shared_context")
    launcher = launcher_of(service.engine.value.partition("@")[0]) if option == "max_model_len" else None
    if service.kind == "deployment" or launcher is None or not launcher.slots_divide_context or slots is None:
        return value
    if (shared is not None and shared.value is True) or not isinstance(value, int) or not isinstance(slots.value, int):
        return value
    return value * max(1, slots.value)


@functools.cache
def _flag(engine: str, option: str) -> tuple[str, FlagSpec] | None:
    """The flag, or key of the settings, of an engine's version that fills an option, a feature, or a part of one (``speculation.k``)."""
    name, _, version = engine.partition("@")
    launcher = launcher_of(name)
    if launcher is None:
        return None
    for spec in (*launcher.flags, *launcher.settings):
        if not spec.is_in(parse_version(version)):
            continue
        if option in {spec.option, spec.feature}:
            return spec.name, spec
        for path, part in spec.parts.items():
            if option == f"{spec.feature}.{part}":
                return f"{spec.name}.{path}" if launcher.parsing.dotted else spec.name, spec
            if option == part and not spec.option and not spec.feature:
                return path, spec
    return None


def _text(spec: FlagSpec, value: object) -> object:
    """A value as a flag takes it: of words that mean the same, the shortest, the last of equals."""
    if value in spec.choices:
        return value
    meaning = [text for text, meant in spec.reads.items() if meant == value]
    return min(reversed(meaning), key=len, default=value)


def switched_on(service: Service, feature: str) -> str:
    """How a service's engine is told to do something: by a flag, by leaving out the one that forbids it, or by a key of its settings."""
    spelled = _flag(str(service.engine.value), feature)
    if spelled is None:
        return ""
    name, spec = spelled
    if spec.says is False:
        return f"leave out {name}"
    return name if name.startswith("-") else f"{name}: true"


def near_miss(error: RoofplanError) -> str:
    """The names that are spelled nearly so, of a name that nobody knows; empty for other errors."""
    is_one = isinstance(error, UnknownNameError) and error.hint.startswith("did you mean")
    return f"; {error.hint}" if is_one else ""


def with_flags(service: Service, text: str) -> str:
    """A text of the planner that names options of roofplan (``--tp 2``) with the settings as a service's file would say them."""

    def kept(found: re.Match[str]) -> str:
        """Nothing where the engine has no flag for what stands in brackets: what stands before them says it."""
        has_flag = service.kind == "deployment" or flag_for(service, found[1].replace("-", "_"))
        return found[0] if has_flag or launcher_of(str(service.engine.value).partition("@")[0]) is None else ""

    def said(found: re.Match[str]) -> str:
        option = found[1].replace("-", "_")
        if option not in Options.__annotations__:
            return found[0]
        return setting(service, option, found[2] or "").rstrip(" :")

    return _OPTION.sub(said, _IN_BRACKETS.sub(kept, text))
