"""Readers, one file each: a kind of file that people describe deployments in. A new reader is a new file with ``READER`` and ``ORDER``.

The first reader, in the order of their numbers, that recognises a document reads it. Each document of YAML or JSON is asked for on its own.
Text that is no YAML, and YAML that cannot be parsed (``source.parsed`` is an error), are asked for as a whole, with None for the document.
A document that nobody recognises is counted as passed over.
"""

from __future__ import annotations

import functools
import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..sources import Reader


@functools.cache
def all_readers() -> tuple[Reader, ...]:
    """Every reader, in the order in which they are asked."""
    modules = [import_module(f".{module.name}", __package__) for module in pkgutil.iter_modules(__path__)]
    readers = [module for module in modules if hasattr(module, "READER")]
    return tuple(module.READER for module in sorted(readers, key=lambda module: (module.ORDER, module.__name__)))
