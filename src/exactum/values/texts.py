"""Arrow arrays as texts, whole arrays at a time, each text exact; null stays null."""

from __future__ import annotations

import math

import pyarrow as pa
import pyarrow.compute as pc

from exactum.values import times

TEXT = pa.large_string()
"""Texts of a whole batch may be more than 2 GiB."""


def concatenated(*texts: pa.Array | str) -> pa.Array:
    """Of arrays, and texts that stand in each row; null where one of the arrays is."""
    return pc.binary_join_element_wise(*map(_scalar, texts), _scalar(""))


def without_nulls(*texts: pa.Array | str, between: str = "") -> pa.Array:
    """The same, and nothing in the place of a null. (Arrow's null_handling="skip" drops a row of
    nulls.)
    """
    return pc.binary_join_element_wise(
        *map(_scalar, texts), _scalar(between), null_handling="replace", null_replacement=""
    )


def floats(values: pa.Array, quote: str) -> pa.Array:
    """The shortest digits that name this value and no other, with a point or an exponent; the three
    that are no numbers as Java spells them, between ``quote``.
    """
    texts = values.cast(TEXT)
    whole = pc.match_substring_regex(texts, "^-?[0-9]+$")
    texts = pc.if_else(whole, concatenated(texts, ".0"), texts)
    if pc.all(pc.is_finite(values)).as_py() is False:
        texts = pc.if_else(pc.is_nan(values), _scalar(f"{quote}NaN{quote}"), texts)
        for sign, number in (("", math.inf), ("-", -math.inf)):
            name = _scalar(f"{quote}{sign}Infinity{quote}")
            texts = pc.if_else(pc.equal(values, number), name, texts)
    return texts


def decimals(values: pa.Array) -> pa.Array:
    """All digits of the scale, never an exponent."""
    texts = values.cast(TEXT)
    short = pc.match_substring(texts, "E")
    if not pc.any(short).as_py():
        return texts
    plain = [format(value, "f") for value in values.filter(short).to_pylist()]
    return pc.replace_with_mask(texts, pc.fill_null(short, False), pa.array(plain, TEXT))


def instants(values: pa.Array) -> pa.Array:
    """ISO 8601 with microseconds: in UTC with ``Z``, or without a zone where the column has none.

    An instant whose year only some zone's clock keeps within 1 to 9999 (31 December 9999, 23:59:59
    in New York, which many take for "never") has that end's offset: readers know no other years.
    """
    texts = times.texts(values, between="T").cast(TEXT)
    if values.type.tz is None:
        return texts
    texts, micros = concatenated(texts, "Z"), times.micros_of(values)
    ends = (
        (times.MICROS_FIRST - times.EARLY_US, times.MICROS_FIRST - 1, times.EARLY_US, "+14:00"),
        (times.MICROS_LAST + 1, times.MICROS_LAST + times.LATE_US, -times.LATE_US, "-12:00"),
    )
    for first, last, shift_us, offset in ends:
        beyond = pc.and_(pc.greater_equal(micros, first), pc.less_equal(micros, last))
        if pc.any(beyond).as_py():
            shifted = pc.if_else(beyond, pc.add(micros, shift_us), micros).view(pa.timestamp("us"))
            there = concatenated(times.texts(shifted, between="T").cast(TEXT), offset)
            texts = pc.if_else(beyond, there, texts)
    return texts


def _scalar(text: pa.Array | str) -> pa.Array | pa.Scalar:
    return pa.scalar(text, TEXT) if isinstance(text, str) else text
