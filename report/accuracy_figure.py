"""Predicted against measured times of served requests, as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..accuracy.speed import label
from .figures import LOOKS, SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ..accuracy.metrics import Comparison

_ENGINES = ("vllm", "sglang", "trtllm")


def scatter_figure(path: Path, comparisons: Iterable[Comparison], metric: str, title: str) -> None:
    """Draw each served row as a point, predicted over measured, both logarithmic, coloured by engine; lines at x/÷ 1 and 1.25."""
    from matplotlib import style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    served = [c for c in comparisons if c.metric == metric and label(c, "how") == "served" and c.predicted]
    settings: Any = ["default", SETTINGS]
    with style.context(settings):
        figure = Figure(figsize=(6, 6), dpi=110)
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0.12, 0.1, 0.85, 0.83))
        lowest = min(min(c.measured, c.predicted or c.measured) for c in served) / 1.2
        highest = max(max(c.measured, c.predicted or c.measured) for c in served) * 1.2
        for ratio, line in ((1.0, "-"), (1.25, ":"), (0.8, ":")):
            axes.plot((lowest, highest), (lowest * ratio, highest * ratio), line, color="#777777", linewidth=0.8)
        for (colour, marker), engine in zip(LOOKS, _ENGINES, strict=False):
            own = [c for c in served if label(c, "engine") == engine]
            axes.scatter(
                [c.measured for c in own],
                [c.predicted or c.measured for c in own],
                s=9,
                marker=marker,
                color=colour,
                alpha=0.55,
                linewidths=0,
                label=f"{engine} ({len(own)})",
            )
        axes.set(
            xscale="log",
            yscale="log",
            xlim=(lowest, highest),
            ylim=(lowest, highest),
            xlabel="measured, ms",
            ylabel="predicted, ms",
            title=f"{title}; dotted: 25 % off",
            aspect="equal",
        )
        axes.legend(loc="upper left", frameon=False)
        figure.savefig(path, metadata={"Software": None})
