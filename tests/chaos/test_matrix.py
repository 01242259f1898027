"""The matrix as data: complete, and every cell that is left out says why."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from chaos import ROOT, report
from chaos.cell_run import Outcome
from chaos.faults import PLAYS
from chaos.matrix import FAMILIES, FAULTS, POINTS, Cell, cells


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


def test_the_table_counts_what_was_exact_of_what_can_happen() -> None:
    """Green, stopped and started again, red, not played, and cannot happen."""
    possible = [
        cell
        for cell in cells()
        if cell.family == "kafka" and cell.fault == "cut" and not cell.impossible
    ]
    played = [Outcome(cell.name, 7, "green", "", ("Unavailable: x",)) for cell in possible]
    red = Outcome("all:between:cut", 8, "red", "OracleFailure: lost <1>")
    void = Outcome("all:decided:cut", 8, "void", "no server")
    shown = report.table({outcome.cell: outcome for outcome in (*played, red, void)})
    rows = [line[2:-2].split(" | ") for line in shown.splitlines() if line.startswith("| ")]
    assert rows[0] == ["fault", *(family.name for family in FAMILIES)]
    assert [row[0] for row in rows[1:]] == [fault.name for fault in FAULTS]
    cut = dict(zip(rows[0][1:], next(row for row in rows if row[0] == "cut")[1:], strict=True))
    assert cut["kafka"] == str(len(possible))
    assert cut["all"] == f"0/{len(possible)}, 1 red"
    assert cut["postgres"].startswith("0/")
    assert cut["files"] == "-"
    assert f"{len(possible)} cells exact (in {len(possible)} the query stopped" in shown


def test_the_command_lists_every_cell_with_the_reason_where_it_is_not_played() -> None:
    asked = subprocess.run(
        [sys.executable, "-m", "chaos", "--list"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    listed = dict(line.split("\t") for line in asked.stdout.splitlines())
    assert listed.keys() == {cell.name for cell in cells()}
    assert listed["files:decided:cut"] == Cell.of("files:decided:cut").impossible
    assert json.dumps(listed["kafka:decided:cut"]) == '""'
