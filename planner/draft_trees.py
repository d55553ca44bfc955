"""Trees of drafts: several candidates at each position, verified in one step with a tree-shaped mask.

A node is named by its path of ranks: ``(0,)`` is the likeliest first token, ``(0, 1)`` the second likeliest after it. Acceptance is given
in one of two ways. *Heads*: one list per depth of the probability that the candidate of each rank is the one kept, whatever the path
(Medusa; a static tree). *Confidences*: the same list for each path that was expanded, ``()`` being the root (EAGLE-2; a dynamic tree).
Ranks of one position exclude one another, so that the probabilities of a list sum to at most one.

Sources: formula F11.8; Medusa (arXiv 2401.10774); EAGLE-2 (arXiv 2406.16858); Sequoia (arXiv 2402.12374) for the optimality of growing by
the largest path product.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from ..errors import DomainError
from . import domain
from .acceptance import check_drafts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

Path = tuple[int, ...]
Probabilities = Sequence[Sequence[float]] | Mapping[Path, Sequence[float]]

_TOLERANCE = 1e-9  # of sums of probabilities


def chain(drafts: int) -> tuple[Path, ...]:
    """The tree of one candidate at each of k positions: ordinary speculation.

    Raises
    ------
    DomainError : for drafts outside 0 to 1000

    >>> chain(2)
    ((0,), (0, 0))
    """
    return tuple((0,) * depth for depth in range(1, check_drafts(drafts) + 1))


def verify_rows(nodes: Collection[Path]) -> int:
    """Rows of a sequence in the verification step: nodes + 1, the last token before the tree included (formula F11.8)."""
    return len(nodes) + 1


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
    for node in sorted(nodes, key=len):
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
    DomainError : for impossible probabilities, or a negative size
    """
    children = _children(probabilities)
    domain.count("size", size, 0)
    tree: list[Path] = []
    frontier: list[tuple[float, int, Path]] = [(-1.0, 0, ())]
    while frontier and len(tree) <= size:
        product, depth, path = heapq.heappop(frontier)
        tree.append(path)
        for rank, probability in enumerate(children(path)):
            if product * probability:
                heapq.heappush(frontier, (product * probability, depth + 1, (*path, rank)))
    return tuple(tree[1:])  # without the root


def _children(probabilities: Probabilities) -> Callable[[Path], Sequence[float]]:
    """Probabilities of the children of a node, by rank."""
    if isinstance(probabilities, Mapping):
        _check(probabilities.values())
        return lambda path: probabilities.get(path, ())
    _check(probabilities)
    return lambda path: probabilities[len(path)] if len(path) < len(probabilities) else ()


def _check(siblings: Collection[Sequence[float]]) -> None:
    for ranks in siblings:
        for rank, probability in enumerate(ranks):
            domain.probability(f"probability of rank {rank}", probability)
        if math.fsum(ranks) > 1 + _TOLERANCE:
            got = f"a sum of {math.fsum(ranks):g}"
            raise DomainError(
                "probabilities", got=got, wanted="at most 1 over the ranks of a position, which exclude one another"
            )
