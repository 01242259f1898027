"""PostgreSQL's types in our words: what a column holds, what a Spark type may go into. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from exactum.sql.table import Column, ColumnLimits, Form, Kind

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

FLOAT_BITS = {"float4": 24, "float8": 53}
UNFIT = frozenset({"char", "money", "oid", "xid", "xid8", "cid", "tid"})
"""What a text is cut or rounded for, or read as another value: ``"char"`` keeps one byte, an oid
takes -1, an xid8 takes any text for 0.
"""
NAME_BYTES = 63
"""Of the type ``name``: longer texts are cut without a word."""

DIGITS = 6
"""Of a second's fraction, where a type names none."""
DAY_FIRST = -2_440_588
"""4714-11-24 BC, in days since 1970-01-01: the first day that PostgreSQL holds."""
DAY_LAST = 2_145_042_905
"""5874897-12-31."""
MICROS_FIRST = DAY_FIRST * 86_400_000_000
MICROS_LAST = 106_762_940 * 86_400_000_000 - 1
"""294276-12-31, after the last instant that Spark has, but not after its last day."""

_CLOCK = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{{0,{0}}}0*)?|24:00:00"
_ZONE = r"(Z|[+-][0-9]{2}(:?[0-5][0-9])?)"
_UUID = (
    r"(?i)[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}|\{[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}\}"
)

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
_NO_JSON = re.compile(r"[<:,](variant|interval|calendar_interval|geometry|geography)(?![\w:])")
"""Types within nested ones that have no JSON; a field may be called so."""

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
"""Which columns hold every value of a Spark type, or refuse it by a rule. A ``timestamp`` is an
instant: into a column without time zone it would shift, so the query has to say how."""


@dataclass(frozen=True)
class CatalogColumn:
    """A row of the statement ``list_columns``.

    type_name, modifier, labels: of the type itself; of a domain, of what it is made of at last.
    element_...: the same of an array's elements.
    is_narrower: values that the type holds may be refused all the same, by a domain's CHECK or for
        a character that the database's encoding lacks.
    is_opaque: a row of fields (or an array of what has no limits here), which only the server reads
        from text: it would round and cut within.
    """

    name: str
    type_text: str
    known_by: str
    type_name: str
    modifier: int
    labels: tuple[str, ...] | None
    element_name: str | None
    element_modifier: int
    element_labels: tuple[str, ...] | None
    not_null: bool
    has_default: bool
    generated: bool
    is_narrower: bool
    is_opaque: bool


def column_of(c: CatalogColumn) -> Column:
    """An array's modifier is that of its elements: ``numeric(5,2)[]`` has elements of
    ``numeric(5,2)``.
    """
    element = None
    if c.element_name is not None:
        text = c.type_text.removesuffix("[]")
        inner = Kind.UNFIT if c.is_opaque else kind_named(c.element_name, c.element_modifier)
        limits = limits_of(inner, c.element_name, c.element_modifier, c.element_labels)
        element = Column(c.name, text, inner, limits=limits, judged=_is_judged(inner, limits))
    kind = Kind.ARRAY
    if element is None:
        kind = Kind.UNFIT if c.is_opaque else kind_named(c.type_name, c.modifier)
    limits = limits_of(kind, c.type_name, c.modifier, c.labels)
    return Column(
        name=c.name,
        type=c.type_text,
        kind=kind,
        nullable=not c.not_null,
        has_default=c.has_default,
        generated=c.generated,
        limits=limits,
        element=element,
        judged=c.is_narrower
        or _is_judged(kind, limits)
        or (element is not None and element.judged),
        known_by=c.known_by,
    )


def _is_judged(kind: Kind, limits: ColumnLimits) -> bool:
    """Whether no rule here says which texts the type takes."""
    known = limits.form is not None or limits.choices is not None or limits.length_max is not None
    return kind is Kind.JSON or (kind is Kind.OTHER and not known)


def kind_named(type_name: str, modifier: int) -> Kind:
    """Of a type that is no array. An interval of fewer fields or digits is cut to them, so it takes
    nothing.
    """
    if (
        type_name in UNFIT
        or type_name.startswith("reg")
        or (type_name == "interval" and modifier != -1)
    ):
        return Kind.UNFIT
    return KINDS.get(type_name, Kind.OTHER)


