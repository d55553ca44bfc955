"""Trees of drafts: several candidates at each position, verified in one step with a tree-shaped mask.

A node is named by its path of ranks: ``(0,)`` is the likeliest first token, ``(0, 1)`` the second likeliest after it. Acceptance is given
in one of two ways. *Heads*: one list per depth of the probability that the candidate of each rank is the one kept, whatever the path
(Medusa; a static tree). *Confidences*: the same list for each path that was expanded, ``()`` being the root (EAGLE-2; a dynamic tree).
Ranks of one position exclude one another, so that the probabilities of a list sum to at most one.

What a round drafts is a :class:`DraftRound`, of a tree (:func:`tree_rounds`) as of a chain (:func:`chain_rounds`): tables of
:mod:`~roofplan.planner.speculative_steps` ask step models what it costs, and so which size is best at which batch.

Sources: formula F11.8; Medusa (arXiv 2401.10774); EAGLE-2 (arXiv 2406.16858); Sequoia (arXiv 2402.12374) for the optimality of growing by
the largest path product.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from ..errors import DomainError
from . import domain
from .acceptance import expected_by_drafts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

Path = tuple[int, ...]
Probabilities = Sequence[Sequence[float]] | Mapping[Path, Sequence[float]]

_TOLERANCE = 1e-9  # of sums of probabilities
_MOST_NODES = 10_000  # of a tree


@dataclass(frozen=True, slots=True)
class DraftRound:
    """What one round drafts of a sequence, and what it yields.

    Parameters
    ----------
    nodes : tokens to verify beside the last one: drafts of a chain, nodes of a tree
    passes : of the drafter, one after the other: the depth of the tree, unless all come from one
    expected_tokens : E, the token that the target adds counted

    Raises
    ------
    DomainError : for nodes outside 0 to 10000, more passes than nodes, or E outside [1, nodes + 1]
    """

    nodes: int
    passes: int
    expected_tokens: float

    def __post_init__(self) -> None:
        """Refuse rounds that cannot be."""
        domain.count("nodes", self.nodes, 0, _MOST_NODES)
        domain.count("passes", self.passes, 1 if self.nodes else 0, self.nodes)
        domain.tokens_per_round(self.expected_tokens, self.nodes)


def chain_rounds(rates: Sequence[float]) -> tuple[DraftRound, ...]:
    """Rounds of 0, 1, ... k drafts in a chain, a pass each: E = 1 + sum_j R_j (formula F11.4).

    Raises
    ------
    DomainError : for rates outside [0, 1], or rising ones

    >>> chain_rounds((0.5,))[1]
    DraftRound(nodes=1, passes=1, expected_tokens=1.5)
    """
    return tuple(DraftRound(k, k, tokens) for k, tokens in enumerate(expected_by_drafts(rates)))


def tree_rounds(probabilities: Probabilities, sizes: Iterable[int]) -> tuple[DraftRound, ...]:
    """Rounds of the best tree of each size, with a pass for each level (formula F11.8).

    The trees are those of :func:`greedy_tree`; where there are no more nodes to add, a larger size gives the same tree again. A pass is
    taken as one token of a sequence: a drafter that expands several nodes of a level at once does more, which only a large batch makes
    felt.

    Raises
    ------
    DomainError : for impossible probabilities, or sizes outside 0 to 10000

    >>> tree_rounds([(0.6, 0.2), (0.5,)], [0, 3])[1]
    DraftRound(nodes=3, passes=2, expected_tokens=2.1)
    """
    asked = [domain.count("sizes", size, 0, _MOST_NODES) for size in domain.several("sizes", sizes)]
    largest = greedy_tree(probabilities, max(asked, default=0))

    def round_of(tree: tuple[Path, ...]) -> DraftRound:
        passes = max(map(len, tree), default=0)
        return DraftRound(len(tree), passes, expected_tree_tokens(tree, probabilities))

    return tuple(round_of(largest[:size]) for size in asked)


def chain(drafts: int) -> tuple[Path, ...]:
    """The tree of one candidate at each of k positions: ordinary speculation.

    Raises
    ------
    DomainError : for drafts outside 0 to 1000

    >>> chain(2)
    ((0,), (0, 0))
    """
    return tuple((0,) * depth for depth in range(1, domain.drafts(drafts) + 1))


def verify_rows(nodes: Collection[Path]) -> int:
    """Rows of a sequence in the verification step: nodes + 1, the last token before the tree included (formula F11.8).

    Raises
    ------
    DomainError : for what is no collection of nodes

    >>> verify_rows([(0,), (1,), (0, 0)])
    4
    """
    return len(domain.several("nodes", nodes)) + 1


def depth_rates(nodes: Collection[Path], probabilities: Probabilities) -> tuple[float, ...]:
    """Cumulative rates of a tree: R_j is the sum of the path products of depth j, one of which is kept at most (formula F11.8).

    They stand for those of a chain in :mod:`~roofplan.planner.acceptance`: distribution, mean and variance of the tokens of a round follow.

    Raises
    ------
    DomainError : for a node without its parent, beyond the ranks that have a probability, or named twice; or impossible probabilities
    """
    children = _children(probabilities)
    products: dict[Path, float] = {(): 1.0}
    by_depth: dict[int, list[float]] = {}
    for node in sorted(map(_checked_path, domain.several("nodes", nodes)), key=len):
        parent, siblings = node[:-1], children(node[:-1])
        if not node or node in products or parent not in products or not 0 <= node[-1] < len(siblings):
            wanted = "nodes named once, each with its parent in the tree and a probability for its rank"
            raise DomainError("nodes", got=node, wanted=wanted)
        products[node] = products[parent] * siblings[node[-1]]
        by_depth.setdefault(len(node), []).append(products[node])
    # Rounding may raise a sum above one, or above that of the depth before.
    return tuple(accumulate(map(math.fsum, by_depth.values()), min, initial=1.0))[1:]


def expected_tree_tokens(nodes: Collection[Path], probabilities: Probabilities) -> float:
    """Mean tokens per round of a tree: E = 1 + sum over nodes of the product of probabilities on their path (formula F11.8).

    Acceptance at one depth is taken as independent of that at others (heads), or as the drafter's confidences say (which are taken for
    calibrated). The drafts of a rank are taken as fixed: sampling candidates with replacement accepts less.

    Raises
    ------
    DomainError : for a node without its parent, beyond the ranks that have a probability, or named twice; or impossible probabilities

    >>> round(expected_tree_tokens([(0,), (1,), (0, 0)], [(0.6, 0.2), (0.5,)]), 12)
    2.1
    """
    return 1 + math.fsum(depth_rates(nodes, probabilities))


def greedy_tree(probabilities: Probabilities, size: int) -> tuple[Path, ...]:
    """The tree of at most ``size`` nodes with most tokens per round, grown by the node of largest path product (formula F11.8).

    A child's product never exceeds its parent's, so that growing greedily is optimal, and a smaller tree is the beginning of a larger one.
    With confidences this is the dynamic tree of EAGLE-2 (its choice among the candidates; its limit of expansions per depth lies in what
    confidences are given). Ties go to the shallower node, then to the smaller rank; nodes that are never accepted are left out.

    Raises
    ------
    DomainError : for impossible probabilities, or a size outside 0 to 10000
    """
    children = _children(probabilities)
    domain.count("size", size, 0, _MOST_NODES)
    tree: list[Path] = []
    frontier: list[tuple[float, int, Path]] = [(-1.0, 0, ())]
    while frontier and len(tree) <= size:
        product, depth, path = heapq.heappop(frontier)
        tree.append(path)
        for rank, probability in enumerate(children(path)):
            if product * probability:
                heapq.heappush(frontier, (product * probability, depth + 1, (*path, rank)))
    return tuple(tree[1:])  # without the root


def _checked_path(node: Path) -> Path:
    return tuple(domain.count("rank of a node", rank, 0) for rank in domain.several("nodes", node))


def _children(probabilities: Probabilities) -> Callable[[Path], Sequence[float]]:
    """Probabilities of the children of a node, by rank."""
    if isinstance(probabilities, Mapping):
        by_path = {_checked_path(path): _checked_ranks(ranks) for path, ranks in probabilities.items()}
        return lambda path: by_path.get(path, ())
    by_depth = [_checked_ranks(ranks) for ranks in domain.several("probabilities", probabilities)]
    return lambda path: by_depth[len(path)] if len(path) < len(by_depth) else ()


def _checked_ranks(ranks: Sequence[float]) -> tuple[float, ...]:
    checked = tuple(
        domain.probability(f"probability of rank {rank}", probability)
        for rank, probability in enumerate(domain.several("probabilities", ranks))
    )
    if math.fsum(checked) > 1 + _TOLERANCE:
        got = f"a sum of {math.fsum(checked):g}"
        raise DomainError(
            "probabilities", got=got, wanted="at most 1 over the ranks of a position, which exclude one another"
        )
    return checked
