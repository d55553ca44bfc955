"""What public calculators got wrong, by case number: roofplan against the right value of each case of ``bug_cases.md``.

Every expected figure is the right one of that collection, which took it from an engine's log, a maintainer, or arithmetic on a published
configuration; none is what roofplan printed. Where it is a rounded figure, ``within`` is half a unit of its last digit unless said
otherwise. Groups: A shape of the cache, B sharding, C memory, D devices, E time, F speculation, G cache and queueing.
"""

import re
from pathlib import Path

# All cases of all groups.
# fmt: off
CASES = {1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 17, 19, 20, 22, 23, 24, 26, 27, 29, 30, 31, 32, 34, 35, 37, 39, 40, 42, 43, 44, 46, 47, 48, 50, 51, 52, 54, 56, 57, 58, 59, 61, 62, 63, 67, 69, 70}
# fmt: on


def test_every_case_has_a_test() -> None:
    tested: list[str] = []
    for path in Path(__file__).parent.glob("test_*.py"):
        tested += re.findall(r'(?:def test_case_|^ +\(+"|id=f?")(\d+)', path.read_text(encoding="utf-8"), re.MULTILINE)
    assert {int(number) for number in tested} == CASES
