"""Valid specs with hostile names: whatever is printed of them does nothing to a terminal, a table or a reader."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import TYPE_CHECKING

import pytest
import yaml
from hostile.processes import Case, outcomes_of

from roofplan import cli, models

if TYPE_CHECKING:
    from pathlib import Path

NAMES = {
    "window title": "x\x1b]0;owned\x07y",
    "clear screen": "x\x1b[2J\x1b[31my",
    "hyperlink": "x\x1b]8;;http://e\x1b\\y",
    "eight-bit controls": "x\x9b31m\x9d0;owned\x9cy",
    "right to left": "x\u202egnp\u2066y",
    "zero width": "x\u200b\u2060\ufeff\U000e0041y",
    "delete and backspace": "x\x7f\x08\x08y",
    "lines": "x\r\ny\x0b\x0c\x85\u2028z",
    "tabs": "x\ty",
    "style": "[red]x[/red]",
    "unopened tag": "x[/x]",
    "link": "[link=http://e]x",
    "emoji": ":boom:",
    "markdown": "`x`|*y*|_z_|[a](http://e)|<b>|\\|",
    "formula": "=1+1",
    "command": "@SUM(A1)",
    "annotation": "::error file=a::b%0A",
    "mathematics": "$\\frac{1}{0}$",
    "boolean": "True",
    "null": "NULL",
    "number": "1e3",
    "comment": "x #y",
    "mapping": "x: y",
    "long": "x" * 5_000,
}
EVERYTHING = "".join(text for name, text in NAMES.items() if name != "long")

MODEL = """
schema: roofplan/model/v1
name: {x}
title: {x}
notes: {x}
aliases: [{x}]
ids: [{{id: {x}, weights: bf16}}]
sources: [{{kind: user, source: {x}}}]
hidden_size: 64
vocab_size: 1000
max_context: 4096
other_parameters: [{{name: {x}, count: 5, read_per_step: true, source: {x}}}]
parts: [{{name: {x}, kind: vision, parameters: 7, loaded: true, read_per_step: true, source: {x}}}]
layers:
  - count: 1
    attention: {{kind: full, num_heads: 4, num_kv_heads: 2, head_dim: 16}}
    mlp: {{kind: gated, intermediate_size: 128}}
  - count: 1
    attention: {{kind: recurrent, variant: {x}, projections: [{{name: {x}, inputs: 64, outputs: 64}}], state: {{heads: 4, key_dim: 4, value_dim: 4}}}}
"""
DEVICE = """
schema: roofplan/hardware/v1
name: {x}
title: {x}
vendor: {x}
architecture: {x}
form: {x}
notes: {x}
aliases: [{x}]
memory: {{nameplate: 80 GB, bandwidth: 2 TB/s, technology: {x}}}
peak: {{bf16: 312 TFLOP/s}}
links: [{{name: {x}, per_direction: 100 GB/s, topology: ring, domain: 8}}]
price: {{usd_per_hour: 2, provider: {x}, as_of: {x}}}
achieved: {{compute: {{low: 0.5, expected: 0.7, high: 0.9, kind: fitted, source: {x}}}}}
evidence: [{{figures: [memory, peak, links, price], kind: datasheet, source: {x}}}]
"""
VERBS = {
    "size": ("size", "MODEL", "DEVICE"),
    "size beyond the context": ("size", "MODEL", "DEVICE", "--prompt", "5000"),
    "size that does not fit": ("size", "MODEL", "DEVICE", "--device-memory", "1 MB"),
    "size on two": ("size", "MODEL", "DEVICE", "--tp", "2"),
    "size explained": ("size", "MODEL", "DEVICE", "--explain"),
    "kv": ("kv", "MODEL"),
    "kv beyond the context": ("kv", "MODEL", "--context", "5000"),
    "kv explained": ("kv", "MODEL", "--explain"),
    "roofline": ("roofline", "MODEL", "DEVICE", "--ceilings", "link", "--tp", "2"),
    "roofline explained": ("roofline", "MODEL", "DEVICE", "--explain"),
    "claim": ("claim", "9000 tok/s/user", "MODEL", "DEVICE", "--explain"),
    "claim of a gain": ("claim", "2x", "MODEL", "DEVICE", "--by", "batching", "--users", "8", "--explain"),
    "model show": ("model", "show", "MODEL"),
    "model lint": ("model", "lint", "MODEL"),
    "model diff": ("model", "diff", "MODEL", "gpt2"),
    "hardware show": ("hardware", "show", "DEVICE"),
    "hardware lint": ("hardware", "lint", "DEVICE"),
}


def arguments(verb: str, folder: Path, name: str) -> tuple[str, ...]:
    """The command line of a verb on a model and a device of this name."""
    files = {"MODEL": folder / "model.yaml", "DEVICE": folder / "device.yaml"}
    for file, text in ((files["MODEL"], MODEL), (files["DEVICE"], DEVICE)):
        file.write_text(text.format(x=yaml.safe_dump(name, default_style='"', width=10_000).strip()))
    return tuple(str(files.get(word, word)) for word in VERBS[verb])


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command line prints, which must succeed."""
    code = cli.run([*words])
    out, err = capsys.readouterr()
    assert (code in {0, 1}, err) == (True, "")
    assert out
    return out


