"""The errors of roofplan, and the one way in which foreign text becomes printable.

An error says, in one line, where it happened, what it is about, what was found, what was wanted, and a hint. It keeps the parts, so that
a report can use them apart. The command line turns it into text and an exit code; nothing else prints.
"""

from __future__ import annotations

import enum
import unicodedata

_LONGEST_SHOWN = 120


class ExitCode(enum.IntEnum):
    """What a process of roofplan returns, and why."""

    YES = 0
    NO = 1  # the answer is no: it does not fit, a limit is missed, a claim is impossible, lint found something
    BAD_INPUT = 2  # the input is wrong, or a part of it could not be checked
    INTERNAL = 70  # a fault of ours
    INTERRUPTED = 130


def show(value: object, longest: int = _LONGEST_SHOWN) -> str:
    r"""Make foreign text safe for a terminal, a log or a table.

    Control characters (C0, DEL, C1), bidirectional and zero-width marks, surrogates and unassigned code points become visible escapes;
    what is longer than ``longest`` characters is cut.

    >>> show("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    try:
        text = str(value)
    except ValueError:  # Python refuses to print integers of thousands of digits, inside containers too
        text = f"a value of type {type(value).__name__} too long to print"
    if len(text) > longest:
        text = text[: longest - 1] + "…"
    return "".join(c if c == " " or c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    code = ord(character)
    if unicodedata.category(character) == "Zs":
        return " "
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{{{code:x}}}"


class RoofplanError(Exception):
    """Base of all errors that a user can cause.

    Parameters
    ----------
    what : the option, key or object that the error is about
    got, wanted, hint : what was found, what is accepted, and how to go on; empty where there is nothing to say
    where : file, line and column (``config.yaml:12:7``), or empty
    """

    exit_code = ExitCode.BAD_INPUT

    def __init__(self, what: str, *, got: object = "", wanted: str = "", hint: str = "", where: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.got = got
        self.wanted = wanted
        self.hint = hint
        self.where = where

    def __str__(self) -> str:
        """Give the one line: ``where: what: got X, want Y (hint)``."""
        return f"{show(self.where)}: {self.without_place}" if self.where else self.without_place

    @property
    def without_place(self) -> str:
        """The line without where it happened."""
        found = f"got {show(self.got)}" if self.got != "" else ""
        want = f"want {show(self.wanted, 400)}" if self.wanted else ""
        middle = ", ".join(part for part in (found, want) if part)
        hint = f" ({show(self.hint, 400)})" if self.hint else ""
        return show(self.what, 400) + (f": {middle}" if middle else "") + hint

    def at(self, where: str) -> RoofplanError:
        """Give the error a place, if it has none yet."""
        self.where = self.where or where
        return self


class QuantityError(RoofplanError):
    """A number, or a number with a unit, that cannot be read."""


class SpecError(RoofplanError):
    """A spec file, model configuration or weight header that is malformed or contradicts itself."""


class UnknownNameError(RoofplanError):
    """A model, device, format, engine or option that the catalogue does not hold."""


class LayoutError(RoofplanError):
    """A parallel layout that does not exist for this model and number of devices."""


class DomainError(RoofplanError):
    """A value outside the domain of a formula."""


class MeasureError(RoofplanError):
    """A measurement that cannot be made as asked: no torch, no such device, no memory, a server that does not answer as it should."""
