"""Presets by name: which drawings there are, the options that each takes with their defaults, and how these are read."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, TypedDict

from .. import engines, hardware, models
from ..errors import DomainError, UnknownNameError
from ..hardware.spec import HardwareSpec
from ..models.spec import Attention, ModelSpec
from ..planner.domain import probability
from ..quantities import NUMBER, parse, parse_count, parse_tokens
from .axes import split_formats
from .building import deployment, loaded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Unpack

    from ..planner.deployment import Deployment
    from ..planner.presets.drawing import PresetResult
    from .options import Whole

MOST_CURVES = 6  # colours that are told apart
_SRAM_ELEMENTS = 98304  # of two bytes: 192 KiB, the shared memory and cache of a multiprocessor of an A100
_ZIPF = (0.8, 1.0, 1.2)
_SHORTEST_CHUNK = 64

Several = str | Iterable[Any]


class PresetOptions(TypedDict, total=False):
    """What a preset may be told, by the names of the command line; None is as good as left out.

    Lists are iterables, or texts with commas.
    """

    model: Several | ModelSpec | PathLike[str] | None
    hardware: str | HardwareSpec | PathLike[str] | None
    weights: Several | None
    kv: str | None
    prompt: Whole | None
    output: Whole | None
    context: Several | int | None
    concurrency: Whole | None
    cached: Whole | None
    block_size: Several | int | None
    max_model_len: Several | int | None
    acceptance: Several | float | None
    draft_cost: float | str | None
    k: Whole | None


@dataclass(frozen=True, slots=True)
class Preset:
    """A drawing that has a name.

    Parameters
    ----------
    shows : what it shows, in a line
    defaults : the options that it takes, and what they are where they are not given
    build : makes it from the options
    """

    shows: str
    defaults: Mapping[str, str]
    build: Callable[[Asked], PresetResult]


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of one preset, read as the command line reads them."""

    given: Mapping[str, Any]

    def several(self, name: str) -> list[Any]:
        """A list, each entry once, at most as many as colours are told apart."""
        value = self.given[name]
        if isinstance(value, str):
            entries: list[Any] = (
                split_formats(value) if name == "weights" else [part.strip() for part in value.split(",")]
            )
        elif isinstance(value, Iterable):
            entries = list(value)
        else:
            entries = [value]
        if not 1 <= len(entries) <= MOST_CURVES or "" in entries:
            got = "an empty entry" if "" in entries or not entries else f"{len(entries)} of them"
            raise DomainError(_option(name), got=got, wanted=f"1 to {MOST_CURVES}, with commas between them")
        for place, entry in enumerate(entries):
            if entry in entries[:place]:
                raise DomainError(_option(name), got=f"{entry} twice", wanted="each once")
        return entries

    def models(self) -> list[ModelSpec]:
        """The models."""
        return [loaded(one, ModelSpec, models.load, "--model") for one in self.several("model")]

    def model(self) -> ModelSpec:
        """The only model."""
        found = self.models()
        if len(found) > 1:
            raise DomainError("--model", got=f"{len(found)} of them", wanted="one")
        return found[0]

    def device(self) -> HardwareSpec:
        """The device."""
        return loaded(self.given["hardware"], HardwareSpec, hardware.load, "--hardware")

    def deployment(self, **fixed: Any) -> Deployment:
        """The model on the device; ``fixed`` are options of a deployment beside those that were given."""
        said = {name: self.given[name] for name in ("kv", "prompt", "output", "concurrency") if name in self.given}
        if "weights" in self.given and "weights" not in fixed:
            said["weights"] = self.given["weights"] or None
        return deployment(self.model(), self.device(), **{**said, **fixed})

    def tokens(self, name: str) -> int:
        """A number of tokens."""
        return parse_tokens(self.given[name], _option(name))

    def lengths(self, name: str) -> list[int]:
        """Numbers of tokens, in rising order."""
        return sorted(parse_tokens(entry, _option(name)) for entry in self.several(name))

    def count(self, name: str) -> int:
        """A whole number."""
        return parse_count(self.given[name], _option(name))

    def shares(self, name: str) -> list[float]:
        """Probabilities, in the order in which they were given."""
        return [probability(_option(name), float(parse(one, NUMBER, _option(name)))) for one in self.several(name)]

    def number(self, name: str) -> float:
        """A number, zero or more."""
        return float(parse(self.given[name], NUMBER, _option(name)))


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


# ------------------------------------------------------------------------------------------------ the presets


