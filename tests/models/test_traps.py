"""Every trap of a configuration's fields, one test each: what the key seems to say, and what it means."""

import json

import pytest
import reference
from shapes import number_format
from traps import GEMMA3, LLAMA, QWEN3, config, layers_of, mixers, parts

import roofplan
from roofplan import models
from roofplan.documents import Document
from roofplan.errors import DomainError, SpecError, UnknownNameError
from roofplan.models.spec import Attention, LatentAttention, Mlp, Moe, Recurrent
from roofplan.planner.costs import Load
from roofplan.planner.kv_cache import cache_layout
from roofplan.planner.parameters import count_parameters


class TestHeads:
    def test_head_dim_is_read_and_not_divided(self) -> None:
        assert mixers(config(QWEN3))[0].head_dim == 128  # 5120 / 64 would be 80
        assert mixers(config("mistralai/Mistral-Nemo-Instruct-2407"))[0].head_dim == 128  # 5120 / 32 would be 160
        assert mixers(config("openai/gpt-oss-20b"))[0].head_dim == 64  # 2880 / 64 would be 45

    def test_an_absent_or_null_head_dim_is_the_class_default(self) -> None:
        assert mixers(config(LLAMA, head_dim=None))[0].head_dim == 128
        assert mixers(config(LLAMA, head_dim=...))[0].head_dim == 128

    def test_a_head_dim_that_does_not_divide_is_an_error_and_not_a_guess(self) -> None:
        with pytest.raises(SpecError, match="head_dim"):
            config(LLAMA, head_dim=..., num_attention_heads=24, num_key_value_heads=8)

    def test_absent_kv_heads_mean_as_many_as_heads(self) -> None:
        assert mixers(config(LLAMA, num_key_value_heads=...))[0].num_kv_heads == 32

    @pytest.mark.parametrize(
        ("hf_id", "kv_heads"),
        [
            ("tiiuae/falcon-7b", 1),  # multi_query
            ("tiiuae/falcon-40b", 8),  # num_kv_heads, new_decoder_architecture
            ("THUDM/glm-4-9b-chat", 2),  # multi_query_group_num
            ("databricks/dbrx-instruct", 8),  # attn_config.kv_n_heads
            ("microsoft/phi-2", 32),  # n_head_kv null
            ("bigcode/gpt_bigcode-santacoder", 1),  # multi_query
            ("nvidia/Llama-3_3-Nemotron-Super-49B-v1", 8),  # heads / n_heads_in_group
        ],
    )
    def test_kv_heads_by_other_names(self, hf_id: str, kv_heads: int) -> None:
        assert mixers(config(hf_id))[0].num_kv_heads == kv_heads


class TestLatentAttention:
    def test_kv_heads_say_nothing_about_the_cache(self) -> None:
        assert (
            cache_layout(
                config("deepseek-ai/DeepSeek-V3", num_key_value_heads=1), number_format("bf16")
            ).bytes_per_token
            == 70272
        )

    def test_no_query_rank_is_a_plain_projection(self) -> None:
        lite = config("deepseek-ai/DeepSeek-V2-Lite")
        assert mixers(lite)[0].q_lora_rank is None

    def test_head_dim_is_not_used(self) -> None:
        assert config("zai-org/GLM-5", head_dim=64).layers == config("zai-org/GLM-5", head_dim=192).layers

    def test_index_keys_only_on_layers_that_own_them(self) -> None:
        cache = cache_layout(config("zai-org/GLM-5.2"), number_format("bf16"))
        assert cache.index_bytes_per_token == 21 * 128 * 2
        assert cache.bytes_per_token == 78 * 576 * 2


