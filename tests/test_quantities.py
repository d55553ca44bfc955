"""One strict parser and one printer of numbers with units: every prefix, every refusal, and what each refusal offers."""

from __future__ import annotations

import decimal
import fractions
import itertools
import math
import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from roofplan import quantities as q
from roofplan.errors import QuantityError, show

DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
WHOLE = [q.BYTES, q.CAPACITY, q.COUNT, q.POSITIVE_COUNT, q.TOKENS]
REAL = [q.BANDWIDTH, q.COMPUTE, q.TIME, q.FREQUENCY, q.POWER, q.FRACTION, q.NUMBER]


def unit_of(dimension: q.Dimension) -> str:
    """A unit of the dimension, whichever comes first."""
    return next(iter(dimension.units))


def refusal(value: object, dimension: q.Dimension) -> QuantityError:
    """The error with which a value is refused."""
    with pytest.raises(QuantityError) as caught:
        q.parse(value, dimension, "x")
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("space", ["", " ", "   "])
@pytest.mark.parametrize(("prefix", "size"), [*DECIMAL.items(), *BINARY.items()])
def test_each_prefix_of_bytes_is_an_exact_integer(prefix: str, size: int, space: str) -> None:
    read = q.parse(f"3{space}{prefix}B", q.BYTES)
    assert (type(read), read) == (int, 3 * size)


@pytest.mark.parametrize(("prefix", "size"), [*DECIMAL.items(), *BINARY.items()])
def test_each_prefix_of_a_bandwidth(prefix: str, size: int) -> None:
    assert q.parse(f"3 {prefix}B/s", q.BANDWIDTH) == 3.0 * size


@pytest.mark.parametrize(
    ("dimension", "unit"),
    [(q.COMPUTE, "FLOP/s"), (q.COMPUTE, "OP/s"), (q.FREQUENCY, "Hz"), (q.POWER, "W")],
)
@pytest.mark.parametrize(("prefix", "size"), DECIMAL.items())
def test_each_decimal_prefix_of_a_rate(prefix: str, size: int, dimension: q.Dimension, unit: str) -> None:
    assert q.parse(f"3 {prefix}{unit}", dimension) == 3.0 * size


@pytest.mark.parametrize("unit", ["FLOP/s", "OP/s", "Hz", "W", "s"])
@pytest.mark.parametrize("prefix", BINARY)
def test_binary_prefixes_belong_to_bytes_only(prefix: str, unit: str) -> None:
    dimension = {"Hz": q.FREQUENCY, "W": q.POWER, "s": q.TIME}.get(unit, q.COMPUTE)
    refusal(f"3 {prefix}{unit}", dimension)


@pytest.mark.parametrize(
    ("unit", "size"), [("s", 1), ("ms", 1e-3), ("us", 1e-6), ("\u00b5s", 1e-6), ("\u03bcs", 1e-6), ("ns", 1e-9)]
)
def test_each_prefix_of_a_time(unit: str, size: float) -> None:
    assert q.parse(f"3 {unit}", q.TIME) == float(3 * decimal.Decimal(repr(size)))


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("80 GB", q.BYTES, 80 * 10**9),
        ("80 GiB", q.BYTES, 80 * 2**30),
        ("81559 MiB", q.BYTES, 85_520_809_984),
        ("74.5 GiB", q.BYTES, 79_993_765_888),
        ("0 B", q.BYTES, 0),
        ("9223372036854775807 B", q.BYTES, 2**63 - 1),
        ("3.35 TB/s", q.BANDWIDTH, 3.35e12),
        ("900 GB/s", q.BANDWIDTH, 9e11),
        ("989.4 TFLOP/s", q.COMPUTE, 989.4e12),
        ("20 ms", q.TIME, 0.02),
        ("1.5 s", q.TIME, 1.5),
        ("0 s", q.TIME, 0.0),
        ("1830 MHz", q.FREQUENCY, 1.83e9),
        ("700 W", q.POWER, 700.0),
        ("0.9", q.FRACTION, 0.9),
        ("90 %", q.FRACTION, 0.9),
        ("100%", q.FRACTION, 1.0),
        ("8192", q.COUNT, 8192),
        ("1e3", q.COUNT, 1000),
        ("0", q.COUNT, 0),
        (8192.0, q.POSITIVE_COUNT, 8192),
        (2**53, q.COUNT, 2**53),
        (3.99, q.NUMBER, 3.99),
        (16_777_216, q.TOKENS, 16_777_216),
        (np.float64(0.9), q.FRACTION, 0.9),
        (np.int64(7), q.COUNT, 7),
        (np.uint8(7), q.COUNT, 7),
    ],
)
def test_what_is_accepted(text: object, dimension: q.Dimension, value: float) -> None:
    read = q.parse(text, dimension)
    assert (type(read), read) == (int if dimension.whole else float, value)


