"""Drawings of presets: the data that is drawn, nothing outside the page, no text on text, the same bytes each time."""

from __future__ import annotations

import itertools
from dataclasses import replace
from xml.etree import ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest
from shapes import HA, HH, M7, M8, deploy
from stored_pictures import assert_looks_as_stored

from roofplan.api.presets import PRESETS, figure
from roofplan.planner.presets.batching import batch_curve
from roofplan.planner.presets.drawing import Mark, Panel, PresetResult, Scale, curve
from roofplan.planner.presets.speculation import speculation
from roofplan.report.canvas import DARK, LIGHT, TooSmallError, rendered, steady
from roofplan.report.preset_figure import preset_figure

SIZES = [(480, 360), (480, 900), (700, 500), (1200, 620), (2400, 1400)]


def assert_tidy(drawn) -> None:
    """No text leaves the page, none lies on another."""
    with steady():  # as files are drawn: letters are not fitted to pixels
        drawn.canvas.draw()
        renderer, page = drawn.canvas.get_renderer(), drawn.bbox
        shown = [t for t in drawn.findobj(mpl.text.Text) if t.get_visible() and t.get_text().strip()]
        found = [(text.get_text(), text.get_window_extent(renderer)) for text in shown]
    assert len(found) > 5
    for text, box in found:
        assert "…" not in text
        assert box.x0 >= 0, text
        assert box.y0 >= 0, text
        assert box.x1 <= page.width + 0.5, text
        assert box.y1 <= page.height + 0.5, text
    for (one, a), (other, b) in itertools.combinations(found, 2):
        apart = a.x1 <= b.x0 + 0.5 or b.x1 <= a.x0 + 0.5 or a.y1 <= b.y0 + 0.5 or b.y1 <= a.y0 + 0.5
        assert apart, (one, other)
    for axes in drawn.axes:
        inside = [box for text, box in found if axes.bbox.overlaps(box) and axes.bbox.contains(box.x0, box.y0)]
        assert not inside, "text inside of a panel"


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_tidy_at_every_size(name: str, size: tuple[int, int]) -> None:
    dark = size == SIZES[1]
    try:
        drawn = preset_figure(figure(name), size=size, dark=dark)
    except TooSmallError as error:
        least, said = error.least, str(error)
        drawn = preset_figure(figure(name), size=least, dark=dark)
    else:
        least, said = size, ""
    assert least == size or (size == (480, 360) and f"got 480x360, want at least 480x{least[1]}" in said)
    assert least[1] <= max(size[1], 480)
    assert_tidy(drawn)
    said = {" ".join(text.get_text().split()) for text in drawn.findobj(mpl.text.Text)}
    titles = [panel.title for panel in figure(name).panels]
    assert set(titles[: len(drawn.axes)]) <= said
    heights = [axes.bbox.height for axes in drawn.axes]
    assert min(heights) > 25  # points: a panel is never squeezed to nothing


@pytest.mark.parametrize("name", PRESETS)
def test_what_is_drawn_is_the_data(name: str) -> None:
    found = figure(name)
    drawn = preset_figure(found)
    assert len(drawn.axes) == len(found.panels)
    for axes, panel in zip(drawn.axes, found.panels, strict=True):
        lines = axes.lines
        expected = [(one.name, list(zip(one.x, one.y, strict=True))) for one in panel.curves]
        told = [(line.get_label(), [tuple(map(float, p)) for p in line.get_xydata()]) for line in lines]
        assert told[: len(expected)] == expected
        for mark, (label, at) in zip(panel.marks, told[len(expected) :], strict=True):
            assert label == mark.text
            assert {y for _, y in at} == {float(mark.y)}
            assert mark.x is None or at == [(float(mark.x), float(mark.y))]
        assert (axes.get_xscale(), axes.get_yscale()) == tuple(
            "log" if scale.logarithmic else "linear" for scale in (panel.across, panel.up)
        )
        low, high = axes.get_xlim()
        assert all(low <= x <= high for one in panel.curves for x in one.x)
        low, high = axes.get_ylim()
        assert all(low <= y <= high for one in panel.curves for y in one.y)