class TestWindows:
    def test_qwens_window_is_off_unless_switched_on(self) -> None:
        assert layers_of(config("Qwen/Qwen2.5-7B", sliding_window=4096, use_sliding_window=False), "sliding") == 0
        on = config("Qwen/Qwen2.5-7B", sliding_window=4096, use_sliding_window=True, max_window_layers=20)
        assert (layers_of(on, "full"), layers_of(on, "sliding")) == (20, 8)

    @pytest.mark.parametrize(
        ("hf_id", "full", "sliding"),
        [
            ("mistralai/Mistral-7B-v0.1", 0, 32),
            ("mistralai/Mistral-7B-Instruct-v0.3", 32, 0),  # null
            ("mistralai/Ministral-8B-Instruct-2410", 36, 0),  # as long as the context
            ("microsoft/Phi-3-mini-4k-instruct", 0, 32),
            ("microsoft/Phi-3-mini-128k-instruct", 32, 0),  # beyond the context
            ("google/gemma-2-27b-it", 23, 23),  # no pattern in the file
            (GEMMA3, 10, 52),
            ("CohereLabs/c4ai-command-r7b-12-2024", 8, 24),
            ("allenai/Olmo-3-7B-Instruct", 8, 24),
            ("LGAI-EXAONE/EXAONE-4.0-32B", 16, 48),
            ("openai/gpt-oss-20b", 12, 12),
            ("XiaomiMiMo/MiMo-V2-Flash", 9, 39),
            ("bigcode/starcoder2-7b", 0, 32),
        ],
    )
    def test_which_layers_slide(self, hf_id: str, full: int, sliding: int) -> None:
        spec = config(hf_id)
        assert (layers_of(spec, "full"), layers_of(spec, "sliding")) == (full, sliding)

    def test_listed_layer_types_outrank_the_pattern(self) -> None:
        listed = config(GEMMA3, layer_types=["full_attention"] * 62)
        assert layers_of(listed, "full") == 62

    def test_a_list_that_is_too_short_is_an_error(self) -> None:
        with pytest.raises(SpecError, match="one for each of 62 layers"):
            config(GEMMA3, layer_types=["full_attention"] * 61)

    def test_keys_and_values_of_different_widths(self) -> None:
        full = next(m for m in mixers(config("XiaomiMiMo/MiMo-V2-Flash")) if m.kind == "full")
        assert (full.head_dim, full.value_dim, full.num_kv_heads) == (192, 128, 4)

    def test_chunked_layers_and_their_experts(self) -> None:
        scout, maverick = (
            config("meta-llama/Llama-4-Scout-17B-16E-Instruct"),
            config("meta-llama/Llama-4-Maverick-17B-128E-Instruct"),
        )
        assert (layers_of(scout, "chunked"), layers_of(scout, "full")) == (36, 12)
        assert all(isinstance(part, Moe) for part in parts(scout))
        dense = {part.intermediate_size for part in parts(maverick) if isinstance(part, Mlp)}
        assert dense == {16384}


class TestSharing:
    def test_gemma_3n_keeps_projections_that_gemma_4_drops(self) -> None:
        shared = [
            [m for m in mixers(config(f"google/{name}")) if m.cache == "shared"]
            for name in ("gemma-3n-E4B-it", "gemma-4-E2B-it")
        ]
        assert {m.projections for m in shared[0]} == {"kv"}
        assert {m.projections for m in shared[1]} == {"none"}

    def test_hunyuans_share_factor_is_inert(self) -> None:
        assert (
            cache_layout(config("tencent/Hunyuan-A13B-Instruct"), number_format("bf16")).bytes_per_token
            == 32 * 2 * 8 * 128 * 2
        )


class TestGemma4:
    SPEC = config("google/gemma-4-26B-A4B")

    def test_full_layers_have_their_own_heads(self) -> None:
        full = next(m for m in mixers(self.SPEC) if m.kind == "full")
        local = next(m for m in mixers(self.SPEC) if m.kind == "sliding")
        assert (full.head_dim, full.num_kv_heads, local.head_dim, local.num_kv_heads) == (512, 2, 256, 8)

    def test_values_without_weights_are_cached_all_the_same(self) -> None:
        assert next(m for m in mixers(self.SPEC) if m.kind == "full").projections == "k"
        assert cache_layout(self.SPEC, number_format("bf16")).bytes_per_token == 5 * 2 * 2 * 512 * 2

    def test_an_mlp_runs_beside_the_experts(self) -> None:
        assert all(len(group.mlp) == 2 for group in self.SPEC.layers)

    def test_tables_of_per_layer_inputs_are_looked_up(self) -> None:
        from shapes import HH, step_model

        small = config("google/gemma-4-E2B-it")
        table = 262144 * 35 * 256
        assert any(other.count == table and not other.read_per_step for other in small.other_parameters)
        assert step_model(small, HH).totals(Load(1, 1))[1] < 2 * (count_parameters(small).total - table)

    def test_layers_that_share_have_a_wider_mlp(self) -> None:
        assert {part.intermediate_size for part in parts(config("google/gemma-4-E2B-it"))} == {6144, 12288}


