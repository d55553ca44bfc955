"""Fitted constants are counted from the files that state them."""

from __future__ import annotations

import pytest
import yaml

from roofplan import engines, hardware
from roofplan.accuracy import constants
from roofplan.accuracy.constants import FittedFile, distinct, fitted_files
from roofplan.accuracy.fit.serving import PER_ENGINE, SHARED

FOUND = {one.file: one for one in fitted_files()}


def test_every_name_is_a_figure_of_its_file() -> None:
    for file, one in FOUND.items():
        if file.startswith("accuracy/"):
            continue
        folder, _, slug = file.rpartition("/")
        root = {"hardware/kernels": hardware.KERNELS.folder, "engines/catalogue": engines.CATALOGUE.folder}.get(
            folder, engines.CATALOGUE.folder.parent / "streams"
        )
        data = yaml.safe_load((root / f"{slug}.yaml").read_text(encoding="utf-8"))
        if folder == "engines/streams":
            data = {stream["name"]: stream for stream in data["streams"]}
        for name, value in one.figures:
            here = data
            for part in name.split("."):
                here = here[int(part)] if isinstance(here, list) else here[part]
            assert str(here) == value
        assert len(set(one.names)) == len(one.names)


@pytest.mark.parametrize("slug", ["vllm@0.9", "sglang@0.3", "tensorrt-llm@0.19"])
def test_what_the_fit_of_serving_gives_is_counted(slug: str) -> None:
    names = set(FOUND[f"engines/catalogue/{slug}"].names)
    requests = {"request_overhead", "expert_request_overhead"}
    own = {f"{'scheduling' if name in requests else 'timing'}.{name}" for name in (*PER_ENGINE, *SHARED)}
    floors = {"timing.routing", "timing.latent", "timing.gated_delta", "timing.sparse_index"}
    assert own - floors <= names
    assert {name.replace("timing", "floors") for name in floors} <= set(FOUND["hardware/kernels/generic"].names)


def test_what_is_measured_assumed_or_of_memory_is_not() -> None:
    names = {name for one in FOUND.values() for name in one.names}
    assert not [name for name in names if name.startswith(("collectives", "activations", "runtime", "link"))]
    assert not [name for name in names if name.endswith((".bits", ".ranks", ".overlap", ".compared_to"))]
    assert "engines/catalogue/vllm@0.6" not in FOUND  # derived from the next
    assert "accuracy/settings/vllm-blog" not in FOUND  # assumed
    assert any(
        name.endswith("batched_tokens.per_concurrency") for name in FOUND["accuracy/settings/nvidia-sweeps"].names
    )


def test_the_nearest_source_decides() -> None:
    data = {
        "timing": {"a": 1, "b": "2 us", "c": True, "d": ["x"], "e": {"f": 3}},
        "scheduling": {"g": 4},
        "sources": {"timing": {"kind": "fitted"}, "timing.b": {"kind": "default"}, "timing.e.f": {"kind": "measured"}},
    }
    assert constants._sourced(data) == (("timing.a", "1"),)


def test_equal_values_of_a_name_are_one_constant() -> None:
    files = (
        FittedFile("one", (("gemm.0.floor", "4 us"), ("gemm.1.floor", "7 us"), ("spark.bandwidth.16", "0.8"))),
        FittedFile("two", (("gemm.0.floor", "4 us"), ("cpu.bandwidth.8", "0.8"), ("cpu.compute.8", "0.8"))),
    )
    assert distinct(files) == 4
