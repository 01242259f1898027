"""COPY's binary format of Arrow batches, by whole arrays: the server reads it without parsing a
text. Pure.

A row is the number of its fields, and each field is its length (-1: null) and its bytes. Fields of
one width go first: of all rows, they are one NumPy array of records. Texts and bytes follow: Arrow
joins them to the records, row by row, and what it joined is what goes over the wire. No value
becomes a Python value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exactum.sql.dialect import DOUBLE_BITS, ROW
from exactum.sql.table import Column, Kind
from exactum.values import times
from exactum.values.nested import is_bytes, is_text

HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
"""Before the first row: a signature, no flags, no further header."""
TAIL = b"\xff\xff"
"""After the last row: a number of fields that no row has."""
NULL = -1
DAYS_TO_2000 = 10_957
"""PostgreSQL's dates and times begin with 2000-01-01."""
MICROS_TO_2000 = DAYS_TO_2000 * times.MICROS_A_DAY
DECIMAL_DIGITS_MAX = 18
"""Decimals of more digits have no room in 64 bits."""
BIGINT_DIGITS = 19
GROUP_DIGITS = 4
"""Of a numeric's base, 10,000."""
GROUP = 10**GROUP_DIGITS
NEGATIVE = 0x4000
TEXT_READERS = ("textrecv", "varcharrecv", "bpcharrecv", "citextrecv")
BYTES_READERS = ("bytearecv",)

Fill = Callable[[Any, Any], None]
"""(where a column's values go, an Arrow array without nulls)"""


@dataclass(frozen=True)
class Fixed:
    """A column whose values all have the same width: the server's function that reads one, what
    NumPy calls one, and how they get there.
    """

    reader: str
    dtype: Any
    fill: Fill


class BinaryRows:
    """The rows of one task as a binary COPY takes them. See ``binary_rows``."""

    format = "binary"

    def __init__(self, columns: Sequence[Column], fixed: dict[int, Fixed], numbered: bool) -> None:
        self._fixed = fixed
        self._texts = [place for place in range(len(columns)) if place not in fixed]
        own = [ROW] if numbered else []
        ordered = [*fixed, *self._texts]
        self.names = (*own, *(columns[place].name for place in ordered))
        self.readers: dict[str, Sequence[str]] = dict.fromkeys(own, ("int8recv",))
        for place, column in enumerate(columns):
            if place in fixed:
                self.readers[column.name] = (fixed[place].reader,)
            else:
                self.readers[column.name] = (
                    TEXT_READERS if column.kind is Kind.TEXT else BYTES_READERS
                )
        fields: list[tuple[str, Any]] = [("count", ">i2")]
        for name in own:
            fields += [(f"length {name}", ">i4"), (name, ">i8")]
        for place, one in fixed.items():
            fields += [(f"length {place}", ">i4"), (str(place), one.dtype)]
        if self._texts:
            fields.append((f"length {self._texts[0]}", ">i4"))
        self._record = np.dtype(fields)
        self._records = np.zeros(0, self._record)

    def encoded(self, batch: Any, numbers: Any) -> Any:
        """The rows of a batch that has the columns which this was made for, in their order;
        ``numbers`` (NumPy) if the rows are numbered.

        Returns bytes that are valid until the next call.
        """
        records = self._blank(batch.num_rows)
        if numbers is not None:
            records[ROW] = numbers
        nulls: dict[str, Any] = {}
        for place, one in self._fixed.items():
            values = batch.column(place)
            if values.null_count:
                nulls[str(place)] = values.is_null().to_numpy(zero_copy_only=False)
                values = values.fill_null(_zero(values.type))
            one.fill(records[str(place)], values)
        if not self._texts:
            return _without(records, nulls)[0]
        lengths = [_lengths(batch.column(place)) for place in self._texts]
        records[f"length {self._texts[0]}"] = lengths[0]
        joined = [_array(*_without(records, nulls)), _bytes(batch.column(self._texts[0]))]
        for place, length in zip(self._texts[1:], lengths[1:], strict=True):
            width = np.full(batch.num_rows, 4)
            joined += [_array(length.astype(">i4"), width), _bytes(batch.column(place))]
        whole = pc.binary_join_element_wise(
            *joined, pa.scalar(b"", pa.large_binary()), null_handling="replace", null_replacement=""
        )
        _, offsets, data = whole.buffers()
        ends = np.frombuffer(offsets, np.int64, len(whole) + 1, whole.offset * 8)
        return memoryview(data)[int(ends[0]) : int(ends[-1])]

    def _blank(self, count: int) -> Any:
        """Records with everything that is the same in each row; the last ones again, if they are as
        many.
        """
        records = self._records
        if len(records) != count:
            self._records = records = np.zeros(count, self._record)
            records["count"] = len(self.names)
            for name, (dtype, *_) in (self._record.fields or {}).items():
                if f"length {name}" in (self._record.fields or {}):
                    records[f"length {name}"] = dtype.itemsize
        return records


