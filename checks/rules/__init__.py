"""The rules, one file each: a new rule is a new file with one ``RULE``."""

from __future__ import annotations

import functools
import pkgutil
from importlib import import_module

from ..finding import Rule


@functools.cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, by id."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted((import_module(f".{name}", __package__).RULE for name in names), key=lambda rule: rule.id))
