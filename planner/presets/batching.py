"""Drawings of batching: throughput and intensity over the batch, static batches, chunks of prompts, and weight formats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...quantities import show_bytes, show_count, show_time
from .. import domain
from ..batching import batch_within_memory, crossover_batch
from ..chunked import chunked_prefill
from ..costs import Load
from ..memory import plan_memory, rank_cache
from ..notices import main_arithmetic
from ..static_batching import (
    geometric_utilization,
    greatest_gain,
    lognormal_utilization,
    uniform_utilization,
)
from ..step import StepModel
from .drawing import Mark, Panel, PresetResult, Scale, curve, doubled, spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..deployment import Deployment
    from ..step import Grouping
    from .drawing import Curve

_STEP = "step: sum over operators of max(FLOP / F, bytes / W_bw) (F1.9, F6.3)"


def batch_curve(d: Deployment, contexts: Sequence[int], most: int) -> PresetResult:
    """Time of a decode step and tokens per second over the batch, a line for each context (F7.1, F7.2, F7.5).

    Parameters
    ----------
    contexts : tokens of every sequence
    most : largest batch

    Raises
    ------
    DomainError : for a context below one, or a batch below two
    SpecError : when the device has no rate for an arithmetic type that is needed
    """
    model = StepModel.of(d)
    batches = spread(1, domain.count("concurrency", most, 2))
    steps = {n: {b: float(model.step_s(b, domain.count("context", n))) for b in batches} for n in contexts}
    names = {n: _each(n) for n in contexts}
    marks = list(_batch_marks(d, model, contexts, most))
    longest = max(contexts)
    slower = {n: steps[n][most] / steps[n][1] for n in contexts}
    says = (
        f"From one sequence to {show_count(most)} a step takes {slower[min(contexts)]:,.1f} times as long at {names[min(contexts)]}, and"
        f" {slower[longest]:,.1f} times at {names[longest]}."
    )
    across = Scale("sequences (batch)", "sequences", logarithmic=True)
    return PresetResult(
        "batch-curve",
        f"Batching: {d.model.name} on {d.hardware.name}",
        f"weights {d.formats.name}, KV {d.formats.kv.name} · decode alone · nominal rates",
        says,
        (
            Panel(
                "time of a step",
                across,
                Scale("time", "s", logarithmic=True),
                tuple(curve(names[n], steps[n].items()) for n in contexts),
                tuple(Mark(text, b, float(model.step_s(b, n)), names[n]) for text, n, b in marks),
            ),
            Panel(
                "tokens per second of all sequences",
                across,
                Scale("tokens/s", "tokens_per_s", logarithmic=True),
                tuple(curve(names[n], ((b, b / t) for b, t in steps[n].items())) for n in contexts),
                tuple(Mark(text, b, b / float(model.step_s(b, n)), names[n]) for text, n, b in marks),
            ),
        ),
        f"{_STEP}; X = B / t (F7.1); B* = W / (L c) (F7.2); floor((u C - W - other) / (L c)) (F7.5)",
    )


def _batch_marks(
    d: Deployment, model: StepModel, contexts: Sequence[int], most: int
) -> Iterator[tuple[str, int, float]]:
    """Where the cache costs as much as the weights, and what memory holds: text, context, batch."""
    cache, budget = rank_cache(d), plan_memory(d).kv_budget_bytes
    for n in contexts:
        read = model.totals(Load(1, n))
        crossing = crossover_batch(float(read[1]), float(read[2])) if read[2] else None
        if crossing is not None and 1 <= crossing <= most:
            yield "KV reads equal the weights", n, crossing
        size = cache.bytes_per_sequence(n)
        held = batch_within_memory(budget, 0, 0, size) if size and budget > 0 else 0
        if 1 <= held <= most:
            yield "memory is full", n, held


def decode_intensity(d: Deployment, contexts: Sequence[int], most: int) -> PresetResult:
    """FLOP per byte of a decode step over the batch, a line for each context, and the ridge (F1.1, F1.7).

    Weights and cache alone count, as in the rule that intensity is the batch.

    Raises
    ------
    DomainError : for a context below one, or a batch below two
    SpecError : when the device has no rate for an arithmetic type that is needed
    """
    model, batches = StepModel.of(d), spread(1, domain.count("concurrency", most, 2))

    def intensity(batch: int, context: int) -> float:
        flop, weights, cache = model.totals(Load(batch, domain.count("context", context)))
        return float(flop / domain.positive("bytes", weights + cache))

    names = {n: _each(n) for n in contexts}
    longest = max(contexts)
    arithmetic = main_arithmetic(d)
    ridge = d.hardware.ridge(arithmetic)
    levels = () if ridge is None else (Mark(f"ridge of {d.hardware.name} in {arithmetic}: {ridge:,.0f}", None, ridge),)
    says = (
        f"At {show_count(most)} sequences of {names[longest]} a step does {intensity(most, longest):,.1f} FLOP per byte, at"
        f" {names[min(contexts)]} {intensity(most, min(contexts)):,.1f}."
    )
    return PresetResult(
        "intensity",
        f"FLOP per byte of decode: {d.model.name}",
        f"weights {d.formats.name}, KV {d.formats.kv.name} · bytes of weights and cache",
        says,
        (
            Panel(
                "work of a decode step for each byte read",
                Scale("sequences (batch)", "sequences", logarithmic=True),
                Scale("FLOP per byte", "flop_per_byte", logarithmic=True),
                (
                    *(curve(names[n], ((b, intensity(b, n)) for b in batches)) for n in contexts),
                    curve("intensity = batch", ((b, b) for b in batches), "bound"),
                ),
                levels,
            ),
        ),
        "I = FLOP / (W + B L c) (F1.7); ridge F / W_bw (F1.1)",
    )


def static_waste(mean: int, most: int) -> PresetResult:
    """Share of a static batch's slots that give tokens, for several laws of length, and the gain of leaving early (F8.1, F8.3).

    Parameters
    ----------
    mean : tokens of a sequence, of the geometric law
    most : largest batch

    Raises
    ------
    DomainError : for a mean or a batch below two
    """
    batches = doubled(1, domain.count("concurrency", most, 2))
    domain.count("output", mean, 2)
    laws = (
        ("even, none to a maximum", {b: uniform_utilization(b) for b in batches}),
        ("lognormal, sigma 0.5", {b: lognormal_utilization(0.5, b) for b in batches}),
        ("lognormal, sigma 1", {b: lognormal_utilization(1.0, b) for b in batches}),
        ("lognormal, sigma 1.5", {b: lognormal_utilization(1.5, b) for b in batches}),
        (f"geometric, mean {show_count(mean)}", {b: geometric_utilization(mean, b) for b in batches}),
    )
    across = Scale("sequences of a batch", "sequences", logarithmic=True)
    used = laws[-1][1][most]
    says = (
        f"In a static batch of {show_count(most)} sequences whose lengths follow a geometric law, {used:.1%} of the slots give tokens;"
        f" leaving early gains at most {greatest_gain(used):.2f} times the throughput."
    )
    return PresetResult(
        "static-batching",
        "A static batch waits for its longest sequence",
        "lengths of the output by several laws, drawn apart for each sequence",
        says,
        (
            Panel(
                "share of the slots that give tokens",
                across,
                Scale("used", "share"),
                tuple(curve(name, found.items()) for name, found in laws),
            ),
            Panel(
                "most that continuous batching gains",
                across,
                Scale("gain in throughput", "times"),
                tuple(curve(name, ((b, greatest_gain(u)) for b, u in found.items())) for name, found in laws),
            ),
        ),
        "U = E[length] / E[longest of B] (F8.1); at most 1 / U (F8.3; Yu et al. 2022)",
    )


def chunk_trade(
    d: Deployment, chunks: Sequence[int], context: int, *, grouping: Grouping = "operators"
) -> PresetResult:
    """TTFT of a prompt and the longest gap of those that decode meanwhile, over the tokens of a chunk (F10.1, F10.2).

    Parameters
    ----------
    d : its workload gives the prompt, and the sequences that decode
    chunks : sizes to look at
    context : tokens of each sequence that decodes
    grouping : which bound of a step (``parts`` is the closed form)

    Raises
    ------
    DomainError : for a chunk without a token, or a context below one
    SpecError : when the device has no rate for an arithmetic type that is needed
    """
    model, prompt, decoders = StepModel.of(d), d.workload.prompt, d.workload.concurrency
    domain.count("context", context)
    sizes = sorted({min(chunk, prompt) for chunk in chunks} | {prompt})
    rows = chunked_prefill(model, prompt, sizes, decoders=decoders, context=context, grouping=grouping)
    plain = float(model.step_s(decoders, context, grouping=grouping))
    first, whole = rows[0], rows[-1]
    says = (
        f"In chunks of {show_count(first.chunk)} tokens the longest gap is {show_time(first.longest_step_s)} and not"
        f" {show_time(whole.longest_step_s)}, and the prompt takes {show_time(first.ttft_s)} and not {show_time(whole.ttft_s)}."
    )
    across = Scale("tokens of a chunk", "tokens", logarithmic=True)
    return PresetResult(
        "chunked-prefill",
        f"Chunks of a prompt: {d.model.name} on {d.hardware.name}",
        f"prompt of {show_count(prompt)} beside {show_count(decoders)} sequences that decode at {show_count(context)} tokens"
        f" · weights {d.formats.name} · nominal rates",
        says,
        (
            Panel(
                "time to the first token of the prompt",
                across,
                Scale("time", "s"),
                (curve("TTFT, without waiting", ((row.chunk, row.ttft_s) for row in rows)),),
                (Mark("the prompt in one piece", prompt, whole.ttft_s, "TTFT, without waiting"),),
            ),
            Panel(
                "longest gap of the sequences that decode",
                across,
                Scale("time", "s", logarithmic=True),
                (curve("longest step", ((row.chunk, row.longest_step_s) for row in rows)),),
                (
                    Mark("the prompt in one piece", prompt, whole.longest_step_s, "longest step"),
                    Mark(f"a step without a chunk: {show_time(plain)}", None, plain),
                ),
            ),
        ),
        "sum over the chunks of the mixed step (F10.1, F10.2; Agrawal et al. 2024, arXiv 2403.02310)",
    )


def weight_formats(formats: Sequence[Deployment], context: int, most: int) -> PresetResult:
    """Time of a decode step over the batch in several weight formats, and the gain over the first of them (F4.3, F6.2).

    Solid lines are what kernels reach, dotted ones the roof; without the kernels of a device the roof alone is drawn.

    Parameters
    ----------
    formats : one model on one device, in formats to compare

    Raises
    ------
    DomainError : for a context below one, a batch below two, or no format
    SpecError : when the device has no rate for an arithmetic type that is needed
    """
    domain.count("weights", len(formats))
    domain.count("context", context)
    batches = spread(1, domain.count("concurrency", most, 2), 4)
    names = [d.formats.name for d in formats]
    roofs = [_steps(StepModel.of(d), batches, context) for d in formats]
    known = all(d.kernels is not None for d in formats)
    reached = [_steps(StepModel.reached(d), batches, context) for d in formats] if known else roofs
    first, d = reached[0], formats[0]
    ends = [(name, first[0] / found[0], first[-1] / found[-1]) for name, found in zip(names, reached, strict=True)]
    said = "; ".join(f"{name} {small:.2f} and {large:.2f}" for name, small, large in ends[1:])
    stored = ", ".join(
        f"{one.formats.name} {show_bytes(StepModel.of(one).totals(Load(1, context))[1])}" for one in formats
    )
    across = Scale("sequences (batch)", "sequences", logarithmic=True)

    def lines(of: Sequence[Sequence[float]], bound: Sequence[Sequence[float]]) -> tuple[Curve, ...]:
        told = [curve(name, zip(batches, found, strict=True)) for name, found in zip(names, of, strict=True)]
        roof = [
            curve(name, zip(batches, found, strict=True), "bound") for name, found in zip(names, bound, strict=True)
        ]
        return (*told, *(roof if known else ()))

    def gains(of: Sequence[Sequence[float]]) -> list[list[float]]:
        return [[base / t for base, t in zip(of[0], found, strict=True)] for found in of]

    return PresetResult(
        "weight-formats",
        f"Weight formats: {d.model.name} on {d.hardware.name}",
        f"{show_count(context)} tokens each, KV {d.formats.kv.name} · lines: as kernels reach it; dotted: the roof at nominal rates",
        f"A step reads {stored}. Gain over {names[0]} at one sequence and at {show_count(most)}: {said or 'none to compare'}.",
        (
            Panel("time of a step", across, Scale("time", "s", logarithmic=True), lines(reached, roofs)),
            Panel(
                f"gain over {names[0]}", across, Scale("times as fast", "times"), lines(gains(reached), gains(roofs))
            ),
        ),
        f"{_STEP}, with weights as stored (F4.3) and products in the type that the device multiplies",
    )


def _steps(model: StepModel, batches: Sequence[int], context: int) -> list[float]:
    return [float(model.step_s(batch, context)) for batch in batches]


def _each(tokens: int) -> str:
    return f"{show_count(tokens)} token{'s' if tokens > 1 else ''} each"
