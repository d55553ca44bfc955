"""Shell scripts, Makefiles and lists of arguments (``["vllm", "serve", …]``): the engines that their commands start."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from ..launcher_spec import cues
from ..launching import read_command, read_start
from ..nodes import root
from ..record import Place, Pod, Reading
from ..starts import starts_of
from ..words import lex

if TYPE_CHECKING:
    from ...documents import Document
    from ..sources import Source

ORDER = 90
_MAKEFILES = {"makefile", "gnumakefile"}


class _Script:
    """Reads texts that are no YAML, and lists of words."""

    def recognises(self, source: Source, document: Document | None) -> bool:
        """Whether a text names an engine's program or image, or a list begins with one."""
        if document is None:
            return not source.is_yaml and cues().search(source.text) is not None
        return _is_words(document) and any(cues().search(word) for word in document.data)

    def read(self, source: Source, document: Document | None) -> Reading:
        """Read each command that starts an engine; what only running the text would tell is a problem where it matters."""
        if document is None:
            return _script(source)
        top = root(document)
        words = [word.said() for word in top.items()]
        return read_command(
            words, environment={}, image=None, kind="command", name="", place=top.place, pod=Pod(), text=source.text
        )


def _script(source: Source) -> Reading:
    name = PurePath(source.file).name.lower()
    start = Place(source.file, 1, 1)
    script = lex(source.text, start, make=name in _MAKEFILES or name.endswith(".mk"))
    readings = [
        read_start(one, kind="command", name="", place=command.words[0].place, pod=Pod())
        for command in script.commands
        for one in starts_of(command, source.text, start)
    ]
    return Reading.joined([Reading(problems=script.problems), *readings])


def _is_words(document: Document) -> bool:
    return (
        isinstance(document.data, list) and bool(document.data) and all(isinstance(one, str) for one in document.data)
    )


READER = _Script()
