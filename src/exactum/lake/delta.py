"""``DeltaSink``: a Delta table as the target of a query, by delta-rs.

The marker is a transaction identifier of Delta's (``txn``), as Spark's own writer has them: batch
and, in a second one, which files they were.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc

from exactum.errors import SettingRefused, Unavailable
from exactum.files.partition import NULL, Partitioning
from exactum.files.sink import BYTES_PER_FILE_MAX, checked_path, shown
from exactum.lake.rows import Columns
from exactum.lake.sink import TableSink, names, schema_of
from exactum.lake.target import (
    BatchMarker,
    CommitConflict,
    DataFile,
    TableAccess,
    TableVersion,
    Upsert,
)
from exactum.lake.types import demands_a_value, spark_type
from exactum.packages import not_installed
from exactum.sinks.rows import RowCheck
from exactum.values.nested import is_text
from exactum.values.times import (
    DAY_FIRST,
    DAY_LAST,
    MICROS_FIRST,
    MICROS_LAST,
    day_text,
    instant_text,
)

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
_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
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
        self.partition_by = self.parting = tuple(table.metadata().partition_columns)
        self.indexed = frozenset(indexed(table.metadata().configuration, schema.names))
        plain = {field.name for field in schema if not pa.types.is_nested(field.type)}
        self._counted = self.indexed.intersection(plain).difference(self.partition_by)
        self._demanding = [f.name for f in schema if demands_a_value(f.type)]

    def partitioning(self, *, upserts: bool) -> Partitioning:
        kind = MergedPartitioning if upserts else DeltaPartitioning
        return kind(self.partition_by)

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
            AddAction(
                f.path,
                f.size_bytes,
                _partition(f.folder),
                now_ms,
                True,
                statistics(f.rows, self._with_lacking(f), self.columns),
            )
            for f in files
        ]
        with _explained(self._where):
            self._table.create_write_transaction(
                actions,
                "append",
                self._table.schema(),
                partition_by=list(self.partition_by),
                commit_properties=_properties(scope, marker, RETRIES),
            )

    def _with_lacking(self, file: DataFile) -> Mapping[str, Any]:
        """Statistics that also say of columns which the file has not that they are null: who asks
        delta-rs's dataset for nulls is not shown the file else.
        """
        nulls = dict.fromkeys(self._counted, file.rows) | file.stats["nulls"]
        return {**file.stats, "nulls": nulls}

    def merge(self, upsert: Upsert, scope: str, marker: BatchMarker | None) -> None:
        flag = upsert.delete_when
        deleted = "false" if flag is None else f"coalesce(s.{_quoted(flag)}, false)"
        values = {
            _quoted(name): f"s.{_quoted(name)}" for name in upsert.rows.column_names if name != flag
        }
        same = " AND ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in upsert.key)
        version = self._table.version()
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
        # A merge that changes nothing makes no version, and so no marker.
        if marker is not None and self._table.version() == version:
            self.append([], scope, marker)

    def files(self) -> Sequence[tuple[str, int]]:
        actions = pa.table(self._table.get_add_actions(flatten=True))
        pairs = zip(actions["path"].to_pylist(), actions["num_records"].to_pylist(), strict=True)
        return [(path, rows or 0) for path, rows in pairs]

    def rows(self) -> Iterator[pa.RecordBatch]:
        with _explained(self._where):
            yield from self._table.to_pyarrow_dataset().to_batches()

    def add_columns(self, schema: pa.Schema) -> None:
        from deltalake import Schema

        with _explained(self._where):
            self._table.alter.add_columns(Schema.from_arrow(schema).fields)


class DeltaPartitioning(Partitioning):
    """See the base class; and the empty text is null to who reads a partition."""

    names_folders = False

    def check(self, check: RowCheck) -> None:
        super().check(check)
        for name in self._columns:
            values = check.batch.column(name)
            if is_text(values.type):
                empty = pc.equal(pc.binary_length(values), 0)
                check.refuse(
                    empty, f"column {name!r}, which names the partition, is the empty text"
                )


class MergedPartitioning(DeltaPartitioning):
    """See the base class: of an upsert, for whose rows delta-rs makes folders."""

    names_folders = True

    def _names(self, column: str, values: pa.Array) -> Sequence[str]:
        found = (name.partition("=")[2] for name in super()._names(column, values))
        return [f"{column}={quote(unquote(value), safe='')}" for value in found]


class DeltaAccess(TableAccess):
    """See the base class."""

    def __init__(
        self, path: str, store: Mapping[str, Any] | None, partition_by: Sequence[str], where: str
    ) -> None:
        self.where = where
        self.store = store
        self._path = path
        self._partition_by = partition_by

    def location(self) -> str:
        return self._path

    def place(self) -> str:
        return self.storage().where

    def load(self) -> DeltaVersion | None:
        try:
            from deltalake import DeltaTable
            from deltalake.exceptions import TableNotFoundError
        except ImportError as error:
            raise SettingRefused(
                "PACKAGE_MISSING",
                not_installed("Delta tables need", "deltalake", "delta", "On the driver"),
            ) from error
        with _explained(self.where):
            try:
                table = DeltaTable(self._path, storage_options=self._options())
                return DeltaVersion(table, self.where)
            except TableNotFoundError:
                return None
            except OSError:
                self.storage().names("_delta_log")  # it says better what is wrong with a place
                raise

    def create(self, columns: Columns) -> None:
        from deltalake import DeltaTable, Schema

        others = [name for name in self.storage().names() if not name.startswith((".", "_"))]
        if others:
            raise SettingRefused(
                "LAKE_TABLE",
                f"{self.where}: there is no Delta table, but {others[0]!r}: a VACUUM would remove "
                "it. Create it, or give another path.",
            )
        if "://" not in self._path:
            os.makedirs(self._path, exist_ok=True)
        with _explained(self.where):
            DeltaTable.create(
                self._path,
                Schema.from_arrow(schema_of(columns)),
                partition_by=list(self._partition_by),
                storage_options=self._options(),
            )

    def _options(self) -> dict[str, str] | None:
        if self.store is None:
            return None
        text = {True: "true", False: "false"}
        return {name: text.get(v, str(v)) for name, v in self.store.items()}


class DeltaSink(TableSink):
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
        rows: the sink's own view of the batch, ``exactum.Rows`` or a function from DataFrame to
            DataFrame; default: the batch as it is.

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
        if "://" not in self._path and _ESCAPE.search(self._path):
            raise SettingRefused(
                "LAKE_ARGUMENT",
                f"DeltaSink({self._path!r}): delta-rs takes the % with two digits for another "
                "character, and would look for the table elsewhere. Give a folder without it.",
            )
        super().__init__(
            f"DeltaSink({shown(self._path)!r})",
            name or f"delta:{shown(self._path)}",
            partition_by=partition_by,
            create_table=create_table,
            bytes_per_file_max=bytes_per_file_max,
            store=store,
            rows=rows,
        )
        self._key = names(key)
        self._delete_when = delete_when
        self._merge_schema = merge_schema
        why = None
        if mode not in ("append", "upsert"):
            why = f"mode={mode!r} must be 'append' or 'upsert'"
        elif (mode == "upsert") != bool(self._key):
            why = "mode='upsert' needs key=, the columns that identify a row, and goes with it only"
        elif delete_when is not None and not self._key:
            why = "delete_when means something with mode='upsert' only"
        elif delete_when in (*self._key, *self._partition_by) and delete_when:
            why = f"delete_when={delete_when!r} is not written: no key and no partition"
        if why is not None:
            raise self._contradiction(why)

    def _access(self) -> DeltaAccess:
        return DeltaAccess(self._path, self._store, self._partition_by, self._where)


def statistics(rows: int, stats: Mapping[str, Any], columns: Mapping[str, str | None]) -> str:
    """JSON, as a table's log has it. Where one column has no bound, none is said of any: readers
    (delta-rs) take one that is missing among others for a proof that nothing matches. NaN has none,
    for readers disagree where it stands.
    """
    whole = _text({"numRecords": rows, "nullCount": stats["nulls"]})
    low, high = (
        {name: _json(value, columns[name] or "") for name, value in stats[end].items()}
        for end in ("low", "high")
    )
    is_whole = low.keys() == high.keys() and None not in (*low.values(), *high.values())
    if any(stats["nans"].values()) or not is_whole:
        return whole
    return f'{whole[:-1]}, "minValues": {_object(low)}, "maxValues": {_object(high)}}}'


def _json(value: Any, kind: str) -> str | None:
    """None: it cannot be said."""
    if kind == "date":
        return _text(day_text(value)) if DAY_FIRST <= value <= DAY_LAST else None
    if kind.startswith("timestamp"):
        if not MICROS_FIRST <= value <= MICROS_LAST:
            return None
        zone = "Z" if kind == "timestamp" else ""
        return _text(instant_text(value, between="T") + zone)
    if kind.startswith("decimal"):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return _text(value)


def _object(values: Mapping[str, str | None]) -> str:
    return f"{{{', '.join(f'{_text(name)}: {value}' for name, value in values.items())}}}"


def _text(value: object) -> str:
    """JSON without escapes beyond ASCII: delta-rs reads a pair of them as another character."""
    return json.dumps(value, ensure_ascii=False)


def _partition(folder: str) -> dict[str, str | None]:
    """What a partition's folder would be called, as columns and values."""
    pairs = [level.split("=", 1) for level in folder.split("/") if level]
    return {unquote(name): None if v == NULL else unquote(v) for name, v in pairs}


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
        said = str(error).strip().partition("\n")[0]
        lasting = isinstance(error, known.DeltaProtocolError | known.SchemaMismatchError)
        if lasting or any(word in said for word in LASTING):
            raise SettingRefused(
                "LAKE_FEATURE",
                f"{where}: delta-rs, which exactum writes by, does not take the table: {said}",
            ) from error
        raise Unavailable(
            f"{where}: the table could not be read or written: {said}. Start the query again when "
            "it can be."
        ) from error
