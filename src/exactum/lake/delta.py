"""``DeltaSink``: a Delta table as the target of a query, by delta-rs.

The marker is a transaction identifier of Delta's (``txn``), as Spark's own writer has them: batch
and, in a second one, which files they were.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from exactum.errors import FrameRefused, SettingRefused, Unavailable
from exactum.files.place import staging_at
from exactum.files.sink import (
    BYTES_PER_FILE_MAX,
    OBJECT_BYTES_MAX,
    check_limit,
    checked_path,
    shown,
)
from exactum.lake import frame
from exactum.lake.evidence import table_evidence
from exactum.lake.rows import TableWriters
from exactum.lake.target import (
    VISIBLE,
    BatchMarker,
    CommitConflict,
    DataFile,
    TableTarget,
    TableVersion,
    Upsert,
)
from exactum.lake.types import demands_a_value, spark_type
from exactum.packages import not_installed
from exactum.problem import Problem, ok
from exactum.protocol.dead_letter import DeadLetter, of_columns
from exactum.protocol.evidence import Evidence, Promise
from exactum.protocol.inspection import Inspector
from exactum.protocol.participant import Sweepable
from exactum.protocol.sink import DEAD_LETTER_COLUMNS, NotAFunction, OpenSink, QueryRun
from exactum.sinks.inspection import StagedInspector
from exactum.sinks.staged import StagedParticipant
from exactum.sinks.staging import Leftovers, Staging
from exactum.storage.at import storage_at
from exactum.storage.folder import Folder
from exactum.storage.proof import prove
from exactum.storage.storage import Storage

INDEXED = 32
"""So many columns have statistics where a table does not say it: as with all of Delta's writers."""
RETRIES = 15
"""Of an append whose snapshot is old: Delta's own check knows the marker, and what else does not go
together."""
TAKEN = frozenset(
    {"appendOnly", "invariants", "checkConstraints", "generatedColumns", "columnMapping",
     "changeDataFeed", "timestampNtz", "deletionVectors", "v2Checkpoint", "variantType"}
)  # fmt: skip
"""Features of a table that go with files added here; some only while they are not used, as
``in_the_way`` says."""
NOT_UPSERTED = frozenset({"deletionVectors", "changeDataFeed", "variantType"})
SETTINGS_NOT_UPSERTED = ("delta.appendOnly", "delta.enableChangeDataFeed")
LASTING = ("catalogManaged", "catalog-managed", "nsupported", "not supported")
"""What delta-rs says of tables that it cannot read, beside its own kind of error."""
RETENTION = "delta.setTransactionRetentionDuration"
OF_A_COLUMN = {
    "delta.generationExpression": "generated columns",
    "delta.invariants": "invariants",
    "delta.identity.start": "identity columns",
    "CURRENT_DEFAULT": "default values",
}


def in_the_way(
    features: Sequence[str], settings: Mapping[str, Any], fields: Sequence[Any], *, upserts: bool
) -> str | None:
    """What a table has that files which are added here would break, mostly without a word."""
    unknown = sorted(set(features) - TAKEN)
    if unknown:
        return f"the feature {unknown[0]!r}"
    for name, value in settings.items():
        is_off = value in (None, "", "false", "none")
        if name.startswith("delta.constraints."):
            return f"the CHECK constraint {name.removeprefix('delta.constraints.')!r}"
        if name == RETENTION:
            return f"{RETENTION}, which removes the marker of what was written"
        if name == "delta.columnMapping.mode" and not is_off:
            return "column mapping"
        if name == "delta.enableRowTracking" and not is_off:
            return "row tracking"
        if upserts and name in SETTINGS_NOT_UPSERTED and not is_off:
            return f"{name}, with which it cannot be upserted"
    for field in fields:
        for key, what in OF_A_COLUMN.items():
            if key in field.metadata:
                return f"{what} ({field.name!r})"
    used = sorted(NOT_UPSERTED & set(features)) if upserts else []
    return f"the feature {used[0]!r}, with which it cannot be upserted" if used else None


