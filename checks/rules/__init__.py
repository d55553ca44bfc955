"""The rules, one file each: a new rule is a new file with one ``RULE``."""

from __future__ import annotations

import difflib
import functools
import pkgutil
from importlib import import_module

from ..finding import Rule


@functools.cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, by id."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted((import_module(f".{name}", __package__).RULE for name in names), key=lambda rule: rule.id))


def closest_rule(name: str) -> str:
    """The id that is spelled most like a name; empty where none is."""
    near = difflib.get_close_matches(name.lower().replace("_", "-"), [rule.id for rule in all_rules()], n=1)
    return near[0] if near else ""
