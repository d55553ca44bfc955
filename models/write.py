"""Writing a ModelSpec as YAML, as a person would: only what differs from the defaults, one line for a mixer or feed-forward part."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .spec import ModelSpec

_PLAIN = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/")
_ALWAYS_QUOTED = {"ids", "aliases", "id", "source", "title", "notes"}
_SINGLE = {"attention", "mlp"}  # written without a list where there is one


def to_yaml(spec: ModelSpec) -> str:
    """Write a model; reading it back gives an equal spec.

    Texts that name the model are always quoted: the catalogue is searched for them in this form.
    """
    lines = []
    for name, value in _fields(spec).items():
        if isinstance(value, (list, tuple)) and value and dataclasses.is_dataclass(value[0]):
            lines.append(f"{name}:")
            write = _block if name == "layers" else _inline_item
            lines += [line for item in value for line in write(item)]
        else:
            lines.append(f"{name}: {_flow(value, name)}")
    return "\n".join(lines) + "\n"


def _fields(item: Any) -> dict[str, Any]:
    """The fields that differ from their defaults, the required ones always."""
    return {
        field.name: getattr(item, field.name)
        for field in dataclasses.fields(item)
        if field.default is dataclasses.MISSING or getattr(item, field.name) != field.default
    }


def _block(item: Any) -> list[str]:
    pairs = [
        (name, value[0] if name in _SINGLE and len(value) == 1 else value) for name, value in _fields(item).items()
    ]
    return [
        f"{'  - ' if position == 0 else '    '}{name}: {_flow(value, name)}"
        for position, (name, value) in enumerate(pairs)
    ]


def _inline_item(item: Any) -> list[str]:
    return [f"  - {_flow(item, '')}"]


def _flow(value: Any, name: str) -> str:
    if dataclasses.is_dataclass(value):
        return "{" + ", ".join(f"{key}: {_flow(inner, key)}" for key, inner in _fields(value).items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_flow(inner, name) for inner in value) + "]"
    if isinstance(value, str):
        plain = (
            name not in _ALWAYS_QUOTED
            and set(value) <= _PLAIN
            and value[:1].isalpha()
            and value.lower() not in {"true", "false", "null"}
        )
        return value if plain else _quoted(value)
    return json.dumps(value)


def _quoted(text: str) -> str:
    """A text in double quotes; what a terminal might obey is escaped."""
    return "".join(c if c.isprintable() else _escaped(ord(c)) for c in json.dumps(text, ensure_ascii=False))


def _escaped(code: int) -> str:
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
