"""How the rows of a task are parted and sorted in an Iceberg table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exactum.files.partition import Partitioning
from exactum.sinks.rows import RowCheck
from exactum.values.times import out_of_years

_UNITS = {"year": "Y", "month": "M", "day": "D", "hour": "h"}


@dataclass(frozen=True)
class PartLevel:
    """One field of a partition: ``transform`` in Iceberg's words (``bucket[16]``) of the column
    ``source``, whose type ``kind`` is Iceberg's. ``text`` is how a user writes it.
    """

    text: str
    transform: str
    source: str
    kind: str


@dataclass(frozen=True)
class SortKey:
    """A column that rows are sorted by."""

    column: str
    is_descending: bool
    nulls_first: bool


class TransformPartitioning(Partitioning):
    """See the base class. All columns stay in the files, in the table's types and with its ids of
    fields. What a partition is called is JSON, level by level.
    """

    def __init__(
        self, levels: Sequence[PartLevel], schema: pa.Schema, sort_by: Sequence[SortKey]
    ) -> None:
        super().__init__([level.text for level in levels])
        self._levels = {level.text: level for level in levels}
        self._schema = schema
        self._sort_by = sort_by

    def split(self, table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        fields = [self._schema.field(name) for name in table.column_names]
        return super().split(self._sorted(table.cast(pa.schema(fields))))

    def check(self, check: RowCheck) -> None:
        """Refuse rows whose partition pyiceberg could not commit, once they are decided: it has no
        words for other years, and the ends of numbers may truncate to what is none any more.
        """
        for level in self._levels.values():
            if level.source not in check.batch.schema.names:
                continue
            what = f"column {level.source!r}, by which the table is partitioned,"
            values = check.batch.column(level.source)
            if level.transform.startswith("truncate"):
                low = _lowest(values.type, int(level.transform[9:-1]))
                if low is not None:
                    check.refuse(pc.less(values, low), f"{what} has no truncation")
            elif level.transform in ("identity", *_UNITS):
                if pa.types.is_timestamp(values.type):
                    values = values.view(pa.timestamp("us"))  # the years of UTC, of no other clock
                check.refuse(out_of_years(values), f"{what} is outside the years 1 to 9999")

    def _kept(self, table: pa.Table) -> pa.Table:
        return table

    def _level(self, table: pa.Table, column: str) -> pa.Array:
        level = self._levels[column]
        if level.source not in table.column_names:
            return pa.nulls(table.num_rows, pa.int32())
        values = table.column(level.source).combine_chunks()
        unit = _UNITS.get(level.transform)
        if unit is None:
            return values
        is_date = pa.types.is_date(values.type)
        numbers = values.view(pa.int32() if is_date else pa.int64()).fill_null(0).to_numpy()
        times = numbers.astype("M8[D]" if is_date else "M8[us]").astype(f"M8[{unit}]")
        return pa.array(times.astype(np.int64), mask=values.is_null().to_numpy(False))

    def _names(self, column: str, values: pa.Array) -> Sequence[str]:
        level = self._levels[column]
        if pa.types.is_date(values.type):
            values = values.view(pa.int32())
        elif pa.types.is_timestamp(values.type):
            values = values.view(pa.int64())
        found = values.to_pylist()
        if "[" in level.transform:
            change = _transform(level)
            found = [change(value) for value in found]
        return [_text(value) for value in found]

    def _sorted(self, table: pa.Table) -> pa.Table:
        """Each run of rows by itself, so a file of many is sorted in pieces."""
        by, wide = [], table
        for number, key in enumerate(self._sort_by):
            if key.column in table.column_names:
                nulls = f"\0{number}"
                wide = wide.append_column(nulls, pc.is_null(table.column(key.column)))
                by.append((nulls, "descending" if key.nulls_first else "ascending"))
                by.append((key.column, "descending" if key.is_descending else "ascending"))
        return table.take(pc.sort_indices(wide, by)) if by else table


def _lowest(kind: pa.DataType, width: int) -> pa.Scalar | None:
    """The lowest number of the type whose truncation is of the type, too."""
    if pa.types.is_integer(kind):
        return pa.scalar(-(2 ** (kind.bit_width - 1) // width) * width, kind)
    if not pa.types.is_decimal(kind):
        return None
    digits = -((10**kind.precision - 1) // width) * width
    return pa.scalar(Decimal(digits).scaleb(-kind.scale, Context(prec=76)), kind)


def _transform(level: PartLevel) -> Any:
    """A function of one value."""
    from pyiceberg.transforms import parse_transform
    from pyiceberg.types import NestedField

    field = {"id": 1, "name": "source", "type": level.kind, "required": False}
    kind = NestedField.model_validate(field).field_type
    return parse_transform(level.transform).transform(kind)


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        value = value.hex()
    if isinstance(value, Decimal):
        value = format(value, "f")
    return json.dumps(value).replace("/", "\\u002f")
