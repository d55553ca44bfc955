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
    from .api.caches import error_budget
    from .api.claiming import claim
    from .api.comparisons import compare
    from .api.presets import figure
    from .api.roofs import roofline
    from .api.speculation import speculate
    from .api.sweeps import sweep
    from .errors import RoofplanError
    from .planner.advice import Advice
    from .planner.caching import KvResult
    from .planner.claim_gains import GainResult
    from .planner.claims import ClaimResult
    from .planner.comparing import CompareResult
    from .planner.error_budget import BudgetResult
    from .planner.presets.drawing import PresetResult
    from .planner.roofline_answer import MeasuredPoint, RooflineResult
    from .planner.speculation import SpeculationResult
    from .planner.sweeping import SweepResult

__version__ = "0.1.0"

# What stands where: nothing is imported before it is asked for.
_HOMES = {
    "Advice": "planner.advice",
    "BudgetResult": "planner.error_budget",
    "ClaimResult": "planner.claims",
    "CompareResult": "planner.comparing",
    "GainResult": "planner.claim_gains",
    "KvResult": "planner.caching",
    "MeasuredPoint": "planner.roofline_answer",
    "PresetResult": "planner.presets.drawing",
    "RooflineResult": "planner.roofline_answer",
    "RoofplanError": "errors",
    "SizeResult": "api",
    "SpeculationResult": "planner.speculation",
    "SweepResult": "planner.sweeping",
    "advise": "api.advising",
    "claim": "api.claiming",
    "compare": "api.comparisons",
    "deployment": "api",
    "error_budget": "api.caches",
    "figure": "api.presets",
    "kv": "api",
    "roofline": "api.roofs",
    "size": "api",
    "speculate": "api.speculation",
    "sweep": "api.sweeps",
}

__all__ = [
    "Advice",
    "BudgetResult",
    "ClaimResult",
    "CompareResult",
    "GainResult",
    "KvResult",
    "MeasuredPoint",
    "PresetResult",
    "RooflineResult",
    "RoofplanError",
    "SizeResult",
    "SpeculationResult",
    "SweepResult",
    "__version__",
    "advise",
    "claim",
    "compare",
    "deployment",
    "error_budget",
    "figure",
    "kv",
    "roofline",
    "size",
    "speculate",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
