"""Golden values of formula F11.8, and trees against chains, enumerated outcomes and all other trees."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from roofplan.errors import DomainError
from roofplan.planner import draft_trees
from roofplan.planner.acceptance import cumulative_rates, expected_tokens, independent_rates, tokens_of_round

EXACT = 1e-12
HEADS = ((0.6, 0.2, 0.08), (0.5, 0.2))
NODES = ((0,), (1,), (2,), (0, 0), (0, 1), (1, 0))


@st.composite
def heads(draw, most_ranks: int = 3, most_depth: int = 3) -> list[list[float]]:
    """Probabilities by head and rank."""
    drawn = st.lists(st.integers(0, 20), min_size=1, max_size=most_ranks)
    return [[rank / 60 for rank in draw(drawn)] for _ in range(draw(st.integers(1, most_depth)))]


def all_nodes(probabilities) -> list[tuple[int, ...]]:
    """Every path that heads allow."""
    ranks = [range(len(head)) for head in probabilities]
    return [path for depth in range(1, len(ranks) + 1) for path in itertools.product(*ranks[:depth])]


# ------------------------------------------------------------------------------------------------ golden values


def test_static_tree() -> None:  # F11.8
    assert draft_trees.expected_tree_tokens(NODES, HEADS) == approx(2.4, rel=EXACT)
    assert draft_trees.expected_tree_tokens(draft_trees.chain(2), HEADS) == approx(1.9, rel=EXACT)
    assert draft_trees.verify_rows(NODES) == 7
    assert draft_trees.depth_rates(NODES, HEADS) == approx((0.88, 0.52), rel=EXACT)


def test_greedy_growth() -> None:  # F11.8: products .6, .3, .2, .12, .1, .08
    assert draft_trees.greedy_tree(HEADS, 6) == ((0,), (0, 0), (1,), (0, 1), (1, 0), (2,))
    assert draft_trees.greedy_tree(HEADS, 0) == ()
    assert len(draft_trees.greedy_tree(HEADS, 1000)) == 9


def test_dynamic_tree() -> None:  # F11.8, EAGLE-2
    confidences = {(): (0.7, 0.2), (0,): (0.9, 0.05), (1,): (0.8,), (0, 0): (0.5,)}
    tree = draft_trees.greedy_tree(confidences, 5)
    assert tree == ((0,), (0, 0), (0, 0, 0), (1,), (1, 0))  # .7, .63, .315, .2, .16; left out .035
    assert draft_trees.expected_tree_tokens(tree, confidences) == approx(1 + 0.7 + 0.63 + 0.315 + 0.2 + 0.16, rel=EXACT)


def test_ties_go_to_the_shallower_node() -> None:
    assert draft_trees.greedy_tree([(0.5, 0.25, 0.25), (0.5,)], 3) == ((0,), (1,), (2,))
    assert draft_trees.greedy_tree([(1.0,), (1.0,)], 2) == ((0,), (0, 0))


def test_nodes_that_are_never_accepted_are_left_out() -> None:
    assert draft_trees.greedy_tree([(0.5, 0.0), (0.5,)], 10) == ((0,), (0, 0))


def test_rounds_of_trees_and_chains() -> None:  # F11.8, F11.4
    rounds = draft_trees.tree_rounds(HEADS, [0, 1, 6, 1000])
    assert [(each.nodes, each.passes) for each in rounds] == [(0, 0), (1, 1), (6, 2), (9, 2)]
    assert [each.expected_tokens for each in rounds[:3]] == approx([1, 1.6, 2.4], rel=EXACT)
    chain = draft_trees.chain_rounds((0.8, 0.64))
    assert chain == tuple(draft_trees.DraftRound(k, k, tokens) for k, tokens in enumerate((1.0, 1.8, 1.8 + 0.64)))


# ------------------------------------------------------------------------------------------------ brute force


@given(st.lists(st.floats(0, 1), max_size=6))
def test_a_chain_is_ordinary_speculation(conditional: list[float]) -> None:  # F11.8, F11.4
    chain = draft_trees.chain(len(conditional))
    rates = draft_trees.depth_rates(chain, [(alpha,) for alpha in conditional])
    assert rates == approx(cumulative_rates(conditional), rel=EXACT)
    assert draft_trees.verify_rows(chain) == len(conditional) + 1


@given(st.floats(0, 1), st.integers(0, 12))
def test_a_chain_of_equal_acceptance(alpha: float, drafts: int) -> None:  # F11.8, F11.2
    found = draft_trees.expected_tree_tokens(draft_trees.chain(drafts), [(alpha,)] * drafts)
    assert found == approx(expected_tokens(alpha, drafts), rel=EXACT)
    assert draft_trees.greedy_tree([(alpha,)] * drafts, drafts) == (
        draft_trees.chain(sum(rate > 0 for rate in independent_rates(alpha, drafts)))
    )


@given(heads(), st.data())
def test_trees_against_enumerated_outcomes(probabilities, data) -> None:  # F11.8
    picked = data.draw(st.sets(st.sampled_from(all_nodes(probabilities))))
    tree = {path[:depth] for path in picked for depth in range(1, len(path) + 1)}  # with all parents
    distribution = [0.0] * (len(probabilities) + 1)
    # Each head's token is one of its ranks, or None of them.
    for outcome in itertools.product(*[[*range(len(head)), None] for head in probabilities]):
        chance = math.prod(
            1 - sum(head) if rank is None else head[rank] for head, rank in zip(probabilities, outcome, strict=True)
        )
        kept = max((depth for depth in range(1, len(outcome) + 1) if outcome[:depth] in tree), default=0)
        distribution[kept] += chance
    tokens = tokens_of_round(draft_trees.depth_rates(tree, probabilities))
    assert tokens.mean == approx(sum(kept * p for kept, p in enumerate(distribution, 1)), rel=1e-9)
    assert tokens.distribution == approx(distribution[: len(tokens.distribution)], abs=1e-9)
    assert draft_trees.expected_tree_tokens(tree, probabilities) == approx(tokens.mean, rel=EXACT)


@pytest.mark.parametrize("seed", range(8))
def test_greedy_trees_against_all_trees(seed: int) -> None:  # F11.8
    generator = np.random.default_rng(seed)
    probabilities = [sorted(generator.dirichlet([0.5] * (ranks + 1))[:ranks], reverse=True) for ranks in (3, 2)]
    nodes = all_nodes(probabilities)
    products = {node: math.prod(probabilities[d][rank] for d, rank in enumerate(node)) for node in nodes}
    for size in range(len(nodes) + 1):
        most = max(
            1 + sum(products[node] for node in tree)
            for tree in itertools.combinations(nodes, size)
            if all(len(node) == 1 or node[:-1] in tree for node in tree)
        )
        greedy = draft_trees.greedy_tree(probabilities, size)
        assert len(greedy) == size
        assert draft_trees.expected_tree_tokens(greedy, probabilities) == approx(most, rel=EXACT)


@given(heads(), st.integers(0, 30))
def test_confidences_that_repeat_the_heads_give_the_same_tree(probabilities, size: int) -> None:  # F11.8
    expanded = {path: probabilities[len(path)] for path in [(), *all_nodes(probabilities[:-1])]}
    tree = draft_trees.greedy_tree(probabilities, size)
    assert draft_trees.greedy_tree(expanded, size) == tree
    assert draft_trees.depth_rates(tree, expanded) == draft_trees.depth_rates(tree, probabilities)
    assert draft_trees.greedy_tree(probabilities, size + 1)[: len(tree)] == tree


@pytest.mark.parametrize("seed", range(2))
def test_trees_against_sampling(seed: int) -> None:  # F11.8
    generator, samples = np.random.default_rng(seed), 20_000
    # Rank 3 of the first head and rank 2 of the second stand for "none of the candidates".
    first, second = (
        generator.choice(4, samples, p=(0.6, 0.2, 0.08, 0.12)),
        generator.choice(3, samples, p=(0.5, 0.2, 0.3)),
    )
    outcomes = zip(first.tolist(), second.tolist(), strict=True)
    tokens = [1 + (((a,) in NODES) + ((a, b) in NODES)) for a, b in outcomes]
    spread = tokens_of_round(draft_trees.depth_rates(NODES, HEADS)).standard_deviation
    assert np.mean(tokens) == approx(2.4, abs=5 * spread / math.sqrt(samples))


def test_a_tree_of_sixty_nodes_is_quick() -> None:
    large = [[0.5 / 2**rank for rank in range(10)]] * 5
    tree = draft_trees.greedy_tree(large, 63)
    assert len(tree) == 63
    assert draft_trees.expected_tree_tokens(tree, large) > draft_trees.expected_tree_tokens(draft_trees.chain(5), large)


# ------------------------------------------------------------------------------------------------ domains


@pytest.mark.parametrize(
    "nodes",
    [
        [(0, 0)],  # without its parent
        [(0,), (0,)],
        [(3,)],  # no such rank
        [(-1,)],
        [(0,), (0, 0), (0, 0, 0)],  # no such head
        [()],
    ],
)
def test_nodes_that_are_no_tree(nodes) -> None:
    with pytest.raises(DomainError):
        draft_trees.expected_tree_tokens(nodes, HEADS)


@pytest.mark.parametrize("bad", [[(0.6, 0.5)], [(1.1,)], [(-0.1,)], [(math.nan,)], {(): (0.5,), (0,): (0.9, 0.2)}])
def test_probabilities_that_cannot_be(bad) -> None:
    for call in (
        lambda: draft_trees.greedy_tree(bad, 3),
        lambda: draft_trees.depth_rates([(0,)], bad),
        lambda: draft_trees.expected_tree_tokens([], bad),
    ):
        with pytest.raises(DomainError):
            call()


@pytest.mark.parametrize("size", [-1, 1.5, True])
def test_sizes_that_cannot_be(size: int) -> None:
    with pytest.raises(DomainError):
        draft_trees.greedy_tree(HEADS, size)
    with pytest.raises(DomainError):
        draft_trees.chain(size)
