"""One run of one streaming query: who it is, and who attends its micro-batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exactum.checkpoint import offset_log
from exactum.checkpoint.layout import QUERY
from exactum.checkpoint.query_place import files_of, staging_at
from exactum.checkpoint.query_record import RecordFile
from exactum.errors import ExactumError, InvariantBroken
from exactum.events import Listener
from exactum.protocol.model import Completed, Incarnation, SourceOffsets, new_incarnation
from exactum.protocol.sink import Guarantee, QueryRun
from exactum.spark.jvm.execution import Execution
from exactum.spark.jvm.hadoop import HadoopFiles
from exactum.spark.jvm.java_class import JvmError
from exactum.spark.live import LiveRun, RunningSource, SourceRange
from exactum.storage.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RETAINED = "spark.sql.streaming.minBatchesToRetain"
RETAINED_DEFAULT = "100"
ENDING_TRIGGERS = ("AvailableNow", "OneTime")
"""How Spark's names of triggers begin with which a query ends when it has read what is there."""
STOP_TIMEOUT_S = 10.0
STOP_POLL_S = 0.02
QUERY_AT_HAND = "sql.streaming.queryId"
"""A local property of Spark's in the thread of a micro-batch."""
HADOOP = "spark.hadoop."
"""Begins the settings of a session that are Hadoop's."""


@dataclass(frozen=True)
class Run:
    """One run of one streaming query: its identity, and whom to tell.

    ``session`` is that of its batches, ``checkpoint`` the resolved root as Spark prints it (a URI),
    ``retained`` how many batches Spark's own logs keep, ``first_batch_id`` the batch that it begins
    with, ``staging`` what the user gave, ``hadoop`` how the session reaches file systems (it may
    hold secrets). ``emit`` takes its events. ``by_user``: its batches come through a function of
    the user's. ``at_stops`` is set once all its sources have a stop and are read up to it.
    """

    query_id: str
    run_id: str
    name: str | None
    checkpoint: str
    execution_class: str
    trigger: str
    master: str
    retained: int
    first_batch_id: int
    guarantee: Guarantee
    session: SparkSession = field(repr=False, compare=False)
    live: LiveRun = field(repr=False, compare=False)
    emit: Listener = field(repr=False, compare=False)
    staging: str | Path | None = None
    hadoop: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    by_user: bool = False
    at_stops: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)

    @cached_property
    def number(self) -> int:
        """Which run of the checkpoint it is. Raises as ``record``."""
        return self.record.content.runs + 1

    @cached_property
    def incarnation(self) -> Incarnation:
        return new_incarnation(self.number)

    @cached_property
    def identity(self) -> QueryRun:
        """What names all that is opened on its behalf, in records and transactions.

        Raises:
            SettingRefused: ``staging`` is no place for rows.
        """
        where = staging_at(self, self.staging)
        return QueryRun(self.query_id, self.incarnation, self.guarantee, where, self.number)

    @cached_property
    def files(self) -> Storage | None:
        """Its checkpoint; None where Hadoop's file systems alone get there. Raises as
        ``files_of``.
        """
        return files_of(self.checkpoint, self.hadoop)

    @cached_property
    def read(self) -> offset_log.ReadText:
        """Reads below the checkpoint, wherever it lies."""
        return offset_log.reader(self._small_files.read, self.checkpoint)

    @cached_property
    def _small_files(self) -> Storage | HadoopFiles:
        return self.files or HadoopFiles(self.session, self.checkpoint)

    @cached_property
    def record(self) -> RecordFile:
        """What the query leaves for its next start. Raises as ``RecordFile``."""
        return RecordFile(self._small_files.below(QUERY), self.query_id)

    @cached_property
    def sources(self) -> Sequence[RunningSource]:
        """See ``LiveRun.sources``: Spark has planned the query before there is a run of it."""
        return self.live.sources()

    def about(self, batch_id: int) -> tuple[str, int, str]:
        """What every event begins with: query id, batch id, incarnation."""
        return self.query_id, batch_id, self.incarnation

    def last_logged_batch(self) -> int | None:
        """The highest batch id in Spark's commit log."""
        return offset_log.highest_batch(self._small_files.names, offset_log.COMMITS)

    @property
    def folder(self) -> Path | None:
        """The checkpoint's folder where it lies on a local or shared file system, else None."""
        return offset_log.local_folder(self.checkpoint)

    @property
    def execution(self) -> Execution:
        """Its plans, in a classic session.

        Raises:
            InvariantBroken: it runs in another one.
        """
        if not isinstance(self.live, Execution):
            raise InvariantBroken(f"{self} does not run in a classic session.")
        return self.live

    def still_runs(self) -> bool:
        """False once this run has ended, whatever runs under the same query id by then."""
        return self.live.is_active()

    def failure(self) -> str | None:
        """Why this run ended by itself; None: it runs, or was stopped."""
        try:
            return None if self.still_runs() else self.live.failure()
        except (JvmError, OSError) as error:
            return f"Spark's JVM is gone, or does not answer ({type(error).__name__})."

    def was_stopped(self) -> bool:
        """Whether it was stopped, and has not failed. False where nobody can tell."""
        try:
            return not self.live.is_active() and self.live.failure() is None
        except (JvmError, OSError):
            return False

    def has_read_all(self, *, completed: bool) -> bool:
        """Whether this run, which has not failed, ended by itself, and was not stopped before that.
        ``completed``: a batch of it is. False where nobody can tell.
        """
        try:
            return self.at_stops.is_set() or (
                self.trigger.startswith(ENDING_TRIGGERS)
                and self.execution.has_read_all(completed=completed)
            )
        except (JvmError, OSError):
            return False

    def stop(self) -> None:
        """End the query from within its own batch, which Spark may log as done yet. Then no other
        one begins.
        """
        threading.Thread(target=self.live.stop, name="exactum-stop", daemon=True).start()
        deadline_s = time.monotonic() + STOP_TIMEOUT_S
        while self.still_runs() and time.monotonic() < deadline_s:
            time.sleep(STOP_POLL_S)

    def fail(self, error: ExactumError) -> None:
        """End the query, which waits for data, with an error that no micro-batch brings about."""
        kind = type(error)
        self.live.fail(f"{self}: {kind.__module__}.{kind.__name__}: {error}")

    def __str__(self) -> str:
        called = f"{self.name!r} ({self.query_id})" if self.name else self.query_id
        return f"query {called}, checkpoint {self.checkpoint}"


