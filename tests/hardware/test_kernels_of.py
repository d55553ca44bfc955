"""Which kernels a device gets: by its family, by what was measured on it, else the generic ones brought to what is known of it."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

import pytest
import yaml
from pytest import approx

import roofplan
from roofplan import hardware
from roofplan.documents import Document
from roofplan.errors import RoofplanError, SpecError
from roofplan.hardware.achieved import Exchange, Kernel, Kernels, choose
from roofplan.hardware.spec import Achieved, Band, HardwareSpec

FOLDER = hardware.KERNELS.folder
FILES: dict[str, dict[str, Any]] = {
    slug: yaml.safe_load((FOLDER / f"{slug}.yaml").read_text(encoding="utf-8")) for slug in hardware.KERNELS.slugs()
}
DEVICES = {slug: hardware.load(slug) for slug in hardware.CATALOGUE.slugs()}
H100 = DEVICES["h100-sxm5-80gb"]
GENERIC = hardware.kernels_of(replace(H100, units=replace(H100.units, family=""), architecture="", achieved=Achieved()))
_NOT_FIGURES = {"schema", "name", "extends", "families", "measured_on", "sources", "notes"}


# ------------------------------------------------------------------------------------------------ families


def parsed_family(device: HardwareSpec) -> str:
    """The file that names the device's family of units, or a part of its architecture, found by parsing all of them."""
    for slug, data in FILES.items():
        for family in data["families"]:
            if family == device.units.family or family in device.architecture:
                return slug
    return "generic"


@pytest.mark.parametrize("slug", DEVICES)
def test_searching_for_a_family_finds_what_parsing_finds(slug: str) -> None:
    assert hardware.kernels_of(DEVICES[slug]).name == parsed_family(DEVICES[slug])


@pytest.mark.parametrize(
    ("device", "family"),
    [
        ("h100-sxm5-80gb", "hopper"),
        ("h20-96gb", "hopper"),
        ("gh200-96gb", "hopper"),
        ("a100-sxm4-80gb", "ampere-ga100"),
        ("rtx-3090", "generic"),  # GA102 is another chip
        ("l40s", "ada"),
        ("rtx-4090", "ada"),
        ("b200-sxm-180gb", "blackwell"),
        ("gb300-288gb", "blackwell"),
        ("rtx-5090", "blackwell-pro"),
        ("arc-pro-b60", "battlemage"),
        ("arc-a770-16gb", "generic"),
        ("mi300x", "generic"),
        ("epyc-9654", "generic"),
    ],
)
def test_families(device: str, family: str) -> None:
    assert hardware.kernels_of(DEVICES[device]).name == family


def test_no_family_belongs_to_two_files() -> None:
    families = [family for data in FILES.values() for family in data["families"]]
    assert len(set(families)) == len(families)
    assert FILES["generic"]["families"] == []
    for device in DEVICES.values():
        hits = [family for family in families if family == device.units.family or family in device.architecture]
        owners = {slug for slug, data in FILES.items() if set(data["families"]) & set(hits)}
        assert len(owners) <= 1, device.name


def test_measured_devices_are_of_the_family() -> None:
    for slug, data in FILES.items():
        for device in data["measured_on"]:
            assert device in DEVICES
            if slug != "generic":
                assert hardware.kernels_of(DEVICES[device]).name == slug


@pytest.mark.parametrize("slug", FILES)
def test_what_a_file_leaves_out_is_that_of_the_file_it_extends(slug: str) -> None:
    device = next(device for device in DEVICES.values() if hardware.kernels_of(device).name == slug)
    bare = replace(device, achieved=Achieved())
    kernels = hardware.kernels_of(bare)
    for name in (
        "gemm",
        "decode_attention",
        "prefill_attention",
        "experts",
        "elementwise",
        "state",
        "floors",
        "spread",
    ):
        if name not in FILES[slug]:
            assert getattr(kernels, name) == getattr(GENERIC, name), name
    assert kernels.extends == FILES[slug]["extends"]


# ------------------------------------------------------------------------------------------------ figures and sources


def figures_of(data: dict[str, Any]) -> set[str]:
    return set(data) - _NOT_FIGURES


