"""The library's calls: names, paths and options in, results out.

Everything above the planner (verbs, checks, measurements) builds its deployments here, so that a name, an option or a default
means the same everywhere.
"""

from __future__ import annotations

import difflib
from os import PathLike, fspath
from typing import TYPE_CHECKING, TypedDict, TypeVar

from . import engines, hardware, models, specfiles
from .engines.spec import StorageFormat, StoredFormat
from .errors import DomainError, LayoutError, RoofplanError, UnknownNameError
from .hardware.spec import HardwareSpec
from .models.spec import UNKNOWN_WEIGHTS, ModelSpec
from .planner.caching import KvResult, cache_of
from .planner.deployment import Deployment, MemoryOverrides, Workload
from .planner.formats import TENSOR_CLASSES, Formats, main_class, named_classes, parse_weights
from .planner.parallel import Layout, check_layout
from .planner.parameters import count_parameters
from .planner.sizing import SizeResult, size_deployment
from .quantities import parse_bytes, parse_count, parse_fraction, parse_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Unpack

    from .models.spec import TensorClass

Spec = TypeVar("Spec", ModelSpec, HardwareSpec)
Whole = int | str  # a whole number, or its digits
Quantity = int | str  # bytes as a number, or text such as "80 GiB"


class Options(TypedDict, total=False):
    """The options of a deployment, by the names that the command line and deployment files use too."""

    prompt: Whole
    output: Whole
    concurrency: Whole
    devices: Whole | None
    tp: Whole | None
    pp: Whole | None
    dp: Whole | None
    ep: Whole | None
    weights: str | None
    kv: str | None
    activations: str | None
    engine: str
    memory_utilization: float | str | None
    device_memory: Quantity | None
    activation_memory: Quantity | None
    runtime_memory: Quantity | None
    max_model_len: Whole | None
    strict: bool


DEFAULT_PROMPT = 1024
DEFAULT_OUTPUT = 256


def deployment(
    model: str | PathLike[str] | ModelSpec, device: str | PathLike[str] | HardwareSpec, **options: Unpack[Options]
) -> Deployment:
    """Build a deployment from names and options.

    Parameters
    ----------
    model, device : name, Hugging Face id, alias, path, ``-`` for standard input, or a spec
    options : see :class:`Options`; what is left out comes from the model, the engine profile, or is one

    Raises
    ------
    RoofplanError : for anything that does not exist, does not divide or lies outside its domain
    """
    _check_names(options)
    if model == "-" and device == "-":
        raise DomainError("HARDWARE", got="-", wanted="a name or path: standard input is already the model")
    model_spec = _loaded(model, ModelSpec, models.load, "MODEL")
    device_spec = _loaded(device, HardwareSpec, hardware.load, "HARDWARE")
    built = Deployment(
        model_spec,
        device_spec,
        _formats(model_spec, device_spec, options),
        engines.load(options.get("engine", "plain")),
        _workload(options),
        _layout(model_spec, options),
        _overrides(options),
        _optional_tokens(options.get("max_model_len"), "--max-model-len"),
    )
    if options.get("strict"):
        _check_context(model_spec, max(built.workload.length, built.max_model_len or 0))
    return built


def size(
    model: str | PathLike[str] | ModelSpec, device: str | PathLike[str] | HardwareSpec, **options: Unpack[Options]
) -> SizeResult:
    """Size a model on devices: memory, capacity, latency, throughput, and what binds.

    >>> size("llama-3.1-8b", "h100-sxm", prompt=4096, output=512, concurrency=64).fits
    True
    """
    return size_deployment(deployment(model, device, **options))


def kv(
    model: str | PathLike[str] | ModelSpec,
    *,
    context: Whole | None = None,
    kv: str | None = None,
    tp: Whole | None = None,
    strict: bool = False,
) -> KvResult:
    """Count the cache of one sequence; ``context`` defaults to 8192 or the model's limit, beyond which ``strict`` makes it an error.

    >>> kv("llama-3.1-8b").whole.bytes_per_token
    131072
    """
    spec = _loaded(model, ModelSpec, models.load, "MODEL")
    tokens = _optional_tokens(context, "--context") or min(8192, spec.max_context or 8192)
    if strict:
        _check_context(spec, tokens)
    layout = Layout(tp=_optional_count(tp, "--tp") or 1)
    return cache_of(spec, engines.load_format("bf16" if kv is None else _text(kv, "--kv")), layout, tokens)


def _check_names(options: Mapping[str, object]) -> None:
    """Refuse an option that does not exist: Python does not check the names of a TypedDict."""
    known = list(Options.__annotations__)
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=2)
            hint = f"did you mean {' or '.join(near)}?" if near else ""
            raise UnknownNameError("option", got=name, wanted=f"one of {', '.join(known)}", hint=hint)
    if not isinstance(options.get("strict", False), bool):
        raise DomainError("--strict", got=repr(options["strict"]), wanted="true or false")


def _loaded(given: object, kind: type[Spec], load: Callable[[str], Spec], what: str) -> Spec:
    """A spec as it is, or loaded by its name or path."""
    if isinstance(given, kind):
        return given
    if isinstance(given, PathLike):
        path = fspath(given)
        given = f"./{path}" if isinstance(path, str) and not specfiles.looks_like_path(path) else path
    if not isinstance(given, str):
        raise DomainError(what, got=type(given).__name__, wanted="a name, a path or a spec")
    return load(given)


