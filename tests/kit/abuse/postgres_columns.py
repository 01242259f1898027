"""PostgreSQL's column types as an oracle, see ``columns``; by psycopg and arithmetic alone."""

from __future__ import annotations

import base64
import datetime
import json
import math
import random
import re
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from tests.kit.abuse.columns import (
    REFUSED,
    TEXTS,
    Kinds,
    Reading,
    Target,
    blob,
    exact,
    members,
    not_taken,
    text,
    times,
    whole,
)
from tests.kit.abuse.frames import (
    ALL,
    BIGINT,
    BOOLEAN,
    DATE,
    DECIMALS,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    single,
)
from tests.kit.abuse.kinds import (
    MICROS_PER_DAY,
    WHOLE,
    Kind,
    Raw,
    array,
    has_bad_text,
    scalars,
)

TYPES = (
    "DOMAIN price AS numeric(9,2)",
    "DOMAIN discount AS price CHECK (VALUE < 100)",
    "DOMAIN code AS varchar(3)",
    "DOMAIN share AS float8",
    "DOMAIN prices AS numeric(9,2)[]",
    "TYPE tempo AS ENUM ('slow', 'qu\"ick\\')",
    "DOMAIN pace AS tempo",
    "DOMAIN own_pace AS pace",
    "TYPE amount AS (value numeric(9,2), currency char(3))",
    "DOMAIN checked_amount AS amount",
)
"""That users make of others: a value is no less safe in them than in what they are made of."""
DAYS_OF_400_YEARS = 146_097
DAYS = (-2_440_588, 2_145_042_905)
"""What ``date '4713-11-24 BC' - date '1970-01-01'`` and the manual's 5874897-12-31 give."""
MICROS = (-2_440_588 * MICROS_PER_DAY, 106_762_940 * MICROS_PER_DAY - 1)
YEAR_1, YEAR_10000 = -719_162, 2_932_897
"""The days that these years begin with, since 1970."""
MICROS_PER_HOUR = MICROS_PER_DAY // 24
SMALL = (TINYINT, SMALLINT, INT)
NUMBERS = (*SMALL, BIGINT, *DECIMALS)
DAY = "({c} - date '1970-01-01')"


def _micros(at: str) -> str:
    """Not extract(epoch): that of the last instants is a few microseconds off."""
    clock = f"extract(hour FROM {at}) * 3600000000 + extract(minute FROM {at}) * 60000000"
    days = f"({at}::date - date '1970-01-01')::numeric * 86400000000"
    return f"({days} + {clock} + extract(microseconds FROM {at}))::numeric(40, 0)"


LOCAL, ZONED = _micros("{c}"), _micros("({c} AT TIME ZONE 'UTC')")


def bits_of(value: float) -> bytes:
    return b"NaN" if math.isnan(value) else struct.pack(">d", value)


def floating(declared: str, kinds: Kinds) -> Target:
    return Target(declared, kinds, lambda kind, raw: bits_of(float(raw)), "{c}::float8", bits_of)


def texts(declared: str, most: int | None = None, **more: Any) -> Target:
    return text(declared, lambda value: "\0" not in value, characters=most, **more)


def spelled(declared: str, pattern: str, make: Callable[[random.Random], str]) -> Target:
    def fits(value: str) -> bool:
        return re.fullmatch(pattern, value) is not None

    def odd(rng: random.Random, kind: Kind) -> Raw:
        made = make(rng)
        return rng.choice((made, made, made, made + "1", made[1:], made.replace("-", ":"))).encode()

    return text(declared, fits, read="{c}::text", make=odd, as_text=True)


def _make_uuid(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128)))


def read_by_the_server(declared: str) -> Target:
    return Target(declared, (), lambda kind, raw: REFUSED, untried=TEXTS, as_text=True)


def json_(declared: str) -> Target:
    def reading(kind: Kind, raw: Raw) -> Reading:
        has_nul = any(k.is_text and b"\0" in v for k, v in scalars(kind, raw))
        return REFUSED if has_nul or has_bad_text(kind, raw) else in_json(kind, raw)

    def seen(found: str) -> Any:
        return json.loads(found, parse_int=Decimal, parse_float=Decimal)

    nested = tuple(kind for kind in ALL if kind.of)
    return Target(declared, nested, reading, "{c}::text", seen, untried=TEXTS, as_text=True)


def array_of(element: Target, declared: str = "") -> Target:
    def reading(kind: Kind, raw: Raw) -> Reading:
        found = [element.read_of(kind.of[0], one) for one in raw]
        return REFUSED if REFUSED in found else found

    one = element.read.format(c="x")
    read = (
        "CASE WHEN {c} IS NULL THEN NULL ELSE ARRAY(SELECT " + one + " FROM unnest({c}) WITH "
        "ORDINALITY AS u(x, i) ORDER BY i) END"
    )
    return Target(
        declared or f"{element.declared}[]",
        tuple(map(array, element.kinds)),
        reading,
        read,
        lambda found: [element.seen_of(each) for each in found],
        untried=tuple(map(array, element.untried)),
        as_text=True,
    )