@pytest.mark.parametrize("name", PRESETS)
def test_lines_differ_by_more_than_colour(name: str) -> None:
    found = figure(name)
    for axes, panel in zip(preset_figure(found).axes, found.panels, strict=True):
        lines = axes.lines[: len(panel.curves)]
        styles = [
            (str(line.get_linestyle()), line._dash_pattern, line.get_marker(), mpl.colors.to_hex(line.get_color()))
            for line, one in zip(lines, panel.curves, strict=True)
            if one.look == "line"
        ]
        assert len({str(style[:3]) for style in styles}) == len(styles)
        assert len({style[3] for style in styles}) == len(styles)
        assert {style[3] for style in styles} <= {colour.lower() for colour in LIGHT.series}


def test_the_roof_of_decode_is_flat_and_then_rises_with_the_batch() -> None:
    """Slopes on the two logarithmic axes: 0 while weights bind, 1 once products do."""
    axes = preset_figure(batch_curve(deploy(M7, HA), [1], 4096)).axes[0]
    x, y = np.log(axes.lines[0].get_xydata()).T
    slopes = np.diff(y) / np.diff(x)
    assert slopes[0] < 0.01
    assert slopes[-1] == pytest.approx(1, abs=0.01)


def test_where_there_is_no_room_fewer_panels_are_drawn_and_it_is_said() -> None:
    found = figure("speculation")
    low = preset_figure(found, size=(480, 360))
    assert len(low.axes) == 1
    assert "1 more in a higher picture" in " ".join(text.get_text() for text in low.texts)
    assert len(preset_figure(found, size=(480, 900)).axes) == 2


def test_equal_keys_are_drawn_once_and_different_ones_below_their_panels() -> None:
    shared = [text.get_text() for text in preset_figure(figure("batch-curve")).texts]
    assert shared.count("512 tokens each") == 1
    own = preset_figure(figure("speculation"))
    at = {text.get_text(): text.get_position()[0] for text in own.texts}
    assert at["acceptance 0.8"] < 0.5 < at["1,024 tokens each"]
    assert [text.get_text() for text in own.texts].count("no gain") == 2


def test_dark_paper_is_dark() -> None:
    drawn = preset_figure(figure("paged-waste"), dark=True)
    assert mpl.colors.to_hex(drawn.get_facecolor()) == DARK.paper.lower()


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_the_same_preset_gives_the_same_bytes(kind: str) -> None:
    first = rendered(preset_figure(figure("moe-coverage")), kind)
    with mpl.rc_context({"font.size": 20, "svg.hashsalt": None, "lines.linewidth": 9}):  # a user's own settings
        assert rendered(preset_figure(figure("moe-coverage")), kind) == first
    assert b"dc:date" not in first


def test_names_with_markup_are_drawn_as_they_are() -> None:
    name = "$x_1^2$ <b>&amp; \x1b[31m"
    strange = figure("cache-growth", model=[replace(M8, name=name), M7])
    drawn = preset_figure(strange)
    assert any("$x_1^2$ <b>&amp; \\x1b[31m" in text.get_text() for text in drawn.texts)
    ET.fromstring(rendered(drawn, "svg").decode())


def test_a_panel_whose_values_are_all_the_same_is_drawn() -> None:
    scale = Scale("n", "times", logarithmic=True)
    panel = Panel("flat", Scale("n", "tokens"), scale, (curve("one", [(0, 2.0), (1, 2.0)]),), (Mark("two", None, 2.0),))
    assert_tidy(preset_figure(PresetResult("flat", "Flat", "one value", "", (panel,), "")))


STORED = {
    "preset-light.png": lambda: preset_figure(batch_curve(deploy(M7, HA), [1, 512, 4096], 512), size=(900, 500)),
    "preset-dark.png": lambda: preset_figure(
        speculation(deploy(M8, HH), [0.8, 0.5], 0.1, 4, [1024, 32768], 256), size=(480, 800), dark=True
    ),
}


@pytest.mark.parametrize("name", STORED)
def test_pictures_look_as_they_did(name: str) -> None:
    assert_looks_as_stored(name, STORED[name](), 3)
