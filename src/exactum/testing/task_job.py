"""The coordinator's ``write`` port over real writers: the tasks of a write job, run as Spark would
run them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, cast

from exactum.errors import EpochAborted, ExactumError
from exactum.protocol.model import PreparedTransaction
from exactum.protocol.sink import TaskName, WriteOrder, Writer, WriterFactory
from exactum.testing.faults import Around, Crash, interpose, straight

Partition = Sequence[Any]
"""The Arrow record batches of one task."""


class TaskJob:
    """One task for each partition, one after another, each of up to ``tries_max`` tries.

    Args:
        writers: the sink's factory.
        partitions: what each task writes. One without rows opens no writer, as in Spark.
        around: every call of every writer goes through it, until the first task has died.
        tries_max: more than 1: a task that fails or dies is tried again, as Spark does.
        losers: before its winning try the first task runs twice for nothing: one copy is prepared
            and never told of (speculation), one is killed half-way.
        kill: called with the writer of a task that has died, to let go of what the system would
            take back.
    """

    def __init__(
        self,
        writers: WriterFactory,
        partitions: Sequence[Partition],
        *,
        around: Around = straight,
        tries_max: int = 1,
        losers: bool = False,
        kill: Callable[[Writer], None] = lambda writer: None,
    ) -> None:
        self._writers = writers
        self._partitions = [
            [batch for batch in partition if batch.num_rows] for partition in partitions
        ]
        self._around = around
        self._tries_max = tries_max
        self._losers = losers
        self._kill = kill

    def __call__(self, order: WriteOrder) -> Sequence[PreparedTransaction]:
        """
        Raises:
            ExactumError: a task failed as often as it may.
        """
        prepared: list[PreparedTransaction | None] = []
        for partition_id, batches in enumerate(self._partitions):
            if not batches:
                continue
            if self._losers and partition_id == 0:
                self._try(order, TaskName(partition_id, 100, 0), batches)
                self._die_half_way(order, TaskName(partition_id, 101, 0), batches)
            prepared.append(self._task(order, partition_id, batches))
        return tuple(p for p in prepared if p is not None)

    def _task(
        self, order: WriteOrder, partition_id: int, batches: Partition
    ) -> PreparedTransaction | None:
        for attempt in range(self._tries_max - 1):
            try:
                return self._try(order, TaskName(partition_id, attempt, 0), batches)
            except (Crash, ExactumError):
                self._around = straight
        return self._try(order, TaskName(partition_id, self._tries_max - 1, 0), batches)

    def _try(
        self, order: WriteOrder, task: TaskName, batches: Partition
    ) -> PreparedTransaction | None:
        """One try, with the clean-up of ``spark.write_task``: an error aborts, death does not."""
        writer: Writer | None = None
        opened: list[Writer] = []

        def open_writer() -> Writer:
            opened.append(self._writers.open(order, task))
            return opened[-1]

        try:
            writer = interpose(
                cast(Writer, self._around("open a writer", open_writer)), self._around
            )
            for batch in batches:
                writer.write(batch)
            return writer.prepare()
        except Exception as error:
            if writer is not None:
                with contextlib.suppress(Exception):  # it would be left to the driver
                    writer.abort()
            else:
                self._kill_all(opened)
            if isinstance(error, ExactumError):
                raise
            raise EpochAborted(f"Task {task} failed: {type(error).__name__}: {error}") from error
        except Crash:
            self._kill_all(opened)
            raise

    def _kill_all(self, opened: Sequence[Writer]) -> None:
        for writer in opened:
            self._kill(writer)

    def _die_half_way(self, order: WriteOrder, task: TaskName, batches: Partition) -> None:
        writer = self._writers.open(order, task)
        writer.write(batches[0])
        self._kill(writer)
