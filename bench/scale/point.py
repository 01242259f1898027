"""A point that is measured: so many partitions, in the tasks that exactum chooses or in those that
Spark plans; and what was seen of each of its micro-batches.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.load import Load

RECORDS = 4
"""Of each partition in a micro-batch: few, so that the fixed costs show."""
RECORD_BYTES = 100


@dataclass(frozen=True)
class Point:
    """``planned``: every task that Spark plans is kept, one for a partition, as in a large
    micro-batch. ``batches`` are run, of which the first ``skipped`` do not count.
    """

    partitions: int
    planned: bool
    batches: int
    skipped: int

    @property
    def load(self) -> Load:
        """What the micro-batches read together."""
        return Load(self.partitions * RECORDS * self.batches, RECORD_BYTES)

    @property
    def way(self) -> str:
        return "as Spark plans" if self.planned else "as exactum chooses"


@dataclass(frozen=True)
class BatchSeen:
    """One micro-batch, in ms. ``with_tasks_ms``: how long at least one task was running;
    ``task_ms``: the mean of its tasks, from launch to end. ``phases`` are exactum's, ``spark``
    Spark's ``durationMs``.
    """

    duration_ms: float
    with_tasks_ms: float
    tasks: int
    task_ms: float
    phases: dict[str, float]
    spark: dict[str, float]

    @property
    def driver_ms(self) -> float:
        """What passed while no task was running."""
        return self.duration_ms - self.with_tasks_ms