class TestExperts:
    @pytest.mark.parametrize(
        ("hf_id", "experts", "chosen", "width"),
        [
            ("deepseek-ai/DeepSeek-V3", 256, 8, 2048),
            ("mistralai/Mixtral-8x7B-v0.1", 8, 2, 14336),
            ("Qwen/Qwen3-30B-A3B", 128, 8, 768),
            ("moonshotai/Kimi-Linear-48B-A3B-Instruct", 256, 8, 1024),
            ("tencent/Hunyuan-A13B-Instruct", 64, 8, 3072),  # lists
            ("baidu/ERNIE-4.5-21B-A3B-PT", 64, 6, 1536),
            ("databricks/dbrx-instruct", 16, 4, 10752),
            ("openai/gpt-oss-20b", 32, 4, 2880),
            ("xai-org/grok-1", 8, 2, 32768),  # not 8 x 6144
            ("ibm-granite/granite-4.0-h-small", 72, 10, 768),
        ],
    )
    def test_counts_by_other_names(self, hf_id: str, experts: int, chosen: int, width: int) -> None:
        moe = next(part for part in parts(config(hf_id)) if isinstance(part, Moe))
        assert (moe.num_experts, moe.experts_per_token, moe.intermediate_size) == (experts, chosen, width)

    @pytest.mark.parametrize(
        ("hf_id", "dense"),
        [
            ("deepseek-ai/DeepSeek-V3", 3),
            ("Qwen/Qwen3-30B-A3B", 0),
            ("baidu/ERNIE-4.5-21B-A3B-PT", 1),
            ("zai-org/GLM-5.2", 3),
            ("ai21labs/Jamba-v0.1", 16),
        ],
    )
    def test_which_layers_are_dense(self, hf_id: str, dense: int) -> None:
        spec = config(hf_id)
        assert sum(group.count for group in spec.layers for part in group.mlp if isinstance(part, Mlp)) == dense

    def test_layers_named_as_dense_are_dense(self) -> None:
        spec = config("Qwen/Qwen3-30B-A3B", mlp_only_layers=[0, 5])
        assert sum(group.count for group in spec.layers for part in group.mlp if isinstance(part, Mlp)) == 2

    def test_different_widths_by_layer_are_refused(self) -> None:
        with pytest.raises(SpecError, match="the same for all layers"):
            config("tencent/Hunyuan-A13B-Instruct", moe_topk=[8] * 31 + [4])

    def test_latent_experts_without_gate(self) -> None:
        moe = next(
            part for part in parts(config("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8")) if isinstance(part, Moe)
        )
        assert (moe.gated, moe.latent_size, moe.shared.intermediate_size) == (False, 1024, 5376)

    def test_gate_of_the_shared_expert(self) -> None:
        assert next(part for part in parts(config("Qwen/Qwen1.5-MoE-A2.7B"))).shared.gate


class TestMlps:
    @pytest.mark.parametrize(
        ("hf_id", "kind"),
        [
            ("openai-community/gpt2", "plain"),
            ("facebook/opt-125m", "plain"),
            ("EleutherAI/pythia-160m", "plain"),
            ("microsoft/phi-2", "plain"),
            ("bigcode/starcoder2-3b", "plain"),
            ("google-t5/t5-small", "plain"),
            ("google/flan-t5-xxl", "gated"),
            ("microsoft/Phi-3-small-8k-instruct", "gated"),
        ],
    )
    def test_two_matrices_or_three(self, hf_id: str, kind: str) -> None:
        assert {part.kind for part in parts(config(hf_id))} == {kind}

    def test_qwen_1_states_twice_the_width(self) -> None:
        assert parts(config("Qwen/Qwen-7B"))[0].intermediate_size == 11008