def _cache_growth(asked: Asked) -> PresetResult:
    from ..planner.presets.caching import cache_growth

    kv_format = engines.load_format(asked.given["kv"])
    return cache_growth(asked.models(), kv_format, asked.device(), asked.tokens("context"))


def _cache_steps(asked: Asked) -> PresetResult:
    from ..planner.presets.caching import cache_steps

    return cache_steps(asked.deployment())


def _prefix_ttft(asked: Asked) -> PresetResult:
    from ..planner.presets.caching import prefix_ttft

    return prefix_ttft(asked.deployment(), asked.tokens("cached"), _ZIPF)


def _paged_waste(asked: Asked) -> PresetResult:
    from ..planner.presets.caching import paged_waste

    blocks, reserved = asked.lengths("block_size"), asked.lengths("max_model_len")
    if len(blocks) + len(reserved) > MOST_CURVES:
        got = f"{len(blocks)} blocks and {len(reserved)} lengths"
        raise DomainError("paged-waste", got=got, wanted=f"at most {MOST_CURVES} together")
    return paged_waste(blocks, reserved)


def _batch_curve(asked: Asked) -> PresetResult:
    from ..planner.presets.batching import batch_curve

    return batch_curve(asked.deployment(concurrency=1), asked.lengths("context"), asked.count("concurrency"))


def _intensity(asked: Asked) -> PresetResult:
    from ..planner.presets.batching import decode_intensity

    return decode_intensity(asked.deployment(concurrency=1), asked.lengths("context"), asked.count("concurrency"))


def _static_batching(asked: Asked) -> PresetResult:
    from ..planner.presets.batching import static_waste

    return static_waste(asked.tokens("output"), asked.count("concurrency"))


def _chunked_prefill(asked: Asked) -> PresetResult:
    from ..planner.presets.batching import chunk_trade
    from ..planner.presets.drawing import spread

    d = asked.deployment()
    sizes = spread(min(_SHORTEST_CHUNK, d.workload.prompt), d.workload.prompt, 2)
    return chunk_trade(d, sizes, asked.tokens("context"))


def _weight_formats(asked: Asked) -> PresetResult:
    from ..planner.presets.batching import weight_formats

    formats = [asked.deployment(concurrency=1, weights=name) for name in asked.several("weights")]
    return weight_formats(formats, asked.tokens("context"), asked.count("concurrency"))


def _speculation(asked: Asked) -> PresetResult:
    from ..planner.presets.speculation import speculation

    return speculation(
        asked.deployment(concurrency=1),
        asked.shares("acceptance"),
        asked.number("draft_cost"),
        asked.count("k"),
        asked.lengths("context"),
        asked.count("concurrency"),
    )


def _attention_bytes(asked: Asked) -> PresetResult:
    from ..planner.presets.attention import attention_bytes

    model = asked.model()
    heads = [mixer for layer in model.layers for mixer in layer.attention if isinstance(mixer, Attention)]
    if not heads:
        raise DomainError("--model", got=model.name, wanted="a model with heads of one width")
    return attention_bytes(heads[0].head_dim, asked.tokens("prompt"), _SRAM_ELEMENTS, asked.device())


def _attention_variants(asked: Asked) -> PresetResult:
    from ..planner.presets.attention import attention_variants

    return attention_variants(asked.deployment(), asked.tokens("context"))


def _moe_coverage(asked: Asked) -> PresetResult:
    from ..planner.presets.attention import moe_coverage

    return moe_coverage(asked.models(), asked.count("k"), asked.count("concurrency"))


_A100 = {"model": "llama-2-7b", "hardware": "a100-80gb"}
_H100 = {"model": "llama-3.1-8b", "hardware": "h100-sxm"}
_AS_PUBLISHED = {"weights": "", "kv": "bf16"}

