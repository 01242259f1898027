"""How the rows of one task become Parquet files of a table, each with the statistics that readers
pass over files by.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from exactum.errors import FrameRefused
from exactum.files.format import Encoder, FileFormat, ParquetEncoder
from exactum.files.partition import Partitioning
from exactum.files.place import NameLimits
from exactum.files.refusal import Refusal
from exactum.files.writer import FilePlan, FileRows
from exactum.lake.types import spark_type
from exactum.protocol.sink import TaskName, WriteOrder, Writer
from exactum.sinks.rows import RowCheck
from exactum.sinks.staging import Staging
from exactum.sinks.writer import StagedWriter
from exactum.values.nested import is_bytes, is_text
from exactum.values.times import (
    DAY_FIRST,
    DAY_LAST,
    MICROS_FIRST,
    MICROS_LAST,
    day_text,
    instant_text,
)

TEXT_MAX = 32
"""Characters of a bound."""
LAST = "\U0010ffff"
"""The last character there is."""
ANY_NAME = NameLimits(2**31, 2**31)
"""What a partition is called stands in the table's log and in no file's name."""

Columns = Sequence[tuple[str, str]]
"""(name, Spark's simple type string)"""


@dataclass(frozen=True)
class TablePlan:
    """What tasks and driver know of the table that a run writes to; picklable.

    ``columns`` of the table; of these ``wanted`` may not be null, and ``indexed`` have statistics.
    ``key``: of an upsert. ``delete_when``: a column of the frame that the table has not.
    """

    table_id: str
    columns: Columns
    wanted: frozenset[str]
    indexed: frozenset[str]
    partition_by: tuple[str, ...]
    key: tuple[str, ...]
    delete_when: str | None

    @property
    def facts(self) -> Mapping[str, Any]:
        """What goes on record with the files of a task: how they go into which table."""
        return {
            "table": self.table_id,
            "partition_by": self.partition_by,
            "key": self.key,
            "delete_when": self.delete_when,
        }


@dataclass(frozen=True)
class TableWriters:
    """Goes to the executors; opens a writer there."""

    staging: Staging
    plan: TablePlan
    bytes_per_file_max: int

    def open(self, order: WriteOrder, task: TaskName) -> Writer:
        where = self.staging.storage.where
        rows = TableRows(self.staging, self.plan, self.bytes_per_file_max)
        return StagedWriter(self.staging, order, task, rows, at=where, facts=self.plan.facts)


class TableRows(FileRows):
    """See the base class. An upsert's files are read by the driver, so they are not parted."""

    def __init__(self, staging: Staging, plan: TablePlan, bytes_per_file_max: int) -> None:
        parts = () if plan.key else plan.partition_by
        format_ = TableFormat("parquet", (), plan.indexed)
        super().__init__(FilePlan(staging, ANY_NAME, format_, parts, None, bytes_per_file_max))
        self._refusal = TableRefusal(plan)

    def facts(self, encoder: Encoder) -> Mapping[str, Any]:
        assert isinstance(encoder, TableEncoder)
        return {"stats": encoder.statistics()}


class TableRefusal(Refusal):
    """Rows that the table cannot hold: see the base class, and null where the table, a key or the
    name of a partition has none.
    """

    def __init__(self, plan: TablePlan) -> None:
        super().__init__("parquet", Partitioning(plan.partition_by, ANY_NAME), ())
        self._plan = plan

    def check_schema(self, schema: pa.Schema) -> None:
        super().check_schema(schema)
        table, flag = dict(self._plan.columns), self._plan.delete_when
        for column in schema:
            wanted = "boolean" if column.name == flag else table.get(column.name)
            if spark_type(column.type) != wanted or wanted is None:
                raise FrameRefused(
                    "LAKE_COLUMNS",
                    f"The rows have the column {column.name!r} of the type {column.type}, and the "
                    f"table has {wanted or 'none of that name'}, which does not hold it exactly. "
                    "Cast it in the query. Nothing of the epoch is visible.",
                )
        missing = sorted(self._plan.wanted - set(schema.names))
        if missing:
            raise FrameRefused(
                "LAKE_COLUMNS",
                f"The rows lack the column {missing[0]!r}, which the table has as NOT NULL. "
                "Nothing of the epoch is visible.",
            )

    def check_rows(self, check: RowCheck) -> None:
        for name in sorted({*self._plan.wanted, *self._plan.key}):
            what = "which is part of the key" if name in self._plan.key else "which is NOT NULL"
            check.refuse(check.batch.column(name).is_null(), f"column {name!r}, {what}, is null")
        for name in self._plan.partition_by:
            values = check.batch.column(name)
            if is_text(values.type):
                empty = pc.equal(pc.binary_length(values), 0)
                check.refuse(
                    empty, f"column {name!r}, which names the partition, is the empty text"
                )


@dataclass(frozen=True)
class TableFormat(FileFormat):
    """Parquet, whose encoder says what a file holds."""

    indexed: frozenset[str]

    def encoder(self, stream: Any, schema: pa.Schema) -> Encoder:
        return TableEncoder(stream, schema, self.indexed)


class TableEncoder(ParquetEncoder):
    """See the base class."""

    def __init__(self, stream: Any, schema: pa.Schema, indexed: Collection[str]) -> None:
        super().__init__(stream, schema, "snappy", None)
        own = [field for field in schema if field.name in indexed]
        self._kinds = {f.name: f.type for f in own if not pa.types.is_nested(f.type)}
        self._rows = 0
        self._nulls = dict.fromkeys(self._kinds, 0)
        self._ends: dict[str, tuple[Any, Any]] = {}
        self._has_nan = False

    def write(self, table: pa.Table) -> None:
        super().write(table)
        self._rows += table.num_rows
        for name, kind in self._kinds.items():
            column = table.column(name)
            self._nulls[name] += column.null_count
            if is_bytes(kind) or column.null_count == table.num_rows:
                continue
            if pa.types.is_floating(kind) and pc.any(pc.is_nan(column)).as_py():
                self._has_nan = True
                continue
            found = pc.min_max(column)
            low, high = _plain(found["min"], kind), _plain(found["max"], kind)
            before = self._ends.get(name, (low, high))
            self._ends[name] = min(low, before[0]), max(high, before[1])

    def statistics(self) -> str:
        """JSON, as a table's log has it: the rows, how many are null in each column, and its lowest
        and highest value. Where one column has no bound, none is said of any: readers (delta-rs)
        take one that is missing among others for a proof that nothing matches. NaN has none,
        for readers disagree where it stands.
        """
        whole = _text({"numRecords": self._rows, "nullCount": self._nulls})
        low = {name: _low(ends[0], self._kinds[name]) for name, ends in self._ends.items()}
        high = {name: _high(ends[1], self._kinds[name]) for name, ends in self._ends.items()}
        if self._has_nan or None in (*low.values(), *high.values()):
            return whole
        return f'{whole[:-1]}, "minValues": {_object(low)}, "maxValues": {_object(high)}}}'


def _plain(value: pa.Scalar, kind: pa.DataType) -> Any:
    """Days and microseconds as numbers: Python's dates end with the years 1 and 9999."""
    is_time = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
    return value.value if is_time else value.as_py()


def _low(value: Any, kind: pa.DataType) -> str | None:
    """As JSON; None: it cannot be said."""
    return _json(value[:TEXT_MAX] if is_text(kind) else value, kind)


def _high(value: Any, kind: pa.DataType) -> str | None:
    if is_text(kind) and len(value) > TEXT_MAX:
        # No text that begins like this one comes after it, but one that goes on with LAST.
        return None if value[TEXT_MAX] == LAST else _json(value[:TEXT_MAX] + LAST, kind)
    return _json(value, kind)


def _json(value: Any, kind: pa.DataType) -> str | None:
    if pa.types.is_date(kind):
        return _text(day_text(value)) if DAY_FIRST <= value <= DAY_LAST else None
    if pa.types.is_timestamp(kind):
        if not MICROS_FIRST <= value <= MICROS_LAST:
            return None
        return _text(instant_text(value, between="T") + ("Z" if kind.tz is not None else ""))
    if pa.types.is_decimal(kind):
        return format(value, "f")
    if pa.types.is_floating(kind) and not math.isfinite(value):
        return None
    return _text(value)


def _object(values: Mapping[str, str | None]) -> str:
    return f"{{{', '.join(f'{_text(name)}: {value}' for name, value in values.items())}}}"


def _text(value: object) -> str:
    """JSON without escapes beyond ASCII: delta-rs reads a pair of them as another character."""
    return json.dumps(value, ensure_ascii=False)
