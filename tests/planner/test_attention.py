"""Golden values of formulas F2.8, F3.3 and F15.1 to F15.3, loops that count traffic, softmax in any order, and crossovers by enumeration."""

import dataclasses
import itertools
import math

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from pytest import approx
from shapes import DS, HH, step_model

from roofplan.errors import DomainError
from roofplan.models.spec import LatentAttention
from roofplan.planner import attention, latent_attention
from roofplan.planner.costs import Load

EXACT = 1e-12
SRAM = 98304
[DS_MIXER] = DS.layers[0].attention
assert isinstance(DS_MIXER, LatentAttention)

# ------------------------------------------------------------------------------------------------ traffic


@pytest.mark.parametrize(
    ("head_dim", "moved", "intensity"), [(64, 136314880, 31.50769230769231), (128, 138412032, 62.06060606060606)]
)
def test_standard_traffic(head_dim: int, moved: int, intensity: float) -> None:  # F15.1
    traffic = attention.standard_traffic(4096, head_dim)
    assert traffic.moved_bytes() == moved
    assert 2 * traffic.extra_elements == 33554432
    assert traffic.intensity() == approx(intensity, rel=EXACT)


@pytest.mark.parametrize(
    ("head_dim", "columns", "rows", "least", "order"),
    [
        (64, 18350080, 34603008, 2097152, 0.041025641025641026),
        (128, 71303168, 69206016, 4194304, 0.1616161616161616),
    ],
)
def test_tiled_traffic(head_dim: int, columns: int, rows: int, least: int, order: float) -> None:  # F15.2
    assert attention.column_tiled_traffic(4096, head_dim, SRAM).moved_bytes() == columns
    assert attention.row_tiled_traffic(4096, head_dim).moved_bytes() == rows
    assert attention.compulsory_traffic(4096, head_dim).moved_bytes() == least
    assert attention.tiled_traffic_order(4096, head_dim, SRAM) == approx(order, rel=EXACT)


def test_blocks_of_the_example() -> None:  # F15.2: B_c = 384 and 192, T_c = 11 and 22
    for head_dim, columns, blocks in ((64, 384, 11), (128, 192, 22)):
        assert math.ceil(SRAM / (4 * head_dim)) == columns
        elements = counted_traffic(4096, head_dim, columns, outer="columns")
        assert elements == (2 + 3 * blocks) * 4096 * head_dim
        assert elements == attention.column_tiled_traffic(4096, head_dim, SRAM).elements


def counted_traffic(tokens: int, head_dim: int, block: int, outer: str) -> int:
    """Run the loops over tiles and count what each loads and stores."""
    spans = [min(block, tokens - start) for start in range(0, tokens, block)]
    inner = [min(100, tokens - start) for start in range(0, tokens, 100)]
    elements = 0
    for span in spans:
        elements += 2 * span * head_dim  # K and V, or Q and (in the end) O, of this block
        for other in inner:
            elements += (3 if outer == "columns" else 2) * other * head_dim  # Q, O in and O out; or K and V
    return elements


@given(st.integers(1, 3000), st.integers(1, 256), st.integers(1, 500))
def test_traffic_by_running_the_loops(tokens: int, head_dim: int, block: int) -> None:  # F15.2
    columns = attention.column_tiled_traffic(tokens, head_dim, 4 * head_dim * block)
    assert columns.elements == counted_traffic(tokens, head_dim, block, "columns")
    rows = attention.row_tiled_traffic(tokens, head_dim, block)
    assert rows.elements == counted_traffic(tokens, head_dim, block, "rows")
    least = attention.compulsory_traffic(tokens, head_dim)
    assert least.elements <= min(rows.elements, columns.elements, attention.standard_traffic(tokens, head_dim).elements)
    assert (columns.extra_elements, rows.extra_elements, least.extra_elements) == (2 * tokens, tokens, 0)  # F15.3: O(N)
    assert columns.flop == rows.flop == least.flop == 4 * tokens * tokens * head_dim  # F2.6, without a mask


@pytest.mark.parametrize("tokens", [0, -1, 1.5, math.nan, True])
def test_domain_of_traffic(tokens) -> None:  # F15.1, F15.2
    for traffic in (attention.standard_traffic, attention.row_tiled_traffic, attention.compulsory_traffic):
        with pytest.raises(DomainError):
            traffic(tokens, 64)
        with pytest.raises(DomainError):
            traffic(64, tokens)
    for tiled in (attention.column_tiled_traffic, attention.tiled_traffic_order):
        with pytest.raises(DomainError):
            tiled(tokens, 64, SRAM)


