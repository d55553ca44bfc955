"""Running the installed console script on hostile input, many processes at a time, and what every refusal has in common."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from console import SCRIPT

if TYPE_CHECKING:
    from collections.abc import Mapping

SECONDS = 1.0  # in which every refusal must have come
_HANGS_AFTER = 20


@dataclass(frozen=True, slots=True)
class Case:
    """Arguments, standard input, and a part of what is said on standard error."""

    arguments: tuple[str, ...]
    fragment: str = ""
    stdin: bytes = b""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a process left behind."""

    code: int
    out: str
    err: str
    seconds: float


def outcome_of(case: Case) -> Outcome:
    """Run one process; one that hangs is killed and reported as such."""
    environment = {name: value for name, value in os.environ.items() if name not in {"FORCE_COLOR", "COLUMNS"}}
    started = time.monotonic()
    try:
        done = subprocess.run(
            [SCRIPT, *case.arguments],
            input=case.stdin,
            capture_output=True,
            timeout=_HANGS_AFTER,
            check=False,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        return Outcome(-1, "", "it hangs", _HANGS_AFTER)
    seconds = time.monotonic() - started
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode(), seconds)


def outcomes_of(cases: Mapping[str, Case]) -> dict[str, Outcome]:
    """Run all cases, as many at a time as there are processors."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(cases, pool.map(outcome_of, cases.values()), strict=True))


def assert_refused(case: Case, outcome: Outcome) -> None:
    """One line on standard error that a terminal shows as it is, nothing on standard output, exit code 2, in time."""
    assert case.fragment in outcome.err, outcome.err
    assert outcome.code == 2, outcome.err
    assert outcome.out == ""
    assert outcome.err.startswith("roofplan: ")
    assert outcome.err.endswith("\n")
    assert outcome.err[:-1].isprintable(), ascii(outcome.err)
    assert "Traceback" not in outcome.err
    assert len(outcome.err) < 1_500
    assert outcome.seconds < SECONDS or processor_seconds(case) < SECONDS


def processor_seconds(case: Case) -> float:
    """How long a case keeps a processor busy: what tells a slow refusal from a busy machine."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert outcome_of(case).seconds < _HANGS_AFTER
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
