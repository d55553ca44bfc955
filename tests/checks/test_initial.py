"""``roofplan check --init``: the file that it writes says what was found, and checks clean."""

from __future__ import annotations

from pathlib import Path

import pytest
from console import run
from hypothesis import given
from hypothesis import strategies as st

from roofplan import size
from roofplan.api.deployments import deployment_of
from roofplan.checks.initial import ROOM, initial, written
from roofplan.checks.record import Place, Pod, Said, Service
from roofplan.checks.run import check_text
from roofplan.checks.settings import COMMAND_LINE, Settings
from roofplan.documents import parse_yaml
from roofplan.errors import RoofplanError

WORKLOAD = {"prompt": 4096, "output": 512, "concurrency": 32}


def from_options(
    model: str, hardware: str, *, engine: str = "plain", usd_per_hour: float | None = None, **options: object
) -> Service:
    """A service as the options of a command line describe it."""
    place = Place(COMMAND_LINE)
    said = {"model": model, "hardware": hardware, **options}
    price = None if usd_per_hour is None else Said(usd_per_hour, place)
    values = {name: Said(value, place) for name, value in said.items()}
    return Service(
        kind="deployment", name=model, place=place, engine=Said(engine, place), options=values, usd_per_hour=price
    )


def loaded(text: str) -> dict[str, object]:
    data = parse_yaml(text, "deployment.yaml").data
    assert isinstance(data, dict)
    return data


def test_it_says_what_was_given_and_the_workload() -> None:
    said = loaded(
        initial(from_options("llama-3.1-8b", "h100-sxm", engine="vllm@0.19", max_model_len=16384, **WORKLOAD))
    )
    assert said["schema"] == "roofplan/deployment/v1"
    assert {"model": "llama-3.1-8b", "hardware": "h100-sxm", "engine": "vllm@0.19"}.items() <= said.items()
    assert {"max_model_len": 16384, **WORKLOAD}.items() <= said.items()


def test_limits_are_those_that_the_plan_holds_with_some_room() -> None:
    options = {"engine": "vllm@0.19", "max_model_len": 16384, **WORKLOAD}
    plan = size("llama-3.1-8b", "h100-sxm", **options)
    limits = loaded(initial(from_options("llama-3.1-8b", "h100-sxm", usd_per_hour=2.5, **options)))["limits"]
    assert isinstance(limits, dict)
    assert limits["fits"] is True
    assert limits["context"] == 16384
    assert limits["concurrency"] == 32
    for name, expected in (("ttft", plan.times.latency.ttft_s), ("tpot", plan.times.latency.tpot_s)):
        number, unit = limits[name].split(" ")
        limit = float(number) * {"s": 1, "ms": 1e-3}[unit]
        assert ROOM <= limit / expected.expected < ROOM * 1.1  # two digits: at most a tenth above
    rate = plan.times.throughput.output_tokens_per_s.expected
    assert 0.9 / ROOM < limits["output_tokens_per_s"] / rate <= 1 / ROOM
    cost = 2.5 / 3600 / rate * 1e6
    assert ROOM <= limits["usd_per_million_output_tokens"] / cost < ROOM * 1.1


@pytest.mark.parametrize(
    ("model", "hardware", "options"),
    [
        ("llama-3.1-8b", "h100-sxm", {"engine": "vllm@0.19", "max_model_len": 16384, **WORKLOAD}),
        ("llama-3.1-8b", "rtx-4090", {"weights": "int4", "kv": "fp8", "max_model_len": 8192}),
        ("llama-3.1-70b", "h100-sxm", {"engine": "sglang", "tp": 4, "concurrency": 16}),
        ("llama-3.1-8b", "h100-sxm", {"engine": "vllm@0.19", "output": 1}),  # no time per token
    ],
)
def test_it_checks_clean(model: str, hardware: str, options: dict[str, object]) -> None:
    text = initial(from_options(model, hardware, usd_per_hour=2.5, **options))
    result = check_text(text, "deployment.yaml", Settings(fail_on="warning"))
    assert result.problems == ()
    assert [finding for finding in result.findings if finding.severity != "note"] == []
    assert len(result.services) == 1


def test_what_does_not_fit_gets_no_limits_that_it_cannot_hold() -> None:
    text = initial(from_options("llama-3.1-70b", "h100-sxm", engine="vllm@0.19"))
    assert loaded(text)["limits"] == {"fits": True}
    assert "# It does not fit today" in text
    result = check_text(text, "deployment.yaml", Settings())
    assert "does-not-fit" in {finding.rule for finding in result.findings}


