"""Values that their column holds exactly, or a bad record: decimals, floats, and whatever a
function of the user's returns.

Arrow rescales a decimal by at most 38 digits: beyond that it answers zero or ends the process, so
it gets none whose digits and exponent were not looked at here. Of a float it takes what a double
was rounded to before.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from exactum.formats.format import BadRecord, Reader

if TYPE_CHECKING:
    import pyarrow as pa

SHOWN_CHARS_MAX = 60
"""How much of a value a reason shows."""
FLOAT_END = 2.0**128 - 2.0**103
"""Half a step beyond the largest ``float``: the nearest one of what is less is finite. Other
systems write the largest as 3.4028235e38, which is a little more than it is.
"""
_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_FLOAT = struct.Struct("<f")

Step = Callable[[Any], Any]
"""From a value to that of the column; raises BadRecord where there is none."""
Rule = Callable[["pa.DataType", str], Step | None]
"""From an Arrow type, and where it stands, to what is done there; None: nothing."""


def fitter(
    kind: pa.DataType, atom: Rule, place: str = "value", *, null: bool = True
) -> Step | None:
    """A function of a value as Arrow takes it, that does with each value inside what ``atom`` says
    for its type; None where that is nothing. ``null``: whether the value may be null.
    """
    import pyarrow as pa

    def inside(field: pa.Field, where: str) -> Step | None:
        return fitter(field.type, atom, where, null=field.nullable)

    step: Step | None
    if pa.types.is_struct(kind):
        named = {one.name: inside(one, _within(place, one.name)) for one in kind}
        fields = [(name, made) for name, made in named.items() if made is not None]
        step = _fields(fields) if fields else None
    elif pa.types.is_list(kind):
        each = inside(kind.value_field, place)
        step = None if each is None else _items(each)
    elif pa.types.is_map(kind):
        both = inside(kind.key_field, place), inside(kind.item_field, place)
        step = None if both == (None, None) else _pairs(both[0] or _same, both[1] or _same)
    else:
        step = atom(kind, place)
    return None if step is None else _unless_null(step, place, null)


def fitted(kind: pa.DataType, read: Reader) -> Reader:
    """``read``, with the scale of their column for decimals."""
    fit = fitter(kind, decimals)
    return read if fit is None else lambda data: fit(read(data))


def _fields(fields: list[tuple[str, Step]]) -> Step:
    def struct_(value: Any) -> Any:
        made = dict(value)
        for name, step in fields:
            made[name] = step(made.get(name))
        return made

    return struct_


def _items(step: Step) -> Step:
    return lambda value: [step(one) for one in value]


def _pairs(key: Step, item: Step) -> Step:
    def pairs(value: Any) -> Any:
        given = value.items() if isinstance(value, Mapping) else value
        # Keys that are one in the column, as 1 and 1.0, may be two before: the last one counts.
        return list({key(one): item(other) for one, other in given}.items())

    return pairs


def _same(value: Any) -> Any:
    return value


def _within(place: str, name: str) -> str:
    return name if place == "value" else f"{place}.{name}"


def _unless_null(step: Step, place: str, null: bool) -> Step:
    def one(value: Any) -> Any:
        if value is not None:
            return step(value)
        if null:
            return None
        raise BadRecord(f"{place} is null or missing, and may not be")

    return one


# ---- what is done with the values of one type ----------------------------------------------------


def decimals(kind: pa.DataType, place: str) -> Step | None:
    """Decimals get the scale of their column."""
    import pyarrow as pa

    return _decimal(kind, place) if pa.types.is_decimal(kind) else None


def json_numbers(kind: pa.DataType, place: str) -> Step | None:
    """Decimals and floats from numbers of JSON, integers as ``int`` and others as ``Decimal``, and
    from the texts of decimals.
    """
    import pyarrow as pa

    if pa.types.is_float32(kind):
        return _nearest_float(place)
    if not pa.types.is_decimal(kind):
        return None
    fit = _decimal(kind, place)

    def number(value: Any) -> Any:
        if isinstance(value, str):
            if not _DECIMAL.fullmatch(value):
                raise BadRecord(f"{place}: {_shown(value)} is not a decimal number")
            return fit(decimal_of(value))
        return fit(_number(value, place, "neither a number nor the text of one"))

    return number


def python_values(kind: pa.DataType, place: str) -> Step | None:
    """Decimals, floats and instants, as a function of the user's returns them."""
    import pyarrow as pa

    if pa.types.is_decimal(kind):
        fit = _decimal(kind, place)
        return lambda value: fit(Decimal(_number(value, place, f"no {_name(kind)}")))
    if pa.types.is_floating(kind):
        return _float(kind, place)
    return _instant(place) if pa.types.is_timestamp(kind) and kind.tz else None


