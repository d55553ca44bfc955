"""How long the catalogue takes: looking up names, and sizing every pair of model and device on one core.

Targets: any alias at most 30 ms beside start-up, every pair (about 35,000) at most 90 s. Run: ``python benchmarks/catalogue.py``;
exit code 1 when a target is missed.
"""

from __future__ import annotations

import sys
import time

import roofplan
from roofplan import hardware, models


def main() -> int:
    """Print the times against their targets."""
    names = [(models.CATALOGUE, name) for name in models.CATALOGUE.names()]
    names += [(hardware.CATALOGUE, name) for name in hardware.CATALOGUE.names()]
    slowest = 0.0
    for catalogue, name in names:
        start = time.perf_counter()
        catalogue.find(name)
        slowest = max(slowest, time.perf_counter() - start)
    print(f"slowest of {len(names):,} names: {slowest * 1e3:.1f} ms, target 30")

    devices = [hardware.load(slug) for slug in hardware.CATALOGUE.slugs()]
    pairs, start = 0, time.perf_counter()
    for slug in models.CATALOGUE.slugs():
        model = models.load(slug)
        for device in devices:
            roofplan.size(model, device).to_dict()
            pairs += 1
    seconds = time.perf_counter() - start
    print(f"{pairs:,} pairs sized in {seconds:.1f} s ({seconds / pairs * 1e3:.2f} ms each), target 90 s")
    return 1 if slowest > 0.030 or seconds > 90 else 0


if __name__ == "__main__":
    sys.exit(main())
