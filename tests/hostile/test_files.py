"""The corpus of hostile files, one fault each: every one is refused with its place, in one line, at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from hostile.processes import Case, Outcome, assert_refused, outcomes_of

HERE = Path(__file__).parent
EXPECTED: dict[str, str] = yaml.safe_load((HERE / "expectations.yaml").read_text(encoding="utf-8"))
GOOD_MODEL = (HERE / "models" / "duplicate-key.yaml").read_text().replace("hidden_size: 128\n", "")
ALWAYS_THERE = {"models": "gpt2", "hardware": "h100", "configs": "gpt2"}


def arguments_for(kind: str, file: str | Path) -> tuple[str, ...]:
    """A command line in which a file of one kind is the only fault."""
    return ("size", "gpt2", str(file)) if kind == "hardware" else ("size", str(file), "h100")


def cases_in(folder: Path) -> dict[str, Case]:
    """The corpus, the same through standard input where the content decides alone, and what has to be made first."""
    cases = {file: Case(arguments_for(file.split("/")[0], HERE / file), said) for file, said in EXPECTED.items()}
    for file in PIPED:
        said = EXPECTED[file] if EXPECTED[file][0] != ":" else f"<stdin>{EXPECTED[file]}"
        cases[f"{file} through a pipe"] = Case(arguments_for(file.split("/")[0], "-"), said, (HERE / file).read_bytes())
    (folder / "folder").mkdir()
    os.mkfifo(folder / "fifo.yaml")
    os.mkfifo(folder / "folder" / "fifo")
    (folder / "loop.yaml").symlink_to("loop.yaml")
    for name, (content, _) in MADE.items():
        (folder / name).write_bytes(content)
    for name, said in NOT_FILES.items():
        for kind in ("models", "hardware"):
            is_folder = kind == "models" and name == "folder"
            wanted = "folder/config.json: file: got no such file" if is_folder else said
            cases[f"{name} in {kind}"] = Case(arguments_for(kind, folder / name), wanted)
    for name, (_, said) in MADE.items():
        kind = "hardware" if name.startswith("device") else "models"
        cases[name] = Case(arguments_for(kind, folder / name), said)
    for kind in ("models", "hardware"):
        cases[f"an empty pipe in {kind}"] = Case(arguments_for(kind, "-"), "<stdin>: document: got no mapping")
    cases["both from standard input"] = Case(
        ("size", "-", "-"), "HARDWARE: got -, want a name or path", GOOD_MODEL.encode()
    )
    return cases


PIPED = [
    *("models/duplicate-key.yaml", "models/utf-16.yaml", "hardware/zero-bandwidth.yaml", "hardware/binary.yaml"),
    *("configs/truncated.json", "configs/unknown-model-type.json", "configs/kv-heads-not-dividing.json"),
]
NOT_FILES = {
    "missing.yaml": ": file: got no such file or directory",
    "folder": ": file: got a folder, FIFO or device, want a regular file",
    "fifo.yaml": ": file: got a folder, FIFO or device, want a regular file",
    "loop.yaml": ": file: got too many levels of symbolic links",
    "folder/fifo/x.yaml": ": file: got not a directory",
    f"{'x' * 5_000}.yaml": ": file: got file name too long",
}
_SPEC = b"schema: roofplan/model/v1\n"
MADE = {
    "more-than-a-mebibyte.yaml": (b"#" * (2**20 + 1), ": file: got more than 1,048,576 bytes, want at most 1,048,576"),
    "device-of-a-mebibyte.yaml": (b"- 1\n" * 2**18, ":100000:3: YAML: got more than 100,000 values"),
    "hundred-thousand-brackets.json": (b"[" * 100_000, ":1:33: JSON: got more than 32 levels, want a flatter file"),
    "hundred-thousand-brackets.yaml": (b"a: " + b"[" * 100_000, ": "),
    "deep-blocks.yaml": (_SPEC + b"".join(b" " * i + b"k:\n" for i in range(1, 400)), ": "),
    "integer-of-5000-digits.yaml": (_SPEC + b"vocab_size: " + b"9" * 5_000, ":2:13: YAML: got an integer of 5,000 digits"),
    "integer-of-5000-digits.json": (b'{"vocab_size": ' + b"9" * 5_000 + b"}", ":1:16: JSON: got an integer of 5,000 digits"),
    "number-of-a-mebibyte.json": (b'{"a": ' + b"9" * (2**20 - 100) + b"}", ":1:7: JSON: got an integer of 1,048,476 digits"),
    "too-many-values.json": (b'{"model_type": [' + b"1," * 120_000 + b"1]}", ": JSON: got more than 100,000 values"),
    "sixty-thousand-keys.json": (b"{" + b",".join(b'"%d":1' % i for i in range(60_000)) + b"}", ": JSON: got more than"),
    "last-key-twice.json": (b"{" + b",".join(b'"%d":1' % (i % 48_999) for i in range(49_000)) + b"}", "a second time"),
}  # fmt: skip


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    """All cases by name."""
    return cases_in(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def outcomes(cases: dict[str, Case]) -> dict[str, Outcome]:
    """What came of each."""
    return outcomes_of(cases)


def names() -> list[str]:
    """The names of all cases, before they are made."""
    made = [f"{name} in {kind}" for name in NOT_FILES for kind in ("models", "hardware")]
    pipes = [f"{file} through a pipe" for file in PIPED]
    empty = [f"an empty pipe in {kind}" for kind in ("models", "hardware")]
    return [*EXPECTED, *pipes, *made, *MADE, *empty, "both from standard input"]


@pytest.mark.parametrize("name", names(), ids=lambda name: name[-60:])
def test_a_hostile_file_is_refused_in_one_line(name: str, cases: dict[str, Case], outcomes: dict[str, Outcome]) -> None:
    assert_refused(cases[name], outcomes[name])


def test_every_file_of_the_corpus_has_an_expectation_and_is_small() -> None:
    files = {str(file.relative_to(HERE)) for kind in ALWAYS_THERE for file in (HERE / kind).iterdir()}
    assert files == set(EXPECTED)
    assert all((HERE / file).stat().st_size < 1_000 for file in files)


def test_no_case_is_forgotten(cases: dict[str, Case]) -> None:
    assert sorted(cases) == sorted(names())
