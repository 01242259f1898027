"""What a column can hold, checked on whole Arrow batches before a row is sent: the same for every dialect.

A server that refuses one row refuses the whole load, and says so late or not which row. What can be known from the
column's type is found here; what only the server knows (CHECK, foreign keys, the syntax of a uuid) it says itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from exactum.protocol.sink import Rejection
from exactum.sql.table import Column, Kind

SHOWN_MAX = 60
"""Most characters of a key's value that a reason shows."""
DIGITS_MAX = 76
"""Digits of Arrow's widest decimal."""


@dataclass(frozen=True)
class Rules:
    """What the rows of a frame must keep to. Picklable.

    columns: the target's column for each of the names in ``frame_columns``.
    filled: those of the target's names that may not be null whatever the table says (the key of an upsert).
    named_by: the frame's columns whose values name a row in a reason; may be empty.
    """

    columns: tuple[Column, ...]
    frame_columns: tuple[str, ...]
    filled: tuple[str, ...] = ()
    named_by: tuple[str, ...] = ()

    def split(self, batch: Any) -> tuple[Any, Rejection | None]:
        """The rows that keep to all rules (``batch`` itself if all do), and the others with the reasons."""
        found = [
            (f"column {column.name!r} ({column.type}) {rule}", mask)
            for column, name in zip(self.columns, self.frame_columns, strict=True)
            for rule, mask in self._broken(column, batch.column(name))
        ]
        if not found:
            return batch, None
        bad = found[0][1]
        for _, mask in found[1:]:
            bad = pc.or_(bad, mask)
        reasons: dict[int, list[str]] = {}
        for text, mask in found:
            for place in pc.indices_nonzero(mask).to_pylist():
                reasons.setdefault(place, []).append(text)
        rows = batch.filter(bad)
        names = self._names(rows)
        texts = tuple(f"{names[i]}{', and '.join(reasons[place])}" for i, place in enumerate(sorted(reasons)))
        return batch.filter(pc.invert(bad)), Rejection(rows, texts)

    def _names(self, rows: Any) -> list[str]:
        """How each rejected row is called."""
        if not self.named_by:
            return [""] * rows.num_rows
        values = [rows.column(name).to_pylist() for name in self.named_by]
        return [
            "the row with " + ", ".join(f"{n}={_shown(v)}" for n, v in zip(self.named_by, row, strict=True)) + ": "
            for row in zip(*values, strict=True)
        ]

    def _broken(self, column: Column, values: Any) -> Iterator[tuple[str, Any]]:
        """Each rule that some value breaks, with a mask of these."""
        if values.null_count and (not column.nullable or column.name in self.filled):
            why = "must not be null" if not column.nullable else "is part of the key and must not be null"
            yield why, pc.is_null(values)
        for rule, mask in _RULES.get(column.kind, _no_rules)(column, values):
            certain = pc.fill_null(mask, False)
            if pc.any(certain).as_py():
                yield rule, certain


def _no_rules(column: Column, values: Any) -> Iterator[tuple[str, Any]]:
    yield from ()


def _integer(column: Column, values: Any) -> Iterator[tuple[str, Any]]:
    if pa.types.is_integer(values.type):
        yield from _between(column, values, _integer_range(values.type), "holds {} to {}")


def _decimal(column: Column, values: Any) -> Iterator[tuple[str, Any]]:
    limits = column.limits
    if limits.precision is None:
        return
    scale = limits.scale or 0
    before_point = limits.precision - scale
    rule = f"holds {before_point} digits before the point"
    if pa.types.is_integer(values.type):
        bound = 10**before_point
        if bound <= _integer_range(values.type)[1]:
            yield rule, pc.or_(pc.greater_equal(values, bound), pc.less_equal(values, -bound))
    elif pa.types.is_decimal(values.type):
        kept = values.type.precision - values.type.scale
        if kept < before_point or (kept == before_point and values.type.scale <= scale):
            return
        # Servers round to the column's scale first: what rounds up to one digit more is too much as well.
        digits = max(values.type.scale, scale + 1)
        if kept + digits > DIGITS_MAX or before_point + digits >= DIGITS_MAX:
            return
        wide = pa.decimal256(DIGITS_MAX, digits)
        bound = pa.scalar(_half_below(before_point, scale), wide)
        yield rule, pc.greater_equal(pc.abs(values.cast(wide)), bound)


