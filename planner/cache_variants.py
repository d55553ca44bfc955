"""Variants of a cache beside the model as it is: bytes, the work of decode attention, reach, exactness, and what a device makes of them.

Bytes are those of :mod:`~roofplan.planner.kv_cache`, work that of the operators of a step, and times those of the step models, so that a
variant is counted in no other way than a model of the catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..hardware.spec import HardwareSpec, Memory, Peak
from .costs import Load
from .evidence import evidence_of
from .kv_cache import CacheLayout, cache_layout
from .memory import plan_capacity, plan_memory
from .notices import assumptions_of
from .operators import build_operators
from .parallel import SINGLE, check_layout
from .ranges import Range
from .reached import reached_model
from .results import Assumption, Explanation
from .sizing import deployment_inputs
from .step import StepModel
from .variant_text import LOCAL_WINDOW
from .variants import reach, same_layers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..engines.spec import NumberFormat
    from ..models.spec import ModelSpec
    from .deployment import Deployment
    from .variant_text import Variant

# Work is counted without a device: latents are then absorbed, which is what moves fewest bytes.
ANY_DEVICE = HardwareSpec(
    schema="roofplan/hardware/v1",
    name="any device",
    memory=Memory(nameplate=1, bandwidth=1.0),
    peak=Peak(),
    evidence=(),
)


@dataclass(frozen=True, slots=True)
class DecodeWork:
    """Attention of one decode step of one sequence, over all layers and the whole replica (formulas F1.6, F2.6, F2.8).

    Parameters
    ----------
    flop : of scores and weighted values, and of indexers and recurrent states
    cache_bytes : that are read (and, of states, written), recent entries that a format keeps in 16 bits as such
    vector_bytes : of queries and outputs
    """

    flop: float
    cache_bytes: float
    vector_bytes: float

    @property
    def intensity(self) -> float | None:
        """FLOP per byte of cache and vectors; None where nothing is read."""
        moved = self.cache_bytes + self.vector_bytes
        return self.flop / moved if moved else None

    @classmethod
    def of(cls, d: Deployment, context: int) -> DecodeWork:
        """Count it; the device of the deployment does not matter."""
        whole = replace(d, hardware=ANY_DEVICE, layout=SINGLE)
        load, flop, cache, vectors = Load(1, context), 0.0, 0.0, 0.0
        for operator in build_operators(whole):
            if operator.part == "decode attention" and getattr(operator, "phase", "decode") == "decode":
                cost = operator.cost(load)
                flop, cache, vectors = flop + cost[0], cache + cost[2], vectors + cost[3]
        return cls(flop, cache, vectors)


@dataclass(frozen=True, slots=True)
class Served:
    """What a device makes of it, for sequences that all have the context.

    Parameters
    ----------
    max_batch : sequences that fit at a time
    binds : whether the cache or the engine's limit of sequences decides it
    batch : sequences that decode together: as many as were asked for, or fit
    tpot_s : time per output token with them, prompts of others left out; None where nothing fits or can be timed
    largest_tpot_s, largest_rate : the same, and output tokens/s, with ``max_batch`` sequences
    step_flop, step_bytes : of a step with ``batch`` sequences on one device: products and attention, weights and cache
    budget_bytes, sequence_bytes : what a device has for the cache, and what a sequence takes of it
    reason : a code of why there are no times; empty where there are
    """

    max_batch: int
    binds: str
    batch: int
    tpot_s: Range | None
    largest_tpot_s: Range | None
    largest_rate: Range | None
    step_flop: float
    step_bytes: float
    budget_bytes: int
    sequence_bytes: int
    reason: str = ""

    @property
    def intensity(self) -> float:
        """FLOP per byte of the step."""
        return self.step_flop / self.step_bytes

    @classmethod
    def of(cls, d: Deployment, context: int) -> Served:
        """Size a deployment whose sequences have the context, without prompts in its steps.

        Raises
        ------
        SpecError : when the device has no rate for an arithmetic type that is needed
        """
        plan = plan_memory(d)
        capacity = plan_capacity(d, plan)
        largest, binds = capacity.max_concurrency, capacity.binds
        nominal = StepModel.of(d)
        batch = min(d.workload.concurrency, largest)
        flop, weights, cache = nominal.totals(Load(batch or d.workload.concurrency, context))
        work = float(flop), float(weights + cache), plan.kv_budget_bytes, plan.kv_bytes_per_sequence
        if not largest or not d.hardware.has_rates:
            reason = "no_dense_rate" if largest else "does_not_fit"
            return cls(largest, binds, batch, None, None, None, *work, reason)
        reached, width = reached_model(d), evidence_of(d).width

        def tpot(decoders: int) -> Range:
            bound = float(nominal.step_s(decoders, context))
            return Range.of_time(bound, float(reached.step_s(decoders, context)), width)

        slowest = tpot(largest)
        rate = Range.of_rate(largest / slowest.bound, largest / slowest.expected, width)
        return cls(largest, binds, batch, tpot(batch), slowest, rate, *work)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, in base units."""
        return {
            "max_batch": self.max_batch,
            "max_batch_binds": self.binds,
            "batch": self.batch,
            "tpot_s": self.tpot_s,
            "largest_batch_tpot_s": self.largest_tpot_s,
            "largest_batch_output_tokens_per_s": self.largest_rate,
            "step_flop_per_device": self.step_flop,
            "step_bytes_per_device": self.step_bytes,
            "step_flop_per_byte": self.intensity,
            "reason": self.reason or None,
        }


