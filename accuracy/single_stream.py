"""Single streams: what was measured of llama.cpp (CUDA, Metal, Vulkan, CPU), beside what the constants of :mod:`.streams` predict.

Rows of ``data/speed.csv``: ``tg`` rows generate from an empty context, so that the mean context is half of the output, or from the depth
that they state; ``pp`` rows compute prompts in micro-batches. Devices that share the layers add no speed to generation. Sizes of weights
and caches are the planner's own; a file type of llama.cpp is counted by its rules.
"""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from .. import api, engines
from ..engines.streams import Stream, Streams, published
from ..errors import RoofplanError
from ..planner.costs import Load
from ..planner.evidence import evidence_of
from ..planner.formats import main_class
from ..planner.streams import Work, constants, decode_s, prompt_s, work_of
from . import names
from .limits import check_sizes
from .metrics import Comparison
from .truth import TruthRow, read_truth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ..hardware.spec import HardwareSpec
    from ..planner.costs import Amount
    from ..planner.deployment import Deployment

SERIES = ("LCXJ", "LCAP", "LCCP", "LCCU", "LCGO", "LCM2", "LCPR", "LCSP", "LCVK", "GEER")
COLUMNS = (
    *("id", "engine_version", "model", "weights_dtype", "kv_dtype", "gpu", "gpu_count", "isl", "osl"),
    *("batch_or_concurrency", "metric", "value", "notes"),
)
PROMPT, TOTAL = "prefill_tok_s", "output_tok_s_total"

_MICRO_BATCH = 512  # tokens that llama.cpp computes at once by default
_CHAT_CONTEXT = 128  # tokens of a chat whose length is not stated ("short prompt")
_DEPTH = re.compile(r"at depth (\d{1,6})")


def streams() -> Streams:
    """The constants of llama.cpp."""
    found = published()
    assert found is not None
    return found


@dataclass(frozen=True, slots=True)
class Run:
    """A row of a benchmark: the class of its device, what was done, and how many tokens count as the measured rate's."""

    truth: TruthRow
    deployment: Deployment
    stream: Stream
    bits: int
    work: Work
    counted: float

    @property
    def device(self) -> HardwareSpec:
        """The device that it ran on."""
        return self.deployment.hardware

    @property
    def is_prompt(self) -> bool:
        """Whether prompt tokens were measured."""
        return self.truth.text("metric") == PROMPT

    @property
    def measured_s(self) -> float:
        """Seconds that the measured rate means."""
        return self.counted / self.truth.positive("value")

    @property
    def formula(self) -> Callable[[Work, Mapping[str, Amount]], Amount]:
        """The seconds of such a row as a function of work and constants."""
        return prompt_s if self.is_prompt else decode_s

    @property
    def width(self) -> float:
        """80 % of what is measured lies within x/÷ this of what is predicted."""
        return (self.stream.prompt_spread if self.is_prompt else self.stream.spread).of(
            self.device.name in self.stream.measured_on
        )

    def predicted_s(self, c: Mapping[str, Amount] | None = None) -> Amount:
        """Seconds that constants predict: those of the class, or others."""
        return self.formula(self.work, c or constants(self.stream, self.bits))


def read_runs(path: str | Path | None = None) -> list[Run | Comparison]:
    """The rows of the series that are single streams of llama.cpp; a comparison without prediction where one cannot be predicted.

    Raises
    ------
    SpecError : for a file that is not such a CSV
    """
    rows = read_truth(path or Path(str(files("roofplan.accuracy") / "data")) / "speed.csv", COLUMNS)
    return [_run_of(row) for row in rows if is_stream(row)]


def is_stream(row: TruthRow) -> bool:
    """Whether a row is of a series of single streams."""
    return row.name.partition("-")[0] in SERIES


def _run_of(truth: TruthRow) -> Run | Comparison:
    build, device = build_of(truth), names.device_of(truth.text("gpu"))
    stream = None if device is None else streams().of(device, build)
    if device is None or stream is None:
        return _unanswered(truth, "the device is not in the catalogue, or of no class that constants are known for")
    try:
        deployment = deployment_of(
            truth.text("model"), truth.text("weights_dtype"), truth.text("kv_dtype"), device.name, build
        )
        work, counted = _work_of(truth, deployment, stream)
    except RoofplanError as error:
        return _unanswered(truth, str(error))
    bits = deployment.formats.weights[main_class(deployment.model)].bits
    return Run(truth, deployment, stream, bits, work, counted)