@pytest.mark.parametrize("slug", FILES)
def test_every_figure_has_a_source(slug: str) -> None:
    data = FILES[slug]
    assert set(data["sources"]) == figures_of(data)
    for key, origin in data["sources"].items():
        assert len(origin["source"]) >= 8, key
        assert (origin["kind"] == "fitted") == ("fit" in origin)


@pytest.mark.parametrize("slug", DEVICES)
def test_figures_are_possible(slug: str) -> None:
    kernels = hardware.kernels_of(DEVICES[slug])
    one_by_one = (kernels.prefill_attention, kernels.elementwise, kernels.state)
    for kernel in (*kernels.gemm, *kernels.decode_attention, *kernels.experts, *one_by_one):
        assert 0 <= kernel.floor < 1e-3
        assert 0 < kernel.bandwidth <= 1
        assert 0 < kernel.compute <= 1
        assert kernel.overlap is None or kernel.overlap >= 1
    for field in fields(kernels.floors):
        assert 0 <= getattr(kernels.floors, field.name) < 1e-3
    for exchange in kernels.collectives:
        assert all(0 < time < 1e6 for time in exchange.us)
        assert list(exchange.bytes) == sorted(set(exchange.bytes))
    measured = [(known.operation, known.kernel, known.ranks) for known in kernels.collectives]
    assert len(set(measured)) == len(measured)
    assert len({(u.operation, u.kernel, u.ranks, u.topologies) for u in kernels.collective}) == len(kernels.collective)


@pytest.mark.parametrize(
    ("slug", "shares"),
    [
        ("hopper", {"bf16": 0.85, "fp8": 0.83}),
        ("blackwell", {"bf16": 0.86, "fp8": 0.82}),
        ("ampere-ga100", {"bf16": 0.77}),
    ],
)
def test_shares_of_bandwidth_are_those_of_the_notes(slug: str, shares: dict[str, float]) -> None:
    """The notes on time, section 2 (per GPU), read to a tenth: fits of other rows differ by some per cent."""
    device = next(device for device in DEVICES.values() if hardware.kernels_of(device).name == slug)
    for arithmetic, share in shares.items():
        assert choose(hardware.kernels_of(device).gemm, arithmetic).bandwidth == approx(share, abs=0.1)


# ------------------------------------------------------------------------------------------------ devices that say more


def with_kernels(own: dict[str, Any] | None, device: HardwareSpec = H100, **bands: Band) -> Kernels:
    return hardware.kernels_of(replace(device, achieved=Achieved(kernels=own, **bands)))


def test_what_was_measured_on_a_device_lies_over_its_family() -> None:
    family = with_kernels(None)
    own = with_kernels(
        {"elementwise": {"floor": "1.5 us"}, "floors": {"routing": "9 us"}, "measured_on": ["h100-sxm5-80gb"]}
    )
    assert own.elementwise == replace(family.elementwise, floor=1.5e-6)  # keys that are left out stay
    assert own.floors == replace(family.floors, routing=9e-6)
    assert own.measured_on == ("h100-sxm5-80gb",)
    assert own.extends == "hopper"
    for name in ("gemm", "decode_attention", "experts", "collective", "collectives", "spread", "families"):
        assert getattr(own, name) == getattr(family, name), name


def test_lists_are_replaced_as_a_whole() -> None:
    own = with_kernels({"gemm": [{"floor": "3 us", "bandwidth": 0.5, "compute": 0.4}]})
    assert own.gemm == (Kernel(floor=3e-6, bandwidth=0.5, compute=0.4),)


def test_a_device_may_name_another_family() -> None:
    own = with_kernels({"extends": "ada"})
    assert own.gemm == hardware.kernels_of(DEVICES["l40s"]).gemm
    assert own.gemm != with_kernels(None).gemm


