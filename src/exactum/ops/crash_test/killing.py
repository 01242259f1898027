"""The moments at which a driver is killed, and the watch for them: by what its checkpoint and its
output topic show to somebody outside.

A kill at random nearly never meets the moments at which output and position disagree. So most wait
until the one or the other has just moved.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from exactum.checkpoint.layout import DECISIONS
from exactum.checkpoint.offset_log import (
    COMMITS,
    OFFSETS,
    Offsets,
    from_json,
    highest_batch,
    parse,
    reader,
)
from exactum.files.slot_log import slot_name, slots
from exactum.storage.folder import Folder

SIGHTINGS_MAX = 3
WAIT_MAX_S = 1.5
START_POLL_S = 0.01
WORK_POLL_S = 0.0005
BATCH_GUESS_S = 0.1
"""How long a micro-batch is taken to last before one was seen whole."""


class KillMoment(Enum):
    """What a kill waits for."""

    OUTPUT = "right after the output grew"
    BATCH = "in the middle of a micro-batch"
    DECIDED = "between decision and commit"
    DONE = "right after a micro-batch was done"
    RANDOM = "at a random moment"


@dataclass(frozen=True)
class PlannedKill:
    """One kill.

    Attributes:
        moment: what it waits for.
        sighting: at which sight of it in this life it strikes; from 1.
        part: the part of a micro-batch that is over when it strikes: of the time that one takes,
            or of what one writes.
        wait_s: from the first sign of work to a kill at a random moment.
    """

    moment: KillMoment
    sighting: int = 1
    part: float = 0.0
    wait_s: float = 0.0


def plan_kills(kills: int, seed: int, moments: Sequence[KillMoment]) -> list[PlannedKill]:
    """``kills`` kills, at all ``moments`` in turn, each turn in an order of its own. The same seed
    gives the same plan.
    """
    dice = random.Random(seed)
    turns: list[KillMoment] = []
    while len(turns) < kills:
        turns += dice.sample(list(moments), len(moments))
    return [_planned(moment, dice) for moment in turns[:kills]]


def _planned(moment: KillMoment, dice: random.Random) -> PlannedKill:
    sighting, part = dice.randint(1, SIGHTINGS_MAX), dice.random()
    wait_s = dice.uniform(0, WAIT_MAX_S)
    return PlannedKill(moment, sighting, part if moment is KillMoment.BATCH else 0.0, wait_s)


@dataclass(frozen=True)
class JobProgress:
    """How far a query is: the last micro-batches done and planned, the newest decision record, and
    the end of its output topic, which is read after what is done: so all that a batch wrote is in.
    """

    done: int
    planned: int
    decided: str
    output: int

    def shows(self, moment: KillMoment, before: JobProgress) -> bool:
        """Whether the moment was met since ``before``. A record's content is not read: only a
        driver that starts records an ABORT.
        """
        return {
            KillMoment.OUTPUT: self.output != before.output,
            KillMoment.BATCH: self.planned != before.planned,
            KillMoment.DECIDED: self.decided > before.decided,
            KillMoment.DONE: self.done != before.done,
            KillMoment.RANDOM: False,
        }[moment]


class Shown:
    """What a query shows of itself: a checkpoint of Spark, with exactum's decision log in it if it
    is exactum's, and by ``output_end`` how much stands in its output. Threads may share it.
    """

    def __init__(self, checkpoint: Path, output_end: Callable[[], int]) -> None:
        self.checkpoint = checkpoint
        self._output_end = output_end

    def done(self) -> int:
        """The last batch that Spark's own commit log calls done; -1 before the first."""
        return self._last(COMMITS)

    def progress(self) -> JobProgress:
        """How far it is now. The decision log comes last: between decision and commit there are
        milliseconds.
        """
        done, planned, output = self.done(), self._last(OFFSETS), self._output_end()
        decided = max(_records(self.checkpoint / DECISIONS), default="")
        return JobProgress(done, planned, decided, output)

    def read_up_to(self) -> Offsets:
        """The end of the last batch that is done, of all partitions of all Kafka sources. Empty
        before the first, and where Spark removes its files while they are read.
        """
        read = reader(Folder(self.checkpoint).read, str(self.checkpoint))
        text = read(f"offsets/{self.done()}")
        ends = () if text is None else parse(text, f"{self.checkpoint}/offsets")
        return {at: offset for end in ends for at, offset in from_json(end).items()}

    def _last(self, log: str) -> int:
        last = highest_batch(Folder(self.checkpoint).names, log)
        return -1 if last is None else last


