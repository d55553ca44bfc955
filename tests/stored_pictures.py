"""Pictures that were looked at and stored, against what is drawn now."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from roofplan.report.canvas import rendered

PICTURES = Path(__file__).parent / "report" / "pictures"


def assert_looks_as_stored(name: str, figure: Figure, most: float) -> None:
    """Regenerate a stored picture by writing what is drawn here, after looking at it.

    ``most`` is how far both may differ, as root of the mean square of 255; one that is off by three pixels differs by twice as much.
    """
    drawn, stored = pixels(rendered(figure, "png")), pixels((PICTURES / name).read_bytes())
    assert drawn.shape == stored.shape
    assert difference(drawn, stored) < most
    assert difference(drawn, np.roll(stored, 3, axis=1)) > 2 * most


def pixels(content: bytes) -> np.ndarray:
    """The pixels of a PNG as numbers."""
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"), dtype=float)


def difference(one: np.ndarray, other: np.ndarray) -> float:
    """Root of the mean square of the differences, of 255."""
    return float(np.sqrt(np.mean((one - other) ** 2)))
