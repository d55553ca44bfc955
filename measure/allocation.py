"""What becomes of a measurement for which there is no memory: a smaller one, and a word about it."""

from __future__ import annotations

_WORDS = ("out of memory", "can't allocate", "cannot allocate", "not enough memory", "alloc_failed")


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there was no memory: torch has a class of its own for CUDA, and a plain one with words for the rest."""
    text = str(error).lower()
    return (
        isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or any(w in text for w in _WORDS)
    )


def left_out(note: str) -> None:
    """Take a note and drop it: what is said to where nobody listens."""


def first_line(error: BaseException) -> str:
    """The kind of an error and the first line of what it says: torch says much."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:120]}" if lines else type(error).__name__
