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
    "checkpoint": 2_780,
    "custom": 1_350,
    "files": 1_730,
    "formats": 2_470,
    "java": 440,
    "kafka": 6_430,
    "lake": 2_325,
    "local": 840,
    "monitor": 3_665,
    "ops": 7_330,
    "protocol": 2_920,
    "sinks": 1_550,
    "spark": 12_275,
    "sql": 5_900,
    "storage": 1_440,
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
