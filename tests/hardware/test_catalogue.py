"""The device catalogue: the issue's devices, their aliases, and a source for every figure."""

import dataclasses

import pytest
from pytest import approx

from roofplan import hardware
from roofplan.hardware.spec import ARITHMETIC_TYPES

SLUGS = hardware.CATALOGUE.slugs()
SPECS = {slug: hardware.load(slug) for slug in SLUGS}

# FLOP per unit and clock, dense with 32-bit accumulation (architecture white papers): fp32, 16-bit, 8-bit.
RATES = {
    "Volta": {"fp32": 128, "fp16": 1024},
    "Turing": {"fp32": 128, "fp16": 1024, "int8": 2048},
    "Ampere GA100": {"fp32": 128, "tf32": 1024, "bf16": 2048, "int8": 4096},
    "Hopper": {"tf32": 2048, "bf16": 4096, "fp8": 8192},
}


def test_the_first_catalogue_is_complete() -> None:
    assert set(SLUGS) >= {
        "v100-sxm2-32gb",
        "t4",
        "a10",
        "l4",
        "a100-sxm4-40gb",
        "a100-sxm4-80gb",
        "l40s",
        "rtx-3090",
        "rtx-4090",
        "rtx-5090",
        "h100-sxm5-80gb",
        "h200-sxm-141gb",
        "b200-sxm-180gb",
        "mi300x",
        "apple-m2-ultra",
        "dgx-spark-gb10",
        "epyc-9654",
    }


@pytest.mark.parametrize(
    ("alias", "slug"),
    [
        ("h100-sxm", "h100-sxm5-80gb"),
        ("h200", "h200-sxm-141gb"),
        ("a100-80gb", "a100-sxm4-80gb"),
        ("b200", "b200-sxm-180gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        ("H100-SXM", "h100-sxm5-80gb"),
        ("RTX 4090", "rtx-4090"),
        ("Tesla T4", "t4"),
    ],
)
def test_aliases_resolve(alias: str, slug: str) -> None:
    assert hardware.load(alias).name == slug


def figures_of(spec: hardware.HardwareSpec) -> set[str]:
    """Every figure that a spec states, by key."""
    found = {
        f"memory.{name}" for name in ("nameplate", "bandwidth", "reported") if getattr(spec.memory, name) is not None
    }
    found |= {f"peak.{name}" for name in ARITHMETIC_TYPES if spec.peak.rate(name) is not None}
    found |= {f"units.{field.name}" for field in dataclasses.fields(spec.units) if getattr(spec.units, field.name)}
    found |= {name for name in ("links", "power", "price") if getattr(spec, name)}
    return found


@pytest.mark.parametrize("slug", SLUGS)
def test_every_figure_has_a_source_and_a_kind(slug: str) -> None:
    spec = SPECS[slug]
    for figure in figures_of(spec):
        evidence = spec.evidence_of(figure)
        assert evidence is not None, figure
        assert evidence.source.strip()
    for band in (spec.achieved.bandwidth, spec.achieved.compute):
        assert band is None or band.source
    assert spec.name == slug


def test_removing_a_source_is_noticed() -> None:
    spec = dataclasses.replace(SPECS["h100-sxm5-80gb"], evidence=())
    assert all(spec.evidence_of(figure) is None for figure in figures_of(spec))


@pytest.mark.parametrize("slug", SLUGS)
def test_peaks_follow_from_the_units(slug: str) -> None:
    spec = SPECS[slug]
    rates = next((rates for name, rates in RATES.items() if spec.architecture.startswith(name)), {})
    assert rates or not spec.architecture.startswith(tuple(RATES))
    if spec.units.capped or not (spec.units.count and spec.units.clock):
        return
    for arithmetic, rate in rates.items():
        if spec.peak.rate(arithmetic) is not None:
            assert spec.units.count * rate * spec.units.clock == approx(spec.peak.rate(arithmetic), rel=0.02)


@pytest.mark.parametrize("slug", SLUGS)
def test_no_sparse_headline_is_stored(slug: str) -> None:
    peak = SPECS[slug].peak
    if peak.fp16 and peak.bf16:
        assert peak.fp16 <= 2 * peak.bf16
    if peak.fp8 and peak.bf16:
        assert peak.fp8 == approx(2 * peak.bf16, rel=0.03)


def test_known_traps() -> None:  # bug cases 30, 42, 44
    assert SPECS["h100-sxm5-80gb"].peak.bf16 == 989.4e12
    assert SPECS["l40s"].peak.fp8 == 733e12
    assert SPECS["b200-sxm-180gb"].memory.bandwidth == 7.7e12
    assert SPECS["h100-sxm5-80gb"].memory.total_bytes == 81559 * 2**20
    assert SPECS["l40s"].memory.total_bytes == 46068 * 2**20
    assert SPECS["a100-sxm4-80gb"].peak.fp8 is None


def test_a_mesh_gives_two_devices_one_link() -> None:
    mesh = SPECS["mi300x"].link(2)
    assert mesh is not None
    assert mesh.among(2) == 64e9
    assert mesh.among(8) == approx(448e9)


def test_links_reach_as_far_as_their_domain() -> None:
    assert SPECS["h100-sxm5-80gb"].link(8).per_direction == 450e9
    assert SPECS["h100-sxm5-80gb"].link(16) is None
    assert SPECS["epyc-9654"].link(2) is None
