"""Speculation against published figures: Leviathan, Chen, DeepSeek's MTP, EAGLE heads and look-ups; every row accounted for."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from console import answer, run
from pytest import approx

from roofplan.accuracy.metrics import Comparison, metric_of
from roofplan.accuracy.results import DATA
from roofplan.accuracy.speculation import COLUMNS, TARGET, speculation_accuracy

FOUND = speculation_accuracy()
BY_ROW = {(c.row, c.metric): c for c in FOUND.comparisons}


def error(row: str, metric: str = "speedup") -> float:
    found = BY_ROW[row, metric].error
    assert found is not None
    return abs(found)


def labelled(name: str, value: str, metric: str = "speedup") -> list[Comparison]:
    return [c for c in FOUND.comparisons if c.metric == metric and (c.labels or {}).get(name) == value]


# ------------------------------------------------------------------------------------------------ Leviathan


def test_leviathan_with_one_cost_for_each_draft_model() -> None:
    small, base = (labelled("drafter", f"T5-{size}") for size in ("small", "base"))
    assert len(small) == len(base) == 4
    for c in small:
        limit = 0.20 if "CNNDM" in (c.labels or {})["notes"] else 0.12
        assert abs(c.error or 0) <= limit, c.row
    assert all(abs(c.error or 1) <= 0.25 for c in base)
    costs = {each.drafter: each.draft_cost for each in FOUND.fitted}
    assert 0 <= costs["T5-small"] <= 0.01
    assert 0.01 <= costs["T5-base"] <= 0.07


def test_large_is_listed_with_the_cost_that_each_row_implies() -> None:
    large = {each.row: each for each in FOUND.implied if each.drafter == "T5-large"}
    assert len(large) == 4
    # E / Sp - 1 over gamma, from the table: .82/7/1.7, .71/3/1.4, .74/3/2.2, .56/3/1.7.
    expected = []
    for alpha, gamma, gain in ((0.82, 7, 1.7), (0.71, 3, 1.4), (0.74, 3, 2.2), (0.56, 3, 1.7)):
        tokens = sum(alpha**j for j in range(gamma + 1))
        expected.append((tokens / gain - 1) / gamma)
    assert [each.draft_cost for each in large.values()] == approx(expected, rel=1e-9)
    assert min(expected) == approx(0.07, abs=0.005)
    assert max(expected) == approx(0.28, abs=0.005)
    assert all(BY_ROW[row, "speedup"].predicted is None for row in large)


def test_four_rows_exceed_the_tokens_of_a_round() -> None:
    rows = {row["id"]: row for row in csv.DictReader((DATA / "speculation.csv").open(encoding="utf-8"))}
    named = [(rows[name]["drafter"], rows[name]["notes"]) for name in FOUND.above_expected]
    assert named == [
        ("T5-small", "EnDe T=1"),
        ("T5-small", "CNNDM T=0"),
        ("T5-small", "CNNDM T=1"),
        ("T5-base", "CNNDM T=1"),
    ]


# ------------------------------------------------------------------------------------------------ the others


def test_chen() -> None:
    found = [c for c in FOUND.comparisons if c.row.startswith("CHEN")]
    assert [c.measured for c in found] == [1.92, 2.01, 2.46]
    assert all(abs(c.error or 1) <= 0.10 for c in found)
    costs = [each.draft_cost for each in FOUND.implied if each.row.startswith("CHEN")]
    assert all(cost is not None and 0 < cost < 0.2 for cost in costs)  # published: 1.8 / 14.1 = 0.128


def test_step_costs_of_deepseek_mtp() -> None:
    found = [BY_ROW[f"DSMTP-{k}", "round_cost"] for k in range(1, 6)]
    assert [round(c.measured, 2) for c in found] == [1.08, 1.15, 1.24, 1.35, 1.40]
    assert all(abs(c.error or 1) <= 0.10 for c in found)


def test_deepseek_v3_report() -> None:  # F11.9
    costs = [each.round_cost for each in FOUND.implied if each.row.startswith("DSV3")]
    assert costs == approx([1.0278, 1.0556], abs=1e-4)


def test_verification_alone() -> None:
    """Replays keep every draft: what is left is verification (notes: 1.24, 2.47, 4.86)."""
    costs = [each.round_cost for each in FOUND.implied if each.drafter == "replay oracle"]
    assert costs == approx([1.24, 2.47, 4.86], abs=0.01)


def test_eagle_and_look_ups_are_within_fifteen_per_cent_in_the_median() -> None:
    """The target is for complete inputs; all rows stand beside it."""
    complete, found = metric_of(FOUND.drafted_complete), metric_of(FOUND.drafted)
    assert (complete.answered, found.answered) == (3, 34)
    assert complete.median_ape == approx(0.055, abs=0.001)
    assert found.median_ape is not None
    assert complete.median_ape <= TARGET == 0.15
    drafters = {(c.labels or {})["drafter"] for c in FOUND.drafted}
    assert drafters == {"eagle", "eagle3", "ngram"}
    assert all((c.labels or {})["role"] == "scored" for c in FOUND.drafted)


ASSUMED = ("taken", "device as in", "not stated", "no one cost")  # what notes say of inputs that nobody published


def test_inputs_are_complete_where_nothing_was_taken() -> None:
    for row in csv.DictReader((DATA / "speculation.csv").open(encoding="utf-8")):
        assumed = any(words in row["notes"] for words in ASSUMED) or (
            row["how"] == "formula" and row["role"] == "fitted"
        )
        assert row["complete"] == ("no" if assumed else "yes"), row["id"]


def test_a_heading_claims_no_more_than_its_rows() -> None:
    text = run("accuracy", "speculation").stdout
    lines = text.split("Speed-ups of EAGLE heads and look-ups\n")[1].splitlines()
    (complete,) = (line for line in lines if line.strip().startswith("every input published"))
    (every,) = (line for line in lines if line.strip().startswith("all, lengths or trees of most taken"))
    assert "3 of 3" in complete
    assert "5.5%" in complete
    assert "34 of 34" in every
    assert f"{metric_of(FOUND.drafted).median_ape:.1%}" in every
    verdict = text.splitlines()[1]
    assert "5.5% off in the median of the 3 rows with complete inputs (at most 15%: kept)" in verdict
    assert "all 34 rows" in verdict
    said = answer("accuracy", "speculation")["result"]
    assert said["eagle_and_lookup_complete"]["rows"] == 3
    assert said["eagle_and_lookup"]["rows"] == 34
    assert said["groups"]["complete"]["yes"]["speedup"]["rows"] < said["groups"]["complete"]["no"]["speedup"]["rows"]


def test_spec_bench_implies_what_the_notes_say() -> None:
    """Speed-up over tokens of a round: 0.50 to 0.81 for models, heads and trees, 0.69 to 0.95 for look-ups, those that are predicted too."""
    lookups = {"Lookahead", "REST", "PLD"}
    bench = [each for each in FOUND.implied if each.row.startswith("SPEC-00")]
    trees = [each.speedup / each.tokens_per_round for each in bench if each.drafter not in lookups]
    assert min(trees) >= 0.50
    assert max(trees) <= 0.82
    found = [
        each.speedup / each.tokens_per_round
        for each in FOUND.implied
        if each.drafter in lookups or each.row.startswith("PLD")
    ]
    assert min(found) >= 0.68
    assert max(found) <= 0.95


def test_one_alpha_carries_tokens_to_other_numbers_of_drafts() -> None:  # F11.4
    found = metric_of([c for c in FOUND.comparisons if c.metric == "tokens_per_round"])
    assert found.answered >= 20
    assert found.median_ape is not None
    assert found.median_ape <= 0.15
    assert found.median_bias is not None
    assert found.median_bias > 0  # later drafts are kept less often


# ------------------------------------------------------------------------------------------------ the file and the verb


def test_every_row_on_speculation_is_accounted_for() -> None:
    speed = {
        row["id"]: row
        for row in csv.DictReader((DATA / "speed.csv").open(encoding="utf-8"))
        if row["id"].startswith("SPEC-")
    }
    own = list(csv.DictReader((DATA / "speculation.csv").open(encoding="utf-8")))
    told = {row["truth"] for row in own} - {""}
    assert told <= set(speed)
    unanswered = {c.row for c in FOUND.unanswered if c.row in speed}
    assert told | unanswered == set(speed)
    assert not told & unanswered
    assert all(c.reason for c in FOUND.unanswered)


def test_figures_are_those_of_the_truth_file() -> None:
    speed = {row["id"]: row for row in csv.DictReader((DATA / "speed.csv").open(encoding="utf-8"))}
    for row in csv.DictReader((DATA / "speculation.csv").open(encoding="utf-8")):
        assert row["source"]
        if row["truth"]:
            assert float(row["value"]) == float(speed[row["truth"]]["value"]), row["id"]
            assert (
                row["source"].partition(" Table")[0].partition(" 5.4")[0].partition(" (n")[0]
                in speed[row["truth"]]["source"]
            )


def test_json_has_its_keys(tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    said = answer("accuracy", "speculation", "--by", "engine", "--rows", str(out))
    result = said["result"]
    assert said["command"] == "accuracy speculation"
    keys = {"rows", "answered", "median_ape", "mean_ape", "bias", "p90_ape", "coverage_80"}
    assert all(keys <= set(metric) for metric in result["metrics"].values())
    assert keys <= set(result["groups"]["engine"]["vllm@0.9"]["speedup"])
    assert result["eagle_and_lookup"]["median_ape"] <= 0.15
    assert {"fitted", "implied", "above_expected", "unanswered", "worst"} <= set(result)
    written = list(csv.DictReader(io.StringIO(out.read_text(encoding="utf-8"))))
    assert len(written) == len(FOUND.comparisons)
    again = run("accuracy", "speculation", "--rows", str(out))
    assert (again.returncode, "--force replaces it" in again.stderr) == (2, True)


def test_the_report_names_rows() -> None:
    text = run("accuracy", "speculation").stdout
    for fragment in ("T5-base", "LEVI-07", "Costs that the other rows imply", "above the tokens of a round"):
        assert fragment in text, fragment


def changed(**cells: str) -> str:
    rows = list(csv.DictReader((DATA / "speculation.csv").open(encoding="utf-8")))
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS)
    writer.writeheader()
    writer.writerow(next(row for row in rows if row["id"] == "DSMTP-1") | cells)
    return stream.getvalue()


def test_own_rows_are_compared() -> None:
    done = run("accuracy", "speculation", "--data", "-", "--format", "json", stdin=changed())
    assert done.returncode == 0
    assert '"answered": 1' in done.stdout


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"how": "guess"}, "how: got guess"),
        ({"metric": "ttft_ms"}, "metric: got ttft_ms"),
        ({"complete": "perhaps"}, "complete: got perhaps"),
        ({"k": ""}, "k: got nothing"),
        ({"k": "1.5"}, "k: got 1.5"),
        ({"value": "0"}, "value: got 0"),
        ({"value": "nan"}, "value: got nan"),
        ({"tokens_per_round": ""}, "tokens_per_round: got nothing"),
        ({"drafter": "magic"}, "drafter: got magic"),
    ],
)
def test_bad_rows_are_refused_with_their_line(cells: dict[str, str], said: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(changed(**cells), encoding="utf-8")
    done = run("accuracy", "speculation", "--data", str(path))
    assert done.returncode == 2, done.stdout
    assert said in done.stderr
    assert "bad.csv:2" in done.stderr


def test_rows_that_no_catalogue_knows_are_told_and_not_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(changed(target="no-such-model"), encoding="utf-8")
    (row,) = answer("accuracy", "speculation", "--data", str(path))["result"]["unanswered"]
    assert "no-such-model" in row["reason"]


def test_columns_that_are_not_there() -> None:
    done = run("accuracy", "speculation", "--by", "colour")
    assert (done.returncode, "--by: got colour" in done.stderr) == (2, True)
