"""Whatever stands in a file: the run ends, within its time, and no fault is our own."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofplan.checks.run import check_text
from roofplan.checks.settings import Settings

NAMES = ("a.yaml", "a.json", "a.sh", "<stdin>", "Makefile")
WORDS = (
    "schema: roofplan/deployment/v1", "model: gpt2", "hardware: l40s", "limits:", "  ttft: 1 ms", "expect: [{claim: x}]", "tp: 0", "---",
    "apiVersion: apps/v1", "kind: Deployment", "spec: {template: {spec: {containers: [{name: a, image: 'vllm/vllm-openai:v0.19.0'}]}}}",
    "services:", "  a: {image: vllm/vllm-openai, command: [--model, gpt2]}", "applications: []", "kind: InferenceService", "servingEngineSpec: 1",
    "vllm serve gpt2 \\", "  --tensor-parallel-size=x", "--max-model-len 1K", "python -m vllm.entrypoints.openai.api_server", "sh -c 'vllm serve'",
    "$(vllm)", "`x`", "'", '"', "{", "}", "[", "]", "&a", "*a", "<<: *a", "!x", "{{ .Values.model }}", "# roofplan: ignore[", "\t", "\0", "\x1b", "\u202e",
    "export A=1", "llama-server -m x.gguf -ngl 99", "python -m sglang.launch_server --model-path gpt2", "trtllm-serve gpt2",
)  # fmt: skip


def own_faults(text: str, name: str) -> list[str]:
    result = check_text(text, name, Settings())
    result.to_dict()
    return [problem.message for problem in result.problems if "fault of roofplan's own" in problem.message]


@given(
    st.lists(st.sampled_from(WORDS) | st.text(max_size=8), max_size=12),
    st.sampled_from(NAMES),
    st.sampled_from(["\n", " ", "\n  "]),
)
def test_no_text_is_a_fault_of_ours(parts: list[str], name: str, between: str) -> None:
    assert own_faults(between.join(parts), name) == []


SHAPES = {
    "deployments": "schema: roofplan/deployment/v1\nmodel: gpt2\nhardware: l40s\n{}\n",
    "kubernetes": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: a}}\nspec:\n  template:\n    spec:\n      containers:\n        - name: a\n          image: vllm/vllm-openai:v0.19.0\n          {}\n",
    "pods": "apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {}\n",
    "compose": "services:\n  a:\n    image: vllm/vllm-openai:v0.19.0\n    {}\n",
    "lists": "apiVersion: v1\nkind: List\nitems: {}\n",
    "kserve": "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {{name: a}}\nspec: {}\n",
    "ray": "applications:\n  - name: a\n    import_path: ray.serve.llm:build_openai_app\n    args: {}\n",
    "stack": "servingEngineSpec: {}\n",
}
KEYS = (
    "command",
    "args",
    "env",
    "resources",
    "deploy",
    "limits",
    "expect",
    "containers",
    "predictor",
    "model",
    "llm_configs",
    "modelSpec",
    "volumes",
    "replicas",
    "gpus",
    "ttft",
    "engine_kwargs",
    "nvidia.com/gpu",
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-3, 10**6)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(WORDS)
    | st.text(max_size=6)
)
trees = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=10,
)


@given(st.sampled_from(sorted(SHAPES)), st.sampled_from(KEYS), trees)
def test_no_shape_of_a_manifest_is_a_fault_of_ours(shape: str, key: str, tree: object) -> None:
    import json

    inside = json.dumps(tree)
    text = SHAPES[shape].format(
        f"{key}: {inside}" if shape in {"deployments", "kubernetes", "compose"} else f"{{{key}: {inside}}}"
    )
    assert own_faults(text, "a.yaml") == []


MIB = 2**20


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("vllm serve x " + "\\\n" * (MIB // 2 - 10), "a.sh"),
        ("vllm " * (MIB // 5), "a.sh"),
        ("'" * MIB, "a.sh"),
        ("vllm serve '" + "a" * (MIB - 20), "a.sh"),
        ("$(" * (MIB // 2), "a.sh"),
        ("${A:-" * (MIB // 5), "a.sh"),
        ("A=$A$A$A; " * (MIB // 10), "a.sh"),
        ("vllm serve x --a\n" * 5_000, "a.sh"),
        ('sh -c "' * (MIB // 7), "a.sh"),
        ("# roofplan: ignore[x]\n" * (MIB // 22), "a.yaml"),
        ("a: " + "[" * (MIB - 3), "a.yaml"),
        ("- vllm\n" * (MIB // 7), "a.yaml"),
        ('{"a":' * (MIB // 5), "a.json"),
        ("a:\n" + " " * (MIB - 3), "a.yaml"),
        ("{{ vllm }}" * (MIB // 10), "a.yaml"),
        ("---\nschema: roofplan/deployment/v1\n" * (MIB // 36), "a.yaml"),
        ("services:\n" + "".join(f"  a{at}: {{image: vllm/vllm-openai}}\n" for at in range(3_000)), "a.yaml"),
    ],
    ids=range(17),
)  # fmt: skip
def test_the_largest_file_takes_its_time_at_most(text: str, name: str) -> None:
    started = time.monotonic()
    assert own_faults(text[:MIB], name) == []
    assert time.monotonic() - started < 20
