"""Which planted faults the tests have found on one state of ``src``, as a table by the rows of
docs/guarantees.md. ``python -m tests.planted.report`` keeps what was found here with the sources.
"""

from __future__ import annotations

from collections.abc import Collection

from tests.kit.played import FAULTS_FOUND, keep, kept
from tests.planted.faults import FAULTS


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


if __name__ == "__main__":
    keep()
    print(table(kept(FAULTS_FOUND)))
