"""``IcebergSink``: an Iceberg table as the target of a query, by pyiceberg.

The marker is a property of the table, set in the commit that brings the rows: snapshots expire, and
what stands in their summaries goes with them. A commit says which snapshot its branch had, and so
at most one of two from the same version comes through.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pyarrow as pa

from exactum.errors import FrameRefused, SettingRefused, Unavailable
from exactum.files.sink import BYTES_PER_FILE_MAX, checked_path
from exactum.lake.rows import Columns
from exactum.lake.sink import TableSink, check_table_columns, names, schema_of
from exactum.lake.target import (
    BatchMarker,
    CommitConflict,
    CommitUnknown,
    DataFile,
    TableAccess,
    TableVersion,
)
from exactum.lake.transforms import PartLevel, SortKey, TransformPartitioning
from exactum.lake.types import arrow_type, demands_a_value, parts_of, spark_type
from exactum.packages import not_installed

MAIN = "main"
MERGE = "commit.manifest-merge.enabled"
NEW_TABLE = {
    MERGE: "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
"""Properties of a table that is made here: what a commit writes does not grow without a bound."""
BREAKING = {
    "write.data.path": "so its files lie where exactum does not look",
    "encryption.key-id": "and exactum's files are not encrypted",
}
METRICS = "write.metadata.metrics."
CODECS = ("zstd", "snappy", "gzip", "brotli", "lz4", "uncompressed")
TRANSFORMS = {"identity", "year", "month", "day", "hour", "bucket", "truncate"}
_PARTED = re.compile(r"(\w+)\(\s*(?:(\d+)\s*,\s*)?([^(),]+?)\s*\)")
_SORTED = re.compile(r"(\S+)(?:\s+(asc|desc))?", re.IGNORECASE)


def parted_by(text: str, where: str) -> PartLevel:
    """``bucket(16, id)``, ``days(at)``, or a column's name.

    Raises:
        SettingRefused: it is none of these.
    """
    found = _PARTED.fullmatch(text)
    if found is None:
        return PartLevel(text, "identity", text, "")
    kind, width, source = found[1].lower(), found[2], found[3]
    kind = kind.removesuffix("s") if kind.removesuffix("s") in TRANSFORMS else kind
    if kind not in TRANSFORMS or (kind in ("bucket", "truncate")) != bool(width):
        raise SettingRefused(
            "LAKE_ARGUMENT",
            f"{where}: partition_by has {text!r}. Write a column's name, bucket(16, column), "
            "truncate(16, column), or year, month, day or hour(column).",
        )
    transform = f"{kind}[{width}]" if width else kind
    return PartLevel(_level_text(transform, source), transform, source, "")


def _level_text(transform: str, source: str) -> str:
    kind, _, width = transform.removesuffix("]").partition("[")
    if kind == "identity":
        return source
    return f"{kind}({width}, {source})" if width else f"{kind}({source})"


class IcebergVersion(TableVersion):
    """See the base class."""

    def __init__(self, table: Any, branch: str, where: str, location: str) -> None:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        metadata, schema = table.metadata, table.schema()
        properties = metadata.properties
        self._where = where
        self._branch = branch
        self._properties = properties
        # pyiceberg merges manifests where a table asks for it, and Iceberg's Java unless it does
        # not.
        table.metadata = metadata.model_copy(update={"properties": {MERGE: "true", **properties}})
        self._table = table
        self._arrow = schema_to_pyarrow(schema)
        self.location = location
        self.table_id = str(metadata.table_uuid)
        self.schema_id = schema.schema_id
        self.columns = {field.name: spark_type(field.type) for field in self._arrow}
        self.wanted = frozenset(f.name for f in self._arrow if not f.nullable)
        self.indexed = frozenset(name for name in self._arrow.names if self._is_indexed(name))
        codec = properties.get("write.parquet.compression-codec", "zstd").lower()
        self.codec = codec if codec in CODECS else "zstd"
        fields = table.spec().fields
        levels = [
            PartLevel(
                _level_text(text, source), text, source, str(schema.find_type(field.source_id))
            )
            for field in fields
            for text, source in [(str(field.transform), schema.find_column_name(field.source_id))]
        ]
        self._levels = [level for level in levels if level.transform != "void"]
        self.partition_by = tuple(level.text for level in self._levels)
        self.parting = tuple(_level_id(f) for f in fields if str(f.transform) != "void")

    def partitioning(self, *, upserts: bool) -> TransformPartitioning:
        return TransformPartitioning(self._levels, self._arrow, list(self._sort_keys()))

    def marker(self, scope: str) -> BatchMarker | None:
        found = json.loads(self._properties.get(scope, "{}"))
        batch = found.get("batch", -1)
        return None if batch < 0 else BatchMarker(batch, found["files"])

    def refuse(self, *, upserts: bool) -> None:
        found = self._in_the_way()
        if found is not None:
            raise SettingRefused(
                "LAKE_FEATURE",
                f"{self._where}: the table has {found}. Use a table without it, or have Spark "
                "write this one (SparkTableSink). Nothing was written.",
            )

    def changed(
        self, columns: Mapping[str, str | None], facts: Mapping[str, Any], *, decided: bool
    ) -> str | None:
        """Files name columns by their ids, so what is decided goes into a table whose columns were
        renamed or dropped as if it had come before. What comes later would be lost, where a column
        of the same name is another one.
        """
        then, now = self._schema_of(facts["schema"]), self._table.schema().as_struct()
        if decided:
            ids = {f.field_id for f in (then or now).fields if f.name in columns}
            lacks = [f.name for f in now.fields if f.required and f.field_id not in ids]
            return f"{lacks[0]!r} is NOT NULL" if lacks else None
        for name in columns:
            before = None if then is None else then.as_struct().field_by_name(name)
            if name not in self.columns:
                return f"its column {name!r} is gone"
            if before is None or before != now.field_by_name(name):
                return f"its column {name!r} was another one"
        return super().changed(columns, facts, decided=decided)

    def try_out(self, files: Sequence[DataFile]) -> None:
        from pyiceberg.conversions import to_bytes

        spec, schema = self._table.spec(), self._table.schema()
        kinds = [field.field_type for field in spec.partition_type(schema).fields]
        with _explained(self._where):
            for file in files:  # as summaries of manifests have it, and in words
                partition = self._data_file(file).partition
                spec.partition_to_path(partition, schema)
                for position, kind in enumerate(kinds):
                    if partition[position] is not None:
                        to_bytes(kind, partition[position])

    def append(self, files: Sequence[DataFile], scope: str, marker: BatchMarker | None) -> None:
        try:
            self._append(files, scope, marker)
        except SettingRefused as refusal:
            # A commit to another branch takes the sequence number that this one would have, and
            # catalogs answer that with all kinds of errors.
            if self._is_newest():
                raise
            raise CommitConflict(str(refusal)) from refusal

    def _append(self, files: Sequence[DataFile], scope: str, marker: BatchMarker | None) -> None:
        from pyiceberg.table.update import AssertTableUUID

        table = self._table
        with _explained(self._where, CommitUnknown):
            transaction = table.transaction()
            if marker is not None:
                value = {"batch": marker.batch_id, "files": marker.digest}
                transaction.set_properties({scope: json.dumps(value)})
            if files:
                added = transaction.update_snapshot(branch=self._branch).merge_append()
                for file in files:
                    added.append_data_file(self._data_file(file))
                added.commit()
            # Not by commit_transaction(): it would do the same again on top of a snapshot that
            # has the marker.
            same = AssertTableUUID(uuid=table.metadata.table_uuid)
            table._do_commit(transaction._updates, (*transaction._requirements, same))

    def files(self) -> Sequence[tuple[str, int]]:
        with _explained(self._where):
            if self._branch not in self._table.refs():
                return []
            scan = self._table.scan().use_ref(self._branch)
            return [(t.file.file_path, t.file.record_count) for t in scan.plan_files()]

    def rows(self) -> Iterator[pa.RecordBatch]:
        with _explained(self._where):
            if self._branch in self._table.refs():
                yield from self._table.scan().use_ref(self._branch).to_arrow_batch_reader()

    def add_columns(self, schema: pa.Schema) -> None:
        with _explained(self._where), self._table.update_schema() as update:
            update.union_by_name(schema)

    # ---- small steps -------------------------------------------------------------------------

    def _in_the_way(self) -> str | None:
        """What files that are added here would break, or what would go wrong without a word."""
        if self._table.metadata.format_version > 2:
            return f"the format version {self._table.metadata.format_version}"
        for name, why in BREAKING.items():
            if self._properties.get(name):
                return f"{name}, {why}"
        is_audited = self._properties.get("write.wap.enabled", "").lower() == "true"
        if is_audited and self._branch == MAIN:
            return "write.wap.enabled, and rows would be in it before their audit (give branch=)"
        ref = self._table.refs().get(self._branch)
        if ref is not None and ref.snapshot_ref_type != "branch":
            return f"a tag of the name {self._branch!r}, and no branch"
        if ref is None and self._branch != MAIN:  # pyiceberg's would lack the rows of main
            return f"no branch of the name {self._branch!r} (create it)"
        for level in self._levels:
            kind = level.transform.partition("[")[0]
            by_float = kind == "identity" and level.kind in ("float", "double")
            if kind not in TRANSFORMS or by_float or level.source not in self.columns:
                return f"the partition {level.text}"
        demanding = [field.name for field in self._arrow if demands_a_value(field.type)]
        return f"NOT NULL within the column {demanding[0]!r}" if demanding else None

    def _is_newest(self) -> bool:
        with _explained(self._where):
            newest = self._table.catalog.load_table(self._table.name())
            return bool(newest.metadata_location == self._table.metadata_location)

    def _is_indexed(self, name: str) -> bool:
        default = self._properties.get(f"{METRICS}default", "")
        mode = self._properties.get(f"{METRICS}column.{name}", default)
        return mode.lower() not in ("none", "counts")

    def _sort_keys(self) -> Iterator[SortKey]:
        schema = self._table.schema()
        for field in self._table.sort_order().fields:
            name = schema.find_column_name(field.source_id)
            if str(field.transform) != "identity" or name not in self.columns:
                return
            is_first = "first" in str(field.null_order).lower()
            yield SortKey(name, "desc" in str(field.direction).lower(), is_first)

    def _schema_of(self, schema_id: int) -> Any:
        """None: the table has forgotten it."""
        known = {schema.schema_id: schema for schema in self._table.metadata.schemas}
        return known.get(schema_id)

    def _data_file(self, file: DataFile) -> Any:
        """As a manifest has it. Its columns are those that its task knew."""
        from pyiceberg import manifest
        from pyiceberg.conversions import to_bytes
        from pyiceberg.typedef import Record

        table, schema = self._table, self._schema_of(file.schema_id)
        fields = {} if schema is None else {f.name: f for f in schema.fields}

        def by_id(key: str) -> dict[int, Any]:
            return {fields[n].field_id: v for n, v in file.stats[key].items() if n in fields}

        def bounds(end: str) -> dict[int, bytes]:
            kinds = {field.field_id: field.field_type for field in fields.values()}
            return {i: to_bytes(kinds[i], _typed(v, kinds[i])) for i, v in by_id(end).items()}

        kinds = [f.field_type for f in table.spec().partition_type(table.schema()).fields]
        levels = file.folder.split("/") if file.folder else []
        known = dict(zip(file.parting, map(json.loads, levels), strict=True))
        values = [known.get(_level_id(field)) for field in table.spec().fields]
        return manifest.DataFile.from_args(
            content=manifest.DataFileContent.DATA,
            file_path=f"{self.location.rstrip('/')}/{file.path}",
            file_format=manifest.FileFormat.PARQUET,
            partition=Record(*(_typed(v, k) for v, k in zip(values, kinds, strict=True))),
            record_count=file.rows,
            file_size_in_bytes=file.size_bytes,
            column_sizes={},
            value_counts=dict.fromkeys(by_id("nulls"), file.rows),
            null_value_counts=by_id("nulls"),
            nan_value_counts=by_id("nans"),
            lower_bounds=bounds("low"),
            upper_bounds=bounds("high"),
            key_metadata=None,
            split_offsets=None,
            equality_ids=None,
            sort_order_id=None,
            spec_id=table.metadata.default_spec_id,
        )


class IcebergAccess(TableAccess):
    """See the base class. The table's location is where it was when it was loaded first: files are
    moved there, and a table may have files at any place.
    """

    folder = "data/"

    def __init__(
        self,
        table: str,
        catalog: str | Mapping[str, str],
        branch: str,
        where: str,
        *,
        levels: Sequence[PartLevel],
        sort_by: Sequence[str],
        store: Mapping[str, Any] | None,
    ) -> None:
        self.where = where
        self.store = store
        self._name = table
        self._settings = {"name": catalog} if isinstance(catalog, str) else dict(catalog)
        self._branch = branch
        self._levels = levels
        self._sort_by = sort_by
        self._location = ""
        try:
            from pyiceberg.catalog import load_catalog
        except ImportError as error:
            raise SettingRefused(
                "PACKAGE_MISSING",
                not_installed("Iceberg tables need", "pyiceberg", "iceberg", "On the driver"),
            ) from error
        with _explained(where):
            self._catalog = load_catalog(**{"name": "default", **self._settings})

    def location(self) -> str:
        if not self._location and self.load() is None:
            raise SettingRefused(
                "LAKE_TABLE",
                f"{self.where}: there is no table, so nobody knows where its files are. Put it "
                "back, or see whether this is its catalog.",
            )
        location = self._location
        if location.startswith("file:"):  # no URL: what looks escaped in it is not
            location = "/" + location.removeprefix("file:").lstrip("/")
        return checked_path(location, None, "IcebergSink")

    def load(self) -> IcebergVersion | None:
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        with _explained(self.where):
            try:
                table = self._catalog.load_table(self._name)
            except (NoSuchTableError, NoSuchNamespaceError):
                return None
            self._location = self._location or str(table.location())
            return IcebergVersion(table, self._branch, self.where, self._location)

    def create(self, columns: Columns) -> None:
        from pyiceberg.table.sorting import NullOrder
        from pyiceberg.transforms import IdentityTransform, parse_transform

        with _explained(self.where):
            namespace = self._name.rpartition(".")[0]
            if not self._catalog.namespace_exists(namespace):  # who may not make one may have one
                self._catalog.create_namespace_if_not_exists(namespace)
            new = self._catalog.create_table_transaction(
                self._name, schema_of(columns), properties=NEW_TABLE
            )
            with new.update_spec() as spec:
                for level in self._levels:
                    spec.add_field(level.source, parse_transform(level.transform))
            with new.update_sort_order() as order:
                for text in self._sort_by:
                    name, _, direction = text.partition(" ")
                    if direction.strip().lower() == "desc":
                        order.desc(name, IdentityTransform(), NullOrder.NULLS_LAST)
                    else:
                        order.asc(name, IdentityTransform(), NullOrder.NULLS_FIRST)
            new.commit_transaction()

    def close(self) -> None:
        self._catalog.close()


class IcebergSink(TableSink):
    """Appends a frame's rows to an Iceberg table, one snapshot of it for each micro-batch that has
    rows. Needs ``pip install 'exactum[iceberg]'``, and no Iceberg in Spark.

    Tasks write Parquet into ``.exactum`` at the table's location, and the driver commits the files
    by pyiceberg, with a marker in the same commit. A table with features that this would break is
    refused by name.

    Args:
        table: its name in the catalog, with its namespace: ``"shop.orders"``.
        catalog: a catalog of pyiceberg's: the name of one in its configuration, or a mapping of its
            properties (``type``, ``uri``, ``warehouse`` ...), of which ``name`` is its name.
        branch: of the table; it must be there.
        partition_by: what a new table is partitioned by: ``"country"``, ``"bucket(16, id)"``,
            ``"truncate(4, zip)"``, ``"day(at)"``, likewise ``year``, ``month`` and ``hour``; of a
            table that is there, its own or none.
        sort_by: the sort order of a new table: names of columns, ``"at desc"`` for descending.
        create_table: make a table that is not there, with the frame's columns.
        merge_schema: add columns to the table that the frame has and the table has not.
        bytes_per_file_max: a file is closed when it has at least so many bytes; default 128 MiB.
        store: object stores only: a mapping of obstore's settings, as for ``FileSink``. Default:
            from the environment. (The catalog's are for what pyiceberg writes.)
        name: of the participant in decision records; default ``iceberg:<table>``, with the branch.
        rows: the sink's own view of the batch, a function from DataFrame to DataFrame.

    Raises:
        SettingRefused: a setting that cannot be.
    """

    def __init__(
        self,
        table: str,
        *,
        catalog: str | Mapping[str, str] = "default",
        branch: str = MAIN,
        partition_by: str | Sequence[str] | None = None,
        sort_by: str | Sequence[str] | None = None,
        create_table: bool = True,
        merge_schema: bool = False,
        bytes_per_file_max: int = BYTES_PER_FILE_MAX,
        store: Mapping[str, Any] | None = None,
        name: str | None = None,
        rows: Callable[[Any], Any] | None = None,
    ) -> None:
        where = f"IcebergSink({table!r})"
        own = f"iceberg:{table}" + ("" if branch == MAIN else f"@{branch}")
        levels = [parted_by(text, where) for text in names(partition_by)]
        super().__init__(
            where,
            name or own,
            partition_by=[level.text for level in levels],
            create_table=create_table,
            bytes_per_file_max=bytes_per_file_max,
            store=store,
            rows=rows,
        )
        self._merge_schema = merge_schema
        self._table = table
        self._catalog = catalog
        self._branch = branch
        self._part = "" if branch == MAIN else f", branch {branch}"
        self._levels = levels
        self._sort_by = names(sort_by)
        if "." not in table:
            raise self._contradiction("the name of a table has its namespace: 'shop.orders'")
        for text in self._sort_by:
            if _SORTED.fullmatch(text) is None:
                raise self._contradiction(f"sort_by has {text!r}; write 'column' or 'column desc'")

    def _access(self) -> IcebergAccess:
        return IcebergAccess(
            self._table,
            self._catalog,
            self._branch,
            self._where,
            levels=self._levels,
            sort_by=self._sort_by,
            store=self._store,
        )

    def _check(self, columns: Columns, partition_by: Sequence[str]) -> None:
        check_table_columns(columns, (), (), None, self._where)
        for name, kind in columns:
            if {pa.int8(), pa.int16()} & set(parts_of(arrow_type(kind))):
                raise FrameRefused(
                    "LAKE_COLUMNS",
                    f"{self._where}: the column {name!r} has the type {kind}, and Iceberg has no "
                    "number that small. Cast it to int. Nothing was written.",
                )


def _level_id(field: Any) -> str:
    """A field of a partition, whatever its column is called."""
    return f"{field.transform}({field.source_id})"


def _typed(value: Any, kind: Any) -> Any:
    """What JSON has as text."""
    if value is not None and str(kind).startswith("decimal"):
        return Decimal(value)
    return bytes.fromhex(value) if value is not None and str(kind) == "binary" else value


@contextmanager
def _explained(where: str, unknown: type[Unavailable] = Unavailable) -> Iterator[None]:
    """
    Raises:
        CommitConflict: nothing is committed.
        SettingRefused: no other try mends it.
        Unavailable: else, as ``unknown``.
    """
    from pyiceberg import exceptions as known
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (
        known.CommitFailedException,
        known.NoSuchTableError,
        known.TableAlreadyExistsError,
    ) as error:
        raise CommitConflict(str(error)) from error
    except (
        known.BadRequestError,
        known.ForbiddenError,
        known.NoSuchPropertyException,
        known.NotInstalledError,
        known.ValidationError,
        known.ValidationException,
        ArithmeticError,
        NotImplementedError,
        TypeError,
        struct.error,
    ) as error:
        raise _refused(where, error) from error
    except (OSError, known.RESTError, SQLAlchemyError) as error:
        raise unknown(
            f"{where}: the table or its catalog did not answer: {error}. Start the query again "
            "when they do."
        ) from error
    except ValueError as error:  # some of requests' are OSErrors as well
        raise _refused(where, error) from error


def _refused(where: str, error: Exception) -> SettingRefused:
    return SettingRefused(
        "LAKE_FEATURE",
        f"{where}: pyiceberg, which exactum writes by, or its catalog does not take that: {error}",
    )
