"""Placing labels on a drawing so that none touches another, a marker or a line: plain geometry in points.

A label is tried next to its marker, then farther away with a leader line; where nothing is free it is left out.
"""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_GAP = 1.5  # points between a marker and its label
_ROOM = 1.4  # points left and right of a label, less than the gap
_OFF_LINES = 1.0  # points above and below a label that no line enters: half a line's width, and some paper
_DIRECTIONS = 24
_SAME_PLACE = 3.0  # points between markers that are as good as one
_ATTEMPTS, _MANY = 4, 45  # attempts to place all of so many labels or fewer
_SIDEWAYS = 0.35  # cosine from which a leader ends at the side of a label, and not above or below it

Segment = tuple[float, float, float, float]


class Box(NamedTuple):
    """A rectangle in points."""

    left: float
    bottom: float
    right: float
    top: float

    def touches(self, other: Box) -> bool:
        """Whether two rectangles overlap."""
        return (
            self.left < other.right and other.left < self.right and self.bottom < other.top and other.bottom < self.top
        )

    def inside(self, other: Box) -> bool:
        """Whether it lies wholly in another one."""
        return (
            other.left <= self.left
            and self.right <= other.right
            and other.bottom <= self.bottom
            and self.top <= other.top
        )

    def raised(self, by: float) -> Box:
        """The same, so much higher at both ends."""
        return self._replace(bottom=self.bottom - by, top=self.top + by)

    def distance(self, x: float, y: float) -> float:
        """Distance of a point from it."""
        return math.hypot(max(self.left - x, 0, x - self.right), max(self.bottom - y, 0, y - self.top))

    def crossed_by(self, segment: Segment) -> bool:
        """Whether a segment runs through it (Liang and Barsky: the segment is cut at each edge)."""
        x, y, x_end, y_end = segment
        enters, leaves = 0.0, 1.0
        for step, room in (
            (x - x_end, x - self.left),
            (x_end - x, self.right - x),
            (y - y_end, y - self.bottom),
            (y_end - y, self.top - y),
        ):
            if step == 0:
                if room < 0:
                    return False
            elif step < 0:
                enters = max(enters, room / step)
            else:
                leaves = min(leaves, room / step)
        return enters < leaves


class Label(NamedTuple):
    """A label to be placed: its size, its anchor, the radius of the marker there, and how far away it may go.

    ``places`` are left bottom corners to be tried before those around the anchor (those of a line's label, say); ``around`` tells whether
    to try the corners of the marker.
    """

    x: float
    y: float
    width: float
    height: float
    radius: float
    reaches: tuple[float, ...] = ()
    places: tuple[tuple[float, float], ...] = ()
    around: bool = True


class Place(NamedTuple):
    """Where a label goes: its left bottom corner, and the line that leads to it from its marker, if any."""

    left: float
    bottom: float
    leader: Segment | None = None


def place_most(
    labels: Sequence[Label],
    frame: Box,
    taken: Sequence[Box],
    lines: Sequence[Segment] = (),
    anchors: Sequence[tuple[float, float]] = (),
    clearance: float = 0.0,
) -> list[Place | None]:
    """Place as many labels as a few attempts can: those that found no place come first in the next one (see :func:`place_labels`)."""
    order = list(range(len(labels)))
    best: list[Place | None] = [None] * len(labels)
    for _ in range(_ATTEMPTS if len(labels) <= _MANY else 1):
        placed: list[Place | None] = [None] * len(labels)
        for position, place in zip(
            order, place_labels([labels[n] for n in order], frame, taken, lines, anchors, clearance), strict=True
        ):
            placed[position] = place
        if placed.count(None) < best.count(None):
            best = placed
        left = [n for n in order if placed[n] is None]
        if not left:
            break
        order = left + [n for n in order if placed[n] is not None]
    return best


