"""What all drawings share: kinds of files, PNG, measuring text."""

from __future__ import annotations

import io
import zlib

import numpy as np
import pytest
from PIL import Image

from roofplan.errors import DomainError
from roofplan.report.canvas import DARK, Ruler, decades, kind_of, new_figure, parse_size, rendered, steady
from roofplan.report.roofline_files import data_kind


@pytest.mark.parametrize("name", ["roof", "roof.gif", "roof.png.txt", ".png", "roof.", "roof.html"])
def test_unknown_types_of_pictures_are_refused(name: str) -> None:
    with pytest.raises(DomainError, match=r"\.png, \.svg, \.pdf"):
        kind_of(name)


def test_known_types_are_told_by_the_end_of_the_name() -> None:
    assert [kind_of(name) for name in ("a.png", "b.c.SVG", "/x y/z.Pdf")] == ["png", "svg", "pdf"]
    assert [data_kind(name) for name in ("a.csv", "a.JSON")] == ["csv", "json"]
    with pytest.raises(DomainError, match=r"\.csv, \.json"):
        data_kind("a.txt")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1200",
        "1200x",
        "x800",
        "-1x800",
        "1200x800x3",
        "10x10",
        "99999x800",
        "1e3x800",
        "nanxnan",
        "１２００x８００",
    ],
)
def test_sizes_outside_the_limits_are_refused(text: str) -> None:
    with pytest.raises(DomainError, match="--size"):
        parse_size(text)


def test_sizes_are_pixels() -> None:
    assert [parse_size(text) for text in ("640x480", "1200 X 800", "2000×1300")] == [
        (640, 480),
        (1200, 800),
        (2000, 1300),
    ]


def test_a_png_holds_the_pixels_that_were_drawn() -> None:
    with steady():
        figure = new_figure((480, 360), DARK)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.fill([0.5, 1, 1, 0.5], [0, 0, 1, 1], color="#D55E00", linewidth=0, antialiased=False)
        axes.set(xlim=(0, 1), ylim=(0, 1))
    picture = Image.open(io.BytesIO(rendered(figure, "png")))
    picture.load()
    assert (picture.size, picture.mode) == ((480, 360), "RGB")
    assert picture.getpixel((10, 10)) == (0x14, 0x17, 0x1C)
    assert picture.getpixel((470, 350)) == (0xD5, 0x5E, 0x00)
    assert picture.info["dpi"] == pytest.approx((100, 100), abs=0.01)


def test_a_png_is_well_formed() -> None:
    with steady():
        content = rendered(new_figure((480, 360)), "png")
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    names, place = [], 8
    while place < len(content):
        length = int.from_bytes(content[place : place + 4])
        name, body = content[place + 4 : place + 8], content[place + 8 : place + 8 + length]
        assert int.from_bytes(content[place + 8 + length : place + 12 + length]) == zlib.crc32(name + body)
        names.append(name)
        place += 12 + length
    assert names == [b"IHDR", b"pHYs", b"IDAT", b"IEND"]


def test_text_is_as_wide_as_it_is_measured() -> None:
    """The ruler adds the widths of letters; drawn text is never wider, and hardly narrower."""
    ruler = Ruler()
    with steady():
        figure = new_figure((1200, 360))
        for text in ("attention (window 1,024)", "AVAWA To Ty", "iiiiilll", "bf16 989 TFLOP/s", "WWW mmm"):
            for size in (6.5, 8.0, 12.0):
                drawn = figure.text(0, 0, text, fontsize=size)
                extent = drawn.get_window_extent(figure.canvas.get_renderer())  # type: ignore[attr-defined]
                width, height = ruler.extent(text, size)
                assert 0 <= width - extent.width < 4 + 0.05 * width, text
                assert height > 0


def test_what_has_no_picture_in_the_font_is_escaped() -> None:
    ruler = Ruler()
    assert ruler.drawable("a$b_é 100 %") == "a$b_é 100 %"
    assert ruler.drawable("模\x1b[1m") == "\\u{6a21}\\x1b[1m"


def test_text_is_cut_or_wrapped_to_a_width() -> None:
    ruler = Ruler()
    text = "one two three four five six seven eight nine ten"
    cut = ruler.cut(text, 60, 8)
    assert cut.endswith("…")
    assert ruler.extent(cut, 8)[0] <= 60
    assert ruler.cut("short", 60, 8) == "short"
    lines = ruler.wrapped(text, 80, 8, 9)
    assert " ".join(lines) == text
    assert all(ruler.extent(line, 8)[0] <= 80 for line in lines)
    assert len(ruler.wrapped(text, 80, 8, 2)) == 2


def test_decades_are_the_powers_of_ten_between() -> None:
    assert decades(1, 1000) == [1, 10, 100, 1000]
    assert decades(2, 9) == []
    assert np.allclose(decades(0.05, 2), [0.1, 1])
