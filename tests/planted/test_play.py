"""What counts as a planted fault that was found, and the table of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.environment import ROOT
from tests.planted import play
from tests.planted.faults import FAULTS
from tests.planted.play import Ended, is_found, is_green
from tests.planted.report import table

COPY = Path("/copy")
TESTS = "tests/contract/test_sink.py -k kafka"
RED = Ended(("tests/contract/test_sink.py",))


class Plays:
    """Stands for ``played``; ``played`` is what it was asked for."""

    def __init__(self, planted: Ended, unchanged: Ended) -> None:
        self.ended = {COPY: planted, ROOT / "src": unchanged}
        self.played: list[tuple[Path, tuple[str, ...]]] = []

    def __call__(self, sources: Path, tests: tuple[str, ...]) -> Ended:
        self.played.append((sources, tests))
        return self.ended[sources]


@pytest.mark.parametrize(
    ("planted", "unchanged", "hangs", "found"),
    [
        (RED, Ended(), False, True),
        (RED, RED, False, False),
        (RED, Ended(hung=True), False, False),
        (Ended(), Ended(), False, False),
        (Ended(hung=True), Ended(), False, False),
        (replace(RED, hung=True), Ended(), False, False),
        (Ended(hung=True), Ended(), True, True),
        (Ended(hung=True), Ended(hung=True), True, False),
    ],
)
def test_what_is_a_find(
    planted: Ended, unchanged: Ended, hangs: bool, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests fail with the fault, and pass without it. A hang is one where the fault says so."""
    is_green.cache_clear()
    monkeypatch.setattr(play, "played", Plays(planted, unchanged))
    assert is_found(replace(FAULTS[0], hangs=hangs), COPY, TESTS) is found


def test_unchanged_sources_are_played_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each file in which a test was red, with the kinds that the fault names."""
    is_green.cache_clear()
    plays = Plays(RED, Ended())
    monkeypatch.setattr(play, "played", plays)
    for fault in FAULTS[:3]:
        assert is_found(fault, COPY, TESTS)
    named = ("tests/contract/test_sink.py", "-k", "kafka")
    assert plays.played == [(COPY, named), (ROOT / "src", named), (COPY, named), (COPY, named)]


def test_the_table_says_what_was_not_found() -> None:
    missed, *others = FAULTS
    lines = table([fault.name for fault in others]).splitlines()
    (line,) = (line for line in lines if missed.name in line)
    assert line.startswith(f"| {missed.row} |")
    assert line.endswith(f" | {missed.name} |")
    assert lines[-1] == f"| all | {len(others)} of {len(FAULTS)} | |"
    assert sum(line.endswith(" | - |") for line in lines) == len({f.row for f in FAULTS}) - 1
