"""Printing an answer in the format that was asked for: results on standard output, nothing else."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from .options import Color, Format

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ..planner.results import Answer
    from ..planner.sizing import SizeResult


def print_answer(answer: Answer, output_format: Format, color: Color, *, explain: bool = False) -> None:
    """Print an answer; ``explain`` adds the derivations (JSON carries them under ``explanations``, CSV in two more columns)."""
    from ..report import sections

    if output_format is Format.text:
        from ..report import terminal

        terminal.print_report(sections.report_of(answer, explain=explain), color.value)
        return
    from ..report import textfiles

    match output_format:
        case Format.json:
            sys.stdout.write(textfiles.to_json(answer, explain=explain))
        case Format.csv:
            sys.stdout.write(textfiles.to_csv(answer, explain=explain))
        case Format.markdown:
            sys.stdout.write(textfiles.to_markdown(sections.report_of(answer, explain=explain)))


def check_page(out: Path | None, *, force: bool, beside: Path | str | None = None) -> None:
    """Refuse a page for a browser, and a file beside it, that cannot be written, before anything is computed.

    For answers that have no picture.
    """
    if out is not None or beside is not None:
        from ..report.answer_files import check_answer_file

        check_answer_file(out, overwrite=force, drawn=False, beside=beside)


def write_page(answer: Answer, out: Path | None, *, force: bool) -> None:
    """Write an answer as a page for a browser, where one was asked for."""
    if out is not None:
        from ..report.answer_files import write_answer

        write_answer(answer, out, overwrite=force)


def print_metrics(result: SizeResult) -> None:
    """Print a sizing as metrics of Prometheus."""
    from ..report.prometheus import to_prometheus

    sys.stdout.write(to_prometheus(result))


def write_metrics(result: SizeResult, path: Path | None, *, force: bool) -> None:
    """Write a sizing as metrics, where a file was asked for: whole or not at all, since a collector may read it at any moment."""
    if path is not None:
        from .. import specfiles
        from ..report.prometheus import to_prometheus

        specfiles.write_text(path, to_prometheus(result), overwrite=force)


def print_short(answer: Answer) -> None:
    """Print heading, verdict and warnings of an answer whose rest stands in a file, without what a terminal needs for tables."""
    from ..errors import show
    from ..report import sections

    report = sections.report_of(answer)
    lines = [report.heading, report.verdict, *(remark for remark in report.remarks if remark.startswith("warning"))]
    sys.stdout.write("".join(f"{show(line, 2000)}\n" for line in lines if line))


@contextlib.contextmanager
def progress_on_stderr(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show on standard error how far long work is, where a person watches; None elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return

    def show(done: int, total: int) -> None:
        sys.stderr.write(f"\r{done:,} of {total:,} {what}\x1b[K")
        sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
