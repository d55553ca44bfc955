"""Deployment files: what they mean, and one fault each with its place."""

import json
from pathlib import Path

import pytest

import roofplan
from roofplan.api.deployments import SCHEMA, read_deployment
from roofplan.errors import RoofplanError

EXAMPLE = Path(__file__).parents[2] / "examples" / "llama-3.1-8b" / "config.json"
HEAD = f"schema: {SCHEMA}\nmodel: llama-3.1-8b\nhardware: h100-sxm\n"


def written(tmp_path: Path, text: str, name: str = "today.yaml") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_file_says_what_the_command_line_says(tmp_path: Path) -> None:
    text = (
        HEAD
        + "prompt: 4096\noutput: 512\nconcurrency: 64\nkv: fp8\nengine: vllm\nmemory_utilization: 90 %\neager: true\n"
    )
    read = read_deployment(written(tmp_path, text))
    options = {"kv": "fp8", "engine": "vllm", "memory_utilization": 0.9, "eager": True}
    asked = roofplan.deployment("llama-3.1-8b", "h100-sxm", prompt=4096, output=512, concurrency=64, **options)
    assert read.deployment == asked
    assert (read.name, read.usd_per_hour) == ("today", None)


def test_json_a_name_and_a_price(tmp_path: Path) -> None:
    data = {"schema": SCHEMA, "name": "now", "model": "gpt2", "hardware": "h100-sxm", "usd_per_hour": 2.5}
    read = read_deployment(written(tmp_path, json.dumps(data), "x.json"))
    assert (read.name, read.usd_per_hour) == ("now", 2.5)


def test_paths_are_seen_from_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "config.json").write_text(EXAMPLE.read_text())
    path = written(tmp_path, HEAD.replace("llama-3.1-8b", "./models/config.json"))
    monkeypatch.chdir("/")
    assert read_deployment(path).deployment.model.num_layers == 32
    monkeypatch.chdir(tmp_path)
    assert read_deployment("today.yaml").deployment.model.num_layers == 32


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1]\n", ":1:1: document: got no mapping"),
        (HEAD.replace("/v1", "/v2"), ":1:9: schema: got 'roofplan/deployment/v2'"),
        (HEAD.partition("\n")[2], "schema: got nothing, want roofplan/deployment/v1"),
        (HEAD.replace("hardware: h100-sxm\n", ""), ":1:1: hardware: got nothing, want this key"),
        (HEAD + "promt: 5\n", "promt: got an unknown key, want an option of roofplan size (did you mean prompt?)"),
        (HEAD + "max-model-len: 5\n", "(did you mean max_model_len?)"),
        (HEAD + "prompt: 8k tokens\n", ":4:9: prompt: got '8k tokens'"),
        (HEAD + "prompt: [1, 2]\n", ":4:9: prompt: got a list, want one value"),
        (HEAD + "prompt:\n", ":4:8: prompt: got nothing"),
        (HEAD + "prompt: {a: 1}\n", "prompt: got a mapping"),
        (HEAD + "prompt: 4\nprompt: 5\n", "a second time"),
        (HEAD + "tp: 3\n", ":4:5: tp: got 3, want a divisor"),
        (HEAD + "weights: 8\n", ":4:10: weights: got 8, want a text"),
        (HEAD + "weights: bf17\n", ":4:10: number format: got bf17"),
        (HEAD + "engine: plane\n", ":4:9: engine: got plane"),
        (HEAD + "strict: 1\n", ":4:9: strict: got 1, want true or false"),
        (HEAD + "name: 5\n", ":4:7: name: got 5, want a text"),
        (HEAD + "usd_per_hour: cheap\n", ":4:15: usd_per_hour: got 'cheap'"),
        (
            HEAD + "device_memory: 80\n",
            ":4:16: device_memory: got '80', want bytes such as 80 GB or 74.5 GiB (add the unit)",
        ),
        (HEAD.replace("llama-3.1-8b", "llama-3.1-8bb"), ":2:8: model: got llama-3.1-8bb"),
        (HEAD.replace("h100-sxm", "h100-sxm6"), ":3:11: device: got h100-sxm6"),
        (HEAD.replace("llama-3.1-8b", '"-"'), ":2:8: model: got -"),
        (HEAD.replace("llama-3.1-8b", "./nowhere.json"), "nowhere.json: file: got no such file"),
        (HEAD + "prompt: 200000\nstrict: true\n", "context: got 200256 tokens"),
    ],
)
def test_a_fault_has_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(RoofplanError) as caught:
        read_deployment(written(tmp_path, text))
    assert said in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path))
    assert str(caught.value).isprintable()
