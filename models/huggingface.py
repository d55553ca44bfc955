"""Reading ``config.json`` of a Hugging Face repository as data: its keys become a ModelSpec. No code of the repository is ever run.

What a family's keys mean is said by one small function per family in ``models/families``; this file finds the right one and adds what all
have in common. A value that decides a shape is never guessed: a missing key is an error that names it.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections import Counter
from dataclasses import asdict, replace
from importlib.resources import files
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from .. import specfiles
from ..errors import SpecError, UnknownNameError, show
from ..specfiles import validate
from .config import Config, Shape, builder_of, families
from .quantisation import UnknownFormatError, implied_weights
from .spec import UNKNOWN_WEIGHTS, LayerGroup, ModelId, ModelSpec, OtherParameters, Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..documents import Document

_NESTED = ("text_config", "language_config", "llm_config")
_QUANTISATION = ("quantization_config", "_hf_quant_config")  # stand beside the nested part and are about it
_DEFAULTS = Path(str(files("roofplan.models") / "families" / "class_defaults.yaml"))
_CONTEXT_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "model_max_length",
    "max_seq_len",
    "seq_length",
    "context_length",
)
_KINDS = {"verbatim", "preset", "transcribed", "class-default", "reconstructed", "gguf-log"}


def from_config(document: Document) -> ModelSpec:
    """Turn a ``config.json`` into a ModelSpec.

    Raises
    ------
    SpecError : for keys that are missing, contradictory or of the wrong type
    UnknownNameError : for an architecture that roofplan does not know
    """
    top = document.data
    data, path = _text_config(top)
    kind = Config(document, data, path).text("model_type", default="")
    taken = [default for default in _class_defaults(kind, nested=bool(path)) if data.get(default[0]) is None]
    config = Config(document, {**data, **{key: value for key, value, _ in taken}}, path)
    builder = builder_of(kind)
    if builder is None:
        near = difflib.get_close_matches(kind, families(), n=3)
        meant = f"did you mean {' or '.join(near)}? " if near else ""
        raise UnknownNameError(
            "model_type",
            got=kind or "nothing",
            wanted=f"one of the {len(families())} known architectures",
            where=document.where((*config.path, "model_type")),
            hint=f"{meant}Or describe the model in a spec (schema: roofplan/model/v1)",
        )
    try:
        spec = _spec(document, config, builder(config), taken)
    except ValueError as error:  # a spec class refused what the configuration says
        raise SpecError(f"model_type {kind}: {error}", where=document.where()) from error
    # What a family computed from the keys passes the same gate as a spec in a file.
    return validate(ModelSpec, document, asdict(spec))


def _class_defaults(kind: str, *, nested: bool) -> Iterator[tuple[str, Any, str]]:
    """What is taken for keys that a configuration leaves out, and why; inside a wrapper that may be more of them."""
    known = _defaults_file()
    sections = {"defaults": "the default of its class", "published": "as all published configurations of its class say"}
    if nested:
        sections["nested"] = sections["defaults"]
    for section, why in sections.items():
        for key, value in known[section].get(kind, {}).items():
            yield key, value, why


@functools.cache
def _defaults_file() -> dict[str, Any]:
    content: dict[str, Any] = specfiles.read_document(_DEFAULTS).data
    return content


def _text_config(top: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Find the language model's part: nested in wrappers of vision and audio; a stub without sizes does not shadow the top level."""
    for key in _NESTED:
        nested = top.get(key)
        if isinstance(nested, dict) and ("hidden_size" not in top or "hidden_size" in nested):
            shared = {
                name: value
                for name, value in top.items()
                if name in _QUANTISATION or (name not in _NESTED and not isinstance(value, dict))
            }
            return {**shared, **{name: value for name, value in nested.items() if value is not None}}, (key,)
    return top, ()


def _spec(document: Document, config: Config, shape: Shape, taken: list[tuple[str, Any, str]]) -> ModelSpec:
    hf_id = config.text("_hf_id", default="")
    kind = config.text("_kind", default="user")
    source = config.text("_source", default=show(document.name, 400))
    assumed = [f"{key} is not in the file: {value}, {why}" for key, value, why in taken]
    try:
        weights = implied_weights(config, shape.layers)
    except UnknownFormatError as error:  # the header of the weight files, or --weights, may say it
        weights = UNKNOWN_WEIGHTS
        assumed.append(f"its quantisation is not known ({error.got})")
    return ModelSpec(
        schema="roofplan/model/v1",
        name=_slug(hf_id or _name_of(document.name)),
        title=hf_id,
        ids=(ModelId(id=hf_id),) if hf_id else (),
        hidden_size=config.count("hidden_size", "n_embd", "d_model"),
        vocab_size=config.count("vocab_size", "padded_vocab_size"),
        layers=grouped(shape.layers),
        sources=(Source(kind=kind if kind in _KINDS else "user", source=source),),  # type: ignore[arg-type]  # checked here
        weights=weights,
        tied_embeddings=config.flag("tie_word_embeddings", default=shape.tied_by_default),
        max_context=shape.max_context or config.optional(*_CONTEXT_KEYS),
        embedding_size=shape.embedding_size,
        learned_positions=shape.learned_positions,
        final_norms=shape.final_norms,
        norm_bias=shape.norm_bias,
        head_bias=shape.head_bias,
        other_parameters=tuple(
            OtherParameters(name=name, count=count, read_per_step=read, source=why)
            for name, count, read, why in shape.other
            if count
        ),
        assumed=tuple(assumed),
    )


def grouped(layers: list[LayerGroup]) -> tuple[LayerGroup, ...]:
    """Join equal layers, in the order of their first appearance."""
    counts = Counter[LayerGroup]()
    for layer in layers:
        counts[replace(layer, count=1)] += layer.count
    return tuple(replace(layer, count=count) for layer, count in counts.items())


def _name_of(path: str) -> str:
    parts = PurePath(path).parts
    if len(parts) > 1 and parts[-1] == "config.json":
        return parts[-2]
    return PurePath(path).stem or "model"


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", name.rsplit("/", 1)[-1].lower()).strip("-._")[:64] or "model"
