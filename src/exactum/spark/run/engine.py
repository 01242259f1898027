"""What a run asks of the kind of its query's session: a classic one, or Spark Connect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from exactum.spark.control.listener import ControlListener
from exactum.spark.control.stream import ControlStream
from exactum.spark.decoding.bad_records import BadRecords, CountedBadRecords
from exactum.spark.query import Run
from exactum.spark.run.attending import Attending, classic_attending
from exactum.spark.run.decided_epoch import DecidedEpochs
from exactum.spark.run.small_epoch import SmallEpochs
from exactum.spark.run.standing_epochs import StandingEpochs
from exactum.spark.write.packing import PackedWriteJob
from exactum.spark.write.write_job import WriteJob
from exactum.spark.write.write_task import WriteTask
from exactum.spark.write.writing import RowsWriting, Writing


class Engine(Protocol):
    """``Classic``, and ``connect.engine.Connect``."""

    def bad_records(self, run: Run) -> BadRecords:
        """What becomes of the bad records of its decodings."""

    def attending(self, run: Run, control: Sequence[ControlStream]) -> Attending:
        """Who serves the run. Raises as ``attending.classic_attending``."""

    def standing_epochs(
        self, run: Run, control: Sequence[ControlListener], writing: Writing
    ) -> StandingEpochs:
        """What goes on from an epoch that stands."""

    def writing(self, run: Run) -> Writing:
        """How its micro-batches are written."""


class Classic:
    """A session in this process's JVM, whose plans are at hand."""

    def bad_records(self, run: Run) -> BadRecords:
        return CountedBadRecords(run)

    def attending(self, run: Run, control: Sequence[ControlStream]) -> Attending:
        return classic_attending(run, control)

    def standing_epochs(
        self, run: Run, control: Sequence[ControlListener], writing: Writing
    ) -> StandingEpochs:
        return DecidedEpochs(run, control, writing)

    def writing(self, run: Run) -> Writing:
        return ClassicWriting(run)


class ClassicWriting(RowsWriting):
    """See ``Writing``: packed where it can be, small epochs in few tasks."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._small_epochs = SmallEpochs(run)

    def job(self, task: WriteTask) -> WriteJob:
        run = self._run
        return PackedWriteJob(task, run.session, run.execution, self._small_epochs.tasks)
