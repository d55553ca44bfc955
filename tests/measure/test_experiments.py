"""Each experiment on a tiny model: what it records, and that bytes, steps and errors are the planner's. Nothing here is timed in earnest."""

from __future__ import annotations

import itertools
from dataclasses import replace
from importlib import import_module

import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # two threads on a shared machine wait for one another

from measured_shapes import DENSE, LATENT, MIXTURE, SHAPES, tiny  # noqa: E402  # after importorskip
from shapes import HA, dense  # noqa: E402  # after importorskip
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402  # after importorskip

from roofplan import engines, hardware  # noqa: E402  # after importorskip
from roofplan.errors import DomainError  # noqa: E402  # after importorskip
from roofplan.measure.experiments import attention, batching, bench, decode, operations, speculation  # noqa: E402  # after importorskip
from roofplan.measure.known_devices import Devices  # noqa: E402  # after importorskip
from roofplan.measure.machine import Machine  # noqa: E402  # after importorskip
from roofplan.measure.reference.attention import attend  # noqa: E402  # after importorskip
from roofplan.measure.reference.counting import count_launches, peak_bytes  # noqa: E402  # after importorskip
from roofplan.measure.reference.model import Reference  # noqa: E402  # after importorskip
from roofplan.measure.running import EXPERIMENTS  # noqa: E402  # after importorskip
from roofplan.measure.timing import Limits  # noqa: E402  # after importorskip
from roofplan.models.spec import LayerGroup, Mlp  # noqa: E402  # after importorskip
from roofplan.planner.costs import Load  # noqa: E402  # after importorskip
from roofplan.planner.kv_cache import cache_layout  # noqa: E402  # after importorskip
from roofplan.planner.static_batching import continuous_run, static_run  # noqa: E402  # after importorskip

MACHINE = Machine("cpu", "cpu", "a CPU", cache_bytes=2**16, threads=1, memory_bytes=2**33)
BRIEF = Limits(least=1, noise=1.0, most_s=1e-3, most=2, sample_s=0.0, warm_s=0.0)
DEVICES = Devices(HA, None)
H100 = hardware.load("h100-sxm5-80gb")
WIDE = tiny(
    "wide",
    LayerGroup(
        count=2,
        attention=(replace(DENSE.layers[0].attention[0], head_dim=32, num_heads=4),),
        mlp=(Mlp(kind="gated", intermediate_size=256),),
    ),
    hidden_size=128,
)
SMALL = {
    "decode": {"grid": ((1, 5), (3, 9))},
    "prefill": {"lengths": (4, 12)},
    "cache": {"positions": (4, 9), "generation": (3, 4)},
    "kv_formats": {"tokens": 64, "bits": (4,)},
    "heavy_hitters": {"tokens": 40},
    "prefix": {"prompt": 12, "reused": (8,)},
    "batching": {"outputs": (5, 1, 2, 1, 3), "slots": 2, "prompt": 3},
    "paged": {"cases": ((2, 9),), "block": 4},
    "chunked": {"prompt": 12, "chunks": (5, 12)},
    "weight_formats": {"formats": ("int8-channel", "nf4"), "text": 6},
    "attention": {"caches": ((2, 16),), "prompts": (16,)},
    "speculation": {"drafts": (2,), "output": 4, "rounds": 500},
}
_NO_PREDICTION = {
    "cache.peak_with",
    "cache.peak_without",
    "weight_formats.divergence",
    "speculation.acceptance",
    "speculation.p_value",
}


def run(name: str, spec=WIDE, **options):
    experiment = import_module(f"roofplan.measure.experiments.{name}")
    return experiment.run(MACHINE, spec, BRIEF, **({"devices": DEVICES} | SMALL[name] | options))


def of(records, name: str) -> list:
    return [record for record in records if record.name == name]


def test_every_experiment_of_the_command_is_here():
    assert {name for names in EXPERIMENTS.values() for name in names} == set(SMALL)