PRESETS: dict[str, Preset] = {
    "cache-growth": Preset(
        "the cache of one sequence over its length, by model",
        {
            "model": "llama-2-7b,llama-3.1-8b,llama-3.1-70b,gemma-3-27b,deepseek-v3,qwen3-next-80b-a3b",
            "hardware": "h100-sxm",
            "kv": "bf16",
            "context": "131072",
        },
        _cache_growth,
    ),
    "cache-steps": Preset(
        "each token with a cache and without one, and the gain in passes, FLOP and time",
        {**_A100, **_AS_PUBLISHED, "prompt": "1", "output": "512"},
        _cache_steps,
    ),
    "batch-curve": Preset(
        "time of a decode step and tokens per second over the batch, by context",
        {**_A100, **_AS_PUBLISHED, "context": "1,512,4096", "concurrency": "512"},
        _batch_curve,
    ),
    "intensity": Preset(
        "FLOP per byte of decode over the batch, by context, and the ridge",
        {**_A100, **_AS_PUBLISHED, "context": "1,512,4096", "concurrency": "512"},
        _intensity,
    ),
    "static-batching": Preset(
        "slots of a static batch that give tokens, and what leaving early gains at most",
        {"output": "200", "concurrency": "64"},
        _static_batching,
    ),
    "paged-waste": Preset(
        "memory that holds nothing: in blocks, and with room for the longest sequence",
        {"block_size": "16,64,256", "max_model_len": "2048,8192"},
        _paged_waste,
    ),
    "prefix-ttft": Preset(
        "time of a prefill over its cached tokens, and how often a prefix is there",
        {**_A100, **_AS_PUBLISHED, "prompt": "2200", "cached": "2000"},
        _prefix_ttft,
    ),
    "chunked-prefill": Preset(
        "first token of a prompt, and the longest gap of the others, over the tokens of a chunk",
        {**_H100, **_AS_PUBLISHED, "prompt": "8192", "concurrency": "32", "context": "2048"},
        _chunked_prefill,
    ),
    "speculation": Preset(
        "speed-up over drafts by acceptance, and over the batch by context",
        {
            **_H100,
            **_AS_PUBLISHED,
            "acceptance": "0.8,0.5,0.6,0.7,0.9",
            "draft_cost": "0.1",
            "k": "4",
            "context": "1024,8192,32768",
            "concurrency": "256",
        },
        _speculation,
    ),
    "attention-bytes": Preset(
        "traffic of one head over the tokens, with scores written out and with FlashAttention",
        {**_A100, "prompt": "16384"},
        _attention_bytes,
    ),
    "attention-variants": Preset(
        "cache and decode step with other shapes of attention, over the context",
        {**_A100, **_AS_PUBLISHED, "context": "131072", "concurrency": "16"},
        _attention_variants,
    ),
    "weight-formats": Preset(
        "decode step over the batch by weight format, and the gain over the first",
        {**_H100, "weights": "bf16,fp8,int4-g128", "kv": "bf16", "context": "256", "concurrency": "512"},
        _weight_formats,
    ),
    "moe-coverage": Preset(
        "experts that a step touches, and what verifying drafts adds to their bytes",
        {
            "model": "mixtral-8x7b,qwen3-30b-a3b,deepseek-v3,kimi-k2",
            "k": "4",
            "concurrency": "512",
        },
        _moe_coverage,
    ),
}


def figure(name: str, **options: Unpack[PresetOptions]) -> PresetResult:
    """Make a preset drawing as data: panels of curves and marks, in base units.

    Parameters
    ----------
    name : one of :data:`PRESETS`
    options : those that the preset takes; what is left out is as its defaults say

    Raises
    ------
    RoofplanError : for a preset that there is not, an option that it does not take, and whatever lies outside its domain

    >>> round(figure("speculation", acceptance="0.8", k=4).panels[0].curves[0].y[4], 6)
    2.401143
    """
    if name not in PRESETS:
        near = difflib.get_close_matches(str(name), PRESETS, n=2)
        hint = f"did you mean {' or '.join(near)}?" if near else "roofplan figure lists them"
        raise UnknownNameError("figure", got=name, wanted=f"one of {', '.join(PRESETS)}", hint=hint)
    preset = PRESETS[name]
    given = {option: value for option, value in options.items() if value is not None}
    for option, value in given.items():
        if option not in preset.defaults:
            takes = ", ".join(map(_option, preset.defaults))
            raise DomainError(_option(option), got=value, wanted=f"no such option for {name}, which takes {takes}")
    asked = {**preset.defaults, **given}
    if "weights" in asked and not asked["weights"] and "weights" not in given:
        asked["weights"] = None
    result = preset.build(Asked(asked))
    return replace(result, settings={option: _told(value) for option, value in asked.items()})


def _told(value: Any) -> Any:
    """An option as the answer repeats it: a spec by its name."""
    if isinstance(value, (ModelSpec, HardwareSpec)):
        return value.name
    if isinstance(value, PathLike):
        return str(value)
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_told(one) for one in value]
    return value


def names_of(preset: Preset) -> Sequence[tuple[str, str]]:
    """The options of a preset as the command line writes them, each with its default."""
    return [(_option(name), value or "as published") for name, value in preset.defaults.items()]