def indexed(settings: Mapping[str, Any], names: Sequence[str]) -> Sequence[str]:
    """The columns that have statistics, by the table's settings."""
    chosen = settings.get("delta.dataSkippingStatsColumns")
    if chosen:
        return [name.strip().strip("`") for name in chosen.split(",")]
    first = int(settings.get("delta.dataSkippingNumIndexedCols") or INDEXED)
    return names if first < 0 else names[:first]


class DeltaVersion(TableVersion):
    """See the base class."""

    def __init__(self, table: Any, where: str) -> None:
        self._table = table
        self._where = where
        schema = pa.schema(table.schema().to_arrow())
        self.table_id = table.metadata().id
        self.columns = {field.name: spark_type(field.type) for field in schema}
        self.wanted = frozenset(field.name for field in schema if not field.nullable)
        self.partition_by = tuple(table.metadata().partition_columns)
        self.indexed = frozenset(indexed(table.metadata().configuration, schema.names))
        self._demanding = [f.name for f in schema if demands_a_value(f.type)]

    def marker(self, scope: str) -> BatchMarker | None:
        batch, digest = (self._table.transaction_version(name) for name in _names(scope))
        return None if batch is None or batch < 0 else BatchMarker(batch, digest or 0)

    def refuse(self, *, upserts: bool) -> None:
        protocol = self._table.protocol()
        features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
        settings = self._table.metadata().configuration
        fields = self._table.schema().fields
        found = in_the_way(sorted(features), settings, fields, upserts=upserts)
        if found is None and self._demanding:
            found = f"NOT NULL within the column {self._demanding[0]!r}"
        if found is not None:
            raise SettingRefused(
                "LAKE_FEATURE",
                f"{self._where}: the table has {found}. exactum adds files to it, and cannot keep "
                "that. Use a table without it, or have Spark write this one (SparkTableSink). "
                "Nothing was written.",
            )

    def append(self, files: Sequence[DataFile], scope: str, marker: BatchMarker | None) -> None:
        from deltalake.transaction import AddAction

        now_ms = int(time.time() * 1000)
        actions = [
            AddAction(f.path, f.size_bytes, dict(f.partition), now_ms, True, f.stats) for f in files
        ]
        with _explained(self._where):
            self._table.create_write_transaction(
                actions,
                "append",
                self._table.schema(),
                partition_by=list(self.partition_by),
                commit_properties=_properties(scope, marker, RETRIES),
            )

    def merge(self, upsert: Upsert, scope: str, marker: BatchMarker | None) -> None:
        flag = upsert.delete_when
        deleted = "false" if flag is None else f"coalesce(s.{_quoted(flag)}, false)"
        values = {
            _quoted(name): f"s.{_quoted(name)}" for name in upsert.rows.column_names if name != flag
        }
        same = " AND ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in upsert.key)
        with _explained(self._where):
            merger = self._table.merge(
                upsert.rows,
                same,
                source_alias="s",
                target_alias="t",
                commit_properties=_properties(scope, marker, 0),
            )
            if flag is not None:
                merger = merger.when_matched_delete(deleted)
            merger = merger.when_matched_update(values)
            merger.when_not_matched_insert(values, f"NOT {deleted}").execute()

    def files(self) -> list[tuple[str, int]]:
        """Path and rows of each."""
        actions = pa.table(self._table.get_add_actions(flatten=True))
        pairs = zip(actions["path"].to_pylist(), actions["num_records"].to_pylist(), strict=True)
        return [(path, rows or 0) for path, rows in pairs]

    def rows(self) -> Iterator[pa.RecordBatch]:
        with _explained(self._where):
            yield from self._table.to_pyarrow_dataset().to_batches()

    def add_columns(self, schema: pa.Schema) -> None:
        """Raises CommitConflict: another commit came first."""
        from deltalake import Schema

        with _explained(self._where):
            self._table.alter.add_columns(Schema.from_arrow(schema).fields)