class TestHybrids:
    @pytest.mark.parametrize(
        ("hf_id", "growing"),
        [
            ("ai21labs/Jamba-v0.1", 4),
            ("ai21labs/AI21-Jamba-Large-1.5", 9),
            ("ibm-granite/granite-4.0-h-small", 4),
            ("ibm-granite/granite-4.0-micro", 40),  # has mamba keys and no Mamba layer
            ("nvidia/Nemotron-H-56B-Base-8K", 10),
            ("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", 12),  # layers_block_type, no num_hidden_layers
            ("tiiuae/Falcon-H1-34B-Instruct", 72),
            ("Qwen/Qwen3-Next-80B-A3B-Instruct", 12),
            ("Qwen/Qwen3.5-27B", 16),
            ("moonshotai/Kimi-Linear-48B-A3B-Instruct", 7),
            ("moonshotai/Kimi-K3", 24),  # 1-based, irregular tail
            ("MiniMaxAI/MiniMax-M1-80k", 10),
            ("MiniMaxAI/MiniMax-M2.7", 62),  # the same field, all ones
            ("mistralai/Mamba-Codestral-7B-v0.1", 0),
        ],
    )
    def test_only_attention_layers_grow(self, hf_id: str, growing: int) -> None:
        found = sum(
            group.count
            for group in config(hf_id).layers
            if any(isinstance(m, (Attention, LatentAttention)) for m in group.attention)
        )
        assert found == growing

    def test_a_state_is_a_matrix_per_value_head(self) -> None:  # bug case 13
        cache = cache_layout(config("Qwen/Qwen3.5-35B-A3B"), number_format("bf16"))
        assert cache.state_bytes == 62914560 + 1474560

    def test_inner_width_is_heads_times_width(self) -> None:
        mamba = next(m for m in mixers(config("nvidia/Nemotron-H-56B-Base-8K")) if isinstance(m, Recurrent))
        assert mamba.projections[1].inputs == mamba.state.heads * mamba.state.key_dim

    @pytest.mark.parametrize(
        ("hf_id", "key"),
        [
            ("Qwen/Qwen3.5-9B", "mamba_ssm_dtype"),
            ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "mamba_ssm_cache_dtype"),
        ],
    )
    def test_the_bits_of_a_state_are_stated_or_left_to_the_engine(self, hf_id: str, key: str) -> None:
        bits = {
            said: next(m.state.bits for m in mixers(config(hf_id, **{key: said})) if isinstance(m, Recurrent))
            for said in ("float32", "bfloat16", "float16", None)
        }
        assert bits == {"float32": 32, "bfloat16": 16, "float16": 16, None: None}
        for wrong in ("auto", "", 32):
            with pytest.raises(SpecError, match=f"{key}: got "):
                config(hf_id, **{key: wrong})

    @pytest.mark.parametrize("hf_id", list(reference.rows()))
    def test_the_catalogue_states_the_bits_that_the_configuration_states(self, hf_id: str) -> None:
        read, known = (
            {mixer.state.bits for mixer in mixers(spec) if isinstance(mixer, Recurrent)}
            for spec in (config(hf_id), models.load(hf_id))
        )
        assert read == known


class TestWrappers:
    def test_a_stub_does_not_shadow_a_usable_top_level(self) -> None:
        data = json.loads(reference.config_path(LLAMA).read_text(encoding="utf-8")) | {
            "text_config": {"model_type": "llama"}
        }
        assert models.from_document(Document(data, "config.json")).layers == config(LLAMA).layers

    def test_sizes_that_equal_the_class_defaults_may_be_left_out(self) -> None:
        llava = config("llava-hf/llava-1.5-7b-hf")
        assert (llava.num_layers, llava.vocab_size) == (32, 32064)

    def test_a_tie_at_the_top_level_counts(self) -> None:
        assert config("Qwen/Qwen3.5-27B").tied_embeddings is False
        assert config("google/gemma-4-E2B-it").tied_embeddings is True

    def test_encoders_run_once_and_cross_caches_do_not_grow(self) -> None:
        whisper = config("openai/whisper-large-v2")
        cache = cache_layout(whisper, number_format("bf16"))
        assert cache.fixed_bytes == 1500 * cache.bytes_per_token
        assert whisper.max_context == 448


class TestTies:
    @pytest.mark.parametrize(
        "hf_id", [GEMMA3, "openai-community/gpt2", "CohereForAI/aya-23-8B", "tiiuae/falcon-7b", "bigcode/starcoder2-7b"]
    )
    def test_families_that_tie_by_default(self, hf_id: str) -> None:
        assert config(hf_id, tie_word_embeddings=...).tied_embeddings

    @pytest.mark.parametrize(
        "hf_id", [LLAMA, "mistralai/Mixtral-8x7B-v0.1", "deepseek-ai/DeepSeek-V3", "microsoft/Phi-3-mini-4k-instruct"]
    )
    def test_families_that_do_not(self, hf_id: str) -> None:
        assert not config(hf_id, tie_word_embeddings=...).tied_embeddings


