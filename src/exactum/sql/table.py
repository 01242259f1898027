"""A table as its server describes it: names, columns and what each column can hold. Pure values, no
I/O.

Both dialects fill these from their catalogs; ``rows`` and the checks at start read nothing else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum

from exactum.errors import SettingRefused

BYTES_A_CHARACTER = 4
"""At most, in UTF-8."""
_PART = r'("(?:[^"]|"")+"|[^".][^.]*)'
_NAME = re.compile(rf"(?:{_PART}\.)?{_PART}", re.DOTALL)


def _unquoted(part: str | None) -> str:
    part = part or ""
    return part[1:-1].replace('""', '"') if part.startswith('"') else part


@dataclass(frozen=True, order=True)
class TableName:
    """A table's name, unquoted and as the server spells it. ``schema`` None: the connection's
    own.
    """

    schema: str | None
    table: str

    @staticmethod
    def of(text: str, where: str) -> TableName:
        """From ``"table"`` or ``"schema.table"``, as the server spells them; a name with a dot is
        written in double quotes.

        Raises:
            SettingRefused: it is neither.
        """
        parts = _NAME.fullmatch(text) if isinstance(text, str) else None
        if parts is None:
            raise SettingRefused(
                "SQL_ARGUMENT",
                f"{where}: table must be 'table' or 'schema.table', as the server spells it and "
                "without quotes; a name that has a dot in it is put in double quotes.",
            )
        schema, table = (_unquoted(part) for part in parts.groups())
        return TableName(schema or None, table)

    def sibling(self, table: str) -> TableName:
        """Another table in the same schema (in MySQL: database)."""
        return TableName(self.schema, table)

    def __str__(self) -> str:
        return self.table if self.schema is None else f"{self.schema}.{self.table}"


class Kind(Enum):
    """What a column holds, as far as it is checked; the dialect maps its types to these."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    DECIMAL = "decimal"
    FLOAT = "float"
    TEXT = "text"
    BYTES = "bytes"
    DATE = "date"
    TIMESTAMP = "timestamp without time zone"
    TIMESTAMP_TZ = "timestamp with time zone"
    JSON = "json"
    ARRAY = "array"
    # anything else (uuid, enum, interval, inet, ...): takes text, and the server casts it
    OTHER = "other"
    UNFIT = "unfit"  # takes nothing: the server would read a text as another value, or cut it


@dataclass(frozen=True)
class Form:
    """What texts must look like, where a server would read others as another value than they seem
    to say.

    pattern: a regular expression (RE2) that the whole text must match. says: how a reason describes
    such texts.
    """

    pattern: str
    says: str


@dataclass(frozen=True)
class ColumnLimits:
    """What values a column can hold; None: no limit, or one that only the server knows.

    lowest, highest: of INTEGER, inclusive. Of DATE: days since 1970-01-01. Of TIMESTAMP and
    TIMESTAMP_TZ: microseconds since 1970-01-01T00:00 (UTC). Of DECIMAL and FLOAT ``lowest`` 0 alone
    means something (unsigned).
    magnitude_max: of FLOAT, the largest absolute value.
    precision, scale: of DECIMAL, all digits, and those after the point. Of TIMESTAMP and
    TIMESTAMP_TZ, ``scale`` is the digits of a second's fraction. What has more is refused. Of
    FLOAT, ``precision`` is its bits (24 or 53).
    length_min: of BYTES: shorter ones would be filled up.
    length_max: of TEXT in characters (Unicode code points), or in bytes if ``length_in_bytes``; of
    BYTES in bytes. ``trailing_spaces_free``: what is too long only by blanks at its end is taken
    (PostgreSQL's char(n), where blanks at the end mean nothing).
    character_max: of TEXT, the last code point that can be held.
    nul_allowed: False when text with U+0000 cannot be held. escaped_nul_allowed: of JSON, False
    when it cannot be held as ``\\u0000`` either.
    nan_allowed: False when a FLOAT cannot hold NaN and the infinities.
    choices: the only texts allowed (ENUM), or None.
    form: what texts must look like, or None.
    json_depth_max: of JSON that is checked here, the deepest that the server takes.
    """

    lowest: int | None = None
    highest: int | None = None
    magnitude_max: float | None = None
    precision: int | None = None
    scale: int | None = None
    length_min: int = 0
    length_max: int | None = None
    length_in_bytes: bool = False
    trailing_spaces_free: bool = False
    character_max: int | None = None
    nul_allowed: bool = True
    escaped_nul_allowed: bool = True
    nan_allowed: bool = True
    choices: tuple[str, ...] | None = None
    form: Form | None = None
    json_depth_max: int | None = None


