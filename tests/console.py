"""Running the installed console script as users do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(sys.executable).with_name("roofplan")
_QUIET = {"NO_COLOR", "FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS", "TERM", "COLUMNS"}


def run(
    *arguments: str, stdin: str | bytes | None = None, env: dict[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run ``roofplan`` with arguments; standard input is empty unless given."""
    environment = {name: value for name, value in os.environ.items() if name not in _QUIET}
    content = stdin.encode() if isinstance(stdin, str) else stdin or b""
    done = subprocess.run(
        [str(SCRIPT), *arguments],
        input=content,
        capture_output=True,
        timeout=60,
        check=False,
        env={**environment, **(env or {})},
        **options,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def answer(*arguments: str) -> dict[str, Any]:
    """Run a verb with ``--format json`` and read what it prints."""
    done = run(*arguments, "--format", "json")
    assert done.stderr == "", done.stderr
    loaded: dict[str, Any] = json.loads(done.stdout)
    return loaded
