"""Choosing the cheapest way to keep a cache that holds limits on its error, measured on stated arrays.

The cost is bytes: of a sequence of a model where one is given, else of an element at the length of the arrays. Each scheme's error is that
of :func:`~roofplan.planner.quantisation_error.attention_error`, of several heads the worst. Errors on the arrays are no promise for others.

Sources: formulas F3.7 and F14.5.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from ..errors import DomainError, QuantityError, UnknownNameError
from ..models.spec import LatentAttention
from ..quantities import NUMBER, parse
from .kv_cache import cache_layout
from .quantisation_error import AttentionError, attention_error
from .results import Answer, Assumption, Explanation, Notice

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..models.spec import ModelSpec
    from .kv_schemes import Heads, Scheme

# What can be limited: the figure, and what it is.
METRICS: dict[str, tuple[str, str]] = {
    "kl": ("divergence", "mean KL divergence of attention weights, in nats"),
    "tv": ("total_variation", "mean total variation of attention weights"),
    "score": ("score_rms", "root mean square of the scores' errors"),
    "key": ("relative_key_error", "relative error of the keys"),
    "value": ("relative_value_error", "relative error of the values"),
    "output": ("output_error", "mean norm of the outputs' errors"),
    "cosine": ("output_cosine", "mean cosine of outputs with and without the error"),
}
_AT_LEAST = "cosine"  # the one of which more is better
_AT_MOST_ONE = ("tv", "cosine")
_OF_VALUES = {"value", "output", "cosine"}
_WANTED = "METRIC=LIMIT such as kl=0.01 or kl=0.01,cosine=0.99"
_LONGEST = 200  # characters


@dataclass(frozen=True, slots=True)
class Limit:
    """The most (of the cosine the least) that a figure may be."""

    metric: str
    value: float

    def holds(self, errors: AttentionError) -> bool:
        """Whether it holds."""
        found: float = getattr(errors, METRICS[self.metric][0])
        return found >= self.value if self.metric == _AT_LEAST else found <= self.value

    def __str__(self) -> str:
        """Print it: ``kl <= 0.01``."""
        return f"{self.metric} {'>=' if self.metric == _AT_LEAST else '<='} {self.value:g}"


def parse_limits(text: object) -> tuple[Limit, ...]:
    """Read limits: ``kl=0.01``, or several separated by commas.

    Raises
    ------
    DomainError : for what is no limit, or a metric that comes twice
    QuantityError : for a number that is none, is negative, or of a share is above one
    UnknownNameError : for a metric that there is not

    >>> [str(limit) for limit in parse_limits("kl=0.01,cosine=0.99")]
    ['kl <= 0.01', 'cosine >= 0.99']
    """
    if not isinstance(text, str) or len(text) > _LONGEST:
        got = "a long text" if isinstance(text, str) else f"a value of type {type(text).__name__}"
        raise DomainError("--error-budget", got=got, wanted=_WANTED)
    limits: list[Limit] = []
    for item in text.split(","):
        name, sign, number = (part.strip() for part in item.partition("="))
        if not sign or not name or not number:
            raise DomainError("--error-budget", got=repr(item.strip()), wanted=_WANTED)
        metric = name.lower()
        if metric not in METRICS:
            raise UnknownNameError("--error-budget", got=name, wanted=f"one of {', '.join(METRICS)}, as {_WANTED}")
        if metric in {limit.metric for limit in limits}:
            raise DomainError("--error-budget", got=f"{metric} twice", wanted="each metric once")
        value = float(parse(number, NUMBER, f"--error-budget {metric}"))
        if metric in _AT_MOST_ONE and value > 1:
            raise QuantityError(f"--error-budget {metric}", got=number, wanted="a number from 0 to 1")
        limits.append(Limit(metric, value))
    return tuple(limits)


# ------------------------------------------------------------------------------------------------ the choice


@dataclass(frozen=True, slots=True)
class Tried:
    """One scheme on the arrays.

    Parameters
    ----------
    mean_bits : bits of an element, recent tokens in 16 bits, at the context (of a model), or the length of the arrays
    bytes_per_sequence : of the model, or None without one
    errors : None where the scheme cannot be tried
    broken : limits that do not hold
    reason : a code of why it cannot be tried; empty where it can
    """

    scheme: Scheme
    mean_bits: float
    bytes_per_token: int | None
    bytes_per_sequence: int | None
    errors: AttentionError | None
    broken: tuple[Limit, ...]
    reason: str = ""

    @property
    def holds(self) -> bool:
        """Whether all limits hold."""
        return self.errors is not None and not self.broken

    @property
    def cost(self) -> tuple[float, float]:
        """What schemes are ordered by: bytes, then the divergence."""
        size = self.mean_bits if self.bytes_per_sequence is None else self.bytes_per_sequence
        return size, self.errors.divergence if self.errors else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data, in base units."""
        return {
            "scheme": self.scheme.format.name,
            "rounding": self.scheme.words,
            "keys_per": self.scheme.keys_per,
            "bits_per_element": self.scheme.format.bits_per_element,
            "mean_bits_per_element": self.mean_bits,
            "bytes_per_token": self.bytes_per_token,
            "bytes_per_sequence": self.bytes_per_sequence,
            "holds": self.holds,
            "broken": [limit.metric for limit in self.broken],
            "errors": self.errors,
            "reason": self.reason or None,
        }


