"""MySQL's column types in the words of ``table``, and Spark's types against them. Pure.

A Spark ``timestamp`` is an instant: it is written as its UTC time, into TIMESTAMP and DATETIME
alike. What the server would round or cut (fractions of a second, digits after the point) is
refused; it pads ``char(n)`` with blanks, which mean nothing there, and zero has no sign in MariaDB.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from typing import Any

from exactum.sql.charset import Charset
from exactum.sql.mysql.forms import TEXT_FORMS, member_texts, set_form, time_form
from exactum.sql.table import Column, ColumnLimits, Form, Kind

_EPOCH = date(1970, 1, 1)
_DATES = ((date(1000, 1, 1) - _EPOCH).days, (date(9999, 12, 31) - _EPOCH).days)
_DATETIMES = (
    datetime(1000, 1, 1, tzinfo=timezone.utc),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=timezone.utc),
)
_FLOAT_MAX = 3.4028234663852886e38
_DOUBLE_MAX = 1.7976931348623157e308
_INTEGER_BITS = {
    "tinyint": 8,
    "smallint": 16,
    "mediumint": 24,
    "int": 32,
    "integer": 32,
    "bigint": 64,
}
_TEXT_BYTES = {
    "tinytext": 2**8 - 1,
    "text": 2**16 - 1,
    "mediumtext": 2**24 - 1,
    "longtext": 2**32 - 1,
}
_BINARY = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
DECIMAL_MAX = (65, 30)
"""Most digits of a DECIMAL, and most of them after the point."""
KEY_LENGTH = 255
"""Characters (or bytes) of a key column of text (or bytes) that ``create_table`` makes: keys
must be bounded.
"""
EXACT = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
"""Text as it is: upper and lower case and accents are different values."""


def column_from(
    row: Mapping[str, Any], charsets: Mapping[str, Charset | None], json: Collection[str]
) -> Column:
    """A row of information_schema.COLUMNS, by upper-case names, as a column.

    ``charsets``: by the names in it. ``json``: names of columns that a CHECK makes JSON, as MariaDB
    has it.
    """
    kind, limits = _kind_and_limits(row, charsets)
    if kind is Kind.TEXT and str(row["COLUMN_NAME"]) in json:
        kind = Kind.JSON
    extra = str(row["EXTRA"] or "").lower()
    return Column(
        name=str(row["COLUMN_NAME"]),
        type=declaration(row),
        kind=kind,
        nullable=row["IS_NULLABLE"] == "YES",
        has_default=row["COLUMN_DEFAULT"] is not None
        or "auto_increment" in extra
        or "default_generated" in extra,
        generated=bool(row["GENERATION_EXPRESSION"]) or "virtual" in extra or "stored" in extra,
        limits=limits,
        known_by=filling(row),
    )


def takes(column: Column, spark_type: str) -> bool:
    """See ``dialect``."""
    base = _base(spark_type)
    declared = column.type.split("(")[0].split(" ")[0].lower()
    match column.kind:
        case Kind.BOOLEAN:
            return base == "boolean"
        case Kind.INTEGER:
            whole = _DECIMAL.fullmatch(spark_type)
            return base in (*_WHOLE, "boolean") or (whole is not None and int(whole[2]) == 0)
        case Kind.DECIMAL:
            return base in (*_WHOLE, "decimal")
        case Kind.FLOAT:
            return base == "float" or (base == "double" and declared == "double")
        case Kind.TEXT | Kind.JSON:
            return base in _TEXTS
        case Kind.OTHER:
            return base in _TEXTS and column.limits.form is not None
        case Kind.BYTES:
            return base == "binary"
        case Kind.DATE:
            return base == "date"
        case Kind.TIMESTAMP:
            return base in ("timestamp", "timestamp_ntz")
        case Kind.TIMESTAMP_TZ:
            return base == "timestamp"
    return False


def can_name(name: str) -> bool:
    """At most 64 characters of Unicode's first plane, and no blank at the end."""
    return (
        0 < len(name) <= 64 and name == name.rstrip(" ") and all("\0" < c <= "\uffff" for c in name)
    )


def column_of(name: str, spark_type: str, in_key: bool) -> Column | None:
    """See ``dialect``."""
    decimal = _DECIMAL.fullmatch(spark_type)
    if decimal is not None:
        precision, scale = int(decimal[1]), int(decimal[2])
        if precision > DECIMAL_MAX[0] or not 0 <= scale <= DECIMAL_MAX[1]:
            return None
        return Column(name, f"decimal({precision},{scale})", Kind.DECIMAL)
    base = _base(spark_type)
    if base in _TEXTS:
        return Column(
            name, f"{f'varchar({KEY_LENGTH})' if in_key else 'longtext'} {EXACT}", Kind.TEXT
        )
    if base == "binary":
        return Column(name, f"varbinary({KEY_LENGTH})" if in_key else "longblob", Kind.BYTES)
    if base not in _CREATED:
        return None
    declared, kind = _CREATED[base]
    return Column(name, declared, kind)


def _base(spark_type: str) -> str:
    """``string`` of ``string collate UTF8_LCASE``, ``decimal`` of ``decimal(9,2)``."""
    return spark_type.lower().split("(")[0].split(" collate ")[0]


