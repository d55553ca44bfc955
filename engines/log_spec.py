"""What a serving engine prints when it starts: its lines, as data of ``logs/*.yaml``, and how such a line is looked for.

A line is written as the log has it, with a slot where a fact stands::

    GPU KV cache size: <kv_tokens> tokens

``<fact>`` is one of :data:`FACTS`, ``<fact+part>`` one of several addends of it, ``<!fact>`` the opposite of a yes or no, ``<rank>`` the
device or process that the line is about. One blank is one blank, two are a gap of any width (columns), blanks beside a slot are any number.
So every pattern is plain text between bounded slots: nothing in it can be matched in exponentially many ways.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar, Literal

from .. import quantities, specfiles
from ..quantities import Dimension

_CONFIG: dict[str, Any] = {"extra": "forbid"}
_BYTES = replace(quantities.BYTES, whole=False)  # logs print two decimals of a MiB or GiB

# What a line can say, and what kind of value that is; a text or a yes-or-no has no dimension.
FACTS: dict[str, Dimension | Literal["text", "flag"]] = {
    "version": "text",
    "model": "text",
    "device": "text",
    "weights_format": "text",
    "kv_format": "text",
    "dtype": "text",
    "tp": quantities.POSITIVE_COUNT,
    "pp": quantities.POSITIVE_COUNT,
    "max_model_len": quantities.POSITIVE_COUNT,
    "memory_utilization": quantities.FRACTION,
    "max_num_batched_tokens": quantities.POSITIVE_COUNT,
    "micro_batch_tokens": quantities.POSITIVE_COUNT,
    "max_num_seqs": quantities.POSITIVE_COUNT,
    "block_size": quantities.POSITIVE_COUNT,
    "eager": "flag",
    "total_bytes": _BYTES,
    "free_before_bytes": _BYTES,
    "free_after_bytes": _BYTES,  # once the weights are loaded: weights that are not printed are the difference
    "weights_bytes": _BYTES,
    "consumed_bytes": _BYTES,  # weights and non-torch memory together, as vLLM prints from 0.2x on
    "activation_bytes": _BYTES,
    "non_torch_bytes": _BYTES,
    "graph_bytes": _BYTES,
    "graph_estimate_bytes": _BYTES,
    "compute_buffer_bytes": _BYTES,
    "kv_bytes": _BYTES,
    "state_bytes": _BYTES,
    "kv_tokens": quantities.COUNT,
    "kv_blocks": quantities.COUNT,
    "max_concurrency": quantities.NUMBER,
}

_SLOT = re.compile(r"<(?P<opposite>!?)(?P<name>[a-z_]+)(?:\+(?P<part>[a-z]+))?>")
_SHORTEST_GATE = 3
# Whatever stands where a number should, so that one that is none (nan, 400 digits, a sign) is refused and not overlooked.
_NUMBER = "[-+]?[0-9.niNI][0-9.,A-Za-z%]{0,499}"
_IN_NUMBER = "[-+0-9.,A-Za-z%]"
# The beginning of a line may name several coordinates, "DP0 TP0 EP0"; a column of a line is one word.
_NAMES_OF_RANK = "[A-Za-z0-9_ ]{1,60}"
_ONE_WORD = r"[^\s]{1,60}"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A line that can be looked for: a regular expression, and a text that every such line holds."""

    regex: re.Pattern[str]
    gate: str
    facts: tuple[str, ...]


@functools.cache
def compile_line(line: str, rank: str = _ONE_WORD) -> Pattern:
    """Turn the text of a line with slots into a pattern; ``rank`` is what stands for the name of a rank.

    Raises
    ------
    ValueError : for an unknown fact, or a slot that stands twice, beside another, or where its kind cannot
    """
    pieces: list[str] = []
    texts: list[str] = []
    facts: list[str] = []
    end = 0
    for slot in (*_SLOT.finditer(line), None):
        text = line[end : slot.start()] if slot else line[end:]
        if slot and facts and not text.strip():
            raise ValueError(f"slots side by side in {line!r}")
        texts += text.strip(" ").split("  ")
        pieces.append(_literal(text, after_slot=end > 0, before_slot=slot is not None))
        if slot is not None:
            pieces.append(_group(slot, rank, first=not "".join(pieces), last=slot.end() == len(line)))
            facts.append(slot["name"])
            end = slot.end()
    if len(set(_SLOT.findall(line))) < len(facts):
        raise ValueError(f"a slot twice in {line!r}")
    gate = max((text.strip(" ") for text in texts), key=len)
    return Pattern(re.compile("".join(pieces), re.ASCII), gate, tuple(facts))


