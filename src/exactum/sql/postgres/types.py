"""PostgreSQL's types in our words: what a column holds, what a Spark type may go into. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from exactum.sql.table import Column, ColumnLimits, Form, Kind, split_type
from exactum.values.times import MICROS_A_DAY

UNFIT = frozenset({"char", "money", "oid", "xid", "xid8", "cid", "tid", "time", "timetz"})
"""What a text is cut or rounded for, or read as another value: ``"char"`` keeps one byte, an oid
takes -1, an xid8 takes any text for 0, a time rounds.
"""
NAME_BYTES = 63
"""Of the type ``name``: longer texts are cut without a word."""
DIGITS = 6
"""Of a second's fraction, where a type names none."""
DAY_FIRST = -2_440_588
"""4714-11-24 BC, in days since 1970-01-01: the first day that PostgreSQL holds."""
DAY_LAST = 2_145_042_905
"""5874897-12-31."""
INSTANTS = ColumnLimits(DAY_FIRST * MICROS_A_DAY, 106_762_940 * MICROS_A_DAY - 1)
"""Until 294276-12-31, after the last instant that Spark has, but not after its last day."""
TEXTS = ColumnLimits(nul_allowed=False)

_UUID = (
    r"(?i)[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}|\{[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}\}"
)
_TYPES: Mapping[str, tuple[Kind, ColumnLimits]] = {
    "bool": (Kind.BOOLEAN, ColumnLimits()),
    **{
        f"int{bits // 8}": (Kind.INTEGER, ColumnLimits(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
        for bits in (16, 32, 64)
    },
    "numeric": (Kind.DECIMAL, ColumnLimits()),
    "float4": (Kind.FLOAT, ColumnLimits(precision=24)),
    "float8": (Kind.FLOAT, ColumnLimits(precision=53)),
    **dict.fromkeys(("text", "varchar", "bpchar", "citext"), (Kind.TEXT, TEXTS)),
    "bytea": (Kind.BYTES, ColumnLimits()),
    "date": (Kind.DATE, ColumnLimits(DAY_FIRST, DAY_LAST)),
    "timestamp": (Kind.TIMESTAMP, INSTANTS),
    "timestamptz": (Kind.TIMESTAMP_TZ, INSTANTS),
    "json": (Kind.JSON, TEXTS),
    # It keeps texts, not their escapes, so it has no place for U+0000.
    "jsonb": (Kind.JSON, replace(TEXTS, escaped_nul_allowed=False)),
    "name": (Kind.OTHER, replace(TEXTS, length_max=NAME_BYTES, length_in_bytes=True)),
    "uuid": (Kind.OTHER, replace(TEXTS, form=Form(_UUID, "a UUID"))),
}

_WHOLE = frozenset({Kind.INTEGER, Kind.DECIMAL, Kind.FLOAT})
TAKES: Mapping[str, Collection[Kind]] = {
    "boolean": {Kind.BOOLEAN},
    "tinyint": _WHOLE,
    "smallint": _WHOLE,
    "int": _WHOLE,
    "bigint": {Kind.INTEGER, Kind.DECIMAL},
    "decimal": {Kind.DECIMAL},
    "whole decimal": {Kind.DECIMAL},
    "float": {Kind.FLOAT},
    "double": {Kind.FLOAT},
    "string": {Kind.TEXT, Kind.JSON, Kind.OTHER},
    "binary": {Kind.BYTES},
    "date": {Kind.DATE, Kind.TIMESTAMP},
    "timestamp": {Kind.TIMESTAMP_TZ},
    "timestamp_ntz": {Kind.TIMESTAMP},
    "nested": {Kind.JSON},
}
"""Which columns hold every value of a Spark type, or refuse it by a rule. A ``timestamp`` is an
instant: into a column without time zone it would shift, so the query has to say how."""
_CREATED = {
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
    "nested": "jsonb",
}

_CHARACTERS = re.compile(r"(varchar|char)\((\d+)\)")
_ARRAY = re.compile(r"array<(.*)>", re.DOTALL)
_NO_JSON = re.compile(r"[<:,](variant|interval|calendar_interval|geometry|geography)(?![\w:])")
"""Types within nested ones that have no JSON; a field may be called so."""


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
        element = _column(c, c.element_name, c.element_modifier, c.element_labels)
    own = _column(c, c.type_name, c.modifier, c.labels)
    return replace(
        own,
        kind=own.kind if element is None else Kind.ARRAY,
        limits=own.limits if element is None else ColumnLimits(),
        nullable=not c.not_null,
        has_default=c.has_default,
        generated=c.generated,
        element=element,
        judged=c.is_narrower or (own.judged if element is None else element.judged),
        known_by=c.known_by,
    )


def _column(
    c: CatalogColumn, type_name: str, modifier: int, labels: Sequence[str] | None
) -> Column:
    """As if the type were of this name."""
    kind, limits = (Kind.UNFIT, ColumnLimits())
    if not c.is_opaque:
        kind, limits = kind_and_limits(type_name, modifier, labels)
    # Whether no rule here says which texts the type takes.
    known = limits.form is not None or limits.choices is not None or limits.length_max is not None
    judged = kind is Kind.JSON or (kind is Kind.OTHER and not known)
    return Column(c.name, c.type_text, kind, limits=limits, judged=judged)


def kind_and_limits(
    type_name: str, modifier: int, labels: Sequence[str] | None = None
) -> tuple[Kind, ColumnLimits]:
    """Of a type that is no array, by its name, its modifier (atttypmod: -1 where none is given)
    and, of an enum, its labels. An interval of fewer fields or digits is cut to them, so it takes
    nothing; nor does a numeric that keeps whole tens, or zeros behind the point. What has no form
    here is read by the server alone.
    """
    if labels is not None:
        return Kind.OTHER, replace(TEXTS, choices=tuple(labels))
    if type_name in UNFIT or type_name.startswith("reg"):
        return Kind.UNFIT, ColumnLimits()
    kind, limits = _TYPES.get(type_name, (Kind.OTHER, TEXTS))
    match type_name:
        case "numeric" if modifier >= 4:
            scale = ((modifier - 4) & 0x7FF ^ 1024) - 1024
            precision = ((modifier - 4) >> 16) & 0xFFFF
            if not 0 <= scale <= precision:
                return Kind.UNFIT, ColumnLimits()
            limits = replace(limits, precision=precision, scale=scale)
        case "varchar" | "bpchar" if modifier >= 4:
            blanks = type_name == "bpchar"  # they mean nothing at the end of a char(n)
            limits = replace(limits, length_max=modifier - 4, trailing_spaces_free=blanks)
        case "timestamp" | "timestamptz" if 0 <= modifier < DIGITS:
            limits = replace(limits, scale=modifier)
        case "interval" if modifier != -1:
            return Kind.UNFIT, ColumnLimits()
    return kind, limits


def element_of(spark_type: str) -> str | None:
    """The type of an array's elements; None: it is no array."""
    element = _ARRAY.fullmatch(spark_type)
    return None if element is None else element[1]


def base_of(spark_type: str) -> str:
    """The name of a type in ``TAKES``; of a nested one that has a JSON, ``nested``."""
    if spark_type.startswith(("array<", "struct<", "map<")):
        return "nested" if _NO_JSON.search(spark_type) is None else spark_type
    return split_type(spark_type)[0]


def type_for(spark_type: str) -> str | None:
    """See ``Dialect.type_for``."""
    _, digits = split_type(spark_type)
    if digits is not None:
        return f"numeric({digits[0]},{digits[1]})"
    if (characters := _CHARACTERS.fullmatch(spark_type)) is not None:
        called = "character varying" if characters[1] == "varchar" else "character"
        return f"{called}({characters[2]})"
    if (element := element_of(spark_type)) is not None:
        inner = type_for(element)
        if inner is None:
            return None
        return "jsonb" if inner.endswith(("[]", "jsonb")) else f"{inner}[]"
    return _CREATED.get(base_of(spark_type))
