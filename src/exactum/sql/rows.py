"""Which rows of a frame a table can hold, by whole Arrow batches before a row is sent, and for the
others why not. Pure; for every dialect.

A server that refuses one row refuses the whole load, and says so late or not which row. What can be
known from a column's kind and limits is found here; what only the server knows (CHECK, foreign
keys) it says itself. What would be rounded, cut or padded by the server counts as what a column
cannot hold: a value is never altered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exactum.protocol.sink import Rejection
from exactum.sinks.rows import RowCheck
from exactum.sql.table import Column, Kind
from exactum.values import times
from exactum.values.json_text import is_writable
from exactum.values.nested import (
    Mask,
    data_of,
    is_bytes,
    is_text,
    not_utf8,
    numpy_mask,
    parents_of,
    rows_where,
)
from exactum.values.shown import shown

CHOICES_SHOWN = 12  # of an ENUM's members
_ESCAPED_NUL = r"(^|[^\\])(\\\\)*\\u0000"
"""The escape, and not an escaped backslash before ``u0000``."""


@dataclass(frozen=True)
class Broken:
    """A rule that some values of a column break.

    rule: continues "column 'x' (type) ...": ``holds 3 characters``.
    mask: an Arrow or NumPy boolean array, true (not null) for each value that breaks it.
    has: an array with what each value has instead, to be said after the rule (``7``); or None.
    """

    rule: str
    mask: pa.BooleanArray | Mask
    has: pa.Array | None = None


Rule = Callable[[Column, pa.Array], Iterator[Broken]]
"""Of a column and an Arrow array in which text is UTF-8. What it yields may be broken by no value,
and its mask may be null where the value is.
"""


@dataclass(frozen=True)
class TableRules:
    """What the rows of a frame must keep to. Picklable.

    columns: the target's column for each of the names in ``frame_columns``.
    filled: those of the target's names that may not be null whatever the table says (the key of an
    upsert). named_by: the frame's columns whose values name a row in a reason; may be empty.
    """

    columns: tuple[Column, ...]
    frame_columns: tuple[str, ...]
    filled: tuple[str, ...] = ()
    named_by: tuple[str, ...] = ()

    def split(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Rejection | None]:
        """The rows that keep to all rules (``batch`` itself if all do), and the others with the
        reasons.

        No value of a user becomes a Python value on the way but those that a reason shows.
        """
        check = RowCheck(batch)
        for column, name in zip(self.columns, self.frame_columns, strict=True):
            for broken in self.broken(column, batch.column(name)):
                rule = f"column {column.name!r} ({column.type}) {broken.rule}"
                check.refuse(broken.mask, rule, broken.has)
        return check.outcome(self.names)

    def names(self, rows: pa.RecordBatch) -> list[str]:
        """What a reason calls each of these rows; empty without a column that names them."""
        values = [shown(rows.column(name)) for name in self.named_by]
        return [
            f"the row with {', '.join(f'{n}={v}' for n, v in zip(self.named_by, row, strict=True))}"
            for row in zip(*values, strict=True)
        ]

    def broken(self, column: Column, values: pa.Array) -> Iterator[Broken]:
        """Each rule that some value breaks. UTF-8 comes first: no other rule, and no server, sees
        what is none.
        """
        if values.null_count and not column.nullable:
            yield Broken("must not be null", pc.is_null(values))
        elif values.null_count and column.name in self.filled:
            yield Broken("is part of the key and must not be null", pc.is_null(values))
        spoiled = not_utf8(values)
        if spoiled is not None:
            yield Broken("takes UTF-8 only", spoiled)
            values = values.take(pa.array(np.arange(len(values)), mask=spoiled))
        yield from _broken(column, values)


def _broken(column: Column, values: pa.Array) -> Iterator[Broken]:
    """The rules of the column's kind that some value breaks, with null as no."""
    for rule in RULES.get(column.kind, ()):
        for broken in rule(column, values):
            if isinstance(broken.mask, np.ndarray):
                if broken.mask.any():
                    yield broken
            elif pc.any(broken.mask).as_py():
                yield Broken(broken.rule, pc.fill_null(broken.mask, False), broken.has)


# ---- numbers, days and instants --------------------------------------------------------------


@dataclass(frozen=True)
class _Numbers:
    """An array as whole numbers of a unit (as decimals, the unit is their last digit). ``last`` is
    the greatest that its type has, and ``first`` the least.
    """

    values: pa.Array
    unit: int | Fraction
    first: int
    last: int


def _numbers(column: Column, values: pa.Array) -> _Numbers | None:
    """In units of the column's limits; None where the array has no whole numbers."""
    kind = values.type
    if pa.types.is_decimal(kind):
        last = 10**kind.precision - 1
        return _Numbers(values, Fraction(1, 10**kind.scale), -last, last)
    unit = 1
    if pa.types.is_date32(kind):
        values = values.view(pa.int32())
        unit = 1 if column.kind is Kind.DATE else times.MICROS_A_DAY
    elif pa.types.is_timestamp(kind):
        values = times.micros_of(values)
    elif not pa.types.is_integer(kind):
        return None
    last = 2 ** (values.type.bit_width - pa.types.is_signed_integer(values.type)) - 1
    first = -last - 1 if pa.types.is_signed_integer(values.type) else 0
    return _Numbers(values, unit, first, last)


