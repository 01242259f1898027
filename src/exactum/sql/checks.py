"""What each kind of column can hold, checked on whole Arrow arrays: one function for each kind.
Pure.

What would be rounded, cut or padded by the server counts as what a column cannot hold: a value is
never altered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exactum.sql.charset import Charset
from exactum.sql.table import Column, ColumnLimits, Kind
from exactum.values import times
from exactum.values.json_text import is_writable
from exactum.values.nested import (
    data_of,
    is_bytes,
    is_text,
    numpy_mask,
    parents_of,
    rows_where,
)

CHOICES_SHOWN = 12
"""How many of an ENUM's members a reason lists."""


@dataclass(frozen=True)
class Broken:
    """A rule that some values of a column break.

    rule: continues "column 'x' (type) ...": ``holds 3 characters``.
    mask: an Arrow or NumPy boolean array, true (not null) for each value that breaks it.
    has: an array with what each value has instead, to be said after the rule (``7``); or None.
    told: for each value that breaks it, in their order, what else to say after the rule; or None.
    """

    rule: str
    mask: Any
    has: Any = None
    details: tuple[str, ...] | None = None


Further = Callable[[Column, Any], Iterator[Broken]]
"""Rules that only one dialect has, for a column and an Arrow array of valid UTF-8."""


def no_further(column: Column, values: Any) -> Iterator[Broken]:
    yield from ()


def of_kind(column: Column, values: Any) -> Iterator[Broken]:
    """The rules of the column's kind; some may be broken by no value (``certain``)."""
    rules = _RULES.get(column.kind)
    return iter(()) if rules is None else rules(column, values)


def certain(found: Iterator[Broken]) -> Iterator[Broken]:
    """Those that some value breaks, with null as no."""
    for broken in found:
        if isinstance(broken.mask, np.ndarray):
            if broken.mask.any():
                yield broken
        elif pc.any(broken.mask).as_py():
            yield Broken(broken.rule, pc.fill_null(broken.mask, False), broken.has)


def _integer(column: Column, values: Any) -> Iterator[Broken]:
    limits = column.limits
    if pa.types.is_integer(values.type):
        yield from _between(
            values, (limits.lowest, limits.highest), _integer_range(values.type), "holds {} to {}"
        )
    elif pa.types.is_decimal(values.type):
        last = 10 ** (values.type.precision - values.type.scale) - 1
        yield from _between(
            values, (limits.lowest, limits.highest), (-last, last), "holds {} to {}"
        )
        yield from _finer(values, 0)


def _decimal(column: Column, values: Any) -> Iterator[Broken]:
    """What would be rounded is refused, so a bound is a power of ten."""
    limits = column.limits
    if limits.lowest == 0:
        yield Broken(
            "holds no negative numbers", pc.less(values, pa.scalar(0, values.type)), values
        )
    if limits.precision is None:
        return
    scale = limits.scale or 0
    before_point = limits.precision - scale
    if pa.types.is_integer(values.type):
        most = len(str(_integer_range(values.type)[1])), 0
    elif pa.types.is_decimal(values.type):
        most = values.type.precision - values.type.scale, values.type.scale
    else:
        return
    if most[0] > before_point:
        if -before_point >= most[1]:
            too_large = pc.not_equal(values, pa.scalar(0, values.type))
        else:
            bound = Decimal(1).scaleb(before_point)
            above = pc.greater_equal(values, pa.scalar(_number(bound, values.type), values.type))
            too_large = pc.or_(
                above, pc.less_equal(values, pa.scalar(_number(-bound, values.type), values.type))
            )
        yield Broken(
            f"holds {max(before_point, 0)} digits before the point{_zeros(before_point)}",
            too_large,
            values,
        )
    yield from _finer(values, scale)


def _zeros(before_point: int) -> str:
    return f" and {-before_point} zeros after it" if before_point < 0 else ""


def _finer(values: Any, scale: int) -> Iterator[Broken]:
    """What has digits after the last that the column keeps: a server would round them, or cut
    them.
    """
    has = values.type.scale if pa.types.is_decimal(values.type) else 0
    if has <= scale:
        return
    rule = (
        f"holds {scale} digits after the point"
        if scale >= 0
        else f"holds multiples of {10**-scale}"
    )
    if pa.types.is_decimal(values.type):
        whole = values.type.precision - values.type.scale
        if -scale >= whole:
            yield Broken(rule, pc.not_equal(values, pa.scalar(0, values.type)), values)
            return
        cut = pc.round(values, ndigits=scale, round_mode="towards_zero")
    elif 10**-scale > _integer_range(values.type)[1]:
        yield Broken(rule, pc.not_equal(values, pa.scalar(0, values.type)), values)
        return
    else:
        step = pa.scalar(10**-scale, values.type)
        cut = pc.multiply(pc.divide(values, step), step)
    yield Broken(rule, pc.not_equal(cut, values), values)


