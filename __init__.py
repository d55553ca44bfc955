"""roofplan: the roofline and capacity-planning calculator for LLM inference.

>>> import roofplan
>>> roofplan.size("llama-3.1-8b", "h100-sxm", prompt=4096, output=512, concurrency=64).fits
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import SizeResult, deployment, kv, size
    from .api.advising import advise
    from .errors import RoofplanError
    from .planner.advice import Advice
    from .planner.caching import KvResult

__version__ = "0.1.0"

# What stands where: nothing is imported before it is asked for.
_HOMES = {
    "Advice": "planner.advice",
    "KvResult": "planner.caching",
    "RoofplanError": "errors",
    "SizeResult": "api",
    "advise": "api.advising",
    "deployment": "api",
    "kv": "api",
    "size": "api",
}

__all__ = ["Advice", "KvResult", "RoofplanError", "SizeResult", "__version__", "advise", "deployment", "kv", "size"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
