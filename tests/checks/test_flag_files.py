"""Files of flags that a command line names, and settings of other tools that are named as flags are."""

import shlex

import pytest

from roofplan.checks.launching import read_command, read_settings
from roofplan.checks.record import Place, Pod, Said
from roofplan.checks.run import check_paths
from roofplan.checks.settings import Settings

PLACE = Place("x.yaml", 1, 1)


def values(said):
    return {name: one.value for name, one in said.items()}


# ------------------------------------------------------------------------------------------------ files of flags


def with_config(tmp_path, content, words, name="serve.yaml"):
    (tmp_path / name).write_text(content, encoding="utf-8")
    place = Place(str(tmp_path / "run.sh"), 1, 1)
    said = [Said(word, place, word) for word in shlex.split(words)]
    return read_command(said, environment={}, image=None, kind="command", name="", place=place, pod=Pod())


def test_a_file_of_flags_is_read_beside_and_the_command_line_outranks_it(tmp_path):
    content = "model: org/m\ntensor-parallel-size: 4\nmax_model_len: 8k\nenforce-eager: true\nenable-prefix-caching: false\nspeculative-config:\n  method: ngram\n  num_speculative_tokens: 2\nbogus: 1\n"
    reading = with_config(tmp_path, content, "vllm serve --config serve.yaml -tp 2")
    assert not reading.problems
    (service,) = reading.services
    assert values(service.options) == {"model": "org/m", "tp": 2, "max_model_len": 8000, "eager": True}
    assert values(service.features) == {"prefix_caching": False, "speculation": {"method": "ngram", "k": 2}}
    assert str(service.options["max_model_len"].place) == f"{tmp_path / 'serve.yaml'}:3:16"
    assert [flag.name for flag in service.flags if not flag.known] == ["--bogus"]


@pytest.mark.parametrize(
    ("content", "words", "what"),
    [
        ("model: m\n", "--config /etc/passwd", "a relative path"),
        ("model: m\n", "--config -", "a relative path"),
        ("model: m\n", "--config absent.yaml", "a file that can be read"),
        ("model: [\n", "--config serve.yaml", "malformed YAML"),
        ("- a\n", "--config serve.yaml", "flags by their names"),
        ("tensor-parallel-size: two\n", "--config serve.yaml", "a whole number"),
    ],
)
def test_a_file_of_flags_that_cannot_be_read_is_a_problem(tmp_path, content, words, what):
    reading = with_config(tmp_path, content, f"vllm serve m {words}")
    assert len(reading.problems) == 1
    assert what in str(reading.problems[0])
    assert values(reading.services[0].options) == {"model": "m"}


# ------------------------------------------------------------------------------------------------ settings


def settings(mapping, engine="vllm", **options):
    said = {name: Said(value, Place("x.yaml", line, 3)) for line, (name, value) in enumerate(mapping.items(), 1)}
    return read_settings(engine, said, kind="ray", name="n", place=PLACE, pod=Pod(), **options)


def test_settings_are_read_as_flags():
    mapping = {
        "model": "org/m",
        "tensor_parallel_size": 4,
        "max_model_len": 8192,
        "gpu_memory_utilization": 0.9,
        "enforce_eager": False,
    }
    mapping |= {
        "enable_prefix_caching": True,
        "kv_cache_dtype": "fp8",
        "speculative_config": {"method": "ngram", "num_speculative_tokens": 3},
        "seed": None,
    }
    reading = settings(mapping, version="0.19.0")
    assert not reading.problems
    (service,) = reading.services
    assert service.engine.value == "vllm@0.19.0"
    assert values(service.options) == {
        "model": "org/m",
        "tp": 4,
        "max_model_len": 8192,
        "memory_utilization": 0.9,
        "eager": False,
        "kv": "fp8",
    }
    assert values(service.features) == {"prefix_caching": True, "speculation": {"method": "ngram", "k": 3}}
    assert service.options["tp"].place.line == 2


def test_settings_that_are_unknown_or_wrong():
    reading = settings({"model": "m", "tensor_paralel_size": 4, "max_num_seqs": "many"})
    assert [flag.closest[0] for flag in reading.services[0].flags if not flag.known] == ["--tensor-parallel-size"]
    assert [str(problem) for problem in reading.problems] == [
        "x.yaml:3:3: --max-num-seqs: got many, want a whole number"
    ]


def test_an_engine_that_nobody_knows():
    reading = settings({"model": "m"}, engine="other")
    assert not reading.services
    assert "vllm" in str(reading.problems[0])


# ------------------------------------------------------------------------------------------------ checked

BY_HAND = Settings(defaults={"hardware": Said("h100-sxm", Place("<options>"))})


@pytest.fixture
def served(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flags.yaml").write_text("model: meta-llama/Llama-3.1-8B-Instruct\ntensor-parallel-size: 3\n")
    (tmp_path / "serve.sh").write_text("#!/bin/sh\nvllm serve --config flags.yaml\n")
    return tmp_path


@pytest.mark.parametrize("paths", [["."], ["serve.sh"], ["serve.sh", "flags.yaml"], ["flags.yaml", "serve.sh"]])
@pytest.mark.usefixtures("served")
def test_what_is_wrong_in_a_file_of_flags_is_found_once_there(paths):
    result = check_paths(paths, BY_HAND)
    assert [(finding.rule, str(finding.place)) for finding in result.findings] == [
        ("tp-does-not-divide", "flags.yaml:2:23")
    ]
    assert result.line_at(result.findings[0].place) == "tensor-parallel-size: 3"
    assert [found.place.file for found in result.services] == ["serve.sh"]


@pytest.mark.parametrize("paths", [["."], ["serve.sh"]])
def test_a_comment_in_a_file_of_flags_accepts(served, paths):
    with (served / "flags.yaml").open("a") as stream:
        stream.write("# roofplan: ignore[missing-shm] without effect\n")
    text = (served / "flags.yaml").read_text()
    (served / "flags.yaml").write_text(text.replace(": 3", ": 3  # roofplan: ignore[tp-does-not-divide] known"))
    result = check_paths(paths, BY_HAND)
    assert [finding.rule for finding in result.findings] == ["unused-ignore"]
    assert result.suppressed["inline"] == 1