def test_domain_of_on_chip_memory() -> None:  # F15.2
    with pytest.raises(DomainError):
        attention.column_tiled_traffic(4096, 64, 4 * 64 - 1)
    for sram in (63, 4096 * 64 + 1):
        with pytest.raises(DomainError):
            attention.tiled_traffic_order(4096, 64, sram)
    with pytest.raises(DomainError):
        attention.row_tiled_traffic(4096, 64, 0)
    with pytest.raises(DomainError):
        attention.compulsory_traffic(4096, 64).moved_bytes(0)


# ------------------------------------------------------------------------------------------------ online softmax

NUMBERS = st.floats(-50, 50)


def test_online_softmax_in_all_orders() -> None:  # F15.3
    for scores in itertools.permutations((1, 3, 2, 5)):
        state = attention.softmax_state(scores)
        assert state.maximum == 5
        assert state.total == approx(1.2034379904932109, rel=1e-15)


@st.composite
def keys_in_blocks(draw) -> tuple[list[tuple[float, list[float]]], list[list[int]]]:
    """Scores with values, and their positions in blocks of any size and order."""
    keys = draw(st.lists(st.tuples(NUMBERS, st.lists(NUMBERS, min_size=3, max_size=3)), min_size=1, max_size=20))
    order = draw(st.permutations(range(len(keys))))
    cuts = sorted(draw(st.sets(st.integers(1, len(keys)))) | {0, len(keys)})
    return keys, [order[start:stop] for start, stop in itertools.pairwise(cuts)]


@given(keys_in_blocks())
@example(([(1000.0, [1.0] * 3), (-1000.0, [2.0] * 3), (999.0, [4.0] * 3)], [[1], [2, 0]]))
def test_blocks_merge_to_the_whole_softmax(case) -> None:  # F15.3
    keys, blocks = case
    states = [attention.softmax_state([keys[i][0] for i in block], [keys[i][1] for i in block]) for block in blocks]
    merged = attention.merge_states(states)
    largest = max(score for score, _ in keys)
    weights = [math.exp(score - largest) for score, _ in keys]
    total = math.fsum(weights)
    assert merged.maximum == largest
    assert merged.total == approx(total, rel=EXACT)
    assert merged.log_sum_exp == approx(largest + math.log(total), rel=EXACT, abs=EXACT)
    direct = [math.fsum(w * value[i] for w, (_, value) in zip(weights, keys, strict=True)) / total for i in range(3)]
    assert merged.output == approx(direct, rel=EXACT, abs=1e-11)
    # Merged as a tree and not as a chain, as reductions over ranks are.
    half = len(states) // 2
    if half:
        tree = attention.merge_states([attention.merge_states(states[half:]), attention.merge_states(states[:half])])
        assert (tree.total, *tree.output) == approx((merged.total, *merged.output), rel=EXACT, abs=1e-11)


def test_a_tiled_kernel_is_exact() -> None:  # F15.3
    import numpy as np

    draw = np.random.default_rng(0)
    q, k, v = (draw.standard_normal((50, 8)) for _ in range(3))
    scores = q @ k.T
    weights = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    for row, direct in enumerate(weights @ v):
        blocks = [attention.softmax_state(scores[row, i : i + 16], v[i : i + 16].tolist()) for i in range(0, 50, 16)]
        assert attention.merge_states(blocks).output == approx(direct, rel=1e-11, abs=EXACT)


@pytest.mark.parametrize(
    ("scores", "values"),
    [
        ([], []),
        ([math.nan], []),
        ([math.inf], []),
        ([-math.inf], []),
        ([1.0], [[math.nan]]),
        ([1.0, 2.0], [[1.0]]),
        ([1.0, 2.0], [[1.0], [1.0, 2.0]]),
    ],
)
def test_domain_of_the_online_softmax(scores, values) -> None:  # F15.3
    with pytest.raises(DomainError):
        attention.softmax_state(scores, values)


def test_domain_of_merging() -> None:  # F15.3
    with pytest.raises(DomainError):
        attention.merge_states([])
    with pytest.raises(DomainError):
        attention.SoftmaxState(1.0, 0.0)
    with pytest.raises(DomainError):
        attention.merge_states([attention.SoftmaxState(1.0), attention.SoftmaxState(1.0, 1.0, (2.0,))])


# ------------------------------------------------------------------------------------------------ latent attention


