"""``-o report.html`` of every verb that answers with tables: the whole page, nothing half written, nothing replaced without being asked."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from console import SCRIPT

LLAMA = ("llama-3.1-8b", "h100-sxm")
VERBS = {
    "size": (("size", *LLAMA), 0),
    "kv": (("kv", "gemma-3-27b"), 0),
    "kv variants": (("kv", "llama-3.1-8b", "--variant", "mqa"), 0),
    "error budget": (("kv", "--error-budget", "kl=0.01"), 0),
    "roofline": (("roofline", *LLAMA), 0),
    "sweep": (("sweep", *LLAMA, "--over", "batch=1..8:x2"), 0),
    "compare": (("compare", *LLAMA, "h200"), 0),
    "advise": (("advise", *LLAMA), 0),
    "claim": (("claim", "500 tok/s", "llama-3.1-8b", "a100-80gb"), 0),
    "impossible": (("claim", "9e9 tok/s", "llama-3.1-8b", "a100-80gb"), 1),
    "speculate": (("speculate", *LLAMA, "--draft-cost", "0.1", "--acceptance", "0.8"), 0),
    "trials": (("speculate", "--simulate", "--rounds", "2000"), 0),
    "figure": (("figure", "cache-steps"), 0),
    "accuracy speculation": (("accuracy", "speculation"), 0),
}
WITHOUT_PICTURES = ("size", "kv", "error budget", "advise", "claim", "accuracy speculation")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SCRIPT, *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_writes_a_page(name: str, tmp_path: Path) -> None:
    (words, code), file = VERBS[name], tmp_path / "report.html"
    done = run(*words, "-o", str(file))
    assert (done.returncode, done.stderr) == (code, "")
    text = file.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert text.endswith("</html>\n")
    assert f'<p class="verb">roofplan {" ".join(words[: 2 if words[0] == "accuracy" else 1])}</p>' in text


@pytest.mark.parametrize("name", WITHOUT_PICTURES)
def test_what_is_not_drawn_is_not_written_as_a_picture(name: str, tmp_path: Path) -> None:
    done = run(*VERBS[name][0], "-o", str(tmp_path / "x.png"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("x.png: got .png, want .html\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["kv", "claim", "advise", "speculate", "accuracy speculation"])
def test_a_page_that_is_there_is_replaced_on_request_only(name: str, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text("mine", encoding="utf-8")
    done = run(*VERBS[name][0], "-o", str(file))
    assert (done.returncode, done.stdout) == (2, "")
    assert "--force" in done.stderr
    assert file.read_text(encoding="utf-8") == "mine"
    assert run(*VERBS[name][0], "-o", str(file), "--force").returncode == 0
    assert file.read_text(encoding="utf-8") != "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
