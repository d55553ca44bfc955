"""The commands of shell text: letters to words, words to commands, without running anything.

Time grows with the length of the text: every letter is looked at a fixed number of times, and what variables expand to is bounded.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .record import Said
from .shell_words import ASSIGNMENT, LONGEST_VARIABLE, WordReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .shell_words import Raw

_MAKE_ASSIGNMENT = re.compile(r"^(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*(?:\?|:|::)?=[ \t]*(.*)$")
_MAKE_TARGET = re.compile(r"[\w./%$(){} -]+:")
_RESERVED = frozenset({
    "if", "then", "elif", "else", "fi", "do", "done", "while", "until", "for", "case", "esac", "in", "select",
    "time", "coproc", "function", "{", "}", "!", "[[", "]]",
})  # fmt: skip
_CONDITIONS = {"if": 1, "fi": -1}
_SETTERS = ("export", "declare", "readonly", "local", "typeset", "set")
_SEPARATORS = ";&|()\n"
_REDIRECTION = re.compile(r"<<<|<<-?|[<>]\(|>>|>\||<>|[<>]&?")
_JOINED_LINES = re.compile(r"\\\r?\n")


class Lexer(WordReader):
    """Splits one text into commands."""

    def commands(self) -> Iterator[tuple[list[Raw], dict[str, Said[str]]]]:
        """Each command with its words, and the variables that are set where it stands."""
        self._heredocs: list[tuple[str, bool]] = []
        words: list[Raw] = []
        while self.at < len(self.text):
            if self._passed_over():
                continue
            if self.text[self.at] in _SEPARATORS and not self.plain:
                yield from self._finished(words)
                words = []
                self.at += 1
                if self.text[self.at - 1] == "\n":
                    self._skip_heredocs()
                continue
            got = self.word()
            if self.plain or not self._is_file_number(got):
                words += got
        yield from self._finished(words)

    def _passed_over(self) -> bool:
        """Pass over what is neither a word nor ends a command: spaces, joined lines, comments, redirections, lines of a Makefile."""
        letter = self.text[self.at]
        if self.make and self._starts_line() and self._make_assignment():
            return True
        if letter in " \t\r" or (self.plain and letter == "\n"):
            self.at += 1
        elif (joined := _JOINED_LINES.match(self.text, self.at)) is not None:
            self.at = joined.end()
        elif letter == "#" and not self.plain:
            self.skip_line()
        elif letter in "<>" and not self.plain:
            self._redirection()
        else:
            return False
        return True

    def _finished(self, words: list[Raw]) -> Iterator[tuple[list[Raw], dict[str, Said[str]]]]:
        """Give a command without the variables and reserved words in front of it."""
        own: dict[str, Said[str]] = {}
        rest = words if self.plain else words[self._leading(words, own) :]
        if rest and rest[0].value in _SETTERS and not self.plain:
            for word in rest[1:]:
                self._assign(own, word)
            rest = []
        if not rest:
            for name, said in own.items():
                self.put(name, said)
            return
        if self.make:
            rest[0].value = rest[0].value.lstrip("@-+") or rest[0].value
        yield rest, ({**self._variables(), **own} if own else self._variables())

    def _leading(self, words: list[Raw], own: dict[str, Said[str]]) -> int:
        """How many words stand before a command: variables, which are taken, and reserved words."""
        for index, word in enumerate(words):
            if not self._assign(own, word) and (word.quoted or word.value not in _RESERVED):
                return index
            self.conditions = max(0, self.conditions + _CONDITIONS.get(word.value, 0))
        return len(words)

    def _variables(self) -> dict[str, Said[str]]:
        """The variables as they are now; commands between which none is set share them."""
        if self.snapshot is None:
            self.snapshot = dict(self.environment)
        return self.snapshot

    def _assign(self, own: dict[str, Said[str]], word: Raw) -> bool:
        """Take a word that sets a variable; false for any other."""
        match = ASSIGNMENT.match(word.value) if ASSIGNMENT.match(word.written) else None
        if match is None:
            return False
        name, more = match[1], match[2]
        value = word.value[match.end() :]
        before = own.get(name) or self.environment.get(name)
        if more and before is not None:
            value = before.value + value
        if self.conditions and word.unknown is not None and before is not None:
            return True  # see the same for arrays
        self.lost.pop(name, None)
        if word.unknown is not None:
            self.lost[name] = word.unknown
        own[name] = Said(value[:LONGEST_VARIABLE], word.place, word.written)
        return True

    def _starts_line(self) -> bool:
        return self.at == 0 or self.text[self.at - 1] == "\n"

    def _make_assignment(self) -> bool:
        """Read ``NAME := value`` of a Makefile, and pass over the names of targets."""
        end = self.text.find("\n", self.at)
        line = self.text[self.at : len(self.text) if end < 0 else end]
        if line.startswith("\t") or line.endswith("\\"):
            return False
        match = _MAKE_ASSIGNMENT.match(line)
        if match is None and not _MAKE_TARGET.match(line):
            return False
        if match is not None:
            place = self.where()
            lexer = WordReader(
                f'"{match[2].split("#")[0].strip().replace(chr(34), "")}"', place, self.environment, make=True
            )
            words = lexer.word()
            value = "".join(word.value for word in words)
            if any(word.unknown for word in words):
                self.lost[match[1]] = next(word.unknown for word in words if word.unknown)
            self.put(match[1], Said(value[:LONGEST_VARIABLE], place, line))
        self.at += len(line)
        return True

    def _is_file_number(self, words: list[Raw]) -> bool:
        """Whether a word is the number before ``>``."""
        return len(words) == 1 and words[0].written.isdecimal() and self.text[self.at : self.at + 1] in {"<", ">"}

    def _redirection(self) -> None:
        """Pass over a redirection and its target; the lines of ``<<END`` are passed over when the line ends."""
        text = self.text
        match = _REDIRECTION.match(text, self.at)
        operator = match[0] if match else text[self.at]
        if operator in {"<(", ">("}:
            self.at = self.closed(self.at + 1)
            return
        self.at += len(operator)
        while self.at < len(text) and text[self.at] in " \t":
            self.at += 1
        if self.at >= len(text) or text[self.at] in _SEPARATORS:
            return
        target = self.word()
        if operator in {"<<", "<<-"} and target:
            self._heredocs.append((re.sub(r"[\\'\"]", "", target[0].written), operator == "<<-"))

    def _skip_heredocs(self) -> None:
        for end, indented in self._heredocs:
            while self.at < len(self.text):
                stop = self.text.find("\n", self.at)
                stop = len(self.text) if stop < 0 else stop
                line = self.text[self.at : stop]
                self.at = stop + 1
                if (line.lstrip("\t") if indented else line).rstrip("\r") == end:
                    break
        self._heredocs = []