_WHOLE = ("tinyint", "smallint", "int", "bigint")
_TEXTS = ("string", "varchar", "char")
_CREATED = {
    "boolean": ("tinyint(1)", Kind.INTEGER),
    "tinyint": ("tinyint", Kind.INTEGER),
    "smallint": ("smallint", Kind.INTEGER),
    "int": ("int", Kind.INTEGER),
    "bigint": ("bigint", Kind.INTEGER),
    "float": ("float", Kind.FLOAT),
    "double": ("double", Kind.FLOAT),
    "date": ("date", Kind.DATE),
    "timestamp": ("datetime(6)", Kind.TIMESTAMP),
    "timestamp_ntz": ("datetime(6)", Kind.TIMESTAMP),
}


def declaration(row: Mapping[str, Any]) -> str:
    """The type of a row of information_schema.COLUMNS, for another column to be declared by."""
    text = str(row["COLUMN_TYPE"])
    if row["CHARACTER_SET_NAME"] and str(row["DATA_TYPE"]).lower() not in (
        "json",
        "uuid",
        "inet4",
        "inet6",
    ):
        text += f" CHARACTER SET {row['CHARACTER_SET_NAME']} COLLATE {row['COLLATION_NAME']}"
    return text


def filling(row: Mapping[str, Any]) -> str:
    """Of a row of information_schema.COLUMNS, what ``Column.identity`` says of null: a column that
    is NOT NULL may put the next number, or the time, in its place.
    """
    return "" if row["IS_NULLABLE"] == "YES" else " NOT NULL"


def _kind_and_limits(
    row: Mapping[str, Any], charsets: Mapping[str, Charset | None]
) -> tuple[Kind, ColumnLimits]:
    data_type = str(row["DATA_TYPE"]).lower()
    unsigned = "unsigned" in str(row["COLUMN_TYPE"]).lower()
    if data_type in _INTEGER_BITS:
        return Kind.INTEGER, _integer_limits(_INTEGER_BITS[data_type], unsigned)
    if data_type in _BINARY:
        length = int(row["CHARACTER_MAXIMUM_LENGTH"])
        return Kind.BYTES, ColumnLimits(
            length_min=length if data_type == "binary" else 0, length_max=length
        )
    if data_type in (*_TEXT_BYTES, "char", "varchar", "enum"):
        limits = _text_limits(data_type, row, charsets.get(str(row["CHARACTER_SET_NAME"])))
        return Kind.TEXT, replace(limits, collation=row["COLLATION_NAME"])
    if data_type in ("float", "double"):
        return Kind.FLOAT, _float_limits(data_type, row, unsigned)
    form = _form(data_type, row)
    if form is not None:
        return Kind.OTHER, ColumnLimits(form=form)
    match data_type:
        case "bit" if int(row["NUMERIC_PRECISION"]) == 1:
            return Kind.BOOLEAN, ColumnLimits()
        case "decimal" | "numeric":
            precision, scale = int(row["NUMERIC_PRECISION"]), int(row["NUMERIC_SCALE"])
            return Kind.DECIMAL, ColumnLimits(
                lowest=0 if unsigned else None, precision=precision, scale=scale
            )
        case "date":
            return Kind.DATE, ColumnLimits(lowest=_DATES[0], highest=_DATES[1])
        case "datetime":
            first, last = (_micros(m) for m in _DATETIMES)
            return Kind.TIMESTAMP, ColumnLimits(
                lowest=first, highest=last, scale=int(row["DATETIME_PRECISION"] or 0)
            )
        case "timestamp":
            first, last = 1_000_000, (2**31 - 1) * 1_000_000 + 999_999
            return Kind.TIMESTAMP_TZ, ColumnLimits(
                lowest=first, highest=last, scale=int(row["DATETIME_PRECISION"] or 0)
            )
        case "json":
            return Kind.JSON, ColumnLimits()
    return Kind.OTHER, ColumnLimits()


def _integer_limits(bits: int, unsigned: bool) -> ColumnLimits:
    if unsigned:
        return ColumnLimits(lowest=0, highest=2**bits - 1)
    return ColumnLimits(lowest=-(2 ** (bits - 1)), highest=2 ** (bits - 1) - 1)


def _float_limits(data_type: str, row: Mapping[str, Any], unsigned: bool) -> ColumnLimits:
    """DOUBLE(M,D) keeps D digits after the point, and M of them all."""
    largest = _FLOAT_MAX if data_type == "float" else _DOUBLE_MAX
    scale = None
    if row["NUMERIC_SCALE"] is not None:
        digits, scale = int(row["NUMERIC_PRECISION"]), int(row["NUMERIC_SCALE"])
        largest = min(largest, 10.0 ** (digits - scale) - 10.0**-scale)
    return ColumnLimits(
        lowest=0 if unsigned else None, magnitude_max=largest, scale=scale, nan_allowed=False
    )


def _form(data_type: str, row: Mapping[str, Any]) -> Form | None:
    """Of the types that take text and are none."""
    if data_type == "set":
        return set_form(member_texts(str(row["COLUMN_TYPE"])))
    if data_type == "time":
        return time_form(int(row["DATETIME_PRECISION"] or 0))
    return TEXT_FORMS.get(data_type)


def _text_limits(data_type: str, row: Mapping[str, Any], charset: Charset | None) -> ColumnLimits:
    if data_type == "enum":
        return ColumnLimits(choices=member_texts(str(row["COLUMN_TYPE"])))
    if data_type in _TEXT_BYTES:
        return ColumnLimits(
            length_max=_TEXT_BYTES[data_type], length_in_bytes=True, charset=charset
        )
    return ColumnLimits(
        length_max=int(row["CHARACTER_MAXIMUM_LENGTH"]),
        charset=charset,
        trailing_spaces_free=data_type == "char",
    )


def _micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)
