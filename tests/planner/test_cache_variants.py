"""Variants beside the model as it is: work of decode attention, room, times and exactness, against closed forms."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx
from shapes import DS, HH, M7, M8, M70, deploy, device

from roofplan import engines, models
from roofplan.errors import DomainError, LayoutError
from roofplan.planner.cache_variants import ANY_DEVICE, CacheRow, DecodeWork, Served, VariantTable, compare_caches
from roofplan.planner.costs import Load
from roofplan.planner.kv_cache import cache_layout
from roofplan.planner.latent_attention import latent_forms
from roofplan.planner.parallel import Layout
from roofplan.planner.step import StepModel
from roofplan.planner.variant_text import parse_variants
from roofplan.planner.variants import with_latents

L = 8192
EVERY = [
    "mqa",
    "gqa:2",
    "mla:512+64",
    "window:4096",
    "interleave:5:1",
    "sinks:4+1020",
    "h2o:0.2",
    "share:2",
    "kv=fp8",
    "kv=q8_0",
    "kv=kivi2",
    "kv=nvfp4",
]


def compared(model=M8, texts=EVERY, *, context: int = L, served: bool = False, on=HH, **options) -> VariantTable:
    variants = parse_variants(texts, engines.load_format)
    d = deploy(model, on if served else ANY_DEVICE, prompt=context - 1, output=1, **options)
    return compare_caches(d, d if served else None, variants, context)


def rows(table: VariantTable) -> dict[str, CacheRow]:
    return {row.name: row for row in table.rows}


# ------------------------------------------------------------------------------------------------ work


@pytest.mark.parametrize(("texts", "groups"), [(["gqa:32"], 1), (["gqa:8"], 4), (["gqa:4"], 8)])
def test_intensity_of_grouped_queries(texts: list[str], groups: int) -> None:  # F1.6 at L = 4096
    wanted = {1: 0.9997559189650964, 4: 3.9960975609756098, 8: 7.984405458089668}[groups]
    [row] = compared(texts=texts, context=4096).rows
    assert row.work.intensity == approx(wanted, rel=1e-12)


def test_work_of_m8_by_hand() -> None:  # F2.6, F3.1 to F3.7
    found = rows(compared())
    flop = 4 * 32 * 32 * 128 * L
    cache = {
        "mqa": (flop, 16384 * L),
        "gqa:2": (flop, 32768 * L),
        "mla:512+64": (2 * 32 * 32 * L * (2 * 512 + 64), 36864 * L),  # F2.8, absorbed
        "window:4096": (flop // 2, 131072 * 4096),
        "interleave:5:1": (4 * 32 * 128 * (5 * L + 27 * 1024), 281018368),
        "sinks:4+1020": (flop // 8, 131072 * 1024),
        "share:2": (flop, 131072 * L),  # stored once, read by all
        "kv=fp8": (flop, 65536 * L),
        "kv=q8_0": (flop, 69632 * L),
        "kv=nvfp4": (flop, 36864 * L),
    }
    for name, (wanted_flop, wanted_bytes) in cache.items():
        work = found[name].work
        assert (work.flop, work.cache_bytes) == (wanted_flop, wanted_bytes), name
    assert found["h2o:0.2"].work.cache_bytes == 131072 * 1638  # whole tokens: floor(0.2 L)
    assert found["h2o:0.2"].work.flop == flop / L * 1638
    assert found["kv=kivi2"].work.cache_bytes == 131072 * 128 + 24576 * (L - 128)  # 3 bits but for the last 128 tokens
    vectors = 32 * 32 * (128 + 128) * 2  # queries and outputs of all layers
    assert found["mqa"].work.vector_bytes == found["kv=fp8"].work.vector_bytes == vectors


def test_latents_are_absorbed() -> None:  # F2.8
    [mixer] = DS.layers[0].attention
    form = latent_forms(mixer, 4096).absorbed
    work = compared(DS, [], context=4096).now.work
    assert (work.flop, work.cache_bytes) == (61 * form.scores_flop, 61 * form.cache_bytes)
    assert work.flop / work.cache_bytes == approx(241.77777777777777, rel=1e-12)


def test_work_does_not_depend_on_the_device_or_the_ranks() -> None:
    without, on = compared(), compared(served=True)
    ranks = compared(M8, served=True, layout=Layout(tp=4))
    for one, two, three in zip(without.rows, on.rows, ranks.rows, strict=True):
        assert one.work == two.work == three.work


def test_recurrent_states_are_read_and_written() -> None:  # F2.11
    mamba = models.load("codestral-mamba-7b")
    now = compared(mamba, [], context=4096).now
    assert now.work.cache_bytes == 2 * now.whole.state_bytes > 0
    assert now.whole.bytes_per_token == 0


# ------------------------------------------------------------------------------------------------ on a device


WEIGHTS = 16060522496


def test_sequences_that_fit() -> None:  # F7.5 with u = 0.9 of 80e9 B and nothing but weights and cache
    found = rows(compared(served=True))
    room = 72 * 10**9 - WEIGHTS
    assert found["window:4096"].served.max_batch == room // 536870912
    assert found["sinks:4+1020"].served.max_batch == room // (131072 * 1024)
    assert found["kv=q8_0"].served.max_batch == room // (69632 * L)
    assert found["kv=kivi2"].served.max_batch == room // 214958080
    fewer = 2 * 32 * 2 * 4096 * 7 * 128  # bytes of the projections of seven KV heads
    assert found["mqa"].served.max_batch == (room + fewer) // (16384 * L)
    readers = 2 * 16 * 2 * 4096 * 1024  # of sixteen layers without key and value projections
    assert found["share:2"].served.max_batch == (room + readers) // (65536 * L)
    table = compared(served=True)
    assert table.now.served.max_batch == room // (131072 * L) == 52
    assert table.changes(rows(table)["window:4096"])["max_batch"] == 104 / 52


def test_times_fall_by_the_bytes_that_are_not_read() -> None:  # F6.2 at nominal rates: memory-bound attention
    table = compared(served=True, texts=["window:4096", "kv=fp8", "share:2"], concurrency=4)
    found, now = rows(table), table.now.served.tpot_s
    window = found["window:4096"].served.tpot_s
    assert now.bound - window.bound == approx(4 * 131072 * (L - 4096) / 3.35e12, rel=1e-9)
    fp8 = found["kv=fp8"].served.tpot_s
    written = 4 * 65536 / 3.35e12  # new entries are half as wide too
    assert now.bound - fp8.bound == approx(4 * 65536 * L / 3.35e12 + written, rel=1e-9)
    assert found["share:2"].served.tpot_s.bound < now.bound  # fewer weights, as many cache bytes


def test_the_largest_batch_and_its_rate() -> None:
    served = compared(served=True, concurrency=4).now.served
    assert (served.batch, served.max_batch) == (4, 52)
    assert served.largest_rate.bound == approx(52 / served.largest_tpot_s.bound, rel=1e-12)
    assert served.tpot_s.expected < served.largest_tpot_s.expected
    step = served.step_flop, served.step_bytes
    assert step[1] == approx(15009316864 + 4 * 131072 * L, rel=1e-12)  # F4.3, F6.2
    assert step[0] == approx(2 * 7504658432 * 4 + 4 * 4 * 32 * 32 * 128 * L, rel=1e-12)  # F1.7
    assert served.intensity == step[0] / step[1]


def test_batches_that_differ_are_not_compared() -> None:
    table = compared(served=True, texts=["mqa", "kv=fp8"], concurrency=100)
    for row in table.rows:
        assert row.served.batch > table.now.served.batch == 52
        assert table.changes(row)["tpot_s"] is None
        assert table.no_tpot_because(row) == "batches_differ"
        assert table.changes(row)["largest_batch_output_tokens_per_s"] > 1


def test_what_does_not_fit_has_no_time() -> None:
    table = compared(M70, ["kv=fp8"], served=True)
    served = table.now.served
    assert (served.max_batch, served.tpot_s, served.largest_rate, served.reason) == (0, None, None, "does_not_fit")
    assert table.changes(table.rows[0])["max_batch"] is None
    assert table.no_tpot_because(table.rows[0]) == "does_not_fit"


def test_a_device_without_rates_has_room_but_no_times() -> None:
    plain = replace(HH, peak=ANY_DEVICE.peak)
    served = compared(served=True, on=plain, texts=[]).now.served
    assert (served.max_batch, served.tpot_s, served.reason) == (52, None, "no_dense_rate")


def test_latents_are_copied_to_every_rank() -> None:  # F3.8
    table = compared(M7, ["mla:512+64", "gqa:4"], layout=Layout(tp=8))
    found = rows(table)
    assert table.now.rank.bytes_per_token == 524288 // 8
    assert found["mla:512+64"].rank.bytes_per_token == 36864
    assert found["gqa:4"].rank.bytes_per_token == 32 * 2 * 128 * 2


# ------------------------------------------------------------------------------------------------ what is said


def test_exactness() -> None:
    table = compared(texts=["gqa:8", "share:1", "kv=bf16", "h2o:1", "kv=fp8", "sinks:4+1020", "window:4096"])
    said = {row.name: (table.is_exact(row), table.exact_tokens(row)) for row in table.rows}
    assert said == {
        "gqa:8": (True, None),
        "share:1": (True, None),
        "kv=bf16": (True, None),
        "h2o:1": (True, None),
        "kv=fp8": (False, 0),
        "sinks:4+1020": (False, 1024),
        "window:4096": (False, None),
    }
    same = rows(table)["gqa:8"]
    assert same.model is table.now.model
    assert table.changes(same)["bytes_per_sequence"] == 1


def test_reach_and_names() -> None:
    table = compared(texts=["window:4096", "mqa"])
    found = rows(table)
    assert found["window:4096"].reach == 131041
    assert found["mqa"].reach is None
    assert found["mqa"].model.name == "m8 with mqa"
    assert table.now.name == "as it is"


def test_the_window_that_is_taken_for_granted_is_an_assumption() -> None:
    assert [one.name for one in compared(texts=["interleave:5:1"]).assumptions] == ["interleave_window"]
    assert compared(texts=["interleave:5:1:512", "mqa"]).assumptions == ()
    assert "interleave_window" not in {one.name for one in compared(served=True, texts=["mqa"]).assumptions}


def test_what_a_model_cannot_be_is_refused() -> None:
    with pytest.raises(DomainError, match="--variant: got mqa of ds, want a model with layers"):
        compared(DS, ["mqa"])
    with pytest.raises(LayoutError):
        compared(M8, ["mqa"], layout=Layout(tp=3))


# ------------------------------------------------------------------------------------------------ properties


@settings(max_examples=30)
@given(
    name=st.sampled_from(
        ["llama-2-7b", "llama-3.1-8b", "qwen3-32b", "gemma-3-27b", "mixtral-8x7b", "qwen3-next-80b-a3b"]
    ),
    context=st.integers(2, 2**17),
    text=st.sampled_from(EVERY),
)
def test_work_follows_from_bytes(name: str, context: int, text: str) -> None:
    model = _LOADED[name]
    try:
        table = compared(model, [text], context=context)
    except DomainError:
        return
    [row] = table.rows
    now = table.now
    assert row.work.flop >= 0
    # Without sharing, a decode step reads what is stored, but for what fills up a last group.
    if text != "share:2" and not row.whole.states:
        assert row.work.cache_bytes == approx(row.bytes_per_sequence, abs=2)
    if text in {"mqa", "window:4096", "sinks:4+1020", "h2o:0.2", "kv=fp8", "kv=nvfp4"}:
        assert row.work.cache_bytes <= now.work.cache_bytes
        assert row.work.flop <= now.work.flop


@settings(max_examples=60)
@given(
    name=st.sampled_from(["m8", "ds", "gemma-3-27b", "deepseek-v4-pro", "latents"]),
    context=st.integers(1, 2**17),
    text=st.sampled_from(["kv=kivi2", "kv=kivi4", "window:64+kv=kivi2", "h2o:0.2", "h2o:0.01+kv=kivi2", "kv=bf16"]),
    batch=st.integers(1, 512),
)
def test_what_is_stored_is_what_a_step_reads(
    name: str, context: int, text: str, batch: int
) -> None:  # F3.3, F3.6, F3.7
    try:
        [row] = compared(_SHAPES[name], [text], context=context).rows
    except DomainError:  # no layer that could be so
        return
    chosen = {term.reads for term in row.whole.terms if term.reads}
    if all(context <= reads for reads in chosen):  # else sparse attention reads fewer than are stored
        assert row.work.cache_bytes == approx(row.bytes_per_sequence, rel=1e-9, abs=2)
    _, _, read = StepModel.of(deploy(row.model, HH, kv=row.kv_format.name)).totals(Load(batch, context))
    assert read == approx(batch * row.work.cache_bytes, rel=1e-9)


def test_recent_entries_of_prompts_and_of_every_rank() -> None:
    """The tokens before a chunk are read with their recent ones in 16 bits, of each prompt; ranks of a context group keep their own."""
    model = StepModel.of(deploy(M8, HH, kv="kivi-2"))
    for past, chunk, pieces in ((0, 100, 1), (1000, 500, 1), (1000, 500, 5)):
        read = model.totals(Load(0, 0, chunk=chunk, past=past, pieces=pieces))[2]
        assert read == approx(pieces * model_bytes(past + chunk // pieces))
    ranks = deploy(M8, HH, kv="kivi-2", layout=Layout(cp=4, tp=4))
    read = StepModel.of(ranks).totals(Load(1, 8192))[2]
    kept = cache_layout(M8, ranks.formats.kv, ranks.layout).bytes_per_sequence(8192)
    assert read == approx(kept) == approx(model_bytes(2048) / 4)


def model_bytes(tokens: int) -> int:
    """Of M8 in KIVI at two bits: 65,536 elements a token, 3 bits each but for the last 128 tokens in 16."""
    return 131072 * min(tokens, 128) + 24576 * max(0, tokens - 128)


_SHAPES = {
    "m8": M8,
    "ds": DS,
    "gemma-3-27b": models.load("gemma-3-27b"),
    "deepseek-v4-pro": models.load("deepseek-v4-pro"),
    "latents": with_latents(M8),
}
_LOADED = {
    name: models.load(name)
    for name in ("llama-2-7b", "llama-3.1-8b", "qwen3-32b", "gemma-3-27b", "mixtral-8x7b", "qwen3-next-80b-a3b")
}


def test_work_grows_with_the_context() -> None:
    for model in (M8, DS, with_latents(M8)):
        d = deploy(model, ANY_DEVICE)
        work = [DecodeWork.of(d, context) for context in (1, 100, 10_000)]
        assert [one.flop for one in work] == [100**power * work[0].flop for power in range(3)]
        assert [one.cache_bytes for one in work] == [100**power * work[0].cache_bytes for power in range(3)]


def test_served_alone_is_the_same_as_in_a_table() -> None:
    d = deploy(M8, device("small", 300e12, 1e12, capacity=40 * 10**9), prompt=L - 1, output=1, concurrency=2)
    table = compare_caches(d, d, (), L)
    assert table.now.served == Served.of(d, L)
