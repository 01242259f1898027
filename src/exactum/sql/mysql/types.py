"""MySQL's column types in the words of ``table``, and Spark's types against them. Pure.

A Spark ``timestamp`` is an instant: it is written as its UTC time, into TIMESTAMP and DATETIME
alike. What the server would round or cut (fractions of a second, digits after the point) is
refused; it pads ``char(n)`` with blanks, which mean nothing there, and zero has no sign in MariaDB.
Text for a column that reads more than one text as the same value, or keeps another character set
than UTF-8, is refused as a type: the query casts it, or the column is converted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import date
from typing import Any

from exactum.sql.table import Column, ColumnLimits, Kind, split_type
from exactum.values.times import MICROS_A_DAY

_EPOCH = date(1970, 1, 1)
_FIRST_DAY, _LAST_DAY = (date(1000, 1, 1) - _EPOCH).days, (date(9999, 12, 31) - _EPOCH).days
_MEMBER = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_ESCAPED = re.compile(r"''|\\(.)", re.DOTALL)
_CONTROLS = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "Z": "\x1a"}
_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_TEXT_BYTES = {"tinytext": 2**8 - 1, "text": 2**16 - 1, "mediumtext": 2**24 - 1,
               "longtext": 2**32 - 1}  # fmt: skip
_CHARACTERS = {"utf8mb4": None, "utf8mb3": 0xFFFF, "utf8": 0xFFFF, "ascii": 0x7F}
"""The last character of each set that is UTF-8."""
_TYPES: Mapping[str, tuple[Kind, ColumnLimits]] = {
    "float": (Kind.FLOAT, ColumnLimits(magnitude_max=3.4028234663852886e38, precision=24)),
    "double": (Kind.FLOAT, ColumnLimits(magnitude_max=1.7976931348623157e308, precision=53)),
    "decimal": (Kind.DECIMAL, ColumnLimits()),
    "date": (Kind.DATE, ColumnLimits(_FIRST_DAY, _LAST_DAY)),
    "datetime": (
        Kind.TIMESTAMP,
        ColumnLimits(_FIRST_DAY * MICROS_A_DAY, (_LAST_DAY + 1) * MICROS_A_DAY - 1),
    ),
    "timestamp": (Kind.TIMESTAMP_TZ, ColumnLimits(1_000_000, 2**31 * 1_000_000 - 1)),
    "json": (Kind.JSON, ColumnLimits(json_depth_max=100)),
}  # fmt: skip
MARIADB_JSON_DEPTH = 31
DECIMAL_MAX = (65, 30)
"""Most digits of a DECIMAL, and most of them after the point."""
KEY_LENGTH = 255
"""Characters (or bytes) of a key column of text (or bytes) that ``create_table`` makes: keys
must be bounded.
"""
EXACT = (
    "CHARACTER SET utf8mb4 /*M! COLLATE utf8mb4_nopad_bin */ /*!80017 COLLATE utf8mb4_0900_bin */"
)
"""Text as it is: upper and lower case, accents and blanks at the end are different values. The
first comment is for MariaDB, the second for MySQL (Comment syntax, in the manuals of both)."""

_WHOLE = frozenset({Kind.INTEGER, Kind.DECIMAL})
TAKES: Mapping[str, Collection[Kind]] = {
    "boolean": {Kind.BOOLEAN, Kind.INTEGER},
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint", "whole decimal"), _WHOLE),
    "decimal": {Kind.DECIMAL},
    "float": {Kind.FLOAT},
    "double": {Kind.FLOAT},
    "string": {Kind.TEXT, Kind.JSON, Kind.OTHER},
    "binary": {Kind.BYTES},
    "date": {Kind.DATE},
    "timestamp": {Kind.TIMESTAMP, Kind.TIMESTAMP_TZ},
    "timestamp_ntz": {Kind.TIMESTAMP},
}
"""Which columns hold every value of a Spark type, or refuse it by a rule."""
_CREATED = {
    "boolean": "tinyint(1)",
    **{name: name for name in ("tinyint", "smallint", "int", "bigint", "float", "double", "date")},
    "timestamp": "datetime(6)",
    "timestamp_ntz": "datetime(6)",
}


def column_from(row: Mapping[str, Any], json: Collection[str]) -> Column:
    """A row of information_schema.COLUMNS, by upper-case names, as a column.

    ``json``: names of columns that a CHECK makes JSON, as MariaDB has it.
    """
    kind, limits = _kind_and_limits(row)
    if kind is Kind.TEXT and str(row["COLUMN_NAME"]) in json:
        kind, limits = Kind.JSON, replace(limits, json_depth_max=MARIADB_JSON_DEPTH)
    extra = str(row["EXTRA"] or "").lower()
    charset = row["CHARACTER_SET_NAME"]
    if str(row["DATA_TYPE"]).lower() in ("json", "uuid", "inet4", "inet6"):
        charset = None
    return Column(
        name=str(row["COLUMN_NAME"]),
        type=str(row["COLUMN_TYPE"])
        + (f" CHARACTER SET {charset} COLLATE {row['COLLATION_NAME']}" if charset else ""),
        kind=kind,
        nullable=row["IS_NULLABLE"] == "YES",
        has_default=row["COLUMN_DEFAULT"] is not None
        or "auto_increment" in extra
        or "default_generated" in extra,
        generated=bool(row["GENERATION_EXPRESSION"]) or "virtual" in extra or "stored" in extra,
        limits=limits,
    )


def type_for(spark_type: str, in_key: bool) -> str | None:
    """See ``Dialect.type_for``."""
    base, digits = split_type(spark_type)
    if digits is not None:
        fits = digits[0] <= DECIMAL_MAX[0] and 0 <= digits[1] <= DECIMAL_MAX[1]
        return f"decimal({digits[0]},{digits[1]})" if fits else None
    if base == "string":
        return f"{f'varchar({KEY_LENGTH})' if in_key else 'longtext'} {EXACT}"
    if base == "binary":
        return f"varbinary({KEY_LENGTH})" if in_key else "longblob"
    return _CREATED.get(base)


def _kind_and_limits(row: Mapping[str, Any]) -> tuple[Kind, ColumnLimits]:
    data_type, declared = str(row["DATA_TYPE"]).lower(), str(row["COLUMN_TYPE"])
    unsigned = "unsigned" in declared.lower()
    length, precision, scale = (
        None if row[fact] is None else int(row[fact])
        for fact in ("CHARACTER_MAXIMUM_LENGTH", "NUMERIC_PRECISION", "NUMERIC_SCALE")
    )
    if data_type in _INTEGER_BITS:
        values = 2 ** _INTEGER_BITS[data_type]
        first = 0 if unsigned else -values // 2
        return Kind.INTEGER, ColumnLimits(first, first + values - 1)
    if data_type == "enum":
        return Kind.TEXT, ColumnLimits(choices=_members(declared))
    if data_type in (*_TEXT_BYTES, "char", "varchar"):
        charset = str(row["CHARACTER_SET_NAME"]).lower()
        if charset not in _CHARACTERS:
            return Kind.UNFIT, ColumnLimits()
        return Kind.TEXT, ColumnLimits(
            length_max=_TEXT_BYTES.get(data_type, length),
            length_in_bytes=data_type in _TEXT_BYTES,
            trailing_spaces_free=data_type == "char",
            character_max=_CHARACTERS[charset],
        )
    if data_type.endswith(("binary", "blob")):
        return Kind.BYTES, ColumnLimits(
            length_min=length or 0 if data_type == "binary" else 0, length_max=length
        )
    if data_type == "bit":
        return Kind.BOOLEAN if precision == 1 else Kind.UNFIT, ColumnLimits()
    kind, limits = _TYPES.get(data_type, (Kind.UNFIT, ColumnLimits()))
    lowest = 0 if unsigned else limits.lowest
    match kind:
        case Kind.DECIMAL:
            limits = replace(limits, lowest=lowest, precision=precision, scale=scale)
        case Kind.FLOAT if scale is not None:  # DOUBLE(M,D) rounds to D digits after the point
            return Kind.UNFIT, ColumnLimits()
        case Kind.FLOAT:
            limits = replace(limits, lowest=lowest, nan_allowed=False)
        case Kind.TIMESTAMP | Kind.TIMESTAMP_TZ:
            limits = replace(limits, scale=int(row["DATETIME_PRECISION"] or 0))
    return kind, limits


def _members(declared: str) -> tuple[str, ...]:
    """The members of ``enum('a','it''s')``, as the server's catalog spells them."""
    return tuple(
        _ESCAPED.sub(lambda m: "'" if m[1] is None else _CONTROLS.get(m[1], m[1]), text)
        for text in _MEMBER.findall(declared)
    )
