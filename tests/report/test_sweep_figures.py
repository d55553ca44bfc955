"""Drawings of sweeps and comparisons: the data that is drawn, nothing outside the page, no text on text, the same bytes each time."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from xml.etree import ElementTree as ET

import matplotlib as mpl
import pytest
from matplotlib.collections import PathCollection
from pytest import approx
from shapes import HA, M8, deploy
from stored_pictures import assert_looks_as_stored

import roofplan
from roofplan.errors import DomainError
from roofplan.planner.comparing import Alternative, compare
from roofplan.planner.deployment import MemoryOverrides
from roofplan.planner.sizing import size_deployment
from roofplan.planner.sweep_points import Variant
from roofplan.planner.sweeping import Axis, Traffic, sweep
from roofplan.report.canvas import DARK, LIGHT, TooSmallError, rendered
from roofplan.report.comparison_figure import compare_figure
from roofplan.report.panels import round_steps, thinned
from roofplan.report.sweep_figure import MARKS, sweep_figure
from roofplan.report.sweep_lines import MOST_LINES, lines_of, marks_within

LLAMA, H100 = "llama-3.1-8b", "h100-sxm"
SIZES = [(480, 360), (480, 640), (1200, 620), (2400, 1400), (600, 400)]
SWEEPS = {
    "one": {"over": "batch=1..256:x2", "context": 4096, "tpot": "25 ms"},
    "served": {
        "over": {"batch": [1, 8, 64, 512], "kv": ["bf16", "fp8"]},
        "prompt": 4096,
        "output": 512,
        "tpot": "25 ms",
    },
    "grid": {"over": ["batch=1..300", "context=1024..102400:1024"]},
    "lengths": {"over": "context=1024..131072:1024", "concurrency": 8},
    "names": {
        "over": {"weights": ["bf16", "fp8", "int8,head=int8", "experts=mxfp4,attention=int4"]},
        "concurrency": 32,
    },
    "ranks": {"over": ["tp=1,2,4,8", "weights=bf16,fp8,int4"], "concurrency": 32},
}


def swept(name: str):
    asked = dict(SWEEPS[name])
    model = "mixtral-8x7b" if name == "names" else LLAMA
    return roofplan.sweep(model, "h200" if name == "names" else H100, **asked)


def texts_of(figure):
    """Every visible text with its box in pixels, and the page."""
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    shown = [t for t in figure.findobj(mpl.text.Text) if t.get_visible() and t.get_text().strip()]
    found = [(text.get_text(), text.get_window_extent(renderer)) for text in shown]
    return found, figure.bbox


def assert_tidy(figure) -> None:
    """No text leaves the page, none lies on another."""
    found, page = texts_of(figure)
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


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", SWEEPS)
def test_a_sweep_is_tidy_at_every_size(name: str, size: tuple[int, int]) -> None:
    result, dark = swept(name), size == SIZES[2]
    try:
        figure = sweep_figure(result, size=size, dark=dark)
    except TooSmallError as error:
        least, refused = error.least, str(error)
        figure = sweep_figure(result, size=least, dark=dark)
    else:
        least, refused = size, ""
    assert least == size or (size == (480, 360) and f"got 480x360, want at least 480x{least[1]}" in refused)
    assert least[1] <= max(size[1], 420)
    assert_tidy(figure)
    said = " ".join(text.get_text() for text in figure.texts)
    whole = sweep_figure(result, size=(1600, 1200))
    marks = [kind for kind in MARKS if any(c.get_label() == kind for c in whole.axes[0].collections)]
    drawn = {c.get_label() for c in figure.axes[0].collections}
    assert ("the time per token" in said) == (len(figure.axes) == 1)  # what a low picture has not, it names
    assert ("the marks: in a higher picture" in said) == (not set(marks) <= drawn)


def test_the_curve_is_the_rows() -> None:
    result = swept("one")
    figure = sweep_figure(result)
    rows = result.rows()
    for axes, name in zip(figure.axes, ("output_tokens_per_s_per_device", "tpot_s"), strict=True):
        drawn = {line.get_label(): line.get_xydata() for line in axes.lines}
        fitting = [(row["batch"], row[name]["expected"]) for row in rows if row["fits"]]
        assert [tuple(point) for point in drawn["fits"][: len(fitting)]] == fitting
        assert all(math.isnan(y) for _, y in drawn["fits"][len(fitting) :])
        assert [tuple(point) for point in drawn["roof"]] == [(row["batch"], row[name]["bound"]) for row in rows]
        beyond = [(row["batch"], row[name]["expected"]) for row in rows[len(fitting) - 1 :]]
        assert [tuple(point) for point in drawn["beyond"][len(fitting) - 1 :]] == beyond
    limit = next(line for line in figure.axes[1].lines if line.get_label() == "TPOT limit")
    assert set(limit.get_ydata()) == {0.025}


def test_marks_stand_at_their_batches_each_kind_in_its_lane() -> None:
    result = swept("one")
    curve = result.curves[0]
    expected = {
        "knee": curve.knee.batch,
        "crossover": curve.crossover_batch,
        "memory": curve.within_memory,
        "tpot": curve.within_tpot,
        "cheapest": curve.cheapest.batch,
    }
    for axes in sweep_figure(result).axes:
        drawn = {c.get_label(): c.get_offsets()[0] for c in axes.collections if c.get_label() in MARKS}
        assert {kind: float(at[0]) for kind, at in drawn.items()} == approx(expected)
        heights = sorted(float(at[1]) for at in drawn.values())
        assert heights[0] > 1.0  # above the panel
        assert all(b - a > 0.01 for a, b in itertools.pairwise(heights))


def test_marks_outside_of_what_is_swept_are_not_drawn() -> None:
    (line,) = lines_of(roofplan.sweep(LLAMA, H100, over="batch=40..50", context=4096))[1]
    assert list(marks_within(line)) == []


def test_a_line_for_each_value_and_no_more_than_six() -> None:
    across, lines, left_out = lines_of(swept("grid"))
    assert (across, len(lines), left_out) == ("batch", MOST_LINES, 94)
    assert [line.name for line in lines] == [
        f"context {tokens:,}" for tokens in (1024, 20480, 40960, 61440, 81920, 102400)
    ]
    assert [line.rows[0]["context"] for line in lines] == [1024, 20480, 40960, 61440, 81920, 102400]
    across, lines, _ = lines_of(swept("ranks"))
    assert (across, [line.name for line in lines]) == ("tp", ["weights bf16", "weights fp8", "weights int4"])
    assert [row["tp"] for row in lines[1].rows] == [1, 2, 4, 8]
    assert {row["weights"] for row in lines[1].rows} == {"fp8"}


def test_what_does_not_fit_is_hollow() -> None:
    figure = sweep_figure(swept("one"))
    points = [c for c in figure.axes[0].collections if isinstance(c, PathCollection) and c.get_label() == "points"]
    full, hollow = points
    assert [int(x) for x, _ in full.get_offsets()] == [1, 2, 4, 8, 16, 32, 64]
    assert [int(x) for x, _ in hollow.get_offsets()] == [128, 256]
    assert mpl.colors.to_hex(full.get_facecolor()[0]) == LIGHT.series[0].lower()
    assert mpl.colors.to_hex(hollow.get_facecolor()[0]) == LIGHT.paper.lower()


def test_dark_paper_is_dark() -> None:
    figure = sweep_figure(swept("one"), dark=True)
    assert mpl.colors.to_hex(figure.get_facecolor()) == DARK.paper.lower()


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_the_same_sweep_gives_the_same_bytes(kind: str) -> None:
    first = rendered(sweep_figure(swept("served")), kind)
    with mpl.rc_context({"font.size": 20, "svg.hashsalt": None, "lines.linewidth": 9}):  # a user's own settings
        assert rendered(sweep_figure(swept("served")), kind) == first
    again = rendered(compare_figure(roofplan.compare("gpt2", "h100-sxm", "h200")), kind)
    assert rendered(compare_figure(roofplan.compare("gpt2", "h100-sxm", "h200")), kind) == again
    assert b"dc:date" not in first


TWICE = replace(HA, name="twice", memory=replace(HA.memory, bandwidth=4.0e12), peak=replace(HA.peak, bf16=624e12))


def of_the_collection(*, dark: bool):
    """A sweep on the devices of the formula collection, whose figures no fit changes."""
    variants = [
        Variant((("kv", kv),), deploy(M8, HA, kv=kv, memory=MemoryOverrides(activation_bytes=0, runtime_bytes=0)), 2.0)
        for kv in ("bf16", "fp8")
    ]
    axes = [Axis("batch", tuple(2**power for power in range(9))), Axis("kv", ("bf16", "fp8"))]
    result = sweep(axes, variants, Traffic(1, 1, 1, 4096), limit_s=0.02)
    return sweep_figure(result, size=(900, 560), dark=dark)


def alternatives():
    sized = [(d.name, size_deployment(deploy(M8, d, prompt=1000, output=100, concurrency=8))) for d in (HA, TWICE)]
    return compare([Alternative(name, result, 2.0) for name, result in sized])


STORED = {
    "sweep-light.png": lambda: of_the_collection(dark=False),
    "sweep-dark.png": lambda: of_the_collection(dark=True),
    "compare-light.png": lambda: compare_figure(alternatives(), size=(900, 300)),
}


@pytest.mark.parametrize("name", STORED)
def test_pictures_look_as_they_did(name: str) -> None:
    assert_looks_as_stored(name, STORED[name](), 3)


def test_names_with_markup_are_drawn_as_they_are() -> None:
    strange = deploy(M8, HA)
    axis = Axis("weights", ("$x_1^2$ <b>&amp;", "[red]\\frac"))
    variants = [Variant((("weights", value),), strange, None) for value in axis.values]
    svg = rendered(sweep_figure(sweep([axis], variants, Traffic(1, 1, 1, 512))), "svg").decode()
    ET.fromstring(svg)
    assert "$x_1^2$" in svg.replace("&lt;", "<")


def test_without_times_there_is_nothing_to_draw() -> None:
    with pytest.raises(DomainError, match="no time per token"):
        sweep_figure(roofplan.sweep("llama-3-70b", "rtx-4090", over="batch=1,2"))


# ------------------------------------------------------------------------------------------------ comparisons


def test_every_row_of_a_comparison_has_a_point_or_says_why_not() -> None:
    """Nine devices, of which one holds no sequence and one has no price; the workload stands in the title."""
    devices = ["h100-sxm", "h200", "a100-80gb", "l40s", "rtx-4090", "t4", "mi300x", "b200", "max-1550"]
    found = roofplan.compare(LLAMA, *devices, prompt=4096, output=512, concurrency=4)
    figure = compare_figure(found, size=(900, 500))
    assert_tidy(figure)
    title = " ".join(text.get_text() for text in figure.texts)
    assert all(label in title for label in found.labels)
    assert "4 x (4,096 in + 512 out) tokens" in title
    assert figure.axes[0].get_title(loc="left").split() == ["output", "tokens/s", "per", "device"]
    for axes in figure.axes:
        points = {float(y) for c in axes.collections for _, y in c.get_offsets() if c.get_label() in found.labels}
        words = {text.get_position()[1]: text.get_text() for text in axes.texts}
        assert points | set(words) == set(map(float, range(len(devices))))
        assert not points & set(words)
        assert words[5] == "does not fit"
        assert set(words.values()) <= {"does not fit", "not known"}


def test_a_narrow_panel_of_a_comparison_has_a_tick_that_tells_its_scale() -> None:
    found = roofplan.compare(LLAMA, "h100-sxm", "h200", prompt=4096, output=512, kv="bf16,fp8")
    figure = compare_figure(found, size=(480, 560))
    assert_tidy(figure)
    for axes in figure.axes:
        assert [tick for tick in axes.get_xticks() if axes.get_xlim()[0] < tick <= axes.get_xlim()[1]]


def test_a_comparison_with_too_little_room_is_told_what_is_enough() -> None:
    devices = ["h100-sxm", "h200", "a100-80gb", "l40s", "rtx-4090", "mi300x", "b200"]
    found = roofplan.compare(LLAMA, *devices, prompt=4096, output=512, kv="bf16,fp8")
    with pytest.raises(TooSmallError, match=r"--size: got 900x360, want at least 900x\d+") as raised:
        compare_figure(found, size=(900, 360))
    assert_tidy(compare_figure(found, size=raised.value.least))


@pytest.mark.parametrize("size", [None, (480, 560), (2000, 900)], ids=str)
def test_a_comparison_is_tidy_at_every_size(size: tuple[int, int] | None) -> None:
    found = roofplan.compare(
        LLAMA, "h100-sxm", "h200", "mi300x", "rtx-4090", prompt=4096, output=512, concurrency=64, kv="bf16,fp8"
    )
    assert_tidy(compare_figure(found, size=size, dark=size is None))


def test_a_comparison_draws_its_figures_in_order() -> None:
    found = roofplan.compare(LLAMA, "h100-sxm", "h200", "rtx-4090", prompt=4096, output=512, concurrency=64)
    figure = compare_figure(found)
    tpot = figure.axes[1]
    drawn = [c.get_offsets()[0] for c in tpot.collections if c.get_label() in found.labels]
    expected = [one.result.times.latency.tpot_s.expected for one in found.alternatives]
    assert [(float(x), float(y)) for x, y in drawn] == [(t, float(place)) for place, t in enumerate(expected)]
    low, high = tpot.get_ylim()
    assert low > high  # the first on top
    faces = [c.get_facecolor()[0] for c in tpot.collections if c.get_label() in found.labels]
    assert mpl.colors.to_hex(faces[2]) == LIGHT.paper.lower()  # it does not fit
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == list(found.labels)


def test_a_comparison_without_figures_is_refused() -> None:
    with pytest.raises(DomainError, match="no figures"):
        compare_figure(type(roofplan.compare("gpt2", "h100-sxm", "h200"))((), (), ()))


# ------------------------------------------------------------------------------------------------ ticks


@pytest.mark.parametrize("span", [0.013, 0.7, 1.0, 37.0, 99.0, 12345.0])
def test_round_steps_are_few_and_within(span: float) -> None:
    steps = round_steps(0, span)
    assert 3 <= len(steps) <= 9
    assert steps[0] == 0
    assert steps[-1] <= span


def test_thinned_ticks_have_room() -> None:
    assert thinned([1, 2, 3], 1000, 10) == [1, 2, 3]
    assert thinned(list(range(100)), 200, 30)[:2] == [0, 20]
    assert thinned([1], 5, 30) == [1]
