"""Comparisons: what differs, by how much, and what is best; on devices of which one is twice the other."""

import dataclasses
import json

import pytest
from pytest import approx
from shapes import GIB, HA, M7, M8, deploy

import roofplan
from roofplan.errors import RoofplanError
from roofplan.hardware.spec import Price
from roofplan.planner.comparing import KEY_FIGURES, TOLERANCE, Alternative, CompareResult, compare
from roofplan.planner.deployment import MemoryOverrides
from roofplan.planner.sizing import size_deployment

TWICE = dataclasses.replace(
    HA,
    name="twice",
    memory=dataclasses.replace(HA.memory, nameplate=160 * 10**9, bandwidth=4.0e12),
    peak=dataclasses.replace(HA.peak, bf16=624e12, fp32=624e12),
)
ALMOST = dataclasses.replace(HA, name="almost", memory=dataclasses.replace(HA.memory, bandwidth=2.0e12 * (1 - 0.009)))
WITHOUT_REST = MemoryOverrides(activation_bytes=0, runtime_bytes=0)


def of(*devices, prices: tuple[float | None, ...] = (), model=M8, **options) -> CompareResult:
    """A comparison of devices under one model, with nothing in memory but weights and cache."""
    prices = prices or (None,) * len(devices)
    return compare(
        [
            Alternative(d.name, size_deployment(deploy(model, d, memory=WITHOUT_REST, **options)), price)
            for d, price in zip(devices, prices, strict=True)
        ]
    )


def row(r: CompareResult, figure: str) -> dict[str, object]:
    return next(row for row in r.figures()["rows"] if row["figure"] == figure)


def test_a_device_with_twice_of_everything_takes_half_the_time() -> None:
    found = of(HA, TWICE, prompt=1000, output=100, concurrency=8)
    for figure in ("latency.tpot_s", "work.prefill_whole_step_s", "work.decode_whole_step_s"):
        assert row(found, figure)["ratios"] == approx({"ha": 1.0, "twice": 0.5}, rel=1e-9)
        assert row(found, figure)["best"] == (None if figure.startswith("work") else "twice")
    rate = row(found, "throughput.per_user_tokens_per_s")
    assert (rate["ratios"]["twice"], rate["best"]) == (approx(2.0, rel=1e-9), "twice")
    assert row(found, "memory.total_bytes")["values"] == {"ha": 80 * 10**9, "twice": 160 * 10**9}


def test_what_is_the_same_is_told_apart() -> None:
    found = of(HA, TWICE)
    same = {line["figure"]: line["value"] for line in found.figures()["same"]}
    differing = {line["figure"] for line in found.figures()["rows"]}
    assert not set(same) & differing
    assert same["model.weights_bytes"] == 16060522496
    assert same["inputs.model"] == "m8"
    assert same["intensity.ridge_flop_per_byte"] == 156.0  # both have twice
    assert row(found, "inputs.hardware")["asked"]


def test_a_difference_below_one_per_cent_is_none() -> None:
    found = of(HA, ALMOST, prompt=1000, output=100)
    assert [line["figure"] for line in found.figures()["rows"]] == ["inputs.hardware"]
    assert TOLERANCE == 0.01


def test_what_was_asked_comes_first() -> None:
    rows = of(HA, TWICE).rows
    asked = [row.asked for row in rows]
    assert asked == sorted(asked, reverse=True)


def test_only_what_fits_is_best() -> None:
    small = dataclasses.replace(TWICE, name="small", memory=dataclasses.replace(TWICE.memory, nameplate=17 * 10**9))
    found = of(HA, small, prompt=8000, output=100, concurrency=30)
    told = found.figures()
    assert [one["fits"] for one in told["alternatives"]] == [True, False]
    assert row(found, "latency.itl_s")["best"] == "ha"
    assert row(found, "reasons")["values"]["small"] == ["weights_exceed_memory"]
    assert row(found, "latency.tpot_s")["values"]["small"] is None
    assert found.any_fits
    assert not of(small, dataclasses.replace(small, name="other"), concurrency=30).any_fits


