"""What each commit has to show is not left to ``make deep``, and has planted faults: see
``tests.planted``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.kit.environment import ROOT
from tests.planted.fault import Fault
from tests.planted.faults import FAULTS

FAULTS_MIN = 40


def rows() -> Iterator[tuple[str, list[str]]]:
    """What a row of docs/guarantees.md promises, and the paths that it names."""
    page = (ROOT / "docs" / "guarantees.md").read_text()
    tables = page.partition("## What holds, and how")[2].partition("## By sink")[0]
    for what, shown_by in re.findall(r"^\| ([^|]+) \|[^|]+\|([^|]+)\|$", tables, re.MULTILINE):
        if what != "what holds":
            yield re.sub(r"\[(.+)\]\(.+\)", r"\1", what), re.findall(r"`([^`]+)`", shown_by)


@cache
def is_played(path: str) -> bool:
    """Whether ``make test`` plays a test of this file or folder."""
    place = ROOT / path
    files = [place] if place.is_file() else place.rglob("test_*.py")
    return any(plays(file) for file in files)


def plays(file: Path) -> bool:
    body = ast.parse(file.read_text()).body
    marks = [n.value for n in body if isinstance(n, ast.Assign) and "pytestmark" in names(n)]
    return not is_deep(marks) and any(is_test(node) for node in body)


def is_test(node: ast.stmt) -> bool:
    """One that is not deep; a class has those of a contract, or its own."""
    if isinstance(node, ast.FunctionDef):
        return node.name.startswith("test_") and not is_deep(node.decorator_list)
    if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
        inherited = bool(node.bases) or any(is_test(inner) for inner in node.body)
        return inherited and not is_deep(node.decorator_list)
    return False


def names(node: ast.Assign) -> list[str]:
    return [target.id for target in node.targets if isinstance(target, ast.Name)]


def is_deep(marks: list[ast.expr]) -> bool:
    """A single deep variant is within ``pytest.param``."""
    return any(re.search(r"(?<!marks=)\bpytest\.mark\.deep", ast.unparse(mark)) for mark in marks)


def test_each_row_of_the_guarantees_is_shown() -> None:
    found = list(rows())
    assert len(found) > 20
    for what, paths in found:
        assert any(is_played(path) for path in paths), what


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_each_planted_fault_stands_in_the_sources_and_can_be_seen(fault: Fault) -> None:
    ast.parse(fault.plant((ROOT / "src" / "exactum" / fault.file).read_text()))
    assert all(is_played(test.split()[0]) for test in fault.tests)


def test_each_row_of_the_guarantees_has_a_planted_fault() -> None:
    assert {what for what, _ in rows()} == {fault.row for fault in FAULTS}
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= FAULTS_MIN
