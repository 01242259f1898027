"""docs/benchmark.md: its first table says what the tables below it say, which a run replaces."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.peers.tables import BEGIN, END, markdown, put_into
from tests.kit.environment import ROOT

PAGE = ROOT / "docs" / "benchmark.md"
FIGURE = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?![\w,]*\d)")


def test_every_figure_of_the_first_table_stands_below() -> None:
    head, begin, rest = PAGE.read_text().partition(BEGIN)
    made, end, _ = rest.partition(END)
    assert begin and end
    first, *_ = re.findall(r"(?:^\|.*\n)+", head, re.M)
    _, _, *lines = first.splitlines()
    shown = [cell.strip() for line in lines for cell in line.strip("|").split("|")[1:-1]]
    figures = [cell for cell in shown if cell != "-"]
    assert len(figures) > 30
    assert [figure for figure in figures if figure not in FIGURE.findall(made)] == []


def test_a_run_replaces_its_tables_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "benchmark.md"
    page.write_text(PAGE.read_text())
    machine = {
        "phase": "machine",
        "text": "two cores",
        "settings": "four partitions",
        "began": "2026-11-25 12:00:00",
        "commit": "abc1234",
    }
    put_into(page, markdown([machine]))
    head, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    made = "two cores.\n\nfour partitions.\n\n- 2026-11-25 12:00:00 UTC, commit `abc1234`"
    assert page.read_text() == f"{head}{BEGIN}\n{made}\n{END}{tail}"


def test_a_page_without_the_marks_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "other.md"
    page.write_text(BEGIN)
    with pytest.raises(SystemExit):
        put_into(page, "tables")
    assert page.read_text() == BEGIN
