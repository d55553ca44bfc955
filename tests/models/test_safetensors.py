"""Safetensors headers and what they say of a checkpoint: exact bytes, logical weights, classes; every broken one is refused."""

from __future__ import annotations

import json
import struct
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from weight_files import BITS, Sides, cost_of_refusing, laid_out, safetensors, write, write_safetensors

from roofplan import models
from roofplan.documents import parse_json
from roofplan.errors import RoofplanError, SpecError
from roofplan.models.safetensors import (
    DTYPE_BITS,
    INDEX,
    LARGEST_HEADER,
    MOST_COMMAS,
    MOST_TENSORS,
    read_safetensors_header,
    with_checkpoint,
)
from roofplan.models.spec import ModelSpec, Stored
from roofplan.planner.parameters import count_parameters

FUZZ = Path(__file__).parent / "fuzz"
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


# ------------------------------------------------------------------------------------------------ good files


def test_the_dtypes_and_their_sizes(tmp_path: Path) -> None:
    assert len(DTYPE_BITS) == 22
    for dtype, bits in BITS.items():
        (tensor,) = read_safetensors_header(write_safetensors(tmp_path / "m.safetensors", {"t": (dtype, (4, 6))}))
        assert (tensor.bytes, tensor.shape, DTYPE_BITS[dtype]) == (24 * bits // 8, (4, 6), bits)


def test_six_bits(tmp_path: Path) -> None:
    entries = {"t": {"dtype": "F6_E2M3", "shape": [4], "data_offsets": [0, 3]}}
    assert read_safetensors_header(write(tmp_path / "m.safetensors", safetensors(entries, 3)))[0].bytes == 3


def test_scalars_empty_tensors_padding_and_metadata(tmp_path: Path) -> None:
    entries, size = laid_out({"scalar": ("F32", ()), "empty": ("F32", (0, 5)), "one": ("U8", (1,))})
    text = json.dumps({"__metadata__": {"format": "pt"}} | entries) + "     "
    tensors = read_safetensors_header(write(tmp_path / "m.safetensors", safetensors(text, size)))
    assert {tensor.name: tensor.bytes for tensor in tensors} == {"scalar": 4, "empty": 0, "one": 1}


def test_a_header_in_any_order(tmp_path: Path) -> None:
    entries, size = laid_out(LLAMA)
    content = safetensors(dict(reversed(entries.items())), size)
    assert [t.name for t in read_safetensors_header(write(tmp_path / "m.safetensors", content))] == list(LLAMA)


def test_a_file_without_tensors(tmp_path: Path) -> None:
    assert read_safetensors_header(write(tmp_path / "m.safetensors", safetensors({}))) == ()


# ------------------------------------------------------------------------------------------------ through load


@pytest.mark.parametrize("shards", [1, 3])
def test_a_folder_with_weights(tmp_path: Path, shards: int) -> None:
    spec = models.load(str(repository(tmp_path, LLAMA, shards=shards)))
    assert spec.layers == config_of().layers
    assert sum(part.bytes for part in spec.checkpoint) == size_of(LLAMA)
    counted = {kind: count for kind, count in count_parameters(spec).by_class.items() if count}
    assert {kind: part.parameters for kind, part in stored(spec).items()} == counted
    assert {part.types for part in spec.checkpoint} == {"BF16"}


def test_a_file_an_index_and_a_shard(tmp_path: Path) -> None:
    wanted = models.load(str(repository(tmp_path, LLAMA, shards=2)))
    for name in (INDEX, "model-00002-of-00002.safetensors"):
        assert models.load(str(tmp_path / name)).checkpoint == wanted.checkpoint
    single = tmp_path / "single"
    single.mkdir()
    repository(single, LLAMA)
    assert models.load(str(single / "model.safetensors")).checkpoint == wanted.checkpoint


def test_a_folder_of_shards_without_an_index(tmp_path: Path) -> None:
    wanted = models.load(str(repository(tmp_path, LLAMA, shards=2)))
    (tmp_path / INDEX).unlink()
    write_safetensors(tmp_path / "consolidated.safetensors", {"layers.0.attention.wq.weight": ("BF16", (64, 64))})
    assert models.load(str(tmp_path)).checkpoint == wanted.checkpoint


def test_weights_without_a_configuration(tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "model.safetensors", LLAMA)
    for name in (path, tmp_path):
        with pytest.raises(SpecError, match=r"config\.json: file: got no such file or directory"):
            models.load(str(name))


def test_a_spec_of_the_catalogue_can_get_a_checkpoint(tmp_path: Path) -> None:
    spec = with_checkpoint(config_of(), write_safetensors(tmp_path / "x.safetensors", LLAMA))
    assert sum(part.bytes for part in spec.checkpoint) == size_of(LLAMA)


# ------------------------------------------------------------------------------------------------ classes


@pytest.mark.parametrize(
    ("name", "shape", "kind"),
    [
        ("model.layers.0.self_attn.q_proj.bias", (64,), "norm"),
        ("model.layers.0.self_attn.q_norm.weight", (16,), "norm"),
        ("model.layers.0.self_attn.sinks", (4,), "norm"),
        ("model.layers.0.self_attn.kv_a_proj_with_mqa.weight", (80, 64), "attention"),
        ("model.layers.0.self_attn.indexer.wq_b.weight", (64, 64), "attention"),
        ("model.layers.0.linear_attn.in_proj_qkvz.weight", (512, 64), "attention"),
        ("model.layers.0.linear_attn.conv1d.weight", (512, 1, 4), "norm"),
        ("model.layers.0.linear_attn.A_log", (4,), "norm"),
        ("model.layers.0.linear_attn.dt_bias", (4,), "norm"),
        ("backbone.layers.0.mixer.in_proj.weight", (512, 64), "attention"),
        ("backbone.layers.0.mixer.up_proj.weight", (512, 64), "mlp"),
        ("backbone.layers.0.mixer.experts.3.up_proj.weight", (128, 64), "experts"),
        ("backbone.layers.0.mixer.gate.weight", (8, 64), "router"),
        ("model.layers.0.mlp.experts.7.down_proj.weight", (64, 128), "experts"),
        ("model.layers.0.mlp.experts.gate_up_proj_blocks", (8, 128, 2, 16), "experts"),
        ("model.layers.0.mlp.experts.gate_up_proj_bias", (8, 128), "norm"),
        ("model.layers.0.block_sparse_moe.experts.1.w2.weight", (64, 128), "experts"),
        ("model.layers.0.block_sparse_moe.gate.weight", (8, 64), "router"),
        ("model.layers.0.mlp.gate.weight", (8, 64), "router"),
        ("model.layers.0.mlp.gate.e_score_correction_bias", (8,), "norm"),
        ("model.layers.0.mlp.gate_proj.weight", (128, 64), "mlp"),
        ("model.layers.0.mlp.router.weight", (8, 64), "router"),
        ("model.layers.0.mlp.shared_expert_gate.weight", (1, 64), "router"),
        ("model.layers.0.mlp.shared_experts.up_proj.weight", (128, 64), "mlp"),
        ("model.layers.0.mlp.shared_expert.up_proj.weight", (128, 64), "mlp"),
        ("model.layers.0.feed_forward.experts.gate_up_proj", (8, 64, 256), "experts"),
        ("model.layers.0.feed_forward.router.weight", (8, 64), "router"),
        ("model.language_model.embed_tokens.weight", (100, 64), "embedding"),
        ("transformer.wte.weight", (100, 64), "embedding"),
        ("wpe.weight", (512, 64), "embedding"),
        ("model.decoder.embed_positions.weight", (514, 64), "embedding"),
        ("gpt_neox.embed_in.weight", (100, 64), "embedding"),
        ("gpt_neox.layers.0.attention.query_key_value.weight", (192, 64), "attention"),
        ("gpt_neox.layers.0.attention.query_key_value.bias", (192,), "norm"),
        ("gpt_neox.layers.0.attention.bias", (1, 1, 64, 64), "buffer"),
        ("gpt_neox.layers.0.attention.masked_bias", (), "buffer"),
        ("gpt_neox.layers.0.attention.rotary_emb.inv_freq", (8,), "buffer"),
        ("embed_out.weight", (100, 64), "head"),
        ("h.0.attn.bias", (1, 1, 64, 64), "buffer"),
        ("h.0.attn.c_attn.bias", (192,), "norm"),
        ("h.0.attn.c_attn.weight", (64, 192), "attention"),
        ("h.0.mlp.c_fc.weight", (64, 256), "mlp"),
        ("h.0.ln_1.weight", (64,), "norm"),
        ("model.layers.2.self_attn.q_proj.weight", (64, 64), "mtp"),
        ("model.layers.2.embed_tokens.weight", (100, 64), "mtp"),
        ("model.layers.2.shared_head.head.weight", (100, 64), "mtp"),
        ("mtp.layers.0.self_attn.q_proj.weight", (64, 64), "mtp"),
        ("model.visual.blocks.30.attn.qkv.weight", (192, 64), "vision"),
        ("vision_tower.vision_model.encoder.layers.26.mlp.fc1.weight", (192, 64), "vision"),
        ("multi_modal_projector.linear_1.weight", (64, 64), "vision"),
        ("audio_tower.conv1.weight", (64, 80, 3), "vision"),
        ("model.embed_vision.embedding_projection.weight", (64, 64), "vision"),
        ("model.language_model.embed_tokens_per_layer.weight", (100, 512), "other"),
        ("model.layers.0.router.scale", (64,), "router"),
        ("transformer.blocks.0.norm_attn_norm.attn.Wqkv.weight", (192, 64), "attention"),
        ("transformer.blocks.0.norm_attn_norm.norm_1.weight", (64,), "norm"),
        ("transformer.blocks.0.ffn.experts.mlp.w1", (512, 64), "experts"),
        ("transformer.blocks.0.ffn.router.layer.weight", (8, 64), "router"),
        ("model.encoder.layers.30.self_attn.q_proj.weight", (64, 64), "attention"),
        ("layers.0.feed_forward.w1.weight", (128, 64), "mlp"),
        ("tok_embeddings.weight", (100, 64), "embedding"),
        ("output.weight", (100, 64), "head"),
        ("something.unheard.of", (64, 64), "other"),
    ],
)
def test_names_of_all_families(tmp_path: Path, name: str, shape: Sides, kind: str) -> None:
    spec = with_checkpoint(config_of(), write_safetensors(tmp_path / "m.safetensors", {name: ("BF16", shape)}))
    assert [part.kind for part in spec.checkpoint] == [kind]


def test_a_tied_head_that_is_stored_twice(tmp_path: Path) -> None:
    for tied, kind in ((True, "duplicate"), (False, "head")):
        spec = models.load(str(repository(tmp_path, LLAMA, tie_word_embeddings=tied)))
        assert stored(spec)[kind].parameters == 6400
        assert len({"duplicate", "head"} & stored(spec).keys()) == 1


def test_masks_and_rotary_tables_are_no_parameters_of_the_model(tmp_path: Path) -> None:
    extra: Shapes = {
        "model.layers.0.self_attn.rotary_emb.inv_freq": ("F32", (8,)),
        "h.1.attn.bias": ("F32", (1, 1, 32, 32)),
    }
    spec = models.load(str(repository(tmp_path, LLAMA | extra)))
    assert stored(spec)["buffer"] == Stored(kind="buffer", parameters=8 + 1024, bytes=4 * 1032, types="F32")
    assert sum(p.parameters for p in spec.checkpoint if p.kind != "buffer") == count_parameters(spec).total


# ------------------------------------------------------------------------------------------------ packed weights


def packed(replaced: Shapes) -> Shapes:
    """The usual model with one matrix stored in another way."""
    rest = {name: entry for name, entry in LLAMA.items() if name != f"{Q}.weight"}
    return rest | replaced


Q = "model.layers.0.self_attn.q_proj"


@pytest.mark.parametrize(
    "replaced",
    [
        {f"{Q}.weight": ("F8_E4M3", (64, 64)), f"{Q}.weight_scale_inv": ("F32", (1, 1))},
        {f"{Q}.weight": ("F8_E4M3", (64, 64)), f"{Q}.weight_scale": ("F32", ()), f"{Q}.input_scale": ("F32", ())},
        {f"{Q}.weight": ("I8", (64, 64)), f"{Q}.weight_scale": ("F32", (64, 1))},
        {f"{Q}.weight": ("F4", (64, 64)), f"{Q}.weight_scale": ("F8_E8M0", (64, 2))},
        {
            f"{Q}.weight": ("U8", (64, 32)),
            f"{Q}.weight_scale": ("F8_E4M3", (64, 4)),
            f"{Q}.weight_scale_2": ("F32", ()),
            f"{Q}.input_scale": ("F32", ()),
            f"{Q}.k_scale": ("F32", ()),
        },
        {
            f"{Q}.weight_packed": ("U8", (64, 32)),
            f"{Q}.weight_scale": ("F8_E4M3", (64, 4)),
            f"{Q}.weight_global_scale": ("F32", (1,)),
            f"{Q}.input_global_scale": ("F32", (1,)),
        },
        {
            f"{Q}.weight_packed": ("I32", (64, 8)),
            f"{Q}.weight_scale": ("BF16", (64, 2)),
            f"{Q}.weight_shape": ("I64", (2,)),
            f"{Q}.weight_zero_point": ("I32", (8, 2)),
        },
        # AWQ packs along the outputs, GPTQ along the inputs, in 4 bits and in 8.
        {f"{Q}.qweight": ("I32", (64, 8)), f"{Q}.qzeros": ("I32", (1, 8)), f"{Q}.scales": ("F16", (1, 64))},
        {
            f"{Q}.qweight": ("I32", (8, 64)),
            f"{Q}.qzeros": ("I32", (1, 8)),
            f"{Q}.scales": ("F16", (1, 64)),
            f"{Q}.g_idx": ("I32", (64,)),
        },
        {
            f"{Q}.qweight": ("I32", (16, 64)),
            f"{Q}.qzeros": ("I32", (1, 16)),
            f"{Q}.scales": ("F16", (1, 64)),
            f"{Q}.g_idx": ("I32", (64,)),
        },
        {f"{Q}.qweight": ("I32", (8, 64))},
        {
            f"{Q}.weight": ("U8", (2048, 1)),
            f"{Q}.weight.absmax": ("U8", (64,)),
            f"{Q}.weight.quant_map": ("F32", (16,)),
            f"{Q}.weight.quant_state.bitsandbytes__nf4": ("U8", (80,)),
        },
        {f"{Q}.weight": ("I8", (64, 32)), f"{Q}.scale": ("F8_E8M0", (64, 2))},
    ],
)
def test_packed_weights_count_as_what_they_mean(tmp_path: Path, replaced: Shapes) -> None:
    spec = models.load(str(repository(tmp_path, packed(replaced))))
    plain = stored(with_checkpoint(config_of(), write_safetensors(tmp_path / "plain.safetensors", LLAMA)))
    assert stored(spec)["attention"].parameters == plain["attention"].parameters
    assert sum(part.parameters for part in spec.checkpoint) == count_parameters(spec).total
    wanted = plain["attention"].bytes - 2 * 64 * 64 + size_of(replaced)
    assert stored(spec)["attention"].bytes == wanted
    assert stored(spec).keys() == plain.keys()


def test_experts_of_gpt_oss(tmp_path: Path) -> None:
    """32 weights are 16 bytes and a scale: 4.25 bits."""
    at = "model.layers.0.mlp.experts.down_proj"
    tensors: Shapes = {f"{at}_blocks": ("U8", (8, 64, 2, 16)), f"{at}_scales": ("U8", (8, 64, 2))}
    spec = with_checkpoint(config_of(), write_safetensors(tmp_path / "m.safetensors", tensors))
    (part,) = spec.checkpoint
    assert part == Stored(kind="experts", parameters=8 * 64 * 64, bytes=8 * 64 * 64 * 17 // 32, types="U8")


# ------------------------------------------------------------------------------------------------ hostile files


def one(dtype: Any = "U8", shape: Any = (4,), offsets: Any = (0, 4), size: int = 4, **more: Any) -> bytes:
    entry = {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}
    return safetensors({"t": entry}, size)


def two(begin: int, end: int, size: int) -> bytes:
    entry = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}
    return safetensors({"a": entry, "b": entry | {"shape": [end - begin], "data_offsets": [begin, end]}}, size)


ENTRY = '{"dtype":"U8","shape":[4],"data_offsets":[0,4]}'
HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "safetensors: got a file of 0 bytes"),
    "seven-bytes": (b"\x01" * 7, "safetensors: got a file of 7 bytes"),
    "length-0": (bytes(8), "got a file of 8 bytes, want 8 bytes and a header"),
    "length-a-terabyte": (
        struct.pack("<Q", 2**40) + b"{}",
        f"got a length of {2**40}, want at most {LARGEST_HEADER:,}",
    ),
    "length-2-64": (b"\xff" * 8 + b"{}", f"got a length of {2**64 - 1}"),
    "length-beyond-the-file": (struct.pack("<Q", 1000) + b"{}", "got a length of 1000, want at most the 2 bytes"),
    "not-an-object": (safetensors("[1, 2]"), "JSON: got something else, want an object that begins with {"),
    "space-in-front": (safetensors("  {}"), "JSON: got something else"),
    "malformed": (safetensors('{"a": '), "malformed JSON"),
    "not-utf-8": (safetensors(b'{"\xff": 1}'), "JSON: got bytes that are not UTF-8"),
    "half-a-surrogate": (safetensors('{"\\ud800": ' + ENTRY + "}", 4), "JSON: got bytes that are not UTF-8"),
    "nested-deeply": (safetensors('{"a":' + "[" * 100_000 + "]" * 100_000 + "}"), "JSON: got values nested too deeply"),
    "key-twice": (safetensors(f'{{"a": {ENTRY}, "a": {ENTRY}}}', 4), "JSON: got the key 'a' a second time"),
    "inner-key-twice": (safetensors('{"a": {"dtype": "U8", "dtype": "U8"}}', 4), "got the key 'dtype' a second time"),
    "not-a-number": (
        safetensors('{"a": {"dtype": "U8", "shape": [NaN], "data_offsets": [0, 4]}}', 4),
        "got the number NaN",
    ),
    "infinite": (
        safetensors('{"a": {"dtype": "U8", "shape": [1e999], "data_offsets": [0, 4]}}', 4),
        "the number 1e999",
    ),
    "fraction": (one(shape=(4.0,)), "JSON: got the number 4.0, want whole numbers"),
    "integer-of-5000-digits": (safetensors('{"a": ' + "9" * 5000 + "}"), "JSON: got the number 99"),
    "entry-a-number": (safetensors({"t": 5}), "t: got something else, want dtype, shape and data_offsets"),
    "entry-without-a-key": (safetensors({"t": {"dtype": "U8", "shape": [4]}}, 4), "t: got something else, want dtype"),
    "dtype-unknown": (one(dtype="F5"), "t: got dtype 'F5', want one of F4"),
    "dtype-a-list": (one(dtype=["U8"]), "t: got dtype ['U8']"),
    "shape-negative": (one(shape=(-4,)), "t: shape: got something else, want a list of whole numbers"),
    "shape-a-text": (one(shape="4"), "t: shape: got something else"),
    "shape-true": (one(shape=(True,)), "t: shape: got something else"),
    "shape-overflow": (one(shape=(2**32, 2**32)), "t: got shape 4294967296 x 4294967296, want fewer than 2^63 bits"),
    "shape-2-62": (one(dtype="F64", shape=(2**62,)), "want fewer than 2^63 bits"),
    "half-a-byte": (
        one(dtype="F4", shape=(3,), offsets=(0, 1), size=1),
        "t: got 3 elements of 4 bits, want whole bytes",
    ),
    "offsets-short": (one(offsets=(0, 3), size=3), "t: got data_offsets [0, 3], want a begin and an end 4 bytes later"),
    "offsets-reversed": (one(offsets=(4, 0)), "t: got data_offsets [4, 0]"),
    "offsets-three": (one(offsets=(0, 4, 8)), "t: got data_offsets [0, 4, 8]"),
    "offsets-one": (one(offsets=(0,)), "t: got data_offsets [0]"),
    "offsets-beyond-the-file": (
        one(shape=(2**40,), offsets=(0, 2**40)),
        f"got a file of 96 bytes, want {2**40 + 92}, the end of the last tensor",
    ),
    "hole-in-front": (one(offsets=(4, 8), size=8), "t: got data from 4: a hole before it, want data from 0"),
    "hole": (two(8, 12, 12), "b: got data from 8: a hole before it, want data from 4"),
    "overlap": (two(2, 6, 6), "b: got data from 2: an overlap with the tensor before it, want data from 4"),
    "data-missing": (one(size=3), "safetensors: got a file of"),
    "data-left-over": (one(size=5), "safetensors: got a file of"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_at_once(tmp_path: Path, name: str) -> None:
    content, wanted = HOSTILE[name]
    said, peak, seconds = cost_of_refusing(read_safetensors_header, write(tmp_path / f"{name}.safetensors", content))
    assert wanted in said
    assert said.startswith(str(tmp_path / f"{name}.safetensors"))
    assert "\n" not in said
    assert peak < 16
    assert seconds < 1


MANY = ",".join(f'"{i:x}":{{}}' for i in range(MOST_TENSORS))
LARGE: dict[str, tuple[str, str]] = {
    "many-entries": ("{" + MANY + "}", "0: got something else"),
    "too-many-entries": (
        "{" + '"":{},' * (MOST_TENSORS + 9) + "}",
        f"JSON: got more than {MOST_TENSORS + 2:,} times {{",
    ),
    "too-many-numbers": ('{"":[' + "1," * (MOST_COMMAS + 1) + "]}", f"JSON: got more than {MOST_COMMAS:,} times ,"),
    "many-numbers": ('{"":[' + "1," * (MOST_COMMAS - 9) + "1]}", ": got something else"),
    "too-many-lists": (
        '{"":[' + "[]," * (2 * MOST_TENSORS) + "]}",
        f"JSON: got more than {2 * MOST_TENSORS:,} times [",
    ),
    "one-long-text": ('{"":"' + "x" * (LARGEST_HEADER - 10) + '"}', ": got something else"),
    "wide-characters": ('{"":"' + "x" * 2**25 + '\U0001f600"}', "bytes that are not all ASCII"),
    "digits": ('{"":' + "9" * 2**25 + "}", "JSON: got the number 99"),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_headers_cost_little(tmp_path: Path, name: str) -> None:
    content, wanted = LARGE[name]
    said, peak, seconds = cost_of_refusing(
        read_safetensors_header, write(tmp_path / "m.safetensors", safetensors(content))
    )
    assert wanted in said
    assert peak < 256
    assert seconds < 1


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ({}, "weight_map: got nothing, want a mapping of tensors to files"),
        ({"weight_map": []}, "weight_map: got nothing"),
        ({"weight_map": {"t": 5}}, "weight_map: got 5, want the plain name of a .safetensors file"),
        ({"weight_map": {"t": "../m.safetensors"}}, "weight_map: got ../m.safetensors, want the plain name"),
        ({"weight_map": {"t": "/etc/m.safetensors"}}, "weight_map: got /etc/m.safetensors"),
        ({"weight_map": {"t": "a\\m.safetensors"}}, "weight_map: got a\\m.safetensors"),
        ({"weight_map": {"t": "..safetensors"}}, "weight_map: got ..safetensors"),
        ({"weight_map": {"t": "m.bin"}}, "weight_map: got m.bin"),
        ({"weight_map": {"t": "m.safetensors\n"}}, "weight_map: got m.safetensors\\x0a"),
        (
            {"weight_map": {str(i): f"{i}.safetensors" for i in range(5)}},
            "weight_map: got no 0.safetensors, 1.safetensors, 2.safetensors and 2 more, want all 5 shards",
        ),
        ({"weight_map": {"absent": "model.safetensors"}}, "weight_map: got absent, which no shard has"),
        ("{", "malformed JSON"),
    ],
)
def test_an_index_that_is_wrong(tmp_path: Path, index: Any, said: str) -> None:
    repository(tmp_path, LLAMA)
    (tmp_path / INDEX).write_text(index if isinstance(index, str) else json.dumps(index))
    for name in (tmp_path, tmp_path / INDEX):
        with pytest.raises(SpecError) as caught:
            models.load(str(name))
        assert said in str(caught.value)
        assert str(tmp_path / INDEX) in str(caught.value)


