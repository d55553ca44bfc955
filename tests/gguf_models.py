"""A small Llama as a GGUF file, and what holds for every model that is read from one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from weight_files import Sides, attention, gguf, mlp, model_keys, model_tensors, norms, size_of, write_gguf

from roofplan import models
from roofplan.documents import parse_json
from roofplan.models.gguf import read_gguf
from roofplan.models.spec import ModelSpec
from roofplan.planner.parameters import count_parameters

HIDDEN, VOCAB, LAYERS = 256, 1000, 4
KEYS = model_keys("llama", HIDDEN, LAYERS, 4, 2)
BLOCK = attention(HIDDEN, 256, 128) | mlp(HIDDEN, 512) | norms(HIDDEN)
TENSORS = model_tensors(HIDDEN, VOCAB, [BLOCK] * LAYERS)
GOOD, SIZE = gguf(KEYS, TENSORS)


def from_config(**config: Any) -> ModelSpec:
    """The model of a configuration: what a GGUF file of it must say too."""
    usual = {"hidden_size": HIDDEN, "vocab_size": VOCAB, "num_hidden_layers": LAYERS, "max_position_embeddings": 8192}
    return models.from_document(parse_json(json.dumps({**usual, **config}, indent=1), "config.json"))


def assert_same_shape(spec: ModelSpec, wanted: ModelSpec) -> None:
    """Everything that decides sizes is equal; names and sources are not."""
    fields = ("layers", "hidden_size", "vocab_size", "tied_embeddings", "max_context", "embedding_size", "final_norms")
    for field in (*fields, "norm_bias", "head_bias", "learned_positions", "other_parameters"):
        assert getattr(spec, field) == getattr(wanted, field), field


def assert_exact(spec: ModelSpec, tensors: list[tuple[str, Sides, str]]) -> None:
    """The checkpoint adds up to the tensors, in bytes and parameters, and by class to what the planner counts."""
    assert sum(part.bytes for part in spec.checkpoint) == sum(size_of(sides, kind) for _, sides, kind in tensors)
    stored = {part.kind: part.parameters for part in spec.checkpoint if part.kind != "mtp"}
    counted = {kind: count for kind, count in count_parameters(spec).by_class.items() if count}
    assert stored == counted


def read(tmp_path: Path, keys: dict[str, Any], tensors: list[tuple[str, Sides, str]], **options: Any) -> ModelSpec:
    return read_gguf(write_gguf(tmp_path / "model.gguf", keys, tensors, **options))


def model(tmp_path: Path, keys: dict[str, Any], blocks: list[dict[str, Sides]], **options: Any) -> ModelSpec:
    """Write and read a model, and check that it adds up."""
    tensors = model_tensors(HIDDEN, VOCAB, blocks, **options)
    spec = read(tmp_path, keys, tensors)
    assert_exact(spec, tensors)
    return spec
