"""Getting to know a server: which model it has, which requests it understands, and how long a prompt is by its own counts."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..errors import MeasureError, show
from . import server_events as events
from .server_client import APIS, DIALECTS, PLAIN, Target, ask, get_json
from .server_events import ServerFaultError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .server_client import Api, Reply

_LIST = """
time year people way day man thing woman life child world school state family student group country problem hand part place case
week company system program question work government number night point home water room mother area money story fact month lot
right study book eye job word business issue side kind head house service friend father power hour game line end member law car
city community name president team minute idea kid body information back parent face others level office door health person art
"""
_WORDS = _LIST.split()
_PROBE_TOKENS = 4
_SHORT, _LONG = 16, 64  # words of the prompts that tell how many tokens a word has
_ROUNDS = 3
NOT_UNDERSTOOD = {400, 422}  # statuses after which the request is tried in other words
_EXACT = 0.01  # a prompt is long enough when it lies within this share of what was asked for


@dataclass(frozen=True, slots=True)
class Prompts:
    """Prompts of random words, each one another's stranger from the first word on, so that no cache of prefixes helps.

    Parameters
    ----------
    words : of each prompt
    tokens : that the server counted in the last one that was tried; None where it counts none
    """

    words: int
    tokens: int | None
    seed: int = 0

    def stream(self) -> Iterable[str]:
        """Prompt after prompt, without end, the same ones for the same seed."""
        source = random.Random(self.seed)  # noqa: S311  # not for secrets
        while True:
            yield words_of(source, self.words)


def words_of(source: random.Random, count: int) -> str:
    """So many random words."""
    return " ".join(source.choices(_WORDS, k=count))


def refused(fault: ServerFaultError, url: str) -> MeasureError:
    """The error of a server that cannot be measured."""
    hints = {
        events.NO_CONNECTION: "is it running, and at this address?",
        events.TIMED_OUT: "--timeout gives it more time",
        events.REDIRECTED: "redirects are not followed: give the address that it names",
        events.NO_STREAM: "is it an OpenAI-compatible server that streams?",
    }
    hint = hints.get(fault.code, "")
    if fault.status in {401, 403}:
        hint = "--api-key-env NAME sends the key in that variable"
    got = show(str(fault), 300)
    return MeasureError("server", got=got, wanted="completions, streamed", hint=hint, where=url)


async def find_model(client: Any, base: str, asked: str | None, timeout_s: float) -> str:
    """The name of the model to ask for: the one that was asked for, else the only one that the server lists.

    Raises
    ------
    MeasureError : for a server that lists none or several, or cannot be asked
    """
    if asked is not None:
        return asked
    url = f"{base}/models"
    try:
        said = await get_json(client, url, timeout_s)
    except ServerFaultError as fault:
        if fault.status in {404, 405}:
            wanted = "--served-model NAME, since the server lists no models"
            raise MeasureError("server", got=show(str(fault)), wanted=wanted, where=url) from fault
        raise refused(fault, url) from fault
    listed = said.get("data") if isinstance(said, dict) else None
    names = [entry["id"] for entry in listed or [] if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
    if len(names) == 1:
        return str(names[0])
    got = ", ".join(names[:5]) + (", …" if len(names) > 5 else "") if names else "no model"
    raise MeasureError("models", got=show(got, 300), wanted="one, or --served-model NAME", where=url)


async def find_target(client: Any, base: str, model: str, api: Api | None, timeout_s: float) -> Target:
    """Try which interface and which options the server understands, with a few tokens each.

    Raises
    ------
    MeasureError : when it answers none as it should
    """
    source = random.Random(-1)  # noqa: S311  # not for secrets
    last = Target(base, model, api or APIS[0], timeout_s=timeout_s)
    fault = plainest = ServerFaultError(events.REFUSED)
    for kind in APIS if api is None else (api,):
        for dialect in DIALECTS:
            last = replace(last, api=kind, dialect=dialect)
            reply = await ask(client, last, words_of(source, _SHORT), _PROBE_TOKENS)
            if reply.is_whole:
                return last
            fault = ServerFaultError(reply.failure, reply.detail, reply.status)
            plainest = fault if dialect == PLAIN else plainest
            if reply.status not in NOT_UNDERSTOOD:
                break
        if fault.status not in {404, 405, 501}:
            break
    # Where no dialect helped, what is wrong is told of the request that has nothing unusual.
    raise refused(plainest if fault.status in NOT_UNDERSTOOD else fault, last.url)


async def find_prompts(client: Any, target: Target, tokens: int, seed: int) -> Prompts:
    """Find how many words make a prompt of so many tokens, by the server's own counts; where it counts none, a word is taken for one.

    Raises
    ------
    MeasureError : for counts that do not grow with the prompt, or a prompt that the server refuses
    """
    source = random.Random(f"calibration {seed}")  # noqa: S311  # not for secrets
    short = await _counted(client, target, source, _SHORT)
    long = await _counted(client, target, source, _LONG)
    if short is None or long is None:
        return Prompts(tokens, None, seed)
    per_word = (long - short) / (_LONG - _SHORT)
    if per_word <= 0:
        got = f"{short} tokens for {_SHORT} words, {long} for {_LONG}"
        raise MeasureError("usage.prompt_tokens", got=got, wanted="counts that grow with the prompt", where=target.url)
    words = max(1, round(_SHORT + (tokens - short) / per_word))
    for _ in range(_ROUNDS):
        counted = await _counted(client, target, source, words)
        missing = tokens - (counted or 0)
        step = round(missing / per_word)
        if counted is None or abs(missing) <= _EXACT * tokens or step == 0 or words + step < 1:
            break
        words += step
    return Prompts(words, counted, seed)


async def _counted(client: Any, target: Target, source: random.Random, words: int) -> int | None:
    """Tokens of a prompt of so many words; where a stream carries no counts, an answer that is none is asked for."""
    prompt = words_of(source, words)
    reply = await ask(client, target, prompt, 1)
    is_counted = reply.failure == events.NO_TEXT and reply.usage is not None  # a token may be half a letter
    if not (reply.is_whole or is_counted):
        raise _unusable(reply, target, words)
    if reply.usage is not None:
        return reply.usage.prompt
    try:
        said = await get_json(client, target.url, target.timeout_s, target.body(prompt, 1, stream=False))
        usage = events.read_usage(said.get("usage") if isinstance(said, dict) else None)
    except ServerFaultError as fault:
        if fault.code == events.USAGE:
            raise refused(fault, target.url) from fault
        return None
    return None if usage is None else usage.prompt


def _unusable(reply: Reply, target: Target, words: int) -> MeasureError:
    error = refused(ServerFaultError(reply.failure, reply.detail, reply.status), target.url)
    if reply.status in {400, 413, 422}:
        error.hint = f"a prompt of {words} words; is it longer than the server allows?"
    return error
