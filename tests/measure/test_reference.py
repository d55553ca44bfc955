"""The reference transformer: cached and uncached passes agree, forms of attention agree, and it is made of what the planner counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # two threads on a shared machine wait for one another

from measured_shapes import DENSE, LATENT, MIXTURE, SHAPES  # noqa: E402  # after importorskip
from shapes import HA, step_model  # noqa: E402  # after importorskip
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402  # after importorskip

from roofplan import models  # noqa: E402  # after importorskip
from roofplan.errors import DomainError  # noqa: E402  # after importorskip
from roofplan.measure.reference.attention import attend  # noqa: E402  # after importorskip
from roofplan.measure.reference.depth import at_depth, layers_within  # noqa: E402  # after importorskip
from roofplan.measure.reference.linear import packed  # noqa: E402  # after importorskip
from roofplan.measure.reference.masks import Rotations  # noqa: E402  # after importorskip
from roofplan.measure.reference.model import Reference  # noqa: E402  # after importorskip
from roofplan.measure.reference.sparse import Choice, taken  # noqa: E402  # after importorskip
from roofplan.models.spec import Attention, CrossAttention, LatentAttention, Recurrent  # noqa: E402  # after importorskip
from roofplan.planner.costs import Load  # noqa: E402  # after importorskip
from roofplan.planner.flop import latent_decode_flop  # noqa: E402  # after importorskip
from roofplan.planner.parameters import count_parameters  # noqa: E402  # after importorskip

EXACT = 1e-9  # of 64-bit passes in another order of sums


def flop_of(model, tokens, cache=None, *, every=False):
    with FlopCounterMode(display=False) as counter:
        model(tokens, cache, every=every)
    return counter.get_total_flops()


def windowed(spec) -> bool:
    return any(getattr(m, "window", None) for group in spec.layers for m in group.attention)


@pytest.mark.parametrize("spec", SHAPES, ids=lambda spec: spec.name)
def test_a_cache_changes_nothing_but_rounding(spec):
    model = Reference(spec, torch.float64)
    tokens = model.tokens(2, 11)
    whole = model(tokens, every=True)
    cache = model.cache(2, 11)
    parts = [model(tokens[:, :4], cache, every=True), model(tokens[:, 4:7], cache, every=True)]
    parts += [model(tokens[:, i : i + 1], cache) for i in range(7, 11)]
    assert torch.allclose(torch.cat(parts, dim=1), whole, rtol=EXACT, atol=EXACT)
    assert cache.length == 11


@pytest.mark.parametrize("spec", SHAPES, ids=lambda spec: spec.name)
def test_the_fused_kernel_and_plain_products_agree(spec):
    fused, plain = Reference(spec, torch.float64), Reference(spec, torch.float64, fused=False)
    tokens = fused.tokens(2, 9)
    assert torch.allclose(fused(tokens), plain(tokens), rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("spec", SHAPES, ids=lambda spec: spec.name)
def test_parameters_are_those_of_the_planner(spec):
    assert Reference(spec).parameters == count_parameters(spec).total


@pytest.mark.parametrize(
    "name",
    ["llama-3.1-8b", "gemma-3-27b", "deepseek-v3", "deepseek-v3.2", "minimax-m3", "gpt2", "opt-350m", "mixtral-8x7b"],
)
def test_parameters_of_real_models_are_those_of_the_planner(name):
    spec = models.load(name)
    model = Reference(spec, device="meta")
    built = spec.table_width != spec.hidden_size  # projections around a narrow table are parameters of their own
    left_out = 0 if built else sum(other.count for other in spec.other_parameters)
    assert model.parameters == count_parameters(spec).total - left_out


def test_published_totals_are_met():
    assert Reference(models.load("llama-3.1-8b"), device="meta").parameters == 8030261248  # formula F2.1
    assert Reference(models.load("deepseek-v3"), device="meta").parameters == 671026419200  # formula F2.4


@pytest.mark.parametrize("spec", [s for s in SHAPES if not windowed(s)], ids=lambda spec: spec.name)
def test_flop_and_bytes_of_a_decode_step_are_those_of_the_planner(spec):
    kinds = {type(m) for group in spec.layers for m in group.attention}
    if kinds & {LatentAttention, Recurrent, CrossAttention}:
        pytest.skip("counted apart, or elementwise")
    model = Reference(spec, torch.float32, fused=False)
    cache = model.cache(1, 9)
    model(model.tokens(1, 8), cache)
    flop = flop_of(model, model.tokens(1, 1), cache)
    expected = step_model(spec, HA, weights="all=fp32", kv="fp32").totals(Load(1, 9))
    assert flop == expected[0]
    assert model.matrix_bytes + model.touched_expert_bytes == pytest.approx(expected[1], rel=1e-12)
    assert bytes_read(spec, cache) == expected[2]


def bytes_read(spec, cache) -> float:
    """Bytes of a cache made for nine tokens that a step reads: all of them, but of indexed layers four entries."""
    if spec.name == "indexed":
        return sum(own.main.bytes * 4 / 9 + own.index.bytes for layer in cache.layers for own in layer)
    return cache.bytes * (2 if spec.name == "shared" else 1)  # layers that read one cache (formula F3.5)


def test_flop_of_a_batch_grow_as_the_planner_says():
    model = Reference(DENSE, torch.float32, fused=False)
    cache = model.cache(3, 9)
    model(model.tokens(3, 8), cache)
    assert flop_of(model, model.tokens(3, 1), cache) == step_model(DENSE, HA).totals(Load(3, 9))[0]


def test_flop_of_a_prompt_are_the_planners_with_the_whole_square_of_attention():
    model, n = Reference(DENSE, torch.float32, fused=False), 8
    causal = step_model(DENSE, HA).totals(Load(0, 0, chunk=n))[0]
    mixer, layers = DENSE.layers[0].attention[0], DENSE.num_layers
    above = 4 * mixer.num_heads * mixer.head_dim * layers * (n * n - n * (n + 1) // 2)  # pairs that the mask removes
    assert flop_of(model, model.tokens(1, n)) == causal + above


@pytest.mark.parametrize("absorbed", [True, False])
def test_flop_of_latent_decoding_are_the_closed_forms(absorbed):
    mixer = LATENT.layers[0].attention[0]
    model = Reference(LATENT, torch.float32, fused=False, absorbed=absorbed)
    cache = model.cache(1, 9)
    model(model.tokens(1, 8), cache)
    flop = flop_of(model, model.tokens(1, 1), cache)
    forms = latent_decode_flop(
        mixer.num_heads,
        mixer.kv_lora_rank,
        mixer.qk_nope_head_dim,
        mixer.qk_rope_head_dim,
        mixer.v_head_dim,
        9,
    )
    attention = forms["absorbed"] + forms["absorb"] if absorbed else forms["expanded"] + forms["expand"]
    products = 2 * count_parameters(LATENT).multiplied - LATENT.num_layers * forms["absorb"]
    assert flop == products + LATENT.num_layers * attention


@pytest.mark.parametrize("spec", SHAPES, ids=lambda spec: spec.name)
def test_packed_matrices_give_the_same(spec):
    plain, ordered = Reference(spec), Reference(spec, packed=True)
    tokens = plain.tokens(2, 6)
    assert torch.allclose(plain(tokens), ordered(tokens), rtol=1e-4, atol=1e-4)


def test_packing_is_left_out_where_there_is_no_such_order(monkeypatch):
    assert packed(torch.ones(4, 4, dtype=torch.float64)) is None
    assert packed(torch.ones(4, 4, device="meta")) is None
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert packed(torch.ones(4, 4)) is None
    assert not Reference(DENSE, packed=True).packed


def test_absorbed_and_expanded_latents_are_equal():
    absorbed = Reference(LATENT, torch.float64)
    expanded = Reference(LATENT, torch.float64, absorbed=False)
    tokens = absorbed.tokens(2, 7)
    assert torch.allclose(absorbed(tokens, every=True), expanded(tokens, every=True), rtol=EXACT, atol=EXACT)


def test_a_ring_holds_the_window_and_the_first_tokens_alone():
    spec = next(spec for spec in SHAPES if spec.name == "sinks")
    mixer = spec.layers[0].attention[0]
    model = Reference(spec, torch.float64)
    ring, whole = model.cache(1, 40), model.cache(1, 40, rings=False)
    assert (
        whole.bytes > ring.bytes == 2 * (mixer.window + mixer.first_tokens) * 2 * mixer.head_dim * 8 * spec.num_layers
    )
    tokens = model.tokens(1, 40)
    for i in range(0, 40, 5):
        one, other = (model(tokens[:, i : i + 5], cache) for cache in (ring, whole))
        assert torch.allclose(one, other, rtol=EXACT, atol=EXACT)
    assert torch.allclose(other, model(tokens), rtol=EXACT, atol=EXACT)


def test_blocks_anywhere_in_a_pool_change_nothing():
    model = Reference(DENSE, torch.float64)
    tokens = model.tokens(3, 21)
    paged, straight = model.cache(3, 30, kind="paged", block=4), model.cache(3, 30)
    for part in (tokens[:, :9], tokens[:, 9:20], tokens[:, 20:]):
        assert torch.equal(model(part, paged), model(part, straight))


def test_sequences_of_unequal_lengths_decode_as_they_would_alone():
    model = Reference(DENSE, torch.float64)
    cache = model.cache(2, 12)
    prompts = model.tokens(1, 7, seed=1), model.tokens(1, 3, seed=2)
    for row, prompt in enumerate(prompts):
        model(prompt, cache.sequence(row))
    cache.each = [7, 3]
    new = model.tokens(2, 1, seed=3)
    both = model(new, cache)
    for row, prompt in enumerate(prompts):
        alone = model(torch.cat([prompt, new[row : row + 1]], dim=1))
        assert torch.allclose(both[row], alone[0], rtol=EXACT, atol=EXACT)
    assert cache.each == [8, 4]


def test_a_mixture_reads_the_chosen_experts_alone():
    model = Reference(MIXTURE)
    moe = MIXTURE.layers[0].mlp[0]
    model(model.tokens(1, 1))
    one = 3 * MIXTURE.hidden_size * moe.intermediate_size * 4
    assert model.touched_expert_bytes == MIXTURE.num_layers * moe.experts_per_token * one


def test_generation_is_the_same_without_a_cache():
    model = Reference(DENSE, torch.float64)
    prompt = model.tokens(1, 5)
    assert torch.equal(model.generate(prompt, 6), model.generate(prompt, 6, cached=False))


def test_a_sink_takes_its_share_of_the_weights():
    q = torch.zeros(1, 2, 1, 4, dtype=torch.float64)
    ones = torch.ones(1, 1, 3, 4, dtype=torch.float64)
    # Scores of zero and a sink of zero: three of four equal shares go to values of one.
    assert torch.allclose(attend(q, ones, ones, sinks=torch.zeros(2)), torch.full((1, 1, 8), 0.75, dtype=torch.float64))


def test_more_tokens_than_the_cache_has_room_for_are_refused():
    model = Reference(DENSE)
    with pytest.raises(DomainError, match="at most 4, for which the cache is made"):
        model(model.tokens(1, 5), model.cache(1, 4))


@pytest.mark.parametrize("kind", ["contiguous", "paged"])
@pytest.mark.parametrize("spec", [DENSE, LATENT], ids=lambda spec: spec.name)
def test_every_cache_refuses_more_than_it_has_room_for(spec, kind):
    model = Reference(spec)
    cache = model.cache(1, 4, kind=kind, block=2)
    model(model.tokens(1, 4), cache)
    with pytest.raises(DomainError, match="at most 4"):
        model(model.tokens(1, 1), cache)


def test_rings_hold_sequences_of_one_length_only():
    model = Reference(next(spec for spec in SHAPES if spec.name == "window"))
    cache = model.cache(2, 12)
    cache.each = [3, 5]
    with pytest.raises(DomainError, match="sequences of one length"):
        model(model.tokens(2, 1), cache)


def test_sequences_of_unequal_lengths_choose_their_own_entries():
    model = Reference(next(spec for spec in SHAPES if spec.name == "indexed"), torch.float64)
    cache = model.cache(2, 12)
    prompts = model.tokens(1, 9, seed=1), model.tokens(1, 6, seed=2)
    for row, prompt in enumerate(prompts):
        model(prompt, cache.sequence(row))
    cache.each = [9, 6]
    new = model.tokens(2, 1, seed=3)
    both = model(new, cache)
    for row, prompt in enumerate(prompts):
        alone = model(torch.cat([prompt, new[row : row + 1]], dim=1))
        assert torch.allclose(both[row], alone[0], rtol=EXACT, atol=EXACT)


def test_rotations_keep_lengths_and_leave_a_last_channel_alone():
    turn = Rotations(torch.arange(3))
    x = torch.randn(1, 1, 3, 5, generator=torch.Generator().manual_seed(0))
    turned = turn.rotate(x)
    assert torch.equal(turned[..., 4], x[..., 4])
    assert torch.equal(turned[:, :, 0], x[:, :, 0])  # position zero
    assert torch.allclose(turned.norm(dim=-1), x.norm(dim=-1))
    one = x[..., :1]
    assert turn.rotate(one) is one


def test_scores_of_rotated_vectors_depend_on_the_distance_alone():
    q, k = (torch.randn(1, 1, 1, 8, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    at = {p: Rotations(torch.tensor([p])) for p in (2, 5, 12, 15)}
    near, far = ((at[a].rotate(q) * at[b].rotate(k)).sum() for a, b in ((5, 2), (15, 12)))
    assert near == pytest.approx(float(far), rel=1e-5)


def test_more_tokens_than_learned_positions_are_refused():
    spec = replace(DENSE, learned_positions=4)
    with pytest.raises(DomainError, match="at most 4 learned positions"):
        Reference(spec)(torch.zeros(1, 5, dtype=torch.long))


def test_layers_that_are_not_built_are_named():
    with pytest.raises(DomainError, match="got compressed attention"):
        Reference(models.load("deepseek-v4-flash"), device="meta")


def test_an_indexer_that_chooses_all_tokens_changes_nothing():
    spec = next(spec for spec in SHAPES if spec.name == "indexed")
    wide = replace(spec.layers[0].attention[0], indexer=replace(spec.layers[0].attention[0].indexer, top_k=99))
    plain = replace(wide, indexer=None)
    models_of = [
        Reference(replace(spec, layers=(replace(spec.layers[0], count=1, attention=(m,)),))) for m in (wide, plain)
    ]
    models_of[1].layers, models_of[1].final = models_of[0].layers, models_of[0].final  # the same weights
    tokens = models_of[0].tokens(1, 9)
    with_all = models_of[0](tokens)
    for layer in models_of[1].layers:
        layer.mixers[0].index = None
    assert torch.equal(with_all, models_of[1](tokens))


def test_few_chosen_entries_are_those_of_the_best_scores():
    # One query, entries with scores 0, 1, 2, 3: the two best are the last ones.
    found = taken(torch.arange(4.0).view(1, 4, 1), Choice(entries=torch.tensor([[3, 2]])))
    assert found.flatten().tolist() == [3.0, 2.0]
    assert taken(found, Choice()) is found


def test_fewer_layers_keep_the_proportions_of_the_groups():
    spec = models.load("gemma-3-27b")  # 52 with a window, 10 without
    cut = at_depth(spec, 12)
    assert [group.count for group in cut.layers] == [10, 2]
    assert [group.attention for group in cut.layers] == [group.attention for group in spec.layers]
    assert at_depth(spec, 62) is spec
    with pytest.raises(DomainError, match="at least 2, one of each group"):
        at_depth(spec, 1)


def test_the_deepest_model_that_fits_is_found():
    spec = models.load("llama-3.1-8b")
    layer, ends = 218112000, 8030261248 - 32 * 218112000  # formula F2.1
    assert layers_within(spec, 2 * (ends + 5 * layer), 2) == 5
    assert layers_within(spec, 2 * (ends + 6 * layer) - 1, 2) == 5
    assert layers_within(spec, 1e12, 2) == 32
    with pytest.raises(DomainError, match=r"1 layers of llama-3\.1-8b"):
        layers_within(spec, 1e6, 2)


def test_only_attention_with_own_weights_is_shared():
    shared = next(spec for spec in SHAPES if spec.name == "shared")
    kinds = [m.cache for group in shared.layers for m in group.attention if isinstance(m, Attention)]
    assert kinds == ["own", "shared"]
    with pytest.raises(DomainError, match="a layer that shares a cache"):
        Reference(replace(shared, layers=shared.layers[1:]))(torch.zeros(1, 2, dtype=torch.long))