def _records(decisions: Path) -> Iterator[str]:
    try:
        names = os.listdir(decisions)
    except FileNotFoundError:
        return iter(())
    return (slot_name(*slot) for slot in slots(names))


class Killing:
    """Watches one driver for the moments of its kills. For one thread.

    Args:
        shown: what it shows.
        is_over: whether nobody waits any more: it has ended, or is to be left alone. May raise
            what the driver has ended with.
        quiet_s: a driver between micro-batches, at which nothing moves for so long, has nothing
            to do.
        batch_timeout_s: how long a micro-batch may run without a sign before it is killed anyway.
        feed: gives a driver that has nothing to do more input; False: there is none.
    """

    def __init__(
        self,
        shown: Shown,
        is_over: Callable[[], bool],
        *,
        quiet_s: float,
        batch_timeout_s: float,
        feed: Callable[[], bool] = lambda: False,
    ) -> None:
        self.pace = Pace()
        self._shown = shown
        self._is_over = is_over
        self._quiet_s, self._batch_timeout_s = quiet_s, batch_timeout_s
        self._feed = feed

    def works(self, before: JobProgress, timeout_s: float) -> bool | None:
        """Wait for a sign of work since ``before``. False: it is over. None: not within
        ``timeout_s``.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            if self._shown.progress() != before:
                return True
            if self._is_over():
                return False
            if time.monotonic() > deadline:
                return None
            time.sleep(START_POLL_S)

    def met(self, kill: PlannedKill) -> KillMoment | None:
        """Wait for the moment of the kill. Any will do where the driver has nothing to do, or shows
        no sign. None: it is over.
        """
        begun_s = moved_s = time.monotonic()
        last, seen = self._shown.progress(), 0
        while not self._is_over():
            now, now_s = self._shown.progress(), time.monotonic()
            self.pace.note(now, now_s)
            if now != last:
                seen += now.shows(kill.moment, last)
                last, moved_s = now, now_s
            if kill.moment is KillMoment.RANDOM and now_s > begun_s + kill.wait_s:
                return kill.moment
            if seen >= kill.sighting and self.pace.is_past(kill, now, now_s):
                return kill.moment
            runs = now.planned > now.done
            if now_s > moved_s + (self._batch_timeout_s if runs else self._quiet_s):
                if runs or not self._feed():
                    return KillMoment.RANDOM
                moved_s = now_s
            time.sleep(WORK_POLL_S)
        return None


class Pace:
    """How long a micro-batch takes and how much it writes, learnt from those that were seen.

    ``done`` is the last one that was seen to be done, ``end`` that of the output then.
    """

    def __init__(self) -> None:
        self.done, self.end = -1, 0
        self._planned = -1
        self._began_s = 0.0
        self._took_s: float | None = None
        self._wrote: int | None = None

    def note(self, now: JobProgress, now_s: float) -> None:
        if now.planned != self._planned:
            self._planned, self._began_s = now.planned, now_s
        if now.done != self.done:
            # Of one that was not seen from its begin it is not known.
            self._wrote = now.output - self.end if now.done == self.done + 1 else None
            self.done, self.end = now.done, now.output
            if now.done == now.planned and self._began_s:
                self._took_s = now_s - self._began_s

    def is_past(self, kill: PlannedKill, now: JobProgress, now_s: float) -> bool:
        """Whether a micro-batch runs, and its part of the time is over, or of what one writes."""
        if kill.moment is KillMoment.OUTPUT and kill.part:
            enough = None if self._wrote is None else max(1, int(kill.part * self._wrote))
            return enough is not None and now.output >= self.end + enough
        if kill.moment is not KillMoment.BATCH:
            return True
        runs = self._planned > self.done
        return runs and now_s >= self._began_s + kill.part * (self._took_s or BATCH_GUESS_S)