def limits_of(
    kind: Kind, type_name: str, modifier: int, labels: Sequence[str] | None = None
) -> ColumnLimits:
    """By the type's name, its modifier (atttypmod: -1 where none is given) and, of an enum, its
    labels.
    """
    match kind:
        case Kind.INTEGER:
            bits = INTEGER_BITS[type_name]
            return ColumnLimits(lowest=-(2 ** (bits - 1)), highest=2 ** (bits - 1) - 1)
        case Kind.DECIMAL if modifier >= 4:
            scale = ((modifier - 4) & 0x7FF ^ 1024) - 1024
            return ColumnLimits(precision=((modifier - 4) >> 16) & 0xFFFF, scale=scale)
        case Kind.FLOAT:
            return ColumnLimits(precision=FLOAT_BITS[type_name])
        case Kind.TEXT:
            if type_name in ("varchar", "bpchar") and modifier >= 4:
                blanks = type_name == "bpchar"  # they mean nothing at the end of a char(n)
                return ColumnLimits(
                    length_max=modifier - 4, trailing_spaces_free=blanks, nul_allowed=False
                )
            return ColumnLimits(nul_allowed=False)
        case Kind.OTHER:
            return _other_limits(type_name, modifier, labels)
        case Kind.JSON:
            return ColumnLimits(nul_allowed=False)
        case Kind.DATE:
            return ColumnLimits(lowest=DAY_FIRST, highest=DAY_LAST)
        case Kind.TIMESTAMP | Kind.TIMESTAMP_TZ:
            return ColumnLimits(
                lowest=MICROS_FIRST,
                highest=MICROS_LAST,
                scale=modifier if 0 <= modifier < DIGITS else None,
            )
        case _:
            return ColumnLimits()


def _other_limits(type_name: str, modifier: int, labels: Sequence[str] | None) -> ColumnLimits:
    """Of types that take text. What has no form here is read by the server alone."""
    digits = modifier if 0 <= modifier < DIGITS else DIGITS
    if labels is not None:
        return ColumnLimits(nul_allowed=False, choices=tuple(labels))
    match type_name:
        case "name":
            return ColumnLimits(nul_allowed=False, length_max=NAME_BYTES, length_in_bytes=True)
        case "uuid":
            return ColumnLimits(nul_allowed=False, form=Form(_UUID, "a UUID"))
        case "time":
            says = f"a time of day like 23:59:59, with at most {digits} digits after the point"
            return ColumnLimits(nul_allowed=False, form=Form(_CLOCK.format(digits), says))
        case "timetz":
            says = f"a time of day like 23:59:59+00, with at most {digits} digits after the point"
            return ColumnLimits(
                nul_allowed=False, form=Form(f"({_CLOCK.format(digits)}){_ZONE}", says)
            )
    return ColumnLimits(nul_allowed=False)


def takes(column: Column, spark_type: str) -> bool:
    """See ``Dialect.takes``. An array takes what its elements take."""
    element = _ARRAY.fullmatch(spark_type)
    if element is not None and column.element is not None:
        return column.element.kind is not Kind.JSON and takes(column.element, element[1])
    if element is not None or spark_type.startswith(("struct<", "map<")):
        return column.kind is Kind.JSON and _NO_JSON.search(spark_type) is None
    if column.kind is Kind.FLOAT and spark_type in ("int", "double"):
        return column.limits.precision == FLOAT_BITS["float8"]
    return column.kind in TAKES.get(_plain(spark_type), set())


def type_for(spark_type: str) -> str | None:
    """What ``create_table`` makes of it; None when there is nothing."""
    if (decimal := _DECIMAL.fullmatch(spark_type)) is not None:
        return f"numeric({decimal[1]},{decimal[2]})"
    if (characters := _CHARACTERS.fullmatch(spark_type)) is not None:
        return (
            f"{'character varying' if characters[1] == 'varchar' else 'character'}({characters[2]})"
        )
    if (element := _ARRAY.fullmatch(spark_type)) is not None:
        inner = type_for(element[1])
        if inner is None:
            return None
        return "jsonb" if inner.endswith("[]") or inner == "jsonb" else f"{inner}[]"
    if spark_type.startswith(("struct<", "map<")):
        return "jsonb" if _NO_JSON.search(spark_type) is None else None
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
