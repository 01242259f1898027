"""Rows for PostgreSQL's COPY: in its binary format where each column has one here, which the server
reads in two thirds of the time; else as CSV text that Arrow writes. By whole arrays: no value
becomes a Python value.

A task writes the binary format itself. Of the text it stages the columns, of which the driver makes
the lines: so it finds a row that the server alone refuses (``Column.judged``: JSON, inet, a domain
with a CHECK, ...), and has it as it was. In the text a null is an empty field and every string is
quoted, so an empty string stays one. What Arrow cannot write as PostgreSQL reads it (bytes, arrays,
structs, days of odd years) is turned into text before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from exactum.sinks.frames import packed
from exactum.sql.dialect import BINARY, DOUBLE_BITS
from exactum.sql.table import Column, Kind
from exactum.values import times
from exactum.values.json_text import joined, json_texts
from exactum.values.nested import Numbers, data_of, hex_texts, is_bytes, is_text
from exactum.values.texts import TEXT, concatenated

if TYPE_CHECKING:
    from exactum.sinks.frames import FrameWriter
    from exactum.sql.rows import Broken


# ---- a task's rows ---------------------------------------------------------------------------


CHUNK_ROWS = 65_536
"""Most rows that are encoded at once."""


class CopyRows(ABC):
    """See ``RowEncoder``. ``names``: the columns in the order of a row."""

    format: str
    names: Sequence[str]

    @property
    def header(self) -> Mapping[str, Any]:
        return {"format": self.format, "names": self.names}

    def write(self, batch: pa.RecordBatch, frames: FrameWriter) -> Broken | None:
        """See the port."""
        for start in range(0, batch.num_rows, CHUNK_ROWS):
            chunk = batch.slice(start, CHUNK_ROWS)
            frames.write(self.encoded(chunk), chunk.num_rows)
        return None

    @abstractmethod
    def encoded(self, batch: pa.RecordBatch) -> memoryview | pa.Buffer:
        """The frame of a batch that has the columns which this was made for, in their order; valid
        until the next call.
        """


def copy_rows(columns: Sequence[Column], kinds: Sequence[pa.DataType] | None) -> CopyRows:
    """``kinds`` are the columns' Arrow types, which choose the format; None: not known."""
    binary = None if kinds is None else binary_rows(columns, kinds)
    return binary or TextRows(columns)


# ---- the binary format -----------------------------------------------------------------------


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

Fill = Callable[[Any, pa.Array], None]
"""(where a column's values go, an Arrow array without nulls)"""


@dataclass(frozen=True)
class Fixed:
    """A column whose values all have the same width: what NumPy calls one, and how they get
    there.
    """

    dtype: Any
    fill: Fill


class BinaryRows(CopyRows):
    """The rows of one task as a binary COPY takes them. See ``binary_rows``."""

    format = BINARY

    def __init__(self, columns: Sequence[Column], fixed: dict[int, Fixed]) -> None:
        self._fixed = fixed
        self._texts = [place for place in range(len(columns)) if place not in fixed]
        self.names = tuple(columns[place].name for place in (*fixed, *self._texts))
        fields: list[tuple[str, Any]] = [("count", ">i2")]
        for place, one in fixed.items():
            fields += [(f"length {place}", ">i4"), (str(place), one.dtype)]
        if self._texts:
            fields.append((f"length {self._texts[0]}", ">i4"))
        self._record = np.dtype(fields)
        self._records = np.zeros(0, self._record)

    def encoded(self, batch: pa.RecordBatch) -> memoryview | pa.Buffer:
        records = self._blank(batch.num_rows)
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
        return memoryview(data_of(whole))

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


def binary_rows(columns: Sequence[Column], kinds: Sequence[pa.DataType]) -> BinaryRows | None:
    """For rows of these Arrow types; None where one of them has to be text."""
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
    return BinaryRows(columns, fixed)


def fixed_of(column: Column, kind: pa.DataType) -> Fixed | None:
    """How values of an Arrow type go into a column whose values have one width; None: as text."""
    whole = pa.types.is_signed_integer(kind)
    match column.kind:
        case Kind.BOOLEAN if pa.types.is_boolean(kind):
            return Fixed(np.dtype("u1"), _fill)
        case Kind.INTEGER if whole and column.limits.highest is not None:
            size = (column.limits.highest.bit_length() + 1) // 8
            return Fixed(np.dtype(f">i{size}"), _fill)
        case Kind.FLOAT if column.limits.precision == DOUBLE_BITS:
            if whole or pa.types.is_float32(kind) or pa.types.is_float64(kind):
                return Fixed(np.dtype(">f8"), _fill_floats)
        case Kind.FLOAT if whole or pa.types.is_float32(kind):
            return Fixed(np.dtype(">f4"), _fill_floats)
        case Kind.DECIMAL if whole:
            return _numeric(BIGINT_DIGITS, 0)
        case Kind.DECIMAL if pa.types.is_decimal128(kind):
            if kind.precision <= DECIMAL_DIGITS_MAX and 0 <= kind.scale <= kind.precision:
                return _numeric(kind.precision, kind.scale)
        case Kind.DATE if pa.types.is_date32(kind):
            return Fixed(np.dtype(">i4"), _fill_days)
        case Kind.TIMESTAMP if pa.types.is_date32(kind):
            return Fixed(np.dtype(">i8"), _fill_midnights)
        case Kind.TIMESTAMP if pa.types.is_timestamp(kind) and kind.tz is None:
            return Fixed(np.dtype(">i8"), _fill_instants)
        case Kind.TIMESTAMP_TZ if pa.types.is_timestamp(kind) and kind.tz is not None:
            return Fixed(np.dtype(">i8"), _fill_instants)
    return None