@dataclass(frozen=True, slots=True)
class CacheRow:
    """One cache: of the model as it is (``variant`` is None), or of a variant."""

    variant: Variant | None
    model: ModelSpec
    kv_format: NumberFormat
    context: int
    whole: CacheLayout
    rank: CacheLayout
    work: DecodeWork
    served: Served | None

    @property
    def name(self) -> str:
        """What was asked for."""
        return "as it is" if self.variant is None else self.variant.text

    @property
    def bytes_per_sequence(self) -> int:
        """Bytes of a sequence at the context, over the whole replica."""
        return self.whole.bytes_per_sequence(self.context)

    @property
    def reach(self) -> int | None:
        """Tokens that can reach a position through all layers, at most the context; None: the whole of it, however long."""
        return reach(self.model)

    def figures(self) -> dict[str, Any]:
        """What was found, in the shape that scripts rely on."""
        return {
            "kv_format": self.kv_format.name,
            "bytes_per_token": self.whole.bytes_per_token,
            "index_bytes_per_token": self.whole.index_bytes_per_token,
            "fixed_bytes_per_sequence": self.whole.fixed_bytes,
            "bytes_per_sequence": self.bytes_per_sequence,
            "bytes_per_token_per_device": self.rank.bytes_per_token,
            "decode": {
                "attention_flop": self.work.flop,
                "cache_bytes": self.work.cache_bytes,
                "vector_bytes": self.work.vector_bytes,
                "flop_per_byte": self.work.intensity,
            },
            "receptive_field_tokens": self.reach,
            **({} if self.served is None else {"served": self.served.to_dict()}),
        }


