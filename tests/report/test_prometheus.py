"""A plan as metrics: read back by the client library of Prometheus, in base units, and safe whatever things are called."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import shapes
from check_records import HOSTILE
from console import run
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

import roofplan
from roofplan.errors import show
from roofplan.planner.sizing import size_deployment
from roofplan.report.prometheus import to_prometheus

ARGUMENTS = ("llama-3.1-8b", "h100-sxm", "--prompt", "4096", "--output", "512", "--concurrency", "64")
SIZE = roofplan.size("llama-3.1-8b", "h100-sxm", prompt=4096, output=512, concurrency=64)
UNITS = "bytes|seconds|per_second|tokens|info|fits|devices|parameters|sequences|warnings"
NAME = re.compile(rf"roofplan_([a-z0-9_]+_)?({UNITS})")


def samples(text: str) -> dict[tuple[str, str], float]:
    """Every sample by its name and its one label that is not the plan's."""
    found: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(text):
        assert family.type == "gauge"
        assert family.documentation
        for sample in family.samples:
            own = {
                name: value
                for name, value in sample.labels.items()
                if name not in {"plan", "model", "hardware", "engine"}
            }
            key = (sample.name, "" if sample.name == "roofplan_plan_info" else ",".join(own.values()))
            assert key not in found
            found[key] = sample.value
    return found


def test_figures_are_those_of_the_sizing_in_base_units() -> None:
    found = samples(to_prometheus(SIZE))
    result: dict[str, Any] = SIZE.to_dict()["result"]
    assert found["roofplan_fits", ""] == 1
    assert found["roofplan_device_memory_bytes", ""] == result["memory"]["total_bytes"]
    assert found["roofplan_device_memory_part_bytes", "weights"] == result["memory"]["weights_bytes"]
    assert found["roofplan_device_memory_free_bytes", ""] == result["memory"]["free_bytes"]
    assert found["roofplan_kv_cache_token_bytes", ""] == 131072  # 2 x 32 layers x 8 heads x 128 x 2 B
    assert found["roofplan_max_sequences", ""] == result["capacity"]["max_concurrency"]
    for metric, figure in (("ttft", "ttft_s"), ("ttft_alone", "ttft_alone_s"), ("tpot", "tpot_s"), ("e2e", "e2e_s")):
        for estimate in ("bound", "low", "expected", "high"):
            assert found[f"roofplan_{metric}_seconds", estimate] == result["latency"][figure][estimate]
    rate = result["throughput"]["output_tokens_per_s"]
    assert found["roofplan_output_tokens_per_second", "expected"] == rate["expected"]
    assert found["roofplan_bottleneck_info", f"decode,{result['bottleneck']['decode']}"] == 1


def test_parts_of_the_memory_add_up_to_what_is_usable() -> None:
    found = samples(to_prometheus(SIZE))
    parts = {own: value for (name, own), value in found.items() if name == "roofplan_device_memory_part_bytes"}
    assert sum(parts.values()) == found["roofplan_device_memory_usable_bytes", ""]


def test_names_end_in_their_unit_and_each_has_help_and_type_once() -> None:
    text = to_prometheus(SIZE)
    names = re.findall(r"^# TYPE (\S+) gauge$", text, re.MULTILINE)
    assert names == re.findall(r"^# HELP (\S+) .+$", text, re.MULTILINE)
    assert len(set(names)) == len(names)
    assert [name for name in names if not NAME.fullmatch(name)] == []
    assert text.endswith("\n")


def test_the_same_plan_has_the_same_text_and_another_one_another_mark() -> None:
    def plan(text: str) -> set[str]:
        return set(re.findall(r'plan="([0-9a-f]{12})"', text))

    assert to_prometheus(SIZE) == to_prometheus(
        roofplan.size("llama-3.1-8b", "h100-sxm", prompt=4096, output=512, concurrency=64)
    )
    other = roofplan.size("llama-3.1-8b", "h100-sxm", prompt=4096, output=512, concurrency=65)
    assert len(plan(to_prometheus(SIZE)) | plan(to_prometheus(other))) == 2


def test_what_is_not_known_has_no_sample() -> None:
    found = samples(to_prometheus(roofplan.size("llama-3-70b", "h100-sxm")))
    assert found["roofplan_fits", ""] == 0
    assert found["roofplan_device_memory_part_bytes", "kv_cache"] < 0
    assert not [name for name, _ in found if "seconds" in name]
    one_token = samples(to_prometheus(roofplan.size("llama-3.1-8b", "h100-sxm", output=1)))
    assert not [name for name, _ in one_token if "tpot" in name]


def named(name: str) -> str:
    deployment = shapes.deploy(replace(shapes.M8, name=name), replace(shapes.HH, name=name))
    return to_prometheus(size_deployment(deployment))


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_names_stay_labels(kind: str) -> None:
    text = named(HOSTILE[kind])
    assert len(samples(text)) > 20
    assert all(line.isprintable() for line in text.split("\n"))


@given(st.text(alphabet=st.characters() | st.sampled_from('"\\\n{},= #'), max_size=40))
def test_any_name_comes_back(name: str) -> None:
    (info,) = (family for family in text_string_to_metric_families(named(name)) if family.name == "roofplan_plan_info")
    assert info.samples[0].labels["model"] == show(name, 200)


# ------------------------------------------------------------------------------------------------ the command line


def test_the_command_prints_them_and_nothing_else() -> None:
    done = run("size", *ARGUMENTS, "--format", "prometheus")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == to_prometheus(SIZE)
    assert run("size", "llama-3-70b", "h100-sxm", "--format", "prometheus").returncode == 1


def test_a_file_for_the_collector_is_written_whole_and_replaced_when_asked(tmp_path: Any) -> None:
    file = tmp_path / "plan.prom"
    assert run("size", *ARGUMENTS, "-o", str(file)).returncode == 0
    assert file.read_text() == to_prometheus(SIZE)
    refused = run("size", *ARGUMENTS, "-o", str(file))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--force" in refused.stderr
    assert run("size", *ARGUMENTS, "-o", str(file), "--force").returncode == 0
    assert [one.name for one in tmp_path.iterdir()] == ["plan.prom"]


def test_other_verbs_have_no_metrics(tmp_path: Any) -> None:
    done = run("kv", "llama-3.1-8b", "--format", "prometheus")
    assert done.returncode == 2
    assert "prometheus" in done.stderr
    assert run("advise", "llama-3.1-8b", "h100-sxm", "-o", str(tmp_path / "x.prom")).returncode == 2
