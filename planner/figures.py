"""The figures of a sizing, in groups as the JSON has them. All are in base units; times and rates are ranges."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .kv_cache import CacheLayout, cache_layout
from .parameters import stored_bytes

if TYPE_CHECKING:
    from .deployment import Deployment
    from .load import LoadState
    from .parameters import ParameterCount
    from .ranges import Range


@dataclass(frozen=True, slots=True)
class ModelFigures:
    """Parameters, and bytes of the weights: of one replica as stored, and of one decode step as read."""

    parameters_total: int
    parameters_active: int
    weights_bytes: int
    weights_bytes_read_per_step: float


@dataclass(frozen=True, slots=True)
class KvFigures:
    """Bytes of the cache of one sequence over a whole replica, and per device.

    ``bytes_per_sequence`` is in the engine's blocks, with what it keeps beside windows; the ``ideal`` ones hold nothing but the entries.
    """

    bytes_per_token: int
    index_bytes_per_token: int
    fixed_bytes_per_sequence: int
    bytes_per_sequence: int
    ideal_bytes_per_sequence: int
    bytes_per_token_per_device: int
    bytes_per_sequence_per_device: int
    ideal_bytes_per_sequence_per_device: int


@dataclass(frozen=True, slots=True)
class LatencyFigures:
    """Seconds. ``ttft_s`` is at the asked concurrency with waiting and interference, ``ttft_alone_s`` on an idle server.

    ``ttft_burst_s`` is the mean when all of them begin together.
    ``tpot_s`` is None for an output of one token, which has no gap.
    """

    ttft_s: Range
    ttft_alone_s: Range
    ttft_burst_s: Range
    tpot_s: Range | None
    itl_s: Range
    e2e_s: Range


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """Requests of a replica under load: those that run, of them those that decode, and those that wait for a place, ``queue_s`` each.

    ``queue_s`` is a part of ``ttft_s``.
    """

    running: int
    decoding: float
    waiting: int
    queue_s: float

    @classmethod
    def of(cls, load: LoadState) -> LoadFigures:
        """Those of a state."""
        return cls(load.running, load.decoding, load.waiting, load.queue_s)


@dataclass(frozen=True, slots=True)
class ThroughputFigures:
    """Tokens per second over all devices, and of one user while tokens stream (None where none do)."""

    output_tokens_per_s: Range
    total_tokens_per_s: Range
    per_user_tokens_per_s: Range | None


@dataclass(frozen=True, slots=True)
class IntensityFigures:
    """FLOP per byte of a prefill and of a decode step (weights, cache and token vectors; formula F1.7), and the ridge of the device."""

    prefill_flop_per_byte: float
    decode_flop_per_byte: float
    ridge_flop_per_byte: float | None
    arithmetic: str


@dataclass(frozen=True, slots=True)
class WorkFigures:
    """FLOP of a prefill and of a decode step, and the whole-step bounds of the deployment, in seconds.

    ``crossover_batch`` (cache bytes equal weight bytes) and ``critical_context`` are those of one tensor-parallel rank, which holds copies
    of what cannot be divided.
    """

    prefill_flop: float
    decode_flop: float
    prefill_whole_step_s: float
    decode_whole_step_s: float
    crossover_batch: float | None
    critical_context: float | None


@dataclass(frozen=True, slots=True)
class RankFigures:
    """What the closed forms of batching see of one tensor-parallel rank: its weights, its cache of a sequence, its parameters per token."""

    weight_bytes: int
    cache: CacheLayout
    parameters: float

    @classmethod
    def of(cls, d: Deployment, parameters: ParameterCount) -> RankFigures:
        """Those of the fullest rank of a deployment."""
        layout = replace(d.layout, pp=1)  # the stages of a pipeline divide weights and cache alike
        cache = cache_layout(d.model, d.formats.kv, layout, d.engine.entries)
        return cls(stored_bytes(d.model, d.formats, layout), cache, parameters.active / layout.tp)
