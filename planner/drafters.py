"""What each way of drafting costs.

A draft model; a layer that the target was trained with (MTP) or that was trained for it (EAGLE); heads (Medusa); the target's own first
layers; or a look-up in what was written already. Each becomes a :class:`~roofplan.planner.speculative_steps.Drafter` at nominal rates and
one as reached, its weights and its cache. A pass of a drafter takes the engine's host as a step does, Medusa's heads aside, which run in
the step. Some engines also spend a fixed time on every round, which is a figure of its own.

Sources: formulas F11.9, F11.11; DeepSeek-V3 report (arXiv 2412.19437) for MTP; EAGLE (arXiv 2401.15077) and EAGLE-3 (arXiv 2503.01840);
Medusa (arXiv 2401.10774); Draft & Verify (arXiv 2309.08168) for skipped layers. Left out: passes over the prompt, expansion of several
nodes at a time, the tables of candidates that trees need.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, cast, get_args

from ..errors import DomainError
from ..models.spec import Attention, LayerGroup, Mlp, Moe, OtherParameters, Recurrent
from . import domain
from .memory import rank_cache
from .parallel import SINGLE, divided
from .parameters import count_parameters, stored_bytes
from .reached import reached_model
from .results import Assumption, Notice
from .speculative_steps import Drafter, early_exit
from .step import NO_HOST, StepModel

if TYPE_CHECKING:
    from ..models.spec import ModelSpec
    from .deployment import Deployment
    from .formats import Formats
    from .kv_cache import CacheLayout

Method = Literal["mtp", "medusa", "eagle", "ngram", "layer-skip"]
METHODS: tuple[Method, ...] = get_args(Method)

_SHARED_TABLES = ("embedding", "head")  # of drafters that use the target's


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """One way of drafting for one deployment.

    Parameters
    ----------
    method, name : how it drafts, and with what
    nominal, reached : what a pass costs at nominal rates, and on kernels as they are reached
    weights_bytes : of the drafter, on the fullest device; ``head_bytes`` more for each position of a round (Medusa's heads)
    cache : of a sequence on a rank, or None
    parameters : of a draft model; None where the drafter is a part of the target
    """

    method: str
    name: str
    nominal: Drafter
    reached: Drafter
    weights_bytes: int = 0
    head_bytes: int = 0
    cache: CacheLayout | None = None
    parameters: int | None = None
    assumptions: tuple[Assumption, ...] = ()
    notices: tuple[Notice, ...] = ()


def round_overhead(d: Deployment, given_s: float | None) -> tuple[float, Assumption]:
    """Fixed seconds of a round: as given, else what is known of the engine, else none.

    Raises
    ------
    DomainError : for a negative time
    """
    if given_s is not None:
        return domain.not_negative("--overhead", given_s), Assumption("round_overhead_s", given_s, "as given", "user")
    seconds, origin = d.engine.timing.draft_round, d.engine.origin("timing.draft_round")
    if not seconds or origin is None:
        source = "none is known of this engine: rounds cost their steps"
        return 0.0, Assumption("round_overhead_s", 0.0, source, "derived")
    return seconds, Assumption("round_overhead_s", seconds, origin.source, origin.kind)


def of_cost(relative_cost: float, overhead_s: float = 0.0) -> DraftPlan:
    """A drafter of which only c_d is known, the cost of a draft in plain steps of the target (formula F11.5).

    Raises
    ------
    DomainError : for a negative cost or overhead
    """
    domain.not_negative("--draft-cost", relative_cost)
    return DraftPlan(
        "draft-cost",
        f"a drafter that takes {relative_cost:g} of a step",
        Drafter(relative_cost=relative_cost),
        Drafter(relative_cost=relative_cost, overhead_s=overhead_s),
    )


def of_model(target: Deployment, draft: Deployment, overhead_s: float = 0.0) -> DraftPlan:
    """A draft model on the target's devices, which decodes the same sequences.

    A draft larger than the target, another vocabulary and a shorter context are said, not refused.

    Raises
    ------
    SpecError : when the device has no rate for an arithmetic type that is needed
    """
    own, of_target = count_parameters(draft.model).total, count_parameters(target.model).total
    notices = []
    if own > of_target:
        message = f"{draft.model.name} has {own:,} parameters, the target {of_target:,}: a draft is meant to be smaller"
        notices.append(Notice("draft_larger_than_target", message))
    if draft.model.vocab_size != target.model.vocab_size:
        message = f"the draft has {draft.model.vocab_size:,} tokens, the target {target.model.vocab_size:,}: engines want one vocabulary"
        notices.append(Notice("draft_vocabulary_differs", message))
    limit = draft.model.max_context
    if limit is not None and target.workload.length > limit:
        message = f"{target.workload.length:,} tokens exceed the {limit:,} that {draft.model.name} was published for"
        notices.append(Notice("draft_context_exceeded", message))
    return DraftPlan(
        "draft",
        draft.model.name,
        *_drafters(draft, overhead_s),
        weights_bytes=stored_bytes(draft.model, draft.formats, draft.layout),
        cache=rank_cache(draft),
        parameters=own,
        notices=tuple(notices),
    )


def of_method(
    d: Deployment,
    method: Method,
    sixteen_bits: Formats,
    *,
    overhead_s: float = 0.0,
    layers: int | None = None,
    vocabulary: int | None = None,
) -> DraftPlan:
    """A drafter that belongs to the target.

    Parameters
    ----------
    sixteen_bits : formats of what was trained for the target (EAGLE, Medusa) and is published in 16 bits; an MTP layer has the target's
    layers : that ``layer-skip`` runs; half of them where not given
    vocabulary : tokens among which the drafter chooses (EAGLE-3: 32,000); the target's where not given

    Raises
    ------
    DomainError : for layers or a vocabulary that the method or the target does not have
    """
    if layers is not None and method != "layer-skip":
        raise DomainError("--draft-layers", got=f"{layers} with {method}", wanted="--method layer-skip beside it")
    if vocabulary is not None:
        if method in {"ngram", "layer-skip"}:
            raise DomainError("--draft-vocabulary", got=method, wanted="a drafter with a head of its own")
        domain.count("--draft-vocabulary", vocabulary, 2, d.model.vocab_size)
    match method:
        case "ngram":
            return DraftPlan(method, "look-up of n-grams", Drafter(), Drafter(overhead_s=overhead_s))
        case "layer-skip":
            return _first_layers(d, layers, overhead_s)
        case "medusa":
            return _heads(replace(d, formats=sixteen_bits), vocabulary, overhead_s)
        case "mtp":
            return _mtp_layer(d, vocabulary, overhead_s)
        case "eagle":
            return _eagle_layer(replace(d, formats=sixteen_bits), vocabulary, overhead_s)


def has_mtp_layer(model: ModelSpec) -> bool:
    """Whether a model comes with a layer of its own that drafts (MTP)."""
    kinds = [*(part.kind for part in model.parts), *(stored.kind for stored in model.checkpoint)]
    return "mtp" in kinds


def _heads(d: Deployment, vocabulary: int | None, overhead_s: float) -> DraftPlan:
    """A square block and a head for each draft."""
    model = replace(_with(d.model, LayerGroup(count=1, norms=0), 1, vocabulary), final_norms=0)
    one = _on_its_ranks(d, model)
    nominal, reached = _drafters(one, overhead_s)
    if isinstance(reached.model, StepModel):
        reached = replace(reached, model=replace(reached.model, host=NO_HOST))
    return DraftPlan("medusa", "Medusa heads", nominal, reached, head_bytes=_own_bytes(one, whole_head=True))


def _mtp_layer(d: Deployment, vocabulary: int | None, overhead_s: float) -> DraftPlan:
    """One layer more, in the target's formats."""
    model = d.model
    layer = _with(model, _last_layer(model), 2, vocabulary)
    plan = _one_layer(d, "mtp", layer, "one like the model's last", overhead_s, whole_head=vocabulary is not None)
    if has_mtp_layer(model):
        return plan
    message = f"no MTP layer of {model.name} is known: one like its last layer is taken"
    return replace(plan, notices=(Notice("mtp_not_known", message),))


def _eagle_layer(d: Deployment, vocabulary: int | None, overhead_s: float) -> DraftPlan:
    """A dense layer over the target's features; EAGLE-3's takes those of three layers, and has a head over a smaller vocabulary."""
    small = vocabulary is not None
    layer = _with(d.model, _dense_layer(d.model), 3 if small else 2, vocabulary)
    return _one_layer(d, "eagle", layer, "a dense one as wide as the target's", overhead_s, whole_head=small)


def _one_layer(
    d: Deployment, method: Method, model: ModelSpec, taken: str, overhead_s: float, *, whole_head: bool
) -> DraftPlan:
    draft = _on_its_ranks(d, model)
    return DraftPlan(
        method,
        "MTP layer" if method == "mtp" else "EAGLE head",
        *_drafters(draft, overhead_s),
        weights_bytes=_own_bytes(draft, whole_head=whole_head),
        cache=rank_cache(draft),
        assumptions=(Assumption("draft_layer", taken, "shape of published drafters", "derived"),),
    )


def _on_its_ranks(d: Deployment, model: ModelSpec) -> Deployment:
    """A part of the target as a drafter on each rank of one stage; without experts there is nothing that their ranks divide."""
    experts = any(isinstance(part, Moe) for group in model.layers for part in group.mlp)
    return replace(d, model=model, layout=replace(d.layout, pp=1, ep=d.layout.ep if experts else 1))


def _drafters(draft: Deployment, overhead_s: float) -> tuple[Drafter, Drafter]:
    reached = cast("StepModel", reached_model(draft))
    return Drafter(StepModel.of(draft)), Drafter(reached, overhead_s=overhead_s)


def _first_layers(d: Deployment, layers: int | None, overhead_s: float) -> DraftPlan:
    kept = max(1, d.model.num_layers // 2) if layers is None else layers
    domain.count("--draft-layers", kept, 1, d.model.num_layers)
    draft = _on_its_ranks(d, early_exit(replace(d, layout=replace(d.layout, pp=1, ep=1)), kept).model)
    source = "half of the layers" if layers is None else "as given"
    return DraftPlan(
        "layer-skip",
        f"{kept} of {d.model.num_layers} layers",
        *_drafters(draft, overhead_s),
        assumptions=(Assumption("draft_layers", kept, source, "derived" if layers is None else "user"),),
    )


def _with(model: ModelSpec, layer: LayerGroup, inputs: int, vocabulary: int | None) -> ModelSpec:
    """The target with one layer only, and a projection of several vectors of its width to one."""
    projection = OtherParameters(
        name="projection", count=inputs * model.hidden_size**2, read_per_step=True, source="shape of published drafters"
    )
    return replace(
        model,
        layers=(layer,),
        vocab_size=vocabulary or model.vocab_size,
        other_parameters=(projection,),
        parts=(),
        checkpoint=(),
    )


def _last_layer(model: ModelSpec) -> LayerGroup:
    """The last layer that looks at the past: of models that also have recurrent layers, one with attention."""
    looking = [
        group
        for group in model.layers
        if group.attention and not any(isinstance(mixer, Recurrent) for mixer in group.attention)
    ]
    return replace((looking or model.layers)[-1], count=1)


def _dense_layer(model: ModelSpec) -> LayerGroup:
    """A layer with the target's attention, in full where it has any such, and an MLP as wide as what the target uses for a token."""
    layer = _last_layer(model)
    full = [
        mixer
        for group in model.layers
        for mixer in group.attention
        if isinstance(mixer, Attention) and mixer.kind == "full"
    ]
    width = max((_width(part) for group in model.layers for part in group.mlp), default=4 * model.hidden_size)
    mlp = Mlp(kind="gated", intermediate_size=width)
    return replace(layer, attention=(full[-1],) if full else layer.attention, mlp=(mlp,))


def _width(part: Mlp | Moe) -> int:
    if isinstance(part, Mlp):
        return part.intermediate_size
    return part.experts_per_token * part.intermediate_size + (part.shared.intermediate_size if part.shared else 0)


def _own_bytes(draft: Deployment, *, whole_head: bool) -> int:
    """Bytes of a drafter on one rank, without the tables that it shares with the target.

    Known to be inexact: norms and projections, which every rank holds, are divided too.
    """
    shared = _SHARED_TABLES[:1] if whole_head else _SHARED_TABLES
    kinds = count_parameters(draft.model).by_class
    own = sum(
        count * draft.formats.weights[kind].bytes_per_element for kind, count in kinds.items() if kind not in shared
    )
    if whole_head and draft.model.tied_embeddings:
        own += kinds["embedding"] * draft.formats.weights["embedding"].bytes_per_element
    return divided(round(own), draft.layout.tp) if draft.layout != SINGLE else round(own)
