"""GGUF files of all families: their layers are those that the configuration of the same model gives."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from gguf_models import (
    BLOCK,
    HIDDEN,
    KEYS,
    LAYERS,
    TENSORS,
    VOCAB,
    assert_exact,
    assert_same_shape,
    from_config,
    model,
    read,
)
from weight_files import Sides, attention, mlp, model_keys, model_tensors, norms, size_of

from roofplan.errors import SpecError
from roofplan.models.spec import Attention, LatentAttention, ModelSpec, Recurrent


def test_biases_as_in_qwen_2(tmp_path: Path) -> None:
    biases: dict[str, Sides] = {"attn_q.bias": (256,), "attn_k.bias": (128,), "attn_v.bias": (128,)}
    spec = model(tmp_path, model_keys("qwen2", HIDDEN, LAYERS, 4, 2), [BLOCK | biases] * LAYERS)
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    assert_same_shape(spec, from_config(model_type="qwen2", intermediate_size=512, **heads))


@pytest.mark.parametrize("stacked", [True, False])
def test_mixtral_with_stacked_and_with_single_experts(tmp_path: Path, stacked: bool) -> None:
    experts = mlp(HIDDEN, 512, "_exps", copies=8)
    if not stacked:
        experts = {name: sides for i in range(8) for name, sides in mlp(HIDDEN, 512, f".{i}").items()}
    block = attention(HIDDEN, 256, 128) | experts | {"ffn_gate_inp.weight": (HIDDEN, 8)} | norms(HIDDEN)
    keys = model_keys("llama", HIDDEN, LAYERS, 4, 2, expert_count=8, expert_used_count=2)
    spec = model(tmp_path, keys, [block] * LAYERS)
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 8, "num_experts_per_tok": 2}
    assert_same_shape(spec, from_config(model_type="mixtral", intermediate_size=512, **heads))


def deepseek_blocks(*, split: bool, q_lora: bool = True) -> list[dict[str, Sides]]:
    """A dense layer, then experts with a shared one; 4 heads of 32 + 16, values of 32, latents of 64 and 96."""
    down: dict[str, Sides] = {
        "attn_q_a.weight": (HIDDEN, 96),
        "attn_q_a_norm.weight": (96,),
        "attn_q_b.weight": (96, 4 * 48),
    }
    mixer: dict[str, Sides] = (down if q_lora else {"attn_q.weight": (HIDDEN, 4 * 48)}) | {
        "attn_kv_a_mqa.weight": (HIDDEN, 64 + 16),
        "attn_kv_a_norm.weight": (64,),
        "attn_output.weight": (4 * 32, HIDDEN),
    }
    halves: dict[str, Sides] = {"attn_k_b.weight": (32, 64, 4), "attn_v_b.weight": (64, 32, 4)}
    mixer |= halves if split else {"attn_kv_b.weight": (64, 4 * 64)}
    sparse = mlp(HIDDEN, 128, "_exps", copies=8) | mlp(HIDDEN, 256, "_shexp")
    sparse |= {"ffn_gate_inp.weight": (HIDDEN, 8), "exp_probs_b.bias": (8,)}
    return [mixer | norms(HIDDEN) | mlp(HIDDEN, 512)] + [mixer | norms(HIDDEN) | sparse] * (LAYERS - 1)


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("q_lora", [True, False])
def test_latent_attention(tmp_path: Path, split: bool, q_lora: bool) -> None:  # bug case 7
    said = (
        {"key_length_mla": 48, "value_length_mla": 32, "key_length": 80}
        if split
        else {"key_length": 48, "value_length": 32}
    )
    keys = model_keys("deepseek2", HIDDEN, LAYERS, 4, 1 if split else 4, expert_count=8, expert_used_count=2)
    keys |= {f"deepseek2.attention.{key}": value for key, value in {**said, "kv_lora_rank": 64}.items()}
    spec = model(tmp_path, keys, deepseek_blocks(split=split, q_lora=q_lora), type_name="Q8_0")
    wanted = from_config(
        model_type="deepseek_v3",
        num_attention_heads=4,
        q_lora_rank=96 if q_lora else None,
        kv_lora_rank=64,
        qk_nope_head_dim=32,
        qk_rope_head_dim=16,
        v_head_dim=32,
        intermediate_size=512,
        moe_intermediate_size=128,
        n_routed_experts=8,
        n_shared_experts=2,
        num_experts_per_tok=2,
        first_k_dense_replace=1,
        scoring_func="sigmoid",
    )
    assert_same_shape(spec, wanted)
    assert ("caches expanded keys" in " ".join(spec.assumed)) is not split


def test_sparse_attention_with_an_indexer(tmp_path: Path) -> None:
    index: dict[str, Sides] = {
        "indexer.attn_q_b.weight": (96, 2 * 32),
        "indexer.attn_k.weight": (HIDDEN, 32),
        "indexer.proj.weight": (HIDDEN, 2),
        "indexer.k_norm.weight": (32,),
        "indexer.k_norm.bias": (32,),
    }
    keys = model_keys("deepseek32", HIDDEN, LAYERS, 4, 1, expert_used_count=2)
    keys |= {"deepseek32.attention.kv_lora_rank": 64, "deepseek32.attention.indexer.top_k": 2048}
    spec = model(tmp_path, keys, [block | index for block in deepseek_blocks(split=True)], type_name="Q8_0")
    mixer = spec.layers[0].attention[0]
    assert isinstance(mixer, LatentAttention)
    assert mixer.indexer is not None
    assert (mixer.indexer.num_heads, mixer.indexer.head_dim, mixer.indexer.top_k) == (2, 32, 2048)


def test_an_indexer_that_later_layers_share(tmp_path: Path) -> None:
    own: dict[str, Sides] = {"indexer.attn_q_b.weight": (96, 64), "indexer.attn_k.weight": (HIDDEN, 32)}
    keys = model_keys("glm-dsa", HIDDEN, LAYERS, 4, 1, expert_used_count=2) | {"glm-dsa.attention.kv_lora_rank": 64}
    keys |= {f"glm-dsa.attention.indexer.{key}": n for key, n in (("head_count", 2), ("key_length", 32), ("top_k", 64))}
    first, *rest = deepseek_blocks(split=True)
    spec = read(tmp_path, keys, model_tensors(HIDDEN, VOCAB, [first | own, *rest], "Q8_0"))
    mixers = [m for group in spec.layers for m in group.attention if isinstance(m, LatentAttention)]
    assert [m.indexer is not None and m.indexer.shared for m in mixers] == [False, True]


def delta_net_block() -> dict[str, Sides]:
    """2 key heads and 4 value heads of 64; the block has attn_qkv, which is not attention."""
    return norms(HIDDEN, "attn_norm", "post_attention_norm") | {
        "attn_qkv.weight": (HIDDEN, 2 * 128 + 256),
        "attn_gate.weight": (HIDDEN, 256),
        "ssm_ba.weight": (HIDDEN, 8),
        "ssm_conv1d.weight": (4, 512),
        "ssm_out.weight": (256, HIDDEN),
        "ssm_norm.weight": (64,),
        "ssm_a": (4,),
        "ssm_dt.bias": (4,),
    }


def test_a_hybrid_with_gated_delta_nets(tmp_path: Path) -> None:  # bug case 12
    gated = attention(HIDDEN, 2 * 256, 128) | {"attn_q_norm.weight": (64,), "attn_k_norm.weight": (64,)}
    gated |= norms(HIDDEN, "attn_norm", "post_attention_norm") | {"attn_output.weight": (256, HIDDEN)}
    part = mlp(HIDDEN, 128, "_exps", copies=8) | mlp(HIDDEN, 128, "_shexp")
    part |= {"ffn_gate_inp.weight": (HIDDEN, 8), "ffn_gate_inp_shexp.weight": (HIDDEN,)}
    keys = model_keys("qwen3next", HIDDEN, LAYERS, 4, 2, expert_used_count=2, full_attention_interval=4)
    sizes = {"conv_kernel": 4, "inner_size": 256, "state_size": 64, "time_step_rank": 4, "group_count": 2}
    keys |= {f"qwen3next.ssm.{key}": value for key, value in sizes.items()}
    tensors = model_tensors(HIDDEN, VOCAB, [delta_net_block() | part] * 3 + [gated | part], "Q8_0")
    tensors = [(name, sides, "F32" if sides[0] % 32 else kind) for name, sides, kind in tensors]
    spec = read(tmp_path, keys, tensors)
    assert_exact(spec, tensors)
    wanted = from_config(
        model_type="qwen3_next",
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=64,
        linear_value_head_dim=64,
        linear_conv_kernel_dim=4,
        num_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=128,
        shared_expert_intermediate_size=128,
    )
    assert_same_shape(spec, wanted)


def mamba2_block() -> dict[str, Sides]:
    """8 heads of 32, 2 groups, states of 16."""
    return {
        "ssm_in.weight": (HIDDEN, 2 * 256 + 2 * 2 * 16 + 8),
        "ssm_conv1d.weight": (4, 256 + 64),
        "ssm_conv1d.bias": (320,),
        "ssm_dt.bias": (8,),
        "ssm_a": (1, 8),
        "ssm_d": (1, 8),
        "ssm_norm.weight": (256,),
        "ssm_out.weight": (256, HIDDEN),
    }


SSM = {"conv_kernel": 4, "inner_size": 256, "state_size": 16, "time_step_rank": 8, "group_count": 2}


def test_attention_and_mamba_side_by_side(tmp_path: Path) -> None:
    keys = model_keys("falcon-h1", HIDDEN, LAYERS, 4, 2) | {f"falcon-h1.ssm.{key}": value for key, value in SSM.items()}
    tensors = model_tensors(HIDDEN, VOCAB, [BLOCK | mamba2_block()] * LAYERS, "F16")
    spec = read(tmp_path, keys, tensors)
    assert_exact(spec, tensors)
    wanted = from_config(
        model_type="falcon_h1",
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=512,
        mamba_n_heads=8,
        mamba_d_head=32,
        mamba_n_groups=2,
        mamba_d_state=16,
        mamba_d_conv=4,
    )
    assert_same_shape(spec, wanted)


def test_one_part_a_layer_as_in_nemotron_h(tmp_path: Path) -> None:
    heads, widths = [0, 4, 0, 0], [0, 0, 512, 0]
    keys = model_keys("nemotron_h", HIDDEN, LAYERS, heads, [0, 2, 0, 0], feed_forward_length=widths)
    keys |= {f"nemotron_h.ssm.{key}": value for key, value in SSM.items()}
    norm = norms(HIDDEN, "attn_norm")
    blocks = [mamba2_block() | norm, attention(HIDDEN, 256, 128) | norm, mlp(HIDDEN, 512, gated=False) | norm]
    spec = model(tmp_path, keys, [*blocks, mamba2_block() | norm], type_name="F16")
    assert [(group.count, len(group.attention), len(group.mlp), group.norms) for group in spec.layers] == [
        *((2, 1, 0, 1), (1, 1, 0, 1)),
        (1, 0, 1, 1),
    ]


@pytest.mark.parametrize("full_rank", [True, False])
def test_kimi_delta_attention(tmp_path: Path, full_rank: bool) -> None:
    gate: dict[str, Sides] = {"ssm_g.weight": (HIDDEN, 256)}
    if not full_rank:
        gate = {"ssm_g_a.weight": (HIDDEN, 64), "ssm_g_b.weight": (64, 256)}
    block = norms(HIDDEN) | mlp(HIDDEN, 512) | gate | attention(HIDDEN, 256, 256)
    block |= {f"ssm_conv1d_{part}.weight": (4, 256) for part in "qkv"}
    block |= {"ssm_f_a.weight": (HIDDEN, 64), "ssm_f_b.weight": (64, 256), "ssm_beta.weight": (HIDDEN, 4)}
    block |= {"ssm_a": (4,), "ssm_dt.bias": (256,), "ssm_norm.weight": (64,)}
    keys = model_keys("kimi-linear", HIDDEN, 1, 4, [0], ssm__conv_kernel=4, kda__head_dim=64)
    spec = model(tmp_path, keys, [block], type_name="F16")
    (recurrent,) = spec.layers[0].attention
    assert isinstance(recurrent, Recurrent)
    assert (recurrent.variant, recurrent.state.elements) == ("kimi delta attention", 4 * 64 * 64)


def test_mamba_1_as_in_jamba(tmp_path: Path) -> None:
    block = (
        norms(HIDDEN)
        | mlp(HIDDEN, 512)
        | {
            "ssm_in.weight": (HIDDEN, 1024),
            "ssm_conv1d.weight": (4, 512),
            "ssm_conv1d.bias": (512,),
            "ssm_x.weight": (512, 16 + 2 * 8),
            "ssm_dt.weight": (16, 512),
            "ssm_dt.bias": (512,),
            "ssm_dt_norm.weight": (16,),
            "ssm_b_norm.weight": (8,),
            "ssm_c_norm.weight": (8,),
            "ssm_a": (8, 512),
            "ssm_d": (512,),
            "ssm_out.weight": (512, HIDDEN),
        }
    )
    spec = model(tmp_path, model_keys("jamba", HIDDEN, 1, [0], [0]), [block], type_name="F16")
    (group,) = spec.layers
    (recurrent,) = group.attention
    assert isinstance(recurrent, Recurrent)
    assert (recurrent.variant, recurrent.state.elements) == ("mamba1", 512 * 8)


def test_gemma_3(tmp_path: Path) -> None:  # bug case 8
    block = attention(HIDDEN, 256, 128) | mlp(HIDDEN, 512) | {"attn_q_norm.weight": (64,), "attn_k_norm.weight": (64,)}
    block |= norms(HIDDEN, "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
    keys = model_keys("gemma3", HIDDEN, 12, 4, 2, attention__sliding_window=1024, attention__key_length=64)
    spec = model(tmp_path, keys, [block] * 12, tied=True)
    wanted = from_config(
        model_type="gemma3_text",
        num_hidden_layers=12,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        sliding_window=1024,
        intermediate_size=512,
    )
    assert_same_shape(spec, wanted)
    assert [group.count for group in spec.layers] == [10, 2]


def gemma4_block(width: int, *, stores: bool) -> dict[str, Sides]:
    mixer = attention(HIDDEN, 4 * width, 2 * width) | {"attn_q_norm.weight": (width,)}
    if not stores:
        mixer = {name: sides for name, sides in mixer.items() if name not in {"attn_k.weight", "attn_v.weight"}}
    return mixer | ({"attn_k_norm.weight": (width,)} if stores else {}) | mlp(HIDDEN, 512) | norms(HIDDEN)


def test_two_head_sizes_and_shared_caches(tmp_path: Path) -> None:  # bug case 9
    keys = model_keys("gemma4", HIDDEN, 4, 4, 2, attention__sliding_window=512, attention__shared_kv_layers=2)
    keys |= {f"gemma4.attention.{key}": 128 for key in ("key_length", "value_length")}
    keys |= {f"gemma4.attention.{key}_swa": 64 for key in ("key_length", "value_length")}
    keys["gemma4.attention.sliding_window_pattern"] = [True, False, True, False]
    blocks = [gemma4_block(width, stores=stores) for stores in (True, False) for width in (64, 128)]
    spec = model(tmp_path, keys, blocks, tied=True)
    assert [(m.kind, m.head_dim, m.cache, m.projections) for m in attentions(spec)] == [
        *(("sliding", 64, "own", "kv"), ("full", 128, "own", "kv")),
        *(("sliding", 64, "shared", "none"), ("full", 128, "shared", "none")),
    ]


def attentions(spec: ModelSpec) -> list[Attention]:
    """All usual attention, a layer each."""
    return [m for group in spec.layers for _ in range(group.count) for m in group.attention if isinstance(m, Attention)]


def windows(tmp_path: Path, architecture: str, layers: int = 8, **keys: Any) -> list[int | None]:
    spec = model(tmp_path, model_keys(architecture, HIDDEN, layers, 4, 2, **keys), [BLOCK] * layers)
    return sorted((m.window for m in attentions(spec)), key=lambda window: window or 0)


@pytest.mark.parametrize(
    ("architecture", "full"),
    [("gemma2", 4), ("gpt-oss", 4), ("cohere2", 2), ("exaone4", 2), ("gemma3n", 1), ("smallthinker", 2), ("phi3", 8)],
)
def test_windows_of_architectures_that_do_not_say_them(tmp_path: Path, architecture: str, full: int) -> None:
    assert windows(tmp_path, architecture, attention__sliding_window=128).count(None) == full


def test_a_period_in_the_file_outranks_the_table(tmp_path: Path) -> None:
    said = {"attention__sliding_window": 128}
    assert windows(tmp_path, "gemma3", attention__sliding_window_pattern=2, **said).count(None) == 4
    assert windows(tmp_path, "gemma3", attention__sliding_window_pattern=1, **said).count(None) == 8
    assert windows(tmp_path, "gemma3", attention__sliding_window_pattern=0, **said).count(None) == 0


def test_windows_that_do_not_bite_or_are_switched_off(tmp_path: Path) -> None:
    assert windows(tmp_path, "gemma2", attention__sliding_window=8192).count(None) == 8
    assert windows(tmp_path, "gemma2", attention__sliding_window=0).count(None) == 8
    assert windows(tmp_path, "exaone4").count(None) == 8


def test_a_window_without_a_known_pattern_is_said(tmp_path: Path) -> None:
    keys = model_keys("unheard", HIDDEN, LAYERS, 4, 2, attention__sliding_window=128)
    spec = model(tmp_path, keys, [BLOCK] * LAYERS)
    assert {m.kind for m in attentions(spec)} == {"full"}
    assert "does not say for which layers" in " ".join(spec.assumed)


def test_llama_4_is_chunked_without_saying_so(tmp_path: Path) -> None:
    keys = model_keys("llama4", HIDDEN, LAYERS, 4, 2) | {"llama4.context_length": 2**20}
    spec = model(tmp_path, keys, [BLOCK] * LAYERS)
    assert [(m.kind, m.window) for m in attentions(spec)] == [("chunked", 8192)] * 3 + [("full", None)]


def test_gpt_oss(tmp_path: Path) -> None:
    width = {"attn_q.bias": (256,), "attn_k.bias": (128,), "attn_v.bias": (128,), "attn_output.bias": (HIDDEN,)}
    block = attention(HIDDEN, 256, 128) | width | {"attn_sinks.weight": (4,)} | mlp(HIDDEN, 256, "_exps", copies=8)
    block |= norms(HIDDEN, "attn_norm", "post_attention_norm")
    block |= {"ffn_gate_inp.weight": (HIDDEN, 8), "ffn_gate_inp.bias": (8,), "ffn_gate_exps.bias": (256, 8)}
    block |= {"ffn_up_exps.bias": (256, 8), "ffn_down_exps.bias": (HIDDEN, 8)}
    keys = model_keys("gpt-oss", HIDDEN, LAYERS, 4, 2, expert_used_count=4, attention__sliding_window=128)
    spec = model(tmp_path, keys, [block] * LAYERS, type_name="MXFP4")
    wanted = from_config(
        model_type="gpt_oss",
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        sliding_window=128,
        intermediate_size=256,
        num_local_experts=8,
        num_experts_per_tok=4,
        attention_bias=True,
    )
    assert_same_shape(spec, wanted)


def test_fused_projections_as_in_phi_3(tmp_path: Path) -> None:
    block = norms(HIDDEN) | {
        "attn_qkv.weight": (HIDDEN, 256 + 2 * 128),
        "attn_output.weight": (256, HIDDEN),
        "ffn_up.weight": (HIDDEN, 2 * 512),
        "ffn_down.weight": (512, HIDDEN),
    }
    spec = model(tmp_path, model_keys("phi3", HIDDEN, LAYERS, 4, 2), [block] * LAYERS)
    plain = read(tmp_path, KEYS, TENSORS)
    assert spec.layers == plain.layers


def test_two_matrices_biases_and_positions_as_in_gpt_2(tmp_path: Path) -> None:
    fused: dict[str, Sides] = {"attn_qkv.weight": (HIDDEN, 768), "attn_output.weight": (HIDDEN, HIDDEN)}
    biases: dict[str, Sides] = {"attn_qkv.bias": (768,), "attn_output.bias": (HIDDEN,), "ffn_up.bias": (1024,)}
    biases |= {"ffn_down.bias": (HIDDEN,), "attn_norm.bias": (HIDDEN,), "ffn_norm.bias": (HIDDEN,)}
    block = fused | mlp(HIDDEN, 1024, gated=False) | biases | norms(HIDDEN)
    tensors = model_tensors(HIDDEN, VOCAB, [block] * LAYERS, "F16", tied=True)
    tensors += [("position_embd.weight", (HIDDEN, 512), "F32"), ("output_norm.bias", (HIDDEN,), "F32")]
    spec = read(tmp_path, model_keys("gpt2", HIDDEN, LAYERS, 4, None), tensors)
    assert_exact(spec, tensors)
    wanted = from_config(model_type="gpt2", n_embd=HIDDEN, n_layer=LAYERS, n_head=4, n_positions=512)
    assert_same_shape(spec, dataclasses.replace(wanted, max_context=8192))


def test_layers_without_anything(tmp_path: Path) -> None:
    keys = model_keys("deci", HIDDEN, 3, [4, 0, 4], [2, 0, 2], feed_forward_length=[512, 0, 512])
    spec = model(tmp_path, keys, [BLOCK, {}, BLOCK])
    assert [(group.count, len(group.attention)) for group in spec.layers] == [(2, 1), (1, 0)]
    keys = model_keys("deci", HIDDEN, 3, 4, 2, feed_forward_length=512)
    with pytest.raises(SpecError, match="no tensors for block 1"):
        model(tmp_path, keys, [BLOCK, {}, BLOCK])


def test_draft_layers_are_stored_apart(tmp_path: Path) -> None:
    draft = BLOCK | {"nextn.eh_proj.weight": (2 * HIDDEN, HIDDEN), "nextn.enorm.weight": (HIDDEN,)}
    keys = model_keys("glm4moe", HIDDEN, LAYERS + 1, 4, 2, nextn_predict_layers=1)
    spec = model(tmp_path, keys, [BLOCK] * LAYERS + [draft])
    assert spec.num_layers == LAYERS
    wanted = sum(size_of(sides, "F32" if len(sides) == 1 else "Q4_K") for sides in draft.values())
    assert [part.bytes for part in spec.checkpoint if part.kind == "mtp"] == [wanted]
