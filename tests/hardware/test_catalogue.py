"""The device catalogue: the issue's devices, their aliases, and a source for every figure."""

import csv
import dataclasses
from pathlib import Path

import pytest
from pytest import approx

from roofplan import hardware
from roofplan.hardware.lint import figures_of, lint_device

SLUGS = hardware.CATALOGUE.slugs()
SPECS = {slug: hardware.load(slug) for slug in SLUGS}

with (Path(__file__).parents[1] / "data" / "hardware_reference.csv").open(encoding="utf-8", newline="") as _stream:
    ROWS = {row["slug"]: row for row in csv.DictReader(_stream)}


def test_every_device_of_the_reference_but_the_announced_one_is_there() -> None:
    assert set(SLUGS) == set(ROWS) - {"rubin-288gb"}
    assert SPECS["mi455x"].confidence == "low"


@pytest.mark.parametrize("slug", SLUGS)
def test_figures_equal_the_reference(slug: str) -> None:
    spec, row = SPECS[slug], ROWS[slug]
    assert spec.memory.nameplate == approx(float(row["memory_gb"]) * 1e9)
    assert spec.memory.bandwidth == approx(float(row["bandwidth_gb_s"]) * 1e9)
    assert spec.memory.reported == (int(row["memory_reported_mib"]) * 2**20 if row["memory_reported_mib"] else None)
    columns = {name: f"{name}_tflops" for name in ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4")}
    columns |= {name: f"{name}_tops" for name in ("int8", "int4")}
    for name, column in columns.items():
        assert spec.peak.rate(name) == (approx(float(row[column]) * 1e12) if row[column] else None), name
    assert spec.power == (approx(float(row["tdp_w"])) if row["tdp_w"] else None)
    linked = [link for link in spec.links if link.topology != "host"]
    expected = row["link_gb_s_per_direction"]
    assert [link.per_direction for link in linked] == ([approx(float(expected) * 1e9)] if expected else [])
    assert (spec.price.usd_per_hour if spec.price else None) == (
        approx(float(row["price_usd_hour"])) if row["price_usd_hour"] else None
    )


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
    assert {finding.rule for finding in lint_device(spec)} == {"source-missing"}


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
