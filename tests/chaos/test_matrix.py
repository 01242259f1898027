"""The matrix as data: complete, and every cell that is left out says why."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from chaos import ROOT, report
from chaos.__main__ import unplayed
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


def test_the_page_shows_every_cell() -> None:
    """Green, red, stopped and started again, not run, and why not."""
    outcomes = {
        o.cell: o
        for o in (
            Outcome("kafka:decided:cut", 7, "green", "", (), 2.0, "2026-11-21T10:00:00+00:00"),
            Outcome(
                "kafka:decided:reset",
                7,
                "green",
                "",
                ("Unavailable: x | y",),
                2.0,
                "2026-11-21T10:00:00+00:00",
            ),
            Outcome(
                "all:between:cut",
                7,
                "red",
                "OracleFailure: lost <1>",
                (),
                2.0,
                "2026-11-21T10:00:00+00:00",
            ),
        )
    }
    page = report.page(outcomes, {cell.name: unplayed(cell) for cell in cells()})
    rows = [line for line in page.splitlines() if line.startswith("| cut | ")]
    assert len(rows) == 1 + len(FAMILIES), "the legend, and a row in each family"
    assert "[ok](#kafka-decided-cut)" in page
    assert "[ok+1](#kafka-decided-reset)" in page
    assert "[RED](#all-between-cut)" in page
    assert '<a id="all-between-cut"></a>`all:between:cut`: RED' in page
    assert "not run" in rows[1]
    assert "| x | y" not in page
    assert page.count("| played, green | 2 |") == page.count("| played, red | 1 |") == 1


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