def _check_context(model: ModelSpec, tokens: int) -> None:
    limit = model.max_context
    if limit is not None and tokens > limit:
        hint = "ask for fewer tokens, or leave --strict out"
        raise DomainError("context", got=f"{tokens} tokens", wanted=f"at most {limit}", hint=hint)


def _text(value: object, what: str) -> str:
    """The name of a format; an empty one is looked up, and not found."""
    if not isinstance(value, str):
        raise DomainError(what, got=repr(value), wanted="a name")
    return value


def _optional_text(value: object, what: str) -> str | None:
    return None if value is None else _text(value, what)


def _optional_count(value: object, what: str) -> int | None:
    return None if value is None else parse_count(value, what)


def _optional_tokens(value: object, what: str) -> int | None:
    return None if value is None else parse_tokens(value, what)


def _workload(options: Options) -> Workload:
    return Workload(
        parse_tokens(options.get("prompt", DEFAULT_PROMPT), "--prompt"),
        parse_tokens(options.get("output", DEFAULT_OUTPUT), "--output"),
        parse_count(options.get("concurrency", 1), "--concurrency"),
    )


def _layout(model: ModelSpec, options: Options) -> Layout:
    """Complete a layout: what is not said is one, and devices that are left over go to tensor parallelism, else to replicas."""
    devices = _optional_count(options.get("devices"), "--devices")
    tp = _optional_count(options.get("tp"), "--tp")
    pp = _optional_count(options.get("pp"), "--pp")
    dp = _optional_count(options.get("dp"), "--dp")
    ep = _optional_count(options.get("ep"), "--ep") or 1
    known = (tp or 1) * (pp or 1) * (dp or 1)
    if devices is not None and devices % known:
        raise LayoutError(
            "layout", got=f"tp x pp x dp = {known}", wanted=f"a divisor of {devices}, the number of devices"
        )
    if devices is not None and tp is None:
        tp = devices // known
    elif devices is not None and dp is None:
        dp = devices // known
    layout = Layout(tp or 1, pp or 1, dp or 1, ep)
    try:
        check_layout(model, layout, devices)
    except LayoutError as error:
        if devices is None or options.get("tp") is not None:
            raise
        hint = f"--devices {devices} means --tp {tp} here; --pp or --dp divide otherwise"
        raise LayoutError("--devices", got=devices, wanted=error.wanted, hint=hint) from error
    return layout


def _formats(model: ModelSpec, device: HardwareSpec, options: Options) -> Formats:
    named, kv, chosen = (_optional_text(options.get(name), f"--{name}") for name in ("weights", "kv", "activations"))
    as_stored = named is None and bool(model.checkpoint)
    name = model.weights if named is None else named
    if name == UNKNOWN_WEIGHTS and not as_stored:
        wanted = "--weights FORMAT, or its weight files beside the configuration"
        raise DomainError("--weights", got=f"nothing, and {' '.join(model.assumed)}", wanted=wanted)
    weights = _stored_formats(model) if as_stored else parse_weights(name, engines.load_format)
    if named is not None:
        _check_classes(model, named)
    main = weights[main_class(model)]  # its format decides what the activations are by default
    activations = _served_with(main.activations, device) if chosen is None else chosen
    kv_format = engines.load_format("bf16" if kv is None else kv)
    shown = f"as stored ({main.name})" if as_stored else name
    return Formats(shown, weights, kv_format, engines.load_format(activations))


def _check_classes(model: ModelSpec, weights: str) -> None:
    """Refuse a format for tensors that the model does not have."""
    counted = count_parameters(model).by_class
    for kind in named_classes(weights):
        if not counted[kind]:
            present = ", ".join(other for other in TENSOR_CLASSES if counted[other])
            raise DomainError("--weights", got=kind, wanted=f"a class that {model.name} has: {present}")


def _stored_formats(model: ModelSpec) -> dict[TensorClass, StorageFormat]:
    """The formats that a checkpoint's header tells: exact bytes by tensor class; what it does not hold is 16-bit."""
    formats = parse_weights("bf16", engines.load_format)
    counted = count_parameters(model).by_class
    for stored in model.checkpoint:
        for kind in TENSOR_CLASSES:
            if stored.kind == kind and counted[kind]:
                served = engines.load_format("fp8" if stored.types.startswith("F8") else "bf16")
                formats[kind] = StoredFormat(
                    name=stored.types,
                    elements=counted[kind],
                    stored_bytes=stored.bytes,
                    arithmetic=served.arithmetic,
                    activations=served.activations,
                    source=f"header of the checkpoint: {stored.types}",
                )
    return formats


def _served_with(activations: str, device: HardwareSpec) -> str:
    """The activations that a weight format is served with on a device: 16 bits where it lacks the units for narrower ones."""
    chosen = engines.load_format(activations)
    native = device.peak.rate(chosen.arithmetic[0]) is not None
    return activations if native or chosen.bits >= 16 else "bf16"


def _overrides(options: Options) -> MemoryOverrides:
    def size_of(name: str, value: Quantity | None, *, zero: bool = True) -> int | None:
        return None if value is None else parse_bytes(value, name, zero=zero)

    utilization = options.get("memory_utilization")
    return MemoryOverrides(
        size_of("--device-memory", options.get("device_memory"), zero=False),
        None if utilization is None else parse_fraction(utilization, "--memory-utilization"),
        size_of("--activation-memory", options.get("activation_memory")),
        size_of("--runtime-memory", options.get("runtime_memory")),
    )


__all__ = ["KvResult", "Options", "RoofplanError", "SizeResult", "deployment", "kv", "size"]
