"""Files of kernels (``hardware/kernels/*.yaml``) as data and as text, from the fits."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...documents import parse_yaml
from ...specfiles import read_text
from . import collectives, tables
from .calls import CACHED
from .classes import CLASSES, GENERIC, LEVELS, SECTIONS, Level, fit_level, read_calls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .calls import Call
    from .collectives import Key, Series
    from .fitting import Errors, Fitted

FILES = Path(str(files("roofplan.hardware") / "kernels"))
WHEEL = "aiconfigurator-core 0.12.0 (PyPI, Apache-2.0), accuracy/data/kernels"
_TABLES = {
    "gemm": f"{WHEEL}/gemm.csv: linear layers of vLLM; narrow types include quantising the input; the exponent of the join is fixed",
    "decode_attention": f"{WHEEL}/attention_decode.csv: attention of one token in vLLM, head size 128; the share of compute is assumed",
    "prefill_attention": f"{WHEEL}/attention_prefill.csv: causal attention of whole prompts in vLLM, 16-bit cache, head size 128",
    "experts": f"{WHEEL}/moe.csv: fused layers of vLLM and TensorRT-LLM (4-bit weights in 16-bit arithmetic: vLLM alone); bandwidth "
    "0.9 is assumed but for 4-bit weights; without the shape of DeepSeek-V3 and fp8 of vLLM on Hopper",
}
_NOT_ON = {
    "gemm": "tf32, fp32, int8 and int4 (those of the entry stand for them)",
    "decode_attention": "other head sizes, latent attention, windows",
    "prefill_attention": "an 8-bit cache, other head sizes, latent attention, prompts after cached ones",
    "experts": "grouped routing, shared experts, other shapes than Mixtral, Qwen3 and gpt-oss; routing is half balanced, half skewed",
}
_CACHED_NOTE = (
    "calls whose data stays in the cache of the device were left out, so that the fixed time is weakly determined"
)


def kernel_data(name: str) -> dict[str, Any]:
    """The content of one file of kernels, as plain data."""
    level = next(level for level in LEVELS if level.name == name)
    every, series = _tables()
    fitted = fit_level(level, every)
    data: dict[str, Any] = {
        "schema": "roofplan/kernels/v1",
        "name": name,
        "extends": "" if level is GENERIC else GENERIC.name,
        "families": list(level.families),
        "measured_on": [tables.DEVICES[gpu] for gpu in level.devices],
    }
    own = [section for section in SECTIONS if any(found.kernel.section == section for found in fitted)]
    data |= {section: _section(section, fitted) for section in own}
    sources = {section: _source(section, level, fitted) for section in own}
    if level is GENERIC:
        found = collectives.usual(series)
        data["collective"] = [_usual_entry(usual) for usual in found]
        sources["collective"] = _usual_source(found)
    else:
        kept = collectives.of_family(level.devices, series)
        data["collectives"] = [_table_entry(thinned) for thinned in kept]
        data["link"] = f"{_link(level):g} GB/s"
        sources["collectives"] = _table_source(level, kept)
        sources["link"] = {
            "kind": "derived",
            "source": f"the link of {tables.DEVICES[level.devices[0]]} in the catalogue of devices",
        }
    return data | {"sources": sources}


def kernel_text(name: str, folder: Path | None = None) -> str:
    """The same as YAML, a line for each entry, with those keys of the file in the folder that are not fitted here."""
    data, kept = kernel_data(name), _kept(name, folder or FILES)
    others = {key: value for key, value in kept.items() if key not in data}
    sources = data.pop("sources") | {key: of for key, of in kept.get("sources", {}).items() if key in others}
    lines = [line for key, value in {**data, **others}.items() for line in _lines(key, value)]
    return "\n".join([*lines, *_sources_lines(sources)]) + "\n"


def _kept(name: str, folder: Path) -> dict[str, Any]:
    """What a file says now; nothing where there is none."""
    path = folder / f"{name}.yaml"
    return dict(parse_yaml(read_text(path), str(path)).data) if path.is_file() else {}


@cache
def _tables() -> tuple[dict[str, list[Call]], dict[str, dict[Key, Series]]]:
    return read_calls(), collectives.read_series()


def _section(section: str, fitted: Sequence[Fitted]) -> Any:
    """The entries of a section: those of the level, and the generic ones of classes that it lacks, since lists replace one another."""
    classes = [kernel for kernel in CLASSES if kernel.section == section]
    entries = [_entry(next(f for f in (*fitted, *_generic()) if f.kernel is kernel)) for kernel in classes]
    return entries[0] if section == "prefill_attention" else entries


@cache
def _generic() -> tuple[Fitted, ...]:
    return tuple(fit_level(GENERIC, _tables()[0]))


def _entry(found: Fitted) -> dict[str, Any]:
    constants, kernel = found.constants, found.kernel
    entry: dict[str, Any] = {**kernel.entry, "floor": _microseconds(constants.floor)}
    for name in ("bandwidth", "compute", "ramp_tokens"):
        if name in kernel.free or name in kernel.fixed:
            entry[name] = getattr(constants, name)
    return entry if kernel.overlap is None else {**entry, "overlap": kernel.overlap}


def _source(section: str, level: Level, fitted: Sequence[Fitted]) -> dict[str, Any]:
    own = [found for found in fitted if found.kernel.section == section]
    lacking = [k.label for k in CLASSES if k.section == section and all(found.kernel is not k for found in own)]
    measured = "; ".join(
        f"{found.kernel.label}: {found.errors.rows} calls on {', '.join(tables.DEVICES[gpu] for gpu in found.devices)}"
        for found in own
    )
    said = "; ".join(f"{found.kernel.label} {_shown(found.errors)}" for found in own)
    left_out = "; ".join(f"{found.kernel.label} {_shown(found.together)}" for found in own if found.together)
    not_on = [_NOT_ON[section]]
    not_on += [f"{' and '.join(lacking)}, as the generic ones"] if lacking else []
    not_on += [f"other devices of {', '.join(level.families)}"] if level.families else ["devices of other families"]
    not_on += [_CACHED_NOTE] if CACHED.intersection(level.devices) and section != "prefill_attention" else []
    error = f"absolute error of time, median and 90 %: {said}" + (
        f"; a device left out: {left_out}" if left_out else ""
    )
    fit = {"data": measured, "error": error, "not_fitted_on": "; ".join(not_on)}
    return {"kind": "fitted", "source": _TABLES[section], "fit": fit}


def _link(level: Level) -> float:
    """GB/s in one direction of the link that a family's collectives were measured over."""
    link = tables.device(level.devices[0]).link(max(collectives.RANKS))
    assert link is not None
    return link.per_direction / 1e9


