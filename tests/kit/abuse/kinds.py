"""Spark's types, and values of them as plain Python objects that can hold everything that Spark
can.

A *raw* value never raises and loses nothing, however odd it is:

    null                       None
    boolean, whole numbers     bool, int
    float, double              float (compare by ``same``, which knows NaN and -0.0 by their bits)
    decimal(p,s)               decimal.Decimal
    string, binary             bytes (a string's may be invalid UTF-8)
    date                       int, days since 1970-01-01
    timestamp, timestamp_ntz   int, microseconds since 1970-01-01 00:00 (in UTC; on the wall clock)
    interval day to second     int, microseconds
    time(6)                    int, nanoseconds since midnight
    array, map, struct         list; list of (key, value); tuple in the order of the fields

``to_arrow`` makes an Arrow array of raw values, as Spark hands it to a task, and ``from_arrow``
reads one back. Nothing here knows anything of the code under test.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate
from typing import Any

import pyarrow as pa

Raw = Any

WHOLE = {
    "tinyint": (8, pa.int8()),
    "smallint": (16, pa.int16()),
    "int": (32, pa.int32()),
    "bigint": (64, pa.int64()),
}
DAYS_MIN, DAYS_MAX = -719_162, 2_932_896
"""What a Python date can hold: 0001-01-01 to 9999-12-31."""
MICROS_PER_DAY = 86_400_000_000


@dataclass(frozen=True)
class Kind:
    """A type of Spark. ``of``: the element of an array, key and value of a map, the fields of a
    struct.
    """

    name: str
    precision: int = 0
    scale: int = 0
    of: tuple[Kind, ...] = ()
    fields: tuple[str, ...] = ()

    @property
    def simple(self) -> str:
        """Spark's ``simpleString``, as ``check_columns`` of a sink gets it."""
        if self.name == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.name == "struct":
            return f"struct<{','.join(f'{n}:{k.simple}' for n, k in zip(self.fields, self.of, strict=True))}>"
        return f"{self.name}<{','.join(k.simple for k in self.of)}>" if self.of else self.name

    @property
    def is_text(self) -> bool:
        return self.name == "string" or self.name.startswith("string collate")

    def arrow(self, zone: str = "UTC") -> pa.DataType:
        """The Arrow type in which Spark hands such a column to Python; ``zone`` is the
        session's.
        """
        if self.name in WHOLE:
            return WHOLE[self.name][1]
        if self.name == "decimal":
            return pa.decimal128(self.precision, self.scale)
        if self.name == "array":
            return pa.list_(pa.field("element", self.of[0].arrow(zone)))
        if self.name == "map":
            return pa.map_(self.of[0].arrow(zone), self.of[1].arrow(zone))
        if self.name == "struct":
            return pa.struct(
                [pa.field(n, k.arrow(zone)) for n, k in zip(self.fields, self.of, strict=True)]
            )
        if self.is_text:
            return pa.string()
        return {
            "boolean": pa.bool_(),
            "float": pa.float32(),
            "double": pa.float64(),
            "binary": pa.binary(),
            "date": pa.date32(),
            "timestamp": pa.timestamp("us", zone),
            "timestamp_ntz": pa.timestamp("us"),
            "interval day to second": pa.duration("us"),
            "time(6)": pa.time64("ns"),
            "void": pa.null(),
        }[self.name]

    def __str__(self) -> str:
        return self.simple


def decimal(precision: int, scale: int) -> Kind:
    return Kind("decimal", precision, scale)


def array(element: Kind) -> Kind:
    return Kind("array", of=(element,))


def map_(key: Kind, value: Kind) -> Kind:
    return Kind("map", of=(key, value))


def struct_(fields: dict[str, Kind]) -> Kind:
    return Kind("struct", of=tuple(fields.values()), fields=tuple(fields))


# ---- raw values and Arrow --------------------------------------------------------------------


