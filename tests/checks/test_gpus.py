"""Names of devices: what clusters and clouds call them, and which device of the catalogue it is."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import pytest

from roofplan.checks import gpus
from roofplan.checks.record import Place, Said
from roofplan.hardware import CATALOGUE
from roofplan.specfiles import read_document

HERE = Place("m.yaml", 1, 1)


def tables() -> dict[str, Any]:
    """The whole file."""
    data: dict[str, Any] = read_document(gpus.PATH).data
    return data


def labels(**said: Any) -> dict[str, list[Said[str]]]:
    """Labels by short names of their keys."""
    keys = {
        "product": "nvidia.com/gpu.product",
        "mib": "nvidia.com/gpu.memory",
        "gke": "cloud.google.com/gke-accelerator",
        "tpu": "cloud.google.com/gke-tpu-accelerator",
        "karpenter": "karpenter.k8s.aws/instance-gpu-name",
        "karpenter_mib": "karpenter.k8s.aws/instance-gpu-memory",
        "family": "karpenter.k8s.aws/instance-family",
        "instance": "node.kubernetes.io/instance-type",
        "amd": "amd.com/gpu.product-name",
        "zone": "topology.kubernetes.io/zone",
        "model": "gpu.nvidia.com/model",
        "class": "gpu.nvidia.com/class",
    }
    many = {name: value if isinstance(value, list) else [value] for name, value in said.items()}
    return {keys[name]: [Said(value, HERE) for value in values] for name, values in many.items()}


def found(**said: Any) -> tuple[str | None, str | None]:
    """The device of labels, and the name that is unknown."""
    node = gpus.node(labels(**said))
    return node.hardware and node.hardware.value, node.unknown and node.unknown.value


# Product names of NVIDIA's driver, of which feature discovery makes a label with dashes, and names of other sources; the devices are those
# that the vendors sell under these names.
NAMES = {
    "NVIDIA-H100-80GB-HBM3": "h100-sxm5-80gb",
    "NVIDIA-H100-80GB-HBM3-SHARED": "h100-sxm5-80gb",
    "NVIDIA-H100-PCIe": "h100-pcie-80gb",
    "NVIDIA-H100-NVL": "h100-nvl-94gb",
    "NVIDIA-H200": "h200-sxm-141gb",
    "NVIDIA-A100-SXM4-40GB": "a100-sxm4-40gb",
    "NVIDIA-A100-SXM4-80GB": "a100-sxm4-80gb",
    "NVIDIA-A100-80GB-PCIe": "a100-pcie-80gb",
    "NVIDIA-L40S": "l40s",
    "Tesla-T4": "t4",
    "Tesla-V100-SXM2-16GB": "v100-sxm2-16gb",
    "NVIDIA-B200": "b200-sxm-180gb",
    "NVIDIA-GeForce-RTX-4090": "rtx-4090",
    "nvidia-tesla-t4": "t4",
    "nvidia-tesla-a100": "a100-sxm4-40gb",
    "nvidia-a100-80gb": "a100-sxm4-80gb",
    "nvidia-h100-mega-80gb": "h100-sxm5-80gb",
    "nvidia-h200-141gb": "h200-sxm-141gb",
    "nvidia-rtx-pro-6000": "rtx-pro-6000-blackwell-server",
    "tpu-v5-lite-podslice": "tpu-v5e",
    "tpu-v5-lite-device": "tpu-v5e",
    "tpu-v6e-slice": "tpu-v6e",
    "a10g": "a10g",
    "A100_NVLINK_80GB": "a100-sxm4-80gb",
    "H100_NVLINK_80GB": "h100-sxm5-80gb",
    "AMD_Instinct_MI300X_OAM": "mi300x",
    "AMD-Instinct-MI325X-OAM": "mi325x",
    "AMD-Instinct-MI250X-MI250": "mi250",
    "Intel-GPU-Max-1550": "max-1550",
    "A100-40G": "a100-sxm4-40gb",
    "TPU-V5LITEPOD": "tpu-v5e",
}


@pytest.mark.parametrize(("name", "hardware"), NAMES.items())
def test_a_name_is_a_device_of_the_catalogue(name: str, hardware: str) -> None:
    assert gpus.named(name) == gpus.Device(hardware)


@pytest.mark.parametrize("name", ["NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "t4g", "nvidia-tesla-p4", "Intel-GAUDI"])
def test_a_known_name_may_be_no_device_of_the_catalogue(name: str) -> None:
    assert gpus.named(name) == gpus.Device()


@pytest.mark.parametrize("name", ["", "gpu", "h1000", "../h100-sxm5-80gb", "nvidia", "a" * 10_000])
def test_other_names_are_nobodys(name: str) -> None:
    assert gpus.named(name) is None


# Number and kind of devices as the clouds' own pages say.
INSTANCES = {
    "p5.48xlarge": ("h100-sxm5-80gb", 8),
    "p4d.24xlarge": ("a100-sxm4-40gb", 8),
    "p4de.24xlarge": ("a100-sxm4-80gb", 8),
    "g5.xlarge": ("a10g", 1),
    "g5.12xlarge": ("a10g", 4),
    "g5.16xlarge": ("a10g", 1),
    "g6e.48xlarge": ("l40s", 8),
    "g4dn.metal": ("t4", 8),
    "inf2.24xlarge": ("inferentia2", 6),
    "trn1.32xlarge": ("trainium1", 16),
    "a2-megagpu-16g": ("a100-sxm4-40gb", 16),
    "a2-ultragpu-4g": ("a100-sxm4-80gb", 4),
    "a3-highgpu-2g": ("h100-sxm5-80gb", 2),
    "a3-ultragpu-8g": ("h200-sxm-141gb", 8),
    "g2-standard-24": ("l4", 2),
    "ct5lp-hightpu-4t": ("tpu-v5e", 4),
    "Standard_ND96isr_H100_v5": ("h100-sxm5-80gb", 8),
    "standard_nd96isr_h200_v5": ("h200-sxm-141gb", 8),
    "Standard_NC48ads_A100_v4": ("a100-pcie-80gb", 2),
    "Standard_NC80adis_H100_v5": ("h100-nvl-94gb", 2),
    "Standard_NV6ads_A10_v5": ("", 0),  # a sixth of an A10
    "g6f.xlarge": ("", 0),  # an eighth of an L4
    "BM.GPU.H100.8": ("h100-sxm5-80gb", 8),
}


@pytest.mark.parametrize(("name", "wanted"), INSTANCES.items())
def test_an_instance_type_has_devices(name: str, wanted: tuple[str, int]) -> None:
    assert gpus.instance(name) == gpus.Device(*wanted)


def test_what_the_catalogue_calls_an_alias_is_no_other_device_here() -> None:
    for row in tables()["instances"]:
        for kind in row["types"]:
            known = gpus.named(kind)
            assert known is None or known.hardware == row["hardware"], kind


def test_a_family_is_a_device_where_its_types_agree() -> None:
    assert gpus.family("p5") == gpus.Device("h100-sxm5-80gb")
    assert gpus.family("g6e") == gpus.Device("l40s")
    assert gpus.family("m5") is None


# ------------------------------------------------------------------------------------------------ labels


def test_labels_of_several_kinds_are_read() -> None:
    assert found(product="NVIDIA-L4") == ("l4", None)
    assert found(gke="nvidia-l4", zone="us-central1-a") == ("l4", None)
    assert found(tpu="tpu-v6e-slice") == ("tpu-v6e", None)
    assert found(karpenter="h100") == ("h100-sxm5-80gb", None)
    assert found(family="p4d") == ("a100-sxm4-40gb", None)
    assert found(amd="AMD_Instinct_MI300X_OAM") == ("mi300x", None)
    assert found(zone="us-central1-a") == (None, None)


def test_an_instance_type_says_the_number_of_devices_too() -> None:
    node = gpus.node(labels(instance="g5.12xlarge"))
    assert (node.hardware and node.hardware.value, node.gpus) == ("a10g", 4)
    assert node.hardware is not None
    assert node.hardware.text == "node.kubernetes.io/instance-type: g5.12xlarge"


def test_memory_tells_devices_of_one_name_apart() -> None:
    assert found(karpenter="a100", karpenter_mib="40960") == ("a100-sxm4-40gb", None)
    assert found(karpenter="a100", karpenter_mib="81920") == ("a100-sxm4-80gb", None)
    assert found(karpenter="v100", karpenter_mib="16384") == ("v100-sxm2-16gb", None)
    assert found(karpenter="a100", karpenter_mib="much") == ("a100-sxm4-80gb", None)


def test_several_allowed_values_are_a_device_only_where_they_agree() -> None:
    assert found(instance=["p5.48xlarge", "p5.4xlarge"]) == ("h100-sxm5-80gb", None)
    assert gpus.node(labels(instance=["p5.48xlarge", "p5.4xlarge"])).gpus == 0
    assert found(instance=["p5.48xlarge", "p4d.24xlarge"]) == (None, None)


def test_what_tells_best_comes_first() -> None:
    assert found(product="NVIDIA-L4", instance="p5.48xlarge") == ("l4", None)
    assert found(family="g5", instance="g6.xlarge") == ("l4", None)


def test_an_unknown_name_is_said_where_nothing_else_is_known() -> None:
    assert found(product="NVIDIA-X900") == (None, "NVIDIA-X900")
    assert found(product="NVIDIA-X900", instance="p5.48xlarge") == ("h100-sxm5-80gb", None)
    assert found(product=["NVIDIA-L4", "NVIDIA-X900"]) == (None, "NVIDIA-X900")


# ------------------------------------------------------------------------------------------------ the file itself


def test_a_list_that_is_parsed_alone_is_that_of_the_file() -> None:
    for name, rows in tables().items():
        if isinstance(rows, list):
            assert gpus.table(name) == rows


def test_every_row_is_complete_and_names_its_source() -> None:
    data = tables()
    known = {
        "labels": {"key", "holds", "source"},
        "resources": {"name", "source"},
        "slices": {"prefix", "source"},
        "sizes": {"hardware", "up_to_mib", "at_least_mib", "is", "source"},
        "names": {"name", "hardware", "source"},
        "instances": {"types", "hardware", "gpus", "source"},
    }
    assert set(data) == {"schema", "sources", *known}
    for name, keys in known.items():
        for row in data[name]:
            assert set(row) <= keys, row
            assert row["source"] in data["sources"], row


def test_every_source_is_a_file_at_a_commit() -> None:
    data = tables()
    used = {row["source"] for name, rows in data.items() if isinstance(rows, list) for row in rows}
    assert used == set(data["sources"])
    for key, source in data["sources"].items():
        assert set(source) == {"repository", "path", "commit"}
        assert source["repository"] == "roofplan" or re.fullmatch("[0-9a-f]{40}", source["commit"]), key


def test_every_device_is_in_the_catalogue_and_every_name_once() -> None:
    slugs, data = set(CATALOGUE.slugs()), tables()
    rows = [*data["names"], *data["instances"], *data["sizes"]]
    assert {row["hardware"] for row in rows if row.get("hardware")} | {row["is"] for row in data["sizes"]} <= slugs
    names = [row["name"] for row in data["names"]]
    kinds = [kind.lower() for row in data["instances"] for kind in row["types"]]
    assert len(names) == len(set(names))
    assert len(kinds) == len(set(kinds))
    assert all(row.get("gpus", 0) > 0 for row in data["instances"] if row.get("hardware"))


def test_names_that_the_catalogue_knows_have_no_row() -> None:
    known = CATALOGUE.names()
    assert [row["name"] for row in tables()["names"] if row["name"] in known] == []


def test_a_device_says_no_more_than_it_knows() -> None:
    assert [one.name for one in fields(gpus.Device)] == ["hardware", "gpus"]


@pytest.mark.parametrize("key", ["model", "class"])
@pytest.mark.parametrize(
    ("name", "hardware"),
    [("H200", "h200-sxm-141gb"), ("A100_PCIE_80GB", "a100-pcie-80gb"), ("H100_NVLINK_80GB", "h100-sxm5-80gb")],
)
def test_labels_of_hosted_clusters_name_a_device(key: str, name: str, hardware: str) -> None:
    assert found(**{key: name}) == (hardware, None)
