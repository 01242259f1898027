"""Days and instants as text, of any year that Arrow holds: Python's dates end with the years 1 and
9999.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from exactum.values.nested import Mask, numpy_mask

Spell = Callable[[int, int, int], str]
"""Year (0 is 1 BC), month, day -> the day's text."""
DAY_FIRST = -719_162
"""0001-01-01, in days since 1970-01-01."""
DAY_LAST = 2_932_896
"""9999-12-31."""
MICROS_A_DAY = 86_400_000_000
MICROS_FIRST, MICROS_LAST = DAY_FIRST * MICROS_A_DAY, (DAY_LAST + 1) * MICROS_A_DAY - 1
"""The instants that these days begin and end with."""
MICROS_A_SECOND = 1_000_000
EARLY_US, LATE_US = MICROS_A_DAY * 14 // 24, MICROS_A_DAY // 2
"""The clocks of the earth are at most so far before and behind UTC."""
DIGITS = 6
"""Of a second's fraction: Spark's times have microseconds."""
_ERA_DAYS = 146_097  # 400 years


def iso_day(year: int, month: int, day: int) -> str:
    """ISO 8601, as Spark has it: a year beyond four digits has a sign."""
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"


def civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of the proleptic Gregorian calendar, for days since 1970-01-01."""
    era, of_era = divmod(days + 719_468, _ERA_DAYS)  # counted from a first of March
    years = (of_era - of_era // 1460 + of_era // 36_524 - of_era // (_ERA_DAYS - 1)) // 365
    of_year = of_era - (365 * years + years // 4 - years // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return era * 400 + years + (month <= 2), month, day


def day_text(days: int, spell: Spell = iso_day) -> str:
    return spell(*civil(days))


def instant_text(micros: int, spell: Spell = iso_day, between: str = " ") -> str:
    """Microseconds since 1970-01-01T00:00, with six digits of a second and no zone."""
    days, clock = divmod(micros, MICROS_A_DAY)
    seconds, fraction = divmod(clock, MICROS_A_SECOND)
    hour, minute, second = seconds // 3600, seconds // 60 % 60, seconds % 60
    return f"{day_text(days, spell)}{between}{hour:02d}:{minute:02d}:{second:02d}.{fraction:06d}"


def micros_of(values: pa.Array) -> pa.Array:
    """A timestamp array as microseconds (UTC, where it has a zone)."""
    return values.cast(pa.timestamp("us", values.type.tz)).view(pa.int64())


def are_ordinary(values: pa.Array) -> bool:
    """Whether all values of a date or timestamp array are of the years 1 to 9999 (UTC)."""
    is_date = pa.types.is_date32(values.type)
    numbers = values.view(pa.int32()) if is_date else micros_of(values)
    unit = 1 if is_date else MICROS_A_DAY
    ends = pc.min_max(numbers).as_py()
    lowest, highest = ends["min"], ends["max"]
    return lowest is None or (lowest >= DAY_FIRST * unit and highest < (DAY_LAST + 1) * unit)


def out_of_years(values: pa.Array) -> Mask | None:
    """Which days and instants no clock of the earth shows in the years 1 to 9999: a NumPy mask, or
    None for none. For ``nested.rows_where``.
    """
    kind = values.type
    if pa.types.is_date32(kind):
        numbers, first, last = values.view(pa.int32()), DAY_FIRST, DAY_LAST
    elif pa.types.is_timestamp(kind):
        early, late = (0, 0) if kind.tz is None else (EARLY_US, LATE_US)
        numbers, first, last = micros_of(values), MICROS_FIRST - early, MICROS_LAST + late
    else:
        return None
    return numpy_mask(pc.or_(pc.less(numbers, first), pc.greater(numbers, last)))


def texts(values: pa.Array, spell: Spell = iso_day, between: str = " ") -> pa.Array:
    """A date32 or timestamp array as text (see ``day_text`` and ``instant_text``); null stays
    null.
    """
    if pa.types.is_date32(values.type):
        return _texts(values.view(pa.int32()), pa.date32(), 1, lambda n: day_text(n, spell), "")
    return _texts(
        micros_of(values),
        pa.timestamp("us"),
        MICROS_A_DAY,
        lambda n: instant_text(n, spell, between),
        between,
    )


def _texts(
    numbers: pa.Array, kind: pa.DataType, unit: int, spelled: Callable[[int], str], between: str
) -> pa.Array:
    first, end = DAY_FIRST * unit, (DAY_LAST + 1) * unit
    outside = pc.or_(
        pc.less(numbers, pa.scalar(first, numbers.type)),
        pc.greater_equal(numbers, pa.scalar(end, numbers.type)),
    )
    if not pc.any(outside).as_py():
        return _ordinary(numbers.view(kind), between)
    outside = pc.fill_null(outside, False)
    inner = _ordinary(
        pc.if_else(outside, pa.scalar(None, numbers.type), numbers).view(kind), between
    )
    odd = [spelled(n) for n in numbers.filter(outside).to_pylist()]
    return pc.replace_with_mask(inner, outside, pa.array(odd, pa.string()))


def _ordinary(values: pa.Array, between: str) -> pa.Array:
    text = values.cast(pa.string())
    return (
        text
        if between in ("", " ")
        else pc.replace_substring(text, " ", between, max_replacements=1)
    )
