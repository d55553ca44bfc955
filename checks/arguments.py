"""The arguments of an engine, read as its own parser would: exact names, short names, cut names, values, dotted parts of JSON."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..engines.profile import parse_version
from ..errors import RoofplanError, SpecError
from .flag_values import value_of
from .record import Flag, Said

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..engines.profile import Version
    from .launcher_spec import FlagSpec, Launcher

_NEGATIVE = re.compile(r"-\d+|-\d*\.\d+")  # as argparse tells numbers from options
_VALUELESS = ("switch", "flag")


@dataclass(slots=True)
class Arguments:
    """What was read of a command line: flags in their order, with the spec of each that is known, and problems.

    ``lost`` are the options whose values cannot be told, each with its problem.
    """

    flags: list[tuple[Flag, FlagSpec | None]] = field(default_factory=list)
    problems: list[RoofplanError] = field(default_factory=list)
    lost: dict[str, RoofplanError] = field(default_factory=dict)

    def lose(self, spec: FlagSpec, error: RoofplanError) -> None:
        """Note that the value of a flag cannot be told."""
        self.problems.append(error)
        if spec.option:
            self.lost[spec.option] = error


@dataclass(frozen=True, slots=True)
class _Named:
    """A word that begins a flag: its spec, whether it switches off, the part of a JSON value, and a value after ``=``."""

    name: str
    spec: FlagSpec | None
    off: bool = False
    part: str = ""
    value: str | None = None
    near: tuple[str, ...] = ()


class ArgumentReader:
    """Reads the arguments of one engine in one version.

    Parameters
    ----------
    launcher : of the engine
    version : of the engine; None where it is unknown: then a flag of any version is known
    settings : whether the words come from the settings of a file, where a switch has the value true or false
    """

    def __init__(self, launcher: Launcher, version: Version | None, *, settings: bool = False) -> None:
        self.launcher = launcher
        self.version = version
        self.settings = settings
        self.known = launcher.flags_in(version)
        if settings:
            self.known = {**self.known, **{spec.name: spec for spec in launcher.settings}}
        first, last = parse_version(launcher.first) or (), parse_version(launcher.last) or ()
        self._seen = version is None or (first <= version and version[: len(last)] <= last)
        self._off = {
            off: spec
            for name, spec in self.known.items()
            if spec.type == "switch" and name.startswith("--")
            for off in (f"--no-{name[2:]}", *spec.negated, *self._opposites(name))
            if off not in self.known
        }

    def _opposites(self, name: str) -> Iterator[str]:
        """``--disable-x`` for ``--enable-x`` and the other way round, where the engine's parser has them."""
        since = parse_version(self.launcher.parsing.opposites)
        if since is None or (self.version is not None and self.version < since):
            return
        for prefix, other in (("--enable-", "--disable-"), ("--disable-", "--enable-")):
            if name.startswith(prefix):
                yield other + name.removeprefix(prefix)

    def read(self, words: Sequence[Said[str]], unknown: Mapping[int, RoofplanError] | None = None) -> Arguments:
        """Read words, of which some may be unknown."""
        done = Arguments()
        missing = unknown or {}
        positionals: list[tuple[int, Said[str]]] = []
        index = 0
        while index < len(words):
            word = words[index]
            if word.value == "--":
                positionals += enumerate(words[index + 1 :], index + 1)
                break
            named = self._named(word.value) if index not in missing or word.value.startswith("--") else None
            if named is None:
                positionals.append((index, word))
                index += 1
                continue
            used = self._values(words, index, named, missing)
            self._take(done, named, word, used, missing, index)
            index += 1 + len(used)
        self._fill(done, positionals, missing)
        return done

    # -------------------------------------------------------------------------------------------- names

    def _named(self, text: str) -> _Named | None:
        """Tell which flag a word begins; None where it is a value."""
        if not text.startswith("-") or text == "-":
            return None
        name, equals, value = self._spelled(text)
        given = value if equals else None
        part = ""
        if self.launcher.parsing.dotted and name.startswith("-") and "." in name and not _NEGATIVE.fullmatch(name):
            name, part = name.split(".", 1)
        found = self._exact(name, part, given)
        if found is not None:
            return found
        if _NEGATIVE.fullmatch(text) or " " in text.split("=", 1)[0]:
            return None
        attached = self._attached(name, given)
        if attached is not None:
            return attached
        close = self._cut(name) if self.launcher.parsing.prefixes else []
        specs = {id(spec): spec for _, spec, _ in close}
        if len(specs) == 1 and len({off for _, _, off in close}) == 1:
            _, spec, off = close[0]
            return _Named(self._full(spec, part), spec, off, part, given)
        near = tuple(dict.fromkeys(full for full, _, _ in close))[:3] or self._nearest(name)
        return _Named(name + (f".{part}" if part else ""), None, False, part, given, near)

    def _spelled(self, text: str) -> tuple[str, str, str]:
        name, equals, value = text.partition("=") if self.launcher.parsing.equals else (text, "", "")
        if self.launcher.parsing.underscores and name.startswith("--"):
            head, dot, part = name.partition(".")
            name = head.replace("_", "-") + dot + part
        return name, equals, value

    def _exact(self, name: str, part: str, value: str | None) -> _Named | None:
        if self.settings and name not in self.known:  # keys are written either way
            name = f"--{name.lstrip('-').replace('-', '_')}" if name.startswith("--") else name
        if name in self.known:
            spec = self.known[name]
            return _Named(self._full(spec, part), spec, False, part, value)
        if name in self._off and not part:
            return _Named(self._off[name].name, self._off[name], True, "", value)
        return None

    def _attached(self, name: str, value: str | None) -> _Named | None:
        """A short flag with its value written to it (``-O3``)."""
        if name.startswith("--") or (value is not None and not self.launcher.parsing.single_dash_values):
            return None
        for length in range(len(name) - 1, 1, -1):
            spec = self.known.get(name[:length])
            if (
                spec is not None
                and spec.type not in _VALUELESS
                and (length == 2 or self.launcher.parsing.single_dash_values)
            ):
                return _Named(spec.name, spec, False, "", name[length:])
        return None

    def _cut(self, name: str) -> list[tuple[str, FlagSpec, bool]]:
        found = [(full, spec, False) for full, spec in self.known.items() if full.startswith(name)]
        return found + [(full, spec, True) for full, spec in self._off.items() if full.startswith(name)]

    def _nearest(self, name: str) -> tuple[str, ...]:
        return tuple(difflib.get_close_matches(name, [*self.known, *self._off], n=2, cutoff=0.75))

    @staticmethod
    def _full(spec: FlagSpec, part: str) -> str:
        return f"{spec.name}.{part}" if part else spec.name

    # -------------------------------------------------------------------------------------------- values

    def _values(
        self, words: Sequence[Said[str]], index: int, named: _Named, missing: Mapping[int, RoofplanError]
    ) -> list[tuple[int, Said[str]]]:
        """The words after a flag that are its values."""
        kind = None if named.spec is None else named.spec.type
        if named.value is not None or (kind in _VALUELESS and not named.part):
            return []
        found: list[tuple[int, Said[str]]] = []
        most = len(words) if kind == "list" and not named.part else 1
        for position in range(index + 1, len(words)):
            text = words[position].value
            if len(found) == most or text == "--":
                break
            if position not in missing and self._begins_flag(text):
                break
            found.append((position, words[position]))
        return found

    def _begins_flag(self, text: str) -> bool:
        return text.startswith("-") and self._named(text) is not None

    def _take(
        self,
        done: Arguments,
        named: _Named,
        word: Said[str],
        used: list[tuple[int, Said[str]]],
        missing: Mapping[int, RoofplanError],
        index: int,
    ) -> None:
        texts: list[str] = [named.value] if named.value is not None else [value.value for _, value in used]
        written = " ".join([word.text or word.value, *(value.text or value.value for _, value in used)])
        spec = named.spec
        lost = next((missing[i] for i in (index, *(i for i, _ in used)) if i in missing), None)
        if spec is None:
            value: Any = texts[0] if texts else True
            # A version that was not looked at may have flags of its own: there only what looks like a slip is unknown.
            known = not self._seen and not named.near
            done.flags.append((Flag(named.name, Said(value, word.place, written), known, named.near), None))
            return
        if lost is not None:
            if spec.matters:
                done.lose(spec, lost)
            return
        if named.value is not None and spec.type in _VALUELESS and not named.part and not self.settings:
            got, wanted = f"{named.name}={named.value}", "the switch alone: it takes no value"
            done.problems.append(SpecError(named.name, got=got, wanted=wanted, where=str(word.place)))
            return
        try:
            read = value_of(spec, texts, off=named.off, part=named.part, name=named.name)
        except RoofplanError as error:
            done.lose(spec, error.at(str(word.place)))
            return
        done.flags.append((Flag(named.name, Said(read, word.place, written)), spec))

    def _fill(
        self, done: Arguments, positionals: list[tuple[int, Said[str]]], missing: Mapping[int, RoofplanError]
    ) -> None:
        """Give arguments without a flag to the flags that they stand for."""
        wanted = list(self.launcher.positional)
        for index, word in positionals:
            if not wanted:
                got, want = word.value, "no more arguments without a flag"
                fault = missing.get(index) or SpecError("command", got=got, wanted=want, where=str(word.place))
                done.problems.append(fault)
                continue
            spec = self.known.get(wanted.pop(0))
            if spec is None:
                continue
            if index in missing:
                done.lose(spec, missing[index])
                continue
            done.flags.insert(0, (Flag(spec.name, Said(word.value, word.place, word.text)), spec))