@pytest.mark.parametrize("name", SMALL)
def test_each_experiment_records_what_it_measures_beside_what_is_predicted(name):
    into = []
    records = run(name, into=into)
    assert records
    assert into == records
    for record in records:
        assert record.name.startswith(f"{name}.")
        assert record.unit in {"s", "B", "1"}
        assert record.parameters["model"].startswith("wide")
        if record.name not in _NO_PREDICTION and name != "heavy_hitters":
            assert record.predicted_datasheet > 0
        if record.unit == "s":
            assert record.measured.median > 0
            assert record.predicted_measured is None  # no measured device was given


@pytest.mark.parametrize("name", ["cache", "paged", "weight_formats", "kv_formats"])
@pytest.mark.parametrize("spec", [WIDE, MIXTURE, LATENT], ids=lambda spec: spec.name)
def test_bytes_of_tensors_are_the_planners(name, spec):
    records = run(name, spec)
    for record in records:
        if record.unit == "B" and record.name not in _NO_PREDICTION:
            assert record.measured.median == record.predicted_datasheet


def operations_of(call) -> tuple[float, float]:
    """FLOP of what torch really multiplies, by the shapes of its tensors: products of matrices, and those of attention's batches."""
    with FlopCounterMode(display=False) as counted:
        call()
    found = {str(name): count for name, count in counted.get_flop_counts()["Global"].items()}
    return found.pop("aten.mm", 0), sum(found.values())


def test_bytes_of_a_decode_step_are_the_planners():
    for record in run("decode"):
        load = Load(record.parameters["batch"], record.parameters["context"])
        assert record.parameters["bytes"] == bench.bench(MACHINE, WIDE, BRIEF, devices=DEVICES).amounts(load)["bytes"]


@pytest.mark.parametrize("spec", [WIDE, MIXTURE, LATENT], ids=lambda spec: spec.name)
def test_operations_of_a_decode_step_are_the_planners(spec):
    model = Reference(spec, fused=False)
    for record in run("decode", spec):
        batch, context = record.parameters["batch"], record.parameters["context"]
        cache, new = bench.filled(model.cache(batch, context)), model.tokens(batch, 1)
        cache.length = context - 1
        assert record.parameters["flop"] == sum(operations_of(lambda new=new, cache=cache: model(new, cache)))


@pytest.mark.parametrize("spec", [WIDE, MIXTURE], ids=lambda spec: spec.name)
@pytest.mark.parametrize(
    ("name", "record", "past"),
    [("prefill", "prompt", 0), ("cache", "token_without", 0), ("prefix", "whole", 0), ("prefix", "suffix", 8)],
)
def test_operations_of_a_prompt_are_the_planners(name, record, past, spec):
    """Products as they are; of attention's squares, which plain products fill whole, the pairs that may see one another."""
    model = Reference(spec, fused=False)
    for found in of(run(name, spec), f"{name}.{record}"):
        length = found.parameters.get("prompt") or found.parameters["position"]
        tokens, cache = model.tokens(1, length), model.cache(1, length, rings=False)
        if past:
            model(tokens[:, :past], cache)
        products, squares = operations_of(lambda t=tokens, c=cache: model(t[:, past:], c))
        seen = sum(range(past + 1, length + 1)) / ((length - past) * length)
        assert found.parameters["flop"] == products + squares * seen


def test_operations_of_attention_alone_are_those_of_its_tensors():
    records = run("attention")
    own = bench.bench(MACHINE, WIDE, BRIEF, devices=DEVICES)
    heads = WIDE.layers[0].attention[0]
    decode, prompt = of(records, "attention.decode")[0], of(records, "attention.prefill")[0]
    for record, batch, asked, seen in ((decode, 2, 1, 1.0), (prompt, 1, 16, 17 / 32)):
        queries, keys, values = attention.tensors(own, heads, batch, asked, 16)
        assert record.parameters["bytes"] == 2 * queries.nbytes + keys.nbytes + values.nbytes
        counted = operations_of(lambda q=queries, k=keys, v=values: attend(q, k, v, fused=False))
        assert record.parameters["flop"] == sum(counted) * seen


