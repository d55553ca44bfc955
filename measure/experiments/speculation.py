"""Speculative decoding end to end: tokens per round, time per token against decoding alone, and a test of what comes out.

The draft is the target with fewer layers, the same table and the same head. Its acceptance says nothing of trained models; that the time of
a token follows from acceptance and step times, and that the output is the target's, is what is shown.

Sources: formulas F11.1 to F11.5; Leviathan et al. 2023 (arXiv 2211.17192).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import DomainError
from ...models.spec import Attention, LayerGroup, Mlp, ModelSpec
from ...planner.acceptance import expected_tokens
from ...planner.goodness import chi_square
from .bench import Bench, bench
from .few import few

if TYPE_CHECKING:
    from ...planner.step import StepModel
    from ..machine import Machine
    from ..records import Record
    from ..reference.model import Reference
    from ..timing import Limits

DRAFTS, QUICK_DRAFTS = (2, 4), (3,)
PROMPT, OUTPUT, QUICK_OUTPUT = 16, 48, 12
ROUNDS = 2000  # of the test of what comes out
_DRAFT_SHARE = 4  # the draft has so many times fewer layers
_VOCABULARY = 16  # of the test: counts by kind need few kinds
UNLIKELY = 1e-6  # a p-value below it is said to be a fault


def run(
    machine: Machine,
    model: ModelSpec | None,
    limits: Limits,
    *,
    drafts: tuple[int, ...] | None = None,
    output: int | None = None,
    rounds: int = ROUNDS,
    **options: Any,
) -> list[Record]:
    """Speculate: ``speculation.token`` and ``speculation.token_alone`` (s), ``…acceptance``, ``…tokens_per_round``, ``…p_value`` (1).

    Parameters
    ----------
    drafts : k, tokens that are drafted in a round
    output : tokens that are generated
    rounds : of the test of what comes out
    options : of :func:`~roofplan.measure.experiments.bench.bench`
    """
    from ..reference.depth import at_depth

    own = bench(machine, model, limits, **options)
    begun = len(own.records)
    small = at_depth(own.spec, max(len(own.spec.layers), own.spec.num_layers // _DRAFT_SHARE))
    target, draft = own.model(), own.of(small).model()
    count = output or (QUICK_OUTPUT if own.quick else OUTPUT)
    prompt = target.tokens(1, PROMPT)
    context = PROMPT + count / 2
    alone = few(own).time(lambda: sampled(target, prompt, count))
    own.add(
        "speculation.token_alone",
        "s",
        alone.scaled(1 / count),
        {"output": count},
        predict=lambda steps: steps.step_s(1, context),
    )
    for k in drafts or (QUICK_DRAFTS if own.quick else DRAFTS):
        try:
            _speculate(own, own.of(small), target, draft, k, count)
        except DomainError as error:
            own.say(f"speculation: {error}")
            break
    p_value = judged(rounds)
    own.add("speculation.p_value", "1", p_value, {"rounds": rounds, "vocabulary": _VOCABULARY})
    if p_value < UNLIKELY:
        own.say(f"speculation: the output is not distributed as the target's (p {p_value:.1e}): a fault of roofplan")
    return own.records[begun:]


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a generation gave: tokens beyond the prompt, rounds, and the mean overlap of the two distributions."""

    tokens: int
    rounds: int
    acceptance: float


def _generate(target: Reference, draft: Reference, k: int, output: int) -> _Outcome:
    """Generate once, and look at the distributions of every round."""
    import torch

    from ..reference.speculate import Speculation

    loop = Speculation(target, draft, k)
    loop.start(target.tokens(1, PROMPT), output)
    tokens, overlaps = 0, []
    while tokens < output:
        found = loop.round()
        tokens += int(found.kept[0]) + 1
        looked_at = min(int(found.kept[0]) + 1, k)  # later drafts were never judged
        overlaps.append(torch.minimum(found.draft, found.target[:, :k])[0, :looked_at].sum(-1))
    return _Outcome(tokens, len(overlaps), min(1.0, float(torch.cat(overlaps).mean())))


def _speculate(own: Bench, small: Bench, target: Reference, draft: Reference, k: int, output: int) -> None:
    """Time a generation, and add the records of k."""
    from ..reference.speculate import Speculation

    once = _generate(target, draft, k, output)
    prompt, context = target.tokens(1, PROMPT), PROMPT + output / 2
    # A loop of the same seed draws the same tokens, so that every sample does the same work.
    timed = few(own).time(lambda: Speculation(target, draft, k).generate(prompt, output))
    tokens = expected_tokens(once.acceptance, k)

    def of(target_steps: StepModel | None, draft_steps: StepModel | None) -> float | None:
        if target_steps is None or draft_steps is None:
            return None
        drafting = k * float(draft_steps.step_s(1, context))
        return (drafting + float(target_steps.step_s(1, context, verify=k + 1))) / tokens

    parts = {"drafts": k, "draft_layers": draft.spec.num_layers, "tokens": once.tokens, "rounds": once.rounds}
    pairs = zip(own.step_models(), small.step_models(), strict=True)
    nominal, reached = (of(target_steps, draft_steps) for target_steps, draft_steps in pairs)
    own.add("speculation.acceptance", "1", once.acceptance, parts)
    own.add("speculation.tokens_per_round", "1", once.tokens / once.rounds, parts, predicted=tokens)
    own.add("speculation.token", "s", timed.scaled(1 / once.tokens), parts, pair=(nominal, reached))


def sampled(model: Reference, prompt: Any, output: int, seed: int = 0) -> Any:
    """Tokens of a model that decodes alone, sampled from its distribution."""
    import torch

    from ..reference.speculate import sample

    random = torch.Generator(model.device).manual_seed(seed)
    cache = model.cache(1, prompt.shape[1] + output)
    new, out = prompt, []
    for _ in range(output):
        new = sample(model(new, cache)[:, -1].float().softmax(-1), random)[:, None]
        out.append(new)
    return torch.cat(out, dim=1)


def judged(rounds: int, seed: int = 0) -> float:
    """How likely the first tokens of so many rounds are, when they do come from the target: two tiny random models, chi-square."""
    import torch

    from ..reference.model import Reference
    from ..reference.speculate import Speculation

    layer = LayerGroup(
        count=1,
        attention=(Attention(kind="full", num_heads=2, num_kv_heads=1, head_dim=16),),
        mlp=(Mlp(kind="gated", intermediate_size=64),),
    )
    spec = ModelSpec(
        schema="roofplan/model/v1",
        name="judged",
        sources=(),
        hidden_size=32,
        vocab_size=_VOCABULARY,
        layers=(layer,),
    )
    target, draft = Reference(spec, torch.float64, seed=1), Reference(spec, torch.float64, seed=2)
    loop = Speculation(target, draft, 2, seed=seed)
    prompt = target.tokens(1, 4)
    loop.start(prompt.expand(rounds, -1), 4)
    counts = torch.bincount(loop.round().tokens[:, 0], minlength=_VOCABULARY).tolist()
    expected = target(prompt)[0, -1].softmax(-1)
    return chi_square(counts, (expected / expected.sum()).tolist()).p_value
