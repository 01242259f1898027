"""Which planted faults the tests have found on these sources, as a table by the rows of
docs/guarantees.md. ``python -m tests.planted.report`` keeps them with the sources, as evidence.
"""

from __future__ import annotations

from collections.abc import Collection

from tests.kit.played import evidence, keep
from tests.planted.faults import FAULTS

PLAY = "tests/planted/play.py::"


def table(found: Collection[str]) -> str:
    """``found``: names of faults. The others were not found, or not played yet."""
    lines = ["| what holds | found | not found, or not played |", "|---|---|---|"]
    for row in dict.fromkeys(fault.row for fault in FAULTS):
        names = [fault.name for fault in FAULTS if fault.row == row]
        missed = [name for name in names if name not in found]
        count = f"{len(names) - len(missed)} of {len(names)}"
        lines.append(f"| {row} | {count} | {'; '.join(missed) or '-'} |")
    count = sum(fault.name in found for fault in FAULTS)
    return "\n".join([*lines, f"| all | {count} of {len(FAULTS)} | |"])


def found_here() -> set[str]:
    """Of what is kept as passed on the present ``src``."""
    tests = (test for test in evidence() if test.startswith(PLAY))
    return {test.partition("[")[2].removesuffix("]") for test in tests}


if __name__ == "__main__":
    keep()
    print(table(found_here()))
