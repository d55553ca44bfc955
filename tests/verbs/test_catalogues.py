"""``roofplan hardware`` and ``roofplan model`` through the installed console script."""

import csv
import io
import json
from pathlib import Path

import pytest
from console import answer, run

from roofplan import hardware, models

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "llama-3.1-8b" / "config.json")


def test_lists_hold_every_entry_in_base_units() -> None:
    devices = answer("hardware", "list")["result"]["rows"]
    assert [row["name"] for row in devices] == hardware.CATALOGUE.slugs()
    h100 = next(row for row in devices if row["name"] == "h100-sxm5-80gb")
    assert (h100["memory_bytes"], h100["bandwidth_bytes_per_s"], h100["peak_flop_per_s"]) == (
        81559 * 2**20,
        3.35e12,
        989.4e12,
    )
    shapes = answer("model", "list")["result"]["rows"]
    assert [row["name"] for row in shapes] == models.CATALOGUE.slugs()
    llama = next(row for row in shapes if row["name"] == "llama-3.1-8b")
    assert (llama["parameters_total"], llama["kv_bytes_per_token"]) == (8030261248, 131072)


def test_entries_show_their_figures_and_evidence() -> None:
    text = run("hardware", "show", "h100-sxm").stdout
    assert "memory.bandwidth" in text
    assert "evidence.0.kind" in text
    assert "window" in run("model", "show", "gemma-3-27b").stdout


def test_lint_says_what_it_checked() -> None:
    done = run("hardware", "lint")
    assert (done.returncode, done.stdout) == (0, f"{len(hardware.CATALOGUE.slugs())} devices checked: nothing found\n")
    assert run("model", "lint", "llama-3.1-8b", "gpt2").stdout == "2 models checked: nothing found\n"


def test_lint_of_a_faulty_file_exits_1(tmp_path: Path) -> None:
    source = (hardware.CATALOGUE.folder / "h100-sxm5-80gb.yaml").read_text(encoding="utf-8")
    faulty = tmp_path / "brochure.yaml"
    faulty.write_text(source.replace("bf16: 989.4", "bf16: 1979"))
    done = run("hardware", "lint", str(faulty))
    assert done.returncode == 1
    assert "peak-off-formula" in done.stdout
    assert run("hardware", "lint", str(faulty), "--format", "json").returncode == 1


def test_an_imported_configuration_is_a_spec_of_the_same_model(tmp_path: Path) -> None:
    target = tmp_path / "imported.yaml"
    assert run("model", "import", EXAMPLE, "-o", str(target)).returncode == 0
    assert run("model", "import", EXAMPLE).stdout == target.read_text(encoding="utf-8")
    assert models.load(str(target)).layers == models.load("llama-3.1-8b").layers
    assert run("model", "diff", str(target), "llama-3.1-8b").returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["imported.yaml"]


def test_an_existing_file_is_kept_unless_told_otherwise(tmp_path: Path) -> None:
    target = tmp_path / "imported.yaml"
    target.write_text("mine")
    refused = run("model", "import", EXAMPLE, "-o", str(target))
    assert refused.returncode == 2
    assert "--force" in refused.stderr
    assert target.read_text() == "mine"
    assert run("model", "import", EXAMPLE, "-o", str(target), "--force").returncode == 0
    assert target.read_text() != "mine"


def test_a_target_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    done = run("model", "import", EXAMPLE, "-o", str(tmp_path / "missing" / "x.yaml"))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_differences_are_listed_and_exit_1() -> None:
    done = run("model", "diff", "llama-3.1-8b", "llama-3-70b", "--format", "json")
    assert done.returncode == 1
    keys = {row["key"] for row in json.loads(done.stdout)["result"]["rows"]}
    assert {"hidden_size", "layers.0.count", "layers.0.attention.0.num_heads"} <= keys
    assert "name" not in keys