class TestNorms:
    @pytest.mark.parametrize(
        ("hf_id", "norms"),
        [
            ("google/gemma-2-2b-it", 4),
            ("CohereForAI/aya-23-8B", 1),
            ("tiiuae/falcon-7b", 1),
            ("tiiuae/falcon-40b", 2),
            ("EleutherAI/pythia-160m", 2),
            ("EleutherAI/gpt-j-6b", 1),
        ],
    )
    def test_vectors_per_layer(self, hf_id: str, norms: int) -> None:
        assert {group.norms for group in config(hf_id).layers} == {norms}

    @pytest.mark.parametrize(
        ("hf_id", "kind"),
        [
            (QWEN3, True),
            ("allenai/OLMo-2-1124-7B", "full"),
            ("MiniMaxAI/MiniMax-M2.5", "full"),
            ("zai-org/GLM-4.5-Air", False),
            ("zai-org/GLM-4.5", True),
        ],
    )
    def test_norms_on_queries_and_keys(self, hf_id: str, kind: object) -> None:
        assert {mixer.qk_norm for mixer in mixers(config(hf_id))} == {kind}

    def test_biases_that_the_class_implies(self) -> None:
        assert mixers(config("Qwen/Qwen2.5-7B"))[0].qkv_bias
        assert not mixers(config(QWEN3))[0].qkv_bias

    def test_an_output_gate_doubles_the_queries(self) -> None:
        assert all(m.output_gate for m in mixers(config("Qwen/Qwen3.5-27B")) if isinstance(m, Attention))


class TestQuantisation:
    @pytest.mark.parametrize(
        ("hf_id", "weights"),
        [
            ("Qwen/Qwen3-32B-FP8", "fp8-block128"),
            ("Qwen/Qwen3-32B-FP8-Static-PerTensor", "fp8"),
            ("openai/gpt-oss-120b", "experts=mxfp4"),
            ("deepseek-ai/DeepSeek-V4-Flash", "fp8-block128,experts=mxfp4"),
            ("moonshotai/Kimi-K3", "experts=mxfp4"),
            ("moonshotai/Kimi-K2.5", "experts=int4-g32-sym"),
            ("nvidia/Gemma-4-26B-A4B-NVFP4", "experts=nvfp4"),
            ("nvidia/Gemma-4-31B-IT-NVFP4", "mlp=nvfp4"),
            ("meta-llama/Llama-3.1-405B-Instruct-FP8", "fp8"),
            ("nvidia/Qwen3.6-35B-A3B-NVFP4", "attention=fp8,experts=nvfp4,mlp=nvfp4,head=nvfp4"),
        ],
    )
    def test_the_exclusion_list_is_read_first(self, hf_id: str, weights: str) -> None:
        assert config(hf_id).weights == weights

    def test_a_class_that_most_layers_exclude_is_not_quantised(self) -> None:
        attention = [f"model.layers.{layer}.self_attn.{name}_proj" for layer in range(32) for name in "qkvo"]
        settings = {"quant_method": "fbgemm_fp8", "modules_to_not_convert": attention}
        assert config(LLAMA, quantization_config=settings).weights == "mlp=fp8"
        settings["modules_to_not_convert"] = attention[: 4 * 15]
        assert config(LLAMA, quantization_config=settings).weights == "fp8"

    def test_settings_beside_the_language_model_are_about_it(self) -> None:
        inner = json.loads(reference.config_path(LLAMA).read_text(encoding="utf-8"))
        outer = {"text_config": inner, "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}
        assert models.from_document(Document(outer, "config.json")).weights == "int4-g128"

    def test_an_unknown_method_needs_another_source(self) -> None:
        spec = config(LLAMA, quantization_config={"quant_method": "mystery"})
        assert roofplan.kv(spec).whole.bytes_per_token == 131072
        with pytest.raises(DomainError, match="its quantisation is not known"):
            roofplan.size(spec, "h100")
        assert roofplan.size(spec, "h100", weights="int4").fits


class TestUnknown:
    def test_an_unknown_architecture_is_named_with_its_neighbours(self) -> None:
        with pytest.raises(UnknownNameError, match="llama"):
            config(LLAMA, model_type="lama")

    def test_a_missing_key_is_named(self) -> None:
        with pytest.raises(SpecError, match="intermediate_size: got nothing"):
            config(LLAMA, intermediate_size=...)
