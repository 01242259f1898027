"""Jobs whose tasks keep their partitions: each lane has workers of its own, told apart from those
of other lanes by their environment, so what a worker has read ahead is what it is asked for next.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from zlib import crc32

from pyspark.sql import SparkSession

from exactum.spark.jvm.packed_job import PackedJob
from exactum.spark.write.lane_task import LaneTask, Share, share_text

VARIABLE = "EXACTUM_LANE"
"""Spark gives a task to any idle worker with the same environment."""


def lane_of(topic: str, partition: int, lanes: int) -> int:
    """The same in every micro-batch; a topic's partitions are spread evenly."""
    return (crc32(topic.encode()) + partition) % lanes


class LaneJobs:
    """The jobs of one task; a lane is made when it is first given something to read.

    ``numbers``: of the lanes, which no other query uses at the same time.
    """

    def __init__(self, session: SparkSession, task: LaneTask, numbers: Sequence[int]) -> None:
        self._session = session
        self._task = task
        self._numbers = tuple(numbers)
        self._lanes: dict[int, PackedJob] = {}

    def texts(self, shares: Mapping[int, list[Share]]) -> list[str]:
        """What the tasks return, one for each lane. ``shares``: by the lane's place, at least one.

        Raises:
            Exception: as ``PackedJob.texts``.
        """
        jobs = [(self._lane(place), share_text(share)) for place, share in sorted(shares.items())]
        given = [(job, job.given(text)) for job, text in jobs]
        (first, arrays), *others = given
        return first.collected(arrays, *others)

    def _lane(self, place: int) -> PackedJob:
        if place not in self._lanes:
            variables = {VARIABLE: str(self._numbers[place])}
            self._lanes[place] = PackedJob(self._session, self._task, variables)
        return self._lanes[place]


class LaneNumbers:
    """Which lanes are free. Spark keeps the workers of a number, so numbers are used again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: set[int] = set()

    def take(self, count: int) -> tuple[int, ...]:
        """The lowest that are free."""
        with self._lock:
            free = (number for number in range(len(self._taken) + count))
            found = tuple(number for number in free if number not in self._taken)[:count]
            self._taken.update(found)
            return found

    def give_back(self, numbers: Sequence[int]) -> None:
        """Idempotent."""
        with self._lock:
            self._taken.difference_update(numbers)


lane_numbers = LaneNumbers()
"""Of this process."""