def test_the_nameplate_is_in_decimal_units_and_the_printout_in_binary() -> None:  # bug case 30
    assert q.show_bytes(q.parse_bytes("80 GB")) == "74.51 GiB"
    assert q.parse_bytes("81559 MiB") == pytest.approx(85.52e9, rel=1e-4)
    assert q.show_bytes(q.parse_bytes("140 GB")) == "130.4 GiB"
    assert q.parse("989.4 TFLOP/s", q.COMPUTE) / 2**40 != 989.4


NOT_FINITE = ["nan", "NaN", "inf", "-inf", "Infinity", "1e400", "1e9999"]
PYTHONIC = ["+5", "-5", "-0", "1_000", "1,000", "1'000", "0x10", "1e", "1e+", "1.5.2", "5.", ".5", "10**3", "$(1)"]
FOREIGN = ["", " ", "1 000 000", "٣", "５", "²", "½", "5\n", "5\t", "\x1b[31m5"]
ENDLESS = ["9" * 400, f"5{' ' * 5_000}x", "x" * 5_000, "0" * 5_000]


@pytest.mark.parametrize("dimension", WHOLE + REAL)
@pytest.mark.parametrize("text", [*NOT_FINITE, *PYTHONIC, *FOREIGN, *ENDLESS], ids=lambda text: show(text, 20))
def test_text_that_is_no_plain_number_is_refused(text: str, dimension: q.Dimension) -> None:
    unit = unit_of(dimension)
    refusal(text, dimension)
    refusal(f"{text} {unit}" if unit else text, dimension)


WRONG_KINDS = [True, False, None, [], [5], {}, (5,), b"5", 5j, decimal.Decimal(5), fractions.Fraction(1, 3)]
WRONG_NUMBERS = [math.nan, math.inf, -math.inf, -5, -0.5, 10**399, -(10**399), 10**5_000]
WRONG_ARRAYS = [np.bool_(True), np.array([5]), np.float32(5), np.float64("nan"), np.int64(-5)]


@pytest.mark.parametrize("dimension", WHOLE + REAL)
@pytest.mark.parametrize("value", [*WRONG_KINDS, *WRONG_NUMBERS, *WRONG_ARRAYS], ids=lambda value: show(value, 20))
def test_values_that_are_no_number_are_refused(value: object, dimension: q.Dimension) -> None:
    assert len(str(refusal(value, dimension))) < 400


@pytest.mark.parametrize("dimension", [d for d in WHOLE + REAL if not d.bare])
@pytest.mark.parametrize("value", [80, 80.0, "80", "80 ", "0"])
def test_a_number_without_its_unit_is_refused(value: object, dimension: q.Dimension) -> None:
    assert "add" in refusal(value, dimension).hint


@pytest.mark.parametrize("dimension", [q.CAPACITY, q.POSITIVE_COUNT, q.TOKENS, q.BANDWIDTH, q.COMPUTE, q.FREQUENCY])
@pytest.mark.parametrize("zero", ["0", "0.0", "0e5", "000"])
def test_zero_is_refused_where_it_means_nothing(zero: str, dimension: q.Dimension) -> None:
    assert "greater than zero" in refusal(f"{zero} {unit_of(dimension)}".strip(), dimension).wanted


