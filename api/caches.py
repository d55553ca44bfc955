"""Caches by names and options: what a model keeps, what variants of it would, and the format that holds an error budget."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .. import engines, models
from ..errors import DomainError
from ..models.spec import Attention, ModelSpec
from ..planner.parallel import Layout
from .building import check_context, deployment, loaded
from .options import optional_count, optional_tokens, read_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from os import PathLike

    from ..hardware.spec import HardwareSpec
    from ..planner.caching import KvResult
    from ..planner.deployment import Deployment
    from ..planner.error_budget import BudgetResult, Choice
    from .options import Options, Quantity, Whole

_SHORTEST = 2  # tokens of a sequence that is served: a prompt and an output


def kv(
    model: str | PathLike[str] | ModelSpec,
    *,
    context: Whole | None = None,
    kv: str | None = None,
    tp: Whole | None = None,
    variants: str | Iterable[str] = (),
    on: str | PathLike[str] | HardwareSpec | None = None,
    concurrency: Whole | None = None,
    weights: str | None = None,
    engine: str | None = None,
    memory_utilization: float | str | None = None,
    device_memory: Quantity | None = None,
    error_budget: str | None = None,
    tensors: str | PathLike[str] | None = None,
    strict: bool = False,
) -> KvResult:
    """Count the cache of one sequence, compare variants of it, and choose a format that holds an error budget.

    Parameters
    ----------
    context : tokens of a sequence; defaults to 8192 or the model's limit, beyond which ``strict`` makes it an error
    variants : ``mqa``, ``gqa:8``, ``mla:512+64``, ``window:4096``, ``interleave:5:1``, ``sinks:4+1020``, ``h2o:0.2``, ``share:2`` or
        ``kv=fp8``; several of them, each compared with the model as it is; joined by ``+`` they are one
    on : a device, for sequences that fit at a time and the time per output token
    concurrency, weights, engine, memory_utilization, device_memory : as of :func:`roofplan.size`, with ``on``
    error_budget : ``kl=0.01``, or several limits separated by commas: kl, tv, score, key, value, output, cosine
    tensors : a file .npz or .json with queries, keys and values to measure the error on; synthetic ones with outlier channels otherwise

    Raises
    ------
    RoofplanError : for anything that does not exist, does not divide or lies outside its domain

    >>> kv("llama-3.1-8b").whole.bytes_per_token
    131072
    >>> [row.whole.bytes_per_token for row in kv("llama-3.1-8b", variants=["mqa", "mla:512+64"]).compared.rows]
    [16384, 36864]
    """
    from ..planner.caching import cache_of

    on_device: Options = {
        "concurrency": concurrency,
        "weights": weights,
        "engine": engine,
        "memory_utilization": memory_utilization,
        "device_memory": device_memory,
    }
    named = [variants] if isinstance(variants, str) else list(variants)
    _check_together(error_budget, tensors, on, on_device)
    spec = loaded(model, ModelSpec, models.load, "MODEL")
    tokens = optional_tokens(context, "--context") or min(8192, spec.max_context or 8192)
    if strict:
        check_context(spec, tokens)
    layout = Layout(tp=optional_count(tp, "--tp") or 1)
    kv_format = engines.load_format("bf16" if kv is None else read_text(kv, "--kv"))
    result = cache_of(spec, kv_format, layout, tokens)
    if named or on is not None:
        from ..planner.cache_variants import ANY_DEVICE, compare_caches
        from ..planner.variant_text import parse_variants

        parsed = parse_variants(named, engines.load_format)
        served = None if on is None else _served(spec, on, tokens, {"tp": tp, "kv": kv, **on_device})
        plain = deployment(spec, ANY_DEVICE, weights="bf16", kv=kv, tp=tp) if served is None else served
        result = replace(result, compared=compare_caches(plain, served, parsed, tokens))
    if error_budget is not None:
        result = replace(result, choice=_choice(error_budget, tensors, spec, tokens))
    return result


def error_budget(limits: str, *, tensors: str | PathLike[str] | None = None) -> BudgetResult:
    """Choose the format with the fewest bits that holds limits, without a model; arguments and errors are those of :func:`kv`.

    >>> error_budget("kl=0.01,cosine=0.99").choice.chosen.scheme.format.name
    'kivi-4'
    """
    from ..planner.error_budget import BudgetResult

    return BudgetResult(_choice(limits, tensors, None, None))


def _check_together(limits: str | None, tensors: object, on: object, on_device: Options) -> None:
    """Refuse options without those that they belong to."""
    if tensors is not None and limits is None:
        raise DomainError("--tensors", got=tensors, wanted="--error-budget beside it")
    if on is None:
        for name, value in on_device.items():
            if value is not None:
                raise DomainError(f"--{name.replace('_', '-')}", got=value, wanted="--on HARDWARE beside it")


def _served(spec: ModelSpec, on: str | PathLike[str] | HardwareSpec, tokens: int, options: Options) -> Deployment:
    """A deployment whose sequences all have the context, so that steps of decoding alone are looked at."""
    if tokens < _SHORTEST:
        raise DomainError("--context", got=tokens, wanted=f"at least {_SHORTEST} with --on: a prompt and an output")
    asked: Options = {**options, "prompt": tokens - 1, "output": 1}
    return deployment(spec, on, **asked)


def _choice(text: str, tensors: str | PathLike[str] | None, spec: ModelSpec | None, tokens: int | None) -> Choice:
    from ..planner.error_budget import choose_scheme, parse_limits
    from ..planner.kv_schemes import outlier_heads, schemes

    limits = parse_limits(text)
    if tensors is None:
        heads = outlier_heads(next(_head_widths(spec), 128))
    else:
        from .tensors import read_heads

        heads = read_heads(tensors)
    return choose_scheme(limits, heads, schemes(engines.load_format), spec, tokens)


def _head_widths(spec: ModelSpec | None) -> Iterator[int]:
    """Widths of the heads that keep keys."""
    for group in spec.layers if spec is not None else ():
        yield from (mixer.head_dim for mixer in group.attention if isinstance(mixer, Attention))
