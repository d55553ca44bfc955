"""A spec as the mapping that its YAML file holds: quantities with their units, and only what was set."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

from ..quantities import Dimension, dimension_of, show_quantity


def as_mapping(spec: Any) -> dict[str, Any]:
    """The mapping from which a spec class is read back, without the fields that have their default."""
    hints = typing.get_type_hints(type(spec), include_extras=True)
    said = {}
    for field in dataclasses.fields(spec):
        value = getattr(spec, field.name)
        if field.default is not dataclasses.MISSING and value == field.default:
            continue
        said[field.name] = _written(value, dimension_of(hints[field.name]))
    return said


def _written(value: Any, dimension: Dimension | None) -> Any:
    if dimension is not None and not dimension.bare and isinstance(value, (int, float)):
        return show_quantity(value, dimension)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return as_mapping(value)
    if isinstance(value, (tuple, list)):
        return [_written(item, dimension) for item in value]
    if isinstance(value, dict):
        return {key: _written(item, None) for key, item in value.items()}
    return value
