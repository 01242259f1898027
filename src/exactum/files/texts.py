"""Values as the texts that stand in JSON and CSV files: whole columns at a time, each text exact.

Years are 1 to 9999: what every reader knows. Instants are in UTC; those whose year only a zone's
clock keeps within these (31 December 9999, 23:59:59 in New York, which many take for "never") are
written with that end's zone offset.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exactum.files.leaf import Numbers
from exactum.values import times
from exactum.values.times import DAY_FIRST, DAY_LAST, MICROS_FIRST, MICROS_LAST

_HOUR_US = 3_600_000_000
EARLY_US, LATE_US = 14 * _HOUR_US, 12 * _HOUR_US
"""The clocks of the earth are at most so far before and behind UTC."""


def out_of_years(values: pa.Array) -> Numbers:
    """Which dates and instants of a column have no text here."""
    kind = values.type
    if pa.types.is_date(kind):
        return outside(values.view(pa.int32()), DAY_FIRST, DAY_LAST)
    early, late = (EARLY_US, LATE_US) if kind.tz is not None else (0, 0)
    return outside(values.view(pa.int64()), MICROS_FIRST - early, MICROS_LAST + late)


def outside(whole: pa.Array, low: int, high: int) -> Numbers:
    """Which numbers are not within the bounds; nulls are well."""
    ends = pc.min_max(whole)
    if ends["min"].as_py() is None or (ends["min"].as_py() >= low and ends["max"].as_py() <= high):
        return np.empty(0, np.int64)
    return np.asarray(pc.indices_nonzero(pc.or_(pc.less(whole, low), pc.greater(whole, high))))


def instant_text(micros: int) -> str:
    """An instant in UTC, or a time without a zone, as Spark casts it to text, whatever its year."""
    return times.instant_text(micros).rstrip("0").rstrip(".")


# ---- columns ---------------------------------------------------------------------------------


def wholes(values: pa.Array) -> pa.Array:
    """Numbers without a fraction, and ``true`` and ``false``."""
    return values.cast(pa.string()).cast(pa.large_string())


def floats(values: pa.Array, quote: str) -> pa.Array:
    """The shortest digits that name this value and no other, with a point or an exponent; the three
    that are no numbers as Java spells them, between ``quote``."""
    texts = wholes(values)
    whole = pc.match_substring_regex(texts, r"^-?[0-9]+$")
    texts = pc.if_else(whole, pc.binary_join_element_wise(texts, text(".0"), text("")), texts)
    if pc.all(pc.is_finite(values)).as_py() is False:
        texts = pc.if_else(pc.is_nan(values), text(f"{quote}NaN{quote}"), texts)
        texts = pc.if_else(pc.equal(values, math.inf), text(f"{quote}Infinity{quote}"), texts)
        texts = pc.if_else(pc.equal(values, -math.inf), text(f"{quote}-Infinity{quote}"), texts)
    return texts


def decimals(values: pa.Array) -> pa.Array:
    """All digits of the scale, never an exponent."""
    texts = wholes(values)
    short = pc.match_substring(texts, "E")
    if not pc.any(short).as_py():
        return texts
    plain = [format(value, "f") for value in values.filter(short).to_pylist()]
    return pc.replace_with_mask(
        texts, pc.fill_null(short, False), pa.array(plain, pa.large_string())
    )


def dates(values: pa.Array) -> pa.Array:
    return wholes(values)


def instants(values: pa.Array) -> pa.Array:
    """ISO 8601. Arrow's own text of a time without a zone needs no time zone database on the
    executor.
    """
    micros = values.view(pa.int64())
    if values.type.tz is None:
        return _clock(micros)
    texts = pc.binary_join_element_wise(_clock(micros), text("Z"), text(""))
    for beyond, shift_us, ending in (
        (pc.less(micros, MICROS_FIRST), EARLY_US, "+14:00"),
        (pc.greater(micros, MICROS_LAST), -LATE_US, "-12:00"),
    ):
        if pc.any(beyond).as_py():
            shifted = _clock(pc.add(micros, shift_us))
            texts = pc.if_else(
                beyond, pc.binary_join_element_wise(shifted, text(ending), text("")), texts
            )
    return texts


def _clock(micros: pa.Array) -> pa.Array:
    return pc.replace_substring(wholes(micros.view(pa.timestamp("us"))), " ", "T")


def joined(*texts: Any) -> pa.Array:
    """One text of all parts; null where a part is null."""
    return pc.binary_join_element_wise(*texts, text(""))


def text(value: str) -> pa.Scalar:
    return pa.scalar(value, pa.large_string())


def whole_column(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)


def buffer_of(lines: pa.Array) -> pa.Buffer:
    """The bytes of all texts of a ``large_string`` array, one after another."""
    offsets = lines.buffers()[1]
    width = 8
    first, last = (
        int.from_bytes(offsets.slice(width * (lines.offset + i), width).to_pybytes(), "little")
        for i in (0, len(lines))
    )
    return lines.buffers()[2].slice(first, last - first)