@dataclass(frozen=True, slots=True)
class Choice:
    """Schemes from the cheapest on, and the limits.

    Parameters
    ----------
    context : length of the sequence that bytes and bits are of
    keeps_latents : whether the model keeps latents, of which arrays of heads say little
    """

    limits: tuple[Limit, ...]
    heads: Heads
    tried: tuple[Tried, ...]
    context: int
    keeps_latents: bool

    @property
    def chosen(self) -> Tried | None:
        """The cheapest scheme that holds all limits, or None."""
        return next((one for one in self.tried if one.holds), None)

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """What the limits, or the arrays, do not say."""
        notices = []
        if not _OF_VALUES & {limit.metric for limit in self.limits}:
            message = "these limits say nothing of the values: cosine=0.99 or value=0.05 beside them would"
            notices.append(Notice("values_not_limited", message))
        if self.heads.synthetic:
            message = "the arrays are synthetic: those of your own model (--tensors) decide"
            notices.append(Notice("synthetic_tensors", message))
        if self.keeps_latents:
            message = "the model keeps latents and not keys and values of heads: arrays of heads say little of them"
            notices.append(Notice("latents_not_tried", message))
        return tuple(notices)

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """The arrays, where they were not given."""
        if not self.heads.synthetic:
            return ()
        return (
            Assumption("tensors", self.heads.source, "formula F14.5; the design of KIVI (arXiv 2402.02750)", "default"),
        )

    def inputs(self) -> dict[str, Any]:
        """What was asked."""
        return {
            "error_budget": {limit.metric: limit.value for limit in self.limits},
            "tensors": "synthetic" if self.heads.synthetic else self.heads.source,
        }

    def figures(self) -> dict[str, Any]:
        """What was found."""
        chosen = self.chosen
        return {
            "limits": [
                {"metric": one.metric, "value": one.value, "is_least": one.metric == _AT_LEAST} for one in self.limits
            ],
            "tensors": {
                "source": self.heads.source,
                "synthetic": self.heads.synthetic,
                "heads": len(self.heads.arrays),
                "tokens": self.heads.tokens,
            },
            "context": self.context,
            "chosen": None if chosen is None else chosen.scheme.format.name,
            "schemes": [one.to_dict() for one in self.tried],
        }

    def explain(self) -> tuple[Explanation, ...]:
        """Each scheme: its bits and its errors against the limits."""
        return tuple(self._explained(one) for one in self.tried)

    def _explained(self, one: Tried) -> Explanation:
        kv = one.scheme.format
        errors = (
            ""
            if one.errors is None
            else ", ".join(f"{metric} {getattr(one.errors, field):.6g}" for metric, (field, _) in METRICS.items())
        )
        scales = f" + ({kv.scale_bits} + {kv.zero_bits}) / {kv.group}" if kv.group and kv.scale_bits else ""
        recent = f", the last {kv.recent} of {self.context:,} tokens in 16 bits" if kv.recent else ""
        return Explanation(
            f"error_budget.{kv.name}",
            f"{one.mean_bits:.4g} bits, {'holds' if one.holds else one.reason or 'does not hold'}",
            "bits + (scale + zero) / group, recent tokens in 16 bits (F3.7); errors on the arrays, the worst head (F14.5)",
            f"{kv.bits}{scales}{recent}; {errors or one.reason}",
            (("rounding", one.scheme.words, kv.source), ("tensors", self.heads.source, "stated")),
            ", ".join(map(str, one.broken)),
        )