def test_a_tensor_in_two_files(tmp_path: Path) -> None:
    repository(tmp_path, LLAMA)
    write_safetensors(tmp_path / "other.safetensors", ENDS)
    with pytest.raises(SpecError, match=r"got the tensor in two files, want each tensor once"):
        models.load(str(tmp_path))


# ------------------------------------------------------------------------------------------------ fuzzing

SMALL_ENTRIES, SMALL_SIZE = laid_out({"a": ("BF16", (2, 3)), "b": ("U8", (5,)), "c": ("F32", ())})
SMALL = safetensors({"__metadata__": {"format": "pt"}} | SMALL_ENTRIES)
SCRATCH = Path(tempfile.mkdtemp()) / "m.safetensors"


def check(content: bytes, size: int | None = None) -> None:
    """Read a file of this content: it gives tensors, or an error of ours."""
    try:
        said = str(with_checkpoint(config_of(), write(SCRATCH, content, size)))
    except RoofplanError as error:
        said = str(error)
    assert "\n" not in said


FUZZING = settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("path", sorted(FUZZ.glob("*.safetensors")), ids=lambda path: path.name)
def test_the_saved_corpus(path: Path) -> None:
    check(path.read_bytes())


@FUZZING
@given(st.binary(max_size=200))
@example(b"")
@example(b"\xff" * 16)
def test_any_bytes(content: bytes) -> None:
    check(content)
    check(safetensors(content))
    check(safetensors(b"{" + content + b"}"))


@FUZZING
@given(st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.binary(min_size=1, max_size=4)), min_size=1, max_size=4))
@example([(0, b"\xff" * 8)])
def test_good_files_with_bytes_overwritten(edits: list[tuple[int, bytes]]) -> None:
    content = bytearray(SMALL)
    for at, new in edits:
        content[at : at + len(new)] = new
    check(bytes(content), len(SMALL) + SMALL_SIZE)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@FUZZING
@given(st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets", "x"]), anything), st.sampled_from("abz"))
@example({"shape": [0]}, "a")
@example({"data_offsets": [0, 2**64]}, "a")
def test_good_files_with_other_values(changed: dict[str, Any], name: str) -> None:
    entries = {**SMALL_ENTRIES, name: {**SMALL_ENTRIES.get(name, {}), **changed}}
    content = safetensors(entries)
    check(content, len(content) + SMALL_SIZE)