def test_the_workload_that_was_assumed_is_pointed_out() -> None:
    assert "Nothing was said of output, concurrency" in initial(from_options("llama-3.1-8b", "h100-sxm", prompt=100))
    assert "Nothing was said" not in initial(from_options("llama-3.1-8b", "h100-sxm", **WORKLOAD))


def test_bytes_get_a_unit() -> None:
    text = initial(from_options("llama-3.1-8b", "h100-sxm", kv_cache_bytes=32 * 2**30, device_memory=80 * 10**9))
    assert {"kv_cache_bytes": "32 GiB", "device_memory": "80 GB"}.items() <= loaded(text).items()


def service(**changes: object) -> Service:
    place = Place("deploy.yaml", 3, 5)
    options = {"model": Said("llama-3.1-8b", place), "hardware": Said("h100-sxm", place)}
    return Service(
        **(
            {"kind": "kubernetes", "name": "chat", "place": place, "engine": Said("vllm", place), "options": options}
            | changes
        )
    )  # type: ignore[arg-type]


def test_what_no_key_holds_becomes_a_comment() -> None:
    place = Place("deploy.yaml", 9, 5)
    text = initial(
        service(
            features={"prefix_caching": Said(False, place, "--no-enable-prefix-caching")},
            pod=Pod(replicas=Said(3, place)),
        )
    )
    assert "# Not in this file: prefix_caching (--no-enable-prefix-caching)." in text
    assert "# Not in this file: 3 replicas" in text
    assert "# From deploy.yaml, by" in text
    assert loaded(text)["name"] == "chat"


@pytest.mark.parametrize("name", ["model", "hardware"])
def test_without_a_model_or_a_device_it_says_which_option_is_missing(name: str) -> None:
    options = dict(service().options)
    del options[name]
    with pytest.raises(RoofplanError, match=rf"deploy.yaml:3:5: {name}: .*--{name}"):
        initial(service(options=options))


def test_an_unknown_model_is_an_error_with_its_place() -> None:
    options = dict(service().options) | {"model": Said("llama-9", Place("deploy.yaml", 7, 1))}
    with pytest.raises(RoofplanError, match="llama-9"):
        initial(service(options=options))


@given(st.text(min_size=1, max_size=30))
def test_any_name_comes_back_as_it_was(name: str) -> None:
    assert loaded(written({"name": name}, {"fits": True}))["name"] == name


@given(st.text(max_size=40))
def test_foreign_text_in_comments_stays_in_them(text: str) -> None:
    place = Place("deploy.yaml", 1, 1)
    first = initial(service(features={"load_format": Said(text, place)}))
    assert loaded(first)["model"] == "llama-3.1-8b"


def test_options_given_as_none_are_left_out_and_specs_refused() -> None:
    assert loaded(written({"model": "a", "tp": None}, {"fits": True})) == {
        "model": "a",
        "limits": {"fits": True},
        "schema": "roofplan/deployment/v1",
    }
    with pytest.raises(RoofplanError, match="want a text or a number"):
        written({"model": object()}, {})


# ------------------------------------------------------------------------------------------------ the verb


def test_init_from_options_and_from_a_script_through_the_command_line(tmp_path: Path) -> None:
    from_names = tmp_path / "first.yaml"
    done = run(
        "check",
        "--init",
        "--model",
        "llama-3.1-8b",
        "--hardware",
        "h100-sxm",
        "--concurrency",
        "8",
        "-o",
        str(from_names),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert run("check", str(from_names)).returncode == 0
    script = tmp_path / "serve.sh"
    script.write_text(
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 16k --max-num-seqs 64\n", encoding="utf-8"
    )
    from_script = tmp_path / "second.yaml"
    done = run("check", str(script), "--init", "--hardware", "h100-sxm", "-o", str(from_script))
    assert (done.returncode, done.stderr) == (0, "")
    said = deployment_of(parse_yaml(from_script.read_text(encoding="utf-8"), str(from_script)))
    assert said.deployment.max_model_len == 16_000
    assert said.deployment.settings.max_num_seqs == 64
    assert run("check", str(from_script)).returncode == 0


def test_init_keeps_an_existing_file_unless_forced(tmp_path: Path) -> None:
    there = tmp_path / "deployment.yaml"
    there.write_text("mine", encoding="utf-8")
    asked = ("check", "--init", "--model", "llama-3.1-8b", "--hardware", "h100-sxm", "-o", str(there))
    assert run(*asked).returncode == 2
    assert there.read_text(encoding="utf-8") == "mine"
    assert run(*asked, "--force").returncode == 0
    assert there.read_text(encoding="utf-8").startswith("# From options")
