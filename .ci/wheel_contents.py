"""Check that a wheel holds one top-level package, and exactly the modules and catalogue files of the checkout."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
NOT_SHIPPED = {"tests", "docs", "benchmarks", "examples", "build", "dist", "out"}


def of_the_tree() -> set[str]:
    """Files of the checkout that belong into the wheel."""
    files = {
        file
        for pattern in ("*.py", "*.yaml", "accuracy/data/*.csv", "accuracy/data/kernels/*.csv", "py.typed")
        for file in ROOT.rglob(pattern)
    }
    names = {file.relative_to(ROOT) for file in files}
    return {
        f"roofplan/{name}" for name in names if not name.parts[0].startswith(".") and name.parts[0] not in NOT_SHIPPED
    }


def main() -> int:
    """Compare."""
    with zipfile.ZipFile(sys.argv[1]) as wheel:
        names = {name for name in wheel.namelist() if not name.endswith("/")}
    shipped = {name for name in names if ".dist-info/" not in name}
    tops = {name.split("/")[0] for name in shipped}
    if tops != {"roofplan"}:
        print(f"top-level names: {sorted(tops)}")
        return 1
    difference = shipped ^ of_the_tree()
    for name in sorted(difference):
        print(f"{'only in the wheel' if name in shipped else 'missing in the wheel'}: {name}")
    return 1 if difference else 0


if __name__ == "__main__":
    sys.exit(main())
