"""Spark's files of a checkpoint; what a driver plans where others plan a batch otherwise.

Spark looks whether its file is there, and then names its own: the file may be that of the last one.
What is written is what the driver itself has planned; what is recorded is what the file says. Two
comparisons of ``spark.run`` belong to that. They cannot be had without Spark, so they are here once
more: of the file with the plan, and at the start of the file of the batch before with its record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from exactum.checkpoint.offset_log import source_offsets
from exactum.errors import EpochAborted
from exactum.protocol.decision_log import DecisionLog
from exactum.protocol.ends import Noted, recent
from exactum.protocol.model import SourceOffsets
from exactum.protocol.resolve import commits_in_force, refuse_other_offsets
from exactum.testing.faults import Around
from exactum.testing.sink_place import SparkStopped
from model.memory import Row

WIDTHS = 3
"""Of so many incarnations with letters in a row each plans another end."""


@dataclass
class SparkCheckpoint:
    """Spark's offset log, with the end of each batch, and commit log: create-if-absent, and the
    restart rule.
    """

    offsets: dict[int, int] = field(default_factory=dict)
    commits: dict[int, int] = field(default_factory=dict)
    replaced: int = 0

    def first_batch(self) -> int:
        latest = max(self.offsets, default=-1)
        return latest + 1 if latest == -1 or latest in self.commits else latest

    @staticmethod
    def look(log: dict[int, int], batch_id: int) -> None:
        if batch_id in log:
            raise SparkStopped(f"batch {batch_id} is there already")

    def add(self, log: dict[int, int], batch_id: int) -> None:
        self.look(log, batch_id)
        log[batch_id] = 0

    def name(self, batch_id: int, end: int) -> None:
        """Where storage lets a rename replace a file."""
        self.replaced += self.offsets.get(batch_id, end) != end
        self.offsets[batch_id] = end

    def read(self, file: str) -> str | None:
        """What ``offsets/N`` says of the one source."""
        end = self.offsets.get(int(file.removeprefix("offsets/")))
        return None if end is None else f"v1\n{{}}\n{end}"


class PlansApart:
    """Of one driver. The source has a row at each offset."""

    def __init__(
        self, checkpoint: SparkCheckpoint, tasks: int, letter: str, around: Around
    ) -> None:
        self._checkpoint = checkpoint
        self._tasks = tasks
        self._takes = tasks + ord(letter) % WIDTHS
        self._around = around
        self._start = self._end = 0
        self._found: int | None = None
        self._recorded: SourceOffsets | None = None

    def begin(self, batch_id: int, log: DecisionLog) -> None:
        """In the step in which Spark looks where to go on."""
        self._end = self._checkpoint.offsets.get(batch_id - 1, 0)
        self._found = self._checkpoint.offsets.get(batch_id)
        log.read(batch_id)
        self._refuse_replaced(batch_id, log)

    def plan(self, batch_id: int) -> SourceOffsets:
        """Plan the batch, or take what ``begin`` found; returns what is recorded of it.

        Raises:
            SparkStopped: another driver's file is there.
            EpochAborted: another driver's file has replaced it.
        """
        found, self._found = self._found, None
        self._start, self._end = self._end, found or self._end + self._takes
        checkpoint = self._checkpoint
        if found is None:
            self._around("look for offsets", lambda: checkpoint.look(checkpoint.offsets, batch_id))
            self._around("name offsets", lambda: checkpoint.name(batch_id, self._end))
        says = partial(source_offsets, checkpoint.read, batch_id, "memory", self._recorded)
        self._recorded = cast(SourceOffsets, self._around("read offsets", says))
        self._refuse_other_plan(self._recorded)
        return self._recorded

    def rows(self, batch_id: int, task: int) -> Sequence[Row]:
        """What a task reads of the batch that was planned last."""
        return [f"offset {at}" for at in range(self._start + task, self._end, self._tasks)]

    def _refuse_replaced(self, batch_id: int, log: DecisionLog) -> None:
        for record in commits_in_force(recent(log, batch_id, Noted(first=0), batches=1)):
            found = source_offsets(self._checkpoint.read, batch_id - 1, "memory")
            refuse_other_offsets(record, found)

    def _refuse_other_plan(self, found: SourceOffsets) -> None:
        if found.end != (str(self._end),):
            raise EpochAborted(f"Planned up to {self._end}, and the file says {found.end}.")


MakePlans = Callable[[SparkCheckpoint, int, str, Around], PlansApart]
