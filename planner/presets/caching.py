"""Drawings of the cache: how it grows, what it saves, what a prefix in it saves, and how much of its memory holds nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...quantities import show_bytes, show_count, show_time
from .. import domain
from ..costs import Load
from ..kv_cache import cache_layout
from ..memory import rank_cache
from ..paging import reserved_waste, wasted_fraction
from ..prefix import lru_hit_rates, perfect_hit_rates, suffix_floor_s, suffix_prefill, zipf_popularity
from ..step import StepModel
from ..without_cache import generation_s, token_passes
from .drawing import Mark, Panel, PresetResult, Scale, curve, spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...engines.spec import NumberFormat
    from ...hardware.spec import HardwareSpec
    from ...models.spec import ModelSpec
    from ..deployment import Deployment
    from .drawing import Curve

_SHORTEST = 256  # tokens at which lines of caches begin
_PREFIXES = 1000
_ROOMS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_POINTS = 64


def cache_growth(
    models: Sequence[ModelSpec], kv_format: NumberFormat, device: HardwareSpec, longest: int
) -> PresetResult:
    """Cache of one sequence over its length, a line for each model, up to the context that it was published for (F3.1 to F3.3).

    Parameters
    ----------
    device : its memory is drawn as a level
    longest : tokens at which every line ends

    Raises
    ------
    DomainError : for a length below 512, or no model
    """
    domain.count("models", len(models))
    domain.count("context", longest, 2 * _SHORTEST)
    layouts = [cache_layout(model, kv_format) for model in models]
    ends = [min(longest, model.max_context or longest) for model in models]
    curves = tuple(
        curve(model.name, ((n, layout.bytes_per_sequence(n)) for n in spread(min(_SHORTEST, end), end, 4)))
        for model, layout, end in zip(models, layouts, ends, strict=True)
    )
    common = min(ends)
    sizes = sorted(
        (layout.bytes_per_sequence(common), model.name) for layout, model in zip(layouts, models, strict=True)
    )
    (least, frugal), (most, greedy) = sizes[0], sizes[-1]
    memory = device.memory.total_bytes
    says = (
        f"At {show_count(common)} tokens a sequence takes {show_bytes(most)} in {greedy}"
        + (f" and {show_bytes(least)} in {frugal}" if len(models) > 1 else "")
        + "."
    )
    return PresetResult(
        "cache-growth",
        "Cache of one sequence",
        f"KV {kv_format.name} · each line ends at the longest context that the model was published for",
        says,
        (
            Panel(
                "bytes of one sequence",
                Scale("tokens of the sequence", "tokens", logarithmic=True),
                Scale("cache", "bytes", logarithmic=True),
                curves,
                (Mark(f"memory of {device.name}: {show_bytes(memory)}", None, memory),),
            ),
        ),
        "sum of layers x entries kept x elements x bytes, entries at most the window (F3.1 to F3.3)",
    )


def cache_steps(d: Deployment) -> PresetResult:
    """A generation with a cache and without one, token by token; and how many times as much it is without, three ways (F17).

    Tokens that pass through the model, their FLOP, and their time at nominal rates. The last is what a user waits for, and the smallest:
    a pass over a few tokens reads the same weights as a pass over one.

    Raises
    ------
    DomainError : for an output below two tokens
    SpecError : when the device has no rate for an arithmetic type that is needed
    """
    import numpy as np

    prompt, output = d.workload.prompt, domain.count("output", d.workload.output, 2, 2**16)
    model = StepModel.of(d)
    lengths = prompt + np.arange(output, dtype=float)
    # The first output token comes from the pass over the prompt in both.
    passes = model.step_s(0, 0, chunk=lengths)
    steps = np.concatenate([passes[:1], model.step_s(1, lengths[1:])])
    flop = model.totals(Load(0, 0, chunk=lengths))[0]
    step_flop = np.concatenate([flop[:1], np.asarray(model.totals(Load(1, lengths[1:]))[0])])
    shown = [n for n in spread(1, output, 12) if n >= 1]
    time_ratio = np.cumsum(passes) / np.cumsum(steps)
    flop_ratio = np.cumsum(flop) / np.cumsum(step_flop)
    fewer = [token_passes(prompt, n).ratio for n in shown]
    three = (
        ("tokens through the model", fewer[-1]),
        ("FLOP", float(flop_ratio[-1])),
        ("time at nominal rates", float(time_ratio[-1])),
    )
    whole = generation_s(model, prompt, output)
    says = (
        f"Without a cache {show_count(output)} tokens are {three[0][1]:,.1f} times the token passes, {three[1][1]:,.1f} times the FLOP and"
        f" {three[2][1]:,.2f} times the time: {show_time(whole.without_cache)} against {show_time(whole.with_cache)}."
    )
    across = Scale("output token", "tokens", logarithmic=True)
    return PresetResult(
        "cache-steps",
        f"What a cache saves: {d.model.name} on {d.hardware.name}",
        f"one sequence, prompt of {show_count(prompt)}, weights {d.formats.name} · nominal rates",
        says,
        (
            Panel(
                "time of each token",
                Scale("output token", "tokens"),
                Scale("time", "s"),
                (
                    curve("without a cache", ((n, passes[n - 1]) for n in shown)),
                    curve("with a cache", ((n, steps[n - 1]) for n in shown)),
                ),
            ),
            Panel(
                "how many times as much without a cache",
                across,
                Scale("without / with", "times", logarithmic=True),
                (
                    curve(three[0][0], zip(shown, fewer, strict=True)),
                    curve(three[1][0], ((n, flop_ratio[n - 1]) for n in shown)),
                    curve(three[2][0], ((n, time_ratio[n - 1]) for n in shown)),
                ),
                tuple(Mark("the whole output", output, value, name) for name, value in three),
            ),
        ),
        "passes G P + G (G - 1) / 2 against P + G - 1 (F17); FLOP by F2.5 and F2.6; time by the step model (F1.9, F6.3)",
    )


def prefix_ttft(d: Deployment, cached: int, exponents: Sequence[float]) -> PresetResult:
    """Time of a prefill over the tokens of it that a prefix cache holds, and how often a prefix is there at all (F9.2, F9.4).

    Parameters
    ----------
    cached : tokens of the prompt whose saving is named
    exponents : of Zipf laws by which a thousand equally long prefixes are asked for

    Raises
    ------
    DomainError : for no token that is left to compute, or a negative exponent
    SpecError : when the device has no rate for an arithmetic type that is needed
    """
    prompt, model = domain.count("prompt", d.workload.prompt, 2), StepModel.of(d)
    whole = suffix_prefill(model, prompt, 0).whole_s
    hits = sorted({0, cached, prompt - 1, *(prompt * n // _POINTS for n in range(_POINTS))})
    times = [(n, suffix_prefill(model, prompt, n).suffix_s) for n in hits]
    at_hit = suffix_prefill(model, prompt, cached).suffix_s
    cache = rank_cache(d)
    weights = float(model.totals(Load(0, 0, chunk=1))[1])
    bandwidth = d.hardware.memory.bandwidth
    floor = [(n, suffix_floor_s(weights, cache.bytes_per_sequence(n) - cache.fixed_bytes, bandwidth)) for n in hits]
    says = (
        f"With {show_count(cached)} of {show_count(prompt)} tokens cached the prefill takes {show_time(at_hit)} in the place of"
        f" {show_time(whole)}; reading the weights and the prefix alone takes {show_time(dict(floor)[cached])}."
    )
    return PresetResult(
        "prefix-ttft",
        f"What a cached prefix saves: {d.model.name} on {d.hardware.name}",
        f"prompt of {show_count(prompt)} tokens, weights {d.formats.name}, KV {d.formats.kv.name} · nominal rates",
        says,
        (
            Panel(
                "time of the prefill",
                Scale("tokens that the cache holds", "tokens"),
                Scale("time", "s"),
                (
                    curve("computed", times),
                    curve("if time fell with the tokens", [(0, whole), (prompt, 0.0)], "bound"),
                    curve("reading weights and prefix", floor, "bound"),
                ),
                (Mark(f"{show_count(cached)} tokens cached: {show_time(at_hit)}", cached, at_hit, "computed"),),
            ),
            Panel(
                "how often the prefix is there",
                Scale(f"prefixes that the cache holds, of {show_count(_PREFIXES)}", "sequences", logarithmic=True),
                Scale("requests that find theirs", "share"),
                tuple(_hits(exponents, _ROOMS)),
            ),
        ),
        "t(S, 0) - t(S - H, P = H), floor (W_read + H c) / W_bw (F9.2); hits of an LRU cache by Che's approximation (F9.4)",
    )


def _hits(exponents: Sequence[float], rooms: Sequence[int]) -> Iterator[Curve]:
    """Hit rates of an LRU cache by its room, and the best that any cache could do under the last law."""
    laws = [(exponent, zipf_popularity(_PREFIXES, exponent)) for exponent in exponents]
    for exponent, asked in laws:
        yield curve(f"LRU, Zipf {exponent:g}", ((room, lru_hit_rates(asked, room).requests) for room in rooms))
    if laws:
        exponent, asked = laws[-1]
        best = ((room, perfect_hit_rates(asked, room).requests) for room in rooms)
        yield curve(f"any cache, Zipf {exponent:g}", best, "bound")


def paged_waste(blocks: Sequence[int], reserved: Sequence[int], share: float = 0.04) -> PresetResult:
    """Share of the cache's memory that holds nothing: last blocks that are not full, against room for the longest sequence (F3.9, F3.10).

    Parameters
    ----------
    blocks : tokens of a block
    reserved : longest sequences for which room is kept, in tokens
    share : of waste that is drawn as a level

    Raises
    ------
    DomainError : for a block or a length below two tokens
    """
    longest = max(reserved, default=8192)
    lengths = spread(16, longest, 4)
    paged = [
        curve(f"blocks of {show_count(b)}", ((n, wasted_fraction(n, domain.count("block", b, 2))) for n in lengths))
        for b in blocks
    ]
    kept = [
        curve(
            f"room for {show_count(most)} tokens",
            ((n, reserved_waste(n, most)) for n in spread(16, domain.count("reserved", most, 32), 4)),
        )
        for most in reserved
    ]
    first = blocks[0]
    least = next((n for n in range(1, 2**20) if wasted_fraction(n, first) <= share), None)
    says = f"Blocks of {first} tokens waste less than {share:.0%} from a mean of {show_count(least or 0)} tokens on."
    return PresetResult(
        "paged-waste",
        "Memory of the cache that holds nothing",
        "mean over sequences whose lengths end anywhere in a block",
        says,
        (
            Panel(
                "share of the memory that is taken",
                Scale("mean tokens of a sequence", "tokens", logarithmic=True),
                Scale("wasted", "share"),
                (*paged, *kept),
                (Mark(f"{share:.0%}", None, share),),
            ),
        ),
        "(b - 1) / 2 slots of a sequence (F3.9); 1 - E[L] / L_max (F3.10; Kwon et al. 2023, arXiv 2309.06180)",
    )
