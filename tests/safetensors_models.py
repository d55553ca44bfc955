"""A small Llama as safetensors: its tensors, its configuration, and a folder of both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from weight_files import Sides, laid_out, write_safetensors

from roofplan import models
from roofplan.documents import parse_json
from roofplan.models.safetensors import INDEX
from roofplan.models.spec import ModelSpec, Stored

Shapes = dict[str, tuple[str, Sides]]
CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 100,
}


def layer(number: int, dtype: str = "BF16", prefix: str = "model.layers") -> Shapes:
    """One layer of the usual model, in PyTorch's order of sides."""
    at = f"{prefix}.{number}"
    return {
        f"{at}.self_attn.q_proj.weight": (dtype, (64, 64)),
        f"{at}.self_attn.k_proj.weight": (dtype, (32, 64)),
        f"{at}.self_attn.v_proj.weight": (dtype, (32, 64)),
        f"{at}.self_attn.o_proj.weight": (dtype, (64, 64)),
        f"{at}.mlp.gate_proj.weight": (dtype, (128, 64)),
        f"{at}.mlp.up_proj.weight": (dtype, (128, 64)),
        f"{at}.mlp.down_proj.weight": (dtype, (64, 128)),
        f"{at}.input_layernorm.weight": ("BF16", (64,)),
        f"{at}.post_attention_layernorm.weight": ("BF16", (64,)),
    }


ENDS: Shapes = {
    "model.embed_tokens.weight": ("BF16", (100, 64)),
    "model.norm.weight": ("BF16", (64,)),
    "lm_head.weight": ("BF16", (100, 64)),
}
LLAMA = ENDS | layer(0) | layer(1)


def size_of(tensors: Shapes) -> int:
    return laid_out(tensors)[1]


def config_of(**changes: Any) -> ModelSpec:
    return models.from_document(parse_json(json.dumps({**CONFIG, **changes}, indent=1), "config.json"))


def repository(folder: Path, tensors: Shapes, *, shards: int = 1, **changes: Any) -> Path:
    """A folder with a configuration, and weight files with or without an index."""
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors)
        return folder
    names = sorted(tensors)
    files = {name: f"model-{number % shards + 1:05}-of-{shards:05}.safetensors" for number, name in enumerate(names)}
    for file in sorted(set(files.values())):
        write_safetensors(folder / file, {name: tensors[name] for name in names if files[name] == file})
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": size_of(tensors)}, "weight_map": files}))
    return folder


def stored(spec: ModelSpec) -> dict[str, Stored]:
    return {part.kind: part for part in spec.checkpoint}
