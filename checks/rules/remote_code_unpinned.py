"""Code of a model's repository is run, in whatever version it has today."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..finding import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding


def check(checked: Checked) -> Iterator[Finding]:
    """Look for remote code without a revision; a path holds what was put there."""
    service = checked.service
    model = service.options.get("model")
    local = model is not None and str(model.value).startswith(("/", "./", "../"))
    if checked.feature("trust_remote_code") and not checked.feature("revision") and not local:
        message = "Python files of the model's repository are run as they are there today: no revision is pinned"
        yield RULE.finding(checked, service.place_of("trust_remote_code"), message)


RULE = Rule(
    id="remote-code-unpinned",
    severity="note",
    title="Remote code is run without a pinned revision",
    why="Whoever can write to the repository of the model can change what runs on your machine at its next start.",
    fix="Pin the revision of the model to a commit, or run without remote code: most architectures need none any more.",
    check=check,
)
