"""What a check prints: one module a format, found by its name; ``print_check`` is what the verb calls."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, get_args

from .check_parts import CheckFormat

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..checks.diff import CheckDiff
    from ..checks.result import CheckResult
    from .terminal import Color

FORMATS: tuple[CheckFormat, ...] = get_args(CheckFormat)


def rendered(result: CheckResult, output_format: CheckFormat, diff: CheckDiff | None = None) -> str:
    """A check as a text in one of the formats, without colour; the same result gives the same text.

    Parameters
    ----------
    diff : what the change from older files does; shown by ``text``, ``markdown`` and ``json``
    """
    module = import_module(f".check_{output_format}", __package__)
    render: Callable[..., Any] = getattr(module, f"to_{output_format}")
    return str(render(result, diff))


def print_check(
    result: CheckResult, output_format: CheckFormat, color: Color = "auto", diff: CheckDiff | None = None
) -> None:
    """Print a check to standard output; with ``github`` also append to the summary of the job's step, where there is one."""
    if output_format == "text":
        from .check_text import print_text

        print_text(result, color, diff)
        return
    sys.stdout.write(rendered(result, output_format, diff))
    if output_format == "github":
        from .check_github import write_step_summary

        write_step_summary(result, diff)
