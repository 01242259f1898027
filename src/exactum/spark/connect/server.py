"""The process beside Spark's server, which calls exactum with each micro-batch: the coordinator's
side of a query over Spark Connect, on PySpark's public API alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from exactum.checkpoint.offset_log import OFFSETS, highest_batch, parse, reader
from exactum.errors import ExactumError, SettingRefused
from exactum.protocol.sink import WriteOrder
from exactum.spark.arguments import DeliverySettings
from exactum.spark.connect.decodings import DecodingPlan, PlainReads
from exactum.spark.event_log import listener
from exactum.spark.live import RunningSource
from exactum.spark.query import Batch, Run, retained_by
from exactum.spark.run.batches import Batches
from exactum.spark.run.committed_epochs import CommittedEpochs
from exactum.spark.run.epoch_gate import EpochGate
from exactum.spark.run.opening import Engine, open_run
from exactum.spark.write.failure import TaskFailed
from exactum.spark.write.write_job import FingerprintTask, WriteJob
from exactum.spark.write.write_task import WriteTask
from exactum.storage.folder import Folder

_PREPARED = "prepared string"


@dataclass
class ServerFunction:
    """A query's function for ``foreachBatch``. Pickled on the client; the server has a process of
    its own for each run, in which this is unpickled once.
    """

    settings: DeliverySettings
    checkpoint: str
    folder: Path
    sources: tuple[RunningSource, ...]
    decodings: tuple[DecodingPlan, ...]
    _batches: Batches | None = field(default=None, init=False)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """
        Raises:
            TaskFailed: an error of exactum's, as text that the client reads again.
        """
        try:
            if self._batches is None:
                self._batches = self._opened(frame, batch_id)
            self._batches(frame, batch_id)
        except ExactumError as error:
            raise TaskFailed.carrying(error) from None

    def _opened(self, frame: DataFrame, batch_id: int) -> Batches:
        run = self._run(frame, batch_id)
        tag = f"exactum-{run.run_id}"
        batches = Batches(partial(frame.sparkSession.interruptTag, tag))
        try:
            batches.open(open_run(run, frame, self.settings, connect(tag, self.decodings)))
        except BaseException as error:
            batches.refuse(error)
            raise
        return batches

    def _run(self, frame: DataFrame, batch_id: int) -> Run:
        session: Any = frame.sparkSession
        query_id = query_id_of(self.folder)
        found = next((q for q in session.streams.active if str(q.id) == query_id), None)
        if found is None:
            raise _out_of_sight(self.folder, f"it is that of query {query_id}")
        return Run(
            query_id=query_id,
            run_id=str(found.runId),
            name=found.name,
            checkpoint=self.checkpoint,
            execution_class="",  # not known here: the client has refused what is unsafe
            trigger="",
            master=str(session.conf.get("spark.master", "")),
            retained=retained_by(session),
            first_batch_id=batch_id,
            guarantee=self.settings.guarantee,
            session=session,
            emit=listener(self.settings.on_event),
            staging=self.settings.places.staging,
            live=ConnectRun(session, str(found.runId), self.folder, self.sources),
        )


def query_id_of(folder: Path) -> str:
    """
    Raises:
        SettingRefused: this process, beside Spark's server, does not see the checkpoint.
    """
    try:
        return str(json.loads((folder / "metadata").read_text())["id"])
    except (OSError, ValueError, KeyError) as error:
        raise _out_of_sight(folder, str(error)) from error


def _out_of_sight(folder: Path, why: str) -> SettingRefused:
    return SettingRefused(
        "CONNECT_CHECKPOINT",
        f"The process beside Spark's server does not find this query in {folder / 'metadata'}: "
        f"{why}. Over Spark Connect the checkpoint has to be a folder that the server and the "
        "process beside it see under this path. Nothing was written.",
    )


# ---- how it is seen, and how it writes -----------------------------------------------------------


class ConnectRun:
    """See ``live.LiveRun``. ``session`` is that of its batches, ``folder`` its checkpoint,
    ``sources`` what the client says of its sources.
    """

    def __init__(
        self, session: SparkSession, run_id: str, folder: Path, sources: Sequence[RunningSource]
    ) -> None:
        self._session: Any = session
        self._run_id = run_id
        self._files = Folder(folder)
        self._sources = sources

    def is_active(self) -> bool:
        return self._query() is not None

    def stop(self) -> None:
        query = self._query()
        if query is not None:
            query.stop()

    def fail(self, message: str) -> None:
        """It is stopped: over Spark Connect nothing but a batch's function can fail a query."""
        self.stop()

    def failure(self) -> str | None:
        """None: an ended query is not told of any more."""
        return None

    def last_progress(self) -> str | None:
        query = self._query()
        report = None if query is None else query.lastProgress
        return None if report is None else json.dumps(json.loads(report.json))

    def doing(self) -> str:
        query = self._query()
        return "" if query is None else str(query.status["message"])

    def end_offsets(self) -> None:
        """Public API knows them when the batch is over."""

    def sources(self) -> Sequence[RunningSource]:
        """None where they are not as many as Spark logs offsets of: a view has more."""
        last = highest_batch(self._files.names, OFFSETS)
        read = reader(self._files.read, self._files.where)
        text = None if last is None else read(f"offsets/{last}")
        lines = () if text is None else parse(text, self._files.where)
        return self._sources if len(lines) == len(self._sources) else ()

    def _query(self) -> Any:
        return next((q for q in self._session.streams.active if str(q.runId) == self._run_id), None)