SCALARS = (
    Target("boolean", (BOOLEAN,), lambda kind, raw: raw),
    *(
        whole(name, (*SMALL, BIGINT), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        for name, bits in (("smallint", 16), ("integer", 32), ("bigint", 64))
    ),
    exact("numeric", NUMBERS, 99, 50),
    exact("numeric(9,2)", NUMBERS, 9, 2),
    floating("real", (TINYINT, SMALLINT, FLOAT)),
    floating("double precision", (*SMALL, FLOAT, DOUBLE)),
    texts("text"),
    texts("character varying(3)", 3),
    texts("character(3)", 3, padded=True),
    text("name", lambda value: "\0" not in value and len(value.encode()) <= 63, as_text=True),
    blob("bytea"),
    times("date", (DATE,), DAYS, DAY),
    times("timestamp without time zone", (DATE, TIMESTAMP_NTZ), MICROS, LOCAL, 6, MICROS_PER_DAY),
    times("timestamp(3) without time zone", (DATE, TIMESTAMP_NTZ), MICROS, LOCAL, 3, MICROS_PER_DAY),
    times("timestamp with time zone", (TIMESTAMP,), MICROS, ZONED),
    times("timestamp(0) with time zone", (TIMESTAMP,), MICROS, ZONED, 0),
    spelled("uuid", r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", _make_uuid),
    exact("price", NUMBERS, 9, 2, read="{c}::numeric"),
    exact("discount", NUMBERS, 9, 2, below=100, read="{c}::numeric", as_text=True),
    texts("code", 3, read="{c}::text"),
    floating("share", (*SMALL, FLOAT, DOUBLE)),
    *(
        members(name, ("slow", 'qu"ick\\'), read="{c}::text", as_text=True)
        for name in ("tempo", "own_pace")
    ),
)  # fmt: skip
NOT_TAKEN = (
    '"char"', "money", "oid", "regclass", "xid8", "tid", "interval(3)", "interval year to month", "amount",
    "checked_amount", "amount[]", "time without time zone", "time(3) with time zone", "numeric(3,-2)", "numeric(3,5)",
    "numeric(3,-2)[]",
)  # fmt: skip
TARGETS = (
    *SCALARS,
    json_("json"),
    json_("jsonb"),
    *map(read_by_the_server, ("inet", "interval", "bit(3)")),
    *map(not_taken, NOT_TAKEN),
    *(array_of(target) for target in SCALARS),
    array_of(exact("", NUMBERS, 9, 2), "prices"),
)
_CREATED = {
    "boolean": "boolean", "tinyint": "smallint", "smallint": "smallint", "int": "integer", "bigint": "bigint",
    "float": "real", "double": "double precision", "string": "text", "binary": "bytea", "date": "date",
    "timestamp": "timestamp with time zone", "timestamp_ntz": "timestamp without time zone",
}  # fmt: skip


def created(kind: Kind) -> Target:
    """The column that ``create_table`` makes of a type."""
    if kind.name == "decimal":
        return exact(kind.simple, (kind,), kind.precision, kind.scale)
    if kind.name == "array" and not kind.of[0].of:
        return array_of(created(kind.of[0]))
    declared = "jsonb" if kind.of else _CREATED["string" if kind.is_text else kind.name]
    return next(target for target in TARGETS if target.declared == declared)


# ---- JSON --------------------------------------------------------------------------------------


def in_json(kind: Kind, value: Raw) -> Any:
    """As Spark's to_json says it, read by a parser that keeps decimals; instants in UTC with all
    their digits.
    """
    if value is None:
        return None
    if kind.name == "struct":
        pairs = zip(kind.fields, kind.of, value, strict=True)
        return {name: in_json(k, v) for name, k, v in pairs if v is not None}
    if kind.name == "map":
        return {str(in_json(kind.of[0], k)): in_json(kind.of[1], v) for k, v in value}
    if kind.name == "array":
        return [in_json(kind.of[0], v) for v in value]
    if kind.name in WHOLE:
        return Decimal(value)
    if kind.name in ("float", "double"):
        if not math.isfinite(value):
            return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
        return Decimal(_shortest(value) if kind.name == "float" else repr(value))
    if kind.is_text:
        return value.decode()
    if kind.name == "binary":
        return base64.b64encode(value).decode()
    if kind.name == "date":
        return _day(value)
    if kind.name.startswith("timestamp"):
        return _instant(value) if kind.name == "timestamp_ntz" else _in_zone(value)
    return value


def _shortest(value: float) -> str:
    """The fewest digits that give the same 32 bits."""
    return next(text for n in range(1, 18) if single(float(text := f"{value:.{n}g}")) == value)


def _day(days: int) -> str:
    """By Python's calendar, which repeats after 400 years."""
    eras, within = divmod(days, DAYS_OF_400_YEARS)
    day = datetime.date(1970, 1, 1) + datetime.timedelta(days=within)
    year = day.year + 400 * eras
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{day:%m-%d}"


def _in_zone(micros: int) -> str:
    """In UTC; where only another zone's clock keeps the year within 1 to 9999, in that one."""
    first, end = YEAR_1 * MICROS_PER_DAY, YEAR_10000 * MICROS_PER_DAY
    if first - 14 * MICROS_PER_HOUR <= micros < first:
        return f"{_instant(micros + 14 * MICROS_PER_HOUR)}+14:00"
    if end <= micros < end + 12 * MICROS_PER_HOUR:
        return f"{_instant(micros - 12 * MICROS_PER_HOUR)}-12:00"
    return f"{_instant(micros)}Z"


def _instant(micros: int) -> str:
    days, clock = divmod(micros, MICROS_PER_DAY)
    seconds, fraction = divmod(clock, 1_000_000)
    time = datetime.time(seconds // 3600, seconds // 60 % 60, seconds % 60, fraction)
    return f"{_day(days)}T{time.isoformat('microseconds')}"
