"""Spellings of vLLM's flags against the values that vLLM's own parser gives them.

tests/data/vllm_flags.csv was made with the class FlexibleArgumentParser and the number readers of the releases that it names, from the
file and commit in each row, over the flags that those releases declare; a value "refused" is an error there.
"""

import csv
import json
import shlex
from pathlib import Path

import pytest

from roofplan.checks.arguments import ArgumentReader
from roofplan.checks.flag_values import human_integer, merged_parts
from roofplan.checks.launcher_spec import heads, launcher_of, launchers
from roofplan.checks.record import Place, Said
from roofplan.engines.profile import parse_version
from roofplan.errors import RoofplanError

HERE = Path(__file__).parent
with (HERE.parent / "data" / "vllm_flags.csv").open(encoding="utf-8", newline="") as stream:
    ROWS = list(csv.DictReader(stream))
PLACE = Place("x.sh", 1, 1)


def read(version, text):
    launcher = launcher_of("vllm")
    reader = ArgumentReader(launcher, parse_version(version) if version else None)
    return reader.read([Said(word, PLACE, word) for word in shlex.split(text)])


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['version']} {row['spelling']}" for row in ROWS])
def test_a_spelling_has_the_value_that_vllm_gives_it(row):
    done = read(row["version"], "org/model " + row["spelling"])
    flags = {
        flag.name: flag
        for flag, _ in merged_parts(done.flags)
        if flag.name != "--model" or "--model" in row["spelling"]
    }
    if row["value"] == "refused":
        assert done.problems or not all(flag.known for flag in flags.values())
        return
    assert not done.problems
    assert all(flag.known for flag in flags.values())
    assert set(flags) == set(row["flag"].split())
    wanted = json.loads(row["value"])
    for name, value in zip(row["flag"].split(), wanted if len(flags) > 1 else [wanted], strict=True):
        found = flags[name].value.value
        if value == -1:  # vLLM's way to say "auto"
            assert found in {-1, "auto"}
        else:
            assert (list(found) if isinstance(found, tuple) else found) == value


def test_the_table_is_long_enough_and_each_row_has_its_source():
    assert len({(row["spelling"], row["version"]) for row in ROWS}) == len(ROWS) >= 120
    for row in ROWS:
        assert row["repository"] == "vllm-project/vllm"
        assert row["path"].startswith("vllm/")
        assert row["commit"]


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row["default"]], ids=lambda row: f"{row['version']} {row['spelling']}"
)
def test_defaults_of_the_table_are_those_of_the_launcher(row):
    version = parse_version(row["version"])
    spec = launcher_of("vllm").flag(row["flag"].split()[0], version)
    default = spec.default_in(version)
    if default is not None:
        assert default.value == json.loads(row["default"])


# vllm-project/vllm: vllm/config.py at v0.8.5 and v0.9.2, vllm/config/cache.py at 2a69949bd (0.19.0) and in 0.20.0, vllm/config/model.py,
# vllm/config/parallel.py, vllm/engine/arg_utils.py at v0.8.5 (_set_default_args_v1).
@pytest.mark.parametrize(
    ("flag", "version", "value"),
    [
        ("--gpu-memory-utilization", "0.8.5", 0.9),
        ("--gpu-memory-utilization", "0.19.0", 0.9),
        ("--gpu-memory-utilization", "0.20.0", 0.92),
        ("--gpu-memory-utilization", "0.33.0", 0.92),
        ("--model", "0.9.2", "facebook/opt-125m"),
        ("--model", "0.10.0", "Qwen/Qwen3-0.6B"),
        ("--tensor-parallel-size", "0.19.0", 1),
        ("--data-parallel-size", "0.8.5", 1),
        ("--enable-prefix-caching", "0.8.5", True),
        ("--enable-chunked-prefill", "0.9.0", True),
        ("--enforce-eager", "0.19.0", False),
        ("--trust-remote-code", "0.33.0", False),
        ("--kv-cache-dtype", "0.12.0", "auto"),
        ("--dtype", "0.12.0", "auto"),
        ("--max-num-seqs", "0.19.0", None),
        ("--max-num-batched-tokens", "0.19.0", None),
        ("--max-model-len", "0.19.0", None),
        ("--max-loras", "0.19.0", 1),
        ("--max-lora-rank", "0.19.0", 16),
        ("--cpu-offload-gb", "0.19.0", 0),
        ("--load-format", "0.19.0", "auto"),
    ],
)
def test_defaults_by_version(flag, version, value):
    numbers = parse_version(version)
    default = launcher_of("vllm").flag(flag, numbers).default_in(numbers)
    assert default.value == value
    assert default.source in launcher_of("vllm").sources


