"""What the tests of bug cases share."""

from __future__ import annotations

import roofplan

GIB = 2**30


def figures(section: str, model: str, **options: object) -> dict[str, float]:
    """One section of the JSON of ``roofplan kv``."""
    return roofplan.kv(model, **options).to_dict()["result"][section]


def logged(utilization: float, activation: float, runtime: float) -> dict[str, object]:
    """Options of a start-up log on an H100 of which the engine saw 79.18 GiB; figures in GiB."""
    return {
        "memory_utilization": utilization,
        "device_memory": round(79.18 * GIB),
        "activation_memory": round(activation * GIB),
        "runtime_memory": round(runtime * GIB),
    }