def assert_harmless(text: str) -> None:
    """Each line is made of characters that a terminal shows as they are."""
    for line in text.split("\n"):
        assert line.isprintable(), ascii(line)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("color", ["never", "always"])
def test_text_holds_nothing_but_our_own_colours(
    verb: str, color: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(capsys, *arguments(verb, tmp_path, EVERYTHING), "--color", color)
    assert_harmless(re.sub(r"\x1b\[[0-9;]*m", "", text) if color == "always" else text)


@pytest.mark.parametrize("verb", VERBS)
def test_markdown_keeps_its_tables(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, *arguments(verb, tmp_path, EVERYTHING), "--format", "markdown")
    assert_harmless(text)
    columns = 0
    for line in text.split("\n"):
        bars = len(re.findall(r"(?<!\\)(?:\\\\)*\|", line))
        assert bars == columns or not columns or not line.startswith("|"), line
        columns = bars if line.startswith("|") else 0
    assert "<b>" not in re.sub(r"(?ms)^```text\n.*?^```$", "", text)  # a block of code is shown as it is
    assert "`" not in re.sub(r"(?ms)^```text\n([^`]*)^```$", r"\1", text).replace("\\`", "")


@pytest.mark.parametrize("verb", VERBS)
def test_no_cell_of_csv_is_a_formula(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("formula", "command", "tabs", "lines", "window title"):
        assert_csv_is_harmless(capsys, *arguments(verb, tmp_path, NAMES[name]))


def assert_csv_is_harmless(capsys: pytest.CaptureFixture[str], *line: str) -> None:
    """All rows are as long, and no cell is taken for a formula."""
    words = [word for word in line if word != "--explain"]
    text = printed(capsys, *words, "--format", "csv")
    assert_harmless(text)
    rows = list(csv.reader(io.StringIO(text)))
    assert len({len(row) for row in rows}) == 1
    for cell in (cell for row in rows for cell in row):
        assert cell[:1] not in set("=@\t") or not cell
        assert cell[:1] not in set("+-") or float(cell)


@pytest.mark.parametrize("verb", VERBS)
def test_json_escapes_what_a_terminal_would_obey(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, *arguments(verb, tmp_path, EVERYTHING), "--format", "json")
    assert_harmless(text)
    assert json.loads(text)["schema"] == "roofplan/result/v1"


@pytest.mark.parametrize("name", NAMES)
def test_each_name_is_shown_and_none_is_interpreted(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for verb in ("size", "kv", "model show"):
        text = printed(capsys, *arguments(verb, tmp_path, NAMES[name]), "--color", "never")
        assert_harmless(text)
        if name in {"style", "unopened tag", "link", "emoji", "formula", "annotation"}:
            assert NAMES[name] in text


def test_an_error_names_a_hostile_model_harmlessly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*arguments("size", tmp_path, EVERYTHING), "--tp", "3"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err[:-1].isprintable()


@pytest.mark.parametrize("name", NAMES)
def test_an_imported_model_can_be_read_again(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = models.load(arguments("kv", tmp_path, NAMES[name])[1])
    text = printed(capsys, "model", "import", str(tmp_path / "model.yaml"))
    assert_harmless(text)
    (tmp_path / "again.yaml").write_text(text)
    assert models.load(str(tmp_path / "again.yaml")) == first


def test_processes_print_hostile_names_as_harmlessly(tmp_path: Path) -> None:
    words = arguments("size beyond the context", tmp_path, EVERYTHING)
    cases = {
        text_format: Case((*words, "--format", text_format)) for text_format in ("text", "markdown", "csv", "json")
    }
    for outcome in outcomes_of(cases).values():
        assert outcome.code == 0
        assert outcome.err == ""
        assert_harmless(outcome.out)
