"""``SparkTableSink``: a table that Spark itself writes, with a writer that knows an epoch again.

    tasks       rows as Parquet files in the staging, with those of all other sinks
    COMMIT      is recorded by the coordinator
    commit      write(spark.read.parquet(files), TableTransaction(app_id, version))
    then        the note of the batch in the staging; after a crash before it, the same write again

The way for tables that only Spark's own writers know: Unity's managed tables, liquid clustering,
Hudi, Paimon, Iceberg's write-audit-publish.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from os.path import abspath
from secrets import token_hex
from typing import Any

from exactum.custom.answer import called
from exactum.errors import CodeFailed, ExactumError, SettingRefused, Unavailable
from exactum.files.format import FileFormat
from exactum.files.sink import BYTES_PER_FILE_MAX
from exactum.files.writer import FilePlan, FileRows
from exactum.lake.sink import check_table_columns, schema_of
from exactum.lake.types import ddl
from exactum.protocol.model import PreparedTransaction
from exactum.protocol.sink import OpenSink, QueryRun
from exactum.sinks.sink import StagedSink
from exactum.sinks.staged import Published, PublishFailed, StagedEpoch, StagedTarget
from exactum.sinks.staging import Staging
from exactum.spark.write.failure import LASTING
from exactum.values.excerpt import cut

_PLAN = FilePlan(FileFormat.of("parquet", None, "SparkTableSink"), (), BYTES_PER_FILE_MAX)
_WILD = re.compile(r"[\\{}\[\]*?]")
"""What Hadoop reads as a pattern in a path, and not as itself."""
_AS_STAGED: Mapping[str, str | bool] = {
    "ignoreCorruptFiles": False,
    "ignoreMissingFiles": False,
    "datetimeRebaseMode": "CORRECTED",
}
"""Whatever the session is set to: all rows that are staged, or an error, and each day as it is."""
_AGAIN = ("app-id", "again")
"""A note of the staging: what ends the app id since a person has accepted that rows come again."""
SHOWN_MAX = 300
_LASTING_STATES = ("0A", "22", "23", "42")


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


Write = Callable[[Any, TableTransaction], None]


class SparkTableSink(StagedSink):
    """Hands the staged rows of a decided epoch to a writer of Spark's.

    Args:
        write: a function of (DataFrame, TableTransaction), called on the driver after the decision.
            It returns None when the rows are committed, and writes nothing if they were before: the
            same call may come again after a crash. Delta: ``frame.write.format("delta")
            .mode("append").option("txnAppId", txn.app_id).option("txnVersion", txn.version)
            .save(path)``.
        name: of the participant in decision records. Keep it from start to start.
        last_version: a function that says which version of this app id the table has; None: none.
            With it a checkpoint that was put back from an older copy is refused. Without it the
            table takes its first micro-batches for written, and they are lost.
        rows: the sink's own view of the batch, ``exactum.Rows`` or a function from DataFrame to
            DataFrame; default: the batch as it is.

    Raises:
        SettingRefused: ``write`` or ``last_version`` is no function, or ``name`` no text.
    """

    def __init__(
        self,
        write: Write,
        *,
        name: str,
        last_version: Callable[[str], int | None] | None = None,
        rows: Callable[[Any], Any] | None = None,
    ) -> None:
        _check_arguments(write, name, last_version)
        self._write = write
        self._last_version = last_version
        self.name = name
        self.rows = rows

    def check_columns(self, columns: Sequence[tuple[str, str]]) -> None:
        """See the port ``Sink``."""
        check_table_columns(columns, (), (), None, repr(self))

    def open(
        self, run: QueryRun, participant: str, columns: Sequence[tuple[str, str]] = ()
    ) -> OpenSink:
        """See the port ``Sink``."""
        target = self._target(run, participant, ddl(schema_of(columns)))
        target.staging.open()
        return replace(self.open_with(run, target, FileRows, _PLAN), makes_versions=True)

    def target_of(self, run: QueryRun, participant: str) -> SparkTableTarget:
        """See the base class."""
        return self._target(run, participant, None)

    def _target(self, run: QueryRun, participant: str, schema: str | None) -> SparkTableTarget:
        staging = self.staging_of(run, participant)
        return SparkTableTarget(staging, schema, self._write, self._last_version)


class SparkTableTarget(StagedTarget):
    """See the base class. The marker is the staging's note, or what ``last_version`` says where
    that is more. ``schema``: of the files, as DDL; None: not known, to a command.
    """

    def __init__(
        self,
        staging: Staging,
        schema: str | None,
        write: Write,
        last_version: Callable[[str], int | None] | None,
    ) -> None:
        super().__init__(staging)
        self._schema = schema
        self._write = write
        self._last_version = last_version

    @cached_property
    def _app_id(self) -> str:
        scope, again = self.staging.scope, self.staging.note(*_AGAIN) or ""
        return f"exactum:{scope.query_id}:{scope.participant}{again}"

    def forget_batches(self, first: int = 0) -> None:
        """The table forgets nothing: it gets another app id, for which it has no version."""
        self.staging.write_note(*_AGAIN, f":{token_hex(8)}")
        vars(self).pop("_app_id", None)
        super().forget_batches(first)

    def last_batch(self, committed: Sequence[PreparedTransaction] = ()) -> int | None:
        noted = self.staging.published()
        known = None if self._last_version is None else self._asked(self._last_version)
        return max((one for one in (noted, known) if one is not None), default=None)

    def _asked(self, last_version: Callable[[str], int | None]) -> int | None:
        try:
            known = last_version(self._app_id)
        except Exception as error:
            raise CodeFailed(
                "SINK_ANSWER",
                f"{self.shown}: last_version() failed: {_shown(error)}. Nothing was written.",
            ) from error
        if known is not None and not isinstance(known, int):
            raise CodeFailed(
                "SINK_ANSWER",
                f"{self.shown}: last_version() returned {known!r}. It must be the version that the "
                "table has of this app id, or None. Nothing was written.",
            )
        return known

    def publish(self, epoch: StagedEpoch) -> Published:
        if self.published(epoch) is Published.BEFORE:
            return Published.BEFORE
        names = list(epoch.sizes)
        if not all(self.staging.is_there(name) for name in names):
            return self.published(epoch)
        self._hand_over(names, TableTransaction(self._app_id, epoch.batch_id))
        self.staging.note_published(epoch.batch_id)
        return Published.DONE

    def deliver(self, epoch: StagedEpoch) -> None:
        own = TableTransaction(f"{self._app_id}:{epoch.digest}", epoch.batch_id)
        try:
            self._hand_over(list(epoch.sizes), own)
        except PublishFailed as failure:
            what = f"{self.shown}: {failure}"
            if failure.is_transient:
                raise Unavailable(what) from failure
            raise CodeFailed("CODE_FAILED", f"{what}. Correct it, and start again.") from failure

    def _hand_over(self, names: Sequence[str], transaction: TableTransaction) -> None:
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession

        by_spark = Unavailable(
            f"{self.shown}: only Spark can write its table. Start the query: it does."
        )
        if self._schema is None:
            raise by_spark
        try:
            session = SparkSession.active()
        except PySparkRuntimeError as error:
            raise by_spark from error
        where = _for_hadoop(self.staging.where)
        try:
            reader = session.read.schema(self._schema).options(**_AS_STAGED)
            rows = reader.parquet(*(f"{where}/{name}" for name in names))
            then = "The rows are kept: correct it, and start again."
            called(self._write, rows, transaction, what="write()", then=then)
        except ExactumError:
            raise
        except Exception as error:
            text = f"write() failed: {_shown(error)}"
            raise PublishFailed(text, is_transient=not _is_lasting(error)) from error


def _is_lasting(error: Exception) -> bool:
    """Whether the same rows get it again: a mistake in Python; or Spark, or a table format, gives
    it a SQLSTATE that speaks of rows, constraints, statements or rights. A conflict has another.
    """
    from pyspark.errors import AnalysisException

    thrown: Any = getattr(error, "java_exception", error)
    state = None
    with suppress(Exception):  # most have none
        state = thrown.getSqlState()
    is_mistake = isinstance(error, (AnalysisException, *LASTING))
    return is_mistake or str(state).startswith(_LASTING_STATES)


def _for_hadoop(place: str) -> str:
    """A staging's place as its URL in Hadoop, whose default need not be this file system."""
    url = place.replace("s3://", "s3a://", 1) if "://" in place else f"file:{abspath(place)}"
    return _WILD.sub(r"\\\g<0>", url)


def _check_arguments(write: object, name: object, last_version: object) -> None:
    wrong = None
    if not callable(write):
        wrong = f"write={write!r} must be a function of (DataFrame, TableTransaction)"
    elif not isinstance(name, str) or not name.strip():
        wrong = f"name={name!r} must be a text that names this sink from start to start"
    elif last_version is not None and not callable(last_version):
        wrong = f"last_version={last_version!r} must be a function of the app id"
    if wrong is not None:
        raise SettingRefused("LAKE_ARGUMENT", f"SparkTableSink: {wrong}.")


def _shown(error: Exception) -> str:
    """Without what Spark adds behind the first line: the plan, and its stack; and without which
    call it was, where Java's error comes in the second one.
    """
    said = str(error).strip()
    first = (said.partition("\n: ")[2] or said).partition("\n")[0]
    return cut(f"{type(error).__name__}: {first}", SHOWN_MAX)
