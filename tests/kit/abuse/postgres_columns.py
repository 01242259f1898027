"""PostgreSQL's column types as an oracle, see ``columns``; by psycopg and arithmetic alone."""

from __future__ import annotations

import json
import math
import random
import re
import struct
import uuid
from collections.abc import Callable
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
)
from tests.kit.abuse.kinds import (
    MICROS_PER_DAY,
    Kind,
    Raw,
    array,
    has_bad_text,
    parts,
    scalars,
)
from tests.kit.abuse.texts import STRICT, of_json

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
DAYS = (-2_440_588, 2_145_042_905)
"""What ``date '4713-11-24 BC' - date '1970-01-01'`` and the manual's 5874897-12-31 give."""
MICROS = (-2_440_588 * MICROS_PER_DAY, 106_762_940 * MICROS_PER_DAY - 1)
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
    def bits(kind: Kind, value: Any) -> bytes:
        return bits_of(float(value))

    return Target(declared, kinds, bits, "{c}::float8", bits)


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
        return REFUSED if has_nul or has_bad_text(kind, raw) else in_any_order(kind, raw)

    def seen(kind: Kind, found: str) -> Reading:
        return in_any_order(kind, of_json(kind, json.loads(found, **STRICT)))

    nested = tuple(kind for kind in ALL if kind.of)
    return Target(declared, nested, reading, "{c}::text", seen, untried=TEXTS, as_text=True)


def in_any_order(kind: Kind, raw: Raw) -> Reading:
    """As jsonb keeps it: the order of a map is jsonb's own, and it has no -0.0."""
    if raw is None:
        return None
    if kind.of:
        inside = [in_any_order(*part) for part in parts(kind, raw)]
        is_map = kind.name == "map"
        return sorted(zip(inside[::2], inside[1::2], strict=True)) if is_map else inside
    return bits_of(raw + 0.0) if kind.name in ("float", "double") else raw


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
        lambda kind, found: [element.seen_of(kind.of[0], each) for each in found],
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
