"""Reading the start-up log of a serving engine: what it was told, and how much memory each part took.

What the lines look like is data (``logs/*.yaml``, :mod:`.log_spec`); here is only what holds for every engine: ranks, repeated and mixed
starts, and numbers that cannot be.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import quantities, specfiles
from ..errors import QuantityError, SpecError
from ..quantities import Dimension
from .log_lines import Hit, Log, hits_of, of_one_start
from .log_spec import FACTS, LogLine, LogSpec, log_specs

if TYPE_CHECKING:
    from pathlib import Path

LARGEST_LOG_BYTES = 64 * 2**20

# Colours, as bytes or as loggers escape them: ESC[0m, #033[1;36m, ^[[0m.
_COLOUR = re.compile(r"(?:\x1b|#033|\\x1b|\\u001b|\^\[)\[[0-9;?]{0,30}[A-Za-z]")
_SAYS_NOTHING = {"", "None", "none", "null", "auto"}
_NO_LIMIT = "-1"
_OF_ALL_RANKS = {"kv_tokens", "kv_blocks", "max_concurrency"}  # the rank with the least room decides

Value = str | bool | int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupLog:
    """What the start-up log of a serving engine says; None where it does not say it.

    Sizes are bytes of one GPU: that of the first rank. Tokens, blocks and concurrency are those of the rank with the least room.

    Parameters
    ----------
    engine : ``vllm``, ``sglang``, ``tensorrt-llm`` or ``llama.cpp``
    version, model : as printed
    device : the name that the driver gives, if the log has it
    weights_format, kv_format, dtype : as printed; None where the engine follows the checkpoint (``None``, ``auto``)
    tp, pp : tensor and pipeline parallel size
    max_model_len : tokens of the longest sequence
    memory_utilization : the fraction of memory planned with: of the total (vLLM), of what is free before loading (SGLang's
        ``mem_fraction_static``) or of what is free before the cache (TensorRT-LLM)
    max_num_batched_tokens : tokens of one step (llama.cpp: ``n_batch``; SGLang: ``chunked_prefill_size``)
    micro_batch_tokens : tokens of one pass of llama.cpp (``n_ubatch``)
    max_num_seqs : sequences at a time
    block_size : tokens of a page of the cache
    eager : whether no graphs are captured
    total_bytes : memory of the device, as the engine sees it
    free_before_bytes : free before the weights are loaded (TensorRT-LLM: before the cache is allocated)
    weights_bytes, activation_bytes, non_torch_bytes : what profiling found
    graph_bytes, graph_estimate_bytes : graphs as captured, and as estimated before
    compute_buffer_bytes : the compute buffer of llama.cpp
    kv_bytes, state_bytes : the pool of keys and values, and that of recurrent states
    kv_tokens, kv_blocks : what the pool holds
    max_concurrency : sequences of ``max_model_len`` that the pool holds, as the engine counts
    """

    engine: str
    version: str | None = None
    model: str | None = None
    device: str | None = None
    weights_format: str | None = None
    kv_format: str | None = None
    dtype: str | None = None
    tp: int | None = None
    pp: int | None = None
    max_model_len: int | None = None
    memory_utilization: float | None = None
    max_num_batched_tokens: int | None = None
    micro_batch_tokens: int | None = None
    max_num_seqs: int | None = None
    block_size: int | None = None
    eager: bool | None = None
    total_bytes: int | None = None
    free_before_bytes: int | None = None
    weights_bytes: int | None = None
    activation_bytes: int | None = None
    non_torch_bytes: int | None = None
    graph_bytes: int | None = None
    graph_estimate_bytes: int | None = None
    compute_buffer_bytes: int | None = None
    kv_bytes: int | None = None
    state_bytes: int | None = None
    kv_tokens: int | None = None
    kv_blocks: int | None = None
    max_concurrency: float | None = None


def read_startup_log(path: str | Path) -> StartupLog:
    """Read the start-up log in a file of at most 64 MiB; ``-`` is standard input.

    Raises
    ------
    SpecError : for a file that cannot be read or is no UTF-8 text, and as :func:`parse_startup_log`
    """
    text = specfiles.read_text(path, largest=LARGEST_LOG_BYTES)
    return parse_startup_log(text, "<stdin>" if str(path) == "-" else str(path))


def parse_startup_log(text: str, where: str) -> StartupLog:
    """Read the text of a start-up log.

    Parameters
    ----------
    text : the log; colours are dropped, lines are cut at 20,000 characters
    where : what errors call it

    Raises
    ------
    SpecError : with file and line, for a log of no known engine or of several, of several servers or starts, without the size of the
        cache, or with a number that cannot be
    """
    if "\0" in text:
        hint = "UTF-16, as PowerShell writes? save it as UTF-8"
        raise SpecError("start-up log", got="a zero byte", wanted="text", hint=hint, where=where)
    log = Log(_COLOUR.sub("", text), where)
    spec = _spec_of(log)
    hits = of_one_start(sorted(hits_of(log, spec), key=lambda hit: hit.offset), log, spec)
    facts = _facts(hits, log, spec)
    if not any(facts.get(fact) for fact in spec.sized_by):
        end = log.place(len(log.text.rstrip()))
        wanted = "a log that goes as far as sizing it"
        raise SpecError("start-up log", got="no size of the cache", wanted=wanted, hint=spec.hint, where=end)
    return StartupLog(engine=spec.engine, **_with_differences(facts))  # type: ignore[arg-type]  # the facts of a spec are its fields


def _spec_of(log: Log) -> LogSpec:
    found: list[tuple[int, LogSpec]] = []
    for spec in log_specs():
        offsets = [offset for offset in (log.text.find(mark) for mark in spec.marks) if offset >= 0]
        found += [(min(offsets), spec)] if offsets else []
    known = ", ".join(spec.engine for spec in log_specs())
    if not found:
        hint = "an engine logs its memory at level INFO"
        raise SpecError(
            "start-up log", got="no line of a known engine", wanted=f"a log of {known}", hint=hint, where=log.where
        )
    found.sort(key=lambda entry: entry[0])
    if len(found) > 1:
        engines = " and ".join(spec.engine for _, spec in found)
        place = log.place(found[1][0])
        raise SpecError("start-up log", got=f"lines of {engines}", wanted="the log of one engine", where=place)
    return found[0][1]


# ------------------------------------------------------------------------------------------------ values


def _facts(hits: list[Hit], log: Log, spec: LogSpec) -> dict[str, Value]:
    """Choose for every fact the line that is preferred, and its rank."""
    telling: dict[str, dict[int, list[Hit]]] = defaultdict(lambda: defaultdict(list))
    for hit in hits:
        for fact in hit.found:
            telling[fact][hit.order].append(hit)
    facts: dict[str, Value] = {}
    for fact, by_line in telling.items():
        for order in sorted(by_line):
            value = _chosen(fact, by_line[order], log, spec)
            if value is not None:
                facts[fact] = value
                break
    return facts


def _chosen(fact: str, hits: list[Hit], log: Log, spec: LogSpec) -> Value | None:
    """Take one value from several lines of the same kind."""
    ranks: dict[str, list[Hit]] = defaultdict(list)
    for hit in hits:
        ranks[hit.rank].append(hit)
    devices = {rank for rank in ranks if not any(part in rank for part in spec.main_memory)}
    by_rank = (_taken(fact, ranks[rank], log) for rank in sorted(devices or ranks, key=_coordinates))
    values = (value for value in by_rank if value is not None)
    return min(values, default=None) if fact in _OF_ALL_RANKS else next(values, None)


def _coordinates(rank: str) -> list[int]:
    """Order ranks by the numbers in their names; a process without one is the first."""
    return [int(digits) for digits in re.findall("[0-9]+", rank)]


def _taken(fact: str, hits: list[Hit], log: Log) -> Value | None:
    """Take the value of one rank: no more lines are read than that needs, since a draft model may print what is none."""
    take = hits[0].line.take
    values = (_value(fact, hit, log) for hit in (reversed(hits) if take == "last" else hits))
    said = (value for value in values if value is not None)
    if take in {"first", "last"} or isinstance(FACTS[fact], str):
        return next(said, None)
    numbers = [value for value in said if not isinstance(value, str)]
    if not numbers:
        return None
    return sum(numbers) if take == "sum" else min(numbers) if take == "least" else max(numbers)


def _value(fact: str, hit: Hit, log: Log) -> Value | None:
    """Read what a line gives for a fact; None where that says nothing."""
    texts, kind = hit.found[fact], FACTS[fact]
    try:
        if kind == "text":
            return None if texts[0] in _SAYS_NOTHING else texts[0].removeprefix("torch.")
        if kind == "flag":
            return _flag(texts[0], fact)
        numbers = [_number(text, kind, hit.line, fact) for text in texts]
    except QuantityError as error:
        place = log.place(hit.offset)
        raise SpecError(error.what, got=error.got, wanted=error.wanted, hint=error.hint, where=place) from error
    said = [number for number in numbers if number is not None]
    return sum(said) if len(said) == len(numbers) else None


def _flag(text: str, fact: str) -> bool:
    said = text.removeprefix("not ").lower()
    if said not in {"true", "false"}:
        raise QuantityError(fact, got=said, wanted="true or false")
    return (said == "true") != text.startswith("not ")


def _number(text: str, dimension: Dimension | str, line: LogLine, fact: str) -> int | float | None:
    assert isinstance(dimension, Dimension)
    if "B" not in dimension.units:
        if text in _SAYS_NOTHING or text == _NO_LIMIT:
            return None
        plain = text.replace(",", "") if re.fullmatch("[0-9]{1,3}(?:,[0-9]{3})+", text) else text
        return quantities.parse(plain, dimension, fact)
    if line.signed and text.startswith("-"):
        return None
    return round(quantities.parse(f"{text} {line.unit}", dimension, fact))


def _with_differences(facts: dict[str, Value]) -> dict[str, Value]:
    """Add the parts that a log gives only as a difference of two, and drop what only served for that."""
    consumed, after = facts.pop("consumed_bytes", None), facts.pop("free_after_bytes", None)
    for part, whole, rest in (
        ("weights_bytes", facts.get("free_before_bytes"), after),
        ("non_torch_bytes", consumed, facts.get("weights_bytes")),
    ):
        if part not in facts and isinstance(whole, int) and isinstance(rest, int) and whole >= rest:
            facts[part] = whole - rest
    fields = {field.name for field in dataclasses.fields(StartupLog)}
    return {fact: value for fact, value in facts.items() if fact in fields}
