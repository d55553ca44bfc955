"""Levers of attention: kernels that keep scores on the chip, and shapes that are decided when a model is trained."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, cast

from ...errors import DomainError
from ...models.spec import Attention, CompressedAttention, CrossAttention, LatentAttention
from ...quantities import show_bytes, show_count
from ..costs import Elementwise
from ..kernel_times import OperatorTime
from ..kv_cache import cache_layout
from ..parallel import SINGLE
from ..step import StepModel
from ..variants import interleaved, with_kv_heads, with_latents
from .outcomes import outcome_of
from .situation import EXACT, PAYS, Lever, not_applicable, room_reason, without_given_weights
from .words import change, times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...models.spec import Mixer, ModelSpec
    from ..costs import Bottleneck, Cost, Load, Operator, Part
    from ..deployment import Deployment
    from ..parallel import Layout
    from .outcomes import Outcome
    from .situation import Situation

# ------------------------------------------------------------------------------------------------ scores on the chip


@dataclass(frozen=True, slots=True)
class WrittenScores:
    """The matrix of scores of kernels that write it out: written, read, and again as probabilities, four times a pair (formula F15.1).

    ``heads`` are those of all layers on one rank. All pairs are moved, masked ones and those outside of a window too.
    """

    heads: int
    bytes_per_score: float
    phase: Literal["decode", "prefill"]
    name: str = "written scores"
    arithmetic: str = ""
    launches: int = 0

    part: Part = "elementwise"
    bottleneck: Bottleneck = "kv_bandwidth"

    def cost(self, load: Load) -> Cost:
        """Bytes of all layers."""
        if self.phase == "decode":
            pairs = load.decoders * load.verify * load.context
        else:
            pairs = load.chunk * (load.past + load.chunk / load.pieces)
        return 0, 0, 0, _MOVED * self.heads * self.bytes_per_score * pairs


_MOVED = 4


def flash_attention(s: Situation) -> Iterator[Lever]:
    """FlashAttention against kernels that write out the scores (formulas F15.1, F15.2; Dao et al. 2022).

    The traffic is added to the steps of the deployment, and the matrix of one layer to its activations.
    """
    d, title = s.deployment, "FlashAttention, against written scores"
    heads = query_heads(d.model)
    if not isinstance(s.reached, StepModel):
        why = f"{d.engine.engine} is timed as a whole, with the attention that it has"
        yield not_applicable(s, "flash_attention", title, why)
        return
    if not heads:
        yield not_applicable(s, "flash_attention", title, "no layer attends to other tokens")
        return
    prompt, step = d.workload.prompt, min(d.workload.prompt, d.step_tokens)
    width = d.formats.activation_bytes
    matrix = round(max(query_heads(d.model, per_layer=True), 1) // d.layout.tp * step * prompt * width)
    plan = replace(s.plan, kv_budget_bytes=s.plan.kv_budget_bytes - matrix)
    before = outcome_of(
        d,
        plan=plan,
        nominal=_writing(s.nominal, heads // d.layout.tp, width),
        reached=_writing(s.reached, heads // d.layout.tp, width),
    )
    moved = _MOVED * heads / d.layout.tp * step * prompt * width
    slower = before.ttft_s is not None and s.outcome.ttft_s is not None and before.ttft_s >= PAYS * s.outcome.ttft_s
    yield Lever(
        id="flash_attention",
        title=title,
        status="in_use",
        exact=True,
        before=before,
        after=s.outcome,
        reason=room_reason(before, s.outcome) or ("scores_stay_on_the_chip" if slower else "prompts_are_short"),
        why=(
            f"the scores of {show_count(step)} prompt tokens against {show_count(prompt)} would move {show_bytes(moved)} in all layers and"
            f" hold {show_bytes(matrix)} in one; {change(before, s.outcome)}"
        ),
        quality=EXACT,
        complexity="none: every engine has it",
        memory_bytes=-matrix,
        figures={"score_traffic_bytes": moved, "score_matrix_bytes": matrix},
    )


def query_heads(model: ModelSpec, *, per_layer: bool = False) -> int:
    """Query heads of all layers, or the most of one layer, of mixers that attend to tokens."""
    counts = [
        (layer.count, mixer.num_heads)
        for layer in model.layers
        for mixer in layer.attention
        if isinstance(mixer, (Attention, LatentAttention, CompressedAttention, CrossAttention))
    ]
    if per_layer:
        return max((heads for _, heads in counts), default=0)
    return sum(layers * heads for layers, heads in counts)


def _writing(model: StepModel, heads: int, width: float) -> StepModel:
    """A step model with the traffic of written scores, at the rate that other elementwise kernels reach."""
    per_byte = next(
        time.s_per_byte
        for operator, time in zip(model.operators, model.times, strict=True)
        if isinstance(operator, Elementwise)
    )
    phases: tuple[Literal["decode", "prefill"], ...] = ("decode", "prefill")
    more = tuple(cast("Operator", WrittenScores(heads, width, phase)) for phase in phases)
    extra = (OperatorTime(0.0, 0.0, per_byte),) * len(more)
    return replace(model, operators=model.operators + more, times=model.times + extra)


# ------------------------------------------------------------------------------------------------ shapes


def _with_mixers(model: ModelSpec, change_of: Callable[[Mixer], Mixer]) -> ModelSpec:
    layers = tuple(replace(layer, attention=tuple(map(change_of, layer.attention))) for layer in model.layers)
    return replace(model, layers=layers)


def without_latents(model: ModelSpec) -> ModelSpec:
    """The same with keys and values of every head in the place of latents."""

    def changed(mixer: Mixer) -> Mixer:
        if not isinstance(mixer, LatentAttention):
            return mixer
        return Attention(
            kind="full",
            num_heads=mixer.num_heads,
            num_kv_heads=mixer.num_heads,
            head_dim=mixer.qk_nope_head_dim + mixer.qk_rope_head_dim,
            v_head_dim=mixer.v_head_dim,
        )

    return _with_mixers(model, changed)


def with_windows(model: ModelSpec, window: int = 1024, local: int = 5) -> ModelSpec:
    """The same with ``local`` of every ``local`` + 1 layers attending to a window only, as Gemma 3 does (formula F3.3)."""
    return interleaved(model, local, 1, window)


def without_windows(model: ModelSpec) -> ModelSpec:
    """The same with every windowed layer attending to all tokens."""

    def widen(mixer: Mixer) -> Mixer:
        if isinstance(mixer, Attention) and mixer.window is not None:
            return replace(mixer, kind="full", window=None)
        return mixer

    return _with_mixers(model, widen)


_GROUPS = 8  # KV heads of most models with grouped queries


def grouped_queries(s: Situation) -> Iterator[Lever]:
    """Fewer key and value heads: what groups of queries save already, or would save (GQA, MQA; Shazeer 2019, Ainslie et al. 2023)."""
    model = s.deployment.model
    mixers = [m for layer in model.layers for m in layer.attention if isinstance(m, Attention)]
    if not mixers:
        yield not_applicable(
            s, "gqa", "grouped-query attention", "no layer keeps keys and values of heads", exact=False
        )
        return
    if any(m.num_kv_heads < m.num_heads for m in mixers):
        yield _shape(
            s,
            "gqa",
            "grouped queries, against a KV head for each",
            with_kv_heads(model, lambda m: m.num_heads),
            in_use=True,
        )
    elif mixers[0].num_heads > _GROUPS and not mixers[0].num_heads % _GROUPS:
        yield _shape(s, "gqa", f"grouped queries with {_GROUPS} KV heads", with_kv_heads(model, _at_most_groups))
    if any(m.num_kv_heads > 1 for m in mixers):
        yield _shape(s, "mqa", "one KV head for all queries (MQA)", with_kv_heads(model, lambda _: 1))


def _at_most_groups(mixer: Attention) -> int:
    return _GROUPS if mixer.num_heads % _GROUPS == 0 else mixer.num_kv_heads


def latents(s: Situation) -> Iterator[Lever]:
    """Latent attention: what it saves already, or would save (MLA, DeepSeek-V2 report)."""
    model = s.deployment.model
    mixers = [mixer for layer in model.layers for mixer in layer.attention]
    if any(isinstance(mixer, LatentAttention) for mixer in mixers):
        yield _shape(
            s, "mla", "latent attention, against keys and values of every head", without_latents(model), in_use=True
        )
    elif any(isinstance(mixer, Attention) for mixer in mixers):
        title = "latent attention of rank 512 + 64 (MLA)"
        try:
            changed = with_latents(model)
        except DomainError as error:
            yield not_applicable(s, "mla", title, f"it wants {error.wanted}", exact=False)
            return
        yield _shape(s, "mla", title, changed)


def windows(s: Situation) -> Iterator[Lever]:
    """Windows in most layers: what they save already, or would save (Mistral 7B, Gemma 3)."""
    model = s.deployment.model
    mixers = [mixer for layer in model.layers for mixer in layer.attention if isinstance(mixer, Attention)]
    if any(mixer.window is not None for mixer in mixers):
        yield _shape(s, "window", "windows, against full attention in every layer", without_windows(model), in_use=True)
    elif mixers:
        yield _shape(s, "window", "a window of 1,024 tokens in five of six layers", with_windows(model))


def _shape(s: Situation, lever_id: str, title: str, model: ModelSpec, *, in_use: bool = False) -> Lever:
    d = s.deployment
    changed = without_given_weights(replace(d, model=model))
    other = outcome_of(changed)
    before, after = (other, s.outcome) if in_use else (s.outcome, other)
    without_it, with_it = (changed, d) if in_use else (d, changed)
    whole = [_cache_bytes(of, SINGLE) for of in (without_it, with_it)]
    rank = [_cache_bytes(of, d.layout) for of in (without_it, with_it)]
    less = f"{times(whole[0] / whole[1])} fewer cache bytes" if whole[1] else "no cache at all"
    is_smaller, copied = rank[0] > PAYS * rank[1], whole[0] > PAYS * whole[1]
    copies = "" if is_smaller or not copied else f", but each of {d.layout.tp} ranks keeps a whole entry"
    size = f"({show_bytes(whole[0])} -> {show_bytes(whole[1])})"
    return Lever(
        id=lever_id,
        title=title,
        status="in_use" if in_use else "training",
        exact=False,
        before=before,
        after=after,
        reason=_shape_reason(before, after, is_smaller=is_smaller, copied=copied),
        why=(
            f"{less} for {show_count(d.workload.length)} tokens {size}{copies}; decided when a model is trained; {change(before, after)}"
        ),
        quality="a little, and paid in training"
        if in_use
        else "another model: it must be trained, or converted and trained on",
        complexity="decided when the model was trained",
        memory_bytes=(s.memory_of(changed) - s.memory_of(d)) * (-1 if in_use else 1),
        figures={"cache_bytes_without": whole[0], "cache_bytes_with": whole[1]},
        changed=changed,
    )


def _cache_bytes(d: Deployment, layout: Layout) -> int:
    """Cache of a sequence at its end, on one rank of a layout."""
    return cache_layout(d.model, d.formats.kv, layout, d.engine.entries).bytes_per_sequence(d.workload.length)


def _shape_reason(before: Outcome, after: Outcome, *, is_smaller: bool, copied: bool) -> str:
    room = room_reason(before, after)
    if room is not None:
        return room
    if is_smaller:
        return "fewer_cache_bytes"
    return "ranks_hold_copies" if copied else "cache_is_no_smaller"
