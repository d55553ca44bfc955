"""The words of shell text: quotes, backslashes and variables, one word after the other, without running anything."""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass

from ..errors import RoofplanError, SpecError
from .arithmetic import worked_out
from .record import Place, Said

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
_PLAIN = re.compile(r"[^\s\\'\"$`;&|()<>]+")
_PLAIN_SPLIT = re.compile(r"[^\s\\'\"]+")  # where only quotes and spaces count
_IN_QUOTES = re.compile(r'[^"\\$`]+')
_ANSI = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_MOST_EXPANDED = 100_000  # letters that variables of one text may become
LONGEST_VARIABLE = 10_000
_MOST_VARIABLES = 500
_DEEPEST_BRACKETS = 50
_ENDS_ARRAY = ("", '"', " ", "\t", "\r", "\n", ";", "&", "|", ")")


@dataclass(slots=True)
class Raw:
    """A word: what it means, where it stands, how it is written, and why its meaning may be unknown."""

    value: str
    place: Place
    written: str
    unknown: RoofplanError | None = None
    quoted: bool = False


@dataclass(slots=True)
class _Word:
    """A word under construction; an expansion without quotes may turn it into several."""

    place: Place
    start: int
    parts: list[str]
    done: list[str]
    unknown: RoofplanError | None = None
    quoted: bool = False
    begun: bool = False
    items: list[Raw] | None = None  # of an array that is all of the word: they keep their own places