def connect(tag: str, decodings: tuple[DecodingPlan, ...]) -> Engine:
    """Of a run over Spark Connect, where it is Spark's server that ends. ``tag`` is on all its
    jobs; ``decodings``: that want dead letters.
    """
    jobs = partial(ConnectJob, tag=tag)
    return Engine(
        gate=StopNoteGate,
        termination=lambda run: lambda: None,
        bad_records=lambda run: PlainReads(run, decodings, jobs),
        jobs=lambda run: jobs,
        committed_epochs=CommittedEpochs,
    )


class ConnectJob(WriteJob):
    """A write job whose tasks carry their order, with a ``tag``: a query that is stopped leaves it,
    for it is the worker's.
    """

    def __init__(self, task: WriteTask | FingerprintTask, tag: str) -> None:
        super().__init__(task)
        self._tag = tag

    @contextmanager
    def reading_once(self, frame: DataFrame) -> Iterator[bool]:
        """See the base class. Here nothing is counted, and no function reads a batch twice."""
        yield False

    def _texts(
        self, frame: DataFrame, order: WriteOrder | None, batch: Batch | None = None
    ) -> list[str]:
        frame.sparkSession.addTag(self._tag)  # of this thread
        task = self.task if order is None else OrderedTask(self.task, order)
        return [str(row[0]) for row in frame.mapInArrow(task, _PREPARED).collect()]


@dataclass(frozen=True)
class OrderedTask:
    """A task that knows its order: over Spark Connect no property of a job tells it."""

    task: Any
    order: WriteOrder

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        prepared: Iterator[Any] = self.task.on_behalf_of(self.order, batches)
        return prepared


# ---- a stop --------------------------------------------------------------------------------------

STOP_ASKED, STOP_ANSWERED = "spark.exactum.stop.", "spark.exactum.stopped."
"""Settings of the session, which the client and this process share, each with the id of a run: it
is to begin no further micro-batch; and it begins none, and the last one is in Spark's commit log.
"""


class StopNoteGate(EpochGate):
    """The gate that the client shuts by a note in the session's settings: it is another process."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._session = run.session

    def begin(self, batch: Batch) -> None:
        if self._session.conf.get(f"{STOP_ASKED}{self._run.run_id}", "") == "true":
            self.shut()
            self._session.conf.set(f"{STOP_ANSWERED}{self._run.run_id}", "true")
        super().begin(batch)
