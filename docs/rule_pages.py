"""The pages of the rules that ``roofplan check`` applies: one for each, and a list of them.

Part of :mod:`generate`; words come from the rule, the examples from the files that its tests check, and what is found there from a run.
"""

from __future__ import annotations

import os
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING

from roofplan.checks.finding import SEVERITIES
from roofplan.checks.record import Place, Said
from roofplan.checks.rules import all_rules
from roofplan.checks.run import check_paths
from roofplan.checks.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from roofplan.checks.finding import Finding, Rule

ROOT = Path(__file__).parent.parent
EXAMPLES = Path("tests") / "checks" / "rules"  # from the root of the checkout
HARDWARE = "h100-sxm"  # for files that name no device
_LANGUAGES = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".sh": "sh"}
_FOUND_IN = {"error": "errors", "warning": "warnings", "note": "notes"}

_INDEX = """\
# Rules of `roofplan check`

Made by `make docs` from the rules and the files of their tests. `roofplan check --list-rules` prints the list and
`roofplan check --explain RULE` one of them. `select` and `ignore` of the settings, `--select` and `--ignore`, and a comment
`# roofplan: ignore[rule] reason` in a file choose among them.

"""


def example_of(rule: Rule, kind: str) -> Path | None:
    """The file of a rule's tests that it is about (``trigger``), or that it is not about (``quiet``), from the root of the checkout."""
    found = sorted((ROOT / EXAMPLES / rule.id).glob(f"{kind}.*"))
    return found[0].relative_to(ROOT) if found else None


def findings_in(path: Path) -> tuple[Finding, ...]:
    """What a run of all rules finds in a file, named from the root of the checkout; one that names no device runs on :data:`HARDWARE`."""
    defaults = {} if names_device(path) else {"hardware": Said(HARDWARE, Place("<options>"))}
    with chdir(ROOT):
        return check_paths([os.fspath(path)], Settings(defaults=defaults)).findings


def names_device(path: Path) -> bool:
    """Whether a file can say on which device it runs: scripts cannot."""
    return path.suffix in {".yaml", ".yml"}


def page(rule: Rule) -> str:
    """The page of one rule as Markdown."""
    parts = [f"# {rule.id}", f"{rule.title}. Severity: {rule.severity}.", "## Why", rule.why, "## What to do", rule.fix]
    trigger, quiet = example_of(rule, "trigger"), example_of(rule, "quiet")
    if trigger is not None:
        found = [one for one in findings_in(trigger) if one.rule == rule.id]
        parts += ["## Example", *_shown(trigger), "What is found:", "\n".join(_told(found))]
    if quiet is not None:
        parts += ["Nothing is found in", *_shown(quiet)]
    parts.append("[All rules](README.md)")
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _shown(path: Path) -> Iterator[str]:
    text = (ROOT / path).read_text(encoding="utf-8").rstrip("\n")
    command = f"roofplan check {path.name}" + ("" if names_device(path) else f" --hardware {HARDWARE}")
    yield f"[{path.name}](../../{path.as_posix()}), checked by `{command}`:"
    yield f"```{_LANGUAGES.get(path.suffix, '')}\n{text}\n```"


def _told(found: Iterable[Finding]) -> Iterator[str]:
    for one in found:
        severity = f"{one.severity} in line {one.place.line}"
        yield f"- {severity}: {_plain(one.message)}" + (f" (fix: `{one.fix}`)" if one.fix else "")


def _plain(text: str) -> str:
    """A message as text of Markdown."""
    return "".join(f"\\{character}" if character in "\\*_`<>[]|#" else character for character in text)


def index() -> str:
    """The list of the rules, the severest first."""
    lines = []
    for severity in SEVERITIES:
        rules = [rule for rule in all_rules() if rule.severity == severity]
        if rules:
            lines += [f"## {_FOUND_IN[severity].capitalize()}", "", "| rule | what it finds |", "|---|---|"]
            lines += [f"| [{rule.id}]({rule.id}.md) | {rule.title} |" for rule in rules]
            lines.append("")
    return _INDEX + "\n".join(lines).rstrip("\n") + "\n"


def pages() -> dict[str, str]:
    """All pages, by their file's name."""
    return {"README.md": index(), **{f"{rule.id}.md": page(rule) for rule in all_rules()}}


def write(docs: Path) -> None:
    """Write them into the folder ``rules`` of the documentation; pages of rules that are no more are removed."""
    folder = docs / "rules"
    folder.mkdir(exist_ok=True)
    made = pages()
    for stale in {path.name for path in folder.glob("*.md")} - set(made):
        (folder / stale).unlink()
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")
