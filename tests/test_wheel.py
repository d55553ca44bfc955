"""The built wheel: one package, under 3 MB, and exactly the files of the checkout."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_wheel_holds_what_the_tree_holds(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.stat().st_size < 3_000_000
    check = [sys.executable, str(ROOT / ".ci" / "wheel_contents.py"), str(wheel)]
    compared = subprocess.run(check, capture_output=True, text=True, check=False)
    assert compared.returncode == 0, compared.stdout