def _literal(text: str, *, after_slot: bool, before_slot: bool) -> str:
    """A text as a pattern: exact but for its gaps, and for the blanks next to a slot."""
    body = text.lstrip(" ") if after_slot else text
    body = body.rstrip(" ") if before_slot else body
    inner = " {1,99}".join(re.escape(part) for part in re.split("  +", body))
    return f"{' {0,99}' if after_slot and body else ''}{inner}{' {0,99}' if before_slot and body else ''}"


def _group(slot: re.Match[str], rank: str, *, first: bool, last: bool) -> str:
    """The named group of a slot: ``fact``, ``fact__part`` or ``not__fact``."""
    fact, part = slot["name"], slot["part"]
    if fact == "rank":
        return f"(?P<rank>{rank})"
    kind = FACTS.get(fact)
    if kind is None:
        raise ValueError(f"unknown fact {fact!r}")
    if (slot["opposite"] and kind != "flag") or (part and not isinstance(kind, Dimension)):
        raise ValueError(f"{slot.group()} is no number or yes-or-no")
    name = f"not__{fact}" if slot["opposite"] else f"{fact}__{part}" if part else fact
    if isinstance(kind, Dimension):
        return f"(?<!{_IN_NUMBER})(?P<{name}>{_NUMBER})" if first else f"(?P<{name}>{_NUMBER})"
    if kind == "flag":
        return f"(?P<{name}>[A-Za-z]{{1,9}})"
    if first:
        raise ValueError(f"{slot.group()} at the beginning: a text has to begin after something")
    return rf"(?P<{name}>.{{1,400}})" if last else rf"(?P<{name}>.{{0,400}}?)"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One kind of line.

    Parameters
    ----------
    line : the text of the line, with slots for facts
    also : further texts with slots, looked for in the same line
    unit : the unit of the sizes in the line, where the log has one; ``GB`` of an engine that divides by 2^30 is ``GiB``
    take : of several such lines of one rank: the first, the last, their sum, the least or the largest
    begins : whether a server begins here
    forgets : whether all that was printed so far, but for names and devices, was a trial and not the server
    signed : whether the numbers are differences of two readings: a negative one then says nothing, where it is absurd elsewhere
    source : where such a line was seen
    """

    line: str
    also: tuple[str, ...] = ()
    unit: Literal["B", "KiB", "MiB", "GiB"] | None = None
    take: Literal["first", "last", "sum", "least", "largest"] = "first"
    begins: bool = False
    forgets: bool = False
    signed: bool = False
    source: str
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    def __post_init__(self) -> None:
        if len(compile_line(self.line).gate) < _SHORTEST_GATE:
            raise ValueError(f"no text to look for in {self.line!r}")
        facts = {fact for text in (self.line, *self.also) for fact in compile_line(text).facts}
        if any(fact.endswith("_bytes") for fact in facts) != (self.unit is not None):
            raise ValueError("want a unit where the line has a size, and only there")
        if not (facts or self.begins or self.forgets):
            raise ValueError("the line says nothing")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSpec:
    """The lines of one engine.

    Parameters
    ----------
    marks : texts, any of which shows that a log is of this engine
    ranks : how the beginning of a line names the process that printed it, most telling first
    main_memory : a rank whose name has one of these is not a device; it counts only where there is no device
    sized_by : facts, any of which shows that the start went as far as sizing the cache
    hint : what to do when a log does not go that far
    lines : what the engine prints; of two lines that give the same fact, the former is preferred
    """

    schema: Literal["roofplan/log/v1"]
    engine: str
    marks: tuple[str, ...]
    ranks: tuple[str, ...] = ()
    main_memory: tuple[str, ...] = ()
    sized_by: tuple[str, ...] = ("kv_bytes", "kv_tokens", "kv_blocks")
    hint: str
    lines: tuple[LogLine, ...]
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    def __post_init__(self) -> None:
        for name in self.ranks:
            if compile_line(name).facts != ("rank",):
                raise ValueError(f"want one <rank> in {name!r}")

    def rank_of(self, prefix: str) -> str:
        """Find who printed a line by its beginning; an empty text where it does not say."""
        for name in self.ranks:
            found = compile_line(name, _NAMES_OF_RANK).regex.search(prefix)
            if found is not None:
                return found["rank"]
        return ""


@functools.cache
def log_specs() -> tuple[LogSpec, ...]:
    """Read what is known of the logs of all engines."""
    folder = Path(str(files("roofplan.engines") / "logs"))
    documents = [specfiles.read_document(path) for path in sorted(folder.glob("*.yaml"))]
    return tuple(specfiles.validate(LogSpec, document) for document in documents)