def choose_scheme(
    limits: tuple[Limit, ...],
    heads: Heads,
    schemes: Iterable[Scheme],
    model: ModelSpec | None = None,
    context: int | None = None,
) -> Choice:
    """Try every scheme on arrays, and order them by what they cost.

    Parameters
    ----------
    model, context : whose cache, and a sequence of how many tokens, is to be kept; without a model an element of the arrays counts

    Raises
    ------
    DomainError : for arrays that are no queries, keys and values of one width
    """
    length = heads.tokens if model is None or context is None else context
    tried = sorted((_tried(limits, heads, scheme, model, length) for scheme in schemes), key=lambda one: one.cost)
    latents = model is not None and any(
        isinstance(mixer, LatentAttention) for group in model.layers for mixer in group.attention
    )
    return Choice(limits, heads, tuple(tried), length, latents)


def _tried(limits: tuple[Limit, ...], heads: Heads, scheme: Scheme, model: ModelSpec | None, length: int) -> Tried:
    cache = None if model is None else cache_layout(model, scheme.format)
    costs = (
        scheme.mean_bits(length),
        None if cache is None else cache.bytes_per_token,
        None if cache is None else cache.bytes_per_sequence(length),
    )
    if not all(scheme.divides(keys.shape[1], values.shape[1]) for _, keys, values in heads.arrays):
        return Tried(scheme, *costs, None, (), "groups_do_not_divide")
    found = []
    for queries, keys, values in heads.arrays:
        stored = scheme.stored(keys, values)
        if not all(abs(array).max() < _OVERFLOWN for array in stored):  # infinite, or no number
            return Tried(scheme, *costs, None, (), "scale_overflows")
        found.append(attention_error(queries, keys, values, *stored))
    errors = _worst(found)
    return Tried(scheme, *costs, errors, tuple(limit for limit in limits if not limit.holds(errors)))


_OVERFLOWN = 1e60


def _worst(found: list[AttentionError]) -> AttentionError:
    """The worst of each figure over all heads."""
    least = METRICS[_AT_LEAST][0]
    names = [field.name for field in fields(AttentionError)]
    return AttentionError(
        **{name: (min if name == least else max)(getattr(one, name) for one in found) for name in names}
    )


@dataclass(frozen=True, slots=True)
class BudgetResult(Answer):
    """The answer of ``roofplan kv --error-budget`` without a model: bits of an element."""

    choice: Choice

    @property
    def command(self) -> str:
        """The verb that this answers."""
        return "kv"

    @property
    def good(self) -> bool:
        """Whether any scheme holds the limits."""
        return self.choice.chosen is not None

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """What the limits, or the arrays, do not say."""
        return self.choice.warnings

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """The arrays, where they were not given."""
        return self.choice.assumptions

    def inputs(self) -> dict[str, Any]:
        """What was asked."""
        return self.choice.inputs()

    def figures(self) -> dict[str, Any]:
        """What was found."""
        return {"error_budget": self.choice.figures()}

    def explain(self) -> tuple[Explanation, ...]:
        """Each scheme: its bits and its errors."""
        return self.choice.explain()
