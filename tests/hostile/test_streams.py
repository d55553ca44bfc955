"""Standard streams that are closed, full, endless or of another encoding."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from console import SCRIPT


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """Run a line of shell in which ``roofplan`` is the installed script."""
    text = f"roofplan() {{ '{SCRIPT}' \"$@\"; }}\n{line}"
    return subprocess.run(["bash", "-c", text], capture_output=True, text=True, timeout=20, check=False)


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("roofplan kv - <&-", 2, "roofplan: standard input: got a closed one, want a file\n"),
        ("roofplan kv - </dev/zero", 2, "roofplan: <stdin>: file: got more than 1,048,576 bytes, want at most 1,048,576 bytes\n"),
        ("roofplan kv - </dev/null", 2, "roofplan: <stdin>: document: got no mapping, want a model (schema: roofplan/model/v1, or a config.json)\n"),
        ("roofplan kv gpt2 >/dev/full", 2, "roofplan: the answer cannot be written: No space left on device\n"),
        ("roofplan size gpt2 h100 --format json >/dev/full", 2, "roofplan: the answer cannot be written: No space left on device\n"),
        ("roofplan kv gpt2 >&-", 0, ""),
        ("roofplan kv nothing 2>&-", 2, ""),
        ("roofplan kv nothing >&- 2>&-", 2, ""),
        ("roofplan kv gpt2 --explain | true", 0, ""),
        ("PYTHONIOENCODING=ascii roofplan size gpt2 h100 | cat >/dev/null; exit ${PIPESTATUS[0]}", 0, ""),
        ("LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 roofplan size gpt2 h100 >/dev/null", 0, ""),
    ],
)  # fmt: skip
def test_a_strange_stream_causes_neither_noise_nor_a_fault_of_ours(line: str, code: int, said: str) -> None:
    done = shell(line)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", said)


def test_letters_that_the_encoding_lacks_are_escaped() -> None:
    done = shell("PYTHONIOENCODING=ascii roofplan size gpt2 h100")
    assert done.stdout.isascii()
    assert "gpt2 on h100-sxm5-80gb \\xb7" in done.stdout


def test_a_writer_that_is_late_is_waited_for() -> None:
    config = Path(__file__).parents[1] / "data" / "model_configs" / "openai-community__gpt2.json"
    done = shell(f"(sleep 0.3; cat '{config}') | roofplan kv - --format csv")
    assert done.returncode == 0
    assert done.stderr == ""
