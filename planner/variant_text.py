"""Reading a variant such as ``gqa:8``, ``mla:512+64`` or ``gqa:4+kv=fp8``: what it changes, who decides it, and up to where it is exact.

A variant changes a model's attention (see :mod:`~roofplan.planner.variants`), the format of its cache, or both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ..errors import DomainError, RoofplanError, UnknownNameError, show
from ..quantities import COUNT, parse, parse_fraction, parse_tokens
from . import variants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..engines.spec import NumberFormat
    from ..models.spec import ModelSpec

Decided = Literal["training", "serving"]

LOCAL_WINDOW = 1024  # of Gemma 3's windowed layers
MOST_VARIANTS = 16
_LONGEST = 80  # characters of a variant
_WIDEST = 2**24  # a width, or a number of layers, beyond any model

# What each kind looks like, and the part of a model that it changes: two kinds of one part do not go together.
SHAPES: dict[str, tuple[str, str]] = {
    "mqa": ("heads", "mqa, without a value"),
    "gqa": ("heads", "gqa:KV_HEADS such as gqa:8"),
    "mla": ("heads", "mla:RANK+ROTARY such as mla:512+64"),
    "window": ("reach", "window:TOKENS such as window:4096"),
    "interleave": ("reach", "interleave:LOCAL:FULL or interleave:LOCAL:FULL:WINDOW such as interleave:5:1:1024"),
    "sinks": ("reach", "sinks:FIRST+RECENT such as sinks:4+1020"),
    "h2o": ("reach", "h2o:SHARE such as h2o:0.2"),
    "share": ("layers", "share:LAYERS such as share:2"),
    "kv": ("format", "kv=FORMAT such as kv=fp8, kv=q8_0, kv=kivi2 or kv=nvfp4"),
}
_JOINED = re.compile(rf"\+(?=\s*(?:{'|'.join(SHAPES)})\b)", re.IGNORECASE)
EXAMPLES = "mqa, gqa:8, mla:512+64, window:4096, interleave:5:1, sinks:4+1020, h2o:0.2, share:2 or kv=fp8"


@dataclass(frozen=True, slots=True)
class Part:
    """One change of a variant.

    Parameters
    ----------
    title : what it is, for people
    decided : whether a model must be trained so, or a server can do it to any model
    exact_tokens : tokens of a sequence up to which a server's change leaves the outputs as they are
    why : what is given up, in a sentence
    source : where it was proposed
    default_window : whether its window was not given
    """

    kind: str
    title: str
    decided: Decided
    why: str
    source: str
    change: Callable[[ModelSpec], ModelSpec] | None = None
    kv_format: NumberFormat | None = None
    exact_tokens: int = 0
    default_window: bool = False


@dataclass(frozen=True, slots=True)
class Variant:
    """Changes that are made together, in the order in which they are named."""

    text: str
    parts: tuple[Part, ...]

    @property
    def title(self) -> str:
        """What it is, for people."""
        return ", ".join(part.title for part in self.parts)

    @property
    def decided(self) -> Decided:
        """When it is decided: in training where any part is."""
        return "training" if any(part.decided == "training" for part in self.parts) else "serving"

    @property
    def exact_tokens(self) -> int | None:
        """Tokens up to which the outputs stay the same; None for another model, whose outputs are its own."""
        return min(part.exact_tokens for part in self.parts) if self.decided == "serving" else None

    @property
    def why(self) -> str:
        """What is given up."""
        return "; ".join(part.why for part in self.parts)

    def of(self, model: ModelSpec, kv_format: NumberFormat) -> tuple[ModelSpec, NumberFormat]:
        """Change a model and the format of its cache.

        Raises
        ------
        DomainError : for a model that cannot be changed so
        """
        for part in self.parts:
            try:
                model = model if part.change is None else part.change(model)
            except DomainError as error:
                raise DomainError("--variant", got=f"{self.text} of {model.name}", wanted=error.wanted) from error
            kv_format = part.kv_format or kv_format
        return model, kv_format


def parse_variants(texts: Iterable[str], load: Callable[[str], NumberFormat]) -> tuple[Variant, ...]:
    """Read variants, each text one or several of them separated by commas.

    Parameters
    ----------
    load : finds a number format by its name

    Raises
    ------
    DomainError : for a malformed variant (with the shape that is wanted), one that comes twice, or more than 16 of them
    UnknownNameError : for a kind that there is not
    """
    named = [item.strip() for text in texts for item in _text(text).split(",")]
    if "" in named:
        raise DomainError("--variant", got="nothing between commas" if len(named) > 1 else "nothing", wanted=EXAMPLES)
    for place, item in enumerate(named):
        if item in named[:place]:
            raise DomainError("--variant", got=f"{item} twice", wanted="each once")
    if len(named) > MOST_VARIANTS:
        raise DomainError("--variant", got=f"{len(named)} of them", wanted=f"at most {MOST_VARIANTS}")
    return tuple(parse_variant(item, load) for item in named)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise DomainError("--variant", got=f"a value of type {type(value).__name__}", wanted=EXAMPLES)
    return value


def parse_variant(text: str, load: Callable[[str], NumberFormat]) -> Variant:
    """Read one variant: a change, or several that are joined by ``+`` (``gqa:4+kv=fp8``).

    Raises
    ------
    DomainError : for a malformed change, or two changes of the same part of a model
    UnknownNameError : for a kind that there is not

    >>> from roofplan.engines import load_format
    >>> parse_variant("mla:512+64", load_format).title
    'latents of 512 + 64 (MLA)'
    """
    words = _text(text).strip()
    if not words or len(words) > _LONGEST:
        got = f"a text of {len(words):,} characters" if words else "nothing"
        raise DomainError("--variant", got=got, wanted=EXAMPLES)
    parts = tuple(_part(item, load) for item in _JOINED.split(words))
    changed = [SHAPES[part.kind][0] for part in parts]
    for place, what in enumerate(changed):
        if what in changed[:place]:
            raise DomainError("--variant", got=words, wanted=f"one change of the {what}")
    return Variant(show(words), parts)


def _part(text: str, load: Callable[[str], NumberFormat]) -> Part:
    words = text.strip()
    found = re.fullmatch(r"([A-Za-z0-9]+)\s*(?:([:=])\s*(.*))?", words, re.ASCII | re.DOTALL)
    kind = found.group(1).lower() if found else ""
    if found is None or kind not in SHAPES:
        import difflib

        near = difflib.get_close_matches(kind or words.lower(), SHAPES, n=1)
        hint = f"did you mean {SHAPES[near[0]][1]}?" if near else ""
        raise UnknownNameError("--variant", got=repr(words), wanted=EXAMPLES, hint=hint)
    sign, value = found.group(2) or "", found.group(3) or ""
    if sign != _SIGNS.get(kind, ":"):
        raise _malformed(kind, words)
    try:
        return _READERS[kind](value) if kind != "kv" else _format(value, load)
    except (RoofplanError, ValueError) as error:
        raise _malformed(kind, words, error.hint if isinstance(error, UnknownNameError) else "") from error


_SIGNS = {"mqa": "", "kv": "="}


def _malformed(kind: str, words: str, hint: str = "") -> DomainError:
    return DomainError("--variant", got=repr(words), wanted=SHAPES[kind][1], hint=hint)


# ------------------------------------------------------------------------------------------------ the kinds


def _count(text: str, *, zero: bool = False) -> int:
    value = int(parse(text, COUNT, "count"))
    if not (0 if zero else 1) <= value <= _WIDEST:
        raise ValueError(text)
    return value


def _numbers(text: str, sign: str) -> list[str]:
    return [item.strip() for item in text.split(sign)]


def _one_head(_value: str) -> Part:
    return Part(
        "mqa",
        "one KV head (MQA)",
        "training",
        "all query heads share one key and value head",
        "Shazeer 2019 (arXiv 1911.02150); F3.1",
        lambda model: variants.with_kv_heads(model, lambda _: 1),
    )


def _groups(value: str) -> Part:
    heads = _count(value)
    return Part(
        "gqa",
        f"{heads:,} KV head{'s' * (heads > 1)} (GQA)",
        "training",
        "groups of query heads share a key and value head",
        "Ainslie et al. 2023 (arXiv 2305.13245); F3.1",
        lambda model: variants.with_kv_heads(model, lambda _: heads),
    )


def _latents(value: str) -> Part:
    rank, rotary = _numbers(value, "+")
    widths = _count(rank), _count(rotary, zero=True)
    return Part(
        "mla",
        f"latents of {widths[0]} + {widths[1]} (MLA)",
        "training",
        "one latent for all heads, which decoding multiplies out or absorbs",
        "DeepSeek-V2 report (arXiv 2405.04434); F2.8, F3.2",
        lambda model: variants.with_latents(model, *widths),
    )


def _window(value: str) -> Part:
    window = parse_tokens(value)
    return Part(
        "window",
        f"windows of {window:,}",
        "training",
        f"no layer sees more than {window:,} tokens, and what is older only through layers below",
        "Jiang et al. 2023 (arXiv 2310.06825); F3.3",
        lambda model: variants.within_window(model, window),
    )


def _interleave(value: str) -> Part:
    local, full, *rest = _numbers(value, ":")
    (window,) = rest or [str(LOCAL_WINDOW)]
    numbers = _count(local), _count(full), parse_tokens(window)
    return Part(
        "interleave",
        f"{numbers[0]} layers with windows of {numbers[2]:,} for {numbers[1]} without",
        "training",
        f"only the full layers see beyond {numbers[2]:,} tokens",
        "Gemma 3 report (arXiv 2503.19786); F3.3",
        lambda model: variants.interleaved(model, *numbers),
        default_window=not rest,
    )


def _sinks(value: str) -> Part:
    first, recent = _numbers(value, "+")
    kept = _count(first, zero=True), parse_tokens(recent)
    return Part(
        "sinks",
        f"the first {kept[0]:,} and last {kept[1]:,} tokens (StreamingLLM)",
        "serving",
        f"tokens between are forgotten, so that outputs change beyond {sum(kept):,} tokens",
        "Xiao et al. 2023 (arXiv 2309.17453); F3.6",
        lambda model: variants.with_first_tokens(model, *kept),
        exact_tokens=sum(kept),
    )


def _heavy_hitters(value: str) -> Part:
    share = parse_fraction(value)
    return Part(
        "h2o",
        f"{share:.4g} of the tokens (H2O)",
        "serving",
        "tokens with little attention so far are forgotten: a prompt is computed whole first, and needs the room for it",
        "Zhang et al. 2023 (arXiv 2306.14048); F3.6",
        lambda model: variants.evicting(model, share),
    )


def _share(value: str) -> Part:
    layers = _count(value)
    return Part(
        "share",
        f"{layers} layers to a cache",
        "training",
        "layers read the keys and values of another one, as many bytes a step as before",
        "Brandon et al. 2024 (arXiv 2405.12981); F3.5",
        lambda model: variants.sharing(model, layers),
    )


def _format(value: str, load: Callable[[str], NumberFormat]) -> Part:
    if not value.strip():
        raise ValueError(value)
    kv_format = load(value.strip())
    recent = f" but for the last {kv_format.recent} tokens" if kv_format.recent else ""
    return Part(
        "kv",
        f"cache in {kv_format.name}",
        "serving",
        f"entries are rounded to {kv_format.bits_per_element:g} bits{recent}",
        f"{kv_format.source}; F3.7",
        kv_format=kv_format,
        exact_tokens=kv_format.recent,
    )


_READERS: dict[str, Callable[[str], Part]] = {
    "mqa": _one_head,
    "gqa": _groups,
    "mla": _latents,
    "window": _window,
    "interleave": _interleave,
    "sinks": _sinks,
    "h2o": _heavy_hitters,
    "share": _share,
}