def test_latent_forms() -> None:  # F2.8, F3.2
    forms = latent_attention.latent_forms(DS_MIXER, 4096)
    assert (forms.absorbed.scores_flop, forms.absorbed.projection_flop) == (1140850688, 33554432)
    assert (forms.expanded.scores_flop, forms.expanded_again.projection_flop) == (335544320, 137438953472)
    assert forms.absorbed.flop == 1140850688 + 33554432
    assert forms.absorbed.scores_flop / forms.expanded.scores_flop == approx(3.4, rel=EXACT)
    assert forms.expanded.cache_bytes / forms.absorbed.cache_bytes == approx(71.11111111111111, rel=EXACT)
    assert 61 * forms.absorbed.cache_bytes == 4096 * 70272
    assert 61 * forms.expanded.cache_bytes == 4096 * 4997120
    assert forms.absorbed.intensity == approx(241.77777777777777, rel=EXACT)
    assert forms.expanded_again.moved_bytes == forms.absorbed.cache_bytes + 2 * forms.expanded.cache_bytes


def test_more_queries_raise_the_intensity_and_more_sequences_do_not() -> None:  # F2.8
    one = latent_attention.latent_forms(DS_MIXER, 4096).absorbed
    assert latent_attention.latent_forms(DS_MIXER, 4096, queries=2).absorbed.intensity == 2 * one.intensity
    many = latent_attention.latent_forms(DS_MIXER, 4096, batch=64)
    assert many.absorbed.intensity == one.intensity
    assert many.absorbed.flop == 64 * one.flop


GLM_4_MOE_LITE = LatentAttention(
    kind="mla", num_heads=20, kv_lora_rank=512, qk_nope_head_dim=192, qk_rope_head_dim=64, v_head_dim=256
)


# Blaizzy/mlx-vlm, pull request 2150: absorb up to 170 queries for DeepSeek-V3 and 398 for GLM-4 MoE Lite.
@pytest.mark.parametrize(("mixer", "queries"), [(DS_MIXER, 170), (GLM_4_MOE_LITE, 398)])
def test_queries_up_to_which_absorbing_saves_flop(mixer: LatentAttention, queries: int) -> None:  # F2.8
    assert latent_attention.absorbed_context(mixer, queries) is not None
    assert latent_attention.absorbed_context(mixer, queries + 1) is None
    limit = latent_attention.absorbed_query_limit(mixer, 10**9, 1e-9)  # so low a ridge that only FLOP count
    assert limit is not None
    assert math.floor(limit) == queries


def test_one_query_is_absorbed_from_the_second_token_on() -> None:  # F2.8
    assert latent_attention.absorbed_context(DS_MIXER) == 2


def test_expanded_caches_lose_up_to_many_queries() -> None:  # F2.8
    by_hand = HH.ridge("bf16") * (4096 * 128 * 320 * 2) / (1140850688 + 33554432)
    limit = latent_attention.absorbed_query_limit(DS_MIXER, 4096, HH.ridge("bf16"), "expanded")
    assert limit == approx(by_hand, rel=EXACT)
    assert 84 < by_hand < 85
    one_head = dataclasses.replace(DS_MIXER, num_heads=1)  # its keys and values are smaller than the latent
    assert latent_attention.absorbed_query_limit(one_head, 4096, 300.0, "expanded") == 0
    low_rank = dataclasses.replace(DS_MIXER, kv_lora_rank=64)  # less work in the latent space, too
    assert latent_attention.absorbed_query_limit(low_rank, 4096, 300.0, "expanded") is None


@pytest.mark.parametrize(("queries", "absorbed"), [(1, True), (160, True), (174, True), (176, False), (300, False)])
def test_the_step_model_changes_form_at_the_limit(queries: int, absorbed: bool) -> None:  # F2.8
    context = 2**20
    limit = latent_attention.absorbed_query_limit(DS_MIXER, context, HH.ridge("bf16"))
    assert limit is not None
    assert (queries <= limit) is absorbed
    costs = step_model(DS, HH).costs(Load(4, context, queries))
    found = next(cost.flop for cost in costs if cost.name == "attention decode")
    forms = latent_attention.latent_forms(DS_MIXER, context, batch=4, queries=queries)
    assert found == 61 * (forms.absorbed.scores_flop if absorbed else forms.expanded_again.flop)


SIZES = st.integers(1, 300)
MIXERS = st.builds(
    LatentAttention,
    kind=st.just("mla"),
    num_heads=st.integers(1, 64),
    kv_lora_rank=SIZES,
    qk_nope_head_dim=SIZES,
    qk_rope_head_dim=st.integers(0, 64),
    v_head_dim=SIZES,
)


