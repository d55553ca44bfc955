"""Files of flags, as ``vllm serve --config`` takes them: a mapping whose keys are all flags of the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..launcher_spec import launcher_of
from ..launching import read_settings
from ..nodes import root
from ..record import Pod, Reading

if TYPE_CHECKING:
    from ...documents import Document
    from ..sources import Source

ORDER = 80
_ENGINE = "vllm"
_FEWEST = 2  # keys: fewer say too little to tell such a file from another


class _FlagFile:
    """Reads a file of flags."""

    def recognises(self, source: Source, document: Document | None) -> bool:  # noqa: ARG002  # the document says it all
        """Whether a mapping names a model and holds flags only."""
        if document is None or not isinstance(document.data, dict) or len(document.data) < _FEWEST:
            return False
        data = document.data
        launcher = launcher_of(_ENGINE) if isinstance(data.get("model"), str) else None
        if launcher is None:
            return False
        known = launcher.flags_in(None)
        return all(isinstance(key, str) and f"--{key.replace('_', '-')}" in known for key in data)

    def read(self, source: Source, document: Document | None) -> Reading:  # noqa: ARG002  # as every reader is called
        """Read it as the settings of one service."""
        assert document is not None
        top = root(document)
        settings = {key: value.said() for key, value in top.entries()}
        return read_settings(_ENGINE, settings, kind="command", name="", place=top.place, pod=Pod())


READER = _FlagFile()
