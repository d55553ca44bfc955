"""The pictures of the documentation that the program draws: presets by name, and one roofline; with a caption that the data says.

Part of :mod:`generate`. A page holds ``![…](figures/NAME.svg)`` and below it a line in italics: the picture is drawn, and the line written
anew, from the preset of that name.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from roofplan.api.presets import PRESETS, figure
from roofplan.api.roofs import roofline
from roofplan.report.canvas import rendered
from roofplan.report.preset_figure import preset_figure
from roofplan.report.roofline_figure import roofline_figure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_PICTURE = re.compile(r"!\[[^\]]*\]\(figures/(?P<name>[a-z-]+)\.svg\)\n\n\*[^\n]*\*\n")
_SIZE = (1200, 760)  # pixels


@functools.cache
def _textbook_roofline() -> tuple[bytes, str, str]:
    """The chapter's model on the device of round numbers: the picture, what it shows, and a caption."""
    found = roofline(
        "llama-2-7b", "examples/textbook-device.yaml", batches=[1, 8, 64, 256], prompt=2048, output=256, concurrency=1
    )
    picture = rendered(roofline_figure(found, size=_SIZE), "svg")
    ridge = found.series[0].roof.ridge(found.series[0].roof.compute[0])
    said = (
        f"Below {ridge:.0f} FLOP per byte memory is the limit, above it arithmetic. A prompt of 2,048 tokens lies on the right; decode"
        " for one sequence on the left, and a larger batch climbs the slope only as far as its caches let it."
    )
    return picture, "Roofline of llama-2-7b: prefill and decode", said


DRAWN: dict[str, Callable[[], tuple[bytes, str, str]]] = {"roofline": _textbook_roofline}


@functools.cache
def drawn(name: str) -> tuple[bytes, str, str]:
    """A picture by its name: its bytes as SVG, what it shows, and a caption."""
    if name in DRAWN:
        return DRAWN[name]()
    found = figure(name)
    return rendered(preset_figure(found), "svg"), found.title, found.says


def names_in(text: str) -> list[str]:
    """Pictures of a page that are drawn here."""
    return [found["name"] for found in _PICTURE.finditer(text) if found["name"] in {*PRESETS, *DRAWN}]


def with_captions(text: str) -> str:
    """A page with what stands beside its pictures brought up to date."""

    def renewed(found: re.Match[str]) -> str:
        name = found["name"]
        if name not in {*PRESETS, *DRAWN}:
            return found[0]
        _, title, said = drawn(name)
        return f"![{title}](figures/{name}.svg)\n\n*{said}*\n"

    return _PICTURE.sub(renewed, text)


def write(docs: Path, text: str) -> None:
    """Draw the pictures of a page."""
    for name in names_in(text):
        (docs / "figures" / f"{name}.svg").write_bytes(drawn(name)[0])
