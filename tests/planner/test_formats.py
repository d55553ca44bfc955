"""Number formats: bits with scales, what a name covers, and which arithmetic follows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from shapes import number_format

import roofplan
from roofplan import engines, hardware
from roofplan.errors import DomainError, SpecError, UnknownNameError
from roofplan.planner.formats import LINEAR_CLASSES, arithmetic_type, parse_weights

FORMATS = [engines.load_format(name) for name in engines.FORMATS.slugs()]


@given(st.sampled_from(FORMATS), st.integers(0, 10**12))
def test_bytes_of_elements_count_whole_groups(number, elements: int) -> None:
    exact = elements * number.bits_per_element / 8
    group = number.group or 8
    assert exact * (1 - 1e-12) <= number.bytes_of(elements) <= exact + (number.scale_bits + number.zero_bits) / 8 + 1
    assert 0 <= number.bytes_of(group * 8) - group * 8 * number.bytes_per_element < 1 + 1e-6  # whole bytes


def test_every_format_names_its_source() -> None:
    assert all(number.source for number in FORMATS)
    assert all(engines.load_format(number.activations) for number in FORMATS)


def test_a_quantised_name_covers_the_matrices_of_the_layers() -> None:
    formats = parse_weights("int8", engines.load_format)
    assert {kind for kind, number in formats.items() if number.name == "int8"} == set(LINEAR_CLASSES)
    assert {number.name for number in parse_weights("fp16", engines.load_format).values()} == {"fp16"}
    assert {number.name for number in parse_weights("all=int8", engines.load_format).values()} == {"int8"}
    mixed = parse_weights("int8,head=int8, router=fp32", engines.load_format)
    assert (mixed["head"].name, mixed["router"].name, mixed["embedding"].name) == ("int8", "fp32", "bf16")
    assert parse_weights("experts=mxfp4", engines.load_format)["attention"].name == "bf16"


def test_unknown_classes_and_formats_are_errors() -> None:
    with pytest.raises(DomainError, match="all or one of attention"):
        parse_weights("heads=int8", engines.load_format)
    with pytest.raises(UnknownNameError, match="int8"):
        parse_weights("int-8", engines.load_format)


@pytest.mark.parametrize(
    ("weights", "activations", "device", "arithmetic"),
    [
        ("fp8", "fp8", "h100", "fp8"),
        ("fp8", "bf16", "h100", "bf16"),  # bug case 46: the 8-bit rate needs both operands in 8 bits
        ("fp8", "fp8", "a100", "bf16"),
        ("int4-g128", "bf16", "h100", "bf16"),
        ("int8", "int8", "a100", "int8"),
        ("int8", "bf16", "a100", "bf16"),
        ("bf16", "fp8", "h100", "bf16"),
        ("bf16", "bf16", "t4", "fp16"),
        ("bf16", "bf16", "epyc-9654", "fp32"),
    ],
)
def test_arithmetic_is_that_of_the_wider_operand(weights: str, activations: str, device: str, arithmetic: str) -> None:
    chosen = arithmetic_type(number_format(weights), number_format(activations), hardware.load(device))
    assert chosen == arithmetic


def test_eight_bit_rate_doubles_the_ridge_only_with_eight_bit_activations() -> None:  # bug case 46
    ridges = {
        activations: roofplan.size(
            "llama-3.1-8b", "h100", weights="fp8", activations=activations
        ).intensity.ridge_flop_per_byte
        for activations in ("fp8", "bf16")
    }
    assert ridges["fp8"] == approx(2 * ridges["bf16"], rel=1e-3)


def test_a_device_without_the_units_says_so() -> None:
    bare = hardware.load("apple-m2-ultra")
    with pytest.raises(SpecError, match="no dense rate"):
        bare.arithmetic(("fp8", "fp4"))
