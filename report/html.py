"""Answers as one HTML page that needs nothing else: tables, pictures as inline SVG, derivations in folds; for desks, phones and paper.

No script runs and nothing is fetched, which the page's own content policy enforces. It is light or dark as the reader's system is: the
colours of the pictures are those of the page. The same answer gives the same bytes.
"""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, cast

from ..errors import show
from .canvas import DARK, LIGHT, rendered
from .drawn import pages_of
from .html_style import STYLE
from .sections import report_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from matplotlib.figure import Figure

    from ..planner.results import Answer, Explanation
    from ..planner.sizing import SizeResult
    from .sections import Report, Section

_LONGEST = 2000  # letters of one cell
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_NAMES = ("paper", "ink", "faint", "grid", *(f"s{place}" for place in range(1, len(LIGHT.series) + 1)))
_COLOURS = dict(zip((LIGHT.paper, LIGHT.ink, LIGHT.faint, LIGHT.grid, *LIGHT.series), _NAMES, strict=True))


def to_html(answer: Answer) -> str:
    """The whole page of an answer: its report, its picture where it has one, how every figure came about, and what was assumed."""
    report = report_of(answer)
    title, *conditions = report.heading.split(" · ") if report.heading else [f"roofplan {answer.command}"]
    parts = [
        f'<p class="verb">roofplan {_text(answer.command)}</p>',
        f"<h1>{_text(title)}</h1>",
        f'<p class="conditions">{_text(" · ".join(conditions))}</p>' if conditions else "",
        f'<p class="verdict {"good" if report.good else "bad"}">{_text(report.verdict)}</p>' if report.verdict else "",
        *_pictures(answer, report),
        *(_section(section) for section in report.sections),
        _remarks(report.remarks),
        *_derivations(answer.explain()),
        *_assumptions(answer),
    ]
    body = "\n".join(part for part in parts if part)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{_text(title)}</title>\n<style>\n{_palette()}{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _text(text: str) -> str:
    return html.escape(show(text, _LONGEST))


def _palette() -> str:
    """The colours of the page, light and dark."""
    light, dark = (
        "".join(f"--{name}:{colour};" for name, colour in zip(_NAMES, colours, strict=True))
        for colours in ((t.paper, t.ink, t.faint, t.grid, *t.series) for t in (LIGHT, DARK))
    )
    return f":root{{{light}}}\n@media screen and (prefers-color-scheme: dark){{:root{{{dark}}}}}\n"


# ------------------------------------------------------------------------------------------------ pictures


def _pictures(answer: Answer, report: Report) -> Iterator[str]:
    """The picture of the answer, once for a wide page and once for a phone; of a sizing the bar of its memory."""
    if answer.command == "size":
        from .memory_bar import memory_bar

        yield f"<figure>{memory_bar(cast('SizeResult', answer).memory)}</figure>"
        return
    drawn = pages_of(answer)
    if drawn is not None:
        for figure, kind in zip(drawn, ("wide", "narrow"), strict=True):
            yield f'<figure class="{kind}">{inline_svg(figure, kind, report.heading)}</figure>'


def inline_svg(figure: Figure, name: str, label: str) -> str:
    """A drawing on light paper as SVG inside a page: as wide as there is room, in the colours of the page.

    Parameters
    ----------
    name : goes before the names of its elements, so that two drawings of one page do not share any
    label : what it shows, for those who cannot see it
    """
    text = rendered(figure, "svg").decode("utf-8")
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\n?", "", text, flags=re.DOTALL)
    box = re.search(r'viewBox="([^"]*)"', text)
    head = f'<svg viewBox="{box[1] if box else ""}" role="img" aria-label="{_text(label)}">'
    text = re.sub(r"<svg[^>]*>", lambda _: head, text, count=1)
    text = re.sub(r'(\sid="|href="#|url\(#)', lambda found: f"{found[0]}{name}-", text)
    return re.sub(r"#[0-9a-fA-F]{6}\b", _coloured, text).rstrip()


def _coloured(found: re.Match[str]) -> str:
    name = _COLOURS.get(found[0].upper())
    return found[0] if name is None else f"var(--{name})"


# ------------------------------------------------------------------------------------------------ tables and folds


def _section(section: Section) -> str:
    return f"<section>\n<h2>{_text(section.title)}</h2>\n{_table(section.header, section.rows)}\n</section>"


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table that scrolls by itself where it is wider than the page; its first column names the rows."""
    names = list(header)
    cells = [list(row) for row in rows]
    figures = [
        place > 0 and all(row[place].lstrip("-+")[:1].isdigit() or not row[place] for row in cells)
        for place in range(len(names))
    ]
    kinds = [' class="n"' if is_figure else "" for is_figure in figures]
    lines = ['<div class="scroll" tabindex="0"><table>']
    if any(names):
        heads = (f'<th scope="col"{kind}>{_text(name)}</th>' for name, kind in zip(names, kinds, strict=True))
        lines.append(f"<thead><tr>{''.join(heads)}</tr></thead>")
    lines.append("<tbody>")
    for row in cells:
        rest = (f"<td{kind}>{_text(cell)}</td>" for cell, kind in zip(row[1:], kinds[1:], strict=True))
        lines.append(f'<tr><th scope="row">{_text(row[0])}</th>{"".join(rest)}</tr>')
    lines.append("</tbody></table></div>")
    return "\n".join(lines)


def _remarks(remarks: Iterable[str]) -> str:
    items = [
        f'<li class="{"warning" if remark.startswith("warning") else "note"}">{_text(remark)}</li>'
        for remark in remarks
    ]
    return f'<ul class="remarks">\n{chr(10).join(items)}\n</ul>' if items else ""


def _derivations(lines: Iterable[Explanation]) -> Iterator[str]:
    folds = [_fold(line) for line in lines]
    if folds:
        yield "<section>\n<h2>How the figures came about</h2>"
        yield from folds
        yield "</section>"


def _fold(line: Explanation) -> str:
    rows = [("formula", line.formula), ("numbers", line.numbers)]
    rows += [(name, f"{value}  [{source}]") for name, value, source in line.inputs]
    if line.binds:
        rows.append(("binds", line.binds))
    said = "".join(f"<dt>{_text(name)}</dt><dd>{_text(text)}</dd>" for name, text in rows if text)
    return (
        f"<details><summary><code>{_text(line.figure)}</code> = {_text(line.value)}</summary><dl>{said}</dl></details>"
    )


def _assumptions(answer: Answer) -> Iterator[str]:
    rows = [(each.name, str(each.value), each.kind, each.source) for each in answer.assumptions]
    if rows:
        table = _table(("", "value", "kind", "source"), rows)
        yield f"<details><summary>What was not given, and is assumed ({len(rows)})</summary>{table}</details>"
