"""MySQL's column types in the words of ``table``, and Spark's types against them. Pure.

A Spark ``timestamp`` is an instant: it is written as its UTC time, into TIMESTAMP and DATETIME alike. Fractions of a
second finer than the column keeps are cut (MariaDB) or rounded (MySQL) by the server, as decimals are rounded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime, timedelta, timezone
from typing import Any

from exactum.sql.table import Column, Kind, Limits

_EPOCH = date(1970, 1, 1)
_DATES = ((date(1000, 1, 1) - _EPOCH).days, (date(9999, 12, 31) - _EPOCH).days)
_FLOAT_MAX = 3.4028234663852886e38
_DOUBLE_MAX = 1.7976931348623157e308
_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "integer": 32, "bigint": 64}
_TEXT_BYTES = {"tinytext": 2**8 - 1, "text": 2**16 - 1, "mediumtext": 2**24 - 1, "longtext": 2**32 - 1}
_BINARY = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_CODE_POINT_MAX = {"utf8": 0xFFFF, "utf8mb3": 0xFFFF, "ucs2": 0xFFFF, "ascii": 0x7F}
_CAST_FROM_TEXT = ("uuid", "inet4", "inet6", "time", "year", "set")
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
DECIMAL_MAX = (65, 30)
"""Most digits of a DECIMAL, and most of them after the point."""
KEY_LENGTH = 255
"""Characters (or bytes) of a key column of text (or bytes) that ``create_table`` makes: keys must be bounded."""
EXACT = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
"""Text as it is: upper and lower case and accents are different values."""


def column_from(row: Mapping[str, Any]) -> Column:
    """A row of information_schema.COLUMNS, by upper-case names, as a column."""
    kind, limits = _kind_and_limits(row)
    extra = str(row["EXTRA"] or "").lower()
    return Column(
        name=str(row["COLUMN_NAME"]),
        type=_declaration(row),
        kind=kind,
        nullable=row["IS_NULLABLE"] == "YES",
        has_default=row["COLUMN_DEFAULT"] is not None or "auto_increment" in extra or "default_generated" in extra,
        generated=bool(row["GENERATION_EXPRESSION"]) or "virtual" in extra or "stored" in extra,
        limits=limits,
    )


def takes(column: Column, spark_type: str) -> bool:
    """See ``dialect``."""
    base = spark_type.split("(")[0].lower()
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
            return base in _TEXTS and declared in _CAST_FROM_TEXT
        case Kind.BYTES:
            return base == "binary"
        case Kind.DATE:
            return base == "date"
        case Kind.TIMESTAMP:
            return base in ("timestamp", "timestamp_ntz")
        case Kind.TIMESTAMP_TZ:
            return base == "timestamp"
    return False


def column_of(name: str, spark_type: str, in_key: bool) -> Column | None:
    """See ``dialect``."""
    decimal = _DECIMAL.fullmatch(spark_type)
    if decimal is not None:
        precision, scale = int(decimal[1]), int(decimal[2])
        if precision > DECIMAL_MAX[0] or not 0 <= scale <= DECIMAL_MAX[1]:
            return None
        return Column(name, f"decimal({precision},{scale})", Kind.DECIMAL)
    base = spark_type.split("(")[0].lower()
    if base in _TEXTS:
        return Column(name, f"{f'varchar({KEY_LENGTH})' if in_key else 'longtext'} {EXACT}", Kind.TEXT)
    if base == "binary":
        return Column(name, f"varbinary({KEY_LENGTH})" if in_key else "longblob", Kind.BYTES)
    if base not in _CREATED:
        return None
    declared, kind = _CREATED[base]
    return Column(name, declared, kind)


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


def _declaration(row: Mapping[str, Any]) -> str:
    text = str(row["COLUMN_TYPE"])
    if row["CHARACTER_SET_NAME"] and str(row["DATA_TYPE"]).lower() not in ("json", "uuid", "inet4", "inet6"):
        text += f" CHARACTER SET {row['CHARACTER_SET_NAME']} COLLATE {row['COLLATION_NAME']}"
    return text


def _kind_and_limits(row: Mapping[str, Any]) -> tuple[Kind, Limits]:
    data_type = str(row["DATA_TYPE"]).lower()
    if data_type in _INTEGER_BITS:
        return Kind.INTEGER, _integer_limits(_INTEGER_BITS[data_type], "unsigned" in str(row["COLUMN_TYPE"]).lower())
    if data_type in _BINARY:
        return Kind.BYTES, Limits(length_max=int(row["CHARACTER_MAXIMUM_LENGTH"]))
    if data_type in (*_TEXT_BYTES, "char", "varchar", "enum"):
        return Kind.TEXT, _text_limits(data_type, row)
    match data_type:
        case "bit" if int(row["NUMERIC_PRECISION"]) == 1:
            return Kind.BOOLEAN, Limits()
        case "decimal" | "numeric":
            return Kind.DECIMAL, Limits(precision=int(row["NUMERIC_PRECISION"]), scale=int(row["NUMERIC_SCALE"]))
        case "float":
            return Kind.FLOAT, Limits(magnitude_max=_FLOAT_MAX, nan_allowed=False)
        case "double":
            return Kind.FLOAT, Limits(magnitude_max=_DOUBLE_MAX, nan_allowed=False)
        case "date":
            return Kind.DATE, Limits(lowest=_DATES[0], highest=_DATES[1])
        case "datetime":
            last = _micros(datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone.utc)) + _fraction_max(row)
            return Kind.TIMESTAMP, Limits(lowest=_micros(datetime(1000, 1, 1, tzinfo=timezone.utc)), highest=last)
        case "timestamp":
            last = (2**31 - 1) * 1_000_000 + _fraction_max(row)
            return Kind.TIMESTAMP_TZ, Limits(lowest=1_000_000, highest=last)
        case "json":
            return Kind.JSON, Limits()
    return Kind.OTHER, Limits()


def _integer_limits(bits: int, unsigned: bool) -> Limits:
    if unsigned:
        return Limits(lowest=0, highest=2**bits - 1)
    return Limits(lowest=-(2 ** (bits - 1)), highest=2 ** (bits - 1) - 1)


def _text_limits(data_type: str, row: Mapping[str, Any]) -> Limits:
    highest = _CODE_POINT_MAX.get(str(row["CHARACTER_SET_NAME"]).lower())
    if data_type == "enum":
        choices = re.findall(r"'((?:[^']|'')*)'", str(row["COLUMN_TYPE"]))
        return Limits(choices=tuple(c.replace("''", "'") for c in choices), code_point_max=highest)
    if data_type in _TEXT_BYTES:
        return Limits(length_max=_TEXT_BYTES[data_type], length_in_bytes=True, code_point_max=highest)
    return Limits(length_max=int(row["CHARACTER_MAXIMUM_LENGTH"]), code_point_max=highest)


def _micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)


def _fraction_max(row: Mapping[str, Any]) -> int:
    """Microseconds of the last moment that rounding does not carry into the next second."""
    digits = int(row["DATETIME_PRECISION"] or 0)
    return 999_999 if digits >= 6 else 999_999 - 10 ** (6 - digits) // 2
