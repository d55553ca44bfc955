"""What a launcher file says: the command lines of one engine as data (``schema: roofplan/launcher/v1``)."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

from .. import specfiles
from ..documents import parse_yaml
from ..engines.profile import Version, parse_version

_CONFIG: dict[str, Any] = {"extra": "forbid"}
_FOLDER = Path(str(files("roofplan.checks") / "launchers"))

FlagType = Literal[
    "switch", "flag", "integer", "tokens", "si_tokens", "number", "bytes", "text", "json", "list", "optional"
]
Plain = str | int | float | bool | None
_COMMON = {"python", "-m", "serve"}  # words of programs that say nothing of an engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Default:
    """What holds from a version on where nothing is said; null where the engine decides by model or device."""

    since: str
    value: Plain
    source: str = ""
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagSpec:
    """One flag of an engine.

    Parameters
    ----------
    name, aliases : the long name of the documentation, and other spellings (``-tp``)
    negated : names that switch it off, beside ``--no-…``
    type : how its value is read
    since, until : first and last version that has it; empty: all
    defaults : by version, oldest first
    choices : what it takes, as far as the engine refuses other values
    option, feature : what of the neutral record it fills; with a dot a part of a mapping (``speculation.k``)
    reads : texts that mean something else to the option; null: as if nothing was said; ``*`` stands for all others
    says : what its presence means, for a flag without value
    scale : factor of a number (GiB to bytes)
    parts : of a JSON value, those that are kept: their names here, and in the feature (empty: the part is the value); of a flag without
        option and feature, the option or feature that each part fills
    source : key of the file's sources, where it is not the newest
    """

    name: str
    aliases: tuple[str, ...] = ()
    negated: tuple[str, ...] = ()
    type: FlagType = "text"
    since: str = ""
    until: str = ""
    defaults: tuple[Default, ...] = ()
    choices: tuple[str, ...] = ()
    option: str = ""
    feature: str = ""
    reads: dict[str, Plain] = field(default_factory=dict)
    says: Plain = True
    scale: float = 1
    parts: dict[str, str] = field(default_factory=dict)
    source: str = ""
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    @property
    def matters(self) -> bool:
        """Whether it fills something of the record."""
        return bool(self.option or self.feature or self.parts)

    def is_in(self, version: Version | None) -> bool:
        """Whether a version has it; None: some version."""
        if version is None:
            return True
        since, until = parse_version(self.since) or (), parse_version(self.until)
        return since <= version and (until is None or version[: len(until)] <= until)

    def default_in(self, version: Version | None) -> Default | None:
        """What holds in a version (None: the newest) where nothing is said."""
        fitting = [one for one in self.defaults if version is None or (parse_version(one.since) or ()) <= version]
        return fitting[-1] if fitting else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A container image of an engine: the end of its name, the program that it starts, and how its tag holds the version."""

    name: str
    entrypoint: tuple[str, ...]
    tag: str = r"v?([0-9]+(?:\.[0-9]+)+)"
    source: str = ""
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsing:
    """What an engine's parser of arguments allows; ``opposites``: the version from which ``--disable-x`` undoes ``--enable-x``."""

    underscores: bool = False
    prefixes: bool = False
    dotted: bool = False
    single_dash_values: bool = False
    equals: bool = True  # --flag=value
    config: str = ""
    opposites: str = ""
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A file of a repository at a commit."""

    repository: str
    path: str
    commit: str
    release: str = ""
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """The command lines of one engine; see checks/launchers/README.md for the keys."""

    schema: Literal["roofplan/launcher/v1"]
    engine: str
    first: str
    last: str
    programs: tuple[tuple[str, ...], ...]
    images: tuple[Image, ...] = ()
    positional: tuple[str, ...] = ()
    parsing: Parsing = Parsing()
    flags: tuple[FlagSpec, ...]
    others: str = ""
    settings: tuple[FlagSpec, ...] = ()  # that only a file of settings has
    environment: tuple[FlagSpec, ...] = ()
    made_on_loading: dict[str, str] = field(default_factory=dict)
    drafters: dict[str, str] = field(default_factory=dict)
    attention_groups: Literal["", "tp", "dp"] = ""
    groups_share_limits: bool = False
    replicas_divide_experts: bool = False
    file_type: str = ""
    slots_divide_context: bool = False
    ring_bytes: int | None = None
    one_process: bool = False
    takes_all_devices: bool = False
    sources: dict[str, Origin]
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    def flags_in(self, version: Version | None) -> dict[str, FlagSpec]:
        """Every spelling of every flag of a version (None: of any) and what it stands for; a version after the newest is read as that."""
        return _flags_in(self.engine, version)

    def flag(self, name: str, version: Version | None = None) -> FlagSpec | None:
        """A flag by its name or an alias."""
        return self.flags_in(version).get(name)

    def filling(self, name: str) -> FlagSpec | None:
        """The first flag, or else variable, that fills an option or a feature."""
        return next((spec for spec in (*self.flags, *self.environment) if name in {spec.option, spec.feature}), None)


@dataclass(frozen=True, slots=True)
class Head:
    """What tells whether a command starts an engine: the part of a launcher file above its flags."""

    engine: str
    programs: tuple[tuple[str, ...], ...]
    images: tuple[Image, ...]


@functools.cache
def heads() -> tuple[Head, ...]:
    """The heads of all launchers: the files are long, and most commands start no engine."""
    return tuple(_head(path) for path in sorted(_FOLDER.glob("*.yaml")))


@functools.cache
def cues() -> re.Pattern[str]:
    """What a text that starts an engine holds: a word of a program, or the name of an image."""
    words = {word for head in heads() for program in head.programs for word in program} - _COMMON
    names = words | {image.name for head in heads() for image in head.images}
    return re.compile("|".join(sorted(map(re.escape, names), key=len, reverse=True)))


def _head(path: Path) -> Head:
    text = path.read_text(encoding="utf-8").partition("\nflags:")[0]
    data = parse_yaml(text, path.name).data
    programs = tuple(tuple(words) for words in data["programs"])
    images = tuple(Image(**{**image, "entrypoint": tuple(image["entrypoint"])}) for image in data.get("images", ()))
    return Head(data["engine"], programs, images)


@functools.cache
def _files() -> dict[str, str]:
    return {head.engine: path.stem for head, path in zip(heads(), sorted(_FOLDER.glob("*.yaml")), strict=True)}


@functools.cache
def launcher_of(engine: str) -> Launcher | None:
    """The launcher of an engine; None where no file describes it."""
    slug = _files().get(engine)
    return None if slug is None else specfiles.validate(Launcher, specfiles.Catalogue(_FOLDER, "launcher").read(slug))


def launchers() -> dict[str, Launcher]:
    """All launchers, by engine."""
    return {engine: one for engine in _files() if (one := launcher_of(engine)) is not None}


@functools.cache
def _flags_in(engine: str, version: Version | None) -> dict[str, FlagSpec]:
    launcher = launcher_of(engine)
    assert launcher is not None
    last = parse_version(launcher.last) or ()
    asked = version if version is None else min(version, last)
    # Of flags that had one name in turn, the newest comes first.
    found: dict[str, FlagSpec] = {}
    for flag in reversed((*launcher.flags, *other_flags(launcher.others))):
        if flag.is_in(asked):
            for name in (flag.name, *flag.aliases):
                found.setdefault(name, flag)
    return found


def other_flags(text: str) -> list[FlagSpec]:
    """The flags that say nothing of memory or time, one a line: names, type, and from which version to which.

    >>> other_flags("--api-key list 0.8..0.10")[0].until
    '0.10'
    """
    found = []
    for line in text.splitlines():
        names, kind, *span = line.split()
        name, *aliases = names.split(",")
        since, _, until = span[0].partition("..") if span else ("", "", "")
        found.append(FlagSpec(name=name, aliases=tuple(aliases), type=cast("FlagType", kind), since=since, until=until))
    return found