@dataclass(frozen=True, slots=True)
class VariantTable:
    """The model as it is, and variants of it."""

    now: CacheRow
    rows: tuple[CacheRow, ...]
    served: Deployment | None  # the model as it is on a device

    def is_exact(self, row: CacheRow) -> bool:
        """Whether a variant changes nothing at all."""
        same_format = row.kv_format == self.now.kv_format or not row.whole.terms
        return same_format and same_layers(row.model, self.now.model)

    def exact_tokens(self, row: CacheRow) -> int | None:
        """Tokens up to which a variant leaves the outputs as they are; None where that does not end, or has no meaning."""
        return None if row.variant is None or self.is_exact(row) else row.variant.exact_tokens

    def changes(self, row: CacheRow) -> dict[str, float | None]:
        """How many times the figures of the model as it is those of a variant are; None where one of both has none."""
        now, own = self.now, row
        changed: dict[str, float | None] = {
            "bytes_per_sequence": _times(own.bytes_per_sequence, now.bytes_per_sequence),
            "decode_cache_bytes": _times(own.work.cache_bytes, now.work.cache_bytes),
            "decode_attention_flop": _times(own.work.flop, now.work.flop),
        }
        if now.served is not None and own.served is not None:
            one, other = own.served, now.served
            changed["max_batch"] = _times(one.max_batch, other.max_batch)
            same = one.batch == other.batch  # times of unequal batches do not compare
            changed["tpot_s"] = _times(_expected(one.tpot_s), _expected(other.tpot_s)) if same else None
            changed["largest_batch_output_tokens_per_s"] = _times(
                _expected(one.largest_rate), _expected(other.largest_rate)
            )
        return changed

    def no_tpot_because(self, row: CacheRow) -> str | None:
        """A code of why times per token are not compared; None where they are."""
        now, own = self.now.served, row.served
        if now is None or own is None:
            return "no_device"
        if now.reason or own.reason:
            return own.reason or now.reason
        return None if now.batch == own.batch else "batches_differ"

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """What the device and the variants rest on."""
        listed = [] if self.served is None else assumptions_of(self.served, plan_memory(self.served))
        parts = [part for row in self.rows if row.variant is not None for part in row.variant.parts]
        if any(part.default_window for part in parts):
            source = "windows of Gemma 3's local layers, where interleave:LOCAL:FULL names none"
            listed.append(Assumption("interleave_window", LOCAL_WINDOW, source, "default"))
        return tuple(listed)

    def inputs(self) -> dict[str, Any]:
        """What was asked."""
        asked = {"variants": [row.name for row in self.rows]}
        if self.served is None:
            return asked
        on_device = deployment_inputs(self.served)
        return {name: value for name, value in on_device.items() if name not in {"prompt", "output"}} | asked

    def explained(self, row: CacheRow) -> Iterator[Explanation]:
        """Derive the work of decode attention, and what the device makes of it."""
        name, work, served = "now" if row.variant is None else f"variants.{row.name}", row.work, row.served
        source = f"{row.model.name} in {row.kv_format.name}, {row.context:,} tokens"
        yield Explanation(
            f"{name}.decode.flop_per_byte",
            "none" if work.intensity is None else f"{work.intensity:.4g} FLOP/B",
            "FLOP of scores and values / (cache read + queries and outputs), all layers (F1.6, F2.8)",
            f"{work.flop:.6g} / ({work.cache_bytes:.6g} + {work.vector_bytes:.6g})",
            (("cache", source, "operators of a step"),),
        )
        if served is None or self.served is None:
            return
        device = self.served.hardware.name
        yield Explanation(
            f"{name}.served.max_batch",
            f"{served.max_batch:,}",
            "floor(cache of a device / bytes of a sequence on it) (F7.5)",
            f"floor({served.budget_bytes:,} B / {served.sequence_bytes:,} B)",
            (("device", device, "its spec"), ("engine", self.served.engine.name, "its profile")),
            served.binds,
        )
        if served.tpot_s is not None:
            yield Explanation(
                f"{name}.served.tpot_s",
                f"{served.tpot_s.expected:.6g} s",
                "sum of the times of the operators of a step that decodes only (F6.3), as reached; bound: at nominal rates",
                f"{served.batch:,} sequences of {row.context:,} tokens: bound {served.tpot_s.bound:.6g} s,"
                f" 80 % between {served.tpot_s.low:.6g} and {served.tpot_s.high:.6g} s",
                (("step", f"{served.step_flop:.6g} FLOP, {served.step_bytes:.6g} B", device),),
            )

    def figures(self) -> dict[str, Any]:
        """What was found, in the shape that scripts rely on."""
        return {"now": self.now.figures(), "variants": [self._variant(row) for row in self.rows]}

    def _variant(self, row: CacheRow) -> dict[str, Any]:
        assert row.variant is not None
        return {
            "variant": row.variant.text,
            "title": row.variant.title,
            "decided": row.variant.decided,
            "exact": self.is_exact(row),
            "exact_up_to_tokens": self.exact_tokens(row),
            "why": row.variant.why,
            "source": "; ".join(part.source for part in row.variant.parts),
            "times": {**self.changes(row), "tpot_s_reason": self.no_tpot_because(row)},
            **row.figures(),
        }


def _times(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None


def _expected(figure: Range | None) -> float | None:
    return None if figure is None else figure.expected


def compare_caches(d: Deployment, served: Deployment | None, variants: Iterable[Variant], context: int) -> VariantTable:
    """Put variants of a model beside the model as it is.

    Parameters
    ----------
    d : the model with the format of its cache and the layout of its ranks; its device does not matter
    served : the same on a device, for sequences of ``context`` tokens, or None
    context : tokens of a sequence

    Raises
    ------
    DomainError : for a variant that the model cannot be changed to
    LayoutError : when the heads of a variant do not divide
    SpecError : when the device has no rate for an arithmetic type that is needed
    """
    now = _row(d, served, None, context)
    return VariantTable(now, tuple(_row(d, served, variant, context) for variant in variants), served)


def _row(d: Deployment, served: Deployment | None, variant: Variant | None, context: int) -> CacheRow:
    model, kv = d.model, d.formats.kv
    if variant is not None:
        model, kv = variant.of(model, kv)
        # Another model, which nobody has measured; a shape that it has already is the same one.
        same = same_layers(model, d.model)
        model = d.model if same else replace(model, name=f"{model.name} with {variant.text}")
        check_layout(model, d.layout)
    changed = _as_variant(d, model, kv)
    on_device = None if served is None else _as_variant(served, model, kv)
    return CacheRow(
        variant,
        model,
        kv,
        context,
        cache_layout(model, kv),
        cache_layout(model, kv, d.layout),
        DecodeWork.of(changed, context),
        None if on_device is None else Served.of(on_device, context),
    )


def _as_variant(d: Deployment, model: ModelSpec, kv: NumberFormat) -> Deployment:
    """The deployment with another model and cache format; bytes of weights that were given hold for the model as it is only."""
    memory = d.memory if model is d.model else replace(d.memory, weights_bytes=None)
    return replace(d, model=model, formats=replace(d.formats, kv=kv), memory=memory)