def place_labels(
    labels: Sequence[Label],
    frame: Box,
    taken: Sequence[Box],
    lines: Sequence[Segment] = (),
    anchors: Sequence[tuple[float, float]] = (),
    clearance: float = 0.0,
) -> list[Place | None]:
    """Place labels one after the other, the most important first.

    Parameters
    ----------
    frame : all labels lie inside
    taken : what no label may touch, such as markers
    lines : what no label may lie on; leaders may cross them
    anchors : markers; a label without leader is nearest to its own of them
    clearance : points by which it is nearer to its own marker than to any other
    """
    boxes: list[Box] = []
    leaders: list[Segment] = []
    placed: list[Place | None] = []

    def is_free(box: Box) -> bool:
        return (
            box.inside(frame)
            and not any(box.touches(other) for other in taken)
            and not any(box.touches(other) for other in boxes)
            and not any(box.raised(_OFF_LINES).crossed_by(line) for line in lines)
            and not any(box.crossed_by(line) for line in leaders)
        )

    def is_clear(leader: Segment, *, of_markers: bool, own: tuple[float, float]) -> bool:
        return (
            not any(box.crossed_by(leader) for box in boxes)
            and not any(_cross(leader, other) for other in leaders)
            and not (of_markers and any(box.crossed_by(leader) for box in taken if box.distance(*own)))
        )

    for label in labels:
        found: Place | None = None
        for place in chain(_near(label, anchors, clearance), *(_far(label, strict=strict) for strict in (True, False))):
            box = _box(label, place)
            if is_free(box) and (
                place.leader is None or is_clear(place.leader, of_markers=place.strict, own=(label.x, label.y))
            ):
                found = Place(place.left, place.bottom, place.leader)
                boxes.append(box)
                leaders += [place.leader] if place.leader else []
                break
        placed.append(found)
    return placed


class _Try(NamedTuple):
    left: float
    bottom: float
    leader: Segment | None = None
    strict: bool = True  # no marker may lie on the leader


def _box(label: Label, place: _Try) -> Box:
    return Box(place.left - _ROOM, place.bottom, place.left + label.width + _ROOM, place.bottom + label.height)


def _near(label: Label, anchors: Sequence[tuple[float, float]], clearance: float) -> Iterator[_Try]:
    """The given places, then right, left, above, below and the corners of the marker."""
    yield from (_Try(*place) for place in label.places)
    if not label.around:
        return
    x, y, wide, high = label.x, label.y, label.width, label.height
    out, middle = label.radius + _GAP, label.height / 2
    for left, bottom in (
        (x + out, y - middle),
        (x - out - wide, y - middle),
        (x - wide / 2, y + out),
        (x - wide / 2, y - out - high),
        (x + _GAP, y + out),
        (x + _GAP, y - out - high),
        (x - _GAP - wide, y + out),
        (x - _GAP - wide, y - out - high),
    ):
        attempt = _Try(left, bottom)
        box = _box(label, attempt)
        own = box.distance(x, y) + clearance
        others = (other for other in anchors if not clearance or math.dist(other, (x, y)) > _SAME_PLACE)
        if all(own <= box.distance(*other) for other in others):
            yield attempt


def _far(label: Label, *, strict: bool) -> Iterator[_Try]:
    """Places in rings around the marker, with a leader to the nearest edge of the label."""
    for reach in label.reaches:
        for turn in range(_DIRECTIONS):
            # Right before left, and slightly down before up: below a roof there is more room.
            angle = 2 * math.pi * ((turn + 1) // 2 * (-1) ** turn) / _DIRECTIONS
            across, up = math.cos(angle), math.sin(angle)
            far = label.radius + reach
            x, y = label.x + far * across, label.y + far * up
            start = (label.x + label.radius * across, label.y + label.radius * up)
            left, bottom = x, y - label.height / 2
            if across < -_SIDEWAYS:
                left = x - label.width
            elif across <= _SIDEWAYS:
                left, bottom = x - label.width / 2, y if up > 0 else y - label.height
            # The leader ends before the room that a label keeps on its sides.
            end = (x - _ROOM * across, y - _ROOM * up)
            yield _Try(left, bottom, (*start, *end), strict)


def _cross(one: Segment, other: Segment) -> bool:
    """Whether two segments cross."""

    def side(segment: Segment, x: float, y: float) -> float:
        x_begin, y_begin, x_end, y_end = segment
        return (x_end - x_begin) * (y - y_begin) - (y_end - y_begin) * (x - x_begin)

    return side(one, *other[:2]) * side(one, *other[2:]) < 0 and side(other, *one[:2]) * side(other, *one[2:]) < 0
