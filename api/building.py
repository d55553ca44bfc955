"""Building a deployment from names and options."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike, fspath
from typing import TYPE_CHECKING, TypeVar

from .. import engines, hardware, models, specfiles
from ..engines.profile import EngineProfile
from ..engines.spec import StorageFormat, StoredFormat, TensorClass
from ..errors import DomainError, LayoutError, UnknownNameError
from ..hardware.spec import HardwareSpec
from ..models.spec import UNKNOWN_WEIGHTS, ModelSpec
from ..planner.deployment import Deployment, EngineSettings, MemoryOverrides, Workload
from ..planner.formats import LINEAR_CLASSES, TENSOR_CLASSES, Formats, main_class, named_classes, parse_weights
from ..planner.parallel import Layout, check_layout
from ..planner.parameters import count_parameters
from ..quantities import parse_bytes, parse_count, parse_fraction, parse_tokens
from .options import (
    DEFAULT_OUTPUT,
    DEFAULT_PROMPT,
    Options,
    Quantity,
    check_names,
    given,
    optional_count,
    optional_text,
    optional_tokens,
    read_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from ..engines.streams import Streams

Spec = TypeVar("Spec", ModelSpec, HardwareSpec)


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
    check_names(options)
    options = given(options)
    if model == "-" and device == "-":
        raise DomainError("HARDWARE", got="-", wanted="a name or path: standard input is already the model")
    model_spec = loaded(model, ModelSpec, models.load, "MODEL")
    device_spec = loaded(device, HardwareSpec, hardware.load, "HARDWARE")
    chosen = options.get("engine", "plain")
    engine = chosen if isinstance(chosen, EngineProfile) else engines.load(read_text(chosen, "--engine"))
    layout = _layout(model_spec, options)
    built = Deployment(
        model_spec,
        device_spec,
        _formats(model_spec, device_spec, engine, options),
        engine,
        _workload(options),
        layout,
        _overrides(options),
        optional_tokens(options.get("max_model_len"), "--max-model-len"),
        _settings(options),
        hardware.kernels_of(device_spec, layout.devices),
        _streams(engine),
    )
    if options.get("strict"):
        check_context(model_spec, max(built.workload.length, built.max_model_len or 0))
    return built


def _streams(engine: EngineProfile) -> Streams | None:
    """What an engine reaches that launches a model layer by layer; None for others."""
    if not engine.launches_layers:
        return None
    from ..engines import streams

    return streams.published(engine.engine)


def loaded(asked: object, kind: type[Spec], load: Callable[[str], Spec], what: str) -> Spec:
    """A spec as it is, or loaded by its name or path."""
    if isinstance(asked, kind):
        return asked
    if isinstance(asked, PathLike):
        path = fspath(asked)
        asked = f"./{path}" if isinstance(path, str) and not specfiles.looks_like_path(path) else path
    if not isinstance(asked, str):
        raise DomainError(what, got=type(asked).__name__, wanted="a name, a path or a spec")
    return load(asked)


def check_context(model: ModelSpec, tokens: int) -> None:
    """Refuse more tokens than a model was published for."""
    limit = model.max_context
    if limit is not None and tokens > limit:
        hint = "ask for fewer tokens, or leave --strict out"
        raise DomainError("context", got=f"{tokens} tokens", wanted=f"at most {limit}", hint=hint)


def _workload(options: Options) -> Workload:
    return Workload(
        parse_tokens(options.get("prompt", DEFAULT_PROMPT), "--prompt"),
        parse_tokens(options.get("output", DEFAULT_OUTPUT), "--output"),
        parse_count(options.get("concurrency", 1), "--concurrency"),
    )


def _layout(model: ModelSpec, options: Options) -> Layout:
    """Complete a layout: what is not said is one, and devices that are left over go to tensor parallelism, else to replicas."""
    devices = optional_count(options.get("devices"), "--devices")
    tp = optional_count(options.get("tp"), "--tp")
    pp = optional_count(options.get("pp"), "--pp")
    dp = optional_count(options.get("dp"), "--dp")
    ep = optional_count(options.get("ep"), "--ep") or 1
    cp = optional_count(options.get("cp"), "--cp") or 1
    known = (tp or 1) * (pp or 1) * (dp or 1) * cp
    if devices is not None and devices % known:
        raise LayoutError(
            "layout", got=f"tp x pp x dp x cp = {known}", wanted=f"a divisor of {devices}, the number of devices"
        )
    if devices is not None and tp is None:
        tp = devices // known
    elif devices is not None and dp is None:
        dp = devices // known
    layout = Layout(tp or 1, pp or 1, dp or 1, ep, cp)
    try:
        check_layout(model, layout, devices)
    except LayoutError as error:
        if devices is None or options.get("tp") is not None:
            raise
        hint = f"--devices {devices} means --tp {tp} here; --pp or --dp divide otherwise"
        raise LayoutError("--devices", got=devices, wanted=error.wanted, hint=hint) from error
    return layout


def _formats(model: ModelSpec, device: HardwareSpec, engine: EngineProfile, options: Options) -> Formats:
    named, kv, chosen = (optional_text(options.get(name), f"--{name}") for name in ("weights", "kv", "activations"))
    as_stored = named is None and bool(model.checkpoint)
    name = model.weights if named is None else named
    if name == UNKNOWN_WEIGHTS and not as_stored:
        wanted = "--weights FORMAT, or its weight files beside the configuration"
        raise DomainError("--weights", got=f"nothing, and {' '.join(model.assumed)}", wanted=wanted)
    # What is published is quantised as it is; a format that is asked for, as the engine does it.
    covered = LINEAR_CLASSES if named is None else tuple(c for c in TENSOR_CLASSES if c not in engine.sixteen_bit)
    weights = _stored_formats(model) if as_stored else _named_formats(model, name, covered)
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


def _named_formats(model: ModelSpec, name: str, covered: tuple[TensorClass, ...]) -> dict[TensorClass, StorageFormat]:
    """The formats that a name means: those of number formats, or a file type of llama.cpp (``q4_k_m``)."""
    try:
        return parse_weights(name, engines.load_format, covered)
    except UnknownNameError:
        from ..engines import ggml

        if not ggml.mixes().has(name):
            raise
    return _mix_formats(model, name)


def _mix_formats(model: ModelSpec, name: str) -> dict[TensorClass, StorageFormat]:
    """The formats of a file type: bytes by tensor class as its rules give them, 32 bits for what they leave alone."""
    from ..models.mixes import matrix_bytes_by_class

    formats = parse_weights("all=fp32", engines.load_format)
    counted, served = count_parameters(model).by_class, engines.load_format("bf16")
    positions = model.learned_positions * model.hidden_size
    for kind, size in matrix_bytes_by_class(model, name).items():
        formats[kind] = StoredFormat(
            name=name.lower(),
            elements=counted[kind],
            stored_bytes=size + (4 * positions if kind == "embedding" else 0),
            arithmetic=served.arithmetic,
            activations=served.activations,
            source=f"rules of llama.cpp for files of type {name.upper()} (engines/ggml_mixes.yaml); a file's own header is exact",
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
        size_of("--graph-memory", options.get("graph_memory")),
        size_of("--weights-memory", options.get("weights_memory")),
        beside_bytes=size_of("--beside-memory", options.get("beside_memory")) or 0,
    )


def _settings(options: Options) -> EngineSettings:
    cache, adapters = options.get("kv_cache_bytes"), options.get("max_loras")
    rank = optional_count(options.get("max_lora_rank"), "--max-lora-rank")
    if rank is not None and adapters is None:
        raise DomainError("--max-lora-rank", got=rank, wanted="--max-loras beside it")
    return EngineSettings(
        optional_tokens(options.get("max_num_batched_tokens"), "--max-num-batched-tokens"),
        optional_count(options.get("max_num_seqs"), "--max-num-seqs"),
        optional_count(options.get("block_size"), "--block-size"),
        None if cache is None else parse_bytes(cache, "--kv-cache-bytes", zero=False),
        bool(options.get("eager")),
        bool(options.get("offline")),
        0 if adapters is None else parse_count(adapters, "--max-loras"),
        EngineSettings().adapter_rank if rank is None else rank,
    )


def sixteen_bits(formats: Formats) -> Formats:
    """The same with weights and activations of 16 bits, as drafters are published that were trained for a target."""
    bf16 = engines.load_format("bf16")
    return replace(formats, name="bf16", weights=parse_weights("bf16", engines.load_format), activations=bf16)
