"""The lines of a start-up log that say something, and which of them belong to one start."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import SpecError
from .log_spec import FACTS, LogLine, LogSpec, compile_line

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST_LINE = 20_000  # what is longer is cut: only a line of a start is wanted
_LONGEST_PREFIX = 300
_MOST_HITS = 10_000
_NAMES = {"version", "model", "device", "total_bytes", "free_before_bytes"}
_MEASURED = {fact for fact in FACTS if fact.endswith("_bytes")} - {"total_bytes"}
_MEASURED |= {"kv_tokens", "kv_blocks", "max_concurrency"}


class Log:
    """The text of a log, its lines found from within."""

    def __init__(self, text: str, where: str) -> None:
        self.where = where
        self._text = text
        # A progress bar ends its lines with carriage returns; every character keeps its offset.
        self.text = text.replace("\r\n", " \n").replace("\r", "\n")

    def place(self, offset: int) -> str:
        """Give ``file:line`` as an editor counts."""
        return f"{self.where}:{self.line(offset)}"

    def line(self, offset: int) -> int:
        """Give the number of the line at an offset."""
        return self._text.count("\n", 0, offset) + 1

    def lines_with(self, text: str) -> Iterator[tuple[int, str]]:
        """Give offset and text of each line that holds a text, cut where it is too long."""
        end = 0
        position = self.text.find(text)
        while position >= 0:
            start = self.text.rfind("\n", end, position) + 1 or end
            end = self.text.find("\n", position)
            end = len(self.text) if end < 0 else end
            yield start, self.text[start : min(end, start + _LONGEST_LINE)]
            position = self.text.find(text, end)


@dataclass(frozen=True, slots=True)
class Hit:
    """A line that says something: where it begins, which one of the spec's it is, who printed it, and the texts of its groups."""

    offset: int
    order: int
    line: LogLine
    rank: str
    found: dict[str, list[str]]


def hits_of(log: Log, spec: LogSpec) -> Iterator[Hit]:
    """Give the lines that say something, one kind after another.

    Raises
    ------
    SpecError : for more lines of one kind than a start can have
    """
    for order, line in enumerate(spec.lines):
        pattern = compile_line(line.line)
        count = 0
        for offset, text in log.lines_with(pattern.gate):
            match = pattern.regex.search(text)
            if match is None:
                continue
            count += 1
            if count > _MOST_HITS:
                got = f"more than {_MOST_HITS:,} lines like {line.line!r}"
                raise SpecError("start-up log", got=got, wanted="the log of one start", where=log.place(offset))
            groups = match.groupdict()
            for further in line.also:
                more = compile_line(further).regex.search(text)
                groups |= more.groupdict() if more else {}
            rank = groups.pop("rank", None)
            rank = spec.rank_of(text[: min(match.start() + 1, _LONGEST_PREFIX)]) if rank is None else rank
            yield Hit(offset, order, line, rank, _by_fact(groups))


def _by_fact(groups: dict[str, str]) -> dict[str, list[str]]:
    """Gather the addends of a fact: groups are called ``fact``, ``fact__part`` or ``not__fact``."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, text in groups.items():
        said = text.strip(" '\"").rstrip(".,;")
        fact, _, part = name.partition("__")
        found[part if fact == "not" else fact].append(f"not {said}" if fact == "not" else said)
    return dict(found)


# ------------------------------------------------------------------------------------------------ starts


def of_one_start(hits: list[Hit], log: Log, spec: LogSpec) -> list[Hit]:
    """Keep what belongs to the one start of a log.

    Processes of a server repeat its first line; so does a server that failed and tried again, of which the last try counts.

    Raises
    ------
    SpecError : for two servers, or a second start of one that got its cache
    """
    kept: list[Hit] = []
    first_of: dict[tuple[int, str] | int, Hit] = {}
    is_sized = False
    for hit in hits:
        if hit.line.forgets:
            kept = [old for old in kept if old.found.keys() <= _NAMES]
            is_sized = False
        if hit.line.begins:
            _refuse_other_settings(first_of.setdefault(hit.order, hit), hit, log)
            first = first_of.setdefault((hit.order, hit.rank), hit)
            if first is not hit and is_sized:
                raise _refusal("a second start", "one start", first, hit, log)
            if first is not hit:
                kept = [old for old in kept if not old.found.keys() & _MEASURED]
        kept.append(hit)
        is_sized = is_sized or any(fact in hit.found for fact in spec.sized_by)
    return kept


def _refuse_other_settings(first: Hit, hit: Hit, log: Log) -> None:
    for fact, texts in hit.found.items():
        before = first.found.get(fact, texts)
        if before != texts:
            got = f"a second server: {fact} {texts[0]} after {before[0]}"
            raise _refusal(got, "the log of one server", first, hit, log)


def _refusal(got: str, wanted: str, first: Hit, hit: Hit, log: Log) -> SpecError:
    hint = f"the first begins at line {log.line(first.offset)}"
    return SpecError("start-up log", got=got, wanted=wanted, hint=hint, where=log.place(hit.offset))
