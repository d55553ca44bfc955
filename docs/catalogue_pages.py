"""The pages that show the catalogues: devices by memory and bandwidth, with a figure, and models by KV bytes per token.

Part of :mod:`generate`; everything comes from the catalogue files.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from roofplan import engines, hardware, models
from roofplan.models.spec import Attention, CompressedAttention, CrossAttention, LatentAttention
from roofplan.quantities import show_bandwidth, show_bytes, show_compute, show_count, show_parameters
from roofplan.report import listings
from roofplan.report.figures import DevicePoint, devices_figure

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from roofplan.hardware.spec import HardwareSpec
    from roofplan.models.spec import Mixer, ModelSpec

DEVICES_FIGURE = Path("figures") / "devices.svg"

_DEVICES = """\
# Devices

Made by `make docs` from the {count} devices of the catalogue. `roofplan hardware show NAME` prints every figure of one with its source;
drivers' names, cloud instance types and Kubernetes labels find it too.

![Memory of each device against its bandwidth]({figure})

**How to read it.** Every step of decode reads the weights, so a device's bandwidth divided by the bytes that are read is the most tokens
per second that one user can get, and its memory less the weights is what is left for everybody's cache. A device further up is faster
for one user; one further to the right serves more of them, or larger models.

- **memory**: what the driver reports, which is what an engine can plan with. \\* marks devices of which nobody printed it: the advertised
  size stands there.
- **bandwidth**: nominal. Kernels reach about 70 to 92 % of it; `roofplan size NAME DEVICE --explain` names the shares and their sources.
- **dense peak**: matrix products in bf16 with 32-bit sums, without sparsity; another type is named where there is no bf16 rate.
- **ridge**: peak divided by bandwidth. Work that does fewer FLOP per byte waits for memory; decode for one user does about 1.
- **confidence**: *verified-2*, two independent sources agree; *derived*, computed from published figures; *single-source*; *low*, announced
  or contradictory.

Within a vendor, the device with the most memory stands first.
"""

_MODELS = """\
# Models

Made by `make docs` from the {count} models of the catalogue, the one with the cheapest cache first. `roofplan model show NAME` prints the
shape of one, `roofplan kv NAME` derives its cache.

- **parameters** and **active**: of the language model, and those that one token uses where it does not use all.
- **KV per token**: bytes in bf16 that one more token takes in the cache of a sequence, over all layers, however long the sequence is. A
  layer with a window adds nothing once the window is full; "+ index" are the keys of a sparse-attention indexer.
- **fixed state**: bytes of a sequence that do not depend on its length: recurrent states, convolutions, keys and values of images or of an
  encoder.
- **attention**: layers by what they keep. *Full* layers keep every token, *sliding* ones the last so many, *chunked* ones those of the
  current chunk, *latent* ones a single vector a token (MLA), *compressed* ones an entry for several tokens. The ratio is that of
  query heads to KV heads: 4:1 stores a quarter of what 1:1 does.
