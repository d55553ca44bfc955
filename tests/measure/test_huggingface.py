"""A model of a local Hugging Face folder, run by transformers: a tiny Llama of random weights that the tests make."""

from __future__ import annotations

import itertools
import json
import logging
import os
import shutil
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import tiny_llama as tiny

from roofplan import hardware
from roofplan.errors import DomainError, MeasureError, QuantityError, RoofplanError, UnknownNameError
from roofplan.hardware.spec import Achieved
from roofplan.measure.records import Run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from roofplan.measure import huggingface, huggingface_model  # noqa: E402  # after importorskip
from roofplan.measure.huggingface import generate, run_hf  # noqa: E402  # after importorskip
from roofplan.measure.machine import find_machine  # noqa: E402  # after importorskip

SHEET = "tr-pro-5975wx"
FP32 = 4


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads that wait for one another on a busy machine take longer than such small products."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.make(tmp_path_factory.mktemp("hf") / "tiny")


@pytest.fixture(scope="module")
def overlay() -> hardware.HardwareSpec:
    """A measured machine: the data sheet's under another name, with kernels of its own."""
    name = f"{SHEET}-measured"
    return replace(hardware.load(SHEET), name=name, achieved=Achieved(kernels={"measured_on": [name]}))


@pytest.fixture(scope="module")
def run(folder: Path, overlay: hardware.HardwareSpec) -> Run:
    return run_hf(folder, device="cpu", tokens=24, prompt=8, formats="stored", hardware=overlay)


def named(run: Run, name: str, **parameters: Any) -> list[Any]:
    found = run.named(f"hf.{name}")
    return [r for r in found if all(r.parameters.get(key) == value for key, value in parameters.items())]


# ------------------------------------------------------------------------------------------------ physics


def test_bytes_counted_from_tensors_are_those_of_the_shape_and_of_the_planner(run: Run) -> None:
    weights, cache = named(run, "weights")[0], named(run, "cache")[0]
    assert weights.measured.median == tiny.PARAMETERS * FP32
    # The last token that was chosen has not passed through the model, and has no entry.
    assert cache.measured.median == tiny.CACHE_PER_TOKEN * (8 + 24 - 1) * FP32
    for record in (weights, cache):
        assert record.ratio == 1
        assert record.unit == "B"


def test_there_is_a_time_for_every_token_by_position(run: Run) -> None:
    for use_cache in (True, False):
        parts = named(run, "token", use_cache=use_cache)
        assert sum(part.measured.count for part in parts) == 24 - 1
        ends = [(part.parameters["from_context"], part.parameters["to_context"]) for part in parts]
        assert ends[0][0] == 9
        assert ends[-1][1] == 8 + 24 - 1
        assert all(later[0] == earlier[1] + 1 for earlier, later in itertools.pairwise(ends))
        first = named(run, "prompt")[0].measured
        assert first.count == 10
        rest = sum(sum(part.measured.samples) for part in parts)
        rate = named(run, "tokens_per_s", use_cache=use_cache)[0]
        prompt = 24 / rate.measured.median - rest
        assert prompt > 0
        assert not use_cache or prompt == pytest.approx(first.samples[-1])
    with_cache, without = (
        24 / named(run, "tokens_per_s", use_cache=use_cache)[0].measured.median for use_cache in (True, False)
    )
    assert named(run, "cache_saving")[0].measured.median == pytest.approx(without / with_cache)


def test_predictions_are_the_roofline_of_the_data_sheet_and_the_kernels_of_the_measured_machine(
    run: Run, folder: Path, overlay: hardware.HardwareSpec
) -> None:
    from roofplan import api
    from roofplan.planner.step import StepModel
    from roofplan.planner.without_cache import generation_s

    options: Any = {"weights": "all=fp32", "kv": "fp32", "activations": "fp32", "prompt": 8, "output": 24}
    nominal = StepModel.of(api.deployment(folder, SHEET, **options))
    whole = generation_s(nominal, 8, 24)
    assert named(run, "tokens_per_s", use_cache=True)[0].predicted_datasheet == pytest.approx(24 / whole.with_cache)
    assert named(run, "tokens_per_s", use_cache=False)[0].predicted_datasheet == pytest.approx(24 / whole.without_cache)
    assert named(run, "cache_saving")[0].predicted_datasheet == pytest.approx(whole.ratio)
    last = named(run, "token", use_cache=True)[-1]
    inside = range(last.parameters["from_context"], last.parameters["to_context"] + 1)
    mean = sum(float(nominal.step_s(1, context)) for context in inside) / len(inside)
    assert last.predicted_datasheet == pytest.approx(mean)
    # A decode step reads all weights but the embedding, once, and the cache: no prediction is faster than memory gives them.
    read = (tiny.PARAMETERS - tiny.VOCABULARY * tiny.HIDDEN) * FP32
    least = read / hardware.load(SHEET).memory.bandwidth
    assert last.predicted_datasheet >= least
    assert last.predicted_measured > last.predicted_datasheet  # launches take time


