"""Putting a load on a server: so many clients that each wait for their answer (closed loop), or requests that arrive at random (Poisson).

Each load ends after a number of requests or a time; requests that are under way then are cut off, and count for nothing. In an open loop
times count from when a request was due, not from when the client got to send it (G. Tene's "coordinated omission").
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .server_client import ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .server_client import Reply, Target

MOST_IN_FLIGHT = 512
HOPELESS = 8  # requests that fail, with none that did not, end a load


@dataclass(frozen=True, slots=True)
class Plan:
    """One load.

    Parameters
    ----------
    clients : of a closed loop; 0 for arrivals at random
    rate : requests per second that arrive; 0 for a closed loop
    requests : at most
    most_s : seconds at most
    output : tokens that each request asks for
    """

    clients: int
    rate: float
    requests: int
    most_s: float
    output: int

    @property
    def title(self) -> str:
        """In words."""
        if self.clients:
            return f"{self.clients} client{'s' if self.clients > 1 else ''}"
        return f"{self.rate:g} requests/s"


@dataclass(frozen=True, slots=True)
class Observed:
    """What a load saw; times in seconds of the client's clock.

    Parameters
    ----------
    began_s, full_until_s, ended_s : the first request was due, the last moment with every client at work (or with arrivals), and the end
    replies : of every request that was sent, in the order in which they were due
    dropped : arrivals that were not sent because too many were in flight
    busy : share of the time in which the client itself computed
    """

    plan: Plan
    began_s: float
    full_until_s: float
    ended_s: float
    replies: tuple[Reply, ...]
    dropped: int = 0
    busy: float = 0.0

    @property
    def whole(self) -> tuple[Reply, ...]:
        """Replies with nothing wrong."""
        return tuple(reply for reply in self.replies if reply.is_whole)

    @property
    def failures(self) -> Counter[str]:
        """How many requests failed, by why."""
        return Counter(reply.failure for reply in self.replies if reply.failure)

    @property
    def cut(self) -> int:
        """Requests that were under way at the end."""
        return sum(reply.cut for reply in self.replies)

    @property
    def settled(self) -> tuple[Reply, ...]:
        """Replies of a closed loop after the first wave, in which all begin together; all of them where there is no second."""
        whole = self.whole
        first = {id(reply) for reply in self.replies[: self.plan.clients]} if self.plan.clients > 1 else set()
        return tuple(reply for reply in whole if id(reply) not in first) or whole

    @property
    def first_wave(self) -> tuple[Reply, ...]:
        """Whole replies of those that began together."""
        return tuple(reply for reply in self.replies[: self.plan.clients] if reply.is_whole)

    @property
    def span_s(self) -> float:
        """Seconds in which the whole load was on the server."""
        return self.full_until_s - self.began_s

    @property
    def tokens(self) -> float:
        """Output tokens in that time; those of a reply are spread over its events with text, and those of a cut one taken to be alike."""
        whole = self.whole
        events = sum(len(reply.texts_s) for reply in whole)
        per_event = sum(reply.output_tokens for reply in whole) / events if events else 0.0
        total = 0.0
        for reply in self.replies:
            inside = sum(1 for moment in reply.texts_s if moment <= self.full_until_s)
            if reply.is_whole:
                total += reply.output_tokens * inside / len(reply.texts_s)
            elif reply.cut:
                total += per_event * inside
        return total

    @property
    def output_tokens_per_s(self) -> float | None:
        """Output tokens per second under the whole load; None where no token came."""
        return self.tokens / self.span_s if self.tokens and self.span_s > 0 else None

    @property
    def requests_per_s(self) -> float | None:
        """Requests that ended in that time, per second; None where none did."""
        ended = sum(1 for reply in self.whole if reply.texts_s[-1] <= self.full_until_s)
        return ended / self.span_s if ended and self.span_s > 0 else None

    @property
    def lateness_s(self) -> float:
        """How late the client sent a request at worst."""
        return max((reply.sent_s - reply.due_s for reply in self.replies), default=0.0)


async def put_load(client: Any, target: Target, plan: Plan, prompts: Iterable[str], seed: int = 0) -> Observed:
    """Put a load on a server, and give what was seen."""
    computed = time.process_time()
    if plan.clients:
        seen = await _closed_loop(client, target, plan, prompts)
    else:
        seen = await _arrivals(client, target, plan, prompts, random.Random(seed))  # noqa: S311  # not for secrets
    took = seen.ended_s - seen.began_s
    return replace(seen, busy=(time.process_time() - computed) / took if took > 0 else 0.0)


async def _closed_loop(client: Any, target: Target, plan: Plan, prompts: Iterable[str]) -> Observed:
    clock = time.perf_counter
    began = clock()
    until = began + plan.most_s
    turns = itertools.islice(zip(itertools.count(), prompts, strict=False), plan.requests)
    replies: dict[int, Reply] = {}
    idle_from: list[float] = []

    async def work() -> None:
        for turn, prompt in turns:
            if clock() >= until or _is_hopeless(replies.values()):
                break
            replies[turn] = await ask(client, target, prompt, plan.output, until_s=until)
        idle_from.append(clock())

    async with asyncio.TaskGroup() as group:
        for _ in range(min(plan.clients, plan.requests)):
            group.create_task(work())
    ordered = tuple(replies[turn] for turn in sorted(replies))
    return Observed(plan, began, min(idle_from), clock(), ordered)


async def _arrivals(client: Any, target: Target, plan: Plan, prompts: Iterable[str], source: random.Random) -> Observed:
    clock = time.perf_counter
    began = due = clock()
    until = began + plan.most_s
    replies: dict[int, Reply] = {}
    dropped = in_flight = 0

    async def send(turn: int, prompt: str, due: float) -> None:
        nonlocal in_flight
        try:
            replies[turn] = await ask(client, target, prompt, plan.output, due_s=due, until_s=until)
        finally:
            in_flight -= 1

    async with asyncio.TaskGroup() as group:
        for turn, prompt in zip(range(plan.requests), prompts, strict=False):
            due += source.expovariate(plan.rate)
            if due >= until or _is_hopeless(replies.values()):
                break
            await _sleep_until(due, clock)
            if in_flight >= MOST_IN_FLIGHT:
                dropped += 1
                continue
            in_flight += 1
            group.create_task(send(turn, prompt, due))
    ordered = tuple(replies[turn] for turn in sorted(replies))
    last_due = max((reply.due_s for reply in ordered), default=began)
    return Observed(plan, began, max(last_due, began), clock(), ordered, dropped)


async def _sleep_until(moment: float, clock: Callable[[], float]) -> None:
    left = moment - clock()
    if left > 0:
        await asyncio.sleep(left)


def _is_hopeless(replies: Iterable[Reply]) -> bool:
    """Whether nothing but failures has come."""
    outcomes = [bool(reply.failure) for reply in replies]
    return len(outcomes) >= HOPELESS and all(outcomes)
