"""The lines of start-up logs are data, which is checked: what it says, that it has been seen, and that looking for it takes no time."""

import dataclasses
import re
import time
from pathlib import Path

import pytest

from roofplan import documents, specfiles
from roofplan.engines.log_lines import Log, hits_of
from roofplan.engines.log_spec import FACTS, LogSpec, compile_line, log_specs
from roofplan.engines.startup_log import StartupLog
from roofplan.errors import SpecError

LOGS = Path(__file__).resolve().parent.parent / "data" / "logs"
SPECS = {spec.engine: spec for spec in log_specs()}
SLOT = re.compile(r"<[^>]*>")
TEXTS = [SLOT.sub("8", text) for spec in log_specs() for line in spec.lines for text in (line.line, *line.also)]


def test_the_engines() -> None:
    assert sorted(SPECS) == ["llama.cpp", "sglang", "tensorrt-llm", "vllm"]
    assert all(line.source.strip() for spec in SPECS.values() for line in spec.lines)


@pytest.mark.parametrize("engine", SPECS)
def test_every_line_of_the_data_has_been_seen(engine: str) -> None:
    lines = specfiles.read_document(LOGS / "lines.yaml").data["lines"]
    texts = [entry["line"] for entry in lines if entry["engine"] == engine]
    texts += [path.read_text() for path in LOGS.glob("*.log")]
    log = Log("\n".join(texts), "all")
    unseen = []
    for line in SPECS[engine].lines:
        found = [text for _, text in log.lines_with(compile_line(line.line).gate)]
        found = [text for text in found if compile_line(line.line).regex.search(text)]
        unseen += [text for text in (line.line, *line.also) if not any(map(compile_line(text).regex.search, found))]
    assert unseen == []


DATA = "schema: roofplan/log/v1\nengine: e\nmarks: [m]\nhint: h\nlines:\n  - "


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{line: 'size: <kv_tokens> tokens', source: s}", None),
        ("{line: 'size: <kv_tokens> tokens'}", "source"),
        ("{line: 'size: <kv_token> tokens', source: s}", "unknown fact"),
        ("{line: 'size: <kv_bytes> GiB', source: s}", "a unit"),
        ("{line: 'size: <kv_tokens> tokens', unit: GiB, source: s}", "a unit"),
        ("{line: 'size: <kv_bytes> GiB', unit: GB, source: s}", "unit"),
        ("{line: 'size: <kv_tokens> <kv_blocks>', source: s}", "side by side"),
        ("{line: 'size: <tp>, <tp>', source: s}", "twice"),
        ("{line: 'x <kv_tokens>', source: s}", "no text to look for"),
        ("{line: '<model> is loaded', source: s}", "at the beginning"),
        ("{line: 'size: <!kv_tokens>', source: s}", "no number or yes-or-no"),
        ("{line: 'a line', source: s}", "says nothing"),
        ("{line: 'size: <kv_tokens>', take: middle, source: s}", "take"),
        ("{line: 'size: <kv_tokens>', pattern: s, source: s}", "unknown key"),
    ],
)
def test_a_line_of_the_data_is_checked(line: str, message: str | None) -> None:
    document = documents.parse_yaml(DATA + line, "e.yaml")
    if message is None:
        assert specfiles.validate(LogSpec, document).lines[0].take == "first"
        return
    with pytest.raises(SpecError, match=message):
        specfiles.validate(LogSpec, document)


def test_every_field_can_be_read_from_some_line() -> None:
    lines = [line for spec in log_specs() for line in spec.lines]
    facts = {fact for line in lines for text in (line.line, *line.also) for fact in compile_line(text).facts}
    fields = {field.name for field in dataclasses.fields(StartupLog)} - {"engine"}
    assert facts - {"rank"} == set(FACTS)
    assert set(FACTS) - fields == {"consumed_bytes", "free_after_bytes"}  # of which parts are the differences


def test_no_line_takes_long() -> None:
    # Each pattern meets lines made of what it is looking for, over and over; exponential matching would not end.
    lines = [(filler * 20_000)[:20_000] for text in TEXTS for filler in (text, text[:-1] + " ")]
    lines += [text[:-1] + (filler * 20_000)[:15_000] for text in TEXTS for filler in ("8", "8,", "n", " ", "-")]
    began = time.perf_counter()
    for spec in log_specs():
        assert sum(1 for _ in hits_of(Log("\n".join(lines), "long"), spec)) > 0
    assert time.perf_counter() - began < 60
