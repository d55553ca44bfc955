"""Models: what a spec says, the catalogue of them, and the readers of configuration files."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from .. import specfiles
from ..documents import Document
from ..errors import SpecError
from .spec import SCHEMA, ModelSpec

CATALOGUE = specfiles.Catalogue(Path(str(files("roofplan.models") / "catalogue")), "model")


def load(name: str) -> ModelSpec:
    """Load a model by slug (``llama-3.1-8b``), Hugging Face id or alias, from a path, or from standard input (``-``).

    A path is that of a spec in YAML, of a ``config.json``, or of a folder that holds one.
    An id of a quantised variant gives the same architecture with the weight format that the id implies.

    Raises
    ------
    UnknownNameError : with the nearest names
    SpecError : for a malformed file
    """
    if specfiles.looks_like_path(name) and specfiles.is_folder(name):
        name = str(Path(name) / "config.json")
    spec = specfiles.load(CATALOGUE, name, from_document)
    return replace(spec, weights=spec.weights_of(name))


def from_document(document: Document) -> ModelSpec:
    """Read a model from a document: a roofplan spec, or the ``config.json`` of a Hugging Face repository."""
    data = document.data
    if not isinstance(data, dict):
        raise SpecError(
            "document", got="no mapping", wanted=f"a model (schema: {SCHEMA}, or a config.json)", where=document.where()
        )
    if "schema" not in data:
        from .huggingface import from_config

        return from_config(document)
    layers = {"layers": _with_lists(data["layers"])} if "layers" in data else {}
    return specfiles.validate(ModelSpec, document, {**data, **layers})


def _with_lists(layers: Any) -> Any:
    """Let a layer write its one mixer or feed-forward part without a list."""
    if not isinstance(layers, list):
        return layers
    keys = ("attention", "mlp")
    single = [
        {key: [layer[key]] for key in keys if isinstance(layer.get(key), dict)} if isinstance(layer, dict) else {}
        for layer in layers
    ]
    return [{**layer, **lists} if lists else layer for layer, lists in zip(layers, single, strict=True)]


__all__ = ["CATALOGUE", "ModelSpec", "from_document", "load"]
