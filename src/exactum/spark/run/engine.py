"""What a run asks of the kind of its query's session: a classic one, or Spark Connect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pyspark.sql import DataFrame

from exactum.spark.control.listener import ControlListener
from exactum.spark.control.stream import ControlStream
from exactum.spark.epoch_listener import EpochListener
from exactum.spark.jvm.collecting import Tasks
from exactum.spark.run.decided_epoch import DecidedEpochs
from exactum.spark.run.epoch_listeners import listeners
from exactum.spark.run.small_epoch import SmallEpochs
from exactum.spark.run.standing_epochs import StandingEpochs
from exactum.spark.run_context import RunContext
from exactum.spark.write.packing import PackedFrame, Packing
from exactum.spark.write.writing import RowsWriting, Writing


class Engine(Protocol):
    """``Classic``, and ``connect.engine.Connect``."""

    def listeners(
        self, context: RunContext, control: Sequence[ControlStream]
    ) -> list[EpochListener]:
        """Who listens to the run, in the order in which they are called; an ``EpochGate`` is among
        them. Raises as ``epoch_listeners.listeners``.
        """

    def standing_epochs(
        self, context: RunContext, control: Sequence[ControlListener]
    ) -> StandingEpochs:
        """What goes on from an epoch that stands."""

    def writing(self, context: RunContext) -> Writing:
        """How its micro-batches are written."""


class Classic:
    """A session in this process's JVM, whose plans are at hand."""

    def listeners(
        self, context: RunContext, control: Sequence[ControlStream]
    ) -> list[EpochListener]:
        return listeners(context, control)

    def standing_epochs(
        self, context: RunContext, control: Sequence[ControlListener]
    ) -> StandingEpochs:
        return DecidedEpochs(context, control)

    def writing(self, context: RunContext) -> Writing:
        return ClassicWriting(context)


class ClassicWriting(RowsWriting):
    """See ``Writing``: packed where it can be, small epochs in few tasks, several views in one."""

    def __init__(self, context: RunContext) -> None:
        self._packing = Packing(context.session, context.query.execution)
        self._small_epochs = SmallEpochs(context.query)

    def packed(self, frame: DataFrame) -> PackedFrame | None:
        return self._packing.of(frame)

    def tasks(self, frame: DataFrame, sizes: Sequence[int] | None, *, first: bool) -> Tasks:
        return self._small_epochs.tasks(frame, sizes, first=first)