@pytest.mark.parametrize(
    "text", ["0.5 B", "1.0001 kB", "0.3 KiB", "1e-3 B", "1.00000000000000000000000000000001 B", "1e-400 B"]
)
def test_parts_of_a_byte_are_refused(text: str) -> None:
    assert "whole number" in refusal(text, q.BYTES).wanted


def test_a_size_as_logs_print_it_is_rounded_to_a_byte() -> None:
    assert q.parse_bytes("79.18 GiB") == 85018877624  # 85018877624.32
    assert q.parse_bytes("1.0000005 MB") == 1_000_000  # half to even


@pytest.mark.parametrize("value", ["1.5", 1.5, "1e-3", 0.999999999])
def test_parts_of_a_count_are_refused(value: object) -> None:
    assert "whole number" in refusal(value, q.POSITIVE_COUNT).wanted


@pytest.mark.parametrize(
    ("value", "dimension"),
    [
        (2**53 + 1, q.COUNT),
        ("9007199254740993", q.COUNT),
        (1e16, q.COUNT),
        ("9223372036854775808 B", q.BYTES),
        ("8 EiB", q.BYTES),
        ("1e31 B/s", q.BANDWIDTH),
        (1.01, q.FRACTION),
        ("101 %", q.FRACTION),
        (2**24 + 1, q.TOKENS),
        (1e300, q.NUMBER),
    ],
)
def test_what_is_too_large_is_refused_with_the_limit(value: object, dimension: q.Dimension) -> None:
    assert "at most" in refusal(value, dimension).wanted


@pytest.mark.parametrize("dimension", REAL)
@pytest.mark.parametrize("text", ["1e-400", "1e-320", "1e-100"])
def test_what_would_vanish_is_refused(text: str, dimension: q.Dimension) -> None:
    assert "at least" in refusal(f"{text} {unit_of(dimension)}".strip(), dimension).wanted


@pytest.mark.parametrize(
    ("value", "dimension", "hint"),
    [
        ("128k", q.POSITIVE_COUNT, "128000 or 131072?"),
        ("128K", q.POSITIVE_COUNT, "128000 or 131072?"),
        ("128 k", q.TOKENS, "128000 or 131072?"),
        ("8k tokens", q.TOKENS, "8000 or 8192?"),
        ("1.5M", q.COUNT, "1500000 or 1572864?"),
        ("128Ki", q.COUNT, "131072?"),
        ("80 gb", q.BYTES, "did you mean 80 GB or 80 GiB?"),
        ("80 gib", q.BYTES, "did you mean 80 GiB?"),
        ("3 tb/s", q.BANDWIDTH, "did you mean 3 TB/s or 3 TiB/s?"),
        ("3 TB", q.BANDWIDTH, "did you mean 3 TB/s or 3 TiB/s?"),
        ("989 TFLOPS", q.COMPUTE, "did you mean 989 TFLOP/s?"),
        ("989 tflops/s", q.COMPUTE, "did you mean 989 TFLOP/s?"),
        ("20 MS", q.TIME, "did you mean 20 ms?"),
        ("1_000", q.COUNT, "no thousands separators"),
        ("1,000 GB", q.BYTES, "no thousands separators"),
        (".5 GB", q.BYTES, "write 0.5 GB"),
        ("-5", q.COUNT, "no sign: the value must be positive"),
        ("8192 tokens", q.COUNT, "no unit here"),
    ],
)
def test_the_hint_says_how_to_go_on(value: str, dimension: q.Dimension, hint: str) -> None:
    assert refusal(value, dimension).hint == hint


