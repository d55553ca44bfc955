"""Golden values of formulas F2.1 to F2.4, F4.2 and F4.3, and properties of sharding."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from shapes import DS, GIB, HA, HH, M7, M8, M70, dense, deploy, formats, step_model

from roofplan import models
from roofplan.models.spec import LayerGroup, Mlp, Moe, Part
from roofplan.planner.costs import Load
from roofplan.planner.parallel import Layout
from roofplan.planner.parameters import count_parameters, layer_tensors, mixer_tensors, stored_bytes

QK_NORM = {"qk_norm": True}
LEARNED = {"mlp_kind": "plain", "mlp_bias": True, "norm_bias": True, "learned_positions": 1024, "tied_embeddings": True}


@pytest.mark.parametrize(
    ("model", "total"),
    [
        (M7, 6738415616),
        (M8, 8030261248),
        (M70, 70553706496),
        (dense(5120, 40, 40, 40, 128, 13824, 32000), 13015864320),
        (dense(4096, 32, 32, 8, 128, 14336, 32000), 7241732096),
        (dense(1024, 28, 16, 8, 128, 3072, 151936, tied_embeddings=True, attention_changes=QK_NORM), 596049920),
        (
            dense(768, 12, 12, 12, 64, 3072, 50257, attention_changes={"qkv_bias": True, "out_bias": True}, **LEARNED),
            124439808,
        ),
    ],
)
def test_dense_totals(model: models.ModelSpec, total: int) -> None:  # F2.1
    assert count_parameters(model).total == total


@pytest.mark.parametrize(
    ("model", "blocks", "multiplied"),
    [(M7, 6476005376, 6607077376), (M8, 6979321856, 7504658432), (M70, 68451041280, 69501714432)],
)
def test_matrix_parameters(model: models.ModelSpec, blocks: int, multiplied: int) -> None:  # section 0
    counted = count_parameters(model)
    assert counted.multiplied == multiplied
    assert counted.multiplied - model.hidden_size * model.vocab_size == blocks


def test_mixture_of_experts_total_and_active() -> None:  # F2.2
    base = dense(4096, 32, 32, 8, 128, 14336, 32000)
    moe = Moe(kind="moe", num_experts=8, experts_per_token=2, intermediate_size=14336)
    layer = dataclasses.replace(base.layers[0], mlp=(moe,))
    counted = count_parameters(dataclasses.replace(base, layers=(layer,)))
    assert (counted.total, counted.active) == (46702792704, 12879925248)


def test_latent_attention_parameters() -> None:  # F2.3
    tensors = mixer_tensors(DS.layers[0].attention[0], 7168)
    assert sum(matrix.parameters for matrix in tensors.matrices) + tensors.vectors == 187107328


def test_deepseek_v3_total_and_active() -> None:  # F2.4
    counted = count_parameters(DS)
    assert counted.total == 671026419200
    assert counted.active == 37552297472
    assert counted.active - 129280 * 7168 == 36625618432
    assert 3 * 7168 * 2048 == 44040192


@pytest.mark.parametrize(
    ("model", "weights", "stored"),
    [
        (M7, "int4-g128", 3889307648),
        (M8, "int4-g128", 5727854592),
        (M70, "int4-g128", 39767785472),
        (M70, "int8-channel", 72689795072),
        (M7, "bf16", 13476831232),
        (M8, "bf16", 16060522496),
        (M70, "all=int8", 70553706496),
    ],
)
def test_stored_bytes(model: models.ModelSpec, weights: str, stored: int) -> None:  # F4.2
    assert stored_bytes(model, formats(weights)) == stored


def test_effective_bits_of_four_bit_blocks() -> None:  # F4.2
    for model, bits in ((M7, 4.61747433775388), (M8, 5.706269736543446), (M70, 4.5092214084321265)):
        assert 8 * stored_bytes(model, formats("int4-g128")) / count_parameters(model).total == approx(bits, rel=1e-12)


@pytest.mark.parametrize(
    ("model", "weights", "read"), [(M7, "bf16", 13214154752), (M8, "bf16", 15009316864), (M8, "int4-g128", 4676648960)]
)
def test_bytes_read_per_step_leave_out_the_input_table(
    model: models.ModelSpec, weights: str, read: int
) -> None:  # F4.3
    assert step_model(model, HA, weights=weights).totals(Load(1, 1))[1] == read


@pytest.mark.parametrize(("loaded", "read"), [(True, True), (True, False), (False, True)])
def test_a_part_is_read_every_step_where_it_is_loaded_and_says_so(loaded: bool, read: bool) -> None:
    part = Part(name="draft layer", kind="mtp", parameters=1000, loaded=loaded, read_per_step=read, source="test")
    plain, extended = (
        step_model(model, HA).totals(Load(1, 1))[1] for model in (M8, dataclasses.replace(M8, parts=(part,)))
    )
    assert extended - plain == (2000 if loaded and read else 0)


def test_a_tied_head_is_stored_once_and_read_every_step() -> None:  # F4.3, bug case 31
    tied = models.load("qwen3-0.6b")
    assert stored_bytes(tied, formats()) == 2 * 596049920
    read = step_model(tied, HH).totals(Load(1, 1))[1]
    assert read == 2 * count_parameters(tied).multiplied
    assert count_parameters(tied).multiplied > 596049920 - 200_000  # the head is multiplied; only norms are not


def test_mixtral_weights_in_gib() -> None:
    assert stored_bytes(models.load("mixtral-8x7b"), formats()) / GIB == approx(86.99, abs=0.005)


def test_mixtral_step_at_batch_16_reads_3_62_times_batch_1() -> None:
    model = step_model(models.load("mixtral-8x7b"), HA, layout=Layout(tp=2))
    sixteen, one = model.totals(Load(16, 0)), model.totals(Load(1, 0))
    assert (sixteen[1] + sixteen[2]) / (one[1] + one[2]) == approx(3.62, rel=1e-3)


def test_deepseek_on_one_sequence_reads_its_active_matrices() -> None:  # section 16
    read = step_model(DS, HH, weights="all=int8").totals(Load(1, 0))[1]
    latent_norms = 61 * (1536 + 512)  # the collection counts them with the matrices
    assert read + latent_norms == 36624721920


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([M7, M8, M70]))
def test_ranks_hold_the_whole_and_copies_of_norms_only(tp: int, model: models.ModelSpec) -> None:
    whole = layer_tensors(model.layers[0], model)
    rank = layer_tensors(model.layers[0], model, Layout(tp=tp))
    assert sum(matrix.parameters for matrix in rank.matrices) * tp == sum(
        matrix.parameters for matrix in whole.matrices
    )
    assert rank.vectors == whole.vectors


@pytest.mark.parametrize(
    "layout", [Layout(tp=8, ep=8), Layout(tp=8, ep=4), Layout(tp=4, dp=2, ep=8), Layout(tp=2, ep=2)]
)
def test_experts_are_divided_over_the_expert_ranks(layout: Layout) -> None:  # bug case 23
    moe = DS.layers[1]
    whole = {m.name: m.parameters for m in layer_tensors(moe, DS).matrices}
    rank = {m.name: m.parameters for m in layer_tensors(moe, DS, layout).matrices}
    ranks = max(layout.tp, layout.ep)
    assert rank["experts.up"] * ranks == whole["experts.up"]
    assert rank["router"] == whole["router"]
    assert rank["shared.down"] * layout.tp == whole["shared.down"]


def test_pipeline_stages_cover_the_model() -> None:
    whole = stored_bytes(M70, formats())
    stages = 4
    fullest = stored_bytes(M70, formats(), Layout(pp=stages))
    assert whole / stages < fullest < whole / stages + 2 * 2 * M70.hidden_size * M70.vocab_size


def test_key_value_heads_are_copied_when_ranks_outnumber_them() -> None:  # F3.8, bug case 20
    qkv = layer_tensors(M70.layers[0], M70, Layout(tp=16)).matrices[0]
    assert qkv.outputs == (64 // 16 + 2 * 1) * 128


def test_layers_without_attention_or_mlp_count_what_they_have() -> None:
    only_mlp = LayerGroup(count=2, mlp=(Mlp(kind="gated", intermediate_size=11008),), norms=1)
    model = dataclasses.replace(M7, layers=(only_mlp,))
    assert count_parameters(model).total == 2 * (3 * 4096 * 11008 + 4096) + 2 * 4096 * 32000 + 4096
    assert deploy(model, HA).model.num_layers == 2
