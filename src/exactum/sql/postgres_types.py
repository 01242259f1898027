"""PostgreSQL's types in our words: what a column holds, what a Spark type may go into. Pure."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass

from exactum.sql.table import Column, Kind, Limits

KINDS = {
    "bool": Kind.BOOLEAN,
    "int2": Kind.INTEGER,
    "int4": Kind.INTEGER,
    "int8": Kind.INTEGER,
    "numeric": Kind.DECIMAL,
    "float4": Kind.FLOAT,
    "float8": Kind.FLOAT,
    "text": Kind.TEXT,
    "varchar": Kind.TEXT,
    "bpchar": Kind.TEXT,
    "citext": Kind.TEXT,
    "bytea": Kind.BYTES,
    "date": Kind.DATE,
    "timestamp": Kind.TIMESTAMP,
    "timestamptz": Kind.TIMESTAMP_TZ,
    "json": Kind.JSON,
    "jsonb": Kind.JSON,
}
INTEGER_BITS = {"int2": 16, "int4": 32, "int8": 64}

_EPOCH = datetime.date(1970, 1, 1)
DAY_FIRST = (datetime.date(1, 1, 1) - _EPOCH).days
DAY_LAST = (datetime.date(9999, 12, 31) - _EPOCH).days
"""Days and times go as ISO text, which PostgreSQL reads without doubt from year 1 to 9999."""
MICROS_A_DAY = 86_400_000_000

TYPES = {
    "boolean": "boolean",
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
}
"""What ``create_table`` makes of a Spark type."""

_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_CHARACTERS = re.compile(r"(varchar|char)\((\d+)\)")
_ARRAY = re.compile(r"array<(.*)>", re.DOTALL)

TAKES = {
    "boolean": {Kind.BOOLEAN},
    "tinyint": {Kind.INTEGER, Kind.DECIMAL, Kind.FLOAT},
    "smallint": {Kind.INTEGER, Kind.DECIMAL, Kind.FLOAT},
    "int": {Kind.INTEGER, Kind.DECIMAL, Kind.FLOAT},
    "bigint": {Kind.INTEGER, Kind.DECIMAL},
    "decimal": {Kind.DECIMAL},
    "float": {Kind.FLOAT},
    "double": {Kind.FLOAT},
    "string": {Kind.TEXT, Kind.JSON, Kind.OTHER},
    "binary": {Kind.BYTES},
    "date": {Kind.DATE, Kind.TIMESTAMP},
    "timestamp": {Kind.TIMESTAMP_TZ},
    "timestamp_ntz": {Kind.TIMESTAMP},
}
"""Which columns hold every value of a Spark type, or refuse it by a rule. A ``timestamp`` is an instant: into a column
without time zone it would shift, so the query has to say how."""


@dataclass(frozen=True)
class CatalogColumn:
    """A row of ``postgres_catalog.COLUMNS``."""

    name: str
    type_text: str
    type_name: str
    modifier: int
    element_name: str | None
    not_null: bool
    has_default: bool
    generated: bool


def column_of(c: CatalogColumn) -> Column:
    """An array's modifier is that of its elements: ``numeric(5,2)[]`` has elements of ``numeric(5,2)``."""
    kind = Kind.ARRAY if c.element_name is not None else KINDS.get(c.type_name, Kind.OTHER)
    element = None
    if c.element_name is not None:
        inner = KINDS.get(c.element_name, Kind.OTHER)
        limits = limits_of(inner, c.element_name, c.modifier)
        element = Column(c.name, c.type_text.removesuffix("[]"), inner, limits=limits)
    return Column(
        name=c.name,
        type=c.type_text,
        kind=kind,
        nullable=not c.not_null,
        has_default=c.has_default,
        generated=c.generated,
        limits=limits_of(kind, c.type_name, c.modifier),
        element=element,
    )


def limits_of(kind: Kind, type_name: str, modifier: int) -> Limits:
    """By the type's name and its modifier (atttypmod: -1 where none is given)."""
    match kind:
        case Kind.INTEGER:
            bits = INTEGER_BITS[type_name]
            return Limits(lowest=-(2 ** (bits - 1)), highest=2 ** (bits - 1) - 1)
        case Kind.DECIMAL if modifier >= 4:
            scale = ((modifier - 4) & 0x7FF ^ 1024) - 1024
            return Limits(precision=((modifier - 4) >> 16) & 0xFFFF, scale=scale)
        case Kind.TEXT:
            if type_name in ("varchar", "bpchar") and modifier >= 4:
                return Limits(length_max=modifier - 4, trailing_spaces_free=type_name == "bpchar", nul_allowed=False)
            return Limits(nul_allowed=False)
        case Kind.JSON | Kind.OTHER:
            return Limits(nul_allowed=False)
        case Kind.DATE:
            return Limits(lowest=DAY_FIRST, highest=DAY_LAST)
        case Kind.TIMESTAMP | Kind.TIMESTAMP_TZ:
            return Limits(lowest=DAY_FIRST * MICROS_A_DAY, highest=(DAY_LAST + 1) * MICROS_A_DAY - 1)
        case _:
            return Limits()


def takes(column: Column, spark_type: str) -> bool:
    """See ``Dialect.takes``. An array takes what its elements take."""
    element = _ARRAY.fullmatch(spark_type)
    if element is not None and column.element is not None:
        return column.element.kind is not Kind.JSON and takes(column.element, element[1])
    if element is not None or spark_type.startswith(("struct<", "map<")):
        return column.kind is Kind.JSON
    if column.kind is Kind.FLOAT and spark_type in ("int", "double"):
        return column.type == "double precision"  # real holds 24 bits
    return column.kind in TAKES.get(_plain(spark_type), set())


def type_for(spark_type: str) -> str | None:
    """What ``create_table`` makes of it; None when there is nothing."""
    if (decimal := _DECIMAL.fullmatch(spark_type)) is not None:
        return f"numeric({decimal[1]},{decimal[2]})"
    if (characters := _CHARACTERS.fullmatch(spark_type)) is not None:
        return f"{'character varying' if characters[1] == 'varchar' else 'character'}({characters[2]})"
    if (element := _ARRAY.fullmatch(spark_type)) is not None:
        inner = TYPES.get(element[1]) or (type_for(element[1]) if element[1].startswith("decimal") else None)
        return None if inner is None else f"{inner}[]"
    if spark_type.startswith(("struct<", "map<")):
        return "jsonb"
    return TYPES.get(_plain(spark_type))


def _plain(spark_type: str) -> str:
    if _CHARACTERS.fullmatch(spark_type) or spark_type.startswith("string collate "):
        return "string"
    return "decimal" if _DECIMAL.fullmatch(spark_type) else spark_type


def kind_of(sql_type: str) -> Kind:
    """Of a type that ``type_for`` gave."""
    if sql_type.endswith("[]"):
        return Kind.ARRAY
    return _KIND_OF_TYPE.get(sql_type.split("(")[0], Kind.OTHER)


_KIND_OF_TYPE = {
    "boolean": Kind.BOOLEAN,
    "smallint": Kind.INTEGER,
    "integer": Kind.INTEGER,
    "bigint": Kind.INTEGER,
    "numeric": Kind.DECIMAL,
    "real": Kind.FLOAT,
    "double precision": Kind.FLOAT,
    "text": Kind.TEXT,
    "character varying": Kind.TEXT,
    "character": Kind.TEXT,
    "bytea": Kind.BYTES,
    "date": Kind.DATE,
    "timestamp with time zone": Kind.TIMESTAMP_TZ,
    "timestamp without time zone": Kind.TIMESTAMP,
    "jsonb": Kind.JSON,
}
