"""Kills a job as planned. Each life gets a part of the input, so that every kill meets work."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections import deque
from collections.abc import Iterator, Sequence

from exactum.ops.crash_test.job import Job, JobProgress
from exactum.ops.crash_test.plan import CrashMoment, PlannedCrash
from exactum.ops.crash_test.topics import LocalTopics
from exactum.testing.crash_verdict import OutputRecord

SLICES = 6
"""Parts of the input for each kill: a job that has nothing to do is given the next one."""
QUIET_S = 0.5
"""A job between micro-batches, at which nothing moves for so long, has nothing to do."""
BATCH_TIMEOUT_S = 60.0
"""How long a micro-batch may run without a sign before it is killed anyway."""
START_TIMEOUT_S = 120.0
START_POLL_S = 0.01
WORK_POLL_S = 0.001
BATCH_GUESS_S = 0.1
"""How long a micro-batch is taken to last before one was seen whole."""


class Killing:
    """The killed run, from the first start until all kills are made and all input is given.

    Args:
        job: the run.
        topics: of the cluster.
        records: the input.
        plan: of the kills, at least one.
    """

    def __init__(
        self,
        job: Job,
        topics: LocalTopics,
        records: Sequence[OutputRecord],
        plan: Sequence[PlannedCrash],
    ) -> None:
        self.kills: list[str] = []
        self._job = job
        self._topics = topics
        self._plan = plan
        self._pace = _Pace()
        self._slices = deque(_sliced(records, SLICES * (len(plan) + 1)))

    def run(self) -> None:
        """Make all kills, give what is left of the input, and start the job once more.

        Raises:
            ExactumError: the job fails by itself, does not begin to work, or ends before a kill.
        """
        for number, crash in enumerate(self._plan, 1):
            # what is kept for the later kills and for the end
            self._kill(crash, number, spare=SLICES * (len(self._plan) + 1 - number))
        rest = [record for part in self._slices for record in part]
        self._topics.produce(self._job.run.input, rest)
        self._job.start()

    def _kill(self, crash: PlannedCrash, number: int, spare: int) -> None:
        self._feed()
        while (met := self._life(crash, spare)) is None:
            if len(self._slices) <= spare:
                raise self._job.failure(
                    f"ended by itself before kill {number} of {len(self._plan)}. A test that kills "
                    "nothing shows nothing: give it more records, or smaller micro-batches "
                    "(maxOffsetsPerTrigger)"
                )
            # Its lives are brief: take the first that comes.
            crash = dataclasses.replace(crash, sighting=1, wait_s=0.0)
            self._feed()
        self.kills.append(f"{met.value}, in life {self._job.starts}")

    def _feed(self) -> None:
        self._topics.produce(self._job.run.input, self._slices.popleft())

    def _life(self, crash: PlannedCrash, spare: int) -> CrashMoment | None:
        """Start the job and kill it. None if it has ended by itself before."""
        before = self._job.progress()
        self._job.start()
        met = self._moment(crash, spare) if self._works(before) else None
        self._job.kill()
        return met

    def _works(self, before: JobProgress) -> bool:
        """Wait for the first sign of work. False if the job has ended without one."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while self._job.progress() == before:
            if self._job.is_done():
                return False
            if time.monotonic() > deadline:
                raise self._job.failure(
                    f"did no work within {START_TIMEOUT_S:.0f} s of its start: neither its output "
                    "nor its checkpoint moved. Does the script write to run.output, and keep its "
                    "checkpoint at run.checkpoint?"
                )
            time.sleep(START_POLL_S)
        self._job.look()
        return True

    def _moment(self, crash: PlannedCrash, spare: int) -> CrashMoment | None:
        """Wait for the moment of the kill. Any will do where the job has done all there is to do.
        None if it has ended.
        """
        moment = crash.moment
        begun_s = moved_s = time.monotonic()
        last, seen = self._job.progress(), 0
        while not self._job.is_done():
            now, now_s = self._job.progress(), time.monotonic()
            self._pace.note(now, now_s)
            if now != last:
                seen += _shows(moment, last, now)
                last, moved_s = now, now_s
            if moment is CrashMoment.RANDOM and now_s > begun_s + crash.wait_s:
                return moment
            if seen >= crash.sighting and (
                moment is not CrashMoment.BATCH or self._pace.is_past(crash.part, now_s)
            ):
                return moment
            runs = now.planned > now.done
            if now_s > moved_s + (BATCH_TIMEOUT_S if runs else QUIET_S):
                if runs or len(self._slices) <= spare:
                    return CrashMoment.RANDOM
                self._feed()
                moved_s = now_s
            time.sleep(WORK_POLL_S)
        return None


class _Pace:
    """How long a micro-batch takes, learnt from those that were seen."""

    def __init__(self) -> None:
        self._planned, self._done = -1, -1
        self._began_s = 0.0
        self._took_s: float | None = None

    def note(self, now: JobProgress, now_s: float) -> None:
        if now.planned != self._planned:
            self._planned, self._began_s = now.planned, now_s
        if now.done != self._done:
            self._done = now.done
            if now.done == now.planned and self._began_s:
                self._took_s = now_s - self._began_s

    def is_past(self, part: float, now_s: float) -> bool:
        """Whether a micro-batch runs, and this part of it is over."""
        runs = self._planned > self._done
        return runs and now_s >= self._began_s + part * (self._took_s or BATCH_GUESS_S)


def _shows(moment: CrashMoment, last: JobProgress, now: JobProgress) -> bool:
    return {
        CrashMoment.OUTPUT: now.output != last.output,
        CrashMoment.BATCH: now.planned != last.planned,
        CrashMoment.DONE: now.done != last.done,
        CrashMoment.RANDOM: False,
    }[moment]


def _sliced(records: Sequence[OutputRecord], number: int) -> Iterator[Sequence[OutputRecord]]:
    ends = [len(records) * part // number for part in range(number + 1)]
    yield from (records[start:end] for start, end in itertools.pairwise(ends))