@dataclass(frozen=True)
class Column:
    """One column of a table.

    type: the server's own text for it, complete enough to declare another column by (``character
    varying(10)``). generated: the server computes it always, so that nobody may write it (GENERATED
    ALWAYS AS; identity ALWAYS). has_default: it may be left out (a default, an identity,
    auto_increment). element: of an ARRAY, its elements as a column. judged: of values that keep to
    all limits, the server alone refuses some (text that is no JSON, a domain's CHECK). known_by:
    what tells the type from another one to which users gave the same name.
    """

    name: str
    type: str
    kind: Kind
    nullable: bool = True
    has_default: bool = False
    generated: bool = False
    limits: ColumnLimits = field(default_factory=ColumnLimits)
    element: Column | None = None
    judged: bool = False
    known_by: str = ""


@dataclass(frozen=True)
class Table:
    """A table: its columns in the server's order, and its unique keys (the primary key, too) as
    sets of names.

    ``unique_keys`` lists only those that hold for all rows (no partial or expression index) and at
    once (not deferrable). ``hides_rows``: a policy may keep rows from this user, which a DELETE
    then passes over without a word.
    """

    name: TableName
    columns: tuple[Column, ...]
    unique_keys: tuple[frozenset[str], ...] = ()
    hides_rows: bool = False

    def column(self, name: str) -> Column | None:
        return next((c for c in self.columns if c.name == name), None)


def keeps(now: Column, before: Column) -> bool:
    """Whether the server puts no value that ``before`` could hold into ``now`` as another one,
    without a word: rounded, cut, filled up, converted, or one of its own in the place of null. What
    it refuses in words (a number that is too large) does not count.
    """
    if now.element is not None and before.element is not None:
        return keeps(now.element, before.element)
    own, former = now.limits, before.limits
    is_in_bytes = own.length_in_bytes and not former.length_in_bytes
    longest = (former.length_max or 0) * (BYTES_A_CHARACTER if is_in_bytes else 1) or None
    limits = (
        (own.precision, former.precision),
        (own.scale, former.scale),
        (own.length_max, longest),
        (own.character_max, former.character_max),
    )
    return (
        now.kind is before.kind
        and (now.type == before.type or now.kind not in (Kind.JSON, Kind.OTHER))
        and (now.nullable or not before.nullable)
        and own.length_min <= former.length_min
        and own.trailing_spaces_free == former.trailing_spaces_free
        and all(is_ is None or (was is not None and is_ >= was) for is_, was in limits)
    )


_LIMITS = re.compile(r"\(.*?\)")


def without_limits(column_type: str) -> str:
    """``character varying(10)`` without the 10: values of the two are written alike."""
    return _LIMITS.sub("", column_type)


_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_TEXT = re.compile(r"(varchar|char)\(\d+\)|string collate .*")


def split_type(spark_type: str) -> tuple[str, tuple[int, int] | None]:
    """The type without what it has in brackets, and of a decimal its digits and those after the
    point; one that has none after it is a ``whole decimal``.
    """
    decimal = _DECIMAL.fullmatch(spark_type)
    if decimal is not None:
        scale = int(decimal[2])
        return "decimal" if scale else "whole decimal", (int(decimal[1]), scale)
    return "string" if _TEXT.fullmatch(spark_type) else spark_type, None
