"""What all drawings share: settings, colours, measuring text, and turning a figure into the bytes of a file.

The same figure gives the same bytes, whatever the user's settings of matplotlib and whenever it is drawn. matplotlib's ``pyplot`` is not
needed, and not loaded: it takes as long again.
"""

from __future__ import annotations

import io
import math
import re
import struct
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from ..errors import DomainError, show

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from matplotlib.figure import Figure

KINDS = ("png", "svg", "pdf")
PIXELS_PER_INCH, POINTS_PER_INCH = 100, 72
DEFAULT_SIZE = (1200, 800)  # pixels
SMALLEST, LARGEST = (480, 360), (8000, 8000)
MOST_LINES = 40  # of a text that is wrapped: more than any of ours has
_SIZE = re.compile(r"([0-9]{1,5}) ?[xX×] ?([0-9]{1,5})", re.ASCII)
# What would tell the time of drawing, or the version of the library.
_SILENT: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "ModDate": None, "Creator": None, "Producer": None},
}
FONT = "DejaVu Sans"  # comes with matplotlib
_MEASURED = 100.0  # points: letters are measured large, since sizes are rounded
SETTINGS: dict[str, Any] = {
    "svg.hashsalt": "roofplan",  # element names would be random otherwise
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
    "font.family": [FONT],
    "font.size": 9,
    "text.parse_math": False,  # a name with $ is drawn as it is
    "text.hinting": "none",  # text is as wide in a PNG as in an SVG
    "axes.spines.top": False,
    "axes.spines.right": False,
}


class TooSmallError(DomainError):
    """A picture has too little room for what stands on it.

    Parameters
    ----------
    size : width and height that were asked for, in pixels
    height : that is needed, in points
    """

    def __init__(self, size: tuple[int, int], height: float) -> None:
        pixels = math.ceil(height * PIXELS_PER_INCH / POINTS_PER_INCH / 10) * 10
        self.least = (size[0], pixels)
        wanted = f"at least {size[0]}x{pixels} for what stands on this picture, or a wider one"
        super().__init__("--size", got=f"{size[0]}x{size[1]}", wanted=wanted)


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of a drawing: paper, ink, what stands back, the grid, and the series.

    The series' are those of Okabe and Ito (2008), told apart with every common kind of colour blindness; where colours tell something,
    markers or line styles tell it too.
    """

    paper: str
    ink: str
    faint: str
    grid: str
    series: tuple[str, ...]


LIGHT = Theme(
    "#FFFFFF", "#1A1A1A", "#5A5A5A", "#E2E2E2", ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00")
)
DARK = Theme(
    "#14171C", "#F2F2F2", "#A9B1BD", "#2E343D", ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#FFFFFF", "#D55E00")
)


@contextmanager
def steady() -> Iterator[None]:
    """Draw with our settings, whatever the user's are; figures are made and rendered inside."""
    import matplotlib as mpl

    with mpl.rc_context():
        # As style.context("default") does, but without reading all files of styles, and without checking what matplotlib itself set.
        parameters: Any = mpl.rcParams
        dict.update(parameters, {key: value for key, value in dict(mpl.rcParamsDefault).items() if key != "backend"})
        parameters.update(SETTINGS)
        yield


