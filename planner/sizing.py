"""The first answer: does it fit, how much does it hold, how fast is it, and what binds it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from .batching import compute_bound_batch, critical_context, crossover_batch
from .costs import Load
from .figures import (
    IntensityFigures,
    KvFigures,
    LatencyFigures,
    LoadFigures,
    ModelFigures,
    RankFigures,
    ThroughputFigures,
    WorkFigures,
)
from .fitting import reason_against
from .kv_cache import cache_layout
from .latency import chunks, prefill_s
from .memory import Capacity, MemoryPlan, engine_cache, plan_capacity, plan_memory, rank_cache
from .notices import assumptions_of, main_arithmetic, overcommitted, warnings_of
from .parallel import SINGLE
from .parameters import count_parameters, stored_bytes
from .reached import reached_model
from .results import Answer, Assumption, Explanation, Notice
from .step import StepModel
from .times import most_requests_per_s, times_of

if TYPE_CHECKING:
    from .deployment import Deployment
    from .logged import LoggedPart
    from .sensitivity import Sensitivity
    from .solve import Question, Solution
    from .streams import StreamModel
    from .times import Times

READING_TOKENS_PER_S = 10.0  # a fast reader takes in 5 to 10 tokens per second

Limit = Literal["compute", "weight_bandwidth", "kv_bandwidth", "interconnect", "overhead", "capacity"]


@dataclass(frozen=True, slots=True)
class SizeResult(Answer):
    """The answer of ``roofplan size``; ``times`` is None when nothing fits, or when no rate of the device is known."""

    deployment: Deployment
    model: ModelFigures
    kv: KvFigures
    memory: MemoryPlan
    capacity: Capacity
    max_batch_compute_bound: float | None
    intensity: IntensityFigures
    work: WorkFigures
    prefill_limit: Limit | None
    decode_limit: Limit | None
    times: Times | None
    rank: RankFigures
    decode_batch: float  # sequences of a decode step, as in intensity and work
    solution: Solution | None = None  # the answer to an inverse question
    logged: tuple[LoggedPart, ...] = ()  # a start-up log beside the prediction
    sensitivities: tuple[Sensitivity, ...] = ()  # which input moves the answer most, where that was asked
    remarks: tuple[Notice, ...] = ()  # what the question itself gives to warn of

    @property
    def command(self) -> str:
        """The verb that this answers."""
        return "size"

    @property
    def fits(self) -> bool:
        """Whether all sequences of the workload fit at their full length."""
        return not self.reasons

    @property
    def reasons(self) -> tuple[str, ...]:
        """Codes of why it does not fit; empty when it does."""
        reason = reason_against(self.deployment, self.memory, self.capacity)
        return () if reason is None else (reason,)

    @property
    def remedies(self) -> tuple[str, ...]:
        """Single changes after which it fits; empty when it does."""
        if self.fits:
            return ()
        from .remedies import remedies

        return remedies(self.deployment, self.memory, self.capacity)

    @property
    def faster_than_reading(self) -> bool | None:
        """Whether one user's tokens come faster than people read (5 to 10 tokens/s); None when none come or no time is known."""
        rate = self.times.throughput.per_user_tokens_per_s if self.times else None
        return None if rate is None else rate.expected >= READING_TOKENS_PER_S

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """What the user should know about this answer."""
        unsustained = () if self.keeps_up is not False else (self._unsustained,)
        return (*warnings_of(self.deployment), *overcommitted(self.memory), *unsustained, *self.remarks)

    @property
    def keeps_up(self) -> bool | None:
        """Whether requests are served as fast as they arrive; None where no rate was given, or no time is known."""
        asked = self.deployment.workload.rate
        return None if asked is None or self.times is None else self.times.load.rate is not None

    @property
    def _unsustained(self) -> Notice:
        rate, most = self.deployment.workload.rate, most_requests_per_s(self.deployment)
        message = f"{rate:g} requests/s arrive and {most:.3g} are served: the queue grows without end; times are those of a full server"
        return Notice("rate_unsustainable", message)

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Inputs that came from the engine profile or the device."""
        return tuple(assumptions_of(self.deployment, self.memory))

    def inputs(self) -> dict[str, Any]:
        """What was asked."""
        return deployment_inputs(self.deployment)

    def figures(self) -> dict[str, Any]:
        """What was found, in the shape that scripts rely on."""
        unbound = "memory_bound_at_any_batch" if self.deployment.hardware.has_rates else "no_dense_rate"
        never = None if self.max_batch_compute_bound is not None else unbound
        plan = self.memory
        return {
            "fits": self.fits,
            "reasons": self.reasons,
            "remedies": self.remedies,
            "model": self.model,
            "kv": self.kv,
            "memory": {
                "total_bytes": plan.total_bytes,
                "budget_bytes": plan.budget_bytes,
                "weights_bytes": plan.weights_bytes,
                "adapter_bytes": plan.adapter_bytes,
                "activation_bytes": plan.activation_bytes,
                "non_torch_bytes": plan.non_torch_bytes,
                "graph_bytes": plan.graph_bytes,
                "kv_budget_bytes": plan.kv_budget_bytes,
                "free_bytes": plan.free_bytes,
                "spare_bytes": plan.spare_bytes,
            },
            "capacity": {
                "kv_tokens": self.capacity.kv_tokens,
                "max_concurrency": self.capacity.max_concurrency,
                "max_concurrency_binds": self.capacity.binds,
                "concurrency_at_max_model_len": self.capacity.concurrency_at_limit,
                "max_context": self.capacity.max_context,
                "max_batch_compute_bound": self.max_batch_compute_bound,
                "max_batch_compute_bound_reason": never,
            },
            "latency": self._timed(LatencyFigures, self.times.latency if self.times else None),
            "throughput": self._timed(ThroughputFigures, self.times.throughput if self.times else None),
            "load": None if self.times is None else LoadFigures.of(self.times.load),
            "intensity": self.intensity,
            "work": self.work,
            "bottleneck": {"prefill": self.prefill_limit, "decode": self.decode_limit},
            "faster_than_reading": self.faster_than_reading,
            **({"solution": self.solution} if self.solution else {}),
            **({"sensitivity": self.sensitivities} if self.sensitivities else {}),
            **({"log": {"parts": [_logged(part) for part in self.logged]}} if self.logged else {}),
        }

    def _timed(
        self, kind: type[LatencyFigures | ThroughputFigures], figures: LatencyFigures | ThroughputFigures | None
    ) -> dict[str, Any]:
        """Times by name; where some are null, ``reason`` says why."""
        named = {field.name: getattr(figures, field.name, None) for field in fields(kind)}
        if figures is None:
            return named | {"reason": (*self.reasons, "no_dense_rate")[0]}
        return named | ({"reason": "single_token_has_no_gap"} if None in named.values() else {})

    def explain(self) -> tuple[Explanation, ...]:
        """How each figure came about."""
        from .explain import explain_size

        return explain_size(self)


def _logged(part: LoggedPart) -> dict[str, Any]:
    return {
        "part": part.name,
        "unit": part.unit,
        "logged": part.logged,
        "predicted": part.predicted,
        "error": part.error,
    }


def deployment_inputs(d: Deployment) -> dict[str, Any]:
    """What was asked, by the names of the options."""
    return {
        "model": d.model.name,
        "hardware": d.hardware.name,
        "engine": d.engine.name,
        "engine_version": d.engine.version,
        "devices": d.layout.devices,
        "tp": d.layout.tp,
        "pp": d.layout.pp,
        "dp": d.layout.dp,
        "ep": d.layout.ep,
        "cp": d.layout.cp,
        "weights": d.formats.name,
        "kv": d.formats.kv.name,
        "activations": d.formats.activations.name,
        "prompt": d.workload.prompt,
        "output": d.workload.output,
        "concurrency": d.workload.concurrency,
        "rate": d.workload.rate,
        "max_model_len": d.max_model_len,
        "max_num_batched_tokens": d.settings.max_batched_tokens,
        "max_num_seqs": d.settings.max_num_seqs,
        "block_size": d.settings.block,
        "kv_cache_bytes": d.settings.kv_cache_bytes,
        "eager": d.settings.eager,
        "offline": d.settings.offline,
        "max_loras": d.settings.adapters,
        "max_lora_rank": d.settings.adapter_rank,
        "device_memory": d.memory.total_bytes,
        "memory_utilization": d.memory.utilization,
        "activation_memory": d.memory.activation_bytes,
        "runtime_memory": d.memory.runtime_bytes,
        "graph_memory": d.memory.graph_bytes,
        "beside_memory": d.memory.beside_bytes,
    }


def size_deployment(d: Deployment, question: Question | None = None) -> SizeResult:
    """Size a deployment: memory, capacity, latency, throughput and limits; and answer an inverse question.

    Raises
    ------
    SpecError : when the device has no rate for an arithmetic type that is needed
    """
    parameters = count_parameters(d.model)
    plan = plan_memory(d)
    capacity = plan_capacity(d, plan)
    nominal, rank = StepModel.of(d), RankFigures.of(d, parameters)
    # What the model needs, however it is divided: ranks that repeat work or hold copies do not add to it.
    whole = nominal if d.layout == SINGLE else StepModel.of(replace(d, layout=SINGLE))
    reached = reached_model(d)
    # The work of a step is shown at the batch that runs; when nothing fits, at the batch that was asked for.
    slots = capacity.max_concurrency // d.layout.dp
    running = min(d.sequences_per_replica, slots) or d.sequences_per_replica
    batch = max(1.0, running / d.layout.pp)
    decode = Load(batch, d.workload.mean_context)
    prefill = Load(0, 0, chunk=min(d.workload.prompt, d.max_batched_tokens))
    something_fits = plan.kv_budget_bytes >= 0 and slots > 0
    times = times_of(d, nominal, reached, slots) if something_fits and d.hardware.has_rates else None
    too_many = d.sequences_per_replica > slots
    return SizeResult(
        deployment=d,
        model=ModelFigures(
            parameters.total,
            parameters.active,
            stored_bytes(d.model, d.formats),
            whole.totals(decode)[1],
        ),
        kv=kv_figures(d),
        memory=plan,
        capacity=capacity,
        max_batch_compute_bound=_compute_bound_batch(d, rank),
        intensity=_intensity(d, nominal, prefill, decode),
        work=_work(d, nominal, whole, rank, decode),
        prefill_limit=_limit(reached, prefill, d, fits=something_fits),
        decode_limit=_limit(reached, decode, d, fits=something_fits and not too_many),
        times=times,
        rank=rank,
        decode_batch=batch,
        solution=_solution(d, question),
    )


def _solution(d: Deployment, question: Question | None) -> Solution | None:
    if question is None:
        return None
    from .solve import solve

    return solve(d, question)


def _limit(model: StepModel | StreamModel, load: Load, d: Deployment, *, fits: bool) -> Limit | None:
    """What binds a phase: capacity when it does not fit, else what most of the time is spent on; None without rates."""
    if not fits:
        return "capacity"
    return model.bottleneck(load) if d.hardware.has_rates else None


def kv_figures(d: Deployment) -> KvFigures:
    """Cache bytes of one sequence: unsharded over a replica, and on the fullest device."""
    whole, length = cache_layout(d.model, d.formats.kv, entries=d.engine.entries), d.workload.length
    rank = rank_cache(d)
    paged = engine_cache(replace(d, layout=SINGLE)) if d.engine.paging is not None else whole
    return KvFigures(
        whole.bytes_per_token,
        whole.index_bytes_per_token,
        whole.fixed_bytes,
        paged.bytes_per_sequence(length),
        whole.bytes_per_sequence(length),
        rank.bytes_per_token,
        engine_cache(d).bytes_per_sequence(length),
        rank.bytes_per_sequence(length),
    )


def _compute_bound_batch(d: Deployment, rank: RankFigures) -> float | None:
    """Batch of the whole deployment from which decode is compute-bound, in the textbook's convention (formula F7.3)."""
    ridge = _ridge(d)
    if ridge is None:
        return None
    cache = rank.cache.bytes_per_sequence(round(d.workload.mean_context))
    batch = compute_bound_batch(rank.weight_bytes, rank.parameters, ridge, cache)
    return None if batch is None else batch * d.layout.dp


