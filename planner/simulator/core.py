"""Requests through the scheduler of a serving engine, from event to event: when clients get their first and last tokens.

The rules, in order:

1. A request is visible h/2 and its tokenisation after it was sent (prompts are tokenised one after the other, in the order in which they
   were sent); clients see tokens h/2 after the step that made them, and ``output_lag`` decode steps later still. That decode step is one of
   all sequences that hold a token at the end of the step. A closed loop sends the next request when the client has the last token; slot and
   cache are free at the end of the step.
2. At a step boundary the scheduler takes in what was visible there (``look_ahead`` 0) or so many boundaries earlier, and only when its
   polling counter is up. A server that has nothing to do takes in at once what is visible, whatever these delays.
3. Requests are admitted in order of arrival, while slots, cache and budget allow; the first that has to wait holds up those behind it.
   A prompt in work goes before them, and is not held back.
4. The step has the tokens that the policy says. The first token exists at the end of the step in which the prompt ends, and takes no step
   of its own: an output of G tokens takes G - 1 decode steps.

Decode steps in which nothing can change are taken at once: k steps cost k times the step at their mean context, which is exact where times
are affine in the context. Checked against a simulation step by step, and against figures that were worked out by hand.
Left out: preemption (stood in for by what is reserved), prefix caches, requests that are cancelled.
"""

from __future__ import annotations

import math
from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from ...errors import DomainError
from .. import domain
from .outcome import Outcome, Request
from .policy import Policy, StepTime

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Outcome", "Policy", "Request", "StepTime", "closed_loop", "open_loop"]

_PROMPT_STEP_POLLS = 1000  # what a step with prompt tokens adds to the polling counter (SGLang, SchedulerRecvSkipper)


def closed_loop(requests: Sequence[Request], clients: int, policy: Policy, step_s: StepTime) -> Outcome:
    """Simulate clients that each send their next request as soon as they have the last token of the one before.

    Raises
    ------
    DomainError : without a request or a client, for a request that the engine can never admit, or a step without a time

    >>> policy = Policy(admission="mixed", budget=2000, slots=4)
    >>> requests = [Request(prompt=1000, output=11)] * 4
    >>> outcome = closed_loop(requests, 4, policy, lambda decoders, _, chunk, *rest: max(10, (decoders + chunk) / 10) / 1000)
    >>> [round(ttft, 6) for ttft in outcome.ttft_s], round(outcome.mean_tpot_s, 6)
    ([0.2, 0.2, 0.4, 0.41], 0.0195)
    """
    domain.count("clients", clients)
    server = _Server(requests, policy, step_s)
    server.unsent = len(requests)
    server.following = min(clients, len(requests))
    for request in range(server.following):
        server.send(request, 0.0)
    return server.run()


def open_loop(requests: Sequence[Request], policy: Policy, step_s: StepTime) -> Outcome:
    """Simulate requests that are sent at given times, whatever became of the others.

    Raises
    ------
    DomainError : without a request, for one without ``sent_s`` or that the engine can never admit, or a step without a time
    """
    sent = [domain.not_negative("sent_s", math.nan if r.sent_s is None else r.sent_s) for r in requests]
    server = _Server(requests, policy, step_s)
    for request in sorted(range(len(requests)), key=sent.__getitem__):
        server.send(request, sent[request])
    return server.run()


class _Piece(NamedTuple):
    """Tokens of a prompt in a step, and how many of the prompt came before them."""

    request: int
    tokens: int
    past: int


class _Stretch(NamedTuple):
    """Decode steps in a row, each longer than the one before by what the cache grew."""

    first_s: float
    growth_s: float

    def seconds(self, steps: int) -> float:
        """Time of the first k steps: k t + k (k - 1) / 2 growth."""
        return steps * self.first_s + self.growth_s * (steps * (steps - 1) / 2)

    def steps_until(self, begin_s: float, moment_s: float) -> int:
        """The first step that does not end before a moment: the root of the above, rounded up as the floats have it."""
        half = self.growth_s / 2
        linear, wait = self.first_s - half, moment_s - begin_s
        steps = max(1, int(2 * wait / (linear + math.sqrt(max(0.0, linear * linear + 4 * half * wait)))))
        while begin_s + self.seconds(steps) < moment_s:
            steps += 1
        return steps


