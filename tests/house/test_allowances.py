"""How many lines each room may have. A change that needs more raises the number in the same commit,
whose message says which incident, or which user, pays for it. One that needs fewer lowers it.
"""

from __future__ import annotations

import pytest

from tests.kit.environment import ROOT

SRC = ROOT / "src" / "exactum"
TOP = "(top)"
LINES_MAX = {
    TOP: 1_050,
    "checkpoint": 2_825,
    "custom": 1_260,
    "files": 1_695,
    "formats": 2_500,
    "java": 435,
    "kafka": 6_375,
    "lake": 2_320,
    "local": 955,
    "monitor": 3_625,
    "ops": 7_120,
    "protocol": 2_940,
    "sinks": 1_595,
    "spark": 12_340,
    "sql": 5_870,
    "storage": 1_435,
    "testing": 1_650,
    "values": 690,
}
SPARE = 150
"""Lines that a room may be below its number before it is lowered."""


def lines_of(room: str) -> int:
    files = SRC.glob("*.py") if room == TOP else (SRC / room).rglob("*.py")
    return sum(path.read_text().count("\n") for path in files)


def test_every_room_has_an_allowance() -> None:
    rooms = {path.name for path in SRC.iterdir() if (path / "__init__.py").exists()}
    assert rooms | {TOP} == set(LINES_MAX)


@pytest.mark.parametrize("room", LINES_MAX)
def test_a_room_keeps_to_its_allowance(room: str) -> None:
    lines = lines_of(room)
    assert lines <= LINES_MAX[room], "say in the commit who pays for it, or find what it replaces"
    assert lines >= LINES_MAX[room] - SPARE, "lower the number: what was won stays won"
