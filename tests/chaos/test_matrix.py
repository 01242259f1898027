"""The matrix as data: complete, and every cell that is left out says why."""

from __future__ import annotations

import pytest

from chaos import ROOT, report
from chaos.faults import PLAYS
from chaos.matrix import FAMILIES, FAULTS, POINTS, Cell, cells
from tests.kit.played import CELLS, kept


def test_every_square_has_a_cell_and_every_fault_is_written() -> None:
    every = list(cells())
    assert len(set(every)) == len(every) == len(POINTS) * len(FAULTS) * len(FAMILIES)
    assert set(PLAYS) == {fault.name for fault in FAULTS}
    assert all(Cell.of(cell.name) == cell for cell in every)


def test_a_name_that_is_no_cell_is_refused() -> None:
    with pytest.raises(ValueError, match="no cell"):
        Cell.of("kafka:decided:earthquake")


def test_what_needs_an_open_transaction_cannot_happen_without_one() -> None:
    """And the other way round: most squares can happen."""
    assert Cell.of("kafka:planned:expired").impossible
    assert Cell.of("files:decided:cut").impossible
    assert Cell.of("postgres:half:kill-driver").impossible
    assert not Cell.of("kafka:decided:expired").impossible
    assert sum(not cell.impossible for cell in cells()) > len(list(cells())) / 2


def test_the_page_has_the_table_of_what_was_played() -> None:
    """``make chaos`` prints it anew."""
    assert report.table(kept(CELLS)) in (ROOT / "chaos" / "README.md").read_text()


def test_the_table_counts_what_has_passed_of_what_can_happen() -> None:
    possible = [cell for cell in cells() if cell.fault == "cut" and not cell.impossible]
    names = {cell.name for cell in possible if cell.family == "kafka"}
    of_all = sum(cell.family == "all" for cell in possible)
    shown = report.table({*names, "all:between:cut"})
    rows = [line[2:-2].split(" | ") for line in shown.splitlines() if line.startswith("| ")]
    assert rows[0] == ["fault", *(family.name for family in FAMILIES)]
    assert [row[0] for row in rows[1:]] == [fault.name for fault in FAULTS]
    cut = dict(zip(rows[0][1:], next(row for row in rows if row[0] == "cut")[1:], strict=True))
    assert (cut["kafka"], cut["all"], cut["files"]) == (str(len(names)), f"1/{of_all}", "-")
