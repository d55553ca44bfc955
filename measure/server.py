"""An OpenAI-compatible server, measured as its clients see it, beside what the planner predicts for it.

First the server is asked what it understands and how long a prompt is by its own counts; then come some requests that are not counted, and
one load after the other: so many clients in a closed loop, and so many requests per second that arrive at random.

Measured per load: time to the first token (TTFT), times between events with text (ITL), time per output token after the first
(TPOT = (E2E - TTFT) / (output - 1), with the server's count of tokens), time to the last token (E2E), and output tokens per second
while the whole load was there. Source: the definitions are those of vLLM's client (vllm-project/vllm, ``vllm/benchmarks/serve.py``).
"""

from __future__ import annotations

import asyncio
import datetime as dt
import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..errors import DomainError, MeasureError, UnknownNameError, show
from ..quantities import TIME, parse, parse_arrivals, parse_count, parse_tokens
from .known_devices import Devices, devices_of
from .server_client import APIS, open_client, read_url
from .server_load import MOST_IN_FLIGHT, Plan, put_load
from .server_probe import find_model, find_prompts, find_target
from .server_records import client_environment, missing_prediction, records_of, remarks_on, served_model

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
    from os import PathLike

    from ..api import Options
    from ..hardware.spec import HardwareSpec
    from ..models.spec import ModelSpec
    from .records import Record, Run
    from .server_client import Api, Target
    from .server_load import Observed

MOST_REQUESTS = 10_000
MOST_LOADS = 32
MOST_TOKENS = 2**20
LONGEST_S = 3600.0
COMMAND = "server"


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much is asked of a server where nothing is said.

    Parameters
    ----------
    prompt, output : tokens of a request
    clients : of the closed loops
    waves, least : requests of a load: so many per client, and so many at least
    arrivals : requests of a load that arrives at random
    warm_up : requests before, which are not counted
    most_s : seconds of one load
    """

    prompt: int
    output: int
    clients: tuple[int, ...]
    waves: int
    least: int
    arrivals: int
    warm_up: int
    most_s: float


STANDARD = Amounts(512, 128, (1, 4, 16), waves=4, least=16, arrivals=64, warm_up=4, most_s=60.0)
QUICK = Amounts(128, 32, (1, 4), waves=3, least=10, arrivals=16, warm_up=2, most_s=10.0)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a measurement of a server is to do, read and checked."""

    base: str
    model: str | None
    api: Api | None
    key: str | None
    prompt: int
    output: int
    plans: tuple[Plan, ...]
    warm_up: int
    timeout_s: float
    seed: int
    most_s: float