class WordReader:
    """Reads the words of one text.

    Parameters
    ----------
    text : shell text
    place : of its first letter
    environment : variables that are set; grows as the text sets more
    make : whether it is a Makefile
    plain : whether only quotes and spaces count
    """

    def __init__(
        self, text: str, place: Place, environment: dict[str, Said[str]], *, make: bool = False, plain: bool = False
    ) -> None:
        self.text = text
        self.place = place
        self.environment = environment
        self.arrays: dict[str, list[Raw]] = {}
        self.lost: dict[str, RoofplanError] = {}
        self.problems: list[RoofplanError] = []
        self.conditions = 0  # how many an "if" stands around
        self.make = make
        self.plain = plain
        self.at = 0
        self._ends = [match.start() for match in re.finditer("\n", text)]
        self.snapshot: dict[str, Said[str]] | None = None
        self._expanded = 0

    # -------------------------------------------------------------------------------------------- words

    def word(self) -> list[Raw]:
        """Read one word; an expansion without quotes may give none or several."""
        word = _Word(self.where(), self.at, [], [])
        text = self.text
        while self.at < len(text):
            letter = text[self.at]
            if letter in " \t\r\n" or (not self.plain and letter in ";&|()<>"):
                if letter == "(" and self._array(word):
                    return []
                break
            if letter == "\\":
                self._escaped(word)
            elif letter == "'":
                self._single(word)
            elif letter == '"':
                self._double(word)
            elif not self.plain and letter in "$`":
                self._expansion(word, quoted=False)
            else:
                match = (_PLAIN_SPLIT if self.plain else _PLAIN).match(text, self.at)
                piece = match[0] if match else letter
                word.parts.append(piece)
                word.begun = True
                self.at += len(piece)
        if word.items is not None and not word.parts and not word.done:
            return list(word.items)
        written = text[word.start : self.at]
        if word.begun or word.parts:
            word.done.append("".join(word.parts))
        return [Raw(value, word.place, written, word.unknown, word.quoted) for value in word.done]

    def _escaped(self, word: _Word) -> None:
        after = self.text[self.at + 1 : self.at + 2]
        if after == "\n":
            self.at += 2
            return
        word.parts.append(after or "\\")
        word.begun = True
        self.at += 2 if after else 1

    def _single(self, word: _Word) -> None:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            self._unclosed("'")
            return
        word.parts.append(self.text[self.at + 1 : end])
        word.begun = word.quoted = True
        self.at = end + 1

    def _double(self, word: _Word) -> None:
        opened = self.at
        self.at += 1
        word.begun = word.quoted = True
        text = self.text
        while self.at < len(text):
            letter = text[self.at]
            if letter == '"':
                self.at += 1
                return
            if letter == "\\":
                after = text[self.at + 1 : self.at + 2]
                if after != "\n":
                    word.parts.append(after if after and after in '$`"\\' else "\\" + after)
                self.at += 2
            elif letter in "$`" and not self.plain:
                self._expansion(word, quoted=True)
            else:
                match = _IN_QUOTES.match(text, self.at)
                piece = match[0] if match else letter
                word.parts.append(piece)
                self.at += len(piece)
        self.at = opened
        self._unclosed('"')

    def _unclosed(self, quote: str) -> None:
        """Say that a quote is not closed: what follows cannot be told apart any more."""
        place = str(self.where())
        self.problems.append(SpecError("command", got=f"{quote} without its end", wanted="both quotes", where=place))
        self.at = len(self.text)

    def _array(self, word: _Word) -> bool:
        """Read ``NAME=(words)`` and ``NAME+=(words)``."""
        match = ASSIGNMENT.fullmatch("".join(word.parts))
        if match is None or self.plain:
            return False
        self.at += 1
        items: list[Raw] = []
        while self.at < len(self.text) and self.text[self.at] != ")":
            letter = self.text[self.at]
            if letter in " \t\r\n":
                self.at += 1
            elif letter == "#":
                self.skip_line()
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
            elif letter in ";&|(<>":
                self.at += 1
            else:
                items += self.word()
        self.at += 1
        # What is added under a condition and cannot be told belongs to a case that the text alone does not bring about.
        if self.conditions and match[2] and any(item.unknown is not None for item in items):
            return True
        kept = self.arrays.setdefault(match[1], [])
        if not match[2]:
            kept.clear()
        kept.extend(items[: LONGEST_VARIABLE - len(kept)])
        if self.environment.pop(match[1], None) is not None:
            self.snapshot = None
        return True

    def skip_line(self) -> None:
        """Go to the end of the line."""
        end = self.text.find("\n", self.at)
        self.at = len(self.text) if end < 0 else end

    def put(self, name: str, said: Said[str]) -> None:
        """Set a variable."""
        if name in self.environment or len(self.environment) < _MOST_VARIABLES:
            self.environment[name] = said
            self.snapshot = None

    # -------------------------------------------------------------------------------------------- expansions

    def _expansion(self, word: _Word, *, quoted: bool) -> None:
        text, start = self.text, self.at
        if text[start] == "`":
            end = text.find("`", start + 1)
            self.at = len(text) if end < 0 else end + 1
            self._refuse(word, start, "a command in backticks")
            return
        after = text[start + 1 : start + 2]
        if self.make and after == "$":
            self.at += 1  # the second one is the shell's
            start, after = self.at, text[self.at + 1 : self.at + 2]
        elif self.make and after in {"(", "{"}:
            self._make_variable(word, start, after, quoted=quoted)
            return
        if after == "'" and not quoted:
            self._ansi(word, start)
        elif after == '"' and not quoted:
            self.at = start + 1  # a text to be translated
        elif after == "(":
            self.at = self.closed(start + 1)
            self._put_arithmetic(word, start, text[start : self.at], quoted=quoted)
        elif after == "{":
            end = self.closed(start + 1, "{", "}")
            self.at = end
            self._braced(word, start, text[start + 2 : end - 1], quoted=quoted)
        elif (match := _NAME.match(text, start + 1)) is not None:
            self.at = match.end()
            self._put_variable(word, start, match[0], quoted=quoted)
        elif after and after in "@*#?!$-0123456789":
            self.at = start + 2
            self._special(word, start, after)
        else:
            word.parts.append("$")
            word.begun = True
            self.at = start + 1

    def _put_arithmetic(self, word: _Word, start: int, written: str, *, quoted: bool) -> None:
        """Put what ``$((…))`` makes of known numbers; commands are refused."""
        is_sum = written.startswith("$((") and written.endswith("))")
        value = worked_out(written[3:-2], self.environment) if is_sum else None
        if value is None:
            self._refuse(word, start, _cut(written))
        else:
            self._put(word, str(value), quoted=quoted)

    def _ansi(self, word: _Word, start: int) -> None:
        """Read ``$'…'``, in which a backslash may stand before a quote."""
        match = _ANSI.match(self.text, start)
        if match is None:
            self._unclosed("'")
            return
        word.parts.append(re.sub(r"\\(.)", lambda one: _ESCAPES.get(one[1], one[1]), match[1], flags=re.DOTALL))
        word.begun = word.quoted = True
        self.at = match.end()

    def _special(self, word: _Word, start: int, name: str) -> None:
        """Arguments of the script: a file that is run as it stands has none."""
        if name in "@*":
            if word.quoted and not word.parts and self.text[self.at : self.at + 1] == '"':
                word.begun = False  # "$@" without arguments is no word at all
            return
        self._refuse(word, start, f"${name}")

    def _make_variable(self, word: _Word, start: int, bracket: str, *, quoted: bool) -> None:
        self.at = self.closed(start + 1, bracket, ")" if bracket == "(" else "}")
        name = self.text[start + 2 : self.at - 1]
        if _NAME.fullmatch(name):
            self._put_variable(word, start, name, quoted=quoted)
        else:
            self._refuse(word, start, _cut(self.text[start : self.at]))

    def _braced(self, word: _Word, start: int, inside: str, *, quoted: bool) -> None:
        """Read what stands between ``${`` and ``}``."""
        match = _NAME.match(inside)
        if match is None:
            self._braced_argument(word, start, inside, quoted=quoted)
            return
        name, rest = match[0], inside[match.end() :]
        operator = re.match(r":?[-=+?]", rest)
        if rest in {"[@]", "[*]"} and name in self.arrays:
            self._put_array(word, name)
        elif not rest:
            self._put_variable(word, start, name, quoted=quoted)
        elif operator is None or name in self.lost:
            self._refuse(word, start, _cut("${" + inside + "}"), name)
        else:
            self._conditional(word, start, name, operator[0], rest[operator.end() :], quoted=quoted)

    def _braced_argument(self, word: _Word, start: int, inside: str, *, quoted: bool) -> None:
        """``${1:-x}``: arguments of the script, which a file that is run as it stands does not have."""
        special = re.fullmatch(r"([0-9@*])(?::?-(.*))?", inside, re.DOTALL)
        if special is None:
            self._refuse(word, start, _cut("${" + inside + "}"))
        elif special[2] is not None:
            self._put(word, self._inner(special[2], word), quoted=quoted)
        else:
            self._special(word, start, special[1])

    def _conditional(self, word: _Word, start: int, name: str, operator: str, other: str, *, quoted: bool) -> None:
        """``${NAME:-x}`` and its kind: one value where a variable is set, another where it is not (POSIX 2.6.2)."""
        said = self.environment.get(name)
        empty = said is None or (operator.startswith(":") and not said.value)
        kind = operator[-1]
        if kind == "+":
            self._put(word, "" if empty else self._inner(other, word), quoted=quoted)
        elif not empty and said is not None:
            self._put(word, said.value, quoted=quoted)
        elif kind == "?":
            self._refuse(word, start, f"${name}, which is set nowhere", name)
        else:
            value = self._inner(other, word)
            if kind == "=":
                self.put(name, Said(value, word.place, other))
            self._put(word, value, quoted=quoted)

    def _inner(self, text: str, word: _Word) -> str:
        """What stands for a variable that is not set: itself shell text."""
        if "$" not in text and "`" not in text and "\\" not in text:
            return text.replace('"', "").replace("'", "")
        if len(text) > LONGEST_VARIABLE or text.count("${") > _DEEPEST_BRACKETS:
            word.unknown = SpecError("command", got=_cut(text), wanted="a shorter expression", where=str(word.place))
            return ""
        lexer = WordReader(f'"{text.replace(chr(34), "")}"', word.place, self.environment)
        lexer.arrays, lexer.lost = self.arrays, self.lost
        found = lexer.word()
        for raw in found:
            word.unknown = word.unknown or raw.unknown
        return "".join(raw.value for raw in found)

    def _put_variable(self, word: _Word, start: int, name: str, *, quoted: bool) -> None:
        if name in self.lost:
            word.unknown = word.unknown or self.lost[name]
            word.parts.append(self.text[start : self.at])
            word.begun = True
        elif name in self.environment:
            self._put(word, self.environment[name].value, quoted=quoted)
        elif name in self.arrays:
            self._put_array(word, name)
        else:
            self._refuse(word, start, f"${name}, which is set nowhere", name)

    def _put_array(self, word: _Word, name: str) -> None:
        items = list(self.arrays[name])
        self._expanded += sum(len(item.value) + 1 for item in items)
        if self._expanded > _MOST_EXPANDED:
            word.unknown = SpecError(
                "command", got="variables without end", wanted="a shorter text", where=str(word.place)
            )
            return
        if word.items is None and not word.parts and not word.done and self.text[self.at : self.at + 1] in _ENDS_ARRAY:
            word.items, word.begun = items, False
            return
        for index, item in enumerate(items):
            word.unknown = word.unknown or item.unknown
            if index:
                word.done.append("".join(word.parts))
                word.parts = []
            word.parts.append(item.value)
        if items:
            word.begun = True
        else:
            word.begun = False

    def _put(self, word: _Word, value: str, *, quoted: bool) -> None:
        """Put what a variable holds into a word; without quotes its spaces end words."""
        self._expanded += len(value)
        if self._expanded > _MOST_EXPANDED:
            word.unknown = SpecError(
                "command", got="variables without end", wanted="a shorter text", where=str(word.place)
            )
            return
        if quoted or not re.search(r"[ \t\n]", value):
            word.parts += [value] if value else []
            word.begun = word.begun or bool(value)
            return
        pieces = value.split()
        if value[0].isspace() and word.parts:
            self._end_piece(word)
        for index, piece in enumerate(pieces):
            if index:
                self._end_piece(word)
            word.parts.append(piece)
            word.begun = True
        if pieces and value[-1].isspace():
            self._end_piece(word)

    @staticmethod
    def _end_piece(word: _Word) -> None:
        word.done.append("".join(word.parts))
        word.parts, word.begun = [], False

    def _refuse(self, word: _Word, start: int, got: str, variable: str = "") -> None:
        hint = f"set {variable} in the file, or write its value" if variable else "write its value"
        place = str(self.where(start))
        wanted = "a value that is known without running it"
        word.unknown = word.unknown or SpecError("command", got=got, wanted=wanted, hint=hint, where=place)
        word.parts.append(self.text[start : self.at])
        word.begun = True

    def closed(self, start: int, opening: str = "(", closing: str = ")") -> int:
        """The index behind the bracket that closes the one at an index; the text's end where none does."""
        depth, at, quote = 0, start, ""
        while at < len(self.text):
            letter = self.text[at]
            if letter == "\\":
                at += 1
            elif quote:
                quote = "" if letter == quote else quote
            elif letter in "'\"":
                quote = letter
            elif letter == opening:
                depth += 1
            elif letter == closing:
                depth -= 1
                if not depth:
                    return at + 1
            at += 1
        return self._unfinished(start, opening)

    def _unfinished(self, start: int, opening: str) -> int:
        place = str(self.where(start))
        self.problems.append(
            SpecError("command", got=f"{opening} without its end", wanted="both brackets", where=place)
        )
        return len(self.text)

    def where(self, at: int | None = None) -> Place:
        """The place of an index."""
        at = self.at if at is None else at
        line = bisect.bisect_left(self._ends, at)
        start = self._ends[line - 1] + 1 if line else 0
        column = at - start + (self.place.column if line == 0 else 1)
        return Place(self.place.file, self.place.line + line, column)


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"