def _name(kind: pa.DataType) -> str:
    """Spark's name of a type of numbers."""
    if hasattr(kind, "scale"):
        return f"decimal({kind.precision},{kind.scale})"
    return "float" if kind.bit_width == 32 else "double"


def _shown(value: Any) -> str:
    if isinstance(value, int):  # of which Python makes no text where it is too long
        value = value if abs(value) < 10**SHOWN_CHARS_MAX else Decimal(value)
    return (repr(value) if isinstance(value, (str, bytes)) else str(value))[:SHOWN_CHARS_MAX]


def _decimal(kind: pa.DataType, place: str) -> Step:
    traps = [decimal.Inexact, decimal.InvalidOperation]
    # the wide exponents are those of the texts that a Decimal is made of
    context = decimal.Context(
        prec=kind.precision, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX, traps=traps
    )
    quantum, quantize = Decimal((0, (1,), -kind.scale)), context.quantize

    def fit(value: Any) -> Any:
        try:
            made = quantize(value, quantum)
            if not made.is_nan():
                return made
        except (decimal.Inexact, decimal.InvalidOperation):
            pass
        raise BadRecord(f"{place}: {_shown(value)} does not fit {_name(kind)}")

    return fit


def _instant(place: str) -> Step:
    def one(value: datetime.datetime) -> datetime.datetime:
        try:  # Arrow leaves out the microseconds of an offset, and Python the equality in a fold
            return value.astimezone(datetime.timezone.utc)
        except OverflowError:
            raise BadRecord(f"{place}: {value} is outside of the years 1 to 9999 of UTC") from None

    return one


def _float(kind: pa.DataType, place: str) -> Step:
    """The same number, but for a ``float`` from a Python float, which has no other: the nearest."""
    nearest = _nearest_float(place)
    name = _name(kind)

    def one(value: Any) -> float:
        if isinstance(value, float):
            is_plain = name == "double" or not math.isfinite(value)
            return value if is_plain else nearest(Decimal(value))
        if isinstance(value, Decimal):
            raise BadRecord(f"{place}: the decimal {_shown(value)} is no {name}")
        whole = _number(value, place, f"no {name}")
        try:
            made = float(value) if name == "double" else nearest(whole)
        except OverflowError:
            made = math.inf
        if made != value:
            raise BadRecord(f"{place}: {_shown(value)} has no {name} of the same value")
        return made

    return one


def decimal_of(text: str) -> Decimal:
    """The number that is written so, in ASCII.

    Raises:
        BadRecord: its exponent has 19 digits.
    """
    try:
        return Decimal(text)
    except decimal.InvalidOperation:
        raise BadRecord(f"{_shown(text)} is too long for a number") from None


def _number(value: Any, place: str, other: str) -> Decimal:
    """Of a Decimal or an int; ``other`` says what anything else is."""
    if isinstance(value, Decimal):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    raise BadRecord(f"{place}: {_shown(value)} is {other}")


def _nearest_float(place: str) -> Step:
    def nearest(value: Any) -> float:
        try:
            return nearest_float(_number(value, place, "no number"))
        except OverflowError:
            raise BadRecord(f"{place}: {_shown(value)} is out of the range of a float") from None

    return nearest


def nearest_float(number: Decimal) -> float:
    """The ``float`` of 32 bits that is nearest to a number.

    It is rounded once: where the double that is nearest lies halfway between two floats, the number
    itself says which of them is nearer.

    Raises:
        OverflowError: it is beyond the largest one.
    """
    double = float(number)
    if not -FLOAT_END < double < FLOAT_END:
        if not -FLOAT_END < number < FLOAT_END:
            raise OverflowError
        double = math.nextafter(double, 0.0)
    made = _as_float(double)
    other = 2 * double - made  # as far away, on the other side
    if made == double or not -FLOAT_END < other < FLOAT_END or _as_float(other) != other:
        return made
    if number > Decimal(double):
        return max(made, other)
    return min(made, other) if number < Decimal(double) else made


def _as_float(double: float) -> float:
    made: float = _FLOAT.unpack(_FLOAT.pack(double))[0]
    return made
