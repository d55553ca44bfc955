"""Cache formats on arrays: the values that each type has, blocks by plain loops, and the golden values of formula F14.5."""

import itertools
import math
import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pytest import approx
from shapes import number_format

from roofplan import engines
from roofplan.errors import DomainError
from roofplan.planner import kv_schemes as ks
from roofplan.planner.quantisation_error import attention_error

PRINTED = 0.5e-6 * (1 + 1e-9)
QUERIES, KEYS, VALUES = ks.outlier_heads().arrays[0]


def scheme(name: str, **changes: object) -> ks.Scheme:
    return ks.scheme_of(replace(number_format(name), **changes))


# ------------------------------------------------------------------------------------------------ element types


def values_of(exponent_bits: int, fraction_bits: int, bias: int, *, left_out: int) -> list[float]:
    """All numbers of a floating-point type without infinities, from its bit patterns; the topmost ``left_out`` are not numbers."""
    found = []
    for exponent, fraction in itertools.product(range(2**exponent_bits), range(2**fraction_bits)):
        share = fraction / 2**fraction_bits
        found.append(math.ldexp(share, 1 - bias) if exponent == 0 else math.ldexp(1 + share, exponent - bias))
    return sorted(found)[: len(found) - left_out]


E2M1 = values_of(2, 1, 1, left_out=0)
E4M3 = values_of(4, 3, 7, left_out=1)


