"""Golden values of formulas F6.4 and F6.5, and tiles that are laid out and handed to multiprocessors one by one."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from roofplan.errors import DomainError
from roofplan.planner.overheads import launch_s, step_with_host_s, tile_use

EXACT = 1e-12


def test_launches() -> None:  # F6.4
    assert launch_s(32 * 10, 2.5e-6) == approx(0.0008, rel=EXACT)
    assert launch_s(0, 2.5e-6) == 0


@pytest.mark.parametrize(("device", "host"), [(0.010, 0.004), (0.002, 0.004), (0.003, 0.0)])
def test_host_work(device: float, host: float) -> None:  # F6.4
    assert step_with_host_s(device, host, overlapped=True) == max(device, host)
    assert step_with_host_s(device, host, overlapped=False) == device + host


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 20), st.booleans())
def test_host_work_against_two_clocks(device: float, host: float, steps: int, overlapped: bool) -> None:  # F6.4
    """The host runs ahead where it overlaps, else waits for the device; after the first step each takes one period."""
    host_clock = device_clock = 0.0
    for _ in range(steps):
        host_clock = (host_clock if overlapped else device_clock) + host
        device_clock = max(device_clock, host_clock) + device
    period = step_with_host_s(device, host, overlapped=overlapped)
    assert device_clock == approx(host + device + (steps - 1) * period, abs=1e-9)


@pytest.mark.parametrize(
    ("rows", "multiprocessors", "tiles", "waves", "tile_efficiency", "wave_efficiency"),
    [
        (2048, 108, 256, 3, 1.0, 0.7901234567901234),
        (2304, 108, 288, 3, 1.0, 0.8888888888888888),
        (257, 132, 48, 1, 0.6692708333333334, 0.36363636363636365),
    ],
)
def test_tiles(rows, multiprocessors, tiles, waves, tile_efficiency, wave_efficiency) -> None:  # F6.5
    found = tile_use(rows, 4096, 128, 256, multiprocessors)
    assert (found.tiles, found.waves) == (tiles, waves)
    assert found.tile_efficiency == approx(tile_efficiency, rel=EXACT)
    assert found.wave_efficiency == approx(wave_efficiency, rel=EXACT)
    assert found.efficiency == approx(tile_efficiency * wave_efficiency, rel=EXACT)


SIZE, TILE = st.integers(1, 60), st.integers(1, 20)


@given(SIZE, SIZE, TILE, TILE, st.integers(1, 12), st.integers(1, 4))
def test_tiles_laid_out_one_by_one(rows, columns, tile_rows, tile_columns, multiprocessors, split) -> None:  # F6.5
    """Corners of tiles over the result; each part goes to the multiprocessor with the fewest so far."""
    corners = [(row, column) for row in range(0, rows, tile_rows) for column in range(0, columns, tile_columns)]
    busy = [0] * multiprocessors
    for _ in range(len(corners) * split):
        busy[busy.index(min(busy))] += 1
    useful = sum(min(tile_rows, rows - row) * min(tile_columns, columns - column) for row, column in corners)
    found = tile_use(rows, columns, tile_rows, tile_columns, multiprocessors, split)
    assert (found.tiles, found.waves) == (len(corners) * split, max(busy))
    assert useful == rows * columns
    assert found.tile_efficiency == approx(useful / (len(corners) * tile_rows * tile_columns), rel=EXACT)
    assert found.wave_efficiency == approx(sum(busy) / (max(busy) * multiprocessors), rel=EXACT)
    assert 0 < found.efficiency <= 1


def test_split_k_fills_a_wave() -> None:  # F6.5
    assert tile_use(257, 4096, 128, 256, 132).wave_efficiency < tile_use(257, 4096, 128, 256, 132, 2).wave_efficiency
    assert tile_use(257, 4096, 128, 256, 132, 2).wave_efficiency == approx(96 / 132, rel=EXACT)


@pytest.mark.parametrize("position", range(6))
@pytest.mark.parametrize("value", [0, -1, 1.5])
def test_tiles_outside_the_domain(position: int, value: float) -> None:
    sizes: list = [2048, 4096, 128, 256, 108, 1]
    sizes[position] = value
    with pytest.raises(DomainError):
        tile_use(*sizes)


@pytest.mark.parametrize(
    "call",
    [
        lambda: launch_s(-1, 1e-6),
        lambda: launch_s(1.5, 1e-6),
        lambda: launch_s(1, -1e-6),
        lambda: launch_s(1, math.nan),
        lambda: step_with_host_s(-1, 0, overlapped=True),
        lambda: step_with_host_s(0, math.inf, overlapped=True),
        lambda: step_with_host_s(math.nan, 0, overlapped=False),
    ],
)
def test_outside_the_domain(call) -> None:
    with pytest.raises(DomainError):
        call()
