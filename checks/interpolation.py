"""Variables of compose files, filled in before anything else is read (``${NAME:-default}``).

Their values come from the shell that runs compose and from ``.env``; neither is read here, so that only defaults are known.

Source: compose-spec/compose-go, template/template.go.
"""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import SpecError
from .record import Reading, Said

if TYPE_CHECKING:
    from .record import Service

_NAME = "[A-Za-z_][A-Za-z0-9_]*"
_VARIABLE = re.compile(rf"\$\$|\$({_NAME})|\$\{{({_NAME})(?:(:?[-+?])((?:[^{{}}$]|\$\$)*))?\}}", re.ASCII)
_LEFT = "\ue000"  # stands for a dollar sign that stays; no key of a keyboard
_ROUNDS = 8  # defaults that hold variables


def filled(said: Said[str]) -> Said[str]:
    """A text with its variables filled in; one whose value nobody knows stays as it is written."""
    text = filled_text(said.value)
    return said if text == said.value else Said(text, said.place, said.value)


@functools.lru_cache(maxsize=8)
def filled_text(text: str) -> str:
    """The same for a text without a place: a line stays the line that it is."""
    if "$" not in text:
        return text
    for _ in range(_ROUNDS):
        after = _VARIABLE.sub(_value, text)
        if after == text:
            break
        text = after
    return text.replace(_LEFT, "$")


def _value(match: re.Match[str]) -> str:
    if match[0] == "$$":
        return _LEFT
    name, operator, other = match[1] or match[2], match[3] or "", match[4] or ""
    if operator in {"-", ":-"}:
        return other
    return "" if operator in {"+", ":+"} else f"{_LEFT}{{{name}}}"


def open_variable(text: str) -> str:
    """The first variable that a text still holds; empty where there is none."""
    match = re.search(rf"\$\{{{_NAME}", text)
    return f"{match[0]}}}" if match else ""


def without_open(reading: Reading) -> Reading:
    """A reading without the services whose settings are variables that nobody knows: each is a problem."""
    services: list[Service] = []
    problems = list(reading.problems)
    for service in reading.services:
        lost = [(one, found) for one in service.options.values() if (found := open_variable(str(one.value)))]
        for one, found in lost:
            hint = "docker compose config prints the file with its variables filled in"
            wanted = "a value, or a default: ${NAME:-value}"
            problems.append(SpecError("variable", got=found, wanted=wanted, hint=hint, where=str(one.place)))
        if not lost:
            services.append(service)
    return replace(reading, services=tuple(services), problems=tuple(problems))