@pytest.mark.parametrize(
    ("flag", "has", "lacks"),
    [
        ("--num-scheduler-steps", "0.8.5", "0.19.0"),
        ("--swap-space", "0.16.0", "0.19.0"),
        ("--guided-decoding-backend", "0.9.2", "0.19.0"),
        ("--kv-cache-memory-bytes", "0.10.2", "0.9.2"),
        ("--decode-context-parallel-size", "0.19.0", "0.9.2"),
        ("--enable-log-requests", "0.19.0", "0.9.2"),
        ("--async-scheduling", "0.10.0", "0.9.2"),
        ("--speculative-model", "0.8.0", "0.9.0"),
        ("--speculative-config", "0.8.5", "0.8.0"),
        ("--device-memory-utilization", "0.33.0", "0.8.0"),
    ],
)
def test_flags_come_and_go(flag, has, lacks):
    launcher = launcher_of("vllm")
    assert launcher.flag(flag, parse_version(has)) is not None
    if flag != "--device-memory-utilization":  # an alias: kept for every version of its flag
        assert launcher.flag(flag, parse_version(lacks)) is None
    assert launcher.flag(flag, None) is not None


def test_a_switch_could_not_be_undone_before_it_was_one():
    assert not read("0.8.0", "m --no-enforce-eager").flags[-1][0].known
    assert read("0.9.0", "m --no-enforce-eager").flags[-1][0].value.value is False


def test_an_unknown_flag_names_those_that_are_spelled_nearly_so():
    flag = read("0.19.0", "m --max-modle-len 5").flags[-1][0]
    assert not flag.known
    assert flag.closest[0] == "--max-model-len"
    assert flag.value.value == "5"


def test_a_cut_name_that_may_be_several_names_them():
    flag = read("0.19.0", "m --max-num 5").flags[-1][0]
    assert not flag.known
    assert {"--max-num-seqs", "--max-num-batched-tokens"} <= set(flag.closest)


def test_a_version_that_was_not_looked_at_may_have_flags_of_its_own():
    assert read("0.40.0", "m --brand-new-thing 5").flags[-1][0].known
    assert not read("0.40.0", "m --max-modle-len 5").flags[-1][0].known
    assert read("0.6.3", "m --brand-new-thing 5").flags[-1][0].known


def test_without_a_version_a_flag_of_any_version_is_known():
    assert all(flag.known for flag, _ in read("", "m --num-scheduler-steps 8 --decode-context-parallel-size 2").flags)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *[
            ("1k", 1000),
            ("1K", 1024),
            ("25.6k", 25600),
            ("2m", 2_000_000),
            ("2M", 2 * 2**20),
            ("1g", 10**9),
            ("1G", 2**30),
        ],
        *[("1t", 10**12), ("1T", 2**40), ("0.5k", 500), (" 7 ", 7), ("1_000", 1000), ("+3", 3), ("-1", -1)],
    ],
)
def test_numbers_with_suffixes(text, number):
    assert human_integer(text) == number


@pytest.mark.parametrize(
    "text", ["1.5K", "2.5G", "k", "1kk", "1 k", "1e3", "1.5", "", "0x10", "9" * 400 + "k", "١k", "1٢"]
)
def test_numbers_that_are_refused(text):
    with pytest.raises(RoofplanError):
        human_integer(text)


def test_every_launcher_is_whole():
    for head, (engine, launcher) in zip(heads(), launchers().items(), strict=True):
        assert head.engine == engine == launcher.engine
        assert head.programs == launcher.programs
        assert head.images == launcher.images
        names = {flag.name for flag in launcher.flags_in(None).values()}
        assert set(launcher.positional) <= names
        assert {default.source for flag in launcher.flags for default in flag.defaults} <= {"", *launcher.sources}
        for flag in launcher.flags_in(None).values():
            assert flag.name.startswith("-") or flag.name in launcher.positional
            until = parse_version(flag.until)
            assert until is None or (parse_version(flag.since) or ())[: len(until)] <= until
