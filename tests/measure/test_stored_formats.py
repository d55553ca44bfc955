"""Weights and caches in few bits: their bytes are the planner's, and their errors what the rounding allows."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # two threads on a shared machine wait for one another

from measured_shapes import DENSE, tiny  # noqa: E402  # after importorskip

from roofplan import engines  # noqa: E402  # after importorskip
from roofplan.errors import DomainError  # noqa: E402  # after importorskip
from roofplan.measure.reference.linear import (  # noqa: E402  # after importorskip
    WEIGHT_FORMATS,
    Int8Outliers,
    Linear,
    format_of,
    nf4_levels,
    outlier_columns,
    stored_as,
)
from roofplan.measure.reference.model import Reference  # noqa: E402  # after importorskip
from roofplan.measure.reference.packing import format_of as packed_format  # noqa: E402  # after importorskip
from roofplan.measure.reference.packing import pack  # noqa: E402  # after importorskip
from roofplan.planner.kv_schemes import outlier_heads  # noqa: E402  # after importorskip
from roofplan.planner.quantisation_error import quantise, quantised_attention_error  # noqa: E402  # after importorskip

# The 16 levels as the authors print them (QLoRA, arXiv 2305.14314, appendix E).
PUBLISHED_NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip


def weight(rows: int = 96, columns: int = 256, seed: int = 0):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", WEIGHT_FORMATS)
def test_bytes_of_a_matrix_are_those_of_the_number_format(name):
    matrix = Linear(weight())
    matrix.store(name)
    index = 4 * outlier_columns(256) if name == "llm-int8" else 0  # which columns they are
    counted = format_of(name, 256, engines.load_format).bytes_of(96 * 256)
    # Outlier columns lie outside the groups of a row, whose scale stays.
    assert matrix.matrix_bytes - index == counted


@pytest.mark.parametrize(
    ("name", "most"),
    [("int8-channel", 0.5 / 127), ("llm-int8", 0.5 / 127), ("int4-g32", 0.5 / 15), ("int4-g128", 0.5 / 15)],
)
def test_errors_lie_within_half_a_step_of_the_range(name, most):
    exact = weight()
    read = stored_as(name, exact).read(torch.float32)
    if "int8" in name:
        span = exact.abs().amax(1, keepdim=True)
    else:
        group = int(name.rpartition("g")[2])
        grouped = exact.view(96, -1, group)
        span = (grouped.amax(2) - grouped.amin(2)).repeat_interleave(group, 1)
        most *= 2  # the zero point is rounded too, by half a step at most
    assert ((read - exact).abs() <= span * most * 1.01).all()


def test_nf4_has_the_published_levels():
    assert torch.allclose(nf4_levels(), torch.tensor(PUBLISHED_NF4), atol=2e-7)


def test_nf4_takes_the_nearest_level():
    exact = weight()
    blocks = exact.view(-1, 64)
    largest = blocks.abs().amax(1, keepdim=True)
    levels = torch.tensor(PUBLISHED_NF4)
    nearest = levels[(blocks[..., None] / largest[..., None] - levels).abs().argmin(-1)] * largest
    assert torch.allclose(stored_as("nf4", exact).read(torch.float32), nearest.view_as(exact), atol=1e-6)


def test_outlier_columns_are_kept_in_sixteen_bits():
    exact = weight()
    exact[:, 17] *= 40
    stored = Int8Outliers(exact)
    assert stored.columns.tolist() == [17]
    plain = stored_as("int8-channel", exact).read(torch.float32)
    with_columns = stored.read(torch.float32)
    assert torch.equal(with_columns[:, 17], exact[:, 17].half().float())
    assert (with_columns - exact).norm() < 0.1 * (plain - exact).norm()


def test_a_product_is_that_of_the_matrix_as_it_is_read():
    matrix, x = Linear(weight()), weight(3)
    matrix.store("int4-g64")
    assert torch.equal(matrix(x), x @ matrix.weight.T)


def test_fewer_bits_are_further_from_the_whole():
    model = Reference(tiny("wide", DENSE.layers[0], hidden_size=128))
    tokens = model.tokens(1, 8)
    whole = model(tokens, every=True)
    errors, sizes = {}, {}
    for name in ("int8-channel", "nf4", "int4-g32"):
        other = Reference(model.spec)
        other.store(name)
        errors[name] = float((other(tokens, every=True) - whole).norm() / whole.norm())
        sizes[name] = other.matrix_bytes
    assert 0 < errors["int8-channel"] < 0.1 * errors["nf4"]
    assert errors["nf4"] < 0.6
    assert sizes["nf4"] < sizes["int8-channel"] < model.matrix_bytes


def test_groups_that_do_not_divide_are_refused():
    with pytest.raises(DomainError, match="a multiple of 128"):
        stored_as("int4-g128", weight(4, 96))
    with pytest.raises(DomainError, match="a multiple of 64"):
        stored_as("nf4", weight(3, 3))
    with pytest.raises(DomainError, match="one of 2, 4, 8"):
        pack(weight(), 3, "token")
    with pytest.raises(DomainError, match="a divisor that fills bytes"):
        pack(weight(), 4, "channel", 36)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("per", ["channel", "token"])
def test_packed_caches_have_the_planners_bytes_and_rounding(bits, per):
    array = weight(128, 64)
    packed = pack(array, bits, per, 32)
    assert packed.bytes == packed_format(bits, 32).bytes_of(128 * 64)
    exact = quantise(array.numpy(), bits, per, 32)
    step = (array.max() - array.min()) / (2**bits - 1)
    read = packed.read(torch.float32).numpy()
    assert read.shape == exact.shape
    # Scales in 16 bits move a level by a thousandth of its size, and now and then a code to its neighbour.
    assert np.abs(read - exact).max() < 1.1 * step
    assert np.abs(read - exact).mean() < 0.01 * step + 2e-3


def test_kivi_bytes_are_those_of_the_formula():
    # 2-bit in groups of 32 with 2 + 2 bytes: 0.375 bytes an element; 4-bit: 0.625 (formula F3.7).
    array = weight(64, 128)
    assert pack(array, 2, "channel").bytes == 0.375 * 64 * 128
    assert pack(array, 4, "token").bytes == 0.625 * 64 * 128


def test_keys_with_outlier_channels_want_groups_along_tokens():
    queries, keys, values = outlier_heads(64, 256, 16).arrays[0]
    found = {}
    for per in ("channel", "token"):
        read = pack(torch.tensor(keys), 2, per).read(torch.float64).numpy()
        found[per] = np.linalg.norm(read - keys) / np.linalg.norm(keys)
        exact = quantised_attention_error(queries, keys, values, 2, keys_per=per, values_per=None)
        assert found[per] == pytest.approx(exact.relative_key_error, rel=0.02)
    assert found["token"] > 3 * found["channel"]
