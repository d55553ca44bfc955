"""How large a run may be that is compared: what lies beyond is no published measurement, and would take hours or all memory."""

from __future__ import annotations

from ..errors import DomainError

MOST_TOKENS = 10_000_000  # of a prompt, or of an output: the longest context of the catalogue
MOST_CLIENTS = 1_000_000
MOST_STEPS = 200_000  # of prompts in one simulation, which are the most of its work


def check_sizes(prompt: float, output: float, clients: int) -> None:
    """Refuse lengths in tokens, or requests at a time, that no benchmark has.

    Raises
    ------
    DomainError : naming the column
    """
    for column, tokens in (("isl", prompt), ("osl", output)):
        if tokens > MOST_TOKENS:
            raise DomainError(column, got=f"{tokens:.0f}", wanted=f"at most {MOST_TOKENS:,} tokens")
    if clients > MOST_CLIENTS:
        raise DomainError("concurrency", got=clients, wanted=f"at most {MOST_CLIENTS:,} requests at a time")


def check_simulation(requests: int, prompt: float, budget: int) -> None:
    """Refuse a simulation of too many requests, each with a prompt of so many tokens in steps of at most ``budget``.

    Raises
    ------
    DomainError : for more steps of prompts than are simulated here
    """
    steps = requests * max(1.0, prompt / budget)
    if steps > MOST_STEPS:
        wanted = f"at most {MOST_STEPS:,} steps of prompts; the closed form has no such limit"
        raise DomainError("simulation", got=f"{requests:,} requests in {steps:,.0f} steps", wanted=wanted)