def test_launches_are_counted_from_what_torch_dispatches(run: Run, folder: Path) -> None:
    from roofplan.measure.huggingface_records import launches_of
    from roofplan.measure.reference.counting import count_launches

    _, spec = huggingface_model.check_folder(folder)
    with huggingface_model.offline():
        model = huggingface_model.load_model(folder, "stored", find_machine("cpu"))
    kernels, passes = launches_of(model, spec)
    with torch.inference_mode():
        found = count_launches(lambda: model.step(model.prompt(1), None, use_cache=True))
    # Query, key, value, output, gate, up, down and attention in each layer, and the head.
    assert found.products == tiny.LAYERS * 8 + 1
    assert kernels > 1
    assert passes >= 0


def test_both_ways_choose_the_same_tokens_and_the_first_is_that_of_transformers(folder: Path) -> None:
    machine = find_machine("cpu")
    with huggingface_model.offline():
        model = huggingface_model.load_model(folder, "stored", machine)
        done = [generate(model, machine, 8, 12, 60, use_cache=use_cache) for use_cache in (True, False)]
        theirs = model.module.generate(model.prompt(8), max_new_tokens=12, do_sample=False, pad_token_id=0)
    assert done[0].tokens == done[1].tokens == tuple(theirs[0, 8:].tolist())
    assert done[1].cache_bytes == 0
    assert not done[0].ended_early


def test_the_run_can_be_kept_and_read_again(run: Run) -> None:
    assert Run.from_dict(json.loads(json.dumps(run.to_dict(), allow_nan=False))) == run
    assert run.command == "hf"
    assert run.environment.versions["transformers"] == transformers.__version__


def test_peak_memory_is_that_of_the_weights_and_little_more(run: Run) -> None:
    weights = tiny.PARAMETERS * FP32
    for record in named(run, "peak"):
        # The system counts in pages, and other threads of the process may take some too.
        assert weights <= record.measured.median < weights + 64 * 2**20


