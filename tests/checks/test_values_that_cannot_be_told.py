"""Values that a file names and does not hold: nothing is planned with a default in their place, and they are problems only where they matter."""

from __future__ import annotations

import pytest

from roofplan.checks import settings
from roofplan.checks.result import CheckResult
from roofplan.checks.run import check_text

# On this device a copy of the model over one rank is an error, over two none: a default in the place of a lost value would be found.
HARDWARE = "h100-sxm5-80gb"
MODEL = "meta-llama/Llama-3.1-70B-Instruct"


def checked(text: str, name: str = "serve.sh", **options: str) -> CheckResult:
    return check_text(text, name, settings.load(hardware=HARDWARE, **options))


def rules(result: CheckResult) -> set[str]:
    return {finding.rule for finding in result.findings}


def deployment(args: str, more: str = "", gpus: int = 2) -> str:
    return (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: llama}\nspec:\n  template:\n    spec:\n      hostIPC: true\n"
        "      containers:\n        - name: main\n          image: vllm/vllm-openai:v0.12.0\n"
        f"          args: [{args}]\n          resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}\n{more}"
    )


@pytest.mark.parametrize(
    "flag",
    [
        '-tp "$(nvidia-smi -L | wc -l)"',
        "-tp `nvidia-smi -L | wc -l`",
        "-tp $TP",
        "-tp two",
        "--kv-cache-dtype $KV",
        "--max-model-len 16,384",
    ],
)
def test_nothing_is_planned_without_an_option_that_is_said(flag: str) -> None:
    result = checked(f"vllm serve {MODEL} {flag}\n")
    assert not result.findings
    assert len(result.problems) == 1
    assert result.exit_code == 2
    assert rules(checked(f"vllm serve {MODEL}\n")) == {"does-not-fit"}  # as it would be without the flag


def test_what_a_plan_is_not_needed_for_is_found_beside_it() -> None:
    result = checked(f"vllm serve {MODEL} -tp $TP --max-num-sequences 64\n")
    assert rules(result) == {"unknown-flag"}
    assert len(result.problems) == 1


def test_devices_do_not_stand_idle_where_the_layout_cannot_be_told() -> None:
    assert "gpus-requested-not-used" in rules(checked(deployment(f"--model, {MODEL}"), "a.yaml"))
    result = checked(deployment(f"--model, {MODEL}, --tensor-parallel-size, $(TP)"), "a.yaml")
    assert not result.findings
    assert [problem.message for problem in result.problems if "$(TP)" in problem.message]


@pytest.mark.parametrize("flag", ["--api-key $KEY", '--served-model-name "$(hostname)"', "--port $PORT"])
def test_what_says_nothing_of_the_deployment_may_be_unknown(flag: str) -> None:
    result = checked(f"vllm serve {MODEL} -tp 4 --max-model-len 8192 {flag}\n")
    assert not result.problems
    assert not rules(result) & {"does-not-fit"}


@pytest.mark.parametrize(
    "flag", ["--node-rank, $(LWS_WORKER_INDEX)", '"--port=$(PORT)"', "--api-key, $(KEY)", "--seed, $(SEED)"]
)
def test_a_variable_of_the_cluster_is_no_problem_where_it_does_not_matter(flag: str) -> None:
    result = checked(deployment(f"--model, {MODEL}, -tp, '4', --max-model-len, '8192', {flag}", gpus=4), "a.yaml")
    assert not result.problems
    assert result.exit_code == 0


@pytest.mark.parametrize("flag", ["--max-model-len, $(LENGTH)", '"--max-model-len=$(LENGTH)"'])
def test_a_variable_of_the_cluster_is_a_problem_where_it_matters(flag: str) -> None:
    result = checked(deployment(f"--model, {MODEL}, -tp, '4', {flag}", gpus=4), "a.yaml")
    (problem,) = result.problems
    assert "$(LENGTH)" in problem.message
    assert (problem.place.line, result.exit_code) == (11, 2)
    held = "          env: [{name: LENGTH, value: '8192'}]\n"
    assert not checked(deployment(f"--model, {MODEL}, -tp, '4', {flag}", held, gpus=4), "a.yaml").problems


def test_settings_name_the_model_that_a_script_leaves_to_its_environment() -> None:
    script = 'vllm serve "$MODEL" --max-model-len 8192\n'
    result = checked(script)
    assert (len(result.problems), result.exit_code) == (1, 2)
    told = checked(script, model="llama-3.1-8b")
    assert (told.problems, told.exit_code) == ((), 0)
    assert rules(checked(script, model="llama-3.1-70b")) == {"does-not-fit"}