@dataclass(slots=True)
class Taken:
    """What has been taken so far, so that an interruption keeps it."""

    records: list[Record] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def run_server(
    url: str,
    *,
    concurrency: str | int | Sequence[int] | None = None,
    rate: str | float | Sequence[float] | None = None,
    prompt: int | str | None = None,
    output: int | str | None = None,
    requests: int | str | None = None,
    warm_up: int | str | None = None,
    most_s: float | str | None = None,
    timeout_s: float | str | None = None,
    served_model: str | None = None,
    api: str | None = None,
    key_variable: str | None = None,
    seed: int = 0,
    quick: bool = False,
    model: str | PathLike[str] | ModelSpec | None = None,
    hardware: str | PathLike[str] | HardwareSpec | None = None,
    options: Options | None = None,
    tell: Callable[[str], None] | None = None,
    keep: Callable[[Run], None] | None = None,
) -> Run:
    """Measure a server as its clients see it.

    Parameters
    ----------
    url : ``http://localhost:8000``, with or without ``/v1``
    concurrency : numbers of clients of closed loops (``1,4,16``); without it and without ``rate`` those of :data:`STANDARD`
    rate : requests per second that arrive at random (``0.5,2``)
    prompt, output : tokens of each request
    requests : of each load, at most
    warm_up : requests before the first load, which are not counted
    most_s : seconds of each load, at most (``60`` or ``60 s``)
    timeout_s : seconds of one request, at most; 120 without it
    served_model : the server's name of the model; needed where it lists several
    api : ``completions`` or ``chat``; without it completions where the server has them
    key_variable : name of the environment variable that holds the API key
    seed : of prompts and arrivals
    quick : shorter loads
    model, hardware, options : what is served, on which device (or overlay) and how, for the predictions; see :func:`roofplan.api.size`
    tell : told what happens, line by line
    keep : given what there is so far when the run is interrupted or fails

    Raises
    ------
    MeasureError : for a server that cannot be reached or understood, or of which every request fails
    DomainError, QuantityError, UnknownNameError : for options that are wrong
    """
    asked = _read(
        url,
        QUICK if quick else STANDARD,
        concurrency=concurrency,
        rate=rate,
        prompt=prompt,
        output=output,
        requests=requests,
        warm_up=warm_up,
        most_s=most_s,
        timeout_s=timeout_s,
        served_model=served_model,
        api=api,
        key_variable=key_variable,
        seed=seed,
    )
    from .records import Run

    devices = devices_of(hardware)
    missing_prediction(
        model, devices, options or {}, asked.prompt, asked.output
    )  # wrong names are told before anything is measured
    started, there = dt.datetime.now(dt.UTC).isoformat(timespec="seconds"), client_environment(asked.base)
    taken = Taken()

    def so_far(*more: str) -> Run:
        return Run(COMMAND, there, tuple(taken.records), (*taken.notes, *more), started, quick)

    try:
        _run(_measure(asked, taken, model, devices, options or {}, tell or _silent))
    except BaseException as error:  # also Ctrl-C: what was taken is kept, then it is raised again
        first = _first(error)
        if keep is not None and taken.records:
            is_break = isinstance(first, KeyboardInterrupt)
            keep(so_far("interrupted" if is_break else f"ended by {type(first).__name__}"))
        if first is not error:
            raise first from error
        raise
    return so_far()


def _run(measuring: Coroutine[Any, Any, None]) -> None:
    """Run to the end; in a notebook, whose loop is running already, in a thread of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(measuring)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, measuring).result()


def _silent(_: str) -> None:
    """Say nothing."""


def _first(error: BaseException) -> BaseException:
    """The error itself, or of tasks that ran together the first one."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _measure(
    asked: Asked,
    taken: Taken,
    model: str | PathLike[str] | ModelSpec | None,
    devices: Devices,
    options: Options,
    tell: Callable[[str], None],
) -> None:
    most = max([plan.clients or MOST_IN_FLIGHT for plan in asked.plans])
    async with open_client(asked.timeout_s, asked.key, most) as client:
        name = await find_model(client, asked.base, asked.model, asked.timeout_s)
        target = await find_target(client, asked.base, name, asked.api, asked.timeout_s)
        tell(f"{target.url} serves {show(name)}")
        prompts = await find_prompts(client, target, asked.prompt, asked.seed)
        target = replace(target, prompt_tokens=prompts.tokens)
        taken.notes += _about(target, asked)
        model = served_model(name) if model is None and devices != Devices() else model
        reason = missing_prediction(model, devices, options, prompts.tokens or asked.prompt, asked.output)
        taken.notes += [reason] if reason else []
        texts = iter(prompts.stream())
        if asked.warm_up:
            tell(f"warm-up: {asked.warm_up} requests")
            plan = Plan(min(4, asked.warm_up), 0.0, asked.warm_up, asked.most_s, asked.output)
            _need_one(await put_load(client, target, plan, texts))
        last: Observed | None = None
        for plan in asked.plans:
            tell(f"{plan.title}: up to {plan.requests} requests, {plan.most_s:g} s")
            last = await put_load(client, target, plan, texts, asked.seed)
            taken.notes += remarks_on(last)
            if not last.whole:
                break
            taken.records += records_of(
                last, target, model, devices, options, prompt=asked.prompt, predicted=not reason
            )
        if last is not None and not taken.records:
            _need_one(last)


