"""This checkout as others install it: a repository of its own, and an environment that lends what roofplan depends on.

Nothing is downloaded: an environment that pip installs roofplan into gets the dependencies from the one that runs the tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOT_INSTALLED = {"tests", "docs", "benchmarks", "examples"}
LENT = {
    "PYTHONPATH": sysconfig.get_path("purelib"),
    "PIP_NO_INDEX": "1",
    "PIP_NO_DEPS": "1",
    "PIP_NO_BUILD_ISOLATION": "0",  # pip reads this one as the value of its own setting: no isolation
}


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder, as nobody in particular; gives what it prints."""
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.com", "-c", "init.defaultBranch=main"]
    command = ["git", *identity, "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def copy_into(folder: Path) -> None:
    """The files of this checkout that are installed, as they lie here."""
    for name in git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard").splitlines():
        if name.split("/")[0] not in NOT_INSTALLED and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


def repository_in(folder: Path) -> str:
    """Those files as a repository with one commit, whose hash is given."""
    copy_into(folder)
    git(folder, "init", "--quiet")
    git(folder, "add", "--all", "--force")
    git(folder, "commit", "--quiet", "--message", "As it lies here")
    return git(folder, "rev-parse", "HEAD")


def environment(**changes: str) -> dict[str, str]:
    """This process's environment without what belongs to its own tools, with what is lent, and changes."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "PYTEST", "COV", "GITHUB_"))
    }
    return {**kept, **LENT, "NO_COLOR": "1", **changes}
