"""Deployment files: the words of the command line as a mapping.

schema: roofplan/deployment/v1
name: today                # optional: what it is called in a comparison
model: llama-3.1-8b        # as MODEL; a path is looked for beside the file
hardware: h100-sxm         # as HARDWARE
devices: 2                 # and any other option, as in the library (max_model_len for --max-model-len)
usd_per_hour: 2.5          # optional: price of one device
limits: {ttft: 500 ms}     # optional, as expect and shared_prefix_tokens: what roofplan check holds against the plan, see limits.py
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from .. import specfiles
from ..errors import RoofplanError, SpecError
from ..quantities import NUMBER, parse
from .building import deployment
from .options import Options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..documents import Document
    from ..planner.deployment import Deployment

SCHEMA = "roofplan/deployment/v1"
_NEEDED = ("model", "hardware")
_PROMISES = ("limits", "expect")
_KEYS = ("schema", "name", *_NEEDED, "usd_per_hour", *Options.__annotations__, "shared_prefix_tokens", *_PROMISES)
_TEXTS = ("schema", "name", *_NEEDED, "weights", "kv", "activations", "engine")
_PATHS = ("model", "hardware", "engine")
_NAMES = {"MODEL": "model", "HARDWARE": "hardware"}  # of arguments that have no option


@dataclass(frozen=True, slots=True)
class DeploymentFile:
    """What a file describes: its name (that of the file where it states none), the deployment, and the price of a device, if stated."""

    name: str
    deployment: Deployment
    usd_per_hour: float | None


def is_deployment(document: Document) -> bool:
    """Whether a document says that it is a deployment."""
    data = document.data
    return isinstance(data, dict) and str(data.get("schema", "")).startswith("roofplan/deployment/")


def read_deployment(path: str | os.PathLike[str]) -> DeploymentFile:
    """Read a deployment file (YAML or JSON).

    Raises
    ------
    RoofplanError : with file, line and column, for what is malformed, unknown or no deployment
    """
    return deployment_of(specfiles.read_document(os.fspath(path)))


def deployment_of(document: Document) -> DeploymentFile:
    """Build what a document describes.

    Raises
    ------
    RoofplanError : with file, line and column, for what is malformed, unknown or no deployment
    """
    data = described(document)
    options = {key: value for key, value in data.items() if key in Options.__annotations__}
    try:
        price = data.get("usd_per_hour")
        usd = None if price is None else float(parse(price, NUMBER, "usd_per_hour"))
        built = deployment(data["model"], data["hardware"], **cast("Options", options))
    except RoofplanError as error:
        key = key_of(error, data)
        if error.what.startswith("--") or error.what in _NAMES:
            error.what = key or error.what
        raise error.at(document.where((key,) if key else ())) from error
    return DeploymentFile(data.get("name") or Path(document.name).stem, built, usd)


def described(document: Document) -> dict[str, Any]:
    """The keys of a document and their values, with its paths seen from where it lies; what is promised in it is not read.

    Raises
    ------
    SpecError : with file, line and column, for what is no deployment, and keys and values that no option takes
    """
    data = document.data
    if not isinstance(data, dict):
        wanted = f"a deployment (schema: {SCHEMA})"
        raise SpecError("document", got="no mapping", wanted=wanted, where=document.where())
    _check(document, data)
    # A bare number of a library call is bytes; in a file it says nothing, as on the command line.
    texts = {key: str(value) for key, value in data.items() if key.endswith("_memory")}
    paths = {key: _beside(document, key, data[key]) for key in _PATHS if key in data}
    return {**data, **texts, **paths}


def key_of(error: RoofplanError, data: Mapping[str, Any]) -> str:
    """The key that an error is about: the option that it names, else one whose value it quotes; empty where that is unclear."""
    key = _NAMES.get(error.what, error.what.removeprefix("--").replace("-", "_"))
    if key in data:
        return key
    return next((name for name, value in data.items() if isinstance(value, str) and error.got in value.split(",")), "")


def _check(document: Document, data: dict[str, Any]) -> None:
    """Refuse keys that do not exist, lacking ones, and values that no option takes."""
    for key, value in data.items():
        where = document.where((key,))
        if key not in _KEYS:
            hint = specfiles.did_you_mean(key.replace("-", "_"), _KEYS)
            raise SpecError(key, got="an unknown key", wanted="an option of roofplan size", hint=hint, where=where)
        if key not in _PROMISES and (isinstance(value, (dict, list)) or value is None):
            raise SpecError(key, got=specfiles.brief(value), wanted="one value", where=where)
        if key in _TEXTS and not isinstance(value, str):
            raise SpecError(key, got=repr(value), wanted="a text", where=where)
    if data.get("schema") != SCHEMA:
        got = repr(data["schema"]) if "schema" in data else "nothing"
        raise SpecError("schema", got=got, wanted=SCHEMA, where=document.where(("schema",)))
    for key in _NEEDED:
        if key not in data:
            raise SpecError(key, got="nothing", wanted="this key", where=document.where())


def _beside(document: Document, key: str, name: str) -> str:
    """A relative path as seen from the file's folder; names as they are."""
    if name == "-":
        wanted = "a name or a path: a file has no standard input"
        raise SpecError(key, got="-", wanted=wanted, where=document.where((key,)))
    folder = Path(document.name).parent
    if not specfiles.looks_like_path(name) or Path(name).is_absolute() or document.name == "<stdin>":
        return name
    beside = str(folder / name)
    return beside if specfiles.looks_like_path(beside) else f"./{beside}"


__all__ = ["SCHEMA", "DeploymentFile", "deployment_of", "described", "is_deployment", "key_of", "read_deployment"]
