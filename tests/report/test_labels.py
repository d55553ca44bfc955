"""The label placer: free places, leaders, and labels that find no room."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofplan.report.labels import Box, Label, Place, place_labels, place_most

FRAME = Box(0, 0, 400, 300)
REACHES = (10.0, 25.0, 50.0, 90.0)


def box_of(label: Label, place: Place) -> Box:
    """Where the letters of a label are."""
    return Box(place.left, place.bottom, place.left + label.width, place.bottom + label.height)


@pytest.mark.parametrize(
    ("segment", "crosses"),
    [
        ((0, 0, 10, 10), True),
        ((0, 5, 10, 5), True),
        ((5, 0, 5, 3.9), False),
        ((0, 0, 4, 3), False),
        ((4.5, 4.5, 5, 5), True),
        ((0, 10, 10, 6.1), False),
        ((3, 0, 3, 10), False),
    ],
)
def test_a_segment_crosses_a_box_or_not(segment: tuple[float, float, float, float], crosses: bool) -> None:
    assert Box(4, 4, 6, 6).crossed_by(segment) is crosses


def test_a_label_stands_right_of_a_marker_that_is_alone() -> None:
    (place,) = place_labels([Label(100, 100, 30, 8, 3)], FRAME, [Box(97, 97, 103, 103)])
    assert place == Place(104.5, 96.0, None)


def test_a_label_stays_in_the_frame() -> None:
    (place,) = place_labels([Label(395, 100, 30, 8, 3)], FRAME, [Box(392, 97, 398, 103)])
    assert place is not None
    assert box_of(Label(395, 100, 30, 8, 3), place).inside(FRAME)


def test_a_crowded_label_gets_a_leader_that_begins_at_its_marker() -> None:
    crowd = [Box(x - 3, y - 3, x + 3, y + 3) for x in range(80, 121, 7) for y in range(80, 121, 7)]
    label = Label(101, 101, 30, 8, 3, REACHES)
    (place,) = place_labels([label], FRAME, crowd, anchors=[(101, 101)])
    assert place is not None
    assert place.leader is not None
    x, y, *end = place.leader
    assert (x - 101) ** 2 + (y - 101) ** 2 == pytest.approx(9)
    assert box_of(label, place).distance(*end) < 2.5
    assert not any(box_of(label, place).touches(marker) for marker in crowd)


def test_without_leaders_a_crowded_label_is_left_out() -> None:
    crowd = [Box(x - 3, y - 3, x + 3, y + 3) for x in range(60, 141, 7) for y in range(80, 121, 7)]
    assert place_labels([Label(101, 101, 30, 8, 3)], FRAME, crowd) == [None]


def test_a_label_lies_on_no_line() -> None:
    line = (100.0, 0.0, 110.0, 300.0)
    label = Label(100, 100, 30, 8, 3, REACHES)
    (place,) = place_labels([label], FRAME, [], [line])
    assert place is not None
    assert not box_of(label, place).crossed_by(line)


def test_a_label_is_nearest_to_its_own_marker() -> None:
    anchors = [(100.0, 100.0), (112.0, 100.0)]
    label = Label(*anchors[0], 30, 8, 2)
    (place,) = place_labels([label], FRAME, [], (), anchors)
    assert place is not None
    box = box_of(label, place)
    assert box.distance(*anchors[0]) <= box.distance(*anchors[1])


def test_a_second_attempt_serves_those_that_found_no_place() -> None:
    """In a corridor the first label may stand right or left of its marker, the second one only where the first stands first."""
    walls = [Box(0, 0, 400, 90), Box(0, 112, 400, 300), Box(67, 98, 73, 104)]
    free, bound = Label(70, 101, 40, 8, 3), Label(101, 101, 30, 8, 0.5)
    assert [place is None for place in place_labels([free, bound], FRAME, walls)] == [False, True]
    left, right = place_most([free, bound], FRAME, walls)
    assert left is not None
    assert right is not None
    assert left.left < 70 < right.left


@given(seed=st.integers(0, 10_000), count=st.integers(1, 40))
def test_whatever_is_placed_touches_nothing(seed: int, count: int) -> None:
    rng = random.Random(seed)
    anchors = [(rng.uniform(5, 395), rng.uniform(5, 295)) for _ in range(count)]
    markers = [Box(x - 3, y - 3, x + 3, y + 3) for x, y in anchors]
    lines = [(0.0, rng.uniform(0, 300), 400.0, rng.uniform(0, 300)) for _ in range(3)]
    labels = [Label(x, y, rng.uniform(8, 70), 8, 3, REACHES) for x, y in anchors]
    placed = [
        (label, place)
        for label, place in zip(labels, place_most(labels, FRAME, markers, lines, anchors, 4), strict=True)
        if place is not None
    ]
    boxes = [box_of(*one) for one in placed]
    assert all(box.inside(FRAME) for box in boxes)
    assert not any(box.touches(marker) for box in boxes for marker in markers)
    assert not any(box.crossed_by(line) for box in boxes for line in lines)
    assert not any(one.touches(other) for one, other in itertools.combinations(boxes, 2))
    leaders = [(place.leader, box) for (_, place), box in zip(placed, boxes, strict=True) if place.leader]
    assert not any(box.crossed_by(leader) for leader, own in leaders for box in boxes if box is not own)
