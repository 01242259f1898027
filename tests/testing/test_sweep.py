"""Which calls of a scenario a sweep strikes."""

from __future__ import annotations

import contextlib

import pytest

from exactum.errors import ExactumError, SettingRefused
from exactum.testing.faults import EVERY_VARIABLE, Crash, Fault, FaultPlan, faulty, sweep
from tests.kit.errors import raised

CALLS = 10


class Port:
    def call(self) -> None:
        """Nothing."""


def struck(*faults: Fault) -> list[int]:
    """The calls of a scenario at which they struck, one kind after the other."""
    calls = []

    def scenario(plan: FaultPlan) -> None:
        port = faulty(Port(), plan)
        with contextlib.suppress(Crash, ExactumError):
            for _ in range(CALLS):
                port.call()
        if plan.hit:
            calls.append(plan.at)

    assert sweep(scenario, faults) == len(faults) * (CALLS + 1)
    return calls


def test_every_call() -> None:
    assert struck(Fault.CRASH_BEFORE) == list(range(1, CALLS + 1))


def test_every_third_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of fault from another one: together they strike every call."""
    monkeypatch.setenv(EVERY_VARIABLE, "3")
    found = struck(*list(Fault)[:3])
    assert found == [call for first in (1, 2, 3) for call in range(first, CALLS + 1, 3)]


@pytest.mark.parametrize("given", ["0", "-1", "1.5", "many", ""])
def test_another_value_is_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EVERY_VARIABLE, given)
    with raised(SettingRefused, "TESTING_ARGUMENT", EVERY_VARIABLE, repr(given)):
        struck(Fault.CRASH_BEFORE)
