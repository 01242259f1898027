"""How a run over Spark Connect writes, listens and goes on: by PySpark's public API alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from exactum.protocol.sink import WriteOrder
from exactum.spark.connect import stop_note
from exactum.spark.connect.decodings import DecodingPlan, PlainReads
from exactum.spark.control.listener import ControlListener
from exactum.spark.control.stream import ControlStream
from exactum.spark.decoding.bad_records import BadRecords
from exactum.spark.epoch_listener import Batch
from exactum.spark.query import Run
from exactum.spark.run.attending import Attending, stop_requests, watch_topics
from exactum.spark.run.epoch_gate import EpochGate
from exactum.spark.run.progress import ProgressReports
from exactum.spark.run.standing_epochs import StandingEpochs
from exactum.spark.write.fingerprint import Fingerprint
from exactum.spark.write.write_job import FingerprintTask, Fresh, WriteJob, whole
from exactum.spark.write.write_task import WriteTask
from exactum.spark.write.writing import RowsWriting, Writing

_PREPARED = "prepared string"


class Connect:
    """See ``run.engine.Engine``. ``tag`` is on all jobs of the run; ``decodings``: that want dead
    letters.
    """

    def __init__(self, tag: str, decodings: tuple[DecodingPlan, ...]) -> None:
        self._tag = tag
        self._decodings = decodings

    def bad_records(self, run: Run) -> BadRecords:
        return PlainReads(run, self._decodings, self.writing(run))

    def attending(self, run: Run, control: Sequence[ControlStream]) -> Attending:
        found = Attending(StopNoteGate(run))
        stop_requests(run, found)
        watch_topics(run, found)
        found.duties.append(ProgressReports(run))
        return found

    def standing_epochs(
        self, run: Run, control: Sequence[ControlListener], writing: Writing
    ) -> StandingEpochs:
        return StandingEpochs(run, control, writing)

    def writing(self, run: Run) -> Writing:
        return ConnectWriting(self._tag)

    def interrupt(self, session: SparkSession) -> None:
        """Cancel the run's jobs. A query that is stopped leaves them: they are the worker's."""
        session.interruptTag(self._tag)


class StopNoteGate(EpochGate):
    """The gate that the client shuts by a note in the session's settings: it is another process."""

    def __init__(self, run: Run) -> None:
        super().__init__(run, threading.Event())
        self._session = run.session

    def begin(self, batch: Batch) -> None:
        if stop_note.is_left(self._session, self._run.run_id):
            self.shut()
            stop_note.answer(self._session, self._run.run_id)
        super().begin(batch)


class ConnectWriting(RowsWriting):
    """See ``Writing``."""

    def __init__(self, tag: str) -> None:
        self._tag = tag

    def fingerprint(self, frame: DataFrame) -> Fingerprint:
        return whole(_texts(frame, FingerprintTask()))

    def job(self, task: WriteTask) -> WriteJob:
        return ConnectJob(task, self._tag)


class ConnectJob(WriteJob):
    """A write job whose tasks carry their order."""

    def __init__(self, task: WriteTask, tag: str) -> None:
        super().__init__(task)
        self._tag = tag

    def _texts(self, frame: DataFrame, order: WriteOrder, fresh: Fresh | None) -> list[str]:
        frame.sparkSession.addTag(self._tag)  # of this thread
        return _texts(frame, OrderedTask(self.task, order))


@dataclass(frozen=True)
class OrderedTask:
    """A task that knows its order: over Spark Connect no property of a job tells it."""

    task: WriteTask
    order: WriteOrder

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        return self.task.on_behalf_of(self.order, batches)


def _texts(frame: DataFrame, task: Any) -> list[str]:
    return [str(row[0]) for row in frame.mapInArrow(task, _PREPARED).collect()]