def _need_one(observed: Observed) -> None:
    """Refuse a server of which not one request came to its end."""
    if observed.whole:
        return
    counted = ", ".join(f"{why} {count}x" for why, count in observed.failures.most_common())
    example = next((reply.detail for reply in observed.replies if reply.failure), "")
    got = f"none of {len(observed.replies)} requests answered in {observed.plan.most_s:g} s"
    got += f": {counted}" if counted else ""
    hint = example if counted else "fewer tokens (--output), or more time (--most-time)"
    raise MeasureError("server", got=show(got, 300), wanted="answers", hint=show(hint, 300))


def _about(target: Target, asked: Asked) -> Iterator[str]:
    if not target.dialect.ignore_eos:
        yield "the server does not take ignore_eos: outputs end where the model ends them, at most after what was asked for"
    tokens = target.prompt_tokens
    if tokens is None:
        yield f"the server counts no tokens: prompts have {asked.prompt} words, outputs one token per event"
    elif tokens != asked.prompt:
        yield f"prompts have about {tokens} tokens by the server's count, of {asked.prompt} asked for"


# ------------------------------------------------------------------------------------------------ what was asked for


def _read(
    url: str,
    usual: Amounts,
    *,
    concurrency: object,
    rate: object,
    prompt: int | str | None,
    output: int | str | None,
    requests: int | str | None,
    warm_up: int | str | None,
    most_s: float | str | None,
    timeout_s: float | str | None,
    served_model: str | None,
    api: str | None,
    key_variable: str | None,
    seed: int,
) -> Asked:
    base = read_url(url)
    if api is not None and api not in APIS:
        raise UnknownNameError("--api", got=api, wanted=f"one of {', '.join(APIS)}")
    clients = [
        _at_most(parse_count(one, "--concurrency"), MOST_IN_FLIGHT, "--concurrency") for one in _each(concurrency)
    ]
    rates = [parse_arrivals(one, "--rate") for one in _each(rate)]
    if not clients and not rates:
        clients = list(usual.clients)
    if len(clients) + len(rates) > MOST_LOADS:
        raise DomainError("loads", got=len(clients) + len(rates), wanted=f"at most {MOST_LOADS}")
    tokens = usual.prompt if prompt is None else parse_tokens(prompt, "--prompt")
    length = usual.output if output is None else parse_tokens(output, "--output")
    _at_most(tokens, MOST_TOKENS, "--prompt")
    _at_most(length, MOST_TOKENS, "--output")
    most = None if requests is None else _at_most(parse_count(requests, "--requests"), MOST_REQUESTS, "--requests")
    seconds = usual.most_s if most_s is None else _seconds(most_s, "--most-time")
    plans = [Plan(n, 0.0, most or max(usual.waves * n, usual.least), seconds, length) for n in clients]
    plans += [Plan(0, one, most or usual.arrivals, seconds, length) for one in rates]
    return Asked(
        base,
        served_model,
        api,
        _key(key_variable),
        tokens,
        length,
        tuple(plans),
        usual.warm_up if warm_up is None else _count_or_none(warm_up),
        120.0 if timeout_s is None else _seconds(timeout_s, "--timeout"),
        seed,
        seconds,
    )


def _each(values: object) -> Iterable[object]:
    if values is None:
        return ()
    if isinstance(values, str):
        return [part.strip() for part in values.split(",")]
    return values if isinstance(values, list | tuple) else (values,)


def _at_most(value: int, most: int, what: str) -> int:
    if value > most:
        raise DomainError(what, got=value, wanted=f"at most {most}")
    return value


def _count_or_none(value: int | str) -> int:
    if str(value).strip() == "0":
        return 0
    return _at_most(parse_count(value, "--warm-up"), MOST_REQUESTS, "--warm-up")


def _seconds(value: float | str, what: str) -> float:
    """Seconds, with the unit or without."""
    text = f"{value} s" if not isinstance(value, str) or value.strip().replace(".", "", 1).isdigit() else value
    seconds = float(parse(text, TIME, what))
    if not 0 < seconds <= LONGEST_S:
        raise DomainError(what, got=value, wanted=f"more than none, and at most {LONGEST_S:g} s")
    return seconds


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key or not (key.isascii() and key.isprintable()):
        got = "no such variable" if key is None else "no key in it"
        raise MeasureError("--api-key-env", got=got, wanted="the name of an environment variable that holds the key")
    return key
