"""From the flags of a command line, or the settings of a file, to the neutral record of a service."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..api.options import Options
from ..errors import RoofplanError, SpecError
from .adjustments import adjust
from .flag_values import merged_parts, scaled, value_of
from .record import Flag, Place, Pod, Said, Service

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .launcher_spec import FlagSpec, Launcher

_MISSING = object()
_OTHERS = "*"  # key of ``reads``


class Filling:
    """What flags say, by the names of the record.

    Parameters
    ----------
    launcher : of the engine
    """

    def __init__(self, launcher: Launcher) -> None:
        self.launcher = launcher
        self.options: dict[str, Said[Any]] = {}
        self.features: dict[str, Said[Any]] = {}
        self.problems: list[RoofplanError] = []

    def add(self, flags: Sequence[tuple[Flag, FlagSpec | None]]) -> None:
        """Take flags in their order: a later one replaces an earlier one, and is a problem where it says something else."""
        seen: dict[str, Flag] = {}
        for flag, spec in merged_parts(flags):
            if spec is None:
                continue
            before = seen.get(spec.name)
            if before is not None and before.value.value != flag.value.value and spec.matters:
                got = f"{flag.value.text} after {before.value.text}"
                hint = f"{before.value.place} says the other; the last one holds"
                self.problems.append(
                    SpecError(spec.name, got=got, wanted="it once", hint=hint, where=str(flag.value.place))
                )
            seen[spec.name] = flag
            self.put(spec, flag.value)

    def add_variables(self, environment: Mapping[str, Said[str]]) -> None:
        """Take the variables that an engine reads."""
        for spec in self.launcher.environment:
            said = environment.get(spec.name)
            if said is None or not said.value:
                continue
            try:
                value = value_of(spec, [said.value])
            except RoofplanError as error:
                self.problems.append(error.at(str(said.place)))
                continue
            self.put(spec, Said(value, said.place, said.text or f"{spec.name}={said.value}"), over=False)

    def put(self, spec: FlagSpec, said: Said[Any], *, over: bool = True) -> None:
        """Put what one flag says where it belongs."""
        value = self._meaning(spec, said.value)
        if value is _MISSING:
            return
        if not spec.option and not spec.feature:  # each part fills one of its own
            for name, part in value.items() if spec.parts else ():
                kind = "option" if name in Options.__annotations__ else "feature"
                self.put(replace(spec, parts={}, **{kind: name}), replace(said, value=part), over=over)
            return
        for target, name in ((self.options, spec.option), (self.features, spec.feature)):
            if not name or (name in target and not over):
                continue
            head, _, part = name.partition(".")
            if part:
                before = target[head].value if head in target and isinstance(target[head].value, dict) else {}
                first = target.get(head, said)
                target[head] = Said({**before, part: value}, first.place, first.text)
            elif isinstance(value, dict) and spec.parts and head in target and isinstance(target[head].value, dict):
                target[head] = Said({**target[head].value, **value}, said.place, said.text)
            else:
                target[head] = Said(value, said.place, said.text)

    @staticmethod
    def _meaning(spec: FlagSpec, value: Any) -> Any:
        if isinstance(value, bool) and spec.type in {"switch", "flag"}:
            if spec.says is True:
                return value
            return spec.says if value else _opposite(spec.says)
        if spec.parts:
            value = _parts(spec, value)
        if value is _MISSING:
            return _MISSING
        key = str(value).lower() if str(value).lower() in spec.reads else _OTHERS
        if key in spec.reads:
            meant = spec.reads[key]
            return _MISSING if meant is None else meant
        return scaled(spec, value)


def _opposite(says: Any) -> Any:
    return not says if isinstance(says, bool) else _MISSING


def _parts(spec: FlagSpec, value: Any) -> Any:
    """The parts of a JSON value that the record keeps, by their names there; nothing where it has none of them."""
    if not isinstance(value, dict):
        return _MISSING
    kept: dict[str, Any] = {}
    for path, name in spec.parts.items():
        inner: Any = value
        for key in path.split("."):
            inner = inner.get(key, _MISSING) if isinstance(inner, dict) else _MISSING
        if inner is not _MISSING:
            kept[name] = inner
    if "" in kept:  # one part is the value itself
        return kept[""]
    return kept or _MISSING


def service_of(
    launcher: Launcher,
    filling: Filling,
    flags: Sequence[Flag],
    *,
    version: str,
    image: Said[str] | None,
    kind: str,
    name: str,
    place: Place,
    pod: Pod,
    lost: Mapping[str, RoofplanError],
) -> Service:
    """Make the record of what was said."""
    options, features = dict(filling.options), dict(filling.features)
    adjust(launcher, options, features)
    if pod.hardware is not None:
        options.setdefault("hardware", pod.hardware)
    if launcher.takes_all_devices:
        _spread_layers(options, features.pop("tensor_split", None), pod)
    engine = f"{launcher.engine}@{version}" if version else launcher.engine
    said_engine = Said(engine, image.place if image is not None else place, image.value if image is not None else "")
    return Service(
        kind=kind,
        name=name or _short(options.get("model")) or launcher.engine,
        place=place,
        engine=said_engine,
        options=options,
        features=features,
        flags=tuple(flags),
        pod=pod,
        lost={name: error for name, error in lost.items() if name not in options},
    )


def _spread_layers(options: dict[str, Said[Any]], split: Said[Any] | None, pod: Pod) -> None:
    """An engine that spreads the layers over every device that it sees: as many stages, which a pod or the shares of devices count."""
    devices = pod.gpus
    if devices is None and split is not None:
        shares = re.split(r"[,/]", str(split.value))
        devices = Said(sum(1 for share in shares if share.strip(" 0.")), split.place, split.text)
    if devices is not None and devices.value > 1 and not {"tp", "pp", "devices"} & set(options):
        options["pp"] = devices


def _short(model: Said[Any] | None) -> str:
    return "" if model is None else re.split(r"[/\\]", str(model.value).rstrip("/\\"))[-1]
