"""Reports as text for a terminal or a pipe, through rich with markup switched off."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Literal

from ..errors import show

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TextIO

    from rich.console import Console
    from rich.text import Text

    from .sections import Report, Section

Color = Literal["auto", "always", "never"]
_PIPE_WIDTH = 140
_LONGEST = 2_000  # characters of one cell or remark


def console(stream: TextIO, color: Color = "auto") -> Console:
    """Make a console that decides by itself what is a terminal.

    NO_COLOR (non-empty) switches colour off, FORCE_COLOR (non-empty) on; ``always`` and ``never`` outrank both. CI variables that make
    other tools emit escape codes into pipes are ignored.
    """
    from rich.console import Console

    environment = os.environ
    is_terminal, colored = _is_terminal(stream), is_colored(stream, color)
    width = None if is_terminal or environment.get("COLUMNS", "").isdigit() else _PIPE_WIDTH
    return Console(
        file=stream,
        force_terminal=colored,
        color_system="standard" if colored else None,
        no_color=not colored,
        markup=False,
        highlight=False,
        emoji=False,
        width=width,
        _environ={key: environment[key] for key in ("COLUMNS", "LINES", "TERM") if key in environment},
    )


def is_colored(stream: TextIO, color: Color = "auto") -> bool:
    """Whether a stream gets colour, by the rules of :func:`console`, which need not be loaded to know."""
    if color != "auto":
        return color == "always"
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or _is_terminal(stream)


def _is_terminal(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM", "") not in {"dumb", "unknown"}


def print_report(report: Report, color: Color = "auto") -> None:
    """Print a report to standard output."""
    out = console(sys.stdout, color)
    if report.heading:
        out.print(_text(report.heading, style="bold"), soft_wrap=True)
    if report.verdict:
        out.print(_text(report.verdict, style="green" if report.good else "bold red"), soft_wrap=True)
    if report.plot is not None:
        out.print()
        _print_plot(out, report.plot(out.width, _draws(sys.stdout.encoding)))
    for section in report.sections:
        out.print()
        _print_section(out, section)
    if report.remarks:
        out.print()
    for remark in report.remarks:
        out.print(_text(remark, style="yellow" if remark.startswith("warning") else "dim"), soft_wrap=True)


def _print_plot(out: Console, lines: Iterable[Sequence[tuple[str, str]]]) -> None:
    for line in lines:
        text = _text("")
        for content, style in line:
            text.append_text(_text(content, style))
        text.rstrip()
        out.print(text, soft_wrap=True)


def _draws(encoding: str | None) -> bool:
    """Whether a stream takes the signs of drawings; those of the text alone are escaped where it does not."""
    try:
        "⣿│★".encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _text(content: str, style: str = "") -> Text:
    """Text in which nothing is markup, and nothing that a terminal obeys."""
    from rich.text import Text

    return Text(show(content, _LONGEST), style=style)


def _print_section(out: Console, section: Section) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    out.print(_text(section.title, style="bold cyan"))
    table = Table(
        box=SIMPLE_HEAD if any(section.header) else None,
        show_header=any(section.header),
        pad_edge=True,
        show_edge=False,
    )
    for position, name in enumerate(section.header):
        is_figure = position > 0 and all(
            row[position][:1].strip("-").isdigit() or not row[position] for row in section.rows
        )
        table.add_column(_text(name), justify="right" if is_figure else "left", overflow="fold")
    for row in section.rows:
        table.add_row(*(_text(cell) for cell in row))
    out.print(table)
