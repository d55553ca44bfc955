"""The words of shell text, each with its place: lexed, never executed.

Commands come with the variables that are set in front of them and above them. What only a shell could tell (``$(…)``, a variable that
is set nowhere) is kept with the word that it stands in, so that it is a problem only where that word matters.

Grammar: POSIX.1-2017, Shell and Utilities, 2.2 Quoting, 2.3 Token Recognition, 2.6.2 Parameter Expansion; arrays as in bash.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import SpecError
from .record import Place, Said
from .shell_lexer import Lexer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..errors import RoofplanError
    from .shell_words import Raw


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command.

    Parameters
    ----------
    words : after the variables in front of it, which are in ``environment``
    environment : all variables that are known where it stands
    unknown : what cannot be told of some words, by their index
    """

    words: tuple[Said[str], ...]
    environment: Mapping[str, Said[str]] = field(default_factory=dict)
    unknown: Mapping[int, RoofplanError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Script:
    """The commands of a text, and what is malformed in it."""

    commands: tuple[Command, ...]
    problems: tuple[RoofplanError, ...] = ()


def lex(
    text: str,
    place: Place,
    environment: Mapping[str, Said[str]] | None = None,
    *,
    make: bool = False,
    locate: Locator | None = None,
) -> Script:
    """Split shell text into its commands.

    Parameters
    ----------
    text : of a script, or of the argument of ``sh -c``
    place : where its first letter stands
    environment : variables that are set outside
    make : whether it is a Makefile: ``$(NAME)`` is a variable there, and ``$$`` a dollar sign
    locate : finds the places of words where the text was unfolded from another (a YAML scalar)
    """
    lexer = Lexer(text, place, dict(environment or {}), make=make)
    commands = []
    for raws, variables in lexer.commands():
        words = tuple(_located(raw, locate) for raw in raws)
        unknown = {
            index: _moved(raw.unknown, raw.place, word.place)
            for index, (raw, word) in enumerate(zip(raws, words, strict=True))
            if raw.unknown is not None
        }
        commands.append(Command(words, variables, unknown))
    return Script(tuple(commands), tuple(lexer.problems))


def _moved(error: RoofplanError, lexed: Place, found: Place) -> RoofplanError:
    """An error about a word, at the place where the word really stands."""
    if found == lexed:
        return error
    return SpecError(error.what, got=error.got, wanted=error.wanted, hint=error.hint, where=str(found))


def split(said: Said[str], locate: Locator | None = None) -> tuple[Said[str], ...]:
    """The words of a text that is split as a shell would, but in which nothing is a variable or a separator (``command:`` of compose).

    Raises
    ------
    SpecError : for a quote that is not closed
    """
    lexer = Lexer(said.value, said.place, {}, plain=True)
    words = [raw for line, _ in lexer.commands() for raw in line]
    if lexer.problems:
        raise lexer.problems[0]
    return tuple(_located(raw, locate) for raw in words)


class Locator:
    """Finds the places of words in the text of the file that they come from, going forward.

    Parameters
    ----------
    text : of the file
    place : where the scalar begins that holds the words
    """

    def __init__(self, text: str, place: Place) -> None:
        self._lines = text.split("\n")
        self._file = place.file
        self._line, self._column = max(place.line, 1), max(place.column, 1)

    def __call__(self, written: str) -> Place | None:
        """The place of the next occurrence of what was written; None where it is not found as it stands."""
        if not written or "\n" in written:
            return None
        last = min(len(self._lines), self._line + _FARTHEST)
        for number in range(self._line, last + 1):
            start = self._column - 1 if number == self._line else 0
            found = self._lines[number - 1].find(written, start) if number <= len(self._lines) else -1
            if found >= 0:
                self._line, self._column = number, found + 1 + len(written)
                return Place(self._file, number, found + 1)
        return None


_FARTHEST = 400  # lines between two words of one scalar


def _located(raw: Raw, locate: Locator | None) -> Said[str]:
    place = None if locate is None else locate(raw.written)
    return Said(raw.value, place or raw.place, raw.written)
