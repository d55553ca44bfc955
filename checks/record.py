"""What was read of a deployment, whoever wrote it: the same words for every kind of file, each value with its place."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..errors import RoofplanError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where something stands: file (as it was named), line and column, both from 1; 0 where only the file is known."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        """``file:line:column``."""
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Said(Generic[T]):
    """A value, where it stands, and how it was written there (``--max-model-len 1k``); the text is empty where it is the value itself."""

    value: T
    place: Place
    text: str = ""


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag of a command line as it was written.

    Parameters
    ----------
    name : as the engine's documentation spells it (``--max-model-len`` for ``--max_model_len`` and for dotted parts the whole,
        ``--speculative-config.method``); as written where it is unknown
    value : its value, read by its type; True for a switch
    known : whether the engine has such a flag in this version
    closest : known flags that are spelled nearly so, for an unknown one
    """

    name: str
    value: Said[Any]
    known: bool = True
    closest: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """What a service is given to run on.

    Parameters
    ----------
    gpus : devices of one pod or container; None where the file says nothing of devices
    hardware : a device of the catalogue, found from a node selector, an instance type or an accelerator's name; the text is what was found
    unknown_hardware : a name of an accelerator that the catalogue does not hold
    node_gpus : devices of each node that the pod may run on, as its instance type says; 0 where nothing does
    pods : pods that together run one copy of the model (LeaderWorkerSet size, nodes of a pipeline)
    replicas : copies of the model beside each other
    shm_bytes : size of ``/dev/shm``; None where the file leaves the default of 64 MiB
    host_ipc : whether the pod shares the host's memory segments (``hostIPC``, ``ipc: host``), so that ``/dev/shm`` is the host's
    contained : whether it runs in a container at all: only there ``/dev/shm`` is small
    """

    gpus: Said[int] | None = None
    hardware: Said[str] | None = None
    unknown_hardware: Said[str] | None = None
    node_gpus: int = 0
    pods: Said[int] | None = None
    replicas: Said[int] | None = None
    shm_bytes: Said[int] | None = None
    host_ipc: bool = False
    contained: bool = False


@dataclass(frozen=True, slots=True)
class Expectation:
    """What an author expects of a deployment: ``kind`` is ``claim`` (value: ``100 tok/s``, wanted: a verdict) or ``bottleneck``."""

    kind: str
    value: Said[str]
    wanted: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One engine that serves one model, as a file describes it: the neutral record that every reader gives and every rule reads.

    Parameters
    ----------
    kind : of the file: ``deployment``, ``command``, ``compose``, ``kubernetes``, ``kserve``, ``ray``, ``production-stack``
    name : what it is called there
    place : where it begins
    engine : profile, with the version where an image's tag or the file says it (``vllm@0.19.0``); ``plain`` where nothing is said
    options : what :func:`roofplan.api.deployment` takes, by those names, and ``model`` and ``hardware``
    features : what no option of the planner holds, by neutral names

        - bool: ``prefix_caching``, ``chunked_prefill``, ``trust_remote_code``, ``expert_parallel``, ``lora``, ``engine_v1``,
          ``long_context_allowed``, ``shared_context`` (slots share the longest sequence), ``sliding_window`` (False: layers with windows
          keep all tokens), ``pooling`` (embeddings or scores are served, and no text is generated), ``partly_on_host``
          (a part of the model stays in the host's memory: true, or how much)
        - int: ``cpu_offload_bytes``, ``nodes``, ``local_data_parallel`` (replicas of a node), ``attention_dp`` (groups that attention is
          divided over in data parallel), ``decode_context_parallel`` (ranks of tensor parallelism that divide a sequence's cache),
          ``divided_experts`` (ranks that hold a part of every expert each)
        - text: ``quantization``, ``dtype``, ``load_format``, ``revision``, ``attention_backend``, ``executor`` (what places ranks on nodes)
        - others: ``context_length_factor`` (number), ``speculation`` (mapping: method, k, model)
    flags : all flags as written, in their order; a file without a command line has none
    pod : what it runs on
    limits : of a deployment file, by their names there, in base units
    expectations : of a deployment file
    usd_per_hour : price of one device
    shared_prefix_tokens : tokens that requests have in common, where the file says so
    lost : options that the file says and whose values cannot be told, each with its problem: without them nothing is planned
    """

    kind: str
    name: str
    place: Place
    engine: Said[str]
    options: Mapping[str, Said[Any]]
    features: Mapping[str, Said[Any]] = field(default_factory=dict)
    flags: tuple[Flag, ...] = ()
    pod: Pod = Pod()
    limits: Mapping[str, Said[Any]] = field(default_factory=dict)
    expectations: tuple[Expectation, ...] = ()
    usd_per_hour: Said[float] | None = None
    shared_prefix_tokens: Said[int] | None = None
    lost: Mapping[str, RoofplanError] = field(default_factory=dict)

    def place_of(self, *names: str) -> Place:
        """The place of the first of some options, features or limits (or ``engine``) that was said, else that of the service."""
        for name in names:
            for said in ({"engine": self.engine}, self.options, self.features, self.limits):
                if name in said:
                    return said[name].place
        return self.place

    def plain_options(self) -> dict[str, Any]:
        """The options without their places."""
        return {name: said.value for name, said in self.options.items()}


@dataclass(frozen=True, slots=True)
class Reading:
    """What one reader found in one source: services, what it refuses (``RoofplanError`` with a place), and how much it passed over.

    Parameters
    ----------
    problems : errors; each makes the run's exit code 2, and the rest is still checked
    skipped : what is no deployment and was passed over, by kind (``ConfigMap``: 3)
    """

    services: tuple[Service, ...] = ()
    problems: tuple[Exception, ...] = ()
    skipped: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def joined(cls, readings: Iterable[Reading]) -> Reading:
        """Several readings as one."""
        services: list[Service] = []
        problems: list[Exception] = []
        skipped: Counter[str] = Counter()
        for reading in readings:
            services += reading.services
            problems += reading.problems
            skipped.update(reading.skipped)
        return cls(tuple(services), tuple(problems), skipped)
