"""The drawing of speculation: the data drawn, nothing cut or overlapping, the same bytes again."""

import itertools
from typing import Any

import pytest
from pytest import approx

from roofplan.api.speculation import speculate
from roofplan.errors import DomainError
from roofplan.planner.speculation import SpeculationResult
from roofplan.report.canvas import rendered
from roofplan.report.speculation_figure import MOST_LINES, speculation_figure


def result(**options: object) -> SpeculationResult:
    given = {"draft_cost": 0.1, "acceptance": 0.8, "k": "1..12", "timing": "two-part", "context": 1024} | options
    return speculate("llama-3-8b", "h100-sxm", **given)  # type: ignore[arg-type]


SMALL = result(concurrency="1,256")
LARGE = result(concurrency="1,2,4,8,16,32,64,128", k="1..64", max_num_batched_tokens=2048)


def test_the_lines_are_the_table() -> None:
    gains, costs = speculation_figure(SMALL).axes
    lines = {line.get_label(): line for line in gains.lines if line.get_label() in {"1", "256"}}
    assert list(lines["1"].get_xdata()) == list(range(13))
    assert lines["1"].get_ydata()[4] == approx(2.4011428571428572, rel=1e-9)
    assert lines["256"].get_ydata()[4] == approx(1.3927779738190937, rel=1e-9)
    stars = [line for line in gains.lines if line.get_label() == "best"]
    assert [list(star.get_xdata()) for star in stars] == [[6], [2]]
    (none,) = [line for line in gains.lines if line.get_label() == "no gain"]
    assert set(none.get_ydata()) == {1}
    tokens = next(line for line in costs.lines if line.get_label() == "tokens")
    assert tokens.get_ydata()[4] == approx(3.3616)
    cost = next(line for line in costs.lines if line.get_label() == "1")
    assert list(cost.get_ydata()) == approx([1 + 0.1 * k for k in range(13)])


def test_rounds_that_a_step_has_no_room_for_are_crossed() -> None:
    figure = speculation_figure(LARGE)
    crossed = [line for line in figure.axes[0].lines if line.get_marker() == "x"]
    assert crossed
    shown = {choice.concurrency for choice in LARGE.planned.table.choices[:MOST_LINES]}  # type: ignore[union-attr]
    drawn = {row.k for row in LARGE.planned.table.rows if not row.within_budget and row.concurrency in shown}  # type: ignore[union-attr]
    assert drawn == {int(x) for line in crossed for x in line.get_xdata()}


def words(figure: Any) -> list[Any]:
    """Everything that is written: titles, labels, and the ticks that lie within their axes."""
    texts = list(figure.texts)
    for axes in figure.axes:
        texts += [axes.xaxis.label, axes.yaxis.label, axes.title, axes._left_title]
        for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            texts += [tick.label1 for tick in axis.get_major_ticks() if limits[0] <= tick.get_loc() <= limits[1]]
    return [text for text in texts if text.get_text()]


@pytest.mark.parametrize("size", [(480, 800), (1200, 620), (2400, 1000)])
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("answer", [SMALL, LARGE], ids=["small", "large"])
def test_nothing_is_cut_and_no_words_touch(answer: SpeculationResult, size: tuple[int, int], dark: bool) -> None:
    figure: Any = speculation_figure(answer, size=size, dark=dark)
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in words(figure)]
    assert len(boxes) > 20
    for text, box in boxes:
        assert min(box.x0, box.y0) >= -1, text
        assert box.x1 <= figure.bbox.width + 1, text
        assert box.y1 <= figure.bbox.height + 1, text
    for (one, first), (other, second) in itertools.combinations(boxes, 2):
        across = min(first.x1, second.x1) - max(first.x0, second.x0)
        up = min(first.y1, second.y1) - max(first.y0, second.y0)
        assert min(across, up) <= 0.5, (one, other)


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_the_same_answer_gives_the_same_bytes(kind: str) -> None:
    first, second = (rendered(speculation_figure(SMALL), kind) for _ in range(2))
    assert first == second


def test_trials_alone_are_not_drawn() -> None:
    with pytest.raises(DomainError, match="trials alone"):
        speculation_figure(speculate(simulate=True, rounds=1000))
