"""The axes of a sweep as text, and axes that make no sense."""

from itertools import pairwise

import pytest

import roofplan
from roofplan.api.axes import AXES, read_axes, split_formats
from roofplan.errors import DomainError, QuantityError, RoofplanError, UnknownNameError
from roofplan.planner.sweeping import Axis


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("batch=1,2,4", "batch", (1, 2, 4)),
        ("batch=4, 1", "batch", (4, 1)),
        ("batch=1..4", "batch", (1, 2, 3, 4)),
        ("batch=8..32:8", "batch", (8, 16, 24, 32)),
        ("batch=1..256:x2", "batch", (1, 2, 4, 8, 16, 32, 64, 128, 256)),
        ("batch=1..100:x2", "batch", (1, 2, 4, 8, 16, 32, 64)),
        ("batch=1..10:x1.5", "batch", (1, 2, 3, 4, 5, 8)),
        ("batch=3..3", "batch", (3,)),
        ("batch=1..3,10", "batch", (1, 2, 3, 10)),
        ("context=1024,8192", "context", (1024, 8192)),
        ("context=1e3", "context", (1000,)),
        ("tp=1,2,4,8", "tp", (1, 2, 4, 8)),
        ("weights=bf16,fp8", "weights", ("bf16", "fp8")),
        ("kv=bf16", "kv", ("bf16",)),
        ("hardware=h100, NVIDIA H100 NVL", "hardware", ("h100", "NVIDIA H100 NVL")),
    ],
)
def test_an_axis_is_read(text: str, name: str, values: tuple[object, ...]) -> None:
    assert read_axes(text) == (Axis(name, values),)
    assert read_axes([text]) == read_axes(dict([text.split("=", 1)])) == (Axis(name, values),)


def test_a_mapping_takes_numbers_too() -> None:
    assert read_axes({"batch": [1, 2], "tp": 4}) == (Axis("batch", (1, 2)), Axis("tp", (4,)))
    assert read_axes({"batch": range(1, 4)}) == (Axis("batch", (1, 2, 3)),)


def test_a_geometric_range_keeps_its_factor() -> None:
    (axis,) = read_axes("context=1000..100000:x1.1")
    assert all(abs(b / a - 1.1) < 0.001 for a, b in pairwise(axis.values))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("bf16", ["bf16"]),
        ("int8,head=int8", ["int8,head=int8"]),
        ("experts=mxfp4,bf16", ["experts=mxfp4", "bf16"]),
        ("all=int8,all=fp8", ["all=int8", "all=fp8"]),
        ("", []),
    ],
)
def test_pairs_belong_to_the_format_before_them(text: str, values: list[str]) -> None:
    assert split_formats(text) == values


@pytest.mark.parametrize(
    ("over", "kind", "said"),
    [
        ([], DomainError, "got no axis, want one or two"),
        ("", DomainError, "got nothing, want AXIS=VALUES"),
        ("batch", DomainError, "got batch, want AXIS=VALUES"),
        ("batch=", DomainError, "got no values"),
        ("batch=1,,2", QuantityError, "got ''"),
        ("users=1", UnknownNameError, "did you mean batch?"),
        ("bacth=1", UnknownNameError, "did you mean batch?"),
        (" =1", UnknownNameError, "got an empty name"),
        ("Batch=1", UnknownNameError, "want one of batch, context"),
        ("batch=0", QuantityError, "greater than zero"),
        ("batch=1.5", QuantityError, "a whole number"),
        ("batch=1..", QuantityError, "got ''"),
        ("batch=..8", QuantityError, "got ''"),
        ("batch=9..8", DomainError, "want a range that ascends"),
        ("batch=1..8:0", QuantityError, "greater than zero"),
        ("batch=1..8:-1", QuantityError, "no sign"),
        ("batch=1..8:x1", DomainError, "a factor of at least"),
        ("batch=1..8:x", QuantityError, "--over batch"),
        ("batch=1..8:2:2", QuantityError, "--over batch"),
        ("batch=1..1e9", DomainError, "1,000,000,000 values"),
        ("batch=1,2,1", DomainError, "got 1 twice"),
        ("batch=1..4,3", DomainError, "got 3 twice"),
        ("context=1", DomainError, "at least 2 tokens"),
        ("context=8k", QuantityError, "(8000 or 8192?)"),
        ("weights=", DomainError, "got no values"),
        ("kv=bf16,,fp8", DomainError, "an empty name"),
        ({"kv": [8]}, DomainError, "want a name"),
        ({"batch": [True]}, QuantityError, "a yes/no value"),
        (["batch=1", "batch=2"], DomainError, "got batch twice"),
        (["batch=1", "tp=1", "kv=bf16"], DomainError, "got 3 axes"),
        (["batch=1", "context=1", "nothing=0"], DomainError, "got 3 axes"),  # whatever is wrong with each of them
    ],
)
def test_an_axis_without_sense_is_refused(over, kind: type[RoofplanError], said: str) -> None:
    with pytest.raises(kind) as caught:
        read_axes(over)
    assert said in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"over": "batch=1", "concurrency": 4}, "--over batch: got --concurrency too"),
        ({"over": "tp=1,2", "tp": 2}, "--over tp: got --tp too"),
        ({"over": "context=100", "context": 100}, "--over context: got --context too"),
        ({"over": "context=100", "prompt": 5}, "got a context and the prompt"),
        ({"over": ["context=100", "output=5"]}, "got a context and the output"),
        ({"over": "batch=1", "context": 100, "prompt": 5, "output": 5}, "got a context and the output and prompt"),
        ({"over": "batch=1", "context": 1}, "--context: got 1, want at least 2"),
        ({"over": "hardware=h100"}, "HARDWARE: got a device and an axis of devices"),
        ({"over": "batch=1", "tpot": 0}, "--tpot: got"),
        ({"over": "batch=1", "tpot": "25"}, "add the unit"),
        ({"over": "batch=1", "tpot": True}, "a yes/no value"),
        ({"over": "batch=1", "usd_per_hour": -1}, "--usd-per-hour"),
        ({"over": "tp=3"}, "--tp: got 3, want a divisor"),
        ({"over": "context=200000", "strict": True}, "context: got 200000 tokens"),
        ({"over": "context=4096", "max_model_len": 2048}, "--max-model-len"),
        ({"over": "weights=bf17"}, "number format: got bf17"),
    ],
)
def test_axes_that_contradict_the_options_are_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(RoofplanError) as caught:
        roofplan.sweep("llama-3.1-8b", "h100-sxm", **options)
    assert said in str(caught.value)


def test_devices_are_an_axis_or_an_argument() -> None:
    found = roofplan.sweep("gpt2", over="hardware=h100-sxm,NVIDIA A100-SXM4-80GB")
    assert [row["hardware"] for row in found.rows()] == ["h100-sxm5-80gb", "a100-sxm4-80gb"]
    for over in ("batch=1", "hardware=h100-sxm,h100-sxm5-80gb"):
        with pytest.raises(DomainError):
            roofplan.sweep("gpt2", over=over)


def test_every_axis_makes_a_sweep() -> None:
    values = {"weights": "bf16,fp8", "kv": "bf16,fp8", "hardware": "h100-sxm,h200"}
    for name in AXES:
        device = None if name == "hardware" else "h100-sxm"
        found = roofplan.sweep("llama-3.1-8b", device, over=f"{name}={values.get(name, '2,4')}")
        assert found.count == 2
        assert [axis.name for axis in found.axes] == [name]
        assert {row[name] for row in found.rows()} == set(found.axes[0].values)
