"""What is checked and how strictly: options of the command line over ``[check]`` of ``.roofplan.toml`` or ``pyproject.toml``.

[check]                        # in pyproject.toml: [tool.roofplan.check]
select = ["does-not-fit"]      # rules that run; all where it is left out
ignore = ["missing-shm"]
fail-on = "warning"            # error where it is left out; or never
exclude = ["charts/*"]         # what the walk of a folder leaves out
baseline = "known.json"        # seen from the file's folder, as paths of models and devices are
hardware = "h100-sxm"          # for files that say nothing: model, hardware, engine, prompt, output, concurrency, shared-prefix-tokens
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from .. import specfiles
from ..errors import RoofplanError, SpecError, UnknownNameError
from ..quantities import parse_count, parse_tokens
from .record import Place, Said

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FailOn = Literal["warning", "error", "never"]
FAIL_ON: tuple[FailOn, ...] = get_args(FailOn)
_NAMES = ("model", "hardware", "engine")
SHARED_PREFIX = "shared-prefix-tokens"
_COUNTS = {"prompt": parse_tokens, "output": parse_tokens, "concurrency": parse_count, SHARED_PREFIX: parse_tokens}
DEFAULTS = (*_NAMES, *_COUNTS)
_LISTS = ("select", "ignore", "exclude")
_KEYS = (*_LISTS, "fail-on", "baseline", *DEFAULTS)
_FILES = {".roofplan.toml": ("check",), "pyproject.toml": ("tool", "roofplan", "check")}
COMMAND_LINE = "<options>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a run checks.

    Parameters
    ----------
    select : ids of the rules that run; empty: all
    ignore : ids of rules that do not run
    fail_on : the least severity that makes the exit code 1
    defaults : for files that say nothing of it: ``model``, ``hardware``, ``engine``, ``prompt``, ``output``, ``concurrency``,
        ``shared-prefix-tokens``
    exclude : patterns of paths that a folder's walk leaves out
    baseline : file of findings that are known
    """

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    fail_on: FailOn = "error"
    defaults: Mapping[str, Said[Any]] = field(default_factory=dict)
    exclude: tuple[str, ...] = ()
    baseline: str = ""

    def selects(self, rule: str) -> bool:
        """Whether a rule runs."""
        return (not self.select or rule in self.select) and rule not in self.ignore


def load(folder: str | os.PathLike[str] = ".", **options: Any) -> Settings:
    """The settings of a folder, with options of the command line over them.

    The nearest ``.roofplan.toml``, or ``pyproject.toml`` that speaks of the checks, counts, from the folder upwards, else from the working
    folder; others are not read.

    Parameters
    ----------
    folder : of what is checked, see :func:`folder_of`
    options : names and kinds as in :class:`Settings`; of :data:`DEFAULTS` by their own names; None or no values are as good as left out

    Raises
    ------
    RoofplanError : for unknown keys, rules and values, with file and line where a file says them
    """
    found = _found(Path(folder))
    if found is None:
        found = _found(Path()) or {}
    for name, value in options.items():
        if value in (None, (), []):
            continue
        found[name.replace("_", "-")] = _Entry(value, Place(COMMAND_LINE), f"--{name.replace('_', '-')}")
    return _settings(found)


def folder_of(paths: Iterable[str | os.PathLike[str]]) -> str:
    """The folder that all named files and folders have in common, as pytest finds its own settings; the working folder without any.

    Standard input (``-``) lies in the working folder.
    """
    try:
        named = [Path.cwd() if path == "-" else Path(path).absolute() for path in paths]
        return os.path.commonpath([path if specfiles.is_folder(str(path)) else path.parent for path in named])
    except (ValueError, OSError):  # none, or on several drives; or the working folder is gone
        return "."


@dataclass(frozen=True, slots=True)
class _Entry:
    """A value, where it stands, and what an error calls it; lines of the parts of a list by their text."""

    value: Any
    place: Place
    what: str
    lines: Mapping[str, int] = field(default_factory=dict)

    def where(self, part: str = "") -> str:
        if self.place.file == COMMAND_LINE:
            return ""
        line = self.lines.get(part, self.place.line)
        return f"{self.place.file}:{line}" if line else self.place.file


def _found(folder: Path) -> dict[str, _Entry] | None:
    """The nearest settings, from a folder upwards; None where there are none."""
    try:
        start = folder.resolve()
    except OSError as error:
        raise SpecError("folder", got=(error.strerror or "unreadable").lower(), where=str(folder)) from error
    for parent in (start, *start.parents):
        for name, table in _FILES.items():
            path = parent / name
            if os.path.lexists(path):
                entries = _of_file(os.path.relpath(path), table, own=len(table) == 1)
                if entries is not None:
                    return entries
    return None


