"""Caches in fewer bits, grouped along the tokens of a channel or along the channels of a token: bytes, time and error.

Errors are those of attention over what is read back (formula F14.5), on a synthetic head whose keys have outlier channels and on a head of
the reference transformer; beside them stands the planner's quantiser with exact scales. Keys are grouped as said, values always by token.
Time is that of unpacking in torch and attending: no kernel reads packed entries here. The predicted time has the bytes that unpacking moves
in it, which are counted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...planner.costs import Load
from ...planner.kv_schemes import outlier_heads
from ...planner.quantisation_error import attention_error, quantised_attention_error
from .attention import full_heads, tensors
from .bench import Bench, bench, copied_s, operator_s

if TYPE_CHECKING:
    from ...models.spec import Attention, ModelSpec
    from ...planner.quantisation_error import Per
    from ..machine import Machine
    from ..records import Record
    from ..timing import Limits

BITS, QUICK_BITS = (8, 4, 2), (4,)
GROUP = 32
TOKENS, QUERIES = 512, 32
QUICK_TOKENS = 256
BATCH = 4
_PER: tuple[Per, ...] = ("channel", "token")


def run(
    machine: Machine,
    model: ModelSpec | None,
    limits: Limits,
    *,
    bits: tuple[int, ...] | None = None,
    tokens: int | None = None,
    **options: Any,
) -> list[Record]:
    """Compare cache formats: ``kv_formats.bytes`` (B), ``kv_formats.attention`` (s), ``kv_formats.divergence`` (1) and its companions.

    Parameters
    ----------
    bits : of an element
    tokens : of the cache
    options : of :func:`~roofplan.measure.experiments.bench.bench`
    """
    own = bench(machine, model, limits, **options)
    begun = len(own.records)
    found = full_heads(own.spec)
    if found is None or found[1].head_dim % GROUP or found[1].value_dim % GROUP:
        own.say(f"kv_formats: {own.spec.name} has no full attention whose heads groups of {GROUP} divide")
        return []
    length = tokens or (QUICK_TOKENS if own.quick else TOKENS)
    sources = {
        "synthetic": outlier_heads(found[1].head_dim, length, QUERIES).arrays[0],
        "model": heads_of_model(own, length),
    }
    bits = bits or (QUICK_BITS if own.quick else BITS)
    for width in bits:
        for per in _PER:
            for source, arrays in sources.items():
                _errors(own, source, arrays, width, per)
    group, heads = found
    one = own.of(replace(own.spec, layers=(replace(group, count=1, attention=(heads,)),)))
    _times(one, heads, length, bits)
    return own.records[begun:]


def heads_of_model(own: Bench, length: int) -> tuple[Any, Any, Any]:
    """Queries, keys and values of one head of the last layer with full attention, from a pass over a random text."""
    from ..reference.attention import HeadAttention

    model = own.model()
    layers = [
        mixer
        for layer in model.layers
        for mixer in layer.mixers
        if isinstance(mixer, HeadAttention) and mixer.spec.kind == "full" and mixer.spec.cache == "own"
    ]
    layers[-1].keep = True
    model(model.tokens(1, length))
    assert layers[-1].kept is not None
    queries, keys, values = (kept[0, 0].cpu().double().numpy() for kept in layers[-1].kept)
    return queries[-QUERIES:], keys, values


def _errors(own: Bench, source: str, arrays: tuple[Any, Any, Any], bits: int, per: Per) -> None:
    """The error of packed tensors, beside that of the planner's quantiser."""
    import torch

    from ..reference.packing import pack

    queries, keys, values = arrays
    read_keys = pack(torch.tensor(keys), bits, per, GROUP).read(torch.float64).numpy()
    read_values = pack(torch.tensor(values), bits, "token", GROUP).read(torch.float64).numpy()
    measured = attention_error(queries, keys, values, read_keys, read_values)
    planned = quantised_attention_error(queries, keys, values, bits, keys_per=per, values_per="token", group=GROUP)
    parts = {"source": source, "bits": bits, "keys_per": per, "group": GROUP, "tokens": len(keys)}
    for name in ("divergence", "relative_key_error", "score_rms", "output_cosine"):
        figure = max(0.0, getattr(measured, name))  # cosines of what is nothing but noise may be below zero
        own.add(f"kv_formats.{name}", "1", figure, parts, predicted=max(0.0, getattr(planned, name)))


def _times(own: Bench, heads: Attention, length: int, bits: tuple[int, ...]) -> None:
    """One new token of some sequences over a plain and over packed caches of one layer."""
    import torch

    from ..reference.attention import attend
    from ..reference.counting import count_launches
    from ..reference.packing import format_of, pack

    queries, keys, values = tensors(own, heads, BATCH, 1, length)
    plain = sum(t.numel() * t.element_size() for t in (keys, values))
    load = Load(BATCH, length)

    def add(call: Any, parts: dict[str, Any], held: int, counted: int) -> None:
        unpacked = count_launches(call).small_bytes
        own.add("kv_formats.bytes", "B", held, parts, predicted=counted)
        own.add(
            "kv_formats.attention",
            "s",
            own.time(call, held),
            parts | {"bytes": held, "unpacked_bytes": unpacked},
            predict=lambda steps: operator_s(steps, "attention decode", load) + copied_s(steps, unpacked),
        )

    def over_plain() -> Any:
        with torch.inference_mode():
            return attend(queries, keys, values)

    add(over_plain, {"bits": 8 * own.element_bytes, "keys_per": "none", "tokens": length, "batch": BATCH}, plain, plain)
    for width in bits:
        for per in _PER:
            stored = pack(keys, width, per, GROUP), pack(values, width, "token", GROUP)

            def over_packed(stored: Any = stored) -> Any:
                with torch.inference_mode():
                    return attend(queries, *(packed.read(queries.dtype) for packed in stored))

            counted = format_of(width, GROUP).bytes_of(keys.numel()) + format_of(width, GROUP).bytes_of(values.numel())
            parts = {"bits": width, "keys_per": per, "tokens": length, "batch": BATCH}
            add(over_packed, parts, sum(packed.bytes for packed in stored), counted)
