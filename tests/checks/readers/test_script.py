"""Scripts, Makefiles, lists of arguments and files of flags."""

import json

import pytest

from roofplan.checks.readers import all_readers, flag_file, script
from roofplan.checks.sources import Source


def read(text, name="run.sh", *, is_yaml=False):
    """What the reader that recognises a text reads of it; None where no reader of this file does."""
    source = Source(name, text, is_yaml)
    document = source.parsed[0] if is_yaml else None
    reader = next(reader for reader in (*all_readers(), None) if reader is None or reader.recognises(source, document))
    assert reader in {script.READER, flag_file.READER, None}
    return None if reader is None else reader.read(source, document)


def values(said):
    return {name: one.value for name, one in said.items()}


SCRIPT = """#!/usr/bin/env bash
set -euo pipefail

MODEL=${MODEL:-meta-llama/Llama-3.1-8B-Instruct}
ARGS=(
  --max-model-len 8k        # tokens
  --gpu-memory-utilization 0.9
)
if [[ -n "${DEBUG:-}" ]]; then
  ARGS+=(--enforce-eager)
fi
export CUDA_VISIBLE_DEVICES=0,1
exec vllm serve "$MODEL" \\
  --tensor-parallel-size 2 \\
  --api-key "$(cat /run/secrets/key)" \\
  "${ARGS[@]}" "$@" 2>&1 | tee serve.log
"""


def test_a_script():
    reading = read(SCRIPT)
    assert not reading.problems
    (service,) = reading.services
    assert (service.kind, service.name, service.engine.value) == ("command", "Llama-3.1-8B-Instruct", "vllm")
    assert str(service.place) == "run.sh:13:6"
    # Both ways of an if are read: a script is not run.
    assert values(service.options) == {
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "tp": 2,
        "max_model_len": 8000,
        "memory_utilization": 0.9,
        "eager": True,
    }
    assert str(service.options["max_model_len"].place) == "run.sh:6:3"
    assert service.options["max_model_len"].text == "--max-model-len 8k"
    assert service.pod.gpus.value == 2
    assert not service.pod.contained


def test_a_script_that_starts_several_engines():
    text = "vllm serve a --port 1 &\nvllm serve b --port 2 &\ndocker run vllm/vllm-openai:v0.19.0 --model c\nwait\n"
    assert [service.name for service in read(text).services] == ["a", "b", "c"]


def test_a_makefile():
    text = "MODEL ?= org/m\nTP := 4\n\n.PHONY: serve\nserve: .venv\n\t@vllm serve $(MODEL) \\\n\t\t-tp $(TP)\n"
    (service,) = read(text, "Makefile").services
    assert values(service.options) == {"model": "org/m", "tp": 4}
    assert str(service.options["tp"].place) == "Makefile:7:3"


def test_a_list_of_arguments():
    words = ["vllm", "serve", "org/m", "--max_model_len=1K", "-tp", "2"]
    (service,) = read(json.dumps(words), "argv.json", is_yaml=True).services
    assert values(service.options) == {"model": "org/m", "max_model_len": 1024, "tp": 2}
    assert str(service.options["max_model_len"].place) == "argv.json:1:28"


def test_a_list_that_a_shell_is_given():
    text = '["/bin/sh", "-c", "exec vllm serve org/m -tp 2"]'
    (service,) = read(text, "argv.json", is_yaml=True).services
    assert values(service.options) == {"model": "org/m", "tp": 2}


def test_what_is_unknown_where_it_matters_is_a_problem_and_the_rest_is_read():
    text = "vllm serve $(cat model) -tp 2\nvllm serve b -tp $N\n"
    reading = read(text)
    assert [problem.where for problem in reading.problems] == ["run.sh:1:12", "run.sh:2:18"]
    assert [values(service.options) for service in reading.services] == [{"tp": 2}, {"model": "b"}]


def test_a_quote_without_end_is_a_problem_and_what_stands_before_is_read():
    reading = read("vllm serve a\necho 'oh\nvllm serve b\n")
    assert [problem.where for problem in reading.problems] == ["run.sh:2:6"]
    assert [service.name for service in reading.services] == ["a"]


@pytest.mark.parametrize("text", ["make all\n", "#!/bin/sh\necho hello\n", ""])
def test_a_text_without_an_engine_is_none_of_this_reader(text):
    assert read(text) is None


@pytest.mark.parametrize(
    "text", ["# vllm serve m\n", "echo vllm serve m\n", "cat <<E\nvllm serve m\nE\n", "pip install vllm\n"]
)
def test_a_text_that_only_speaks_of_an_engine(text):
    reading = read(text)
    assert not reading.services
    assert not reading.problems


@pytest.mark.parametrize("text", ["- a\n- b\n", "- 1\n- 2\n", "[]\n"])
def test_another_list_is_none_of_this_reader(text):
    source = Source("x.yaml", text, is_yaml=True)
    assert not script.READER.recognises(source, source.parsed[0])


FLAGS = "model: org/m\ntensor-parallel-size: 2\nmax_model_len: 8k\nenforce-eager: true\nhost: 0.0.0.0\nlora-modules:\n  - a=b\n"


def test_a_file_of_flags():
    (service,) = read(FLAGS, "serve.yaml", is_yaml=True).services
    assert values(service.options) == {"model": "org/m", "tp": 2, "max_model_len": 8000, "eager": True}
    assert str(service.options["max_model_len"].place) == "serve.yaml:3:16"
    assert service.kind == "command"


@pytest.mark.parametrize(
    "text",
    [
        "model: org/m\n",
        "tensor-parallel-size: 2\nmax-model-len: 8k\n",
        "model: org/m\nbatch: 3\n",
        "model: {a: 1}\nport: 1\n",
        "a: 1\n",
    ],
)
def test_another_mapping_is_none_of_this_reader(text):
    source = Source("x.yaml", text, is_yaml=True)
    assert not flag_file.READER.recognises(source, source.parsed[0])


@pytest.mark.parametrize(
    "lines",
    [
        'A=(-tp 2)\nif [[ -n "${LEN:-}" ]]; then\n  A+=(--max-model-len "$LEN")\nfi\nvllm serve m "${A[@]}"\n',
        'A="-tp 2"\nif [ -n "$LEN" ]; then A="$A --max-model-len $LEN"; fi\nvllm serve m $A\n',
        'A="-tp 2"\nif [ -n "$LEN" ]; then A+=" --max-model-len $LEN"; fi\nvllm serve m $A\n',
    ],
)
def test_what_is_added_for_a_variable_that_is_not_set_is_left_out(lines):
    reading = read(lines)
    assert not reading.problems
    assert values(reading.services[0].options) == {"model": "m", "tp": 2}


def test_after_a_condition_a_variable_that_is_not_set_is_a_problem_again():
    reading = read('A=(-tp 2)\nif x; then y; fi\nA+=(--max-model-len "$LEN")\nvllm serve m "${A[@]}"\n')
    assert [problem.where for problem in reading.problems] == ["run.sh:3:22"]