def _work_of(truth: TruthRow, d: Deployment, stream: Stream) -> tuple[Work, float]:
    """What a row did, and how many tokens its rate counts."""
    sequences = truth.count("batch_or_concurrency") or 1
    check_sizes(truth.number("isl") or 0, truth.number("osl") or 0, sequences)
    if truth.text("metric") == PROMPT:
        work = _prompt_work(truth, d, stream, sequences)
        return work, float(work.tokens)
    return _decode_work(truth, d, stream, sequences), float(sequences if truth.text("metric") == TOTAL else 1)


def _unanswered(truth: TruthRow, reason: str) -> Comparison:
    return Comparison(truth.name, truth.text("metric"), truth.positive("value"), None, reason, truth.labels)


def build_of(truth: TruthRow) -> str:
    """The build of llama.cpp that a row's version, device and remarks stand for; empty where nothing is known."""
    version, device, remarks = truth.text("engine_version"), truth.text("gpu"), truth.text("notes")
    for rule in names.table()["builds"]:
        if rule["version"] == version and rule.get("device", "") in device and rule.get("remark", "") in remarks:
            build: str = rule["build"]
            return build
    return ""


@functools.cache
def deployment_of(model: str, weights: str, kv: str, device: str, build: str) -> Deployment:
    """The deployment that a row's labels describe; a cache of which nothing is said has 16 bits.

    Raises
    ------
    RoofplanError : where model, weights or the format of the cache are not known
    """
    entry = names.table()["file_types"].get(weights, {"stands_for": weights})
    weights = entry.get("of", {}).get(model, entry["stands_for"])
    engine = engines.load(f"llama.cpp@{build}" if build else "llama.cpp")
    cache = names.cache_format_of(kv) if kv else "fp16"
    known = names.named_model(model)
    return api.deployment(known, device, engine=engine, weights=weights, kv=cache, prompt=1, output=1)


def _decode_work(truth: TruthRow, d: Deployment, stream: Stream, sequences: int) -> Work:
    stated = truth.text("isl") or truth.text("osl")
    context = (truth.number("isl") or 0) + (truth.number("osl") or 0) / 2 if stated else _CHAT_CONTEXT
    return _work(truth, d, stream, [Load(sequences, context)], sequences=sequences, tokens=sequences)


def _prompt_work(truth: TruthRow, d: Deployment, stream: Stream, prompts: int) -> Work:
    """Prompts that are longer than a micro-batch are cut; shorter ones share it."""
    length, depth = truth.count("isl") or 1, int(truth.noted(_DEPTH) or 0)
    series = names.table()["micro_batches"].get(truth.name.partition("-")[0], {"tokens": _MICRO_BATCH})
    size: int = series["tokens"]
    starts = range(0, length, size)
    loads = [Load(0, 0, chunk=min(size, length - start), past=depth + start) for start in starts]
    count = math.ceil(prompts * length / size)
    return _work(truth, d, stream, loads, sequences=prompts, tokens=prompts * length, batches=count, repeats=prompts)


def _work(
    truth: TruthRow,
    d: Deployment,
    stream: Stream,
    loads: list[Load],
    *,
    sequences: int,
    tokens: int,
    batches: int = 1,
    repeats: int = 1,
) -> Work:
    return work_of(
        d,
        stream,
        loads,
        streams().half_accumulation,
        devices=truth.count("gpu_count") or 1,
        sequences=sequences,
        tokens=tokens,
        batches=batches,
        repeats=repeats,
    )


def compare(runs: Iterable[Run | Comparison]) -> Iterator[Comparison]:
    """Tokens per second as predicted beside those measured, with the range, labelled with the class of the device."""
    for run in runs:
        if isinstance(run, Comparison):
            yield run
        else:
            labels = {**run.truth.labels, "stream": run.stream.name}
            rate = float(run.counted / run.predicted_s())
            evidence = evidence_of(run.deployment)
            width = evidence.first_token_width if run.is_prompt else evidence.width
            measured = run.truth.positive("value")
            yield Comparison(
                run.truth.name, run.truth.text("metric"), measured, rate, "", labels, rate / width, rate * width
            )
