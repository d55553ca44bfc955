"""Speculative decoding with two random transformers: what comes out is distributed as the target alone would have it."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # two threads on a shared machine wait for one another

from measured_shapes import DENSE, LATENT, SHAPES, tiny  # noqa: E402  # after importorskip

from roofplan.errors import DomainError  # noqa: E402  # after importorskip
from roofplan.measure.reference.depth import at_depth  # noqa: E402  # after importorskip
from roofplan.measure.reference.model import Reference  # noqa: E402  # after importorskip
from roofplan.measure.reference.speculate import Speculation, verify  # noqa: E402  # after importorskip
from roofplan.planner.acceptance import acceptance_probability, expected_tokens  # noqa: E402  # after importorskip
from roofplan.planner.goodness import chi_square, chi_square_tail  # noqa: E402  # after importorskip

ROWS = 4000
SMALL = replace(DENSE, vocab_size=12)
TARGET = Reference(SMALL, torch.float64)
DRAFT = Reference(replace(at_depth(SMALL, 1), hidden_size=32), torch.float64, seed=5)
PROMPT = torch.tensor([[3, 7, 1, 9]])


def one_round(k: int = 2, seed: int = 1):
    loop = Speculation(TARGET, DRAFT, k, seed=seed)
    loop.start(PROMPT.expand(ROWS, -1), 4)
    return loop.round()


def alone(*tokens: int):
    """The target's distribution after the prompt and some tokens, without any cache."""
    prompt = torch.cat([PROMPT, torch.tensor([tokens], dtype=torch.long)], dim=1)
    return shares(TARGET(prompt)[0, -1].softmax(-1))


def shares(probabilities) -> list[float]:
    """Probabilities in 64 bits, that sum to one."""
    wide = probabilities.double()
    return (wide / wide.sum()).tolist()


def test_the_first_token_is_the_targets():
    counts = torch.bincount(one_round().tokens[:, 0], minlength=12).tolist()
    assert chi_square(counts, alone()).p_value > 1e-3


def test_the_test_tells_the_draft_from_the_target():
    # The same counts against the draft's distribution: the two differ by more than the test lets pass.
    found = one_round()
    counts = torch.bincount(found.tokens[:, 0], minlength=12).tolist()
    assert chi_square(counts, shares(found.draft[0, 0])).p_value < 1e-6


def test_the_second_token_is_the_targets_after_each_first_one():
    found = one_round()
    statistic, degrees = 0.0, 0
    for first in range(12):
        second = found.tokens[(found.kept >= 1) & (found.tokens[:, 0] == first), 1]
        if len(second) >= 100:
            fit = chi_square(torch.bincount(second, minlength=12).tolist(), alone(first))
            statistic, degrees = statistic + fit.statistic, degrees + fit.degrees
    assert degrees > 15
    assert chi_square_tail(statistic, degrees) > 1e-3


def test_drafts_are_kept_as_often_as_the_distributions_overlap():
    found = one_round(1)
    alpha = acceptance_probability(alone(), shares(found.draft[0, 0]))
    share = float(found.kept.double().mean())
    assert 0.2 < alpha < 0.95
    assert share == pytest.approx(alpha, abs=4 * (alpha * (1 - alpha) / ROWS) ** 0.5)


def test_a_draft_that_is_the_target_is_always_kept():
    loop = Speculation(TARGET, Reference(SMALL, torch.float64), 3)
    tokens, rounds = loop.generate(PROMPT, 40)
    assert tokens.shape[1] == 4 * rounds == 40  # four tokens a round: E(1, 3)
    assert expected_tokens(1.0, 3) == 4


@pytest.mark.parametrize("spec", [DENSE, LATENT], ids=lambda spec: spec.name)
def test_rejected_tokens_leave_nothing_in_the_caches(spec):
    # Nearly greedy, so that the tokens are determined: those of the target alone.
    target = Reference(spec, torch.float64)
    draft = Reference(at_depth(spec, 1), torch.float64, seed=3)
    prompt = target.tokens(1, 5)
    tokens, rounds = Speculation(target, draft, 3, temperature=1e-4).generate(prompt, 12)
    assert rounds > 4  # something was rejected
    assert torch.equal(tokens[:, :12], target.generate(prompt, 12))


def test_the_rule_on_given_distributions_gives_the_target_exactly():
    # p = (.5, .3, .2), q = (.2, .5, .3): the residual is (1, 0, 0), alpha 0.7 (formula F11.1).
    p, q = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.5, 0.3])
    random = torch.Generator().manual_seed(0)
    drafts = torch.multinomial(q.expand(20_000, -1), 1, generator=random)
    kept, following = verify(q.expand(20_000, 1, -1), p.expand(20_000, 2, -1), drafts, random)
    assert set(following[kept == 0].tolist()) == {0}
    out = torch.where(kept == 1, drafts[:, 0], following)
    assert chi_square(torch.bincount(out, minlength=3).tolist(), shares(p)).p_value > 1e-3
    assert float(kept.float().mean()) == pytest.approx(0.7, abs=0.013)


def test_models_that_cannot_be_paired_are_refused():
    with pytest.raises(DomainError, match="the vocabulary of the target"):
        Speculation(TARGET, Reference(DENSE), 2)
    states = Reference(next(spec for spec in SHAPES if spec.name == "states"))
    with pytest.raises(DomainError, match="layers with a state"):
        Speculation(states, states, 2)
    with pytest.raises(DomainError, match="at least 1"):
        Speculation(TARGET, DRAFT, 0)
    with pytest.raises(DomainError, match="start before a round"):
        Speculation(TARGET, DRAFT, 1).round()


def test_models_of_fewer_layers_share_table_and_head():
    spec = tiny("untied", replace(DENSE.layers[0], count=3))
    whole, part = Reference(spec), Reference(at_depth(spec, 1))
    assert torch.equal(whole.table, part.table)
    assert torch.equal(whole.head.weight, part.head.weight)
