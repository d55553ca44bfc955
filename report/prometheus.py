"""A plan as metrics of Prometheus, in its text format: https://prometheus.io/docs/instrumenting/exposition_formats/.

Units are base units and stand at the end of a name. Every metric carries ``plan``, a mark of all that was asked, so that plans lie
beside each other in a folder of the textfile collector; ``roofplan_plan_info`` says what was asked. Times and rates have an ``estimate``:
the roof (``bound``), and ``low``, ``expected`` and ``high``. What is not known has no sample.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import __version__
from ..errors import show
from ..planner.ranges import Range

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..planner.sizing import SizeResult

_ESTIMATES = ("bound", "low", "expected", "high")
_LONGEST = 200  # characters of a label
_ASKED = (
    "engine_version",
    "devices",
    "tp",
    "pp",
    "dp",
    "ep",
    "cp",
    "weights",
    "kv",
    "prompt",
    "output",
    "concurrency",
    "rate",
)


class Metric(NamedTuple):
    """One metric: its name, its help, and its samples (labels and value)."""

    name: str
    help: str
    samples: tuple[tuple[Mapping[str, str], float], ...]


def to_prometheus(result: SizeResult) -> str:
    """All metrics of a sizing, each with its help and type; the same plan gives the same text."""
    asked = result.inputs()
    plan = {
        "plan": hashlib.sha256(json.dumps(asked, sort_keys=True).encode("utf-8")).hexdigest()[:12],
        "model": str(asked["model"]),
        "hardware": str(asked["hardware"]),
        "engine": str(asked["engine"]),
    }
    lines: list[str] = []
    for name, told, samples in (_info(asked), *metrics(result)):
        if samples:
            lines += [f"# HELP {name} {_help(told)}", f"# TYPE {name} gauge"]
            lines += [f"{name}{{{_labels({**plan, **labels})}}} {_number(value)}" for labels, value in samples]
    return "".join(f"{line}\n" for line in lines)


def _info(asked: Mapping[str, Any]) -> Metric:
    labels = {name: str(asked[name]) for name in _ASKED if asked.get(name) not in {None, ""}}
    return Metric("roofplan_plan_info", "What was planned; always 1.", (({**labels, "roofplan": __version__}, 1),))


def metrics(result: SizeResult) -> Iterator[Metric]:
    """The metrics of a sizing."""
    memory, capacity, model, kv = result.memory, result.capacity, result.model, result.kv
    yield _one("roofplan_fits", "Whether all sequences of the workload fit at their full length.", result.fits)
    yield _one("roofplan_devices", "Devices of all replicas.", result.deployment.layout.devices)
    yield _one("roofplan_model_parameters", "Parameters of the model.", model.parameters_total)
    yield _one("roofplan_model_weights_bytes", "Weights of one replica as stored.", model.weights_bytes)
    yield _one("roofplan_device_memory_bytes", "Memory of a device.", memory.total_bytes)
    yield _one("roofplan_device_memory_usable_bytes", "What the engine may use of it.", memory.budget_bytes)
    parts = {
        "weights": memory.weights_bytes,
        "adapters": memory.adapter_bytes,
        "activations": memory.activation_bytes,
        "runtime": memory.non_torch_bytes,
        "graphs": memory.graph_bytes,
        "kv_cache": memory.kv_budget_bytes,
    }
    samples = tuple(({"part": part}, float(size)) for part, size in parts.items())
    yield Metric(
        "roofplan_device_memory_part_bytes", "Parts of a device's memory; negative: so much is short.", samples
    )
    yield _one(
        "roofplan_device_memory_free_bytes", "Cache that the workload leaves free on a device.", memory.free_bytes
    )
    yield _one(
        "roofplan_kv_cache_token_bytes", "Cache that one token of a sequence adds, over a replica.", kv.bytes_per_token
    )
    yield _one("roofplan_kv_cache_sequence_bytes", "Cache of a sequence at its full length.", kv.bytes_per_sequence)
    yield _one("roofplan_kv_cache_tokens", "Tokens that the caches of all replicas hold.", capacity.kv_tokens)
    yield _one("roofplan_max_sequences", "Sequences of full length that fit at a time.", capacity.max_concurrency)
    yield _one("roofplan_max_context_tokens", "Longest single sequence.", capacity.max_context)
    if result.times is not None:
        latency, rate = result.times.latency, result.times.throughput
        yield _spread("roofplan_ttft_seconds", "Time to first token at this load, waiting included.", latency.ttft_s)
        yield _spread("roofplan_ttft_alone_seconds", "Time to first token on an idle server.", latency.ttft_alone_s)
        yield _spread(
            "roofplan_ttft_burst_seconds", "The same when all begin together: the mean.", latency.ttft_burst_s
        )
        yield _spread("roofplan_tpot_seconds", "Time per output token after the first.", latency.tpot_s)
        yield _spread("roofplan_itl_seconds", "Gap between tokens in a step without a prefill.", latency.itl_s)
        yield _spread("roofplan_e2e_seconds", "From a request to its last token.", latency.e2e_s)
        yield _spread("roofplan_output_tokens_per_second", "Output of all devices.", rate.output_tokens_per_s)
        yield _spread("roofplan_total_tokens_per_second", "Input and output of all devices.", rate.total_tokens_per_s)
        yield _spread("roofplan_user_tokens_per_second", "Output of one request.", rate.per_user_tokens_per_s)
    bound = {"prefill": result.prefill_limit, "decode": result.decode_limit}
    limits = tuple(({"phase": phase, "limit": limit}, 1.0) for phase, limit in bound.items() if limit is not None)
    yield Metric("roofplan_bottleneck_info", "What limits a phase; always 1.", limits)
    yield _one("roofplan_warnings", "Warnings of the plan.", len(result.warnings))


def _one(name: str, told: str, value: float | None) -> Metric:
    return Metric(name, told, () if value is None else (({}, value),))


def _spread(name: str, told: str, value: Range | None) -> Metric:
    samples = () if value is None else tuple(({"estimate": one}, getattr(value, one)) for one in _ESTIMATES)
    return Metric(name, told, samples)


def _number(value: float) -> str:
    return repr(float(value)) if isinstance(value, float) and not value.is_integer() else str(int(value))


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_label(value)}"' for name, value in labels.items())


def _label(text: str) -> str:
    """A label's value: controls are escaped as everywhere, then what the format escapes."""
    return show(text, _LONGEST).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
