"""The answer of ``roofplan kv``: what the cache of one sequence takes, by layer group and by context."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..quantities import show_bytes, show_count
from .kv_cache import CacheLayout, CacheTerm, cache_layout
from .results import Answer, Explanation, Notice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..engines.spec import NumberFormat
    from ..models.spec import ModelSpec
    from .cache_variants import VariantTable
    from .error_budget import Choice
    from .parallel import Layout
    from .results import Assumption

_SHOWN_CONTEXTS = (1024, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 1048576)


@dataclass(frozen=True, slots=True)
class KvResult(Answer):
    """Cache bytes of a model: over a whole replica (``whole``) and on one tensor-parallel rank (``rank``).

    ``compared`` are variants beside it, or what a device makes of the model; ``choice`` is the scheme that holds an error budget.
    """

    model: ModelSpec
    kv_format: NumberFormat
    layout: Layout
    context: int
    whole: CacheLayout
    rank: CacheLayout
    compared: VariantTable | None = None
    choice: Choice | None = None

    @property
    def command(self) -> str:
        """The verb that this answers."""
        return "kv"

    @property
    def good(self) -> bool:
        """Whether there is an answer: none where no scheme holds the error budget."""
        return self.choice is None or self.choice.chosen is not None

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """A context beyond the model's, what a device gives to warn of, and what an error budget leaves out."""
        limit = self.model.max_context
        more = () if self.choice is None else self.choice.warnings
        if self.compared is not None and self.compared.served is not None:
            from .notices import warnings_of

            return (*warnings_of(self.compared.served), *more)
        assumed = tuple(Notice("assumed", f"{self.model.name}: {text}") for text in self.model.assumed)
        if limit is None or self.context <= limit:
            return (*assumed, *more)
        message = f"{self.context:,} tokens exceed the {limit:,} that {self.model.name} was published for"
        return (Notice("context_exceeds_model", message), *assumed, *more)

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """What variants, the device and the arrays of an error budget rest on."""
        return (
            *(() if self.compared is None else self.compared.assumptions),
            *(() if self.choice is None else self.choice.assumptions),
        )

    def inputs(self) -> dict[str, Any]:
        """What was asked."""
        asked = {"model": self.model.name, "kv": self.kv_format.name, "context": self.context, "tp": self.layout.tp}
        table = {} if self.compared is None else self.compared.inputs()
        return table | asked | ({} if self.choice is None else self.choice.inputs())

    def figures(self) -> dict[str, Any]:
        """What was found."""
        return {
            "kv": {
                "bytes_per_token": self.whole.bytes_per_token,
                "index_bytes_per_token": self.whole.index_bytes_per_token,
                "fixed_bytes_per_sequence": self.whole.fixed_bytes,
                "state_bytes_per_sequence": self.whole.state_bytes,
                "bytes_per_sequence": self.whole.bytes_per_sequence(self.context),
                "bytes_per_token_per_device": self.rank.bytes_per_token,
                "bytes_per_token_all_ranks": self.rank.bytes_per_token * self.layout.tp,
            },
            "by_layer_group": [
                {
                    "layers": term.layers,
                    "keeps": term.label,
                    "elements_per_entry": term.elements,
                    "entries": term.entries(self.context) if term.stored else 0,
                    "bytes": size,
                }
                for term, size in self.whole.by_term(self.context)
            ],
            "by_context": [
                {"context": context, "bytes_per_sequence": self.whole.bytes_per_sequence(context)}
                for context in self.contexts()
            ],
            **({} if self.compared is None else self.compared.figures()),
            **({} if self.choice is None else {"error_budget": self.choice.figures()}),
        }

    def contexts(self) -> list[int]:
        """Contexts worth a row: round ones up to the model's limit, and the one that was asked for."""
        limit = self.model.max_context or _SHOWN_CONTEXTS[-1]
        return sorted({context for context in _SHOWN_CONTEXTS if context <= limit} | {self.context})

    def explain(self) -> tuple[Explanation, ...]:
        """Derive the growth per token and the bytes of a sequence, of variants too, and each scheme of an error budget."""
        return (
            *explain_cache(self.model, self.whole, self.context),
            *(() if self.compared is None else self._of_variants()),
            *(() if self.choice is None else self.choice.explain()),
        )

    def _of_variants(self) -> Iterator[Explanation]:
        assert self.compared is not None
        for row in self.compared.rows:
            for line in explain_cache(row.model, row.whole, self.context):
                yield replace(line, figure=f"variants.{row.name}.{line.figure.removeprefix('kv.')}")
        for row in (self.compared.now, *self.compared.rows):
            yield from self.compared.explained(row)


def cache_of(model: ModelSpec, kv_format: NumberFormat, layout: Layout, context: int) -> KvResult:
    """Describe the cache of a sequence of ``context`` tokens.

    Raises
    ------
    LayoutError : when the heads do not divide
    """
    from .parallel import check_layout

    check_layout(model, layout)
    return KvResult(
        model, kv_format, layout, context, cache_layout(model, kv_format), cache_layout(model, kv_format, layout)
    )


def explain_cache(model: ModelSpec, cache: CacheLayout, tokens: int) -> tuple[Explanation, ...]:
    """Derive cache bytes term by term (formulas F3.1 to F3.6)."""
    recent = cache.kv_format.recent
    size = f"{cache.kv_format.bytes_per_element:g} B" + (f" (the last {recent} entries 2 B)" if recent else "")
    source = source_of_model(model)
    growing = [term for term in cache.terms if term.grows and not term.index]
    parts = (
        " + ".join(f"{term.layers} layers x {term.elements} elements{_every(term)}" for term in growing)
        or "no layer grows"
    )
    per_token = Explanation(
        "kv.bytes_per_token",
        f"{show_bytes(cache.bytes_per_token)} ({cache.bytes_per_token:,} B)",
        "sum of layers x (key + value elements of all KV heads) x bytes per element (F3.1, F3.2)",
        f"({parts}) x {size}" if growing else parts,
        tuple((f"{term.layers} x {term.label}", f"{term.elements} elements per entry", source) for term in growing),
    )
    stored = [f"{term.layers} x {term.entries(tokens):,} x {term.elements}" for term in cache.terms if term.stored]
    states = f" + {cache.state_bytes:,} B of states" if cache.state_bytes else ""
    total = cache.bytes_per_sequence(tokens)
    per_sequence = Explanation(
        "kv.bytes_per_sequence",
        f"{show_bytes(total)} ({total:,} B) at {show_count(tokens)} tokens",
        "sum of layers x kept entries x elements x bytes per element, kept = min(tokens, window) (F3.3), a share (F3.6), + states (F2.11)",
        f"({' + '.join(stored) or '0'}) x {size}{states}",
        tuple((term.label, f"{term.entries(tokens):,} entries kept", source) for term in cache.terms),
    )
    return (per_token, per_sequence)


def _every(term: CacheTerm) -> str:
    share = f" x {term.share:.4g} kept" if term.share < 1 else ""
    return (f" / {term.every} tokens" if term.every > 1 else "") + share


def source_of_model(model: ModelSpec) -> str:
    """Where a model's shape comes from."""
    return f"{model.name}: {model.sources[0].source}" if model.sources else model.name
