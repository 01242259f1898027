"""``SparkTableSink``: a table that Spark itself writes, with a writer that knows an epoch again.

    tasks       rows as Parquet files in the staging, with those of all other sinks
    COMMIT      is recorded by the coordinator
    commit      write(spark.read.parquet(files), TableTransaction(app_id, version))
    then        the note of the batch in the staging; after a crash before it, the same write again

The way for tables that only Spark's own writers know: Unity's managed tables, liquid clustering,
Hudi, Paimon, Iceberg's write-audit-publish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from exactum.errors import Unavailable
from exactum.files.format import FileFormat, check_frame
from exactum.files.place import FOLDER_BYTES_MAX, NAME_BYTES_MAX, NameLimits
from exactum.files.sink import BYTES_PER_FILE_MAX
from exactum.files.writer import FilePlan, FileRows
from exactum.problem import Problem, ok
from exactum.protocol.inspection import Inspector
from exactum.protocol.model import PreparedTransaction
from exactum.protocol.scope import Scope
from exactum.protocol.sink import (
    DEAD_LETTER_COLUMNS,
    NotAFunction,
    OpenSink,
    QueryRun,
    TaskName,
    WriteOrder,
    Writer,
)
from exactum.sinks.staged import (
    Published,
    PublishFailed,
    StagedEpoch,
    StagedParticipant,
    StagedTarget,
)
from exactum.sinks.staging import TRACE, Staging, reach_staging, staging_of, wanted
from exactum.sinks.writer import StagedWriter
from exactum.storage.storage import Storage

_FORMAT = FileFormat.of("parquet", None, "SparkTableSink")


@dataclass(frozen=True)
class TableTransaction:
    """Names one epoch of one sink to the table: the same whenever it is written again, and no other
    has it.

    Args:
        app_id: of the sink in its query.
        version: grows from one epoch to the next.
    """

    app_id: str
    version: int


Write = Callable[[Any, TableTransaction], object]


class SparkTableSink(NotAFunction):
    """Hands the staged rows of a decided epoch to a writer of Spark's.

    Args:
        write: a function of (DataFrame, TableTransaction), called on the driver after the decision.
            It returns when the rows are committed, and writes nothing if they were before: the same
            call may come again after a crash. Delta: ``frame.write.format("delta")
            .mode("append").option("txnAppId", txn.app_id).option("txnVersion", txn.version)
            .save(path)``.
        name: of the participant in decision records. Keep it from start to start.
        last_version: a function that says which version of this app id the table has; None: none.
            With it a checkpoint that was put back from an older copy is refused. Without it the
            table takes its first micro-batches for written, and they are lost.
        rows: the sink's own view of the batch, a function from DataFrame to DataFrame; None: all of
            it.
    """

    def __init__(
        self,
        write: Write,
        *,
        name: str,
        last_version: Callable[[str], int | None] | None = None,
        rows: Callable[[Any], Any] | None = None,
    ) -> None:
        self._write = write
        self._last_version = last_version
        self.name = name
        self.rows = rows

    def __repr__(self) -> str:
        return f"SparkTableSink(name={self.name!r})"

    @property
    def dead_letter_columns(self) -> Sequence[tuple[str, str]]:
        return DEAD_LETTER_COLUMNS

    def check_columns(self, columns: Sequence[tuple[str, str]]) -> None:
        """See the port ``Sink``."""
        check_frame(columns, (), repr(self))
        _FORMAT.check_columns(columns, repr(self))

    def open(
        self, run: QueryRun, participant: str, columns: Sequence[tuple[str, str]] = ()
    ) -> OpenSink:
        """See the port ``Sink``."""
        staging = staging_of(run, Scope(run.query_id, participant), repr(self))
        schema = ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in columns)
        return OpenSink(
            StagedParticipant(staging, self._target(staging, schema)),
            TableWriterFactory(staging),
            trace=TRACE,
            reach=reach_staging(run),
        )

    def inspector(
        self, query_id: str, participant: str, staging: Storage | None = None
    ) -> Inspector:
        """See ``protocol.inspection.Inspectable``."""
        from exactum.sinks.inspection import StagedInspector

        place = Staging(wanted(staging, repr(self)), Scope(query_id, participant))
        return StagedInspector(place, self._target(place, ""))

    waits_in_staging = True

    def prove(self, longest_outage_s: float | None = None) -> Iterator[Problem]:
        """See ``protocol.inspection.Provable``."""
        yield ok(self.name, "Its table was not tried: only its own write= knows it.")

    def _target(self, staging: Staging, schema: str) -> SparkTableTarget:
        return SparkTableTarget(staging, schema, self._write, self._last_version)

    def __getstate__(self) -> dict[str, Any]:
        """``rows`` stays on the driver: it may hold on to a session."""
        return {**self.__dict__, "rows": None}


@dataclass(frozen=True)
class TableWriterFactory:
    """Goes to the executors; opens a writer there."""

    staging: Staging

    def open(self, order: WriteOrder, task: TaskName) -> Writer:
        limits = NameLimits(NAME_BYTES_MAX, FOLDER_BYTES_MAX)
        plan = FilePlan(self.staging, limits, _FORMAT, (), None, BYTES_PER_FILE_MAX)
        rows = FileRows(plan)
        return StagedWriter(self.staging, order, task, rows, at=SparkTableTarget.at, facts={})


class SparkTableTarget(StagedTarget):
    """See the base class. The marker is the staging's note, or what ``last_version`` says where
    that is more. ``schema``: of the files, as DDL.
    """

    at = ""

    def __init__(
        self,
        staging: Staging,
        schema: str,
        write: Write,
        last_version: Callable[[str], int | None] | None,
    ) -> None:
        self.shown = f"sink {staging.scope.participant!r}"
        self._staging = staging
        self._schema = schema
        self._write = write
        self._last_version = last_version
        self._app_id = f"exactum:{staging.scope.query_id}:{staging.scope.participant}"

    def last_batch(self, committed: Sequence[PreparedTransaction] = ()) -> int | None:
        noted = self._staging.published()
        known = None if self._last_version is None else self._last_version(self._app_id)
        return max((one for one in (noted, known) if one is not None), default=None)

    def forget_batches(self) -> None:
        self._staging.forget_published()

    def published(self, epoch: StagedEpoch) -> Published:
        noted = self._staging.published()
        is_there = noted is not None and noted >= epoch.batch_id
        return Published.BEFORE if is_there else Published.MISSING

    def publish(self, epoch: StagedEpoch) -> Published:
        if self.published(epoch) is Published.BEFORE:
            return Published.BEFORE
        names = list(epoch.sizes)
        if not all(self._staging.is_there(name) for name in names):
            return self.published(epoch)
        self._hand_over(names, TableTransaction(self._app_id, epoch.batch_id))
        self._staging.note_published(epoch.batch_id)
        return Published.DONE

    def deliver(self, epoch: StagedEpoch) -> None:
        own = TableTransaction(f"{self._app_id}:{epoch.digest}", epoch.batch_id)
        try:
            self._hand_over(list(epoch.sizes), own)
        except PublishFailed as failure:
            raise Unavailable(f"{self.shown}: {failure}") from failure

    def by_hand(self, epoch: StagedEpoch) -> str:
        return self._staging.by_hand(epoch.batch_id)

    def _hand_over(self, names: Sequence[str], transaction: TableTransaction) -> None:
        """
        Raises:
            PublishFailed: the rows may be in the table or not.
            Unavailable: there is no Spark in this process.
        """
        from pyspark.errors import AnalysisException, PySparkRuntimeError
        from pyspark.sql import SparkSession

        try:
            session = SparkSession.active()
        except PySparkRuntimeError as error:
            raise Unavailable(
                f"{self.shown}: only Spark can write its table. Start the query: it does."
            ) from error
        where = self._staging.where.replace("s3://", "s3a://", 1)  # as Hadoop says it
        try:
            rows = session.read.schema(self._schema).parquet(*(f"{where}/{n}" for n in names))
            self._write(rows, transaction)
        except Exception as error:
            wrong = isinstance(error, AnalysisException | TypeError | AttributeError | NameError)
            text = f"write() failed: {type(error).__name__}: {error}"
            raise PublishFailed(text, is_transient=not wrong) from error