def _number(value: Decimal, kind: Any) -> Any:
    return int(value) if pa.types.is_integer(kind) else value


def _float(column: Column, values: Any) -> Iterator[Broken]:
    if not pa.types.is_floating(values.type):
        return
    limits = column.limits
    if not limits.nan_allowed:
        yield Broken("cannot hold NaN or infinity", pc.invert(pc.is_finite(values)), values)
    if limits.lowest == 0:
        yield Broken(
            "holds no negative numbers", pc.less(values, pa.scalar(0, values.type)), values
        )
    if limits.magnitude_max is not None:
        above = pc.and_(pc.greater(pc.abs(values), limits.magnitude_max), pc.is_finite(values))
        yield Broken(f"holds values up to {limits.magnitude_max:g}", above, values)


def _text(column: Column, values: Any) -> Iterator[Broken]:
    if not is_text(values.type):
        return
    limits = column.limits
    if limits.charset is not None:
        yield from _of_charset(limits.charset, limits, values)
    elif limits.length_max is not None:
        yield _length(limits, values)
    if not limits.nul_allowed and _has_nul(values):
        yield Broken("cannot hold the character U+0000", pc.match_substring(values, "\0"))
    if limits.choices is not None:
        known = pc.is_in(values, value_set=pa.array(limits.choices, values.type))
        listed = ", ".join(limits.choices[:CHOICES_SHOWN]) + (
            ", ..." if len(limits.choices) > CHOICES_SHOWN else ""
        )
        yield Broken(
            f"holds one of {listed}", pc.and_(pc.invert(known), pc.is_valid(values)), values
        )
    if limits.form is not None:
        fits = pc.match_substring_regex(values, rf"\A(?:{limits.form.pattern})\z")
        yield Broken(f"holds {limits.form.says}", pc.invert(fits), values)


def _of_charset(charset: Charset, limits: ColumnLimits, values: Any) -> Iterator[Broken]:
    """Null has no length."""
    lengths, held = charset.measured(values)
    there = pc.is_valid(values)
    yield Broken(f"holds characters of {charset.name}", pc.and_(pc.invert(held), there), values)
    if limits.length_max is None:
        return
    if limits.length_in_bytes:
        too_long = pc.and_(pc.greater(lengths, limits.length_max), there)
        yield Broken(f"holds {limits.length_max} bytes of {charset.name}", too_long, lengths)
    else:
        yield _length(limits, values)


def _length(limits: ColumnLimits, values: Any) -> Broken:
    unit = "bytes" if limits.length_in_bytes else "characters"
    lengths = pc.binary_length(values) if limits.length_in_bytes else pc.utf8_length(values)
    too_long = pc.greater(lengths, limits.length_max)
    if limits.trailing_spaces_free and pc.any(too_long).as_py():
        too_long = pc.greater(pc.utf8_length(pc.utf8_rtrim(values, " ")), limits.length_max)
    return Broken(f"holds {limits.length_max} {unit}", too_long, lengths)


def _has_nul(values: Any) -> bool:
    """One pass over the bytes, 30 times as fast as to look into each text."""
    data = data_of(values)
    return len(data) > 0 and data.min() == 0


def _json(column: Column, values: Any) -> Iterator[Broken]:
    """Texts are JSON already; of what is nested each text and each key is looked at."""
    if not pa.types.is_nested(values.type):
        yield from _text(column, values)
        return
    if not is_writable(values.type):
        yield Broken(f"has no JSON for {values.type}", pc.is_valid(values))
    if _has_twins(values.type):
        yield Broken("cannot hold two fields of one name", pc.is_valid(values))
    if not column.limits.nul_allowed:
        yield Broken("cannot hold the character U+0000 in a text", _where(values, _with_nul))


def _has_twins(kind: Any) -> bool:
    """Whether a struct, at any depth, has two fields of one name: readers of JSON see the last one
    alone.
    """
    if not pa.types.is_nested(kind):
        return False
    inner = [kind.field(i) for i in range(kind.num_fields)]
    twins = pa.types.is_struct(kind) and len({field.name for field in inner}) < len(inner)
    return twins or any(_has_twins(field.type) for field in inner)