def test_a_device_of_an_unmeasured_family_may_be_measured() -> None:
    device = DEVICES["mi300x"]
    table = {"operation": "all_reduce", "kernel": "rccl", "ranks": 8, "bytes": ["8 KiB", "8 MiB"], "us": [12, 60.5]}
    own = with_kernels({"collectives": [table], "prefill_attention": {"ramp_tokens": 500}}, device)
    assert own.collectives == (
        Exchange(operation="all_reduce", kernel="rccl", ranks=8, bytes=(8192, 8 * 2**20), us=(12.0, 60.5)),
    )
    assert own.prefill_attention.ramp_tokens == 500
    assert own.prefill_attention.floor == GENERIC.prefill_attention.floor


def test_a_file_of_a_device_carries_its_kernels(tmp_path) -> None:
    text = (hardware.CATALOGUE.folder / "h100-sxm5-80gb.yaml").read_text(encoding="utf-8")
    changed = text.replace("achieved:\n", "achieved:\n  kernels:\n    elementwise: {floor: 7 us}\n", 1)
    assert changed != text
    path = tmp_path / "mine.yaml"
    path.write_text(changed, encoding="utf-8")
    usual = roofplan.size("llama-3.1-8b", "h100-sxm5-80gb", prompt=100, output=100).times
    slower = roofplan.size("llama-3.1-8b", str(path), prompt=100, output=100).times
    assert usual is not None
    assert slower is not None
    assert slower.latency.tpot_s is not None
    assert usual.latency.tpot_s is not None
    assert slower.latency.tpot_s.expected > usual.latency.tpot_s.expected