def binary_rows(
    columns: Sequence[Column], kinds: Sequence[Any], numbered: bool
) -> BinaryRows | None:
    """How rows of these Arrow types go into these columns; None where one of them has to be text.

    ``numbered`` says whether ``exactum_row`` is filled.
    """
    fixed: dict[int, Fixed] = {}
    for place, (column, kind) in enumerate(zip(columns, kinds, strict=True)):
        if column.element is not None or column.judged:
            return None
        if column.kind is Kind.TEXT and is_text(kind):
            continue
        if column.kind is Kind.BYTES and is_bytes(kind):
            continue
        one = fixed_of(column, kind)
        if one is None:
            return None
        fixed[place] = one
    return BinaryRows(columns, fixed, numbered)


def fixed_of(column: Column, kind: Any) -> Fixed | None:
    """How values of an Arrow type go into a column whose values have one width; None: as text."""
    whole = pa.types.is_signed_integer(kind)
    match column.kind:
        case Kind.BOOLEAN if pa.types.is_boolean(kind):
            return Fixed("boolrecv", np.dtype("u1"), _fill)
        case Kind.INTEGER if whole and column.limits.highest is not None:
            size = (column.limits.highest.bit_length() + 1) // 8
            return Fixed(f"int{size}recv", np.dtype(f">i{size}"), _fill)
        case Kind.FLOAT if column.limits.precision == DOUBLE_BITS:
            if whole or pa.types.is_float32(kind) or pa.types.is_float64(kind):
                return Fixed("float8recv", np.dtype(">f8"), _fill_floats)
        case Kind.FLOAT if whole or pa.types.is_float32(kind):
            return Fixed("float4recv", np.dtype(">f4"), _fill_floats)
        case Kind.DECIMAL if whole:
            return _numeric(BIGINT_DIGITS, 0)
        case Kind.DECIMAL if pa.types.is_decimal128(kind):
            if kind.precision <= DECIMAL_DIGITS_MAX and 0 <= kind.scale <= kind.precision:
                return _numeric(kind.precision, kind.scale)
        case Kind.DATE if pa.types.is_date32(kind):
            return Fixed("date_recv", np.dtype(">i4"), _fill_days)
        case Kind.TIMESTAMP if pa.types.is_date32(kind):
            return Fixed("timestamp_recv", np.dtype(">i8"), _fill_midnights)
        case Kind.TIMESTAMP if pa.types.is_timestamp(kind) and kind.tz is None:
            return Fixed("timestamp_recv", np.dtype(">i8"), _fill_instants)
        case Kind.TIMESTAMP_TZ if pa.types.is_timestamp(kind) and kind.tz is not None:
            return Fixed("timestamptz_recv", np.dtype(">i8"), _fill_instants)
    return None


def _fill(into: Any, values: Any) -> None:
    into[:] = values.to_numpy(zero_copy_only=False)