def test_cost_is_price_over_rate() -> None:  # F13.8
    found = of(HA, TWICE, prices=(1.0, 3.0), prompt=500, output=100, concurrency=4)
    for label, price in (("ha", 1.0), ("twice", 3.0)):
        rate = row(found, "throughput.output_tokens_per_s")["values"][label]
        cost = row(found, "cost.usd_per_million_output_tokens")["values"][label]
        assert cost["expected"] == approx(price * 1e6 / 3600 / rate["expected"], rel=1e-12)
        assert cost["low"] == approx(price * 1e6 / 3600 / rate["high"], rel=1e-12)
        assert cost["low"] <= cost["expected"] <= cost["high"]
    assert row(found, "cost.usd_per_million_output_tokens")["best"] == "ha"  # thrice the price, twice the rate
    assert row(found, "cost.usd_per_hour")["values"] == {"ha": 1.0, "twice": 3.0}
    unpriced = of(HA, TWICE, prices=(1.0, None))
    assert row(unpriced, "cost.usd_per_hour")["values"] == {"ha": 1.0, "twice": None}


def test_what_is_all_but_equal_is_not_best() -> None:
    """Of three the best two differ by less than the tolerance, in every figure that is rated: both print as one number, or nearly."""
    half = dataclasses.replace(HA, name="half", memory=dataclasses.replace(HA.memory, bandwidth=1e12))
    found = of(HA, ALMOST, half, prompt=1000, output=100, concurrency=8)
    rows = [line for line in found.figures()["rows"] if not line["asked"]]
    assert {"latency.tpot_s", "throughput.output_tokens_per_s"} <= {line["figure"] for line in rows}
    assert {line["best"] for line in rows} == {None}
    better = of(HA, ALMOST, TWICE, prompt=1000, output=100, concurrency=8)
    assert row(better, "latency.tpot_s")["best"] == "twice"


def test_more_sequences_of_a_shorter_limit_are_no_advantage() -> None:
    figure = "capacity.concurrency_at_max_model_len"
    shorter, longer = (dataclasses.replace(M8, name=name, max_context=n) for name, n in (("a", 40_960), ("b", 131_072)))

    def best(*models) -> object:
        sized = [size_deployment(deploy(model, device, memory=WITHOUT_REST)) for model, device in models]
        return row(compare([Alternative(str(n), one, None) for n, one in enumerate(sized)]), figure)["best"]

    assert best((shorter, HA), (longer, HA)) is None
    assert best((longer, HA), (longer, TWICE)) == "1"
    assert best((shorter, HA), (longer, TWICE)) is None


def test_marks_name_the_best_in_the_main_figures() -> None:
    marks = of(HA, TWICE, prices=(1.0, 1.0), prompt=500, output=100, concurrency=4).figures()["marks"]
    assert set(marks) == set(KEY_FIGURES)
    assert {mark["best"] for mark in marks.values()} == {"twice"}


def test_the_answer_is_plain_and_its_table_has_base_units() -> None:
    found = of(HA, TWICE, prices=(1.0, 1.0))
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert (told["command"], set(told["inputs"]["alternatives"])) == ("compare", {"ha", "twice"})
    columns, rows = found.table()
    assert columns == ("figure", "ha", "twice", "best")
    by_name = {line["figure"]: line for line in rows}
    assert by_name["latency.ttft_s.expected"]["ha"] == row(found, "latency.ttft_s")["values"]["ha"]["expected"]
    assert by_name["memory.total_bytes"]["twice"] == 160 * 10**9


def test_warnings_and_explanations_say_whose_they_are() -> None:
    found = roofplan.compare("llama-3.1-8b", "h100-sxm", weights="bf16,int4")
    said = [notice.message for notice in found.warnings]
    assert any(message.startswith("int4: int4 weights are multiplied in bf16") for message in said)
    explained = [line.figure for line in found.explain()]
    assert {"bf16: latency.tpot_s", "int4: latency.tpot_s"} <= set(explained)


# ------------------------------------------------------------------------------------------------ by names


@pytest.mark.parametrize(
    ("items", "options", "labels"),
    [
        (("h100-sxm", "h200"), {"model": "gpt2"}, ["h100-sxm5-80gb", "h200-sxm-141gb"]),
        (("gpt2", "llama-3.1-8b"), {"device": "h200"}, ["gpt2", "llama-3.1-8b"]),
        (("h200", "llama-3.1-8b", "h100-sxm"), {}, ["h200-sxm-141gb", "h100-sxm5-80gb"]),
        (("llama-3.1-8b", "h200", "bf16", "fp8"), {}, ["bf16", "fp8"]),
        ((), {"model": "gpt2", "device": "h200", "kv": "bf16,fp8"}, ["kv bf16", "kv fp8"]),
        ((), {"model": "llama-3.1-8b", "device": "h200", "tp": [1, 2]}, ["tp 1", "tp 2"]),
        (("gpt2", "llama-3.1-8b", "h100-sxm", "h200"), {}, ["gpt2 · h100-sxm5-80gb", "gpt2 · h200-sxm-141gb", "llama-3.1-8b · h100-sxm5-80gb", "llama-3.1-8b · h200-sxm-141gb"]),
        ((), {"model": "mixtral-8x7b", "device": "h200", "weights": "int8,head=int8,experts=mxfp4,bf16"}, ["int8,head=int8,experts=mxfp4", "bf16"]),
    ],
)  # fmt: skip
def test_what_is_named_is_combined(items: tuple[str, ...], options: dict[str, object], labels: list[str]) -> None:
    assert list(roofplan.compare(*items, **options).labels) == labels


