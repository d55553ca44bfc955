"""The files of kernels say what the fits give on the committed tables, and the fit finds constants that are known."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from pytest import approx

from roofplan.accuracy.fit import calls, classes, collectives, kernels, tables, written
from roofplan.accuracy.fit.calls import Call
from roofplan.accuracy.fit.collectives import Key
from roofplan.accuracy.fit.fitting import Constants, Fitted, KernelClass, errors, fit, fit_class, predicted
from roofplan.accuracy.fit.robust import Bound, loss, minimise
from roofplan.documents import parse_yaml
from roofplan.errors import DomainError, SpecError

NAMES = [level.name for level in classes.LEVELS]
CALLS = classes.read_calls()
SERIES = collectives.read_series()
GENERIC = {(f.kernel.section, f.kernel.label): f for f in classes.fit_level(classes.GENERIC, CALLS)}


@pytest.mark.parametrize("name", NAMES)
def test_the_file_says_what_the_fit_gives(name: str) -> None:
    path = written.FILES / f"{name}.yaml"
    said = parse_yaml(path.read_text(encoding="utf-8"), path.name).data
    data = written.kernel_data(name)
    sources = data.pop("sources")
    for key, value in data.items():
        assert said[key] == value, f"{name}.yaml is stale: python -m roofplan.accuracy.fit.kernels --yaml {name}"
    for key, origin in sources.items():
        assert said["sources"][key] == origin


@pytest.mark.parametrize("name", NAMES)
def test_the_text_reads_back_as_the_data(name: str, tmp_path: Path) -> None:
    assert parse_yaml(written.kernel_text(name, tmp_path), name).data == written.kernel_data(name)


def test_the_text_keeps_keys_that_are_not_fitted_here(tmp_path: Path) -> None:
    (tmp_path / "ada.yaml").write_text(
        "notes: kept\nspread: {known: 1.5}\nsources: {spread: {kind: derived, source: x}}\n"
    )
    said = parse_yaml(written.kernel_text("ada", tmp_path), "ada").data
    assert (said["notes"], said["spread"]) == ("kept", {"known": 1.5})
    assert said["sources"]["spread"] == {"kind": "derived", "source": "x"}
    assert said["gemm"] == written.kernel_data("ada")["gemm"]


# The time model's own constants: us, share of bandwidth, share of compute. The fit gives them back, within their errors.
@pytest.mark.parametrize(
    ("section", "label", "floor", "bandwidth", "compute"),
    [
        ("gemm", "bf16", 4, 0.83, 0.75),
        ("gemm", "fp8", 7, 0.83, 0.58),
        ("gemm", "fp4", 7.5, 0.80, 0.46),
        ("decode_attention", "16-bit", 11, 0.88, 0.5),
        ("decode_attention", "8-bit", 13, 0.78, 0.5),
        ("prefill_attention", "16-bit", 13, 1, 0.62),
        ("experts", "bf16", 28, 0.9, 0.5),
        ("experts", "fp4", 17, 0.9, 0.35),
    ],
)
def test_generic_constants_are_those_of_the_time_model(
    section: str, label: str, floor: float, bandwidth: float, compute: float
) -> None:
    found = GENERIC[section, label]
    for mine, noted in (
        (found.constants.floor * 1e6, floor),
        (found.constants.bandwidth, bandwidth),
        (found.constants.compute, compute),
    ):
        assert mine == approx(noted, rel=0.15)
    used = [call for call in CALLS[section] if call.gpu in found.devices and found.kernel.holds(call)]
    ramp = 1000 if found.constants.ramp_tokens else 0
    theirs = errors(Constants(floor * 1e-6, bandwidth, compute, ramp), found.kernel.overlap, used)
    assert found.errors.median <= theirs.median + 0.01


def test_a_device_left_out_is_predicted_nearly_as_well() -> None:
    for (_, label), found in GENERIC.items():
        if found.together is None:
            assert label == "fp4"  # measured on one device
            continue
        assert set(found.left_out) == set(found.devices)
        assert found.together.rows == found.errors.rows
        assert found.errors.median - 0.01 <= found.together.median < found.errors.median + 0.10


def test_families_are_fitted_better_than_all_together() -> None:
    for level in classes.FAMILIES[:3]:
        for found in classes.fit_level(level, CALLS):
            kernel, generic = found.kernel, GENERIC[found.kernel.section, found.kernel.label].constants
            used = [call for call in CALLS[kernel.section] if call.gpu in level.devices and kernel.holds(call)]
            measured = np.array([call.measured_s for call in used])
            counts = {gpu: sum(call.gpu == gpu for call in used) for gpu in found.devices}
            weights = np.array([1 / counts[call.gpu] for call in used])

            def lost(constants: Constants) -> float:
                return loss(np.log(predicted(constants, kernel.overlap, used) / measured), weights)  # noqa: B023  # called within the loop

            assert lost(found.constants) <= lost(generic) * 1.001, (level.name, kernel.label)


def test_peaks_of_the_catalogue_are_those_behind_the_published_figures() -> None:
    known = {
        "a100_sxm": (2039, 312, None),
        "h100_sxm": (3350, 989, 1979),
        "h200_sxm": (4800, 989, 1979),
        "b200_sxm": (7700, 2250, 4500),
        "gb200": (8000, 2500, 5000),
        "l40s": (864, 362, 733),
        "rtx_pro_6000_server": (1792, 468, 936),
        "b60": (456, 98.5, 197),
    }
    for gpu, (bandwidth, bf16, fp8) in known.items():
        device = tables.device(gpu)
        assert device.memory.bandwidth == approx(bandwidth * 1e9, rel=0.003)
        assert calls.peak(device, "bf16") == approx(bf16 * 1e12, rel=0.003)
        assert fp8 is None or calls.peak(device, "fp8") == approx(fp8 * 1e12, rel=0.003)
    assert calls.peak(tables.device("b200_sxm"), "fp4") == approx(9e15)


def test_what_must_not_count_does_not() -> None:
    experts = CALLS["experts"]
    assert any(call.kind == "fp8" and call.gpu == "h100_sxm" and call.usable for call in experts)
    assert not any(call.usable for call in experts if call.kind == "fp8" and call.gpu == "h200_sxm")  # vLLM alone
    resident = [call for call in CALLS["gemm"] if call.gpu in calls.CACHED and not call.usable]
    assert resident
    assert (
        max(call.read_s for call in resident if call.gpu == "l40s" and call.compute_s < call.read_s)
        < 1.2 * 106e6 / 864e9
    )
    assert all(call.usable for call in CALLS["gemm"] if call.gpu not in calls.CACHED)


# The fit on data made from known constants.


def made(kernel: KernelClass, constants: Constants, seed: int = 0, noise: float = 0.0, outliers: int = 0) -> list[Call]:
    """Calls of one device whose times follow from the constants, with noise, and some that take five times as long."""
    random = np.random.default_rng(seed)
    shapes = [
        Call("h100_sxm", next(iter(kernel.kinds)), read, compute, 1.0, tokens=int(tokens), engine="vllm 0")
        for read, compute, tokens in zip(
            10 ** random.uniform(-6, -3, 300),
            10 ** random.uniform(-7, -3, 300),
            2 ** random.integers(7, 15, 300),
            strict=True,
        )
    ]
    times = predicted(constants, kernel.overlap, shapes) * np.exp(random.normal(0, noise, 300) if noise else 0)
    times[:outliers] *= 5
    return [
        Call(c.gpu, c.kind, c.read_s, c.compute_s, float(t), c.tokens, c.engine)
        for c, t in zip(shapes, times, strict=True)
    ]


@pytest.mark.parametrize("kernel", classes.CLASSES, ids=lambda kernel: f"{kernel.section} {kernel.label}")
def test_known_constants_are_found_again(kernel: KernelClass) -> None:
    ramp = 800.0 if "ramp_tokens" in kernel.free else 0.0
    bandwidth = 0.8 if "bandwidth" in kernel.free else kernel.fixed.get("bandwidth", 1.0)
    known = Constants(12e-6, bandwidth, kernel.fixed.get("compute", 0.6), ramp)
    for noise, outliers, within in ((0.0, 0, 1e-3), (0.05, 0, 0.05), (0.05, 30, 0.10)):
        found = fit(kernel, made(kernel, known, noise=noise, outliers=outliers))
        for name in kernel.free:
            assert getattr(found, name) == approx(getattr(known, name), rel=within), (name, noise, outliers)


def test_every_device_counts_alike() -> None:
    kernel = classes.CLASSES[0]
    slow = made(kernel, Constants(8e-6, 0.8, 0.6))
    fast = [Call("h200_sxm", c.kind, c.read_s, c.compute_s, c.measured_s / 1.2, c.tokens) for c in slow]
    few_fast, few_slow = fit(kernel, slow + fast[:60]), fit(kernel, slow[:60] + fast)
    assert few_fast.bandwidth == approx(few_slow.bandwidth, rel=0.05)


def test_a_device_left_out_says_how_far_constants_carry() -> None:
    kernel = classes.CLASSES[0]
    here = made(kernel, Constants(8e-6, 0.8, 0.6))
    there = [Call("h200_sxm", c.kind, c.read_s, c.compute_s, c.measured_s / 1.25, c.tokens) for c in here]
    found = fit_class(kernel, here + there, ("h100_sxm", "h200_sxm", "b200_sxm"), leave_out=True)
    assert isinstance(found, Fitted)
    assert found.devices == ("h100_sxm", "h200_sxm")
    assert found.left_out["h200_sxm"].median == approx(0.25, abs=0.01)
    assert found.left_out["h100_sxm"].median == approx(0.20, abs=0.01)
    assert fit_class(kernel, here, ("b200_sxm",), leave_out=True) is None


def test_constants_stay_inside_their_bounds() -> None:
    kernel = classes.CLASSES[0]
    assert fit(kernel, made(kernel, Constants(8e-6, 1.4, 0.6))).bandwidth == 1.0


def test_too_few_calls_are_refused() -> None:
    kernel = classes.CLASSES[0]
    with pytest.raises(DomainError, match=r"gemm bf16.*got 2, want at least 3 calls"):
        fit(kernel, made(kernel, Constants(8e-6))[:2])
    with pytest.raises(DomainError, match=r"rows.*got 1, want at least 2"):
        minimise(lambda x: x, np.ones(1), np.ones(1), [Bound(1, 0.1, 2)] * 2)
    with pytest.raises(DomainError, match="times above zero"):
        minimise(lambda x: x, np.zeros(1), np.ones(1), [Bound(1, 0.1, 2)])


# Malformed tables.

GOOD = {
    "gemm": "gpu,engine,dtype,kernel,m,n,k,time_us\nh100_sxm,vllm 0,fp8,x,1,1024,8192,7.5\n",
    "attention_decode": "gpu,engine,kernel,kv_dtype,batch,context_len,heads,kv_heads,head_dim,time_us\nh100_sxm,e,x,fp8,4,1024,32,8,128,15\n",
    "attention_prefill": "gpu,engine,kernel,kv_dtype,batch,isl,heads,kv_heads,head_dim,time_us\nh100_sxm,e,x,bfloat16,1,1024,32,8,128,50\n",
    "moe": "gpu,engine,dtype,shape,hidden_size,intermediate,topk,num_experts,moe_tp,moe_ep,distribution,num_tokens,time_us\n"
    "h100_sxm,vllm 0,bfloat16,Mixtral-8x7B,4096,14336,2,8,1,1,balanced,4,600\n",
    "collectives": "gpu,engine,op,kernel,dtype,gpus,bytes,time_us\nh100_sxm,nccl 2,all_reduce,NCCL,half,8,4096,16\n",
}
READ = {
    "gemm": calls.gemm_calls,
    "attention_decode": calls.decode_attention_calls,
    "attention_prefill": calls.prefill_attention_calls,
    "moe": calls.expert_calls,
    "collectives": collectives.read_series,
}


@pytest.mark.parametrize(
    ("table", "old", "new", "message"),
    [
        ("gemm", "h100_sxm", "h1000", r"gemm.csv:2: gpu: got h1000, want one of a100_sxm, "),
        ("gemm", ",fp8,", ",fp7,", "dtype: got fp7, want one of bfloat16, fp8, nvfp4"),
        ("gemm", ",7.5", ",-7.5", "time_us: got -7.5, want microseconds, above zero"),
        ("gemm", ",7.5", ",", "time_us: got nothing, want microseconds"),
        ("gemm", ",7.5", ",nan", "time_us: got nan, want a plain number"),
        ("gemm", ",1,1024", ",,1024", "m: got nothing, want a whole number"),
        ("gemm", ",1,1024", ",1.5,1024", "m: got 1.5, want a whole number"),
        ("gemm", ",7.5", "", "row: got 7 cells, want 8"),
        ("gemm", ",time_us", ",time", "header: .*time_us"),
        ("attention_decode", "fp8", "int4", "kv_dtype: got int4, want one of bfloat16, fp8"),
        ("attention_prefill", ",1024,", ",0,", "isl: got 0, want a whole number"),
        ("moe", ",2,8,", ",9,8,", "topk: got 9, want at most the 8 experts"),
        ("moe", "bfloat16", "bf16", "dtype: got bf16, want one of bfloat16, fp8, "),
        ("collectives", "all_reduce", "broadcast", "op: got broadcast, want one of all_gather, "),
        ("collectives", "NCCL", "RCCL", "kernel: got RCCL, want one of NCCL, "),
        ("collectives", ",8,4096", ",8,4k", "bytes: got 4k, want a plain number"),
    ],
)
def test_a_malformed_row_says_where_and_what(tmp_path: Path, table: str, old: str, new: str, message: str) -> None:
    assert GOOD[table].count(old) >= 1
    (tmp_path / f"{table}.csv").write_text(GOOD[table])
    assert READ[table](tmp_path)
    head, tail = GOOD[table].split("\n", 1)
    text = GOOD[table].replace(old, new) if old == ",time_us" else f"{head}\n{tail.replace(old, new)}"
    (tmp_path / f"{table}.csv").write_text(text)
    with pytest.raises(SpecError, match=message):
        READ[table](tmp_path)


def test_one_call_by_hand(tmp_path: Path) -> None:
    for table, text in GOOD.items():
        (tmp_path / f"{table}.csv").write_text(text)
    (gemm,) = calls.gemm_calls(tmp_path)
    assert gemm.read_s == approx((1024 * 8192 + 2 * (1024 + 8192)) / 3350e9)
    assert gemm.compute_s == approx(2 * 1024 * 8192 / 1978.9e12)
    (decode,) = calls.decode_attention_calls(tmp_path)
    assert decode.read_s == approx(4 * 1024 * 2 * 8 * 128 / 3350e9)
    (prefill,) = calls.prefill_attention_calls(tmp_path)
    assert prefill.compute_s == approx(4 * 32 * 128 * 1024**2 / 2 / 989.4e12)
    (experts,) = calls.expert_calls(tmp_path)
    assert experts.read_s == approx((5.46875 * 3 * 4096 * 14336 * 2 + 6 * 4096 * 8) / 3350e9)
    assert experts.compute_s == approx(6 * 4096 * 14336 * 8 / 989.4e12)


# Collectives.


def test_interpolated_tables_are_within_five_percent_everywhere() -> None:
    for level in classes.FAMILIES:
        for thinned in collectives.of_family(level.devices, SERIES):
            assert (min(thinned.times), max(thinned.times)) == (collectives.SMALLEST, collectives.LARGEST)
            assert len(thinned.times) <= 14
            assert thinned.error <= collectives.TOLERANCE
            if len(level.devices) == 1 and thinned.key.kernel != collectives.FASTEST:
                series = collectives.without_glitches(SERIES[level.devices[0]][thinned.key])
                worst = max(
                    abs(collectives.interpolated(thinned.times, size) / time - 1) for size, time in series.items()
                )
                assert worst == approx(thinned.error)


def test_only_single_hiccups_are_left_out() -> None:
    left_out = {
        (gpu, key, size)
        for gpu, keys in SERIES.items()
        for key, series in keys.items()
        for size in set(series) - set(collectives.without_glitches(series))
    }
    assert len(left_out) <= 8
    assert ("a100_sxm", Key("all_reduce", "vllm", 8), 4096) in left_out


def test_known_times_of_all_reduce() -> None:
    def at(gpu: str, kernel: str, ranks: int, size: int) -> float:
        return SERIES[gpu][Key("all_reduce", kernel, ranks)][size] * 1e6

    assert at("h100_sxm", "vllm", 8, 2**20) == approx(15, rel=0.01)
    assert at("h100_sxm", "nccl", 8, 2**11) == approx(15.7, rel=0.01)  # the newer of two libraries
    assert at("b200_sxm", "sglang", 8, 2**17) == approx(7.0, rel=0.02)
    assert at("b60", "vllm", 2, 2**11) == approx(71, rel=0.01)  # outside a graph, as nothing else was measured
    blackwell = {t.key: t.times for t in collectives.of_family(("b200_sxm",), SERIES)}
    assert blackwell[Key("all_reduce", "fastest", 8)][2048] * 1e6 == approx(4.833)


def test_thinning_keeps_the_fewest_sizes() -> None:
    straight = {2**i: 1e-6 * 2**i for i in range(11, 29)}
    assert list(collectives.thinned(Key("all_reduce", "nccl", 2), straight).times) == [2**11, 2**28]
    bent = {size: max(1e-2, time) for size, time in straight.items()}
    kept = collectives.thinned(Key("all_reduce", "nccl", 2), bent, tolerance=1e-9)
    assert kept.error <= 1e-9
    assert len(kept.times) == 4
    assert collectives.interpolated(kept.times, 2**20) == approx(bent[2**20])


def test_usual_times_are_a_floor_and_a_share_of_the_link() -> None:
    size = 2**26
    link = 450e9
    made_up = {
        gpu: {
            Key("all_reduce", "nccl", 4): {
                2**i: 9e-6 + 1.5 * 2**i / (0.6 * (link if gpu != "b200_sxm" else 2 * link)) for i in range(11, 29)
            }
        }
        for gpu in collectives.JOINED[()]
    }
    (usual,) = collectives.usual(made_up)
    assert usual.floor == approx(9e-6)
    assert usual.bandwidth == approx(0.6)
    assert usual.errors.median < 1e-3
    assert collectives.traffic("all_reduce", 4) == 1.5
    assert collectives.traffic("alltoall", 8) == 0.875
    assert math.isclose(
        collectives.interpolated(made_up["h100_sxm"][usual.key], size), made_up["h100_sxm"][usual.key][size]
    )


# The command.


def test_the_command_prints_a_table_and_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert kernels.main([]) == 0
    printed = capsys.readouterr().out
    assert "left out: median/p90 %" in printed
    together, first = GENERIC["gemm", "bf16"].together, GENERIC["gemm", "bf16"].left_out["a100_sxm"]
    assert together is not None
    assert f"{100 * together.median:.1f}/{100 * together.p90:.1f}; a100_sxm {100 * first.median:.1f}/" in printed
    assert "fp8 per block" in printed
    assert kernels.main(["--yaml", "hopper"]) == 0
    assert capsys.readouterr().out == written.kernel_text("hopper")
    assert kernels.main(["--yaml"]) == 0
    assert capsys.readouterr().out.count("schema: roofplan/kernels/v1") == len(NAMES)