def retained_by(session: SparkSession) -> int:
    """How many batches Spark's own logs keep."""
    return int(str(session.conf.get(RETAINED, RETAINED_DEFAULT)))


def hadoop_of(session: SparkSession) -> dict[str, str]:
    """The settings with which it reaches file systems and object stores."""
    settings = session.sparkContext.getConf().getAll()
    return {name: value for name, value in settings if name.startswith(HADOOP)}


def is_connect(thing: Any) -> bool:
    """Whether this session, frame or writer is Spark Connect's, which may not be installed."""
    return type(thing).__module__.startswith("pyspark.sql.connect")


@dataclass(frozen=True)
class Batch:
    """One micro-batch: its id, what it reads, whether it is the first one of this run of the query,
    and its range of each source (see ``live.ranges_of``).
    """

    batch_id: int
    offsets: SourceOffsets
    first: bool
    ranges: tuple[SourceRange, ...] = ()

    @cached_property
    def sizes(self) -> Sequence[int] | None:
        """How many offsets each Kafka partition advances, those alone that advance. None where that
        is not known: a source is not Kafka, the batch before is not on record.

        A partition that came later is read from its first record, which is not the one at 0 where
        losses are accepted.
        """
        if not all(own.begins and own.ends for own in self.ranges):
            return None
        counts = [
            end - own.begins.get(partition, 0)
            for own in self.ranges
            for partition, end in own.ends.items()
        ]
        return [count for count in counts if count > 0]


class EpochListener:
    """Called in the thread of the query, ``close`` in any. A method that a listener does not have
    does nothing.
    """

    def begin(self, batch: Batch) -> None:
        """Before it is known whether the batch is decided. What is raised here keeps a decided one
        from being committed, so it must be what a user can put right.
        """

    def writing(self, batch: Batch) -> None:
        """Older runs are fenced, the batch is not decided, and an attempt at it is about to be
        made.

        Raises:
            ExactumError: the attempt must not be made.
        """

    def redelivered(self, batch: Batch) -> None:
        """It was decided by an earlier run, stands in every sink by now, and is gone on from.

        Raises:
            ExactumError: nothing may come after it.
        """

    def done(self, batch: Batch, completed: Completed) -> None:
        """After the batch stands in every sink. A failure here stops the query after an epoch that
        is complete.
        """

    def close(self) -> None:
        """The run is over. Idempotent."""