@pytest.mark.parametrize("unit", ["Gb/s", "Gbit/s", "Gbps", "Tb/s", "kb/s", "Mbits/s", "Gib/s"])
def test_bits_are_told_apart_from_bytes(unit: str) -> None:
    assert refusal(f"400 {unit}", q.BANDWIDTH).hint.startswith("bits? 8 bits are 1 B")


MISSPELT = ["{p}b", "{p}B/S", "{p}bps", "{p}Bps", "{p}bit", "{p}flops", "{p}FLOPS", "{p}ops", "{p}hz", "{p}w", "{p}S"]


def offers(text: str, dimension: q.Dimension) -> list[str]:
    """The readings that the refusal of a text offers; none where it is accepted."""
    try:
        q.parse(text, dimension)
    except QuantityError as error:
        offered = error.hint.partition("did you mean ")[2] or error.hint
        return offered.removesuffix("?").split(" or ") if error.hint.endswith("?") else []
    return []


@pytest.mark.parametrize("dimension", WHOLE + REAL)
def test_whatever_is_offered_is_accepted(dimension: q.Dimension) -> None:
    for prefix, spelling in itertools.product(["", *"kKmMgGtTpPeE", "ki", "KI", "Gi", "gi"], [*MISSPELT, "{p}"]):
        for reading in offers(f"3 {spelling.format(p=prefix)}", dimension):
            assert q.parse(reading, dimension) > 0


@given(st.integers(0, 2**63 - 1))
def test_bytes_survive_being_written_with_their_unit(count: int) -> None:
    assert q.parse_bytes(f"{count} B") == count


@given(st.integers(0, 2**23 - 1), st.sampled_from([*DECIMAL.items(), *BINARY.items()]))
def test_any_number_of_any_unit_is_exact(count: int, prefix: tuple[str, int]) -> None:
    wanted = count * prefix[1]
    if wanted <= q.LARGEST_BYTES:
        assert q.parse_bytes(f"{count} {prefix[0]}B") == wanted
    else:
        refusal(f"{count} {prefix[0]}B", q.BYTES)


@given(st.integers(1, 2**53))
def test_counts_survive_as_text_and_as_numbers(count: int) -> None:
    assert q.parse_count(str(count)) == q.parse_count(count) == q.parse_count(np.int64(count)) == count


@given(st.floats(1e-30, 1e30))
def test_floats_survive_being_written(value: float) -> None:
    assert q.parse(repr(value), q.NUMBER) == value
    assert q.parse(f"{value!r} s", q.TIME) == value


@given(st.one_of(st.text(), st.text("0123456789.eE+- kMGTiBbs/%_,", max_size=60)), st.sampled_from(WHOLE + REAL))
@example("999999999999999949515880660992", q.NUMBER)
def test_any_text_gives_a_finite_number_or_an_error(text: str, dimension: q.Dimension) -> None:
    try:
        value = q.parse(text, dimension)
    except QuantityError as error:
        value = 0 if str(error).isprintable() else math.nan
    assert math.isfinite(value)
    # The nearest double of the largest number may lie above it.
    assert 0 <= value <= (dimension.largest if isinstance(value, int) else float(dimension.largest))


@pytest.mark.parametrize("precision", [1, 3, 9])
def test_the_callers_decimal_context_changes_nothing(precision: int) -> None:
    with decimal.localcontext() as context:
        context.prec = precision
        assert q.parse_bytes("81559 MiB") == 85_520_809_984
        assert "131072" in refusal("128k", q.COUNT).hint


@pytest.mark.parametrize(("value", "zero"), [(0, True), (5, True), (5, False), (np.int64(5), False)])
def test_bytes_of_the_library_may_be_plain_whole_numbers(value: int, zero: bool) -> None:
    assert q.parse_bytes(value, zero=zero) == value


@pytest.mark.parametrize(
    ("value", "zero"),
    [(0, False), ("0 B", False), (-1, True), (5.0, True), (True, True), (10**400, True), (2**63, True), (None, True)],
)
def test_bytes_of_the_library_are_checked_as_strictly(value: object, zero: bool) -> None:
    with pytest.raises(QuantityError):
        q.parse_bytes(value, zero=zero)


