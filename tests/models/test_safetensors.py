"""Safetensors headers and what they say of a checkpoint: exact bytes, logical weights, classes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors_models import LLAMA, Shapes, config_of, repository, size_of, stored
from weight_files import BITS, Sides, laid_out, safetensors, write, write_safetensors

from roofplan import models
from roofplan.errors import SpecError
from roofplan.models.safetensors import DTYPE_BITS, INDEX, read_safetensors_header, with_checkpoint
from roofplan.models.spec import Stored
from roofplan.planner.parameters import count_parameters

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


def test_a_part_without_an_index_brings_its_siblings(tmp_path: Path) -> None:
    wanted = models.load(str(repository(tmp_path, LLAMA, shards=2)))
    (tmp_path / INDEX).unlink()
    assert models.load(str(tmp_path / "model-00002-of-00002.safetensors")).checkpoint == wanted.checkpoint


@pytest.mark.parametrize("name", ["", "model-00001-of-00003.safetensors"])
def test_a_missing_part_without_an_index_is_named(tmp_path: Path, name: str) -> None:
    repository(tmp_path, LLAMA, shards=3)
    (tmp_path / INDEX).unlink()
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(SpecError, match=r"got no model-00002-of-00003\.safetensors, want all 3 parts"):
        models.load(str(tmp_path / name))


def test_a_part_with_a_number_that_its_set_does_not_have(tmp_path: Path) -> None:
    repository(tmp_path, LLAMA)
    (tmp_path / "model.safetensors").rename(tmp_path / "model-00003-of-00002.safetensors")
    with pytest.raises(SpecError, match=r"got model-00003-of-00002\.safetensors, want a part of 1 to 2"):
        models.load(str(tmp_path))


def test_an_adapter_in_the_folder_is_not_part_of_the_weights(tmp_path: Path) -> None:
    wanted = models.load(str(repository(tmp_path, LLAMA)))
    lora = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    write_safetensors(tmp_path / "adapter_model.safetensors", {lora: ("BF16", (8, 64))})
    assert models.load(str(tmp_path)).checkpoint == wanted.checkpoint


def test_an_adapter_alone_is_no_checkpoint(tmp_path: Path) -> None:
    repository(tmp_path, LLAMA)
    (tmp_path / "model.safetensors").rename(tmp_path / "adapter_model.safetensors")
    assert models.load(str(tmp_path)).checkpoint == ()


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