class Ticks:
    """A clock that gives each interval as the test says."""

    def __init__(self, seconds: list[float]) -> None:
        self.seconds = seconds
        self.marks = 0

    def start(self) -> None:
        self.marks += 1

    def stop(self) -> None:
        self.marks += 1

    def intervals(self) -> list[float]:
        return self.seconds[: self.marks // 2]

    def now(self) -> float:
        return 0.0


def test_figures_follow_from_the_intervals(folder: Path) -> None:
    """Thirty-two tokens: one second for the prompt, then as many milliseconds as the position says."""
    passes = [2.0] * 9
    clock = Ticks([*passes, 1.0, *(place / 1000 for place in range(1, 64))])
    run = run_hf(folder, device="cpu", tokens=32, prompt=8, formats="stored", clock=clock)
    total = 1 + sum(range(1, 32)) / 1000
    assert named(run, "prompt")[0].measured.samples == (*passes, 1.0)
    assert named(run, "tokens_per_s", use_cache=True)[0].measured.median == pytest.approx(32 / total)
    first, *_, last = named(run, "token", use_cache=True)
    assert (first.parameters["from_context"], first.measured.samples[0]) == (9, 0.001)
    assert (last.parameters["to_context"], last.measured.samples[-1]) == (39, 0.031)
    assert first.predicted is None  # no device was named, and the catalogue has no such processor


def test_peak_memory_of_a_gpu_is_what_torch_had_allocated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for CUDA: which counters are asked, and of which device."""
    machine = replace(find_machine("cpu"), kind="cuda", torch_device="cuda:1")
    asked: list[tuple[str, int]] = []
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda index: asked.append(("reset", index)))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda index: asked.append(("peak", index)) or 12345)
    with huggingface_model.offline():
        model = huggingface_model.load_model(folder, "stored", find_machine("cpu"))
    assert model.begin_peak(machine)() == 12345
    assert asked == [("reset", 1), ("peak", 1)]
    monkeypatch.setattr(huggingface_model, "_reset_peak", lambda: False)
    assert model.begin_peak(find_machine("cpu"))() is None  # a system that does not say


@pytest.mark.parametrize(("name", "bits"), [("int8", 8), ("nf4", 4)])
def test_weights_of_8_and_4_bits(folder: Path, name: str, bits: int) -> None:
    pytest.importorskip("bitsandbytes")
    run = run_hf(folder, device="cpu", tokens=4, prompt=4, formats=name, hardware=SHEET)
    weights = named(run, "weights", format=name)[0]
    rest = (tiny.PARAMETERS - tiny.LINEAR) * FP32
    # Scales come beside the bits: 4 bytes per row of 64 or 128, or per block of 64.
    assert rest + tiny.LINEAR * bits / 8 < weights.measured.median < rest + tiny.LINEAR * (bits / 8 + 4 / 64) + 1
    assert weights.ratio == pytest.approx(1, abs=0.02)
    assert named(run, "tokens_per_s", use_cache=True)[0].measured.median > 0
    assert named(run, "cache")[0].ratio == 1  # the cache stays as it was


# ------------------------------------------------------------------------------------------------ what cannot be measured


def test_formats_that_cannot_be_loaded_are_said_and_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*, is_quantised: bool) -> None:
        raise MeasureError("bitsandbytes", got="No module named 'bitsandbytes'")

    monkeypatch.setattr(huggingface_model, "_need_bitsandbytes", missing)
    run = run_hf(folder, device="cpu", tokens=4, prompt=4)
    assert {record.parameters["format"] for record in run.records} == {"stored"}
    assert sum("not measured" in note and "bitsandbytes" in note for note in run.notes) == 2
    with pytest.raises(MeasureError, match="bitsandbytes"):
        run_hf(folder, device="cpu", tokens=4, prompt=4, formats="nf4")


def test_a_format_that_loads_and_does_not_run_is_said_and_left_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("bitsandbytes")

    def broken(model: Any, *rest: Any, **more: Any) -> Any:
        if model.format != "stored":
            raise AttributeError("'Parameter' object has no attribute 'CB'")
        return generate(model, *rest, **more)

    monkeypatch.setattr(huggingface, "generate", broken)
    run = run_hf(folder, device="cpu", tokens=4, prompt=4)
    assert {record.parameters["format"] for record in run.records} == {"stored"}
    assert sum("not measured" in note and "no attribute 'CB'" in note for note in run.notes) == 2
    with pytest.raises(MeasureError, match="no attribute 'CB'"):
        run_hf(folder, device="cpu", tokens=4, prompt=4, formats="int8,nf4")


@pytest.mark.parametrize("formats", ["stored", "int8", "nf4"])
@pytest.mark.parametrize(
    ("config", "says"),
    [
        (
            {"num_hidden_layers": tiny.LAYERS + 3},
            rf"none for model\.layers\.{tiny.LAYERS}\..* and 26 others, want all of them",
        ),
        (
            {"intermediate_size": tiny.INNER * 2},
            rf"{tiny.HIDDEN}x{tiny.INNER} for .* and 5 others, want {tiny.HIDDEN}x{2 * tiny.INNER}, as config",
        ),
    ],
)
def test_weights_that_the_configuration_wants_otherwise_are_never_made_up(
    folder: Path, tmp_path: Path, formats: str, config: dict[str, Any], says: str
) -> None:
    if formats != "stored":
        pytest.importorskip("bitsandbytes")
    with pytest.raises(MeasureError, match=says) as refused:
        run_hf(_changed(folder, tmp_path / "model", **config), device="cpu", tokens=4, prompt=4, formats=formats)
    assert "\n" not in str(refused.value)


def test_without_memory_half_as_many_tokens_are_taken_and_that_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def small(model: Any, machine: Any, prompt: int, tokens: int, *rest: Any, **more: Any) -> Any:
        if tokens > 8:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB\nand more")
        return generate(model, machine, prompt, tokens, *rest, **more)

    monkeypatch.setattr(huggingface, "generate", small)
    run = run_hf(folder, device="cpu", tokens=32, prompt=4, formats="stored")
    assert sum("no memory for 32 tokens, 16 taken" in note for note in run.notes) == 2
    assert named(run, "tokens_per_s")[0].parameters["tokens"] == 8


def test_a_generation_ends_with_its_time(folder: Path) -> None:
    run = run_hf(folder, device="cpu", tokens=200, prompt=4, formats="stored", most_s=0)
    assert named(run, "tokens_per_s")[0].parameters["tokens"] == 4
    assert any("4 of 200 tokens" in note for note in run.notes)


def test_an_interruption_keeps_what_was_taken(folder: Path) -> None:
    pytest.importorskip("bitsandbytes")
    kept: list[Run] = []

    def tell(line: str) -> None:
        if "8 bits" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_hf(folder, device="cpu", tokens=4, prompt=4, tell=tell, keep=kept.append)
    assert kept[0].notes[-1] == "interrupted"
    assert named(kept[0], "tokens_per_s")


def _changed(folder: Path, to: Path, **config: Any) -> Path:
    shutil.copytree(folder, to)
    said = json.loads((to / "config.json").read_text())
    (to / "config.json").write_text(json.dumps(said | config))
    return to


def test_nothing_of_the_folder_runs_and_nothing_is_fetched(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A configuration that names code: the class that transformers has is taken, or the folder is refused."""
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("a connection"))
    names = {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"}
    evil = _changed(folder, tmp_path / "evil", auto_map=names, _attn_implementation="eager")
    (evil / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    assert run_hf(evil, device="cpu", tokens=4, prompt=4, formats="stored").records
    foreign = _changed(evil, tmp_path / "foreign", model_type="novel", architectures=["Novel"])
    with pytest.raises(RoofplanError) as found:
        run_hf(foreign, device="cpu", tokens=4, prompt=4, formats="stored")
    assert str(found.value).isprintable()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "config",
    [
        {"_attn_implementation": "somebody/kernels"},
        {"attn_implementation": "somebody/kernels@main:flash"},
        {"attn_implementation": {"": "sdpa", "text_config": "somebody/kernels"}},
        {"text_config": {"_attn_implementation": "somebody/kernels"}},
        {"_experts_implementation": "somebody/kernels"},
    ],
)
def test_kernels_of_a_repository_are_refused(folder: Path, tmp_path: Path, config: dict[str, Any]) -> None:
    evil = _changed(folder, tmp_path / "evil", **config)
    with pytest.raises(MeasureError, match=r"somebody/kernels.*no code is fetched"):
        run_hf(evil, device="cpu", tokens=4, prompt=4, formats="stored")


def test_the_process_is_left_as_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    was, loud = constants.HF_HUB_OFFLINE, logging.root.manager.disable
    with huggingface_model.offline():
        assert constants.HF_HUB_OFFLINE
        assert os.environ["HF_HUB_OFFLINE"] == "1"
    assert was == constants.HF_HUB_OFFLINE
    assert "HF_HUB_OFFLINE" not in os.environ
    assert logging.root.manager.disable == loud


def test_folders_that_are_none(folder: Path, tmp_path: Path) -> None:
    def said(path: Path) -> str:
        with pytest.raises(RoofplanError) as found:
            run_hf(path, device="cpu", tokens=4, prompt=4)
        assert str(found.value).isprintable()
        return str(found.value)

    assert "nothing there" in said(tmp_path / "no\x1b[31mwhere")
    assert "a file" in said(folder / "config.json")
    (tmp_path / "empty").mkdir()
    assert "no config.json" in said(tmp_path / "empty")
    pickled = tmp_path / "pickled"
    pickled.mkdir()
    shutil.copy(folder / "config.json", pickled)
    (pickled / "pytorch_model.bin").write_bytes(b"\x80")
    assert "pytorch_model.bin" in said(pickled)
    adapter = _changed(folder, tmp_path / "adapter")
    (adapter / "adapter_config.json").write_text("{}")
    assert "an adapter" in said(adapter)
    torn = _changed(folder, tmp_path / "torn")
    whole = (torn / "model.safetensors").read_bytes()
    (torn / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    assert "safetensors" in said(torn)
    other = _changed(folder, tmp_path / "other", num_hidden_layers=3)
    assert said(other)


def test_without_transformers_the_extra_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MeasureError, match=r"no transformers.*roofplan\[hf\]"):
        run_hf(folder, device="cpu", tokens=4, prompt=4)


@pytest.mark.parametrize(
    ("options", "kind", "wanted"),
    [
        ({"tokens": "0"}, QuantityError, "--tokens"),
        ({"tokens": 2}, DomainError, "--tokens"),
        ({"tokens": 10**6}, DomainError, "--tokens"),
        ({"prompt": "8k"}, QuantityError, "--prompt"),
        ({"tokens": 1000, "prompt": 100}, DomainError, "1024"),
        ({"formats": "int3"}, UnknownNameError, "--formats"),
        ({"formats": "stored,"}, UnknownNameError, "--formats"),
        ({"hardware": "h1000"}, UnknownNameError, "h1000"),
        ({"device": "tpu"}, MeasureError, "--device"),
    ],
)
def test_options_that_are_wrong(folder: Path, options: dict[str, Any], kind: type[RoofplanError], wanted: str) -> None:
    with pytest.raises(kind, match=wanted):
        run_hf(folder, **{"device": "cpu"} | options)