def test_an_error_names_the_option() -> None:
    with pytest.raises(QuantityError, match=r"^--prompt: got '128k', want a number of tokens such as 8192"):
        q.parse_tokens("128k", "--prompt")
    with pytest.raises(QuantityError, match=r"^--share: got 2, want a fraction such as 0.9 or 90 %, at most 1$"):
        q.parse_fraction(2, "--share")


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (q.show_bytes(0), "0 B"),
        (q.show_bytes(656), "656 B"),
        (q.show_bytes(1023), "1,023 B"),
        (q.show_bytes(0.5625), "0.5625 B"),
        (q.show_bytes(1024), "1.000 KiB"),
        (q.show_bytes(70272), "68.62 KiB"),
        (q.show_bytes(16_060_522_496), "14.96 GiB"),
        (q.show_bytes(-(2**31)), "-2.000 GiB"),
        (q.show_bytes(2**63), "8,388,608 TiB"),
        (q.show_bandwidth(3.35e12), "3.35 TB/s"),
        (q.show_bandwidth(63e9), "63.0 GB/s"),
        (q.show_bandwidth(7), "7 B/s"),
        (q.show_compute(989.4e12), "989 TFLOP/s"),
        (q.show_compute(4.5e15), "4.50 PFLOP/s"),
        (q.show_flop(27_626_028_662_784), "27.6 TFLOP"),
        (q.show_time(0.0147), "14.7 ms"),
        (q.show_time(0), "0 us"),
        (q.show_time(3e-7), "0.3 us"),
        (q.show_time(90), "1.50 min"),
        (q.show_time(7200), "2.00 h"),
        (q.show_count(131072), "131,072"),
        (q.show_parameters(8_030_261_248), "8.030 billion"),
        (q.show_parameters(124), "124"),
        (q.show_rate(1230.4), "1,230"),
        (q.show_rate(11.34), "11.3"),
    ],
)
def test_figures_are_printed_with_their_unit(shown: str, text: str) -> None:
    assert shown == text


@given(st.one_of(st.integers(0, 2**63), st.floats(0, 1e30)))
def test_what_is_printed_is_near_the_figure(value: float) -> None:
    number, unit = q.show_bytes(value).split(" ")
    size = {"B": 1, **{f"{prefix}B": size for prefix, size in BINARY.items()}}[unit]
    assert float(number.replace(",", "")) * size == pytest.approx(value, rel=1e-3)


@pytest.mark.parametrize("printed", [q.show_bytes, q.show_bandwidth, q.show_compute, q.show_flop, q.show_time])
def test_a_printed_figure_always_ends_in_a_unit(printed: object) -> None:
    for exponent in range(-30, 31):
        assert re.fullmatch(r"[0-9][0-9,.e-]* [A-Za-z/]+", printed(10.0**exponent))


@pytest.mark.parametrize(
    ("value", "dimension", "text"),
    [
        (81559 * 2**20, q.BYTES, "81559 MiB"),
        (80_000_000_000, q.BYTES, "80 GB"),
        (1, q.BYTES, "1 B"),
        (3.35e12, q.BANDWIDTH, "3.35 TB/s"),
        (989.4e12, q.COMPUTE, "989.4 TFLOP/s"),
        (1.83e9, q.FREQUENCY, "1.83 GHz"),
        (700.0, q.POWER, "700 W"),
    ],
)
def test_quantities_are_written_as_specs_write_them(value: float, dimension: q.Dimension, text: str) -> None:
    assert q.show_quantity(value, dimension) == text


@given(st.integers(1, q.LARGEST_BYTES))
def test_what_is_written_reads_back(value: int) -> None:
    text = q.show_quantity(value, q.BYTES)
    assert len(text) > 40 or q.parse_bytes(text) == value
