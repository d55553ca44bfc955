"""How large a run may be, and how many requests are simulated."""

from __future__ import annotations

import pytest

from roofplan.accuracy.limits import MOST_CLIENTS, MOST_STEPS, MOST_TOKENS, check_simulation, check_sizes
from roofplan.accuracy.serving import read_rows
from roofplan.errors import DomainError


def test_every_published_row_is_within_the_limits() -> None:
    for row in read_rows():
        check_sizes(row.isl, row.osl, row.concurrency or 1)
        check_simulation(10 * (row.concurrency or 1), row.isl, 2048)


@pytest.mark.parametrize(
    ("sizes", "column"),
    [
        ((MOST_TOKENS + 1, 1, 1), "isl"),
        ((1, MOST_TOKENS + 1, 1), "osl"),
        ((1, 1, MOST_CLIENTS + 1), "concurrency"),
        ((1e15, 1, 1), "isl"),
    ],
)
def test_larger_ones_are_refused(sizes: tuple[float, float, int], column: str) -> None:
    check_sizes(MOST_TOKENS, MOST_TOKENS, MOST_CLIENTS)
    with pytest.raises(DomainError, match=rf"^{column}: got 1[0-9]+, want at most "):
        check_sizes(*sizes)


@pytest.mark.parametrize(
    ("requests", "prompt", "budget"),
    [(MOST_STEPS + 1, 1, 8192), (MOST_STEPS // 4 + 1, 32768, 8192), (10**12, 1, 1)],
)
def test_longer_simulations_are_refused(requests: int, prompt: int, budget: int) -> None:
    check_simulation(MOST_STEPS, 8192, 8192)
    check_simulation(MOST_STEPS // 4, 32768, 8192)
    with pytest.raises(DomainError, match=r"^simulation: got [\d,]+ requests in [\d,]+ steps, want at most 200,000"):
        check_simulation(requests, prompt, budget)
