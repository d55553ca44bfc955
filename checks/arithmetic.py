"""Shell arithmetic (``$((NODES * 8))``): whole numbers and variables that are known, worked out and never run.

Grammar: POSIX.1-2017, Shell and Utilities, 2.6.4 Arithmetic Expansion, as far as it is the four operations, remainders and brackets.
"""

from __future__ import annotations

import ast
import operator
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .record import Said

_LONGEST = 200  # letters
_LARGEST = 10**12
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?::?-([0-9]+))?\}|\$?([A-Za-z_]\w*)", re.ASCII)
_EXPRESSION = re.compile(r"[0-9+*/%() -]+")
_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def worked_out(text: str, environment: Mapping[str, Said[str]]) -> int | None:
    """The value of an expression; None where a variable in it is unknown or no whole number, or it holds anything else.

    >>> worked_out("2 * (3 + 1)", {})
    8
    """
    if len(text) > _LONGEST:
        return None

    def value(match: re.Match[str]) -> str:
        said = environment.get(match[1] or match[3])
        written = said.value.strip() if said is not None and said.value.strip() else match[2]
        return written if written is not None and re.fullmatch(r"[0-9]{1,12}", written) else "?"

    filled = _VARIABLE.sub(value, text).strip()  # a zero in front, which makes a number octal, is none of Python's
    if not _EXPRESSION.fullmatch(filled) or "**" in filled or "//" in filled:
        return None
    try:
        found = _value(ast.parse(filled.replace("/", "//"), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None
    return found if abs(found) <= _LARGEST else None


def _value(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=int() as number):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATIONS:
            return _OPERATIONS[type(sign)](_value(left), _value(right))
    raise ValueError