class DeltaSink(NotAFunction):
    """Writes a frame's rows to a Delta table, one version of it for each micro-batch that has rows.
    Needs ``pip install 'exactum[delta]'``, and no Delta in Spark.

    Tasks write Parquet into ``<path>/.exactum``, and the driver commits the files, with a marker in
    the same version. A table with features that this would break is refused by name.

    Args:
        path: of the table: a folder, as a path or ``file:`` URL, that the driver and all executors
            see under the same path; or a URL in an object store, as for ``FileSink``.
        mode: ``"append"``, or ``"upsert"``: rows replace those of the same key.
        key: the columns that identify a row of an upsert. Of two rows of one key in a micro-batch
            the later one counts.
        delete_when: of an upsert: a boolean column that is not written; where it is true, the row
            of that key is removed.
        partition_by: columns that a new table is partitioned by; of a table that is there, its own
            or none.
        create_table: make a table that is not there, with the frame's columns.
        merge_schema: add columns to the table that the frame has and the table has not.
        bytes_per_file_max: a file is closed when it has at least so many bytes; default 128 MiB.
        store: object stores only: a mapping of obstore's settings for the URL (``region``,
            ``endpoint``, ``allow_http``, credentials ...). Default: from the environment.
        name: of the participant in decision records; default ``delta:<path>``.
        rows: the sink's own view of the batch, a function from DataFrame to DataFrame.

    Raises:
        SettingRefused: a setting that cannot be.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        mode: str = "append",
        key: str | Sequence[str] | None = None,
        delete_when: str | None = None,
        partition_by: str | Sequence[str] | None = None,
        create_table: bool = True,
        merge_schema: bool = False,
        bytes_per_file_max: int = BYTES_PER_FILE_MAX,
        store: Any = None,
        name: str | None = None,
        rows: Callable[[Any], Any] | None = None,
    ) -> None:
        self._path = checked_path(path, store, "DeltaSink")
        self._where = f"DeltaSink({shown(self._path)!r})"
        self._store = store
        self._key = _tuple(key)
        self._partition_by = _tuple(partition_by)
        self._delete_when = delete_when
        self._create_table = create_table
        self._merge_schema = merge_schema
        self._bytes_per_file_max = bytes_per_file_max
        check_limit("bytes_per_file_max", bytes_per_file_max, self._where)
        self._refuse_contradictions(mode)
        self.name = name or f"delta:{shown(self._path)}"
        self.rows = rows

    dead_letter_columns = DEAD_LETTER_COLUMNS

    def __repr__(self) -> str:
        return self._where

    def check_columns(self, columns: Sequence[tuple[str, str]]) -> None:
        """See the port ``Sink``."""
        frame.check_columns(columns, self._partition_by, self._key, self._delete_when, self._where)

    def open(
        self, run: QueryRun, participant: str, columns: Sequence[tuple[str, str]] = ()
    ) -> OpenSink:
        """See the port ``Sink``. Makes the table, or adds columns to it, where that was asked."""
        storage = storage_at(self._path, self._store)
        written = [column for column in columns if column[0] != self._delete_when]
        table = self._ready(storage, written)
        plan = frame.plan_of(table, self._partition_by, self._key, self._delete_when, self._where)
        if columns:  # they name the partitions of a table that was there
            frame.check_columns(
                columns, table.partition_by, self._key, self._delete_when, self._where
            )
        staging = self._staging(storage, run.query_id, participant)
        staging.open()
        is_local = "://" not in self._path
        place = os.path.realpath(self._path) if is_local else self._shown_place()
        target = self._target(staging)

        def reach(former: str, own: Mapping[str, str]) -> Sweepable | None:
            if not os.path.isdir(own.get("folder", "")):
                return None
            return Leftovers(staging_at(Folder(own["folder"]), run.query_id, former))

        return OpenSink(
            StagedParticipant(staging, target),
            TableWriters(staging, plan, self._bytes_per_file_max),
            f"table {place}",
            {"folder": place} if is_local else {},
            reach,
            folder=place,
        )

    def inspector(
        self, query_id: str, participant: str, staging: Storage | None = None
    ) -> Inspector:
        """See ``protocol.inspection.Inspectable``."""
        own = self._staging(storage_at(self._path, self._store), query_id, participant)

        def count(promises: Sequence[Promise]) -> Sequence[Evidence]:
            rows = self._rows_by_task()
            described = ((p, inspector.describe(p.record.of(participant))) for p in promises)
            return [table_evidence(p, participant, views, rows) for p, views in described]

        inspector = StagedInspector(own, self._target(own), count)
        return inspector

    waits_in_staging = False

    def dead_letters(self) -> Iterator[DeadLetter]:
        """See ``protocol.dead_letter.DeadLetterStore``."""
        table = self._load()
        batches = iter(()) if table is None else table.rows()
        return of_columns(row for batch in batches for row in batch.to_pylist())

    def prove(self, longest_outage_s: float | None = None) -> Iterator[Problem]:
        """See ``protocol.inspection.Provable``."""
        yield from prove(storage_at(self._path, self._store), self.name)
        table = self._load()
        if table is not None:
            table.refuse(upserts=bool(self._key))
        what = "There is no table yet." if table is None else "The table can be written to."
        yield ok(self.name, what)

    def _rows_by_task(self) -> Mapping[str, int]:
        """Rows of the files that the table names, by the transaction that brought them."""
        table = self._load()
        found: Counter[str] = Counter()
        for path, rows in [] if table is None else table.files():
            match = VISIBLE.fullmatch(path)
            if match is not None:
                found[match["identity"]] += rows
        return found

    # ---- small steps -------------------------------------------------------------------------

    def _refuse_contradictions(self, mode: str) -> None:
        why = None
        if mode not in ("append", "upsert"):
            why = f"mode={mode!r} must be 'append' or 'upsert'"
        elif (mode == "upsert") != bool(self._key):
            why = "mode='upsert' needs key=, the columns that identify a row, and goes with it only"
        elif self._delete_when is not None and not self._key:
            why = "delete_when means something with mode='upsert' only"
        elif self._delete_when in (*self._key, *self._partition_by) and self._delete_when:
            why = f"delete_when={self._delete_when!r} is not written: no key and no partition"
        elif self._store is not None and not isinstance(self._store, Mapping):
            why = "store= must be a mapping of settings: delta-rs makes a store of its own of them"
        elif "://" in self._path and self._bytes_per_file_max > OBJECT_BYTES_MAX:
            why = f"bytes_per_file_max is more than the {OBJECT_BYTES_MAX} bytes of one copy"
        if why is not None:
            raise SettingRefused("LAKE_ARGUMENT", f"{self._where}: {why}.")

    def _ready(self, storage: Storage, written: Sequence[tuple[str, str]]) -> DeltaVersion:
        """The table as it is written to: made, and with all columns, where that was asked."""
        for _ in range(3):  # others may do the same at this moment
            table = self._load()
            try:
                if table is None:
                    self._create(storage, written)
                    continue
                table.refuse(upserts=bool(self._key))
                more = frame.lacking(table, written, self._where) if written else []
                if not more:
                    return table
                if not self._merge_schema:
                    raise FrameRefused(
                        "LAKE_COLUMNS",
                        f"{self._where}: the table has no column {more[0][0]!r}. Drop it in the "
                        "query, or pass merge_schema=True. Nothing was written.",
                    )
                table.add_columns(frame.schema_of(more))
            except CommitConflict:
                continue
        raise Unavailable(f"{self._where}: others change the table all the time. Start again.")

    def _create(self, storage: Storage, written: Sequence[tuple[str, str]]) -> None:
        from deltalake import DeltaTable, Schema

        why = None
        if not self._create_table or not written:
            why = "there is no table, and create_table=False" if written else "there is no table"
        elif others := [name for name in storage.names() if not name.startswith((".", "_"))]:
            why = f"there is no Delta table, but {others[0]!r}: a VACUUM would remove it"
        if why is not None:
            raise SettingRefused(
                "LAKE_TABLE", f"{self._where}: {why}. Create it, or give another path."
            )
        if "://" not in self._path:
            os.makedirs(self._path, exist_ok=True)
        with _explained(self._where):
            DeltaTable.create(
                self._path,
                Schema.from_arrow(frame.schema_of(written)),
                partition_by=list(self._partition_by),
                storage_options=self._options(),
            )

    def _load(self) -> DeltaVersion | None:
        try:
            from deltalake import DeltaTable
            from deltalake.exceptions import TableNotFoundError
        except ImportError as error:
            raise SettingRefused(
                "PACKAGE_MISSING",
                not_installed("Delta tables need", "deltalake", "delta", "On the driver"),
            ) from error
        with _explained(self._where):
            try:
                return DeltaVersion(
                    DeltaTable(self._path, storage_options=self._options()), self._where
                )
            except TableNotFoundError:
                return None

    def _options(self) -> dict[str, str] | None:
        if self._store is None:
            return None
        text = {True: "true", False: "false"}
        return {name: text.get(v, str(v)) for name, v in self._store.items()}

    def _shown_place(self) -> str:
        endpoint = (self._store or {}).get("endpoint", "")
        return f"{endpoint} {shown(self._path)}".lstrip()

    def _target(self, staging: Staging) -> TableTarget:
        return TableTarget(staging, self._load, self._by_hand, upserts=bool(self._key))

    def _staging(self, storage: Storage, query_id: str, participant: str) -> Staging:
        return staging_at(storage, query_id, participant)

    @property
    def _by_hand(self) -> str:
        path = repr(shown(self._path)).replace("{", "{{").replace("}", "}}")
        return (
            f"from deltalake import *; t = DeltaTable({path}); "
            't.create_write_transaction([], "append", t.schema(), '
            "commit_properties=CommitProperties(app_transactions=["
            'Transaction("{name}", {batch}), Transaction("{name}:files", {digest})]))'
        )


def _tuple(names: str | Sequence[str] | None) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names or ())


def _names(scope: str) -> tuple[str, str]:
    """Of the batch, and of which files brought it."""
    return scope, f"{scope}:files"


def _properties(scope: str, marker: BatchMarker | None, retries: int) -> Any:
    from deltalake import CommitProperties, Transaction

    now_ms = int(time.time() * 1000)
    own = []
    if marker is not None:
        batch, files = _names(scope)
        own.append(Transaction(batch, marker.batch_id, now_ms))
        own.append(Transaction(files, marker.digest, now_ms))
    return CommitProperties(max_commit_retries=retries, app_transactions=own)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@contextmanager
def _explained(where: str) -> Iterator[None]:
    """
    Raises:
        CommitConflict: nothing is committed.
        SettingRefused: no other try mends it.
        Unavailable: else.
    """
    from deltalake import exceptions as known

    try:
        yield
    except known.CommitFailedError as error:
        raise CommitConflict(str(error)) from error
    except (known.DeltaError, OSError) as error:
        lasting = isinstance(error, known.DeltaProtocolError | known.SchemaMismatchError)
        if lasting or any(word in str(error) for word in LASTING):
            raise SettingRefused(
                "LAKE_FEATURE",
                f"{where}: delta-rs, which exactum writes by, does not take the table: {error}",
            ) from error
        raise Unavailable(
            f"{where}: the table could not be read or written: {error}. Start the query again when "
            "it can be."
        ) from error
