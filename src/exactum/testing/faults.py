"""Fault injection at the ports, by counting calls: sweep the count until a run is clean.

Wrap the ports of your own sink, and let ``sweep`` run your scenario once for each call and each
fault::

    def scenario(plan: FaultPlan) -> None:
        target = ...                            # fresh, for each run
        try:
            drive(faulty(participant, plan), faulty(log, plan), faulty(write, plan))
        except (Crash, ExactumError):
            pass                                # the process is gone, or the query has failed
        drive(participant, log, write)          # the next incarnation, without faults
        assert rows_of(target) == expected

    print(sweep(scenario), "runs")

Where the whole sweep takes too long, ``EXACTUM_SWEEP_EVERY=3`` plays every third call: of the first
kind of fault from the first call, of the next from the second, and so on, the same in each run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, TypeVar, cast

from exactum.errors import OutcomeUnknown, SettingRefused, Unavailable

# ---- write job -----------------------------------------------------------------------------------


Around = Callable[[str, Callable[[], object]], object]


def straight(label: str, call: Callable[[], object]) -> object:
    """An ``Around`` that changes nothing."""
    return call()


P = TypeVar("P")

CALLS_MAX = 10_000
"""A scenario that makes more calls than this does not end."""
EVERY_VARIABLE = "EXACTUM_SWEEP_EVERY"


class Crash(BaseException):
    """The process died here. Not an ``Exception``: nothing may clean up after it."""


class Fault(Enum):
    """What happens at the chosen call."""

    CRASH_BEFORE = "crash before the effect"
    CRASH_AFTER = "crash after the effect"
    UNAVAILABLE_BEFORE = "Unavailable, without an effect"
    UNAVAILABLE_AFTER = "Unavailable, after the effect"
    UNKNOWN_BEFORE = "OutcomeUnknown, without an effect"
    UNKNOWN_AFTER = "OutcomeUnknown, after the effect"
    REPEATED = "the effect twice, the second reply"


class FaultPlan:
    """One fault at one call. ``calls`` counts from 1 over everything wrapped with this plan.

    Usable as an ``Around``: ``MemoryWrite(targets, around=plan.around)``.
    """

    def __init__(self, fault: Fault, at: int) -> None:
        self.fault = fault
        self.at = at
        self.calls = 0
        self.hit = ""  # the call that was struck, empty while none was
        self._dead = False

    def around(self, label: str, call: Callable[[], object]) -> object:
        """Perform ``call`` with the planned fault.

        Raises:
            Crash: here and at every later call, for the process is dead.
            Unavailable, OutcomeUnknown: as planned.
        """
        if self._dead:
            raise Crash(f"{label} of a process that died in {self.hit}")
        self.calls += 1
        if self.calls != self.at:
            return call()
        self.hit = label
        return self._strike(label, call)

    def _strike(self, label: str, call: Callable[[], object]) -> object:
        text = f"{self.fault.value}: call {self.at}, {label}"
        if self.fault in (
            Fault.CRASH_AFTER,
            Fault.UNAVAILABLE_AFTER,
            Fault.UNKNOWN_AFTER,
            Fault.REPEATED,
        ):
            call()
        if self.fault is Fault.REPEATED:
            return call()
        if self.fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER):
            self._dead = True
            raise Crash(text)
        if self.fault in (Fault.UNAVAILABLE_BEFORE, Fault.UNAVAILABLE_AFTER):
            raise Unavailable(text)
        raise OutcomeUnknown(text)

    def __repr__(self) -> str:
        return f"FaultPlan({self.fault.name}, at={self.at}) at {self.hit or 'no call'}"


class _Interposed:
    """Passes every method call of ``inner`` through ``around``. Names beginning with _ and ``name``
    pass.
    """

    def __init__(
        self, inner: object, around: Callable[[str, Callable[[], object]], object]
    ) -> None:
        self._inner = inner
        self._around = around

    @property
    def name(self) -> object:
        return cast(Any, self._inner).name

    def __call__(self, *args: object, **kwargs: object) -> object:
        inner = cast(Callable[..., object], self._inner)
        return self._around(type(inner).__name__, lambda: inner(*args, **kwargs))

    def __getattr__(self, attribute: str) -> object:
        method = getattr(self._inner, attribute)
        if not callable(method):
            return method

        def interposed(*args: object, **kwargs: object) -> object:
            return self._around(attribute, lambda: method(*args, **kwargs))

        self.__dict__[attribute] = interposed
        return interposed


def interpose(port: P, around: Callable[[str, Callable[[], object]], object]) -> P:
    """``port`` with every call passed through ``around(name of the call, the call)``."""
    return cast(P, _Interposed(port, around))


def faulty(port: P, plan: FaultPlan) -> P:
    """``port`` (a participant, a decision log, a write function) with ``plan``'s fault in it."""
    return interpose(port, plan.around)


def sweep(scenario: Callable[[FaultPlan], None], faults: Iterable[Fault] = tuple(Fault)) -> int:
    """Run ``scenario`` with each fault at call 1, 2, ... until a run is clean; returns how many
    runs that is, where every call is played.

    The scenario makes everything anew, runs with the fault, recovers without it, and asserts.

    Raises:
        AssertionError: a run failed; the message names the fault and the call.
        SettingRefused: ``EXACTUM_SWEEP_EVERY`` is no whole number from 1.
    """
    runs, every = 0, _every()
    for number, fault in enumerate(faults):
        for at in range(1 + number % every, CALLS_MAX + 1, every):
            plan = FaultPlan(fault, at)
            try:
                scenario(plan)
            except Exception as error:
                raise AssertionError(f"{plan!r}: {type(error).__name__}: {error}") from error
            if not plan.hit:
                runs += plan.calls + 1
                break
        else:
            raise AssertionError(f"{fault}: still not clean at call {CALLS_MAX}.")
    return runs


def _every() -> int:
    given = os.environ.get(EVERY_VARIABLE, "1")
    if not (given.isdecimal() and int(given)):
        raise SettingRefused(
            "TESTING_ARGUMENT", f"{EVERY_VARIABLE} is a whole number from 1, not {given!r}."
        )
    return int(given)
