"""The roofline as a picture: what is drawn, that nothing overlaps or is cut, the same bytes every time, and how it looks."""

from __future__ import annotations

import itertools
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from pytest import approx
from roofs import CASES, SIZES, by_hand, ceilings, formats, one, two, with_operators
from stored_pictures import assert_looks_as_stored

import roofplan
from roofplan.planner.roofline_answer import MeasuredPoint, RooflineResult
from roofplan.report.canvas import DARK, LIGHT, SMALLEST, TooSmallError, rendered, steady
from roofplan.report.labels import Box
from roofplan.report.roofline_figure import roofline_figure
from roofplan.report.roofline_key import caption

PHONE = (480, 640)  # what a page shows on a narrow screen


def lines(figure: Figure, begin: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The data of the lines whose names begin so."""
    found = {}
    for line in figure.axes[0].lines:
        if str(line.get_label()).startswith(begin):
            found[str(line.get_label())] = (np.asarray(line.get_xdata()), np.asarray(line.get_ydata()))
    return found


def collections(figure: Figure, begin: str) -> list[Any]:
    """Scattered points whose name begins so."""
    return [drawn for drawn in figure.axes[0].collections if str(drawn.get_label()).startswith(begin)]


# ------------------------------------------------------------------------------------------------ the data drawn


def test_the_roof_is_drawn_where_the_device_has_it() -> None:
    """H100: 3.35 TB/s and 989.4 TFLOP/s, with a ridge of 295.34 (F1.1); calibrated by what its kernels reach."""
    figure = roofline_figure(one())
    ((x, y),) = lines(figure, "slope nominal").values()
    assert (y / x) == approx([3.35e12, 3.35e12], rel=1e-12)
    assert x[1] == approx(989.4e12 / 3.35e12, rel=1e-12)
    ((across, up),) = lines(figure, "flat nominal").values()
    assert across[0] == approx(295.34328358208955, rel=1e-12)
    assert list(up) == [989.4e12, 989.4e12]
    assert across[1] == figure.axes[0].get_xlim()[1]
    ((ridge, foot),) = lines(figure, "ridge nominal").values()
    assert list(ridge) == approx([295.34328358208955] * 2, rel=1e-12)
    assert foot[0] == figure.axes[0].get_ylim()[0]
    roof = one().series[0].roof
    assert roof.memory.calibrated is not None
    ((x, y),) = lines(figure, "slope calibrated").values()
    assert (y / x) == approx([roof.memory.calibrated] * 2, rel=1e-12)
    assert all(y < x * 3.35e12)


def test_both_axes_are_logarithmic_and_hold_everything() -> None:
    for make in CASES.values():
        axes = roofline_figure(make()).axes[0]
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
        (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
        for drawn in axes.collections:
            for x, y in np.asarray(drawn.get_offsets()):
                assert left < x < right
                assert low < y < high


def test_operators_stand_at_intensity_and_rate_and_their_area_is_their_share() -> None:
    figure, series = roofline_figure(one()), one().series[0]
    for phase in ("prefill", "decode"):
        (drawn,) = collections(figure, f"operators of {phase}")
        expected = {(p.intensity, p.flop_per_s): p.share for p in series.operators if p.phase == phase and p.has_place}
        places = [(float(x), float(y)) for x, y in np.asarray(drawn.get_offsets())]
        assert sorted(places) == sorted(expected)
        areas = dict(zip(places, drawn.get_sizes(), strict=True))
        for place, share in expected.items():
            assert areas[place] == approx(14 + 406 * share)
    nothing = [point for point in series.operators if not point.has_place]
    assert {point.name for point in nothing} >= {"embedding", "cache write"}


def test_whole_steps_are_stars_and_batches_a_path() -> None:
    figure, series = roofline_figure(one()), one().series[0]
    for step, name in zip(series.steps, ("prefill step", "decode step, batch 64"), strict=True):
        (star,) = collections(figure, name)
        assert np.asarray(star.get_offsets())[0] == approx([step.intensity, step.flop_per_s], rel=1e-12)
    ((x, y),) = lines(figure, "batches").values()
    assert list(x) == [step.intensity for step in series.path]
    assert list(y) == [step.flop_per_s for step in series.path]
    assert all(np.diff(x) > 0)
    assert all(np.diff(y) > 0)


def test_ceilings_on_request_are_slopes_of_their_own() -> None:
    figure = roofline_figure(ceilings())
    slopes = {name: y / x for name, (x, y) in lines(figure, "further").items()}
    assert sorted(float(slope[0]) for slope in slopes.values()) == approx([63e9, 450e9])
    assert {float(y[0]) for _, y in lines(figure, "flat nominal").values()} == {67e12, 494.7e12, 989.4e12, 1978.9e12}


def test_roofs_that_several_share_are_drawn_once() -> None:
    assert len(lines(roofline_figure(formats()), "slope nominal")) == 1
    assert len(lines(roofline_figure(two()), "slope nominal")) == 2
    assert len(collections(roofline_figure(two()), "operators of decode")) == 2


def test_measured_points_are_overlaid() -> None:
    measured = (MeasuredPoint("kernel a", 12.5, 2e13), MeasuredPoint("kernel b", 400, 5e14))
    (first, second) = collections(roofline_figure(replace(one(), measured=measured)), "measured: ")
    assert np.asarray(first.get_offsets()).tolist() == [[12.5, 2e13]]
    assert np.asarray(second.get_offsets()).tolist() == [[400, 5e14]]


def test_a_phase_can_be_left_out() -> None:
    figure = roofline_figure(formats())
    assert not collections(figure, "operators of prefill")
    assert not collections(figure, "prefill step")


# ------------------------------------------------------------------------------------------------ nothing overlaps


def boxes(figure: Figure) -> list[tuple[str, Box]]:
    """Every text as it is really drawn."""
    with steady():
        canvas: Any = FigureCanvasAgg(figure)
        canvas.draw()
        texts = [text for text in figure.findobj(mpl.text.Text) if text.get_visible() and text.get_text().strip()]
        renderer = canvas.get_renderer()
        return [(text.get_text(), Box(*text.get_window_extent(renderer).extents)) for text in texts]


def least_of(error: TooSmallError, size: tuple[int, int]) -> tuple[int, int]:
    """The least size that an error tells, by which it is no larger than it needs to be; only low pictures are refused."""
    assert size[1] <= 480
    assert error.least[0] == size[0]
    assert size[1] < error.least[1] <= 900
    return error.least


@pytest.mark.parametrize(
    ("size", "dark"), [*((size, False) for size in (SMALLEST, *SIZES, PHONE)), (SIZES[0], True)], ids=str
)
@pytest.mark.parametrize("case", CASES)
def test_nothing_overlaps_and_nothing_is_cut(case: str, size: tuple[int, int], dark: bool) -> None:
    try:
        figure = roofline_figure(CASES[case](), size=size, dark=dark)
    except TooSmallError as error:
        size = least_of(error, size)
        figure = roofline_figure(CASES[case](), size=size, dark=dark)
    drawn = boxes(figure)
    width, height = (pixels * 0.72 for pixels in size)
    for text, box in drawn:
        assert box.inside(Box(0, 0, width, height)), text
        assert not text.endswith("…"), text
    for (text, box), (other_text, other) in itertools.combinations(drawn, 2):
        assert not box.touches(other), (text, other_text)
    axes = figure.axes[0]
    labels = {text.get_text() for text in axes.texts}
    markers = []
    for points in axes.collections:
        for place, area in zip(np.asarray(points.get_offsets()), itertools.cycle(points.get_sizes()), strict=False):
            x, y = axes.transData.transform(place)
            radius = math.sqrt(area) / 2 * 0.9
            markers.append(Box(x - radius, y - radius, x + radius, y + radius))
    roofs = [
        (*begin, *end)
        for line in axes.lines
        if str(line.get_label()).startswith(("slope", "flat", "further", "batches"))
        for begin, end in itertools.pairwise(axes.transData.transform(line.get_xydata()))
    ]
    assert roofs
    for text, box in drawn:
        if text in labels:
            assert not any(box.touches(marker) for marker in markers), text
            assert not any(box.raised(0.7).crossed_by(line) for line in roofs), text  # half the width of a line


def named(figure: Figure) -> list[str]:
    """The names that are written beside points."""
    return [name for text in figure.axes[0].texts for name in text.get_text().split(", ")]


@pytest.mark.parametrize(("count", "size"), [(3, SIZES[0]), (8, SIZES[0]), (8, SIZES[1])])
def test_few_operators_all_have_names(count: int, size: tuple[int, int]) -> None:
    made = with_operators(count)
    assert {point.name for point in made.series[0].operators} <= set(named(roofline_figure(made, size=size)))


def test_of_many_operators_most_have_names_where_there_is_room() -> None:
    made = with_operators(70)
    shares = [len(named(roofline_figure(made, size=size))) for size in SIZES]
    assert shares[0] < shares[1] < shares[2]
    names = {point.name for point in made.series[0].operators}
    assert len(names & set(named(roofline_figure(made, size=SIZES[2])))) >= 0.95 * len(names)


# ------------------------------------------------------------------------------------------------ bytes and looks


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_the_same_result_gives_the_same_bytes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = rendered(roofline_figure(one()), kind)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    with mpl.rc_context({"font.size": 20, "svg.hashsalt": None, "lines.linewidth": 9, "savefig.facecolor": "red"}):
        second = rendered(roofline_figure(one()), kind)
    assert first == second
    for trace in (b"Matplotlib", b"CreationDate", b"dc:date"):
        assert trace not in first


def test_a_user_s_settings_are_left_as_they_were() -> None:
    with mpl.rc_context({"font.size": 20}):
        rendered(roofline_figure(one()), "png")
        assert mpl.rcParams["font.size"] == 20


STORED = {
    "roofline-light.png": lambda: roofline_figure(by_hand(), size=SIZES[0]),
    "roofline-dark.png": lambda: roofline_figure(by_hand(), size=SIZES[0], dark=True),
}


@pytest.mark.parametrize("name", STORED)
def test_pictures_look_as_they_did(name: str) -> None:
    assert_looks_as_stored(name, STORED[name](), 4)


def test_colours_stand_out_from_the_paper() -> None:
    """Contrast of at least 4.5 for words, 3 for most of the graphics and 2 for all (WCAG 2, relative luminance)."""
    for theme in (LIGHT, DARK):
        assert min(contrast(theme.paper, theme.ink), contrast(theme.paper, theme.faint)) >= 4.5
        graphics = sorted(contrast(theme.paper, colour) for colour in theme.series)
        assert graphics[0] >= 2
        assert sum(value >= 2.9 for value in graphics) >= 5


def contrast(one_colour: str, other: str) -> float:
    """(L1 + 0.05) / (L2 + 0.05)."""

    def luminance(colour: str) -> float:
        parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
        red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    lighter, darker = sorted((luminance(one_colour), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


# ------------------------------------------------------------------------------------------------ names


def renamed(name: str) -> RooflineResult:
    """The roofline of a device and a model of this name, with a measured point of that name too."""
    series = one().series[0]
    d = series.deployment
    foreign = replace(d, hardware=replace(d.hardware, name=name), model=replace(d.model, name=name))
    return replace(one(), series=(replace(series, deployment=foreign),), measured=(MeasuredPoint(name, 3, 1e12),))


@pytest.mark.parametrize(
    "name",
    ["$x^2$", "a_$\\frac{1}{2}$_b", "<b>&amp;</b>", "100 % \\alpha", "[red]x[/red]", "$", "模型", "a\nb\x1b[31m"],
)
def test_names_are_drawn_letter_by_letter(name: str) -> None:
    figure = roofline_figure(renamed(name))
    drawn = boxes(figure)
    escaped = {"模型": "\\u{6a21}\\u{578b}", "a\nb\x1b[31m": "a\\x0ab\\x1b[31m"}.get(name, name)
    assert any(text == f"Roofline of {escaped} on {escaped}" for text, _ in drawn)
    assert escaped in {text for text, _ in drawn}
    for kind in ("png", "svg", "pdf"):
        assert rendered(figure, kind)
    assert not any(text.get_parse_math() for text in figure.findobj(mpl.text.Text))


def test_long_names_stay_on_the_sheet() -> None:
    with pytest.raises(TooSmallError) as raised:
        roofline_figure(renamed("word " * 40), size=SIZES[0])
    width, height = raised.value.least
    for text, box in boxes(roofline_figure(renamed("word " * 40), size=(width, height))):
        assert box.inside(Box(0, 0, width * 0.72, height * 0.72)), text


def test_a_size_with_too_little_room_is_told_what_is_enough() -> None:
    """Whatever stands on the picture at the least size stands there too where it is a line higher; ten pixels less are refused."""
    for make in CASES.values():
        with pytest.raises(
            TooSmallError, match=r"^--size: got 480x360, want at least 480x\d+ for what stands"
        ) as raised:
            roofline_figure(make(), size=SMALLEST)
        width, height = raised.value.least
        enough, higher = (boxes(roofline_figure(make(), size=(width, pixels))) for pixels in (height, height + 300))
        labels = set(named(roofline_figure(make(), size=(width, height + 300))))
        around = [text for text, _ in higher if text not in labels and not set(text.split(", ")) & labels]
        assert {text for text in around if len(text) > 8} <= {text for text, _ in enough}
        with pytest.raises(TooSmallError):
            roofline_figure(make(), size=(width, height - 10))


def several(*devices: str) -> RooflineResult:
    return roofplan.roofline("llama-3.1-8b", *devices, batches="1,8,64", ceilings="nvlink,pcie")


def test_each_further_slope_is_told_apart_and_named() -> None:
    """By label, colour and dashes, in the picture and in its key: three devices with two links each, of which two share one."""
    made = several("h100-sxm", "a100-80gb", "mi300x")
    figure = roofline_figure(made)
    slopes = [line for line in figure.axes[0].lines if str(line.get_label()).startswith("further")]
    looks = {(line.get_color(), line._unscaled_dash_pattern) for line in slopes}
    assert len(looks) == len(slopes) == 5
    said = {text for text, _ in boxes(figure)}
    wanted = {
        "A: NVLink 4 + NVSwitch 450 GB/s",
        "B: NVLink 3 + NVSwitch 300 GB/s",
        "C: xGMI 7 links full mesh 448 GB/s",
        "A, C: PCIe x16 63.0 GB/s",
        "B: PCIe x16 31.5 GB/s",
    }
    assert wanted <= said
    assert wanted <= {text.get_text() for text in figure.axes[0].texts}
    assert wanted <= {text.get_text() for text in figure.texts}
    samples = [line for line in figure.get_children() if isinstance(line, mpl.lines.Line2D)]
    assert looks <= {(line.get_color(), line._unscaled_dash_pattern) for line in samples}


def test_labels_of_several_devices_say_whose_they_are() -> None:
    made = several("h100-sxm", "a100-80gb", "mi300x")
    figure = roofline_figure(made)
    labels = [text.get_text() for text in figure.axes[0].texts]
    assert all(re.match(r"[ABC](, [ABC])*: ", label) for label in labels)
    for star in ("prefill step", "decode step, batch 1", "batch 8", "batch 64"):
        assert {f"{tag}: {star}" for tag in "ABC"} <= set(labels)
    key = [text.get_text() for text in figure.texts]
    for tag, series in zip("ABC", made.series, strict=True):
        assert any(text.startswith(f"{tag}: {series.deployment.hardware.name}, ") for text in key)
    alone = {text.get_text() for text in roofline_figure(several("h100-sxm")).axes[0].texts}
    assert not any(re.match(r"[A-Z](, [A-Z])*: ", label) for label in alone)


def test_notes_of_many_devices_are_whole() -> None:
    made = roofplan.roofline("qwen3-next-80b-a3b", "h100-sxm", "h200", "a100-80gb", "mi300x", tp=4)
    figure = roofline_figure(made, size=(1400, 900))
    lines = sorted(figure.texts, key=lambda text: -text.get_position()[1])
    written = " ".join(text.get_text() for text in lines)
    for note in caption(made):
        assert note in written


def test_figures_need_no_pyplot(tmp_path: Path) -> None:
    code = (
        "import sys, roofplan\nfrom roofplan.report.answer_files import write_answer\n"
        "write_answer(roofplan.roofline('llama-3.1-8b', 'h100-sxm'), sys.argv[1] + '/x.png')\n"
        "assert 'matplotlib.pyplot' not in sys.modules and 'rich' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert (tmp_path / "x.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