def test_bytes_of_a_mixture_are_those_of_the_experts_that_were_read():
    record = run("decode", MIXTURE, grid=((1, 5),))[0]
    planned = bench.bench(MACHINE, MIXTURE, BRIEF, devices=DEVICES).amounts(Load(1, 5))
    assert record.parameters["bytes"] == pytest.approx(planned["bytes"], rel=1e-9)


def test_predictions_by_the_data_sheet_are_the_roofline():
    own = bench.bench(MACHINE, WIDE, BRIEF, devices=DEVICES)
    nominal, reached = own.step_models()
    assert reached is None
    record = of(run("decode"), "decode.step")[0]
    assert record.predicted_datasheet == float(nominal.step_s(1, 5))
    assert record.predicted_datasheet > record.parameters["bytes"] / HA.memory.bandwidth


def test_steps_of_both_ways_to_batch_are_the_planners():
    records, (lengths, slots) = run("batching"), ((5, 1, 2, 1, 3), 2)
    for name, planned in (("static", static_run(lengths, slots)), ("continuous", continuous_run(lengths, slots))):
        steps = of(records, f"batching.{name}_steps")[0]
        assert steps.measured.median == planned.steps
        assert steps.parameters["utilization"] == pytest.approx(planned.utilization)
        assert steps.parameters["tokens"] == sum(lengths)


@pytest.mark.parametrize("spec", [DENSE, LATENT], ids=lambda spec: spec.name)
def test_requests_served_together_each_get_their_tokens(spec):
    served = batching.serve(Reference(spec), [4, 1, 1, 2], 2, 3, continuous=True)
    assert (served.steps, served.tokens) == (4, 8)


def test_blocks_take_whole_blocks():
    record = of(run("paged"), "paged.bytes")[0]
    per_token = cache_layout(WIDE, engines.load_format("fp32")).bytes_per_token
    assert record.measured.median == 2 * 12 * per_token  # nine tokens in three blocks of four
    assert record.parameters["wasted_slots"] == 3


def test_a_generation_without_a_cache_passes_more_tokens():
    records = run("cache")
    assert of(records, "cache.generation_without")[0].parameters["token_passes"] == 3 + 4 + 5 + 6  # formula F17
    assert of(records, "cache.generation_with")[0].parameters["token_passes"] == 6
    peaks = {name: of(records, f"cache.peak_{name}")[-1].measured.median for name in ("with", "without")}
    assert peaks["without"] > 5 * peaks["with"]  # vectors of nine tokens against those of one


def test_fewer_bits_take_fewer_bytes_and_move_the_output_further():
    records = run("weight_formats", formats=("int8-channel", "int4-g32"), text=8)
    size = {r.parameters["format"]: r.measured.median for r in of(records, "weight_formats.bytes")}
    moved = {r.parameters["format"]: r.measured.median for r in of(records, "weight_formats.divergence")}
    assert size["fp32"] == 2 * size["bf16"] > size["bf16"] > size["int8-channel"] > size["int4-g32"]
    assert moved["fp32"] == 0 < moved["bf16"] < moved["int4-g32"]
    assert moved["int8-channel"] < moved["int4-g32"]


def test_formats_that_do_not_fit_are_left_out_and_said():
    said = []
    records = run("weight_formats", DENSE, formats=("int4-g128",), text=4, say=said.append)
    assert {record.parameters["format"] for record in records} == {"fp32", "bf16"}
    assert "int4-g128 left out" in said[0]


def test_keys_with_outliers_are_better_grouped_by_channel():
    records = of(run("kv_formats"), "kv_formats.divergence")
    error = {(r.parameters["source"], r.parameters["keys_per"]): r.measured.median for r in records}
    assert error["synthetic", "token"] > 10 * error["synthetic", "channel"]
    for record in records:  # scales in 16 bits change little
        assert record.ratio == pytest.approx(1, abs=0.1)