def _of_file(path: str, table: tuple[str, ...], *, own: bool) -> dict[str, _Entry] | None:
    """The settings in a file; None where it does not speak of checks."""
    import tomllib

    text = specfiles.read_text(path)
    if not own and "roofplan" not in text:
        return None
    try:
        data: Any = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
        where = f"{path}:{place[1]}:{place[2]}" if place else path
        hint = str(error).partition(" (at ")[0]
        raise SpecError("malformed TOML", hint=hint, where=where) from error
    if own:
        for key in data:
            if key != table[0]:
                where = f"{path}:{_line_of(text, key, ())}"
                raise SpecError(key, got="an unknown table or key", wanted=f"[{table[0]}]", where=where)
    for key in table:
        if not isinstance(data, dict) or key not in data:
            return {} if own else None
        data = data[key]
    if not isinstance(data, dict):
        raise SpecError(".".join(table), got="no table", wanted=f"[{'.'.join(table)}]", where=path)
    return {key.replace("_", "-"): _entry(text, path, table, key, value) for key, value in data.items()}


def _entry(text: str, path: str, table: tuple[str, ...], key: str, value: Any) -> _Entry:
    line = _line_of(text, key, table)
    lines = {}
    if isinstance(value, list) and line:
        for part in value:
            after = enumerate(text.split("\n")[line - 1 :], line)
            lines[str(part)] = next(
                (at for at, content in after if f'"{part}"' in content or f"'{part}'" in content), line
            )
    return _Entry(value, Place(path, line), key, lines)


def _line_of(text: str, key: str, table: tuple[str, ...]) -> int:
    """The line of a key of a table, or of a table of this name; 0 where it is written in a way that is not looked for."""
    inside: str | None = ""
    for at, line in enumerate(text.split("\n"), 1):
        header = re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line)
        if header:
            inside = header[1].replace('"', "").replace(" ", "")
            if not table and inside.split(".")[0] == key:
                return at
        elif inside == ".".join(table) and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]", line):
            return at
    return 0


def _settings(found: Mapping[str, _Entry]) -> Settings:
    for key, entry in found.items():
        if key not in _KEYS:
            hint = specfiles.did_you_mean(key, _KEYS)
            wanted = f"one of {', '.join(_KEYS)}"
            raise SpecError(entry.what, got="an unknown key", wanted=wanted, hint=hint, where=entry.where())
    return Settings(
        select=_rules(found.get("select")),
        ignore=_rules(found.get("ignore")),
        fail_on=_fail_on(found.get("fail-on")),
        defaults={name: _default(name, found[name]) for name in DEFAULTS if name in found},
        exclude=_texts(found.get("exclude")),
        baseline=_beside(_text(found["baseline"]), found["baseline"]) if "baseline" in found else "",
    )


def _texts(entry: _Entry | None) -> tuple[str, ...]:
    """A list of texts; on the command line also several in one, with commas."""
    if entry is None:
        return ()
    if not isinstance(entry.value, (list, tuple)) or not all(isinstance(part, str) for part in entry.value):
        raise SpecError(
            entry.what, got=repr(entry.value), wanted='a list of texts such as ["a", "b"]', where=entry.where()
        )
    if entry.place.file != COMMAND_LINE:
        return tuple(entry.value)
    return tuple(part.strip() for text in entry.value for part in text.split(","))


def _rules(entry: _Entry | None) -> tuple[str, ...]:
    if entry is None:
        return ()
    named = _texts(entry)
    for rule in named:
        try:
            check_rule(rule, entry.what)
        except RoofplanError as error:
            raise error.at(entry.where(rule)) from None
    return named


def check_rule(rule: str, what: str) -> None:
    """Refuse a rule that does not exist.

    Raises
    ------
    UnknownNameError : with the closest ones
    """
    from .rules import all_rules, closest_rule

    if all(one.id != rule for one in all_rules()):
        near = closest_rule(rule)
        hint = f"did you mean {near}?" if near else "roofplan check --list-rules shows them"
        raise UnknownNameError(what, got=rule or "nothing", wanted="a rule", hint=hint)


def _fail_on(entry: _Entry | None) -> FailOn:
    if entry is None:
        return "error"
    if entry.value not in FAIL_ON:
        wanted = f"one of {', '.join(FAIL_ON)}"
        raise SpecError(entry.what, got=repr(entry.value), wanted=wanted, where=entry.where())
    return cast("FailOn", entry.value)


def _text(entry: _Entry) -> str:
    if not isinstance(entry.value, str) or not entry.value:
        raise SpecError(entry.what, got=repr(entry.value), wanted="a text", where=entry.where())
    return entry.value


def _default(name: str, entry: _Entry) -> Said[Any]:
    if name in _NAMES:
        text = _text(entry)
        if text == "-":
            wanted = "a name or a path: standard input is for what is checked"
            raise SpecError(entry.what, got=repr(text), wanted=wanted, where=entry.where())
        return Said(_beside(text, entry) if specfiles.looks_like_path(text) else text, entry.place)
    try:
        return Said(_COUNTS[name](entry.value, entry.what), entry.place)
    except RoofplanError as error:
        raise error.at(entry.where()) from None


def _beside(path: str, entry: _Entry) -> str:
    """A path of a file of settings, as seen from the working folder."""
    if entry.place.file == COMMAND_LINE or Path(path).is_absolute():
        return path
    beside = str(Path(entry.place.file).parent / path)
    return beside if specfiles.looks_like_path(beside) or not specfiles.looks_like_path(path) else f"./{beside}"