def _fill_floats(into: Any, values: Any) -> None:
    """NaN is always the same one, as it is when the server reads it from a text."""
    numbers = values.to_numpy(zero_copy_only=False)
    into[:] = numbers
    none = np.isnan(numbers)
    if none.any():
        into[none] = np.nan


def _fill_days(into: Any, values: Any) -> None:
    into[:] = values.view(pa.int32()).to_numpy() - DAYS_TO_2000


def _fill_midnights(into: Any, values: Any) -> None:
    days = values.view(pa.int32()).to_numpy().astype(np.int64)
    into[:] = (days - DAYS_TO_2000) * times.MICROS_A_DAY


def _fill_instants(into: Any, values: Any) -> None:
    into[:] = times.micros_of(values).to_numpy() - MICROS_TO_2000


def _numeric(precision: int, scale: int) -> Fixed:
    """A numeric with as many groups of digits as its largest value has: the server drops zeros in
    front and behind.
    """
    whole, fraction = -(-(precision - scale) // GROUP_DIGITS), -(-scale // GROUP_DIGITS)
    digits = whole + fraction
    dtype = np.dtype(
        [
            ("digits", ">i2"),
            ("weight", ">i2"),
            ("sign", ">u2"),
            ("scale", ">i2"),
            ("groups", ">i2", (digits,)),
        ]
    )
    last = 10 ** (scale - (fraction - 1) * GROUP_DIGITS)
    """How much the last group of the fraction counts: it may have fewer digits than four."""

    def fill(into: Any, values: Any) -> None:
        numbers = _unscaled(values)
        into["digits"], into["weight"], into["scale"] = digits, whole - 1, scale
        into["sign"] = np.where(numbers < 0, NEGATIVE, 0)
        left = np.abs(numbers).view(np.uint64)  # the lowest of all is its own absolute value here
        for place in range(digits - 1, -1, -1):
            one = np.uint64(last if fraction and place == digits - 1 else GROUP)
            left, group = np.divmod(left, one)
            into["groups"][:, place] = group * (np.uint64(GROUP) // one)

    return Fixed("numeric_recv", dtype, fill)


def _unscaled(values: Any) -> Any:
    """Whole numbers or the digits of decimals that have room in 64 bits, as those."""
    if not pa.types.is_decimal128(values.type):
        return values.to_numpy().astype(np.int64)
    halves = np.frombuffer(values.buffers()[1], np.int64)
    return halves[2 * values.offset : 2 * (values.offset + len(values)) : 2]


def _zero(kind: Any) -> Any:
    """What stands in for a null, whose bytes are not sent."""
    return pa.scalar(False if pa.types.is_boolean(kind) else 0, kind)


def _without(records: Any, nulls: dict[str, Any]) -> tuple[Any, Any]:
    """The records' bytes without those of nulls, and how many each row has."""
    fields = records.dtype.fields
    widths = np.full(len(records), records.dtype.itemsize)
    if not nulls:
        return memoryview(records.view(np.uint8)), widths
    keep = np.ones((len(records), records.dtype.itemsize), bool)
    for name, mask in nulls.items():
        dtype, start, *_ = fields[name]
        records[f"length {name}"][mask] = NULL
        keep[mask, start : start + dtype.itemsize] = False
        widths[mask] -= dtype.itemsize
    data = records.view(np.uint8).reshape(keep.shape)[keep]
    for name, mask in nulls.items():
        records[f"length {name}"][mask] = fields[name][0].itemsize  # they are used again
    return memoryview(data), widths


def _array(data: Any, widths: Any) -> Any:
    """Bytes, one piece after another, as an Arrow array of the pieces."""
    ends = np.zeros(len(widths) + 1, np.int64)
    np.cumsum(widths, out=ends[1:])
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(widths), buffers)


def _bytes(values: Any) -> Any:
    return values.cast(pa.large_binary())


def _lengths(values: Any) -> Any:
    """Of texts and bytes, in bytes."""
    return pc.fill_null(pc.binary_length(values), NULL).to_numpy()
