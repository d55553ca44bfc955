"""What a report shows of a preset: its points as tables, thinned where there are many, and its marks; and the list of all presets."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..errors import show
from ..quantities import show_bytes, show_count, show_rate, show_time
from .listings import Listing
from .sections import Report, Section

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..planner.presets.drawing import Panel, PresetResult, Scale

_FEW, _ROWS = 5, 12  # of a table for people; files and JSON have every point


def preset_report(r: PresetResult) -> Report:
    """Arrange a drawing: what it shows, a table for each panel, and what stands out."""
    sections: list[Section] = []
    thin = False
    for panel in r.panels:
        section, left_out = _table(panel)
        sections.append(section)
        thin = thin or left_out
        if panel.marks:
            sections.append(_marks(panel))
    remarks = [f"from: {r.sources}"]
    if thin:
        remarks.append("tables show some of the points: --format csv and json have all, -o FILE draws them")
    return Report(show(f"{r.title} · {r.subtitle}", 400), show(r.says, 1000), True, tuple(sections), tuple(remarks))


def _table(panel: Panel) -> tuple[Section, bool]:
    """One row an abscissa, one column a curve; whether points are left out."""
    names = [curve.name if curve.look == "line" else f"{curve.name} (bound)" for curve in panel.curves]
    columns = [dict(zip(curve.x, curve.y, strict=True)) for curve in panel.curves]
    wanted = {mark.x for mark in panel.marks if mark.x is not None}
    # Curves that go only through their ends have no value at most abscissae.
    every = sorted(
        {x for curve in panel.curves for x in curve.x if len(curve.x) > 2} or {x for c in columns for x in c}
    )
    few = _thinned(every, logarithmic=panel.across.logarithmic)
    chosen = [x for x in every if x in wanted or x in few]
    rows = tuple(
        (
            _shown(x, panel.across),
            *(_shown(column[x], panel.up) if x in column else "" for column in columns),
        )
        for x in chosen
    )
    header = (panel.across.title, *(show(name, 100) for name in names))
    return Section(panel.title, header, rows), len(chosen) < len(every)


def _thinned(values: Sequence[float], *, logarithmic: bool) -> set[float]:
    """Some of many numbers, the first and the last among them: powers of two, or evenly by their place."""
    if len(values) <= _ROWS:
        return set(values)
    powers = [value for value in values if value >= 1 and math.log2(value).is_integer()] if logarithmic else []
    if _FEW <= len(powers) <= _ROWS:
        return {values[0], *powers, values[-1]}
    last = len(values) - 1
    return {values[round(place * last / (_ROWS - 1))] for place in range(_ROWS)}


def _marks(panel: Panel) -> Section:
    rows = tuple(
        (
            show(mark.text),
            show(mark.curve),
            "" if mark.x is None else _shown(mark.x, panel.across),
            _shown(mark.y, panel.up),
        )
        for mark in panel.marks
    )
    return Section(f"marks: {panel.title}", ("", "curve", panel.across.title, panel.up.title), rows)


def _shown(value: float, scale: Scale) -> str:
    match scale.unit:
        case "bytes":
            return show_bytes(value)
        case "s":
            return show_time(value) if value else "0 s"
        case "share":
            return f"{value:.1%}"
        case "tokens" | "sequences" | "drafts" | "experts":
            return show_count(value) if value == round(value) else f"{value:,.1f}"
        case "times":
            return f"{value:,.3f}" if value < 100 else f"{value:,.1f}"
    return show_rate(value)


def list_presets(presets: Mapping[str, tuple[str, Iterable[tuple[str, str]]]]) -> Listing:
    """One row a preset: what it shows, and its options with their defaults."""
    cells, rows = [], []
    for name, (shows, options) in presets.items():
        said = list(options)
        cells.append((name, shows, " ".join(f"{option} {default}" for option, default in said)))
        rows.append({"name": name, "shows": shows, "options": [f"{option} {default}" for option, default in said]})
    verdict = f"{len(rows)} figures: roofplan figure NAME shows the numbers of one, and draws it with -o FILE"
    return Listing(
        "figure list",
        "Figures",
        ("name", "shows", "options and their defaults"),
        tuple(cells),
        tuple(rows),
        verdict=verdict,
    )
