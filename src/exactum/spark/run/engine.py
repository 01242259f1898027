"""What a run asks of the kind of its query's session: a classic one, or Spark Connect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pyspark.sql import DataFrame

from exactum.spark.control.listener import ControlListener
from exactum.spark.control.stream import ControlStream
from exactum.spark.jvm.collecting import Tasks
from exactum.spark.query import Run
from exactum.spark.run.attending import Attending, classic_attending
from exactum.spark.run.decided_epoch import DecidedEpochs
from exactum.spark.run.small_epoch import SmallEpochs
from exactum.spark.run.standing_epochs import StandingEpochs
from exactum.spark.write.packing import PackedFrame, Packing
from exactum.spark.write.writing import RowsWriting, Writing


class Engine(Protocol):
    """``Classic``, and ``connect.engine.Connect``."""

    def attending(self, run: Run, control: Sequence[ControlStream]) -> Attending:
        """Who serves the run. Raises as ``attending.classic_attending``."""

    def standing_epochs(self, run: Run, control: Sequence[ControlListener]) -> StandingEpochs:
        """What goes on from an epoch that stands."""

    def writing(self, run: Run) -> Writing:
        """How its micro-batches are written."""


class Classic:
    """A session in this process's JVM, whose plans are at hand."""

    def attending(self, run: Run, control: Sequence[ControlStream]) -> Attending:
        return classic_attending(run, control)

    def standing_epochs(self, run: Run, control: Sequence[ControlListener]) -> StandingEpochs:
        return DecidedEpochs(run, control)

    def writing(self, run: Run) -> Writing:
        return ClassicWriting(run)


class ClassicWriting(RowsWriting):
    """See ``Writing``: packed where it can be, small epochs in few tasks, several views in one."""

    def __init__(self, run: Run) -> None:
        self._packing = Packing(run.session, run.execution)
        self._small_epochs = SmallEpochs(run)

    def packed(self, frame: DataFrame) -> PackedFrame | None:
        return self._packing.of(frame)

    def tasks(self, frame: DataFrame, sizes: Sequence[int] | None, *, first: bool) -> Tasks:
        return self._small_epochs.tasks(frame, sizes, first=first)