def _ridge(d: Deployment) -> float | None:
    return d.hardware.ridge(main_arithmetic(d))


def _intensity(d: Deployment, model: StepModel, prefill: Load, decode: Load) -> IntensityFigures:
    def of(load: Load) -> float:
        flop, weights, cache = model.totals(load)
        written = load.tokens * cache_layout(d.model, d.formats.kv, d.layout).bytes_per_token
        vectors = load.tokens * d.model.hidden_size * d.formats.activation_bytes
        return float(flop / (weights + cache + written + vectors))

    return IntensityFigures(of(prefill), of(decode), _ridge(d), main_arithmetic(d))


def _work(d: Deployment, model: StepModel, whole: StepModel, rank: RankFigures, decode: Load) -> WorkFigures:
    workload, context = d.workload, round(d.workload.mean_context)
    pieces = list(chunks(workload.prompt, d.max_batched_tokens))
    crossover = crossover_batch(rank.weight_bytes, rank.cache.bytes_per_sequence(context))
    ridge, growth = _ridge(d), rank.cache.bytes_per_token
    return WorkFigures(
        sum(float(whole.totals(Load(0, 0, chunk=chunk, past=past))[0]) for chunk, past in pieces),
        float(whole.totals(decode)[0]),
        prefill_s(model, workload.prompt, d.max_batched_tokens, grouping="whole"),
        float(model.step_s(decode.decoders, decode.context, grouping="whole")),
        crossover if growth else None,
        critical_context(rank.parameters, ridge, growth) if growth and ridge is not None else None,
    )
