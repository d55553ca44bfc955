"""Configurations of the collection with some keys changed, and what is asked of the models that they describe."""

from __future__ import annotations

import json
from typing import Any

import reference

from roofplan import models
from roofplan.documents import Document
from roofplan.models.spec import ModelSpec

LLAMA, QWEN3, GEMMA3 = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-32B", "google/gemma-3-27b-it"


def config(hf_id: str, **changes: Any) -> ModelSpec:
    """Read a configuration of the collection with some keys changed; a key set to ... is removed."""
    data = json.loads(reference.config_path(hf_id).read_text(encoding="utf-8"))
    inner = next((key for key in ("text_config",) if key in data and "hidden_size" in data[key]), None)
    target = data[inner] if inner else data
    for key, value in changes.items():
        target.pop(key, None)
        if value is not ...:
            target[key] = value
    return models.from_document(Document(data, "config.json"))


def mixers(spec: ModelSpec) -> list[Any]:
    return [mixer for group in spec.layers for mixer in group.attention]


def parts(spec: ModelSpec) -> list[Any]:
    return [part for group in spec.layers for part in group.mlp]


def layers_of(spec: ModelSpec, kind: str) -> int:
    return sum(group.count for group in spec.layers for mixer in group.attention if mixer.kind == kind)
