"""Every lint rule finds its fault and nothing else, and finds nothing in the catalogue."""

from dataclasses import replace

import pytest

from roofplan import hardware
from roofplan.hardware.lint import RULES, lint_device, unit_rates
from roofplan.hardware.spec import HardwareSpec, Price

H100 = hardware.load("h100-sxm5-80gb")
EPYC = hardware.load("epyc-9654")
RTX_5090 = hardware.load("rtx-5090")
A100 = hardware.load("a100-sxm4-80gb")
L4 = hardware.load("l4")
MI300X = hardware.load("mi300x")
H200 = hardware.load("h200-sxm-141gb")


def without_source(spec: HardwareSpec) -> HardwareSpec:
    return replace(spec, evidence=(replace(spec.evidence[0], source=" "), *spec.evidence[1:]))


# A good spec with exactly one thing broken, and the rule that must see it.
FAULTS = {
    "no evidence": (
        "source-missing",
        replace(H100, evidence=tuple(e for e in H100.evidence if "peak" not in e.figures)),
    ),
    "16 bits too fast": ("peak-off-formula", replace(H100, peak=replace(H100.peak, bf16=H100.peak.bf16 * 1.05))),
    "16 bits too slow": ("peak-off-formula", replace(H100, peak=replace(H100.peak, bf16=H100.peak.bf16 * 0.95))),
    "sparse fp8": ("peak-off-formula", replace(H100, peak=replace(H100.peak, fp8=3958e12))),
    "sparse fp4": ("peak-off-formula", replace(RTX_5090, peak=replace(RTX_5090.peak, fp4=3352e12))),
    "sparse int4": ("peak-off-formula", replace(A100, peak=replace(A100.peak, int4=2496e12))),
    "sparse 16 bits of a capped part": (
        "peak-off-formula",
        replace(L4, peak=replace(L4.peak, fp16=242e12, bf16=242e12)),
    ),
    "sparse fp8 without units": ("sparse-headline", replace(EPYC, peak=replace(EPYC.peak, bf16=10e12, fp8=21e12))),
    "sparse int8 without units": ("sparse-headline", replace(MI300X, peak=replace(MI300X.peak, int8=5229.8e12))),
    "sparse fp4 without units": ("sparse-headline", replace(EPYC, peak=replace(EPYC.peak, bf16=10e12, fp4=42e12))),
    "sparse fp4 of a family": (
        "sparse-headline",
        replace(RTX_5090, peak=replace(RTX_5090.peak, fp4=3352e12), units=replace(RTX_5090.units, clock=None)),
    ),
    "16-bit types apart": ("rates-apart", replace(EPYC, peak=replace(EPYC.peak, bf16=10e12, fp16=4.5e12))),
    "TB/s as GB/s": ("implausible-bandwidth", replace(H100, memory=replace(H100.memory, bandwidth=3.35e9))),
    "a tenth of the bandwidth": ("implausible-bandwidth", replace(H100, memory=replace(H100.memory, bandwidth=335e9))),
    "GB/s as TB/s": ("implausible-bandwidth", replace(H100, memory=replace(H100.memory, bandwidth=3350e12))),
    "hardly any rate": ("implausible-bandwidth", replace(EPYC, peak=replace(EPYC.peak, fp32=0.4e12))),
    "bandwidth without the bus": ("bandwidth-off-bus", replace(EPYC, memory=replace(EPYC.memory, bandwidth=500e9))),
    "more than the nameplate": (
        "capacity-units-mixed",
        replace(H100, memory=replace(H100.memory, reported=int(80 * 1.1 * 10**9))),
    ),
    "less than the nameplate": (
        "capacity-units-mixed",
        replace(H100, memory=replace(H100.memory, nameplate=94 * 10**9)),
    ),
    "a price of yesterday": (
        "price-without-date",
        replace(H100, price=Price(usd_per_hour=1.0, provider="somebody", as_of="yesterday")),
    ),
    "a price of nobody": ("source-empty", replace(H100, price=Price(usd_per_hour=1.0, provider="", as_of="2026"))),
    "an empty source": ("source-empty", without_source(H100)),
    "an empty source of a share": (
        "source-empty",
        replace(H200, achieved=replace(MI300X.achieved, bandwidth=replace(MI300X.achieved.bandwidth, source=""))),
    ),
    "a mesh without pairs": (
        "mesh-without-pair",
        replace(MI300X, links=(replace(MI300X.links[0], between_pair=None), *MI300X.links[1:])),
    ),
    "an alias twice": ("alias-clash", replace(H100, aliases=(*H100.aliases, H100.aliases[0].lower()))),
    "another's alias": ("alias-clash", replace(H100, aliases=(*H100.aliases, "Tesla_T4"))),
    "another's name": ("alias-clash", replace(H100, aliases=(*H100.aliases, "RTX 4090"))),
}


def test_every_rule_has_a_fault() -> None:
    assert {rule for rule, _ in FAULTS.values()} == set(RULES)


@pytest.mark.parametrize(("rule", "spec"), FAULTS.values(), ids=FAULTS)
def test_a_rule_finds_its_fault_and_no_other(rule: str, spec: HardwareSpec) -> None:
    assert {finding.rule for finding in lint_device(spec)} == {rule}


@pytest.mark.parametrize("slug", hardware.CATALOGUE.slugs())
def test_the_catalogue_is_clean(slug: str) -> None:
    assert lint_device(hardware.load(slug)) == []


def test_the_sparse_figure_of_a_brochure_is_found() -> None:  # bug case 42
    brochure = replace(H100, peak=replace(H100.peak, bf16=1979e12))
    assert "sparse" in lint_device(brochure)[0].message


def test_a_capped_part_is_left_alone() -> None:
    h20 = hardware.load("h20-96gb")
    assert h20.units.capped
    assert lint_device(replace(h20, units=replace(h20.units, capped=False)))[0].rule == "peak-off-formula"


def test_an_unknown_family_is_named() -> None:
    odd = replace(H100, units=replace(H100.units, family="hoper"))
    assert "hoper is none of" in lint_device(odd)[0].message
    assert "hopper" in unit_rates()
