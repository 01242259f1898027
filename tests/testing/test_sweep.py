"""Which calls of a scenario a sweep strikes."""

from __future__ import annotations

import pytest

from exactum.errors import SettingRefused
from exactum.testing.faults import EVERY_VARIABLE, Crash, Fault, FaultPlan, faulty, sweep

CALLS = 10


class Port:
    def call(self) -> None:
        """Nothing."""


def struck() -> list[int]:
    """The calls of a scenario at which a crash struck."""
    calls = []

    def scenario(plan: FaultPlan) -> None:
        port = faulty(Port(), plan)
        try:
            for _ in range(CALLS):
                port.call()
        except Crash:
            calls.append(plan.at)

    assert sweep(scenario, [Fault.CRASH_BEFORE]) == CALLS + 1
    return calls


def test_every_call() -> None:
    assert struck() == list(range(1, CALLS + 1))


def test_every_third_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """From one of the first three, so that each is struck in some run."""
    monkeypatch.setenv(EVERY_VARIABLE, "3")
    runs = {tuple(struck()) for _ in range(200)}
    assert runs == {tuple(range(first, CALLS + 1, 3)) for first in (1, 2, 3)}


@pytest.mark.parametrize("given", ["0", "-1", "1.5", "many", ""])
def test_another_value_is_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EVERY_VARIABLE, given)
    with pytest.raises(SettingRefused, match="whole number from 1"):
        struck()