def test_evicting_moves_the_output_within_the_bound():
    records = run("heavy_hitters")
    for record in of(records, "heavy_hitters.output_error"):
        assert 0 < record.measured.median <= record.parameters["bound"]
    shares = [r.measured.median for r in of(records, "heavy_hitters.share") if r.parameters["source"] == "model"]
    assert shares == sorted(shares)
    for record in of(records, "heavy_hitters.share"):
        assert record.parameters["even"] < record.measured.median < 1


def test_scores_that_are_written_out_take_the_square_in_memory():
    records = run("attention", prompts=(64,))
    fused, plain = (of(records, f"attention.{name}_peak")[0] for name in ("prefill", "plain"))
    heads, tokens = 4, 64
    assert plain.measured.median >= heads * tokens**2 * 4
    assert fused.measured.median == fused.predicted_datasheet == 2 * heads * tokens * 32 * 4


def test_what_speculation_gives_is_the_targets():
    assert speculation.judged(1000) > 1e-3
    records = run("speculation")
    rounds = of(records, "speculation.tokens_per_round")[0]
    assert 1 <= rounds.measured.median <= 3
    assert 0 < of(records, "speculation.acceptance")[0].measured.median <= 1


@pytest.mark.parametrize(
    "spec", [s for s in SHAPES if s.name in {"window", "states", "cross", "sinks"}], ids=lambda s: s.name
)
@pytest.mark.parametrize("name", SMALL)
def test_models_that_an_experiment_does_not_fit_are_measured_or_named(name, spec):
    said = []
    records = run(name, spec, say=said.append)
    assert records or said


def test_small_caches_are_overwritten_before_a_sample(monkeypatch):
    flushed = itertools.count()
    monkeypatch.setattr(Machine, "flush", lambda self: next(flushed))
    run("decode", grid=((1, 5),))
    assert next(flushed) == 0  # weights of more than four caches
    monkeypatch.setattr(bench, "CACHES", 10**6)
    run("decode", grid=((1, 5),))
    assert next(flushed) > 1


def test_a_size_for_which_there_is_no_memory_is_left_out_and_said(monkeypatch):
    whole = Reference.cache

    def scarce(self, sequences, tokens, **options):
        if sequences == 3:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return whole(self, sequences, tokens, **options)

    monkeypatch.setattr(Reference, "cache", scarce)
    said = []
    records = run("decode", say=said.append)
    assert [record.parameters["batch"] for record in records] == [1]
    assert said == ["decode of 3 x 9 tokens: no memory for it; left out"]


def test_other_errors_are_not_taken_for_a_lack_of_memory():
    own = bench.bench(MACHINE, WIDE, BRIEF)
    with pytest.raises(RuntimeError, match="shapes"), own.within_memory("it"):
        raise RuntimeError("shapes do not match")


def test_a_model_that_is_too_large_loses_layers_and_it_is_said(monkeypatch):
    monkeypatch.setattr(Machine, "free_bytes", lambda self: 2**29)
    said = []
    spec = dense(1024, 12, 16, 4, 64, 2816, 512, name="deep")
    own = bench.bench(MACHINE, spec, BRIEF, say=said.append)
    # 45.1 MB a layer, 4.2 MB of tables, in 0.4 of 537 MB.
    assert own.spec.num_layers == 4
    assert said == ["deep: 4 of its 12 layers, since 0.5 GB of weights exceed 0.2 GB"]
    monkeypatch.setattr(bench, "_MOST_BYTES", {True: 2**20, False: 2**20})  # a step over more takes too long
    assert bench.bench(MACHINE, spec, BRIEF).spec.num_layers == 1
    monkeypatch.setattr(Machine, "free_bytes", lambda self: 2**20)
    with pytest.raises(DomainError, match="for 1 layers of deep"):
        bench.bench(MACHINE, spec, BRIEF)


def test_a_step_that_no_device_can_predict_is_measured_all_the_same():
    record = run("decode", devices=Devices())[0]
    assert record.predicted_datasheet is None
    assert record.measured.median > 0
    assert "flop" not in record.parameters  # counted by the planner, which has no device


