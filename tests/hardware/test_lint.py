"""Every lint rule finds its fault and nothing else, and finds nothing in the catalogue."""

from dataclasses import replace

import pytest

from roofplan import hardware
from roofplan.hardware.lint import RULES, lint_device, unit_rates
from roofplan.hardware.spec import HardwareSpec, Price

H100 = hardware.load("h100-sxm5-80gb")
EPYC = hardware.load("epyc-9654")

FAULTS = {
    "source-missing": replace(H100, evidence=H100.evidence[1:]),
    "peak-off-formula": replace(H100, peak=replace(H100.peak, bf16=H100.peak.bf16 * 1.05)),
    "sparse-headline": replace(EPYC, peak=replace(EPYC.peak, bf16=10e12, fp8=48.5e12)),
    "bandwidth-off-bus": replace(EPYC, memory=replace(EPYC.memory, bandwidth=500e9)),
    "capacity-units-mixed": replace(H100, memory=replace(H100.memory, reported=int(80 * 1.1 * 10**9))),
    "price-without-date": replace(H100, price=Price(usd_per_hour=1.0, provider="somebody", as_of="yesterday")),
}


def test_every_rule_has_a_fault() -> None:
    assert set(FAULTS) == set(RULES)


@pytest.mark.parametrize(("rule", "spec"), FAULTS.items())
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