def _with_nul(values: Any) -> Any:
    if not is_text(values.type) or not _has_nul(values):
        return None
    return numpy_mask(pc.match_substring(values, "\0"))


def _array(column: Column, values: Any) -> Iterator[Broken]:
    """The rules of the element, for each element."""
    if column.element is None or not pa.types.is_nested(values.type):
        return
    elements = values.flatten()
    parents = parents_of(values)
    for broken in certain(of_kind(column.element, elements)):
        mask = np.zeros(len(values), bool)
        mask[parents[np.asarray(broken.mask)]] = True
        yield Broken(f"has an element that it cannot take: it {broken.rule}", mask)


def _where(values: Any, test: Any) -> Any:
    mask = rows_where(values, test)
    return np.zeros(len(values), bool) if mask is None else mask


def _bytes(column: Column, values: Any) -> Iterator[Broken]:
    limits = column.limits
    if not is_bytes(values.type):
        return
    lengths = pc.binary_length(values)
    if limits.length_max is not None:
        yield Broken(
            f"holds {limits.length_max} bytes", pc.greater(lengths, limits.length_max), lengths
        )
    if limits.length_min:
        yield Broken(
            f"holds no less than {limits.length_min} bytes",
            pc.less(lengths, limits.length_min),
            lengths,
        )


def _date(column: Column, values: Any) -> Iterator[Broken]:
    if not pa.types.is_date32(values.type):
        return
    bounds = column.limits.lowest, column.limits.highest
    days = values.view(pa.int32())
    for broken in _between(
        days, bounds, _integer_range(days.type), "holds the days {} to {}", times.day_text
    ):
        yield Broken(broken.rule, broken.mask, values)


def _timestamp(column: Column, values: Any) -> Iterator[Broken]:
    """A day goes into a column of timestamps as its midnight."""
    if pa.types.is_date32(values.type):
        lowest, highest = column.limits.lowest, column.limits.highest
        first = None if lowest is None else -(-lowest // times.MICROS_A_DAY)
        last = None if highest is None else highest // times.MICROS_A_DAY
        yield from _date(replace(column, limits=ColumnLimits(lowest=first, highest=last)), values)
        return
    if not pa.types.is_timestamp(values.type):
        return
    bounds = column.limits.lowest, column.limits.highest
    micros = times.micros_of(values)
    rule = "holds the times {} to {} (UTC)"
    for broken in _between(micros, bounds, _integer_range(micros.type), rule, times.instant_text):
        yield Broken(broken.rule, broken.mask, values)
    if column.limits.scale is not None and column.limits.scale < times.DIGITS:
        for broken in _finer(micros, column.limits.scale - times.DIGITS):
            yield Broken(
                f"holds {column.limits.scale} digits of a second's fraction", broken.mask, values
            )


def _between(
    values: Any,
    bounds: tuple[int | None, int | None],
    possible: tuple[int, int],
    rule: str,
    spelled: Callable[[int], str] = str,
) -> Iterator[Broken]:
    """``values`` are whole numbers; ``possible`` is the range of their Arrow type."""
    lowest, highest = bounds
    masks = []
    if lowest is not None and lowest > possible[0]:
        masks.append(pc.less(values, pa.scalar(lowest, values.type)))
    if highest is not None and highest < possible[1]:
        masks.append(pc.greater(values, pa.scalar(highest, values.type)))
    if masks:
        ends = ("..." if bound is None else spelled(bound) for bound in bounds)
        yield Broken(rule.format(*ends), masks[0] if len(masks) == 1 else pc.or_(*masks), values)


def _integer_range(arrow_type: Any) -> tuple[int, int]:
    bits = arrow_type.bit_width
    if pa.types.is_signed_integer(arrow_type):
        return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return 0, 2**bits - 1


_RULES: dict[Kind, Further] = {
    Kind.INTEGER: _integer,
    Kind.DECIMAL: _decimal,
    Kind.FLOAT: _float,
    Kind.TEXT: _text,
    Kind.JSON: _json,
    Kind.OTHER: _text,
    Kind.BYTES: _bytes,
    Kind.DATE: _date,
    Kind.TIMESTAMP: _timestamp,
    Kind.TIMESTAMP_TZ: _timestamp,
    Kind.ARRAY: _array,
}