def _half_below(before_point: int, scale: int) -> Any:
    from decimal import Decimal, localcontext

    with localcontext() as context:
        context.prec = DIGITS_MAX + 2
        return Decimal(10) ** before_point - Decimal(5).scaleb(-scale - 1)


def _float(column: Column, values: Any) -> Iterator[tuple[str, Any]]:
    if not pa.types.is_floating(values.type):
        return
    if not column.limits.nan_allowed:
        yield "cannot hold NaN or infinity", pc.invert(pc.is_finite(values))
    if column.limits.magnitude_max is not None:
        above = pc.and_(pc.greater(pc.abs(values), column.limits.magnitude_max), pc.is_finite(values))
        yield f"holds values up to {column.limits.magnitude_max:g}", above


def _text(column: Column, values: Any) -> Iterator[tuple[str, Any]]:
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return
    limits = column.limits
    if limits.length_max is not None:
        if limits.length_in_bytes:
            yield f"holds {limits.length_max} bytes", pc.greater(pc.binary_length(values), limits.length_max)
        else:
            too_long = pc.greater(pc.utf8_length(values), limits.length_max)
            if limits.trailing_spaces_free and pc.any(too_long).as_py():
                too_long = pc.greater(pc.utf8_length(pc.utf8_rtrim(values, " ")), limits.length_max)
            yield f"holds {limits.length_max} characters", too_long
    if not limits.nul_allowed:
        yield "cannot hold the character U+0000", pc.match_substring(values, "\0")
    if limits.code_point_max is not None:
        beyond = f"[^\\x{{0}}-\\x{{{limits.code_point_max:X}}}]"
        yield f"holds characters up to U+{limits.code_point_max:X}", pc.match_substring_regex(values, beyond)
    if limits.choices is not None:
        known = pc.is_in(values, value_set=pa.array(limits.choices, values.type))
        yield f"holds one of {', '.join(limits.choices)}", pc.and_(pc.invert(known), pc.is_valid(values))


def _bytes(column: Column, values: Any) -> Iterator[tuple[str, Any]]:
    if column.limits.length_max is not None and not pa.types.is_nested(values.type):
        yield f"holds {column.limits.length_max} bytes", pc.greater(pc.binary_length(values), column.limits.length_max)


def _date(column: Column, values: Any) -> Iterator[tuple[str, Any]]:
    if pa.types.is_date32(values.type):
        days = values.view(pa.int32())
        yield from _between(column, days, _integer_range(days.type), "holds the days {} to {} since 1970-01-01")


def _timestamp(column: Column, values: Any) -> Iterator[tuple[str, Any]]:
    if pa.types.is_timestamp(values.type):
        micros = values.cast(pa.timestamp("us", values.type.tz)).view(pa.int64())
        yield from _between(
            column, micros, _integer_range(micros.type), "holds the microseconds {} to {} since 1970-01-01 (UTC)"
        )


def _between(column: Column, values: Any, possible: tuple[int, int], rule: str) -> Iterator[tuple[str, Any]]:
    """``values`` are integers; ``possible`` is the range of their Arrow type."""
    lowest, highest = column.limits.lowest, column.limits.highest
    below = lowest is not None and lowest > possible[0]
    above = highest is not None and highest < possible[1]
    if not below and not above:
        return
    text = rule.format("..." if lowest is None else lowest, "..." if highest is None else highest)
    masks = []
    if below:
        masks.append(pc.less(values, pa.scalar(lowest, values.type)))
    if above:
        masks.append(pc.greater(values, pa.scalar(highest, values.type)))
    yield text, masks[0] if len(masks) == 1 else pc.or_(*masks)


def _integer_range(arrow_type: Any) -> tuple[int, int]:
    bits = arrow_type.bit_width
    if pa.types.is_signed_integer(arrow_type):
        return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return 0, 2**bits - 1


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


_RULES = {
    Kind.INTEGER: _integer,
    Kind.DECIMAL: _decimal,
    Kind.FLOAT: _float,
    Kind.TEXT: _text,
    Kind.JSON: _text,
    Kind.OTHER: _text,
    Kind.BYTES: _bytes,
    Kind.DATE: _date,
    Kind.TIMESTAMP: _timestamp,
    Kind.TIMESTAMP_TZ: _timestamp,
}