@pytest.mark.parametrize(
    "own",
    [
        {"extends": "nope"},
        {"extends": 5},
        {"extends": "../catalogue/h100-sxm5-80gb"},
        {"gem": []},
        {"gemm": 5},
        {"gemm": [5]},
        {"gemm": [{"bandwidth": 0.5}]},
        {"gemm": [{"floor": "4 parsecs"}]},
        {"gemm": [{"floor": "-4 us"}]},
        {"gemm": [{"floor": "4 us", "overlap": 0.5}]},
        {"gemm": [{"floor": "4 us", "bandwidth": 1.5}]},
        {"gemm": [{"floor": "4 us", "compute": 0}]},
        {"gemm": [{"floor": "4 us", "bits": 0}]},
        {"decode_attention": [{"floor": "4 us", "speed": 2}]},
        {"prefill_attention": []},
        {"floors": 5},
        {"floors": {"routing": "fast"}},
        {"schema": "roofplan/kernels/v2"},
        {"collective": [{"operation": "gossip", "kernel": "x", "ranks": 2, "floor": "1 us", "bandwidth": 1}]},
        {"collectives": [{"operation": "all_reduce", "kernel": "x", "ranks": 2, "bytes": ["1 KiB"], "us": [1]}]},
        {
            "collectives": [
                {"operation": "all_reduce", "kernel": "x", "ranks": 2, "bytes": ["2 KiB", "1 KiB"], "us": [1, 2]}
            ]
        },
        {
            "collectives": [
                {"operation": "all_reduce", "kernel": "x", "ranks": 2, "bytes": ["1 KiB", "2 KiB"], "us": [1, 0]}
            ]
        },
        {
            "collectives": [
                {"operation": "all_reduce", "kernel": "x", "ranks": 2, "bytes": ["1 KiB", "2 KiB"], "us": [1]}
            ]
        },
        {
            "collectives": [
                {"operation": "all_reduce", "kernel": "x", "ranks": 0, "bytes": ["1 KiB", "2 KiB"], "us": [1, 2]}
            ]
        },
        {"spread": {"known": "wide"}},
    ],
    ids=str,
)
def test_malformed_kernels_are_refused(own: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        with_kernels(own)


def test_a_list_of_families_is_refused() -> None:
    with pytest.raises(SpecError):
        with_kernels({"extends": ["hopper"]})


@pytest.mark.parametrize("name", ["gemm", "decode_attention", "experts"])
def test_a_list_without_a_kernel_is_refused(name: str) -> None:
    device = replace(H100, achieved=Achieved(kernels={name: []}))
    with pytest.raises(RoofplanError):
        roofplan.size("qwen3-30b-a3b", device, prompt=100, output=100)


def test_errors_name_the_device() -> None:
    with pytest.raises(SpecError, match=r"h100-sxm5-80gb: gemm\.0\.floor: got '4 parsecs'"):
        with_kernels({"gemm": [{"floor": "4 parsecs"}]})


# ------------------------------------------------------------------------------------------------ unmeasured families


def band(expected: float) -> Band:
    return Band(low=expected / 2, expected=expected, high=min(1.0, expected * 1.5), kind="measured", source="a test")


def test_generic_shares_are_brought_to_the_bands_of_a_device() -> None:
    device = DEVICES["mi300x"]
    usual = choose(GENERIC.gemm, "bf16")
    slow = with_kernels(None, device, bandwidth=band(0.4), compute=band(0.3))
    assert choose(slow.gemm, "bf16").bandwidth == approx(0.4)
    assert choose(slow.gemm, "bf16").compute == approx(0.3)
    # All are scaled alike, and none to more than one; launches stay.
    by = (0.4 / usual.bandwidth, 0.3 / usual.compute)
    pairs = zip(
        (*slow.gemm, *slow.decode_attention, *slow.experts),
        (*GENERIC.gemm, *GENERIC.decode_attention, *GENERIC.experts),
        strict=True,
    )
    for mine, generic in (*pairs, (slow.state, GENERIC.state), (slow.elementwise, GENERIC.elementwise)):
        assert mine.floor == generic.floor
        assert mine.bandwidth == approx(min(1, generic.bandwidth * by[0]))
        assert mine.compute == approx(min(1, generic.compute * by[1]))
    assert slow.floors == GENERIC.floors
    assert slow.collective == GENERIC.collective


def test_what_no_band_says_stays_generic() -> None:
    assert with_kernels(None, DEVICES["mi300x"]).gemm == GENERIC.gemm
    only = with_kernels(None, DEVICES["mi300x"], bandwidth=band(0.5))
    assert {kernel.compute for kernel in only.gemm} == {kernel.compute for kernel in GENERIC.gemm}
    fast = with_kernels(None, DEVICES["mi300x"], bandwidth=band(0.99), compute=band(0.99))
    assert max(kernel.bandwidth for kernel in fast.gemm) <= 1


def test_bands_of_measured_families_are_not_used() -> None:
    assert with_kernels(None, bandwidth=band(0.3), compute=band(0.3)) == with_kernels(None)


@pytest.mark.parametrize("slug", [slug for slug in DEVICES if parsed_family(DEVICES[slug]) == "generic"])
def test_devices_of_unmeasured_families_reach_what_their_bands_say(slug: str) -> None:
    device = DEVICES[slug]
    usual = choose(hardware.kernels_of(device).gemm, "bf16")
    for share, known, generic in (
        (usual.bandwidth, device.achieved.bandwidth, choose(GENERIC.gemm, "bf16").bandwidth),
        (usual.compute, device.achieved.compute, choose(GENERIC.gemm, "bf16").compute),
    ):
        assert share == approx(generic if known is None else known.expected)


# ------------------------------------------------------------------------------------------------ documents


def test_a_document_of_kernels_is_completed_by_what_it_extends() -> None:
    document = Document({**FILES["hopper"], "name": "mine", "gemm": [{"floor": "2 us"}]}, "mine.yaml")
    kernels = hardware.kernels_from_document(document)
    assert (kernels.name, kernels.families, kernels.gemm) == ("mine", ("hopper",), (Kernel(floor=2e-6),))
    assert kernels.state == GENERIC.state


@pytest.mark.parametrize(
    "data", [None, [], "text", {"extends": "nope"}, {}, {"schema": "roofplan/kernels/v1"}], ids=str
)
def test_documents_that_are_no_kernels_are_refused(data: Any) -> None:
    with pytest.raises(SpecError):
        hardware.kernels_from_document(Document(data, "mine.yaml"))


def test_a_device_alone_has_no_exchanges() -> None:
    alone, several = (hardware.kernels_of(H100, devices) for devices in (1, 2))
    assert alone.collective == alone.collectives == ()
    assert several.collectives
    assert replace(alone, collective=several.collective, collectives=several.collectives) == several
    assert math.isclose(choose(alone.gemm, "bf16").bandwidth, choose(several.gemm, "bf16").bandwidth)
