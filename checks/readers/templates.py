"""Templates of manifests (Helm, Jinja) that are no YAML before they are rendered: recognised, and said so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import RoofplanError
from ..nodes import not_rendered, template_in
from ..record import Reading

if TYPE_CHECKING:
    from ...documents import Document
    from ..sources import Source

ORDER = 10


class _Templates:
    def recognises(self, source: Source, document: Document | None) -> bool:
        # A template that happens to be YAML is read as such; the values that are not filled in yet are problems of their own.
        is_broken = document is None and source.is_yaml and isinstance(source.parsed, RoofplanError)
        return is_broken and template_in(source.text) is not None

    def read(self, source: Source, document: Document | None) -> Reading:  # noqa: ARG002  # there is none
        match = template_in(source.text)
        assert match is not None
        line = source.text.count("\n", 0, match.start()) + 1
        column = match.start() - source.text.rfind("\n", 0, match.start())
        return Reading(problems=(not_rendered(match[0], f"{source.file}:{line}:{column}"),))


READER = _Templates()
