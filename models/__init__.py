"""Models: what a spec says, the catalogue of them, and the readers of configuration files."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from .. import specfiles
from ..documents import Document
from ..errors import SpecError
from .spec import SCHEMA, ModelSpec

CATALOGUE = specfiles.Catalogue(Path(str(files("roofplan.models") / "catalogue")), "model", "roofplan model list")


def load(name: str) -> ModelSpec:
    """Load a model by slug (``llama-3.1-8b``), Hugging Face id or alias, from a path, or from standard input (``-``).

    A path is that of a spec in YAML, of a ``config.json``, of a GGUF file, of a safetensors file or index that has its ``config.json``
    beside it, or of a folder that holds such files. Of weight files only the headers are read.
    An id of a quantised variant gives the same architecture with the weight format and the context that the id implies.

    Raises
    ------
    UnknownNameError : with the nearest names
    SpecError : for a malformed file
    """
    is_file = name != "-" and specfiles.looks_like_path(name)
    spec = _from_path(name) if is_file else specfiles.load(CATALOGUE, name, from_document)
    return spec.as_published(name)


def _from_path(name: str) -> ModelSpec:
    if specfiles.is_folder(name):
        return _from_folder(Path(name))
    if name.endswith((".safetensors", ".safetensors.index.json")):
        from .safetensors import with_checkpoint

        return with_checkpoint(_config_in(Path(name).parent), name)
    if name.endswith(".gguf") or _begins_with_magic(name):
        from .gguf import read_gguf

        return read_gguf(name)
    return from_document(specfiles.read_document(name))


def _from_folder(folder: Path) -> ModelSpec:
    """A configuration with the weight files beside it, or else a single GGUF model."""
    from .safetensors import has_weights, with_checkpoint

    if has_weights(folder):
        return with_checkpoint(_config_in(folder), folder)
    models = _gguf_models(folder)
    if len(models) == 1 or (models and not (folder / "config.json").exists()):
        return _only_gguf(folder, models)
    return _config_in(folder)


def _gguf_models(folder: Path) -> list[Path]:
    """The GGUF models of a folder: of a split one its first part, and no projectors or draft heads, which go beside a model."""
    files_of = sorted(folder.glob("*.gguf"))
    later = re.compile(r".*-(?!00001)[0-9]{5}-of-[0-9]{5}\.gguf", re.DOTALL)
    return [
        file for file in files_of if not file.name.startswith(("mmproj-", "mtp-")) and not later.fullmatch(file.name)
    ]


def _only_gguf(folder: Path, models: list[Path]) -> ModelSpec:
    from .gguf import read_gguf

    if len(models) > 1:
        names = ", ".join(file.name for file in models[:3])
        raise SpecError("folder", got=f"{len(models)} models ({names})", wanted="the path of one", where=str(folder))
    return read_gguf(models[0])


def _config_in(folder: Path) -> ModelSpec:
    return from_document(specfiles.read_document(str(folder / "config.json")))


def _begins_with_magic(name: str) -> bool:
    """Whether a file of any name (Ollama's have none of their own) is a GGUF file; what cannot be read is said by who reads it."""
    from .tensors import open_regular

    try:
        with open_regular(name) as (stream, _):
            return stream.read(4) == b"GGUF"
    except SpecError:
        return False


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