def table(*words: str) -> list[dict[str, str]]:
    """The rows of a listing in CSV."""
    return list(csv.DictReader(io.StringIO(run(*words, "--format", "csv").stdout)))


def test_a_listing_in_csv_is_a_table_of_its_rows() -> None:
    devices = table("hardware", "list")
    assert [row["name"] for row in devices] == hardware.CATALOGUE.slugs()
    h100 = next(row for row in devices if row["name"] == "h100-sxm5-80gb")
    assert (int(h100["memory_bytes"]), float(h100["peak_flop_per_s"])) == (81559 * 2**20, 989.4e12)
    assert all(None not in row and None not in row.values() for row in devices)


def test_a_list_in_a_cell_of_csv_is_joined() -> None:
    (row,) = table("model", "list", "meta-llama/Llama-2-13b-hf")
    assert row["ids"] == "meta-llama/Llama-2-13b-hf; meta-llama/Llama-2-13b-chat-hf; lmsys/vicuna-13b-v1.5"
    assert int(row["max_context"]) == 4096


def test_other_listings_in_csv() -> None:
    shown = {row["key"]: row["value"] for row in table("model", "show", "llama-3.1-8b")}
    assert shown["hidden_size"] == "4096"
    (layers,) = (row for row in table("model", "diff", "llama-3.1-8b", "llama-3-70b") if row["key"] == "layers.0.count")
    assert (layers["llama-3.1-8b"], layers["llama-3-70b"]) == ("32", "80")


def test_an_empty_listing_in_csv_is_a_header() -> None:
    assert run("model", "lint", "gpt2", "--format", "csv").stdout == "entry,rule,what\n"


def test_one_difference_is_no_differences(tmp_path: Path) -> None:
    source = (models.CATALOGUE.folder / "llama-3.1-8b.yaml").read_text(encoding="utf-8")
    changed = tmp_path / "changed.yaml"
    changed.write_text(source.replace("vocab_size: 128256", "vocab_size: 128257"))
    assert "1 difference\n" in run("model", "diff", "llama-3.1-8b", str(changed)).stdout
    (row,) = table("model", "diff", "llama-3.1-8b", str(changed))
    assert row == {"key": "vocab_size", "llama-3.1-8b (1)": "128256", "llama-3.1-8b (2)": "128257"}


@pytest.mark.parametrize("name", ["DeepSeek-R1-FP4", "nvidia/DeepSeek-R1-FP4"])
def test_a_name_of_a_quantised_variant_implies_its_format(name: str) -> None:
    assert models.load(name).weights == "mlp=nvfp4,experts=nvfp4"
    assert models.load("deepseek-r1").weights == "fp8-block128"


@pytest.mark.parametrize(
    "verb", [("hardware",), ("model",), ("hardware", "list"), ("model", "import"), ("model", "diff")]
)
def test_every_verb_has_help(verb: tuple[str, ...]) -> None:
    done = run(*verb, "--help")
    assert done.returncode == 0
    assert "Usage" in done.stdout


def test_lists_can_be_narrowed_by_any_name() -> None:
    names = {row["name"] for row in answer("hardware", "list", "p5.48xlarge")["result"]["rows"]}
    assert names == {"h100-sxm5-80gb"}
    assert {row["name"] for row in answer("model", "list", "Qwen3-32B")["result"]["rows"]} == {"qwen3-32b"}
    assert answer("model", "list", "no such model")["result"]["rows"] == []


def test_figures_of_an_entry_are_numbers_in_json_and_have_units_in_text() -> None:
    rows = {row["key"]: row["value"] for row in answer("hardware", "show", "h100-sxm")["result"]["rows"]}
    assert rows["memory.reported"] == 81559 * 2**20
    assert rows["peak.bf16"] == 989.4e12
    text = run("hardware", "show", "h100-sxm").stdout
    assert "81559 MiB" in text
    assert "989.4 TFLOP/s" in text
    assert "700 W" in text
