"""The options of a deployment: their names, and how their values are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, cast

from ..engines.profile import EngineProfile
from ..errors import DomainError, UnknownNameError
from ..quantities import parse_count, parse_tokens

if TYPE_CHECKING:
    from collections.abc import Mapping

Whole = int | str  # a whole number, or its digits
Quantity = int | str  # bytes as a number, or text such as "80 GiB"


class Options(TypedDict, total=False):
    """The options of a deployment, by the names that the command line and deployment files use too; None is as good as left out."""

    prompt: Whole | None
    output: Whole | None
    concurrency: Whole | None
    devices: Whole | None
    tp: Whole | None
    pp: Whole | None
    dp: Whole | None
    ep: Whole | None
    cp: Whole | None
    weights: str | None
    kv: str | None
    activations: str | None
    engine: str | EngineProfile | None
    max_model_len: Whole | None
    max_num_batched_tokens: Whole | None
    max_num_seqs: Whole | None
    block_size: Whole | None
    kv_cache_bytes: Quantity | None
    eager: bool | None
    offline: bool | None
    max_loras: Whole | None
    max_lora_rank: Whole | None
    memory_utilization: float | str | None
    device_memory: Quantity | None
    weights_memory: Quantity | None
    activation_memory: Quantity | None
    runtime_memory: Quantity | None
    graph_memory: Quantity | None
    beside_memory: Quantity | None
    strict: bool | None


DEFAULT_PROMPT = 1024
DEFAULT_OUTPUT = 256


def given(options: Options) -> Options:
    """The options that are not None."""
    return cast("Options", {name: value for name, value in options.items() if value is not None})


def check_names(options: Mapping[str, object]) -> None:
    """Refuse an option that does not exist: Python does not check the names of a TypedDict."""
    known = list(Options.__annotations__)
    for name in options:
        if name not in known:
            import difflib

            near = difflib.get_close_matches(name, known, n=2)
            hint = f"did you mean {' or '.join(near)}?" if near else ""
            raise UnknownNameError("option", got=name, wanted=f"one of {', '.join(known)}", hint=hint)
    for name in ("strict", "eager", "offline"):
        if not isinstance(options.get(name) or False, bool):
            raise DomainError(f"--{name}", got=repr(options.get(name)), wanted="true or false")


def read_text(value: object, what: str) -> str:
    """The name of a format; an empty one is looked up, and not found."""
    if not isinstance(value, str):
        raise DomainError(what, got=repr(value), wanted="a name")
    return value


def optional_text(value: object, what: str) -> str | None:
    """The same, or None."""
    return None if value is None else read_text(value, what)


def optional_count(value: object, what: str) -> int | None:
    """A whole number above zero, or None."""
    return None if value is None else parse_count(value, what)


def optional_tokens(value: object, what: str) -> int | None:
    """A number of tokens, or None."""
    return None if value is None else parse_tokens(value, what)
