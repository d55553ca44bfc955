"""What a deployment file promises: names that agree with the planner's, and files that other verbs read too."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from roofplan.api.deployments import SCHEMA, read_deployment
from roofplan.api.limits import BOTTLENECKS, LIMITS, VERDICTS
from roofplan.planner.claims import Verdict
from roofplan.planner.sizing import Limit

HEAD = f"schema: {SCHEMA}\nmodel: llama-3.1-8b\nhardware: h100-sxm\n"


def test_names_are_those_of_the_planner() -> None:
    assert set(VERDICTS) == set(get_args(Verdict))
    assert set(BOTTLENECKS) == set(get_args(Limit))


def test_every_limit_of_the_issue_is_there() -> None:
    assert set(LIMITS) == {
        "fits", "headroom", "context", "concurrency", "ttft", "tpot", "e2e", "output_tokens_per_s", "requests_per_s",
        "usd_per_million_output_tokens", "joules_per_output_token",
    }  # fmt: skip


@pytest.mark.parametrize(
    "promise",
    ["limits: {ttft: 1 ms}\n", "expect: [{bottleneck: compute}]\n", "shared_prefix_tokens: 2000\n", "limits: 5\n"],
)
def test_other_verbs_read_the_file_and_leave_the_promises(tmp_path: Path, promise: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(HEAD)
    plain = read_deployment(path)
    path.write_text(HEAD + promise)
    assert read_deployment(path).deployment == plain.deployment