def new_figure(size: tuple[int, int], theme: Theme = LIGHT) -> Figure:
    """A figure of so many pixels (of 1/100 inch); a pixel of its layout is a point."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width, height = (pixels / PIXELS_PER_INCH for pixels in size)
    figure = Figure(figsize=(width, height), dpi=POINTS_PER_INCH, facecolor=theme.paper, edgecolor=theme.paper)
    FigureCanvasAgg(figure)
    return figure


def kind_of(path: str | Path) -> str:
    """The kind of a drawing, by the name of its file.

    Raises
    ------
    DomainError : for another kind

    >>> kind_of("roof.PNG")
    'png'
    """
    kind = PurePath(path).suffix.lower().removeprefix(".")
    if kind not in KINDS:
        got = f".{kind}" if kind else "a name without one"
        raise DomainError(f"type of {show(path)}", got=got, wanted=f"one of .{', .'.join(KINDS)}")
    return kind


def parse_size(text: str) -> tuple[int, int]:
    """Read the size of a picture in pixels.

    Raises
    ------
    DomainError : for anything but two numbers within the limits

    >>> parse_size("1200x800")
    (1200, 800)
    """
    match = _SIZE.fullmatch(text.strip())
    size = (int(match[1]), int(match[2])) if match else (0, 0)
    if not all(least <= pixels <= most for pixels, least, most in zip(size, SMALLEST, LARGEST, strict=True)):
        wanted = f"WIDTHxHEIGHT in pixels, {SMALLEST[0]}x{SMALLEST[1]} to {LARGEST[0]}x{LARGEST[1]}"
        raise DomainError("--size", got=text or "an empty text", wanted=wanted)
    return size


def rendered(figure: Figure, kind: str) -> bytes:
    """The bytes of a PNG, SVG or PDF file."""
    if kind == "png":
        return _png(figure)
    stream = io.BytesIO()
    with steady():
        figure.savefig(stream, format=kind, dpi=POINTS_PER_INCH, metadata=_SILENT[kind])
    return stream.getvalue()


def _png(figure: Figure) -> bytes:
    """The pixels as PNG, without the transparency that no figure has: half the time of a general writer, three quarters of the bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with steady():
        figure.set_dpi(PIXELS_PER_INCH)
        canvas: Any = FigureCanvasAgg(figure)
        canvas.draw()
        width, height = canvas.get_width_height()
        raw = bytearray(memoryview(canvas.buffer_rgba()).cast("B"))
        figure.set_dpi(POINTS_PER_INCH)
    del raw[3::4]
    rows = b"".join(b"\0" + raw[start : start + 3 * width] for start in range(0, len(raw), 3 * width))
    header = struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)  # eight bits of red, green and blue
    resolution = struct.pack(">2IB", *[round(PIXELS_PER_INCH / 0.0254)] * 2, 1)  # pixels per metre
    chunks = ((b"IHDR", header), (b"pHYs", resolution), (b"IDAT", zlib.compress(rows, 4)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks)


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


class Ruler:
    """Measures text in points, as it is drawn: the sum of the widths of its letters, each measured once."""

    def __init__(self) -> None:
        from matplotlib.backends.backend_agg import RendererAgg
        from matplotlib.font_manager import FontProperties, findfont, get_font

        make: Any = RendererAgg
        self._renderer = make(1, 1, POINTS_PER_INCH)
        self._fonts = {
            weight: FontProperties(family=FONT, size=_MEASURED, weight=weight) for weight in ("normal", "bold")
        }
        self._widths: dict[tuple[str, str], float] = {}
        self._strokes: dict[str, float] = {}
        self._glyphs = get_font(findfont(FONT)).get_charmap()

    def extent(self, text: str, size: float, weight: str = "normal") -> tuple[float, float]:
        """Width and height of one line of text; pairs of letters that stand closer together are not counted as such."""
        return sum(self._width(letter, weight) for letter in text) * size / _MEASURED + 1, size * 1.1

    def _width(self, letter: str, weight: str) -> float:
        known = self._widths.get((letter, weight))
        if known is None:
            # Between two strokes, since a space at an end has no picture.
            if weight not in self._strokes:
                self._strokes[weight] = self._measured("||", weight)
            known = self._widths[letter, weight] = self._measured(f"|{letter}|", weight) - self._strokes[weight]
        return known

    def _measured(self, text: str, weight: str) -> float:
        return float(self._renderer.get_text_width_height_descent(text, self._fonts[weight], ismath=False)[0])

    def drawable(self, text: str, longest: int = 120) -> str:
        """Foreign text with what cannot be printed, or has no picture in the font, as visible escapes."""
        safe = show(text, longest)
        return "".join(c if ord(c) in self._glyphs else f"\\u{{{ord(c):x}}}" for c in safe)

    def cut(self, text: str, width: float, size: float, weight: str = "normal") -> str:
        """A line of text that is at most so wide, cut where it must be."""
        if self.extent(text, size, weight)[0] <= width:
            return text
        low, high = 0, len(text)
        while low < high:
            middle = (low + high + 1) // 2
            fits = self.extent(text[:middle].rstrip() + "…", size, weight)[0] <= width
            low, high = (middle, high) if fits else (low, middle - 1)
        return text[:low].rstrip() + "…"

    def wrapped(
        self, text: str, width: float, size: float, most: int = MOST_LINES, weight: str = "normal"
    ) -> list[str]:
        """A text in at most so many lines of this width, words that are too long broken, the last line cut where it must be."""
        lines: list[str] = []
        words = text.split(" ")
        while words and len(lines) < most:
            taken = 1
            while taken < len(words) and self.extent(" ".join(words[: taken + 1]), size, weight)[0] <= width:
                taken += 1
            if len(lines) == most - 1:
                lines.append(self.cut(" ".join(words), width, size, weight))
                break
            line = " ".join(words[:taken])
            words = words[taken:]
            if self.extent(line, size, weight)[0] > width:
                fitting = max(1, len(self.cut(line, width, size, weight)) - 1)
                words.insert(0, line[fitting:])
                line = line[:fitting]
            lines.append(line)
        return lines


def decades(low: float, high: float) -> list[float]:
    """The powers of ten between two numbers above zero.

    >>> decades(0.5, 200)
    [1.0, 10.0, 100.0]
    """
    return [10.0**power for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]