class _Server:
    """An engine between two steps. Requests are their numbers; a step costs O(log C) for C sequences.

    Decoding sequences are not touched by a step: ``ticks`` counts decode steps, and a heap knows at which tick each has its last token.
    """

    def __init__(self, requests: Sequence[Request], policy: Policy, step_s: StepTime) -> None:
        domain.count("requests", len(requests))
        self.policy = policy
        self.step_s = step_s
        self.prompts = [request.prompt for request in requests]
        self.outputs = [request.output for request in requests]
        self.reserves = [policy.reserved_tokens(request.prompt, request.output) for request in requests]
        self._refuse_what_never_fits()
        self.half_overhead_s = policy.request_overhead_s / 2
        self.poll = max(1, policy.poll_steps)
        # What is on its way: sent but not visible, visible but not taken in, taken in but not admitted
        self.coming: deque[tuple[float, int]] = deque()  # with the moment when it is visible
        self.visible: deque[tuple[int, int]] = deque()  # with the step at which it may be taken in
        self.waiting: deque[int] = deque()
        self.following = self.unsent = 0  # the next request of a closed loop, and the end of them
        self.tokeniser_free_s = 0.0
        # What is in work
        self.partial: tuple[int, int] | None = None  # a prompt that was cut, and its tokens so far
        self.decoding: list[tuple[int, int]] = []  # heap of (tick of the last token, request)
        self.context_tokens = 0  # of all that decode, in the next step
        self.admitted = 0
        self.reserved = 0.0
        # Clocks and counters
        self.clock_s = 0.0
        self.steps = self.ticks = self.held = 0
        self.unpolled = self.polled_step = 0  # the polling counter, and the step before which it was up last
        self.holding = self.short = False  # whether prompts are held back, whether slots or cache keep one out
        self.short_s = 0.0
        # What clients see
        self.left = len(requests)
        self.sent_s = [0.0] * self.left
        self.first_s = [0.0] * self.left
        self.end_s = [0.0] * self.left
        self.queued_s = [0.0] * self.left

    def _refuse_what_never_fits(self) -> None:
        budget, cache = self.policy.budget, self.policy.kv_tokens
        longest, largest = max(self.prompts), max(self.reserves)
        if longest > budget and self.policy.admission == "whole_prompts":
            raise DomainError("budget", got=budget, wanted=f"at least {longest}, the longest prompt: none may be cut")
        if largest > cache:
            raise DomainError("kv_tokens", got=cache, wanted=f"at least {largest:g}, for the largest request alone")

    def send(self, request: int, at_s: float) -> None:
        """Send a request; it is visible once the host has it in tokens."""
        self.sent_s[request] = at_s
        begin_s = max(self.tokeniser_free_s, at_s + self.half_overhead_s)
        self.tokeniser_free_s = begin_s + self.policy.tokenise_s_per_token * self.prompts[request]
        self.coming.append((self.tokeniser_free_s, request))

    def run(self) -> Outcome:
        """Run to the last token."""
        while self.left:
            self._take_in()
            pieces = self._admit()
            if pieces:
                self._prompt_step(pieces)
            elif self.decoding:
                self._decode()
            else:
                self._idle()
        ttft_s = tuple(first - sent for first, sent in zip(self.first_s, self.sent_s, strict=True))
        e2e_s = tuple(end - sent for end, sent in zip(self.end_s, self.sent_s, strict=True))
        tpot_s = tuple(
            (e2e - ttft) / (output - 1) if output > 1 else None
            for e2e, ttft, output in zip(e2e_s, ttft_s, self.outputs, strict=True)
        )
        return Outcome(ttft_s, tpot_s, e2e_s, tuple(self.queued_s), max(self.end_s), self.steps)

    # ------------------------------------------------------------------------------------------------ requests come in

    def _show(self, steps: int) -> None:
        """Make the first request that comes visible after so many more steps."""
        moment_s, request = self.coming.popleft()
        self.visible.append((self.steps + steps + self.policy.look_ahead, request))
        # Until it is admitted: short_s at that moment, which lies in the step that is being taken or the one just taken
        self.queued_s[request] = self.short_s + (moment_s - self.clock_s if self.short else 0.0)

    def _take_in(self) -> None:
        while self.coming and self.coming[0][0] <= self.clock_s:
            self._show(0)
        while self.visible and self.visible[0][0] <= self.polled_step:
            self.waiting.append(self.visible.popleft()[1])

    def _idle(self) -> None:
        if not self.visible:
            self.clock_s = self.coming[0][0]
            self._take_in()
        self.waiting.extend(request for _, request in self.visible)
        self.visible.clear()
        self.unpolled, self.polled_step = 0, self.steps

    def _admit(self) -> list[_Piece]:
        """Choose the prompt tokens of the next step, and admit the requests that they belong to."""
        policy, waiting = self.policy, self.waiting
        self.short = self.holding = False
        left = policy.budget if policy.admission == "prefill_first" else policy.budget - len(self.decoding)
        pieces: list[_Piece] = []
        if self.partial:
            request, past = self.partial
            pieces.append(_Piece(request, min(left, self.prompts[request] - past), past))
            left -= pieces[0].tokens
        if not waiting:
            return pieces
        before, admitted, reserved = len(pieces), self.admitted, self.reserved
        for request in waiting:
            prompt, reserved = self.prompts[request], reserved + self.reserves[request]
            if left <= 0 or (prompt > left and policy.admission == "whole_prompts"):
                break
            if admitted == policy.slots or reserved > policy.kv_tokens:
                self.short = True
                break
            pieces.append(_Piece(request, min(left, prompt), 0))
            left -= prompt
            admitted += 1
        if policy.hold_steps and not before and self._holds(pieces):
            self.short, self.holding = False, True
            return []
        for request, _, _ in pieces[before:]:
            waiting.popleft()
            self.admitted += 1
            self.reserved += self.reserves[request]
            self.queued_s[request] = max(0.0, self.short_s - self.queued_s[request])
        if pieces:
            self.held = 0
        return pieces

    def _holds(self, pieces: list[_Piece]) -> bool:
        """Whether prompts wait for more of them: not where nothing decodes, which would wait for ever."""
        if not pieces or not self.decoding or self.held >= self.policy.hold_steps:
            return False
        return len(self.decoding) + sum(piece.tokens for piece in pieces) < self.policy.hold_tokens

    # ------------------------------------------------------------------------------------------------ steps

    def _seconds(self, decoders: int, context: float, chunk: int = 0, past: float = 0.0, pieces: int = 0) -> float:
        seconds = self.step_s(decoders, context, chunk, past, pieces)
        if not 0 < seconds < math.inf:
            raise DomainError("step_s", got=seconds, wanted="a finite time above zero")
        return seconds

    def _prompt_step(self, pieces: list[_Piece]) -> None:
        """Take a step with prompt tokens.

        Pieces of n_i tokens after P_i are given to the step time as k equal ones of n / k tokens after (sum of n_i P_i + n_i^2 / 2) / n
        - n / (2 k) each: then tokens attend to as many others in all.
        """
        decoders = 0 if self.policy.admission == "prefill_first" else len(self.decoding)
        chunk = sum(tokens for _, tokens, _ in pieces)
        pairs = sum(tokens * (past + tokens / 2) for _, tokens, past in pieces)
        past = max(0.0, pairs / chunk - chunk / (2 * len(pieces)))
        context = self.context_tokens / decoders if decoders else 0.0
        self._advance(1, self._seconds(decoders, context, chunk, past, len(pieces)), decoders)
        self.unpolled += _PROMPT_STEP_POLLS
        if self.unpolled >= self.poll:
            self.unpolled, self.polled_step = 0, self.steps
        started = [request for request, tokens, past in pieces if past + tokens == self.prompts[request]]
        for request in started:
            heappush(self.decoding, (self.ticks + self.outputs[request] - 1, request))
            self.context_tokens += self.prompts[request] + 1
        request, tokens, past = pieces[-1]  # only the last one can have been cut
        self.partial = None if len(started) == len(pieces) else (request, past + tokens)
        self._deliver(started)

    def _decode(self) -> None:
        """Take decode steps up to the next event: the end of an output, of a hold, or a request that may be taken in."""
        decoders = len(self.decoding)
        context = self.context_tokens / decoders
        steps = self.decoding[0][0] - self.ticks
        if self.holding:
            steps = min(steps, self.policy.hold_steps - self.held)
        if steps > 1 and self._newcomers_count():
            steps, seconds = self._until_taken_in(decoders, context, steps)
        else:
            seconds = steps * self._seconds(decoders, context + (steps - 1) / 2)
        self._advance(steps, seconds, decoders)
        polls, self.unpolled = divmod(self.unpolled + steps, self.poll)
        if polls:
            self.polled_step = self.steps - self.unpolled
        if self.holding:
            self.held += steps
        self._deliver([])

    def _newcomers_count(self) -> bool:
        """Whether it can matter at which of the next decode steps a request comes."""
        delayed = self.poll > 1 or self.policy.look_ahead > 0
        return bool(self.coming or self.visible) and (delayed or self.holding or not self.waiting)

    def _until_taken_in(self, decoders: int, context: float, steps: int) -> tuple[int, float]:
        """Cut a stretch of decode steps where a request may be taken in that could change what is admitted: steps and seconds."""
        first_s = self._seconds(decoders, context)
        mean_s = self._seconds(decoders, context + (steps - 1) / 2)
        stretch = _Stretch(first_s, 2 * (mean_s - first_s) / (steps - 1))
        cuts = self.holding or not self.waiting  # else the first of those that wait has to go before
        if self.visible and cuts:
            steps = min(steps, self._polled_after(self.visible[0][0] - self.steps))
        while self.coming and self.coming[0][0] <= self.clock_s + stretch.seconds(steps):
            shown = stretch.steps_until(self.clock_s, self.coming[0][0])
            self._show(shown)
            if cuts:
                steps = min(steps, self._polled_after(shown + self.policy.look_ahead))
        return steps, stretch.seconds(steps)

    def _polled_after(self, steps: int) -> int:
        """Decode steps, at least so many, after which the polling counter is up."""
        steps = max(1, steps)
        return steps + -(self.unpolled + steps) % self.poll

    def _advance(self, steps: int, seconds: float, decoders: int) -> None:
        self.clock_s += seconds
        self.steps += steps
        if self.short:
            self.short_s += seconds
        if decoders:
            self.ticks += steps
            self.context_tokens += steps * decoders

    def _deliver(self, started: list[int]) -> None:
        """Hand first and last tokens to the clients, and free what the finished ones held."""
        decoding = self.decoding
        if not started and (not decoding or decoding[0][0] > self.ticks):
            return
        seen_s = self.clock_s + self.half_overhead_s
        if self.policy.output_lag:
            seen_s += self.policy.output_lag * self._seconds(len(decoding), self.context_tokens / len(decoding))
        for request in started:
            self.first_s[request] = seen_s
        while decoding and decoding[0][0] <= self.ticks:
            _, request = heappop(decoding)
            self.end_s[request] = seen_s
            self.context_tokens -= self.prompts[request] + self.outputs[request]
            self.reserved -= self.reserves[request]
            self.admitted -= 1
            self.left -= 1
            if self.following < self.unsent:
                self.send(self.following, seen_s)
                self.following += 1
        if not self.admitted:
            self.reserved = 0.0  # rounding must not keep the last request out