def test_specs_and_deployments_of_the_library_can_be_compared() -> None:
    found = roofplan.compare(HA, TWICE, M7)
    assert found.labels == ("ha", "twice")
    sized = roofplan.size(M7, HA)
    assert found.alternatives[0].result.to_dict() == sized.to_dict()


def test_prices_are_those_of_the_devices_or_as_given() -> None:
    priced = dataclasses.replace(
        HA, name="priced", price=Price(usd_per_hour=7.0, provider="somebody", as_of="2026-01-01")
    )
    found = roofplan.compare(priced, TWICE, M7)
    assert [one.usd_per_hour for one in found.alternatives] == [7.0, None]
    assert any(entry.name == "usd_per_device_hour" and "somebody" in entry.source for entry in found.assumptions)
    for given, expected in (("2", [2.0, 2.0]), ("2, 3.5", [2.0, 3.5])):
        again = roofplan.compare(priced, TWICE, M7, usd_per_hour=given)
        assert [one.usd_per_hour for one in again.alternatives] == expected
    assert not any(entry.name == "usd_per_device_hour" for entry in again.assumptions)


@pytest.mark.parametrize(
    ("items", "options", "said"),
    [
        ((), {}, "compare: got nothing, want 2 to 16"),
        (("gpt2",), {}, "HARDWARE: got nothing"),
        (("h100-sxm",), {}, "MODEL: got nothing"),
        (("gpt2", "h100-sxm"), {}, "compare: got one deployment, want 2 to 16"),
        (("gpt2", "h100-sxm", "NVIDIA H100 80GB HBM3"), {}, "got h100-sxm5-80gb twice"),
        (("gpt2", "gpt2", "h200"), {}, "got gpt2 twice"),
        (("gpt2", "h200", "fp8", "fp8"), {}, "got fp8 twice"),
        (("gpt2", "h200", "fp8", "bf16"), {"weights": "bf16"}, "--weights: got formats among the names too"),
        (("gpt2", "h100-sxm6", "h200"), {}, "got h100-sxm6, want a model, a device, a number format or a deployment file (did you mean"),
        (("gpt2", "", "h200"), {}, "got an empty name"),
        (("gpt2", "-", "h200"), {}, "compare: got -"),
        (("gpt2", 5, "h200"), {}, "compare: got int"),
        (("gpt2", "./nowhere.json", "h200"), {}, "file: got no such file"),
        (("gpt2", "h200"), {"kv": "bf16,bf16"}, "--kv: got bf16,bf16, want values that differ"),
        (("gpt2", "h200"), {"tp": []}, "--tp: got no value"),
        (("gpt2", "h200"), {"concurrency": ",".join(map(str, range(1, 18)))}, "want at most 16 deployments"),
        (("gpt2", "h200", "h100-sxm"), {"usd_per_hour": "1,2,3"}, "got 3 prices, want one, or one for each of the 2"),
        (("gpt2", "h200", "h100-sxm"), {"usd_per_hour": "cheap"}, "--usd-per-hour"),
        (("gpt2", "h200", "h100-sxm"), {"promt": 5}, "did you mean prompt"),
        (("gpt2", "h200", "h100-sxm"), {"memory_utilization": "0,9"}, "no thousands separators"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_refused(items: tuple[object, ...], options: dict[str, object], said: str) -> None:
    with pytest.raises(RoofplanError) as caught:
        roofplan.compare(*items, **options)
    assert said in str(caught.value)


def test_kv_of_half_the_bytes_holds_twice_the_tokens() -> None:  # F3.1
    found = roofplan.compare("llama-3.1-8b", "h100-sxm", kv="bf16,fp8", device_memory=80 * GIB)
    assert row(found, "kv.bytes_per_token")["values"] == {"kv bf16": 131072, "kv fp8": 65536}
    assert row(found, "capacity.kv_tokens")["ratios"]["kv fp8"] == approx(2.0, rel=1e-4)
