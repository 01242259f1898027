"""How the rows of one task become Parquet files of a table, each with the statistics that readers
pass over files by.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from exactum.errors import FrameRefused
from exactum.files.format import Encoder, FileFormat, ParquetEncoder
from exactum.files.partition import Partitioning
from exactum.files.writer import FilePlan, FileRows, Refusal
from exactum.lake.types import spark_type
from exactum.sinks.rows import RowCheck
from exactum.values.nested import Mask, is_bytes, is_text, rows_where
from exactum.values.times import out_of_years

TEXT_MAX = 32
"""Characters of a bound."""
LAST = "\U0010ffff"
"""The last character there is."""
Columns = Sequence[tuple[str, str]]
"""(name, Spark's simple type string)"""


@dataclass(frozen=True)
class TablePlan:
    """What tasks and driver know of the table that a run writes to; picklable.

    ``columns`` of the table; of these ``wanted`` may not be null, and ``indexed`` have statistics.
    ``schema_id``: which of its schemas this is. ``key``: of an upsert. ``delete_when``: a column of
    the frame that the table has not.
    """

    table_id: str
    schema_id: int
    columns: Columns
    wanted: frozenset[str]
    indexed: frozenset[str]
    parting: tuple[str, ...]
    partitioning: Partitioning
    codec: str
    key: tuple[str, ...]
    delete_when: str | None

    @property
    def facts(self) -> Mapping[str, Any]:
        """What goes on record with the files of a task: how they go into which table."""
        return {
            "table": self.table_id,
            "schema": self.schema_id,
            "parting": self.parting,
            "key": self.key,
            "delete_when": self.delete_when,
        }


class TableRows(FileRows):
    """See the base class. An upsert's files are read by the driver, so they are not parted."""

    def __init__(self, plan: TablePlan, bytes_per_file_max: int) -> None:
        options = (("compression", plan.codec), ("compression_level", None))
        format_ = TableFormat("parquet", options, plan.indexed)
        super().__init__(FilePlan(format_, (), bytes_per_file_max))
        if not plan.key:
            self._partitioning = plan.partitioning
        self._refusal = TableRefusal(plan)

    def facts(self, encoder: Encoder) -> Mapping[str, Any]:
        assert isinstance(encoder, TableEncoder)
        return {"stats": encoder.statistics()}


class TableRefusal(Refusal):
    """Rows that the table cannot hold: see the base class, and null where the table or a key has
    none; and days that delta-rs, which merges an upsert, does not count to, or has no text for.
    """

    def __init__(self, plan: TablePlan) -> None:
        super().__init__("parquet", plan.partitioning, ())
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
        for name in check.batch.schema.names if self._plan.key else ():
            values = check.batch.column(name)
            why = f"column {name!r} has a date outside the years 1 to 9999, which no upsert takes"
            check.refuse(rows_where(values, _out_of_years), why, values)


def _out_of_years(values: pa.Array) -> Mask | None:
    """Of dates alone: instants of any year are merged."""
    return out_of_years(values) if pa.types.is_date(values.type) else None


@dataclass(frozen=True)
class TableFormat(FileFormat):
    """Parquet, whose encoder says what a file holds."""

    indexed: frozenset[str]

    def encoder(self, stream: Any, schema: pa.Schema) -> Encoder:
        return TableEncoder(stream, schema, self._option("compression"), self.indexed)


class TableEncoder(ParquetEncoder):
    """See the base class."""

    def __init__(
        self, stream: Any, schema: pa.Schema, codec: str, indexed: Collection[str]
    ) -> None:
        super().__init__(stream, schema, codec, None)
        own = [field for field in schema if field.name in indexed]
        self._kinds = {f.name: f.type for f in own if not pa.types.is_nested(f.type)}
        self._nulls = dict.fromkeys(self._kinds, 0)
        self._nans = {n: 0 for n, kind in self._kinds.items() if pa.types.is_floating(kind)}
        self._ends: dict[str, tuple[Any, Any]] = {}

    def write(self, table: pa.Table) -> None:
        super().write(table)
        for name, kind in self._kinds.items():
            column = table.column(name)
            self._nulls[name] += column.null_count
            if name in self._nans:
                nan = pc.fill_null(pc.is_nan(column), False)
                self._nans[name] += pc.sum(nan).as_py() or 0
                column = column.filter(pc.invert(nan))
            if is_bytes(kind) or column.null_count == len(column):
                continue
            found = pc.min_max(column)
            low, high = _plain(found["min"], kind), _plain(found["max"], kind)
            before = self._ends.get(name, (low, high))
            self._ends[name] = min(low, before[0]), max(high, before[1])

    def statistics(self) -> Mapping[str, Any]:
        """Of each column that has them: how many values are null and NaN, and the lowest and the
        highest that is neither. For JSON: days and microseconds are numbers, and decimals texts.
        """
        low = {name: _low(ends[0], self._kinds[name]) for name, ends in self._ends.items()}
        high = {name: _high(ends[1], self._kinds[name]) for name, ends in self._ends.items()}
        said = {name: value for name, value in high.items() if value is not None}
        return {"nulls": self._nulls, "nans": self._nans, "low": low, "high": said}


def _plain(value: pa.Scalar, kind: pa.DataType) -> Any:
    """Days and microseconds as numbers: Python's dates end with the years 1 and 9999."""
    is_time = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
    return value.value if is_time else value.as_py()


def _low(value: Any, kind: pa.DataType) -> Any:
    if is_text(kind):
        return value[:TEXT_MAX]
    if pa.types.is_floating(kind):
        return value or -0.0  # readers may tell it from the other zero
    return format(value, "f") if pa.types.is_decimal(kind) else value


def _high(value: Any, kind: pa.DataType) -> Any:
    """None: it cannot be said."""
    if is_text(kind):
        if len(value) <= TEXT_MAX:
            return value
        # No text that begins like this one comes after it, but one that goes on with LAST.
        return None if value[TEXT_MAX] == LAST else value[:TEXT_MAX] + LAST
    if pa.types.is_floating(kind):
        return value or 0.0
    return _low(value, kind)
