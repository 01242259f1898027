"""Kills a driver with SIGKILL when it hurts most, and waits until it works again: one thread for
each driver.

A kill at random nearly never meets the moment that matters, so most are aimed, by what the
checkpoint and the topic show: while output is being written, or between exactum's decision and its
commit.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from exactum.ops.demo.broker_view import BrokerView
from exactum.ops.demo.kept_running import KeptRunning
from exactum.ops.shown_checkpoint import ShownCheckpoint

AIM_TIMEOUT_S = 8.0
WORK_TIMEOUT_S = 240.0
WATCH_INTERVAL_S = 0.05
AIM_INTERVAL_S = 0.0005
RANDOM_WAIT_MAX_S = 1.5
AIMS_MAX = 10
"""How often a kill is aimed. What would come too late lets the driver go on, but for the last."""
WRITTEN_PART = 4
"""A kill in the middle of a write waits until a quarter of a batch is written."""
WORK_BATCHES_MIN = 3
"""How many batches a driver finishes at least between two kills."""


class Aim(Enum):
    """The moment of a kill."""

    WRITING = "in the middle of a write"
    DECIDED = "between decision and commit"
    RANDOM = "at a random moment"


@dataclass(frozen=True)
class PlannedKill:
    """``due_s`` is in seconds after the chaos began; ``wait_s`` is used by a random kill only."""

    due_s: float
    aim: Aim
    wait_s: float


def plan(
    kills: int, seconds: float, aims: Sequence[Aim], seed: int, lead: float = 0.4
) -> list[PlannedKill]:
    """``kills`` kills spread over ``seconds``, with the ``aims`` in turn. The same seed gives the
    same plan.

    Each kill comes when the part ``lead`` of its share of the time is over, or up to a fifth of it
    later.
    """
    dice = random.Random(seed)
    gap = seconds / max(kills, 1)
    return [
        PlannedKill(
            due_s=(n + lead + dice.uniform(0, 0.2)) * gap,
            aim=aims[n % len(aims)],
            wait_s=dice.uniform(0, RANDOM_WAIT_MAX_S),
        )
        for n in range(kills)
    ]


class Chaos:
    """The life of one driver under chaos. ``run`` belongs to a thread of its own; the counts may be
    read by all.
    """

    def __init__(
        self,
        *,
        driver: KeptRunning,
        checkpoint: ShownCheckpoint,
        broker: BrokerView,
        topic: str,
        transactional: bool,
        kills: Sequence[PlannedKill],
        say: Callable[[str], None],
    ) -> None:
        self.kills = 0
        self.recoveries_s: tuple[float, ...] = ()
        """From each kill to the first batch that was finished after it. Replaced, never changed."""
        self.state = "waiting"
        self._finished = (-1, 0)  # a finished batch, and the topic's end then
        self._driver = driver
        self._checkpoint = checkpoint
        self._broker = broker
        self._topic = topic
        self._transactional = transactional
        self._plan = kills
        self._say = say

    @property
    def done(self) -> bool:
        """Whether all kills are made and the driver works again."""
        return self.kills == len(self._plan) and self.state == "working"

    def run(self, begin: threading.Event, stop: threading.Event) -> None:
        """Start the driver; from ``begin`` on kill and restart it as planned; then watch it until
        ``stop``.

        Raises:
            ExactumError: the driver ended by itself, or does not begin to work.
        """
        self._start(stop)
        while not begin.is_set() and not stop.wait(WATCH_INTERVAL_S):
            self._driver.check()
        begun = time.monotonic()
        for kill in self._plan:
            self._await_turn(begun + kill.due_s, stop)
            if stop.is_set():
                return
            killed_s = self._strike(kill, stop)
            if stop.is_set():
                return
            self._start(stop, killed_s)
        while not stop.wait(WATCH_INTERVAL_S):
            self._driver.check()

    def _start(self, stop: threading.Event, killed_s: float | None = None) -> None:
        """Start the driver, or what takes its place, and wait until a batch is finished."""
        began, before = time.monotonic(), self._checkpoint.last_commit()
        self._driver.start()
        self.state = "starting"
        while self._checkpoint.last_commit() == before and not stop.wait(WATCH_INTERVAL_S):
            self._driver.check()
            if time.monotonic() - began > WORK_TIMEOUT_S:
                raise self._driver.failure(f"finished no batch within {WORK_TIMEOUT_S:.0f} s")
        if stop.is_set():
            return
        if killed_s is None:
            outcome = f"works, {time.monotonic() - began:.1f} s after its start"
        else:
            took_s = time.monotonic() - killed_s
            self.recoveries_s = (*self.recoveries_s, took_s)
            outcome = f"{self._driver.comes_back}, {took_s:.1f} s after the kill"
        self.state = "working"
        self._say(f"{self._driver.name}: {outcome}")

    def _strike(self, kill: PlannedKill, stop: threading.Event) -> float | None:
        """Kill the driver at the moment that is aimed at, and return when it did its last work."""
        for left in reversed(range(AIMS_MAX)):
            aim = self._aim(kill, stop)
            if stop.is_set():
                break
            killed_s = self._kill(aim, late_too=left == 0)
            if killed_s is not None:
                return killed_s
        return None

    def _kill(self, aim: Aim, *, late_too: bool) -> float | None:
        """Kill the driver, say what that met, and return when it did its last work. None where it
        came too late and let the driver go on.
        """
        met: list[tuple[str, str, bool]] = []
        frozen_s: list[float] = []

        def frozen() -> bool:
            frozen_s.append(time.monotonic())
            met.append(self._met(aim))
            return late_too or not met[0][2]

        processes = self._driver.kill(frozen)
        if not processes:
            return None
        self.kills += 1
        self.state = "killed"
        ((moment, found, _),) = met
        self._say(f"{self._driver.name}: SIGKILL {moment}, {processes} processes, {found}")
        return frozen_s[0]

    def _met(self, aim: Aim) -> tuple[str, str, bool]:
        """What the kill meets, while the driver is frozen: the moment, what stands in the topic,
        and whether it is a few milliseconds late and meets something else than was aimed at.
        """
        if self._transactional:
            hidden = self._broker.hidden(self._topic)
            late = aim is Aim.DECIDED and not hidden
            found = f"{hidden:,} records in open transactions" if hidden else "no transaction open"
        else:
            batch, end = self._finished
            late = aim is Aim.WRITING and self._checkpoint.last_commit() > batch
            written = 0 if late else self._broker.end(self._topic) - end
            found = (
                f"{written:,} records of an unfinished batch"
                if aim is Aim.WRITING and written
                else "no record seen of an unfinished batch"
            )
        return "right after a commit" if late else aim.value, found, late

    def _await_turn(self, due: float, stop: threading.Event) -> None:
        """Wait until the kill is due, the driver has worked for a while since its last start, and
        who stands by for it is there.
        """
        enough = self._checkpoint.last_commit() + WORK_BATCHES_MIN - 1
        deadline = time.monotonic() + WORK_TIMEOUT_S
        while not stop.wait(WATCH_INTERVAL_S) and time.monotonic() < deadline:
            self._driver.check()
            if (
                time.monotonic() >= due
                and self._driver.is_ready
                and self._checkpoint.last_commit() >= enough
            ):
                return

    def _aim(self, kill: PlannedKill, stop: threading.Event) -> Aim:
        """Wait for the moment, and return which one it became: when the aimed one does not come,
        any will do.
        """
        self._driver.look()
        deadline = time.monotonic() + AIM_TIMEOUT_S
        if kill.aim is Aim.RANDOM:
            stop.wait(kill.wait_s)
            return Aim.RANDOM
        met = self._meets_write if kill.aim is Aim.WRITING else self._meets_decision
        return kill.aim if met(deadline, stop) else Aim.RANDOM

    def _meets_decision(self, deadline: float, stop: threading.Event) -> bool:
        """A record has appeared. Its content is not looked at: only a starting driver records an
        ABORT.
        """
        before = self._checkpoint.last_record()
        while time.monotonic() < deadline and not stop.wait(AIM_INTERVAL_S):
            if self._checkpoint.last_record() > before:
                return True
        return False

    def _meets_write(self, deadline: float, stop: threading.Event) -> bool:
        """The topic has grown since Spark's commit log did: a batch is being written. It is waited
        for a part of what the batch before had, or a kill would meet its first record alone.
        """
        first = batch = self._checkpoint.last_commit()
        end = self._broker.end(self._topic)
        enough = 1
        while time.monotonic() < deadline and not stop.wait(AIM_INTERVAL_S):
            now = self._broker.end(self._topic)
            if (last := self._checkpoint.last_commit()) != batch:
                # Read after the commit: its own markers are in.
                before, batch, end = end, last, self._broker.end(self._topic)
                enough = max(1, (end - before) // WRITTEN_PART)
            elif now >= end + enough and batch != first:
                self._finished = batch, end
                return True
        return False