def _scalar(number: int, kind: pa.DataType) -> pa.Scalar:
    is_decimal = pa.types.is_decimal(kind)
    return pa.scalar(Decimal(f"{number}E{-kind.scale}") if is_decimal else number, kind)


def _range(column: Column, values: pa.Array) -> Iterator[Broken]:
    limits, numbers = column.limits, _numbers(column, values)
    lowest: int | Fraction | None = limits.lowest
    highest: int | Fraction | None = limits.highest
    if column.kind is Kind.DECIMAL and limits.precision is not None:
        highest = (10**limits.precision - 1) / Fraction(10) ** (limits.scale or 0)
        lowest = -highest
    if numbers is None or lowest is None or highest is None:
        return
    low, high = -(-lowest // numbers.unit), highest // numbers.unit
    masks = []
    if low > numbers.first:
        masks.append(pc.less(numbers.values, _scalar(low, numbers.values.type)))
    if high < numbers.last:
        masks.append(pc.greater(numbers.values, _scalar(high, numbers.values.type)))
    if masks:
        yield Broken(_says_range(column), masks[0] if len(masks) == 1 else pc.or_(*masks), values)


def _says_range(column: Column) -> str:
    limits = column.limits
    first, last = limits.lowest or 0, limits.highest or 0
    match column.kind:
        case Kind.DECIMAL:
            before = (limits.precision or 0) - (limits.scale or 0)
            return f"holds {before} digits before the point"
        case Kind.DATE:
            return f"holds the days {times.day_text(first)} to {times.day_text(last)}"
        case Kind.TIMESTAMP | Kind.TIMESTAMP_TZ:
            ends = times.instant_text(first), times.instant_text(last)
            return f"holds the times {ends[0]} to {ends[1]} (UTC)"
    return f"holds {first} to {last}"


def _digits(column: Column, values: pa.Array) -> Iterator[Broken]:
    """What has digits after the last that the column keeps: a server would round them, or cut
    them.
    """
    is_time = column.kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_TZ)
    scale = 0 if column.kind is Kind.INTEGER else column.limits.scale
    power = (times.DIGITS if is_time else 0) - (scale or 0)
    if scale is None or (power <= 0 and not pa.types.is_decimal(values.type)):
        return
    if (numbers := _numbers(column, values)) is None:
        return
    step = Fraction(10) ** power / numbers.unit
    if step <= 1:
        return
    found, kind = numbers.values, numbers.values.type
    if step > numbers.last:
        kept = _scalar(0, kind)
    elif pa.types.is_decimal(kind):
        kept = pc.round(found, ndigits=scale, round_mode="towards_zero")
    else:
        kept = pc.multiply(pc.divide(found, _scalar(int(step), kind)), _scalar(int(step), kind))
    rule = f"holds {scale} digits {'of a second' if is_time else 'after the point'}"
    if is_time:
        rule += "'s fraction"
    yield Broken(rule, pc.not_equal(found, kept), values)


def _sign(column: Column, values: pa.Array) -> Iterator[Broken]:
    if column.limits.lowest == 0:
        zero = pa.scalar(0, values.type)
        yield Broken("holds no negative numbers", pc.less(values, zero), values)


def _float(column: Column, values: pa.Array) -> Iterator[Broken]:
    if not pa.types.is_floating(values.type):
        return
    limits = column.limits
    if not limits.nan_allowed:
        yield Broken("cannot hold NaN or infinity", pc.invert(pc.is_finite(values)), values)
    if limits.magnitude_max is not None:
        above = pc.and_(pc.greater(pc.abs(values), limits.magnitude_max), pc.is_finite(values))
        yield Broken(f"holds values up to {limits.magnitude_max:g}", above, values)


# ---- text, bytes, JSON -----------------------------------------------------------------------


def _length(column: Column, values: pa.Array) -> Iterator[Broken]:
    limits = column.limits
    if limits.length_max is None or not (is_text(values.type) or is_bytes(values.type)):
        return
    in_bytes = limits.length_in_bytes or is_bytes(values.type)
    lengths = pc.binary_length(values) if in_bytes else pc.utf8_length(values)
    too_long = pc.greater(lengths, limits.length_max)
    if limits.trailing_spaces_free and pc.any(too_long).as_py():
        too_long = pc.greater(pc.utf8_length(pc.utf8_rtrim(values, " ")), limits.length_max)
    unit = "bytes" if in_bytes else "characters"
    yield Broken(f"holds {limits.length_max} {unit}", too_long, lengths)
    if limits.length_min:
        too_short = pc.less(lengths, limits.length_min)
        yield Broken(f"holds no less than {limits.length_min} {unit}", too_short, lengths)


