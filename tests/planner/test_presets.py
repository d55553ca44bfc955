"""The data of the preset drawings against the values of the formula collection, on its models and devices."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pytest import approx
from shapes import DS, HA, HH, M7, M8, deploy, number_format

from roofplan.errors import DomainError
from roofplan.models.spec import Attention, LayerGroup, Moe
from roofplan.planner.deployment import MemoryOverrides
from roofplan.planner.presets.attention import attention_bytes, attention_variants, moe_coverage
from roofplan.planner.presets.batching import batch_curve, chunk_trade, decode_intensity, static_waste, weight_formats
from roofplan.planner.presets.caching import cache_growth, cache_steps, paged_waste, prefix_ttft
from roofplan.planner.presets.drawing import Curve, Mark, Panel, PresetResult, doubled, spread
from roofplan.planner.presets.speculation import speculation

BF16 = number_format("bf16")


def points(panel: Panel, name: str, look: str = "line") -> dict[float, float]:
    """A curve as a mapping from abscissae to ordinates."""
    found = next(curve for curve in panel.curves if curve.name == name and curve.look == look)
    return dict(zip(found.x, found.y, strict=True))


def marks(panel: Panel, text: str) -> list[Mark]:
    return [mark for mark in panel.marks if mark.text == text]


def expert_model(name: str, experts: int, chosen: int):
    """A model with so many experts in every layer."""
    group = DS.layers[1]
    moe = next(part for part in group.mlp if isinstance(part, Moe))
    layer = replace(group, mlp=(replace(moe, num_experts=experts, experts_per_token=chosen),))
    return replace(DS, name=name, layers=(layer,))


# ------------------------------------------------------------------------------------------------ caches


def test_a_cache_grows_as_its_layers_keep_tokens() -> None:  # F3.1, F3.2, F3.3
    windowed = Attention(kind="sliding", window=1024, num_heads=32, num_kv_heads=16, head_dim=128)
    whole = replace(windowed, kind="full", window=None)
    mlp = M8.layers[0].mlp
    mixed = replace(
        M8,
        name="mixed",
        layers=(
            LayerGroup(count=52, attention=(windowed,), mlp=mlp),
            LayerGroup(count=10, attention=(whole,), mlp=mlp),
        ),
    )
    (panel,) = cache_growth([M7, M8, DS, mixed], BF16, HH, 131072).panels
    assert points(panel, "m7")[4096] == 2147483648
    assert points(panel, "m8")[131072] == 17179869184
    assert points(panel, "ds")[4096] == 4096 * 70272
    assert points(panel, "mixed")[131072] == 11173625856
    assert [mark.y for mark in panel.marks] == [80 * 10**9]
    assert all(scale.logarithmic for scale in (panel.across, panel.up))


def test_lines_end_at_the_context_that_a_model_was_published_for() -> None:
    (panel,) = cache_growth([replace(M7, max_context=4096), M8], BF16, HH, 131072).panels
    assert [curve.x[-1] for curve in panel.curves] == [4096, 131072]


def test_a_cache_saves_passes_flop_and_time_in_different_measure() -> None:  # F17
    found = cache_steps(deploy(M7, HA, prompt=1, output=512))
    each, ratios = found.panels
    whole = {mark.curve: mark.y for mark in ratios.marks}
    assert whole["tokens through the model"] == 256.5
    assert whole["FLOP"] == approx(250.62441821645294, rel=1e-12)
    assert whole["time at nominal rates"] == approx(1.8, abs=0.05)
    assert points(ratios, "tokens through the model")[1] == 1
    assert points(each, "without a cache")[1] == points(each, "with a cache")[1]
    # A pass over a few tokens is bound by reading the weights: 13.2 GB at 2.0 TB/s.
    assert points(each, "without a cache")[64] == approx(13214154752 / 2.0e12, rel=0.05)
    assert "256.5" in found.says


def test_a_cached_prefix_leaves_a_floor() -> None:  # F9.2
    found = prefix_ttft(deploy(M7, HA, prompt=2200, output=2), 2000, (0.8, 1.0, 1.2))
    times, hits = found.panels
    assert points(times, "reading weights and prefix", "bound")[2000] == approx(0.007131365376, rel=1e-9)
    assert points(times, "computed")[0] == approx(0.09539756242051282, rel=0.05)
    assert points(times, "computed")[0] > 0.09539756242051282  # its traffic of activations is added
    assert points(times, "computed")[2000] == approx(0.009009351548717948, rel=0.1)
    computed, floor = points(times, "computed"), points(times, "reading weights and prefix", "bound")
    assert all(computed[n] >= floor[n] for n in computed)
    for exponent, rate, best in (
        (0.8, 0.3777902212829579, 0.525826511576791),
        (1, 0.5765246161690034, 0.6929928142500624),
        (1.2, 0.7574503358049721, 0.8310029058089393),
    ):
        assert points(hits, f"LRU, Zipf {exponent:g}")[100] == approx(rate, rel=1e-9)  # F9.4
        if exponent == 1.2:
            assert points(hits, "any cache, Zipf 1.2", "bound")[100] == approx(best, rel=1e-9)


def test_blocks_waste_a_part_of_the_last_one_and_reservation_what_is_not_used() -> None:  # F3.9, F3.10
    found = paged_waste([16, 256], [2048])
    (panel,) = found.panels
    assert points(panel, "blocks of 16")[1024] == approx(7.5 / 1031.5)
    assert points(panel, "blocks of 256")[64] == approx(127.5 / 191.5)
    assert points(panel, "room for 2,048 tokens")[1024] == 0.5
    assert points(panel, "room for 2,048 tokens")[2048] == 0
    assert "from a mean of 180 tokens on" in found.says


# ------------------------------------------------------------------------------------------------ batches


def test_throughput_has_a_limit_that_no_batch_exceeds() -> None:  # F7.1, F7.2, F7.5
    d = deploy(M7, HA, memory=MemoryOverrides(activation_bytes=0, runtime_bytes=0, utilization=0.9))
    found = batch_curve(d, [1, 4096], 512)
    time, rate = found.panels
    assert points(time, "4,096 tokens each")[1] == approx((13214154752 + 2147483648) / 2.0e12, rel=0.01)
    assert max(points(rate, "4,096 tokens each").values()) < 931.3225746154785
    assert max(points(rate, "4,096 tokens each").values()) > 0.95 * 931.3225746154785
    (crossing,) = marks(time, "KV reads equal the weights")
    assert crossing.x == approx(6.1533203125)
    (full,) = marks(time, "memory is full")
    assert (full.x, full.curve) == (27, "4,096 tokens each")
    short = points(time, "1 token each")
    assert short[128] / short[1] < 1.1  # flat, as the rule says, only without a context
    assert short[512] / short[1] > 3


def test_intensity_is_the_batch_only_without_a_context() -> None:  # F1.7
    (panel,) = decode_intensity(deploy(M7, HA), [1, 4096], 512).panels
    flop = 2 * 6607077376 * 32 + 4 * 32 * 32 * 128 * 4096 * 32
    moved = 6607077376 * 2 + 32 * 4096 * 524288
    assert points(panel, "4,096 tokens each")[32] == approx(flop / moved, rel=1e-12)
    assert points(panel, "4,096 tokens each")[1] == approx(15361638400 / 15361638400, rel=1e-3)
    assert points(panel, "1 token each")[128] == approx(128, rel=0.01)
    assert [mark.y for mark in panel.marks] == [156.0]  # F1.1


def test_slots_of_a_static_batch() -> None:  # F8.1, F8.3
    used, gain = static_waste(200, 32).panels
    for name, batch, share in (
        ("geometric, mean 200", 8, 0.36852001450790417),
        ("geometric, mean 200", 32, 0.24686234984552965),
        ("lognormal, sigma 1", 8, 0.32427),
        ("lognormal, sigma 1.5", 16, 0.148434),
        ("even, none to a maximum", 8, 0.5625),
    ):
        assert points(used, name)[batch] == approx(share, rel=1e-5)
        assert points(gain, name)[batch] == approx(1 / share, rel=1e-5)


def test_chunks_trade_the_first_token_for_the_gap() -> None:  # F10.1, F10.2
    d = deploy(M8, HH, prompt=8192, output=2, concurrency=32)
    ttft, gap = chunk_trade(d, [256, 512, 1024, 2048], 2048, grouping="parts").panels
    for chunk, expected in (
        (256, 0.2432085170922643),
        (512, 0.18216777403686524),
        (1024, 0.15776245120721774),
        (2048, 0.145559789792394),
        (8192, 0.13640779373127618),
    ):
        assert points(ttft, "TTFT, without waiting")[chunk] == approx(expected, rel=1e-9)
    assert points(gap, "longest step")[8192] == approx(0.13640779373127618, rel=1e-9)
    (level,) = [mark for mark in gap.marks if mark.x is None]
    assert level.y == approx(0.0070445526734328355, rel=1e-9)


def test_narrow_weights_gain_while_reading_them_binds() -> None:  # F4.3, F1.5
    formats = [deploy(M8, HH, weights=name) for name in ("bf16", "int4-g128")]
    time, gain = weight_formats(formats, 128, 1024).panels
    wide, narrow = points(time, "bf16"), points(time, "int4-g128")
    assert wide[1] == approx(7504658432 * 2 / 3.35e12, rel=0.01)
    assert points(gain, "int4-g128")[1] == approx(wide[1] / narrow[1])
    assert 3 < points(gain, "int4-g128")[1] < 3.3
    assert points(gain, "int4-g128")[1024] == approx(1, abs=0.01)  # multiplied in 16 bits all the same
    assert set(points(gain, "bf16").values()) == {1.0}


# ------------------------------------------------------------------------------------------------ attention and experts


def test_traffic_of_one_head() -> None:  # F15.1, F15.2
    moved, intensity = attention_bytes(128, 16384, 98304, HH).panels
    for name, look, expected in (
        ("scores written out", "line", 138412032),
        ("FlashAttention, blocks of K and V outside", "line", 71303168),
        ("FlashAttention-2, blocks of Q outside", "line", 69206016),
        ("Q, K, V and O once: the least", "bound", 4194304),
    ):
        assert points(moved, name, look)[4096] == expected
    assert points(intensity, "scores written out")[4096] == approx(62.06060606060606, rel=1e-12)
    assert [mark.y for mark in intensity.marks] == [approx(295.34328358208955, rel=1e-12)]


def test_shapes_of_attention() -> None:  # F3.1, F3.2, F3.3
    cache, step = attention_variants(deploy(M7, HA, concurrency=4), 32768).panels
    names = [curve.name for curve in cache.curves]
    assert [points(cache, name)[32768] / 32768 for name in names[:4]] == [524288, 131072, 16384, 32 * 576 * 2]
    # Of 32 layers in the pattern 5 : 1 five see everything, 27 see 1,024 tokens.
    assert points(cache, names[4])[32768] == 2 * 8 * 128 * 2 * (27 * 1024 + 5 * 32768)
    assert points(step, names[0])[32768] > points(step, names[2])[32768]
    assert [curve.name for curve in step.curves] == names


def test_a_model_without_heads_has_no_shapes_to_compare() -> None:
    with pytest.raises(DomainError, match="keys and values of heads"):
        attention_variants(deploy(DS, HH), 4096)


def test_experts_that_a_step_touches() -> None:  # F2.10, F11.7
    models = [expert_model("small", 8, 2), expert_model("large", 256, 8)]
    touched, verified = moe_coverage(models, 4, 128).panels
    small, large = (curve.name for curve in touched.curves)
    assert points(touched, small)[4] == 5.46875 / 8
    assert points(touched, large)[1] == 8 / 256
    assert points(verified, small)[1] == approx(3.05078125, rel=1e-12)
    for batch, ratio in ((1, 4.697113990783691), (8, 3.2062120824424993), (32, 1.5577820126014883)):
        assert points(verified, large)[batch] == approx(ratio, rel=1e-12)
    with pytest.raises(DomainError, match="routed experts"):
        moe_coverage([M7], 4, 128)


# ------------------------------------------------------------------------------------------------ drafts


def test_speculation_by_drafts_and_by_batch() -> None:  # F11.5, F11.6
    found = speculation(deploy(M8, HH), [0.8, 0.5], 0.1, 4, [1024, 8192, 32768], 256)
    by_drafts, by_batch = found.panels
    table = (1, 1.636364, 2.033333, 2.270769, 2.401143, 2.45952, 2.46964, 2.447729, 2.404951)
    assert [points(by_drafts, "acceptance 0.8")[k] for k in range(9)] == approx(table, abs=1e-6)
    best = marks(by_drafts, "best number of drafts")
    assert [(mark.x, mark.curve) for mark in best] == [(6, "acceptance 0.8"), (2, "acceptance 0.5")]
    for batch, gain in ((1, 2.4011428571428572), (16, 2.4011428571428572), (64, 2.3134035497886956)):
        assert points(by_batch, "1,024 tokens each")[batch] == approx(gain, rel=1e-9)
    assert points(by_batch, "1,024 tokens each")[128] == approx(1.7290936662834318, rel=1e-9)
    assert points(by_batch, "1,024 tokens each")[256] == approx(1.3927779738190937, rel=1e-9)
    assert points(by_batch, "8,192 tokens each")[256] == approx(2.1375801434377495, rel=1e-9)
    assert points(by_batch, "32,768 tokens each")[256] == approx(2.3265304342974984, rel=1e-9)
    assert [mark.y for panel in found.panels for mark in panel.marks if mark.x is None] == [1.0, 1.0]


# ------------------------------------------------------------------------------------------------ the data itself


def test_what_is_not_finite_is_refused() -> None:
    with pytest.raises(DomainError, match="finite"):
        Curve("broken", (1.0,), (float("inf"),))
    with pytest.raises(ValueError, match="abscissae"):
        Curve("broken", (1.0, 2.0), (1.0,))


def test_steps_along_an_axis() -> None:
    assert doubled(1, 8) == (1, 2, 4, 8)
    assert doubled(5, 5) == (5,)
    steps = spread(1, 512)
    assert steps[0] == 1
    assert steps[-1] == 512
    assert {2**power for power in range(10)} <= set(steps)
    assert list(steps) == sorted(set(steps))


def test_a_table_has_every_point_and_mark() -> None:
    found: PresetResult = speculation(deploy(M8, HH), [0.8], 0.1, 2, [1024], 4)
    columns, rows = found.table()
    assert {key for row in rows for key in row} <= set(columns)
    drawn = sum(len(curve.x) for panel in found.panels for curve in panel.curves)
    assert len(rows) == drawn + sum(len(panel.marks) for panel in found.panels)
    assert found.to_dict()["command"] == "figure"
