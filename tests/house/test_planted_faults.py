"""The planted faults fit the sources and the guarantees: see ``tests.planted``."""

from __future__ import annotations

import ast
import re

import pytest

from tests.kit.environment import ROOT
from tests.planted.fault import Fault
from tests.planted.faults import FAULTS

FAULTS_MIN = 40


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_each_stands_in_the_sources(fault: Fault) -> None:
    source = (ROOT / "src" / "exactum" / fault.file).read_text()
    ast.parse(fault.plant(source))


def test_each_row_of_the_guarantees_has_one() -> None:
    page = (ROOT / "docs" / "guarantees.md").read_text()
    tables = page.partition("## What holds, and how")[2].partition("## By sink")[0]
    first = re.findall(r"^\| ([^|]+) \|", tables, re.MULTILINE)
    rows = {re.sub(r"\[(.+)\]\(.+\)", r"\1", row.strip()) for row in first}
    rows -= {"what holds", "---"}
    assert rows == {fault.row for fault in FAULTS}
    assert len(FAULTS) >= FAULTS_MIN
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
