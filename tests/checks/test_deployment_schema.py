"""The JSON Schema of deployment files says what the reader takes."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
import yaml
from own_repository import ROOT

from roofplan.api import deployments
from roofplan.api.limits import LIMITS, read_expectations, read_limits
from roofplan.documents import parse_yaml
from roofplan.errors import RoofplanError

SCHEMA = json.loads((ROOT / "docs" / "schemas" / "deployment-v1.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
OWN = [
    path
    for path in sorted((ROOT / "examples").rglob("*.yaml"))
    if path.read_text(encoding="utf-8").count("roofplan/deployment/v1") == 1
]
BASE: dict[str, Any] = {"schema": "roofplan/deployment/v1", "model": "llama-3.1-8b", "hardware": "h100-sxm"}


def is_read(data: dict[str, Any]) -> bool:
    """Whether the program takes such a file."""
    document = parse_yaml(json.dumps(data), "deployment.yaml")
    try:
        deployments.deployment_of(document)
        read_limits(document)
        read_expectations(document)
    except RoofplanError:
        return False
    return True


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_it_has_the_keys_that_are_read() -> None:
    assert set(SCHEMA["properties"]) == set(deployments._KEYS)
    assert set(SCHEMA["properties"]["limits"]["properties"]) == set(LIMITS)


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_our_examples_are_valid(path: Any) -> None:
    VALIDATOR.validate(yaml.safe_load(path.read_text(encoding="utf-8")))


VALUES = [
    ({"limits": {"ttft": "500 ms", "headroom": "4 GiB", "fits": True, "usd_per_million_output_tokens": 2.5}}, True),
    ({"limits": {"context": 32768, "concurrency": 64, "output_tokens_per_s": 2000}}, True),
    ({"expect": [{"claim": "45 tok/s", "verdict": "plausible"}, {"bottleneck": "kv_bandwidth"}]}, True),
    ({"expect": [{"claim": "45 tok/s"}]}, True),
    (
        {"kv_cache_bytes": 40_000_000_000, "eager": True, "tp": 2, "usd_per_hour": 2.5},
        True,
    ),
    ({"device_memory": "80 GiB", "memory_utilization": "90 %", "shared_prefix_tokens": 100}, True),
    ({"surprise": 1}, False),
    ({"limits": {"surprise": 1}}, False),
    ({"limits": {"ttft": 500}}, False),
    ({"limits": {"ttft": "500 minutes"}}, False),
    ({"limits": {"headroom": 4}}, False),
    ({"limits": {"fits": "yes"}}, False),
    ({"limits": {"context": 0}}, False),
    ({"limits": []}, False),
    ({"expect": {"bottleneck": "kv_bandwidth"}}, False),
    ({"expect": [{"bottleneck": "luck"}]}, False),
    ({"expect": [{"claim": "45 tok/s", "verdict": "fine"}]}, False),
    ({"expect": [{"claim": "45 tok/s", "bottleneck": "compute"}]}, False),
    ({"expect": [{}]}, False),
    ({"tp": 0}, False),
    ({"tp": [1]}, False),
    ({"memory_utilization": 1.5}, False),
    ({"eager": "yes"}, False),
    ({"device_memory": 80}, False),
    ({"model": 7}, False),
    ({"schema": "roofplan/deployment/v2"}, False),
]


@pytest.mark.parametrize(("change", "valid"), VALUES, ids=[json.dumps(change) for change, _ in VALUES])
def test_it_agrees_with_the_reader(change: dict[str, Any], *, valid: bool) -> None:
    data = BASE | change
    assert VALIDATOR.is_valid(data) == valid
    assert is_read(data) == valid


@pytest.mark.parametrize("key", BASE)
def test_what_must_be_there_must_be_there(key: str) -> None:
    data = {name: value for name, value in BASE.items() if name != key}
    assert not VALIDATOR.is_valid(data)
    assert not is_read(data)