def test_the_values_of_the_small_types() -> None:  # OCP OFP8 and MX v1.0
    assert E2M1 == [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    assert (E4M3[-1], E4M3[1], len(E4M3)) == (448, 2**-9, 127)


@pytest.mark.parametrize(("kind", "table"), [(ks.E2M1, E2M1), (ks.E4M3, E4M3)])
def test_rounding_takes_the_nearest_value_and_of_two_the_even_one(kind: ks.FloatType, table: list[float]) -> None:
    points = [*table, *((a + b) / 2 for a, b in itertools.pairwise(table)), *np.linspace(0, table[-1] * 1.2, 5001)]
    for x in points:
        near = min(abs(x - value) for value in table)
        nearest = [place for place, value in enumerate(table) if abs(x - value) == near]
        wanted = table[next((place for place in nearest if place % 2 == 0), nearest[0])]
        assert ks.round_float(np.array([[x]]), kind)[0, 0] == wanted, x
        assert ks.round_float(np.array([[-x]]), kind)[0, 0] == -wanted, x


@given(st.floats(-(2.0**100), 2.0**100, width=32))
def test_bf16_by_the_bits_of_a_float(x: float) -> None:
    [bits] = struct.unpack("<I", struct.pack("<f", x))
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    [wanted] = struct.unpack("<f", struct.pack("<I", bits))
    if abs(x) >= 2.0**-126:
        assert ks.round_float(np.array([[x]]), ks.BF16)[0, 0] == wanted


@given(arrays(np.float64, (2, 3), elements=st.floats(-1e6, 1e6)), st.sampled_from([ks.BF16, ks.E4M3, ks.E2M1]))
def test_rounding_twice_is_rounding_once(values: np.ndarray, kind: ks.FloatType) -> None:
    once = ks.round_float(values, kind)
    assert (ks.round_float(once, kind) == once).all()
    assert (np.abs(once) <= kind.largest).all()


# ------------------------------------------------------------------------------------------------ blocks by plain loops


def sixteen(x: float) -> float:
    return struct.unpack("<e", struct.pack("<e", x))[0]


def read_q8(block: list[float], *, half: bool) -> list[float]:
    scale = max(map(abs, block)) / 127
    if not scale:
        return [0.0] * len(block)
    kept = sixteen(scale) if half else scale
    return [math.copysign(math.floor(abs(x / scale) + 0.5), x) * kept for x in block]


def read_signed(block: list[float], bits: int) -> list[float]:
    half = 2 ** (bits - 1)
    end = max(block, key=abs)
    scale = end / -half
    if not scale:
        return [0.0] * len(block)
    return [(min(2 * half - 1, math.floor(x / scale + half + 0.5)) - half) * sixteen(scale) for x in block]


def read_offset(block: list[float], bits: int) -> list[float]:
    low = min(block)
    scale = (max(block) - low) / (2**bits - 1)
    codes = [min(2**bits - 1, math.floor((x - low) / scale + 0.5)) if scale else 0 for x in block]
    return [code * sixteen(scale) + sixteen(low) for code in codes]


BLOCKS = {
    "q8_0": (32, lambda block: read_q8(block, half=True)),
    "int8-head128": (128, lambda block: read_q8(block, half=False)),
    "q5_0": (32, lambda block: read_signed(block, 5)),
    "q4_0": (32, lambda block: read_signed(block, 4)),
    "q5_1": (32, lambda block: read_offset(block, 5)),
    "q4_1": (32, lambda block: read_offset(block, 4)),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_by_plain_loops(name: str) -> None:
    """ggml-org/llama.cpp, ggml/src/ggml-quants.c; int8 with a scale of a head as vLLM lays it out."""
    width, read = BLOCKS[name]
    given_values = np.concatenate([KEYS[:5], np.zeros((1, 128)), np.full((1, 128), -2.5)])
    stored, _ = scheme(name).stored(given_values, given_values)
    for row, found in zip(given_values.tolist(), stored.tolist(), strict=True):
        wanted = [x for start in range(0, 128, width) for x in read(row[start : start + width])]
        assert found == approx(wanted, rel=1e-12, abs=1e-300)


def test_nvfp4_by_plain_loops() -> None:
    stored, _ = scheme("nvfp4").stored(KEYS[:4], VALUES[:4])
    whole = np.abs(KEYS[:4]).max() / (6 * 448)

    def near(table, x):
        return min(table, key=lambda value: abs(value - x))

    for row, found in zip(KEYS[:4].tolist(), stored.tolist(), strict=True):
        for start in range(0, 128, 16):
            block = row[start : start + 16]
            scale = near(E4M3, max(map(abs, block)) / 6 / whole) * whole
            wanted = [math.copysign(near(E2M1, abs(x) / scale), x) * scale for x in block]
            assert found[start : start + 16] == approx(wanted, rel=1e-12)
    zeros = np.zeros((2, 16))
    assert (scheme("nvfp4").stored(zeros, zeros)[0] == 0).all()


def test_fp8_saturates() -> None:
    keys, _ = scheme("fp8").stored(np.array([[1000.0, -500.0, 0.3]]), VALUES[:1])
    assert keys.tolist() == [[448.0, -448.0, 0.3125]]


# ------------------------------------------------------------------------------------------------ against F14.5


def errors(chosen: ks.Scheme):
    return attention_error(QUERIES, KEYS, VALUES, *chosen.stored(KEYS, VALUES))


@pytest.mark.parametrize(
    ("name", "key", "score", "divergence", "value"),
    [
        ("kivi-2", 0.107213, 0.393946, 0.076468, 0.392131),
        ("kivi-4", 0.021335, 0.078351, 0.003038, 0.078252),
        ("int4-g32", 0.112476, 0.415045, 0.086123, 0.078252),
    ],
)
def test_golden_errors_without_recent_tokens(name: str, key: float, score: float, divergence: float, value) -> None:
    found = errors(scheme(name, recent=0))
    shown = (found.relative_key_error, found.score_rms, found.divergence, found.relative_value_error)
    assert shown == approx((key, score, divergence, value), rel=0, abs=PRINTED)


def test_the_arrays_are_those_of_the_formula() -> None:  # F14.5
    draw = np.random.default_rng(0)
    keys, values, queries = (draw.standard_normal((rows, 128)) for rows in (1024, 1024, 64))
    keys[:, [3, 40, 77, 101]] += [20, -20, 20, -20]
    for mine, wanted in zip((QUERIES, KEYS, VALUES), (queries, keys, values), strict=True):
        assert (mine == wanted).all()
    assert "channels 3, 40, 77, 101" in ks.outlier_heads().source
    small = ks.outlier_heads(64)
    assert "channels 1, 20, 38, 50" in small.source
    assert small.arrays[0][1].shape == (1024, 64)
    assert small.tokens == 1024


def test_recent_tokens_stay_in_16_bits() -> None:
    kivi = scheme("kivi-2")
    keys, values = kivi.stored(KEYS, VALUES)
    for stored, given_values in ((keys, KEYS), (values, VALUES)):
        assert (stored[-128:] == ks.round_float(given_values[-128:], ks.BF16)).all()
        assert not (stored[:-128] == ks.round_float(given_values[:-128], ks.BF16)).all()
    short, _ = kivi.stored(KEYS[:100], VALUES[:100])
    assert (short == ks.round_float(KEYS[:100], ks.BF16)).all()


def test_tokens_that_fill_no_group_wait() -> None:
    kivi = scheme("kivi-2")
    assert [kivi.packed_tokens(tokens) for tokens in (1, 128, 159, 160, 1024)] == [0, 0, 0, 32, 896]
    assert scheme("q8_0").packed_tokens(7) == 7


def test_mean_bits() -> None:  # F3.7: M7 at 4096 tokens, 0.212890625 of 16 bits
    assert scheme("kivi-2").mean_bits(4096) == 16 * 0.212890625
    assert scheme("q8_0").mean_bits(100) == 8.5
    assert scheme("kivi-4").mean_bits(100) == 16


def test_more_bits_are_less_error() -> None:
    found = [errors(scheme(name)).divergence for name in ("q4_1", "q5_1", "q8_0", "bf16")]
    assert found == sorted(found, reverse=True)
    assert errors(scheme("kivi-2")).divergence > errors(scheme("kivi-4")).divergence


# ------------------------------------------------------------------------------------------------ schemes


def test_every_scheme_is_a_format_that_loads() -> None:
    found = list(ks.schemes(engines.load_format))
    assert [one.format.name for one in found] == list(ks.SCHEME_NAMES)
    assert all(one.words for one in found)


def test_a_format_whose_rounding_is_not_known_is_refused() -> None:
    with pytest.raises(DomainError, match="cache format: got nf4"):
        ks.scheme_of(number_format("nf4"))


@pytest.mark.parametrize(
    ("name", "keys", "values", "divides"),
    [
        ("q8_0", 80, 128, False),
        ("q8_0", 96, 64, True),
        ("kivi-2", 80, 64, True),
        ("kivi-2", 80, 80, False),
        ("bf16", 7, 7, True),
    ],
)
def test_groups_that_do_not_divide(name: str, keys: int, values: int, divides: bool) -> None:
    chosen = scheme(name)
    assert chosen.divides(keys, values) == divides
    if not divides:
        with pytest.raises(DomainError, match="a multiple of 32"):
            chosen.stored(np.ones((300, keys)), np.ones((300, values)))


@pytest.mark.parametrize("name", ks.SCHEME_NAMES)
@given(values=arrays(np.float64, (64, 128), elements=st.floats(-400, 400), fill=st.floats(-400, 400)))
def test_any_array_comes_back_within_its_range(name: str, values: np.ndarray) -> None:
    keys, stored = scheme(name, recent=0).stored(values, values)
    most = np.abs(values).max()
    for read in (keys, stored):
        assert read.shape == values.shape
        assert np.isfinite(read).all()
        assert (np.abs(read) <= most * 1.15 + 1e-6).all()


@pytest.mark.parametrize("changed", [{"head_dim": 4}, {"tokens": 0}, {"queries": 0}, {"seed": -1}, {"head_dim": 8.0}])
def test_domain_of_the_arrays(changed: dict) -> None:
    with pytest.raises(DomainError):
        ks.outlier_heads(**changed)
