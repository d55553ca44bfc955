"""Bad input to the verbs: every option in every wrong way, and the three kinds of no: refused, warned about, does not fit."""

from __future__ import annotations

import json
import re

import pytest
from numeric_options import NUMBERS, WORDS, metavars, numeric_options

import roofplan
from roofplan import cli
from roofplan.errors import DomainError, LayoutError, QuantityError, RoofplanError, UnknownNameError, show

TOKENS = ["--prompt", "--output", "--max-model-len"]
COUNTS = ["--concurrency", "--devices", "--tp", "--pp", "--dp", "--ep"]
SIZES = ["--device-memory", "--activation-memory", "--runtime-memory"]
SIZE, KV = ("size", "mixtral-8x7b", "h100"), ("kv", "llama-3.1-8b")
OPTIONS = {
    **dict.fromkeys([*TOKENS, *COUNTS, *SIZES, "--memory-utilization"], SIZE),
    "kv --context": KV,
    "kv --tp": KV,
}
VALUES = ["nan", "inf", "-inf", "1e400", "-1", "1_0", "0x10", "", "٣", "\x1b[31m1", "[red]1", "--"]
ENDLESS = ["9" * 400, "x" * 100_000]


def name_of(option: str) -> str:
    """The option's own name, without that of the verb."""
    return option.rpartition(" ")[2]


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line with which a command line is refused."""
    code = cli.run([*words])
    out, err = capsys.readouterr()
    assert (code, out) == (2, ""), err
    assert err.startswith("roofplan: ")
    assert err.endswith("\n")
    assert err[:-1].isprintable()
    assert len(err) < 1_500
    return err


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("value", [*VALUES, *ENDLESS], ids=lambda value: show(value, 12))
def test_a_numeric_option_takes_plain_numbers_only(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = name_of(option)
    assert name in refused(capsys, *OPTIONS[option], f"{name}={value}")
    if name in SIZES:
        assert name in refused(capsys, *OPTIONS[option], f"{name}={value} GB")


@pytest.mark.parametrize(("verb", "option"), numeric_options())
def test_every_numeric_option_of_every_verb_is_tried(
    verb: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in ("nan", "-1", "1e400", "", "\x1b[31m1"):
        said = refused(capsys, *numeric_options()[verb, option], f"{option}={value}")
        assert said.startswith(f"roofplan: {option}: got ")
        assert "beside it" not in said, "the value itself is refused, not the want of another option"


def test_every_option_is_known_to_take_numbers_or_words() -> None:
    for verb, options in metavars().items():
        assert set(options.values()) <= NUMBERS | WORDS, verb


@pytest.mark.parametrize(
    "option", [option for option in OPTIONS if option not in {"--activation-memory", "--runtime-memory"}]
)
@pytest.mark.parametrize("zero", ["0", "0.0"])
def test_zero_is_refused_where_it_means_nothing(option: str, zero: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = name_of(option)
    unit = " GB" if name in SIZES else ""
    assert "greater than zero" in refused(capsys, *OPTIONS[option], name, f"{zero}{unit}")


@pytest.mark.parametrize(
    "option", [option for option in OPTIONS if name_of(option) not in {*SIZES, "--memory-utilization"}]
)
@pytest.mark.parametrize("value", ["1.5", "1e-3"])
def test_a_part_of_a_whole_is_refused(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "whole number" in refused(capsys, *OPTIONS[option], name_of(option), value)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("--prompt", "128k"), "(128000 or 131072?)"),
        (("--concurrency", "1K"), "(1000 or 1024?)"),
        (("--max-model-len", "8k tokens"), "(8000 or 8192?)"),
        (("--device-memory", "80"), "(add the unit)"),
        (("--device-memory", "80 gb"), "(did you mean 80 GB or 80 GiB?)"),
        (("--device-memory", "640 Gbit"), "(bits? 8 bits are 1 B; did you mean 640 GB or 640 GiB?)"),
        (("--runtime-memory", "1,5 GB"), "(no thousands separators)"),
        (("--memory-utilization", "90"), "at most 1"),
        (("--memory-utilization", "1e-400"), "at least 1e-30"),
        (("--prompt", "16777217"), "at most 16777216"),
        (("--concurrency", "9007199254740993"), "at most 9007199254740992"),
        (("--device-memory", "16 EiB"), "at most 9223372036854775807"),
        (("--activation-memory", "0.3 KiB"), "(307 B is the nearest)"),
    ],
)
def test_the_refusal_says_how_to_go_on(words: tuple[str, str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, *SIZE, *words)
    assert said.startswith(f"roofplan: {words[0]}: got {words[1]!r}, want ")
    assert hint in said


@pytest.mark.parametrize("words", [("--activation-memory", "0 B"), ("--runtime-memory", "0 GB"), ("--prompt", "1e3")])
def test_what_is_unusual_but_right_is_accepted(words: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["size", "gpt2", "h100", *words]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "words", [("--tp", "2", "--pp", "2"), ("--device-memory", "1 PB"), ("--concurrency", "9" * 15)]
)
def test_large_but_possible_numbers_have_an_answer(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["size", "llama-3.1-8b", "h100", *words, "--format", "json"]) in {0, 1}
    assert json.loads(capsys.readouterr().out)["result"]["memory"]["total_bytes"] > 0


# ------------------------------------------------------------------------------------------------ three kinds of no

LONG = ("size", "llama-3.1-8b", "h100", "--prompt", "200000")


def test_a_context_beyond_the_models_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (LONG, ("kv", "llama-3.1-8b", "--context", "200000")):
        assert cli.run([*words]) == 0
        out, err = capsys.readouterr()
        assert re.search(r"warning: 200,\d+ tokens exceed the 131,072 that llama-3.1-8b was published for", out)
        assert err == ""
        assert cli.run([*words, "--format", "json"]) == 0
        assert [said["code"] for said in json.loads(capsys.readouterr().out)["warnings"]] == ["context_exceeds_model"]


def test_a_context_beyond_the_models_is_an_error_when_strict(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, *LONG, "--strict")
    assert said == (
        "roofplan: context: got 200256 tokens, want at most 131072 (ask for fewer tokens, or leave --strict out)\n"
    )


def test_a_context_within_the_models_is_no_error_when_strict(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["size", "llama-3.1-8b", "h100", "--prompt", "130816", "--output", "256", "--strict"]) == 0
    assert "warning: 131,072 tokens" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "amount", "remedy"),
    [
        (("llama-3-70b", "rtx-4090"), r"[0-9.]+ GiB short per device", "8 devices"),
        (("llama-3-70b", "h100"), r"[0-9.]+ GiB short per device", "bits"),
        (("llama-3.1-8b", "h100", "--device-memory", "1 MB"), r"[0-9.]+ GiB short per device", ""),
    ],
)
def test_what_does_not_fit_exits_1_and_says_by_how_much(
    words: tuple[str, ...], amount: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["size", *words]) == 1
    out, err = capsys.readouterr()
    assert err == ""
    assert re.search(rf"It does not fit: {amount}", out)
    assert any(line.startswith("to make it fit: ") and remedy in line for line in out.splitlines()) or not remedy


# ------------------------------------------------------------------------------------------------ the library


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"prompt": 0}, QuantityError),
        ({"prompt": -1}, QuantityError),
        ({"prompt": True}, QuantityError),
        ({"prompt": 1.5}, QuantityError),
        ({"prompt": float("nan")}, QuantityError),
        ({"prompt": 10**5_000}, QuantityError),
        ({"max_num_seqs": 0}, QuantityError),
        ({"eager": "yes"}, DomainError),
        ({"kv_cache_bytes": 0}, QuantityError),
        ({"engine": 3}, DomainError),
        ({"concurrency": "many"}, QuantityError),
        ({"memory_utilization": 0}, QuantityError),
        ({"memory_utilization": 1.01}, QuantityError),
        ({"device_memory": 0}, QuantityError),
        ({"device_memory": 80.5}, QuantityError),
        ({"device_memory": 10**5_000}, QuantityError),
        ({"activation_memory": -1}, QuantityError),
        ({"tp": 5}, LayoutError),
        ({"ep": 2}, LayoutError),
        ({"devices": 2, "tp": 4}, LayoutError),
        ({"weights": ""}, UnknownNameError),
        ({"kv": "nothing"}, UnknownNameError),
        ({"engine": "nothing"}, UnknownNameError),
        ({"prompt": 5_000, "strict": True}, DomainError),
        ({"prompt": 900, "output": 200, "max_model_len": 1_000}, DomainError),
    ],
    ids=lambda part: show(part, 40),
)
def test_the_library_refuses_what_the_command_line_refuses(
    options: dict[str, object], kind: type[RoofplanError]
) -> None:
    with pytest.raises(kind) as caught:
        roofplan.size("gpt2", "h100", **options)
    assert str(caught.value).isprintable()


# ------------------------------------------------------------------------------------------------ places of outputs

OUTPUTS = [
    ("size none none", "-o", "x.html"),
    ("kv none", "-o", "x.html"),
    ("roofline none none", "-o", "x.svg"),
    ("roofline none none", "--data", "x.csv"),
    ("roofline none none -o ./ok.png", "--data", "x.json"),
    ("sweep none none --over batch=1", "-o", "x.png"),
    ("compare none none none", "-o", "x.html"),
    ("advise none none", "-o", "x.html"),
    ("speculate none none", "-o", "x.png"),
    ("claim 5 none none", "-o", "x.html"),
    ("figure batch-curve --model none", "-o", "x.pdf"),
    ("accuracy memory --data none.csv", "-o", "x.html"),
    ("accuracy speed --data none.csv", "--rows", "x.csv"),
    ("accuracy speculation --data none.csv", "--rows", "x.csv"),
]


@pytest.mark.parametrize(("words", "option", "name"), OUTPUTS)
def test_a_place_that_cannot_be_written_is_told_before_anything_is_computed(
    words: str, option: str, name: str, capsys: pytest.CaptureFixture[str], tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the model that there is not, and before another file is written."""
    monkeypatch.chdir(tmp_path)
    assert f"nowhere/{name}: file: got no such file" in refused(capsys, *words.split(), option, f"nowhere/{name}")
    (tmp_path / name).mkdir()
    assert f"{name}: file: got a folder" in refused(capsys, *words.split(), option, name, "--force")
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_one_file_is_not_two_outputs(
    capsys: pytest.CaptureFixture[str], tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b.svg").symlink_to(tmp_path / "a.json")
    said = refused(capsys, "roofline", "gpt2", "h100", "-o", "b.svg", "--data", "a.json")
    assert "a.json: file: got one file for two outputs" in said
    assert not (tmp_path / "a.json").exists()


@pytest.mark.parametrize(
    ("words", "option"),
    [("advise gpt2 h100", "--goal"), ("size gpt2 h100", "--format"), ("kv gpt2", "--color"), ("size gpt2 h100", "--solve"), ("speculate gpt2 h100", "--timing")],
)  # fmt: skip
def test_a_word_that_is_none_of_the_choices(words: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, *words.split(), option, "foo")
    assert said.startswith(f"roofplan: Invalid value for '{option}': 'foo' is not one of '")
    assert "Value error" not in said
