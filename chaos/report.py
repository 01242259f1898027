"""What has passed of the fault matrix on one state of ``src``: how many cells of each fault and
sink family, as a table. ``python -m chaos.report`` keeps what has passed here with the sources.
"""

from __future__ import annotations

from collections.abc import Collection

from chaos.matrix import FAMILIES, FAULTS, Family, Fault, cells
from tests.kit.played import CELLS, keep, kept


def table(names: Collection[str]) -> str:
    """``names``: of the cells that have passed. ``13/15``: so many of so many; ``-``: it cannot
    happen.
    """
    lines = [
        "| fault | " + " | ".join(family.name for family in FAMILIES) + " |",
        "|---" * (len(FAMILIES) + 1) + "|",
    ]
    for fault in FAULTS:
        squares = [_square(family, fault, names) for family in FAMILIES]
        lines.append(f"| {fault.name} | {' | '.join(squares)} |")
    return "\n".join(lines)


def _square(family: Family, fault: Fault, names: Collection[str]) -> str:
    mine = [
        cell
        for cell in cells()
        if (cell.family, cell.fault) == (family.name, fault.name) and not cell.impossible
    ]
    done = sum(cell.name in names for cell in mine)
    return "-" if not mine else str(done) if done == len(mine) else f"{done}/{len(mine)}"


if __name__ == "__main__":
    keep()
    print(table(kept(CELLS)))