def to_arrow(kind: Kind, values: Sequence[Raw], zone: str = "UTC") -> pa.Array:
    """An Arrow array of raw values, in ``kind.arrow(zone)``. Raises for none of them."""
    type_ = kind.arrow(zone)
    if kind.name == "array":
        return _nested(
            type_,
            values,
            [to_arrow(kind.of[0], [v for value in values for v in value or ()], zone)],
        )
    if kind.name == "map":
        pairs = [pair for value in values for pair in value or ()]
        keys, items = (
            to_arrow(k, [pair[n] for pair in pairs], zone) for n, k in enumerate(kind.of)
        )
        inside = pa.StructArray.from_arrays(
            [keys, items], fields=[type_.key_field, type_.item_field]
        )
        return _nested(type_, values, [inside])
    if kind.name == "struct":
        inside = [to_arrow(k, [v and v[n] for v in values], zone) for n, k in enumerate(kind.of)]
        return pa.Array.from_buffers(type_, len(values), [_validity(values)], children=inside)
    if kind.is_text:
        return pa.array(values, pa.binary()).view(pa.string())  # no look at the bytes
    if pa.types.is_date32(type_) or pa.types.is_temporal(type_):
        whole = pa.int32() if pa.types.is_date32(type_) else pa.int64()
        return pa.array(values, whole).view(type_)
    return pa.array(values, type_)


def _nested(type_: pa.DataType, values: Sequence[Raw], children: list[pa.Array]) -> pa.Array:
    offsets = pa.array(accumulate((len(v or ()) for v in values), initial=0), pa.int32())
    return pa.Array.from_buffers(
        type_, len(values), [_validity(values), offsets.buffers()[1]], children=children
    )


def _validity(values: Sequence[Raw]) -> pa.Buffer | None:
    return pa.array([v is not None for v in values], pa.bool_()).buffers()[1]


def from_arrow(kind: Kind, values: pa.Array | pa.ChunkedArray) -> list[Raw]:
    """What an Arrow array of such a column holds, as raw values. ``Array.to_pylist`` raises for
    odd ones.
    """
    if isinstance(values, pa.ChunkedArray):
        return [raw for chunk in values.chunks for raw in from_arrow(kind, chunk)]
    present = values.is_valid().to_pylist()
    if kind.name in ("array", "map"):
        starts = values.offsets.to_pylist()
        if kind.name == "map":
            inside = list(
                zip(
                    from_arrow(kind.of[0], values.keys),
                    from_arrow(kind.of[1], values.items),
                    strict=True,
                )
            )
        else:
            inside = from_arrow(kind.of[0], values.values)
        return [
            inside[starts[n] : starts[n + 1]] if there else None for n, there in enumerate(present)
        ]
    if kind.name == "struct":
        columns = [from_arrow(k, values.field(n)) for n, k in enumerate(kind.of)]
        return [tuple(c[n] for c in columns) if there else None for n, there in enumerate(present)]
    if pa.types.is_string(values.type):
        return values.view(pa.binary()).to_pylist()
    if pa.types.is_large_string(values.type):
        return values.view(pa.large_binary()).to_pylist()
    if pa.types.is_date32(values.type):
        return values.view(pa.int32()).to_pylist()
    if pa.types.is_temporal(values.type):
        return values.view(pa.int64()).to_pylist()
    return values.to_pylist()


# ---- questions about raw values --------------------------------------------------------------


def same(kind: Kind, one: Raw, other: Raw) -> bool:
    """Both are one value: NaN is NaN, -0.0 is not 0.0, a decimal has its scale."""
    if one is None or other is None:
        return one is other
    if kind.name in ("float", "double"):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return struct.pack("d", one) == struct.pack("d", other)
    if kind.of:
        pairs = zip(parts(kind, one), parts(kind, other), strict=False)
        return len(one) == len(other) and all(same(k, a, b) for (k, a), (_, b) in pairs)
    return type(one) is type(other) and one == other


def parts(kind: Kind, value: Raw) -> list[tuple[Kind, Raw]]:
    """What a nested value has in it, with the types."""
    if kind.name == "array":
        return [(kind.of[0], v) for v in value]
    if kind.name == "map":
        return [part for pair in value for part in zip(kind.of, pair, strict=True)]
    return list(zip(kind.of, value, strict=True))


def scalars(kind: Kind, value: Raw) -> list[tuple[Kind, Raw]]:
    """Every scalar in a value that is not null, with its type."""
    if value is None:
        return []
    if kind.of:
        return [scalar for part in parts(kind, value) for scalar in scalars(*part)]
    return [(kind, value)]


def is_utf8(value: bytes) -> bool:
    """Whether a strict reader takes these bytes for text."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def has_bad_text(kind: Kind, value: Raw) -> bool:
    """Whether a string in this value, at any depth, is no UTF-8."""
    return any(k.is_text and not is_utf8(v) for k, v in scalars(kind, value))


def unit(kind: Kind, unscaled: int) -> Decimal:
    """A decimal of this type by its digits without the point."""
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -kind.scale))
