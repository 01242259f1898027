"""What becomes of the others when one participant of several fails."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from exactum import events
from exactum.errors import (
    CheckpointRefused,
    EpochAborted,
    ExactumError,
    Fenced,
    HeuristicOutcome,
    OutcomeUnknown,
    Unavailable,
)
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.model import Incarnation, SourceOffsets
from exactum.protocol.participant import Participant
from exactum.protocol.participants import Parallel, all_at_once, one_after_another
from exactum.protocol.sink import Guarantee, QueryRun
from exactum.testing import MemoryDecisionLog, MemoryStorage
from model.memory import MemoryParticipant, MemoryTarget, MemoryWrite

WAIT_S = 0.3
SERIOUS = [
    HeuristicOutcome,
    Fenced,
    CheckpointRefused,
    ZeroDivisionError,
    EpochAborted,
    OutcomeUnknown,
    Unavailable,
]
"""The most serious first."""


class Watched:
    """A participant that fails where it is told, or takes its time, and notices two threads in
    itself at once.
    """

    def __init__(self, inner: MemoryParticipant, acts: dict[str, Callable[[], None]]) -> None:
        self._inner = inner
        self._acts = acts
        self._busy = threading.Lock()
        self.overlaps: list[str] = []
        self.name = inner.name

    def __getattr__(self, step: str) -> Any:
        method = getattr(self._inner, step)

        def call(*given: object) -> object:
            if not self._busy.acquire(blocking=False):
                self.overlaps.append(step)
                return method(*given)
            try:
                self._acts.get(step, lambda: None)()
                return method(*given)
            finally:
                self._busy.release()

        return call


class World:
    def __init__(
        self, *acts: dict[str, Callable[[], None]], parallel: Parallel[Participant, object]
    ) -> None:
        self.targets = [MemoryTarget(f"t{number}") for number in range(len(acts))]
        run = QueryRun("query", Incarnation("a" * 16), Guarantee.EXACTLY_ONCE)
        self.ports = [
            Watched(MemoryParticipant(t, run), own)
            for t, own in zip(self.targets, acts, strict=True)
        ]
        self.events: list[events.Event] = []
        log = MemoryDecisionLog(MemoryStorage(), "query")
        self.coordinator = Coordinator(
            run, self.ports, log, on_event=self.events.append, parallel=parallel
        )

    def epoch(self) -> None:
        self.coordinator.run(0, SourceOffsets(), MemoryWrite(self.targets))


def failing(error: type[Exception]) -> Callable[[], None]:
    def act() -> None:
        raise error(error.__name__)

    return act


@pytest.mark.parametrize("step", ["verify", "commit"])
def test_nobody_touches_a_participant_that_is_still_at_work(step: str) -> None:
    """One fails at once and the other is slow: what follows waits for it."""
    is_over = threading.Event()
    slow = {step: lambda: is_over.wait(WAIT_S) and None}
    with ThreadPoolExecutor(2) as pool:
        world = World({step: failing(Unavailable)}, slow, parallel=all_at_once(pool))
        with pytest.raises(Unavailable):
            world.epoch()
        world.coordinator.sweep_own(0)
        busy = world.ports[1]._busy.locked()
        is_over.set()
    assert not busy
    assert [port.overlaps for port in world.ports] == [[], []]


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("place", range(len(SERIOUS) - 1))
def test_the_most_serious_error_is_raised_and_the_others_are_told(
    place: int, at_once: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Whichever comes first: a person must see what only a person can settle."""
    serious, lesser = SERIOUS[place : place + 2]
    with ThreadPoolExecutor(2) as pool:
        parallel = all_at_once(pool) if at_once else one_after_another
        for acts in ([serious, lesser], [lesser, serious]):
            caplog.clear()
            world = World(*({"commit": failing(error)} for error in acts), parallel=parallel)
            with caplog.at_level(logging.ERROR, "exactum"), pytest.raises(serious):
                world.epoch()
            (told,) = [record.getMessage() for record in caplog.records]
            assert lesser.__name__ in told and f"t{acts.index(lesser)}" in told


def test_what_is_decided_is_committed_wherever_it_can_be() -> None:
    """A sink that cannot be reached does not keep the epoch from the others' readers."""
    world = World({"commit": failing(Unavailable)}, {}, parallel=one_after_another)
    with pytest.raises(ExactumError):
        world.epoch()
    assert [len(target.visible) for target in world.targets] == [0, 1]
