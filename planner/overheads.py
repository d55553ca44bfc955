"""What a step loses beside its arithmetic and traffic: host work, kernel launches, and matrix products that do not fill tiles or waves.

Sources: formulas F6.4, F6.5; NVIDIA, Matrix Multiplication Background User's Guide (DU-09799), 3.1 and 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass

from .domain import count, finite, not_negative
from .parallel import divided


def launch_s(kernels: int, launch_s_per_kernel: float) -> float:
    """Time to launch the kernels of a step one by one, kernels t_k (formula F6.4).

    With captured graphs a step is launched once, so that one kernel is to be counted. The time of one launch is measured.

    Raises
    ------
    DomainError : for a negative number or time

    >>> round(launch_s(32 * 10, 2.5e-6), 12)
    0.0008
    """
    return finite("launch_s", count("kernels", kernels, 0) * not_negative("launch_s_per_kernel", launch_s_per_kernel))


def step_with_host_s(device_s: float, host_s: float, *, overlapped: bool) -> float:
    """Time of a step with the host's work for it: the longer of both where they overlap, else their sum (formula F6.4).

        max(t_device, t_host)   or   t_device + t_host

    The host's time (scheduling, launches, sampling, detokenisation) is measured. Perfect overlap is assumed, as of an engine that prepares
    one step while the one before runs.

    Raises
    ------
    DomainError : for a negative time

    >>> step_with_host_s(0.01, 0.002, overlapped=True), step_with_host_s(0.01, 0.002, overlapped=False)
    (0.01, 0.012)
    """
    device, host = not_negative("device_s", device_s), not_negative("host_s", host_s)
    return max(device, host) if overlapped else finite("step_s", device + host)


@dataclass(frozen=True, slots=True)
class TileUse:
    """A matrix product in tiles: how many, in how many waves over the multiprocessors, and the share of either that is of use."""

    tiles: int
    waves: int
    tile_efficiency: float
    wave_efficiency: float

    @property
    def efficiency(self) -> float:
        """Share of the arithmetic rate that is left after both."""
        return self.tile_efficiency * self.wave_efficiency


def tile_use(
    rows: int, columns: int, tile_rows: int, tile_columns: int, multiprocessors: int, split: int = 1
) -> TileUse:
    """How well a product of M rows and Nn columns fills tiles and waves of tiles (formula F6.5).

        tiles = ceil(M / t_M) ceil(Nn / t_N),   e_tile = M Nn / (tiles t_M t_N),   waves = ceil(tiles / SM),   e_wave = tiles / (waves SM)

    Only for products that are compute-bound: below about 16 rows the bytes of the weights decide, and idle multiprocessors cost nothing.
    One tile per multiprocessor at a time; libraries choose the tile by the shape, so that a fixed one is pessimistic for odd shapes.

    Parameters
    ----------
    rows, columns : of the result; the summed dimension does not matter
    split : parts in which the summed dimension of each tile is divided among multiprocessors (split-K), counted as tiles of their own

    Raises
    ------
    DomainError : for a size or number below one

    >>> tile_use(2048, 4096, 128, 256, 108)
    TileUse(tiles=256, waves=3, tile_efficiency=1.0, wave_efficiency=0.7901234567901234)
    """
    down = divided(count("rows", rows), count("tile_rows", tile_rows))
    across = divided(count("columns", columns), count("tile_columns", tile_columns))
    covered = down * tile_rows * across * tile_columns
    tiles = down * across * count("split", split)
    waves = divided(tiles, count("multiprocessors", multiprocessors))
    return TileUse(tiles, waves, rows * columns / covered, tiles / (waves * multiprocessors))