def _usual_entry(usual: collectives.Usual) -> dict[str, Any]:
    return {
        "operation": usual.key.operation,
        "kernel": usual.key.kernel,
        "ranks": usual.key.ranks,
        **({"topologies": list(usual.topologies)} if usual.topologies else {}),
        "floor": _microseconds(usual.floor),
        "bandwidth": usual.bandwidth,
    }


def _usual_source(found: Sequence[collectives.Usual]) -> dict[str, Any]:
    medians, tails = ([getattr(usual.errors, name) for usual in found] for name in ("median", "p90"))
    return {
        "kind": "fitted",
        "source": f"{WHEEL}/collectives.csv; share of the link's rate in one direction, for 2 (n-1)/n (all_reduce) or "
        "(n-1)/n of the buffer",
        "fit": {
            "data": "2 KiB to 256 MiB on " + "; ".join(map(_joined, collectives.JOINED)),
            "error": f"absolute error of time, median {_percent(min(medians))} to {_percent(max(medians))} %, "
            f"90 % within {_percent(min(tails))} to {_percent(max(tails))} %: kernels change with the size",
            "not_fitted_on": "meshes, rings and pairs, more than 8 ranks, networks",
        },
    }


def _joined(topologies: tuple[str, ...]) -> str:
    devices = ", ".join(tables.DEVICES[gpu] for gpu in collectives.JOINED[topologies])
    return f"{devices} ({' '.join(topologies) or 'switch'})"


def _table_entry(thinned: collectives.Thinned) -> dict[str, Any]:
    return {
        "operation": thinned.key.operation,
        "kernel": thinned.key.kernel,
        "ranks": thinned.key.ranks,
        "bytes": [_size(size) for size in thinned.times],
        "us": [float(f"{time * 1e6:.4g}") for time in thinned.times.values()],
    }


def _table_source(level: Level, kept: Sequence[collectives.Thinned]) -> dict[str, Any]:
    devices = " and ".join(tables.DEVICES[gpu] for gpu in level.devices)
    captured = "not in a graph" if collectives.EAGER_ONLY.intersection(level.devices) else "vllm and sglang in a graph"
    means = "geometric mean of both; " if len(level.devices) > 1 else ""
    worst = max(thinned.error for thinned in kept)
    return {
        "kind": "measured",
        "source": f"{WHEEL}/collectives.csv on {devices}, {captured}; {means}bytes are those of the whole buffer; thinned to sizes "
        f"between which a line in both logarithms is within {_percent(worst)} %",
    }


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.3g} us"


def _size(size: int) -> str:
    for unit, name in ((2**20, "MiB"), (2**10, "KiB")):
        if size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def _shown(errors: Errors | None) -> str:
    assert errors is not None
    return f"{_percent(errors.median)} and {_percent(errors.p90)} %"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f}"


def _lines(key: str, value: Any) -> list[str]:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [f"{key}:", *(f"  - {_flow(entry)}" for entry in value)]
    return [f"{key}: {_flow(value)}"]


def _sources_lines(sources: dict[str, dict[str, Any]]) -> list[str]:
    lines = ["sources:"]
    for key, origin in sources.items():
        lines += [f"  {key}:", f"    kind: {origin['kind']}", f"    source: {json.dumps(origin['source'])}"]
        if "fit" in origin:
            lines += ["    fit:", *(f"      {name}: {json.dumps(text)}" for name, text in origin["fit"].items())]
    return lines


def _flow(value: Any) -> str:
    """A value on one line: plain where that is unambiguous, quoted elsewhere."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(of)}" for key, of in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(of) for of in value) + "]"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    return text if text and all(c.isalnum() or c in " -_./" for c in text) else json.dumps(text)