- **weights**: the format in which they were published; ids of quantised variants imply their own.
"""


def write(docs: Path) -> None:
    """Write both pages and the figure into the folder of the documentation."""
    devices = [hardware.load(name) for name in hardware.CATALOGUE.slugs()]
    (docs / DEVICES_FIGURE).parent.mkdir(exist_ok=True)
    devices_figure(docs / DEVICES_FIGURE, device_points(devices))
    (docs / "devices.md").write_text(devices_page(devices), encoding="utf-8")
    specs = [models.load(name) for name in models.CATALOGUE.slugs()]
    (docs / "models.md").write_text(models_page(specs), encoding="utf-8")


def device_points(devices: Iterable[HardwareSpec]) -> list[DevicePoint]:
    """What the figure shows of the devices."""
    return [DevicePoint(d.name, d.vendor, d.memory.total_bytes, d.memory.bandwidth) for d in devices]


def devices_page(devices: Sequence[HardwareSpec]) -> str:
    """The page of devices: a table for each vendor, the one with the most devices first."""
    rows = {row["name"]: row for row in listings.list_devices(devices).rows}
    vendors = [device.vendor for device in devices]
    parts = [_DEVICES.format(count=len(devices), figure=DEVICES_FIGURE.as_posix())]
    for vendor in sorted(set(vendors), key=lambda name: (-vendors.count(name), name)):
        own = [device for device in devices if device.vendor == vendor]
        own.sort(key=lambda device: (-device.memory.total_bytes, -device.memory.bandwidth, device.name))
        header = ("device", "title", "memory", "bandwidth", "dense peak", "ridge, FLOP/B", "confidence")
        lines = []
        for device in own:
            row = rows[device.name]
            peak, arithmetic, ridge = row["peak_flop_per_s"], row["peak_arithmetic"], row["ridge_flop_per_byte"]
            lines.append(
                (
                    f"[{device.name}](../hardware/catalogue/{device.name}.yaml)",
                    device.title,
                    show_bytes(device.memory.total_bytes) + ("" if device.memory.reported else " \\*"),
                    show_bandwidth(device.memory.bandwidth),
                    (show_compute(peak) + ("" if arithmetic == "bf16" else f" {arithmetic}")) if peak else "unknown",
                    f"{ridge:.0f}" if ridge else "",
                    device.confidence,
                )
            )
        parts.append(f"## {_heading(vendor)}\n\n{_table(header, '--rrrr-', lines)}")
    return "\n".join(parts)


def _heading(vendor: str) -> str:
    return "Generic" if vendor == "generic" else vendor


def models_page(specs: Sequence[ModelSpec]) -> str:
    """The page of models, by KV bytes per token."""
    counted = {row["name"]: row for row in listings.list_models(specs, engines.load_format("bf16")).rows}
    header = ("model", "parameters", "active", "KV per token", "fixed state", "context", "attention", "weights")
    lines = []
    for spec in sorted(specs, key=lambda spec: (counted[spec.name]["kv_bytes_per_token"], spec.name)):
        row = counted[spec.name]
        active, index, fixed = (
            row["parameters_active"],
            row["index_bytes_per_token"],
            row["fixed_bytes_per_sequence"],
        )
        lines.append(
            (
                f"[{spec.name}](../models/catalogue/{spec.name}.yaml)",
                show_parameters(row["parameters_total"]),
                show_parameters(active) if active < row["parameters_total"] else "",
                _size(row["kv_bytes_per_token"]) + (f" + index {_size(index)}" if index else ""),
                _size(fixed) if fixed else "",
                show_count(spec.max_context) if spec.max_context else "unknown",
                attention_in_words(spec),
                spec.weights,
            )
        )
    return f"{_MODELS.format(count=len(specs))}\n{_table(header, '-rrrrr--', lines)}"


def _size(size: int) -> str:
    return show_bytes(size) if size else "0"


def attention_in_words(spec: ModelSpec) -> str:
    """What the layers of a model keep, layers that keep the same counted together, the most frequent kind first."""
    counts: dict[str, int] = {}
    for group in spec.layers:
        kinds = [_mixer_in_words(mixer) for mixer in group.attention]
        words = " beside ".join(kinds) if kinds else "without attention"
        counts[words] = counts.get(words, 0) + group.count
    kinds_first = sorted(counts.items(), key=lambda item: (item[0] == "without attention", -item[1], item[0]))
    return ", ".join(f"{count} {words}" for words, count in kinds_first)


def _mixer_in_words(mixer: Mixer) -> str:
    match mixer:
        case Attention():
            heads = f"{mixer.num_heads // mixer.num_kv_heads}:1"
            kept = f" {mixer.window:,}" if mixer.window else ""
            sparse = " sparse" if mixer.indexer else ""
            shared = " on another layer's cache" if mixer.cache == "shared" else ""
            return f"{mixer.kind}{sparse}{kept} ({heads}){shared}"
        case LatentAttention():
            return "latent, sparse" if mixer.indexer else "latent"
        case CompressedAttention():
            return (
                f"compressed {mixer.ratio}:1 and sliding {mixer.window:,}"
                if mixer.ratio
                else f"sliding {mixer.window:,}"
            )
        case CrossAttention():
            return f"cross (over {mixer.memory_tokens:,} entries)"
        case _:
            return mixer.variant


def _table(header: Sequence[str], alignment: str, lines: Iterable[Sequence[str]]) -> str:
    rules = ["---:" if letter == "r" else "---" for letter in alignment]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (header, rules, *lines))