@given(MIXERS, st.integers(1, 30))
def test_absorbed_context_by_enumeration(mixer: LatentAttention, queries: int) -> None:  # F2.8
    def absorbs(context: int) -> bool:
        forms = latent_attention.latent_forms(mixer, context, queries=queries)
        return forms.absorbed.flop <= forms.expanded_again.flop

    found = latent_attention.absorbed_context(mixer, queries)
    shown = [context for context in range(queries, queries + 300) if absorbs(context)]
    assert (shown[0] if shown else None) == (found if found is not None and found < queries + 300 else None)
    assert found is None or absorbs(found + 10**6)
    assert found is not None or not absorbs(10**9)


@given(
    MIXERS,
    st.integers(1, 500),
    st.integers(500, 10**5),
    st.floats(1, 1000),
    st.sampled_from(["expanded", "expanded_again"]),
)
def test_query_limit_by_comparing_times(mixer, queries: int, context: int, ridge: float, other) -> None:  # F2.8
    forms = latent_attention.latent_forms(mixer, context, queries=queries)

    def seconds(work: latent_attention.LatentWork) -> float:
        return max(work.flop / ridge, work.moved_bytes)

    absorbed, rival = seconds(forms.absorbed), seconds(getattr(forms, other))
    assume(absorbed != approx(rival, rel=1e-9) or absorbed == rival)
    limit = latent_attention.absorbed_query_limit(mixer, context, ridge, other)
    assume(limit is None or queries != approx(limit, rel=1e-9))
    # Equal times are possible beyond an exact 0 only: the latents are then the larger cache, but both forms compute as much.
    assert (absorbed <= rival) is (limit is None or queries <= limit)


@pytest.mark.parametrize(
    "options",
    [
        {"context": 0},
        {"context": 2, "queries": 3},
        {"context": 10, "queries": 0},
        {"context": 10, "batch": 0},
        {"context": 10, "kv_bytes": 0.0},
        {"context": 10, "kv_bytes": math.nan},
        {"context": 10, "activation_bytes": math.inf},
    ],
)
def test_domain_of_latent_forms(options) -> None:  # F2.8
    with pytest.raises(DomainError):
        latent_attention.latent_forms(DS_MIXER, **options)


def test_domain_of_the_crossovers() -> None:  # F2.8
    with pytest.raises(DomainError):
        latent_attention.absorbed_context(DS_MIXER, 0)
    for ridge in (0, -1, math.nan, math.inf):
        with pytest.raises(DomainError):
            latent_attention.absorbed_query_limit(DS_MIXER, 10, ridge)


# ------------------------------------------------------------------------------------------------ windows and eviction


@given(st.lists(st.integers(1, 6), max_size=6))
def test_receptive_field_by_following_attention(windows: list[int]) -> None:  # F3.3
    position = 100
    reached = {position}
    for window in reversed(windows):
        reached = {source for token in reached for source in range(token - window + 1, token + 1)}
    assert attention.receptive_field(windows) == len(reached)


def test_receptive_field_of_mistral_and_with_a_full_layer() -> None:  # F3.3
    assert attention.receptive_field([4096] * 32) == 32 * 4095 + 1
    assert attention.receptive_field([1024] * 5 + [None]) is None
    with pytest.raises(DomainError):
        attention.receptive_field([4096, 0])


@given(st.lists(st.tuples(st.floats(-5, 5), NUMBERS, NUMBERS), min_size=2, max_size=12), st.data())
def test_eviction_moves_the_output_within_its_bound(tokens, data) -> None:  # F14.4
    kept = data.draw(st.sets(st.sampled_from(range(len(tokens))), min_size=1))
    whole = attention.softmax_state([score for score, *_ in tokens], [value for _, *value in tokens])
    rest = [tokens[i] for i in sorted(kept)]
    left = attention.softmax_state([score for score, *_ in rest], [value for _, *value in rest])
    evicted = max(0.0, 1 - math.exp(left.log_sum_exp - whole.log_sum_exp))
    bound = attention.evicted_output_error_bound(evicted, max(math.hypot(*value) for _, *value in tokens))
    assert math.dist(whole.output, left.output) <= bound + 1e-9


def test_the_bound_of_eviction_is_reached() -> None:  # F14.4: the evicted value is the opposite of those that are kept
    whole = attention.softmax_state([math.log(0.1), math.log(0.9)], [[-1.0], [1.0]])
    assert 1.0 - whole.output[0] == approx(attention.evicted_output_error_bound(0.1, 1.0), rel=EXACT)


@pytest.mark.parametrize(("weight", "norm"), [(1.0, 1.0), (-0.1, 1.0), (math.nan, 1.0), (0.5, -1.0), (0.5, math.inf)])
def test_domain_of_eviction(weight: float, norm: float) -> None:  # F14.4
    with pytest.raises(DomainError):
        attention.evicted_output_error_bound(weight, norm)