def _fill(into: Any, values: pa.Array) -> None:
    into[:] = values.to_numpy(zero_copy_only=False)


def _fill_floats(into: Any, values: pa.Array) -> None:
    """NaN is always the same one, as it is when the server reads it from a text."""
    numbers = values.to_numpy(zero_copy_only=False)
    into[:] = numbers
    none = np.isnan(numbers)
    if none.any():
        into[none] = np.nan


def _fill_days(into: Any, values: pa.Array) -> None:
    into[:] = values.view(pa.int32()).to_numpy() - DAYS_TO_2000


def _fill_midnights(into: Any, values: pa.Array) -> None:
    days = values.view(pa.int32()).to_numpy().astype(np.int64)
    into[:] = (days - DAYS_TO_2000) * times.MICROS_A_DAY


def _fill_instants(into: Any, values: pa.Array) -> None:
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

    def fill(into: Any, values: pa.Array) -> None:
        numbers = _unscaled(values)
        into["digits"], into["weight"], into["scale"] = digits, whole - 1, scale
        into["sign"] = np.where(numbers < 0, NEGATIVE, 0)
        left = np.abs(numbers).view(np.uint64)  # the lowest of all is its own absolute value here
        for place in range(digits - 1, -1, -1):
            one = np.uint64(last if fraction and place == digits - 1 else GROUP)
            left, group = np.divmod(left, one)
            into["groups"][:, place] = group * (np.uint64(GROUP) // one)

    return Fixed(dtype, fill)


def _unscaled(values: pa.Array) -> Any:
    """Whole numbers or the digits of decimals that have room in 64 bits, as those."""
    if not pa.types.is_decimal128(values.type):
        return values.to_numpy().astype(np.int64)
    halves = np.frombuffer(values.buffers()[1], np.int64)
    return halves[2 * values.offset : 2 * (values.offset + len(values)) : 2]


def _zero(kind: pa.DataType) -> pa.Scalar:
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


def _array(data: memoryview | Numbers, widths: Numbers) -> pa.Array:
    """Bytes, one piece after another, as an Arrow array of the pieces."""
    ends = np.zeros(len(widths) + 1, np.int64)
    np.cumsum(widths, out=ends[1:])
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(widths), buffers)


def _bytes(values: pa.Array) -> pa.Array:
    return values.cast(pa.large_binary())


def _lengths(values: pa.Array) -> Any:
    """Of texts and bytes, in bytes."""
    return pc.fill_null(pc.binary_length(values), NULL).to_numpy()


# ---- text ------------------------------------------------------------------------------------


def sendable(column: Column, values: pa.Array) -> pa.Array:
    """As Arrow's CSV writer can write it and the column reads it."""
    kind = values.type
    if pa.types.is_nested(kind):
        return (
            array_texts(column.element, values)
            if column.element is not None
            else json_texts(values)
        )
    if is_bytes(kind):
        return concatenated("\\x", hex_texts(values))
    if (
        pa.types.is_float32(kind)
        and column.kind is Kind.FLOAT
        and column.limits.precision == DOUBLE_BITS
    ):
        return values.cast(pa.float64())  # as Spark casts it: not the shortest text of 32 bits
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        if not times.are_ordinary(values):
            return times.texts(values, spelled)
        return (
            values
            if pa.types.is_date32(kind)
            else values.cast(pa.timestamp("us", "UTC" if kind.tz else None))
        )
    return values


def spelled(year: int, month: int, day: int) -> str:
    """A day of any year: year 0 is 1 BC. The session's time zone is UTC and its DateStyle ISO."""
    return (
        f"{year:04d}-{month:02d}-{day:02d}"
        if year > 0
        else f"{1 - year:04d}-{month:02d}-{day:02d} BC"
    )


def array_texts(element: Column, values: pa.Array) -> pa.Array:
    """PostgreSQL's array literals: every element in double quotes but null."""
    texts = _element_texts(element, values.flatten()).cast(TEXT)
    for character in ("\\", '"'):
        if np.count_nonzero(data_of(texts) == ord(character)):
            texts = pc.replace_substring(texts, character, "\\" + character)
    return joined(values, pc.fill_null(concatenated('"', texts, '"'), "NULL"), "{", "}")


def _element_texts(element: Column, values: pa.Array) -> pa.Array:
    sent = sendable(element, values)
    if is_text(sent.type):
        return sent
    if pa.types.is_date32(sent.type) or pa.types.is_timestamp(sent.type):
        return times.texts(sent)
    return sent.cast(TEXT)


class TextRows(CopyRows):
    """The rows of one task for a COPY of CSV. The first columns of a frame are what it is sent, in
    the order of ``names``. What the batch had has its name there: such a column if it is sent as it
    was, else one behind them.
    """

    format = "arrow"

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = tuple(columns)
        self.names = tuple(column.name for column in columns)

    def encoded(self, batch: pa.RecordBatch) -> memoryview | pa.Buffer:
        sent = [sendable(c, had) for c, had in zip(self._columns, batch.columns, strict=True)]
        names = [""] * len(sent)
        changed = {}
        for place, (name, had) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
            if sent[place] is had:
                names[place] = name
            else:
                changed[name] = had
        arrays, names = [*sent, *changed.values()], [*names, *changed]
        return packed(pa.RecordBatch.from_arrays(arrays, names=names))


def csv_text(arrays: Sequence[pa.Array]) -> memoryview:
    table = pa.RecordBatch.from_arrays(arrays, names=[str(i) for i in range(len(arrays))])
    sink = pa.BufferOutputStream()
    csv.write_csv(table, sink, csv.WriteOptions(include_header=False, quoting_style="needed"))
    return memoryview(sink.getvalue())