def _characters(column: Column, values: pa.Array) -> Iterator[Broken]:
    limits = column.limits
    if not is_text(values.type):
        return
    if not limits.nul_allowed and _has_nul(values):
        yield Broken("cannot hold the character U+0000", pc.match_substring(values, "\0"))
    last = limits.character_max
    if last is not None:
        data = data_of(values)
        if len(data) and data.max() >= chr(last + 1).encode()[0]:
            beyond = pc.match_substring_regex(values, rf"[^\x{{0}}-\x{{{last:X}}}]")
            yield Broken(f"holds characters up to U+{last:04X}", beyond, values)


def _has_nul(values: pa.Array) -> bool:
    """One pass over the bytes, 30 times as fast as to look into each text."""
    data = data_of(values)
    return len(data) > 0 and data.min() == 0


def _spelling(column: Column, values: pa.Array) -> Iterator[Broken]:
    limits = column.limits
    if limits.choices is not None:
        known = pc.is_in(values, value_set=pa.array(limits.choices, values.type))
        more = ", ..." if len(limits.choices) > CHOICES_SHOWN else ""
        rule = f"holds one of {', '.join(limits.choices[:CHOICES_SHOWN])}{more}"
        yield Broken(rule, pc.and_(pc.invert(known), pc.is_valid(values)), values)
    if limits.form is not None:
        fits = pc.match_substring_regex(values, rf"\A(?:{limits.form.pattern})\z")
        yield Broken(f"holds {limits.form.says}", pc.invert(fits), values)


def _json(column: Column, values: pa.Array) -> Iterator[Broken]:
    """Texts are JSON already; of what is nested each text and each key is looked at."""
    limits = column.limits
    if pa.types.is_nested(values.type):
        if not is_writable(values.type):
            yield Broken(f"has no JSON for {values.type}", pc.is_valid(values))
        if _has_twins(values.type):
            yield Broken("cannot hold two fields of one name", pc.is_valid(values))
        mask = None if limits.nul_allowed else rows_where(values, _with_nul)
        if mask is not None:
            yield Broken("cannot hold the character U+0000 in a text", mask)
        return
    if not limits.escaped_nul_allowed and pc.any(pc.match_substring(values, r"\u0000")).as_py():
        yield Broken(r"cannot hold \u0000", pc.match_substring_regex(values, _ESCAPED_NUL))
    if limits.json_depth_max is not None:
        yield Broken("holds JSON", ~is_json(values, limits.json_depth_max), values)


def _has_twins(kind: pa.DataType) -> bool:
    """Whether a struct, at any depth, has two fields of one name: readers of JSON see the last one
    alone.
    """
    if not pa.types.is_nested(kind):
        return False
    inner = [kind.field(i) for i in range(kind.num_fields)]
    twins = pa.types.is_struct(kind) and len({field.name for field in inner}) < len(inner)
    return twins or any(_has_twins(field.type) for field in inner)


def _with_nul(values: pa.Array) -> Mask | None:
    if not is_text(values.type) or not _has_nul(values):
        return None
    return numpy_mask(pc.match_substring(values, "\0"))


def _elements(column: Column, values: pa.Array) -> Iterator[Broken]:
    """The rules of the element, for each element."""
    if column.element is None or not pa.types.is_nested(values.type):
        return
    parents = parents_of(values)
    for broken in _broken(column.element, values.flatten()):
        mask = np.zeros(len(values), bool)
        mask[parents[np.asarray(broken.mask)]] = True
        yield Broken(f"has an element that it cannot take: it {broken.rule}", mask)


RULES: Mapping[Kind, tuple[Rule, ...]] = {
    Kind.INTEGER: (_range, _digits),
    Kind.DECIMAL: (_sign, _range, _digits),
    Kind.FLOAT: (_sign, _float),
    Kind.TEXT: (_length, _characters, _spelling),
    Kind.OTHER: (_length, _characters, _spelling),
    Kind.BYTES: (_length,),
    Kind.DATE: (_range,),
    Kind.TIMESTAMP: (_range, _digits),
    Kind.TIMESTAMP_TZ: (_range, _digits),
    Kind.JSON: (_length, _characters, _json),
    Kind.ARRAY: (_elements,),
}
"""What is checked of each kind of column; which Spark types go into it, the dialect says."""


# ---- whether a text is JSON ------------------------------------------------------------------


def is_json(values: pa.Array, depth_max: int) -> Mask:
    """A NumPy mask of the texts (valid UTF-8) that are JSON; true where there is none."""
    decode = msgspec.json.Decoder(float_hook=str).decode  # a number of any size is one
    texts = values.to_pylist()
    return np.fromiter((t is None or _fits(t, decode, depth_max) for t in texts), bool, len(texts))


def _fits(text: str, decode: Callable[[str], Any], depth_max: int) -> bool:
    try:
        value = decode(text)
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return False
    return text.count("[") + text.count("{") <= depth_max or not _is_deeper(value, depth_max)


def _is_deeper(value: Any, depth_max: int) -> bool:
    level = [value]
    for _ in range(depth_max + 1):
        inner = [v for v in level if isinstance(v, dict | list)]
        if not inner:
            return False
        level = [child for v in inner for child in (v.values() if isinstance(v, dict) else v)]
    return True