def test_a_device_without_the_arithmetic_is_said_to_have_no_prediction():
    said = []
    narrow = replace(HA, peak=replace(HA.peak, bf16=None, fp32=None, int8=1e12))
    record = run("decode", grid=((1, 5),), devices=Devices(narrow, None), say=said.append)[0]
    assert record.predicted_datasheet is None
    assert said[0].startswith("no prediction for wide on ha: ")


def test_an_output_that_is_not_the_targets_is_said_to_be_a_fault(monkeypatch):
    monkeypatch.setattr(speculation, "judged", lambda rounds: 1e-9)
    said = []
    run("speculation", say=said.append)
    assert said == ["speculation: the output is not distributed as the target's (p 1.0e-09): a fault of roofplan"]


def test_operations_of_a_step_are_counted():
    model = Reference(DENSE)
    cache = model.cache(1, 8)
    token = model.tokens(1, 1)
    found = count_launches(lambda: model(token, cache))
    # Four products and one attention a layer, and the head.
    assert found.products == 2 * 5 + 1
    assert found.small > 2 * 10
    assert found.views > 0


def test_the_peak_counts_what_lives_at_once():
    def call():
        one = torch.zeros(1000)
        two = one + 1
        del one
        return two * 2

    assert peak_bytes(call, MACHINE) == 2 * 4000


def test_defaults_suit_the_kind_of_machine():
    assert bench.default_model(MACHINE).num_layers > bench.default_model(MACHINE, quick=True).num_layers
    gpu = replace(MACHINE, kind="cuda", torch_device="cuda:0")
    assert bench.default_model(gpu).name == "llama-3.1-8b"
    assert [bench.default_dtype(replace(MACHINE, kind=kind)) for kind in ("cpu", "cuda", "mps")] == [
        "fp32",
        "bf16",
        "fp16",
    ]
    assert decode.QUICK_GRID != decode.GRID
    assert attention.full_heads(LATENT) is None


class FakeCuda:
    """Stands in for torch.cuda: graphs that replay their call, and an allocator that counts."""

    def __init__(self) -> None:
        self.replayed = 0
        self.now = self.most = 100

    def memory_allocated(self) -> int:
        return self.now

    def max_memory_allocated(self) -> int:
        return self.most

    def reset_peak_memory_stats(self) -> None:
        self.most = self.now

    def synchronize(self) -> None:
        pass


def test_the_peak_on_cuda_is_the_allocators(monkeypatch):
    fake = FakeCuda()
    monkeypatch.setattr(torch, "cuda", fake)

    def call():
        fake.most = 5100

    assert peak_bytes(call, replace(MACHINE, kind="cuda")) == 5000


def test_steps_become_graphs_but_for_experts_that_the_host_chooses(monkeypatch):
    graphed = []
    monkeypatch.setattr(bench, "graphed", lambda call, machine: graphed.append(machine.kind) or call)
    for spec in (DENSE, MIXTURE):
        own = bench.bench(MACHINE, spec, BRIEF)
        own.decode(own.model(), 1, 4)[0]()
    assert graphed == ["cpu"]


def test_small_operations_are_launched_by_a_graph_on_cuda_and_by_the_host_elsewhere():
    model = Reference(DENSE)
    host, passes = operations.launches_of(model, MACHINE)
    device, same = operations.launches_of(model, replace(MACHINE, kind="cuda"))
    assert host > device > 1  # views cost the host alone
    assert passes == same > 0


def test_predictions_for_a_measured_machine_count_operations_as_long_as_they_take():
    def predicted(seconds: float) -> float:
        own = bench.bench(MACHINE, WIDE, BRIEF, devices=Devices(None, H100))
        own._launching = operations.Launching(10.0, 0.0, seconds)
        return float(own.step_models()[1].step_s(1, 4))

    # Two layers of a write, an activation and two norms each, the table and the last norm: ten of them, a hundred operations.
    assert predicted(2e-6) - predicted(1e-6) == pytest.approx(100 * 1e-6)
    operations.operation_s.cache_clear()
    assert 0 < operations.operation_s(MACHINE, "fp32") < 0.1
