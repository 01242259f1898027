"""What PostgreSQL must hold of a raw value, and what it does hold: by psycopg and arithmetic alone.

A value either *holds* in a column, and is then read back as the same *canonical* value, or its row
must be refused.
"""

from __future__ import annotations

import base64
import datetime
import json
import math
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from tests.kit.abuse.frames import single
from tests.kit.abuse.kinds import MICROS_PER_DAY, WHOLE, Kind, Raw, has_bad_text, kind_of, scalars

DAYS_OF_400_YEARS = 146_097
DATE_DAYS = (-2_440_588, 2_145_042_905)
"""What ``date '4713-11-24 BC' - date '1970-01-01'`` and the manual's 5874897-12-31 give."""
YEAR_1, YEAR_10000 = -719_162, 2_932_897
"""The days that these years begin with, since 1970."""
MICROS_PER_HOUR = MICROS_PER_DAY // 24
TIMESTAMP_MICROS = (-2_440_588 * MICROS_PER_DAY, 106_762_940 * MICROS_PER_DAY - 1)

SCALAR_TYPES = (
    *(
        "boolean",
        "smallint",
        "integer",
        "bigint",
        "numeric",
        "numeric(9,2)",
        "numeric(3,-2)",
        "numeric(3,5)",
    ),
    *(
        "real",
        "double precision",
        "text",
        "character varying(3)",
        "character(3)",
        "name",
        "bytea",
        "date",
    ),
    *("timestamp without time zone", "timestamp(3) without time zone", "timestamp with time zone"),
    *("timestamp(0) with time zone", "uuid", "time without time zone"),
)
JSON_TYPES = ("json", "jsonb")
READ_BY_THE_SERVER = ("inet", "interval", *JSON_TYPES)
"""Text goes into these as well, but only the server knows which text."""
UNFIT_TYPES = ("money", '"char"', "oid", "regclass", "interval(3)")
TYPES = (
    *SCALAR_TYPES,
    *JSON_TYPES,
    "inet",
    "interval",
    *UNFIT_TYPES,
    *(f"{t}[]" for t in SCALAR_TYPES),
)
_UUID = re.compile(rb"[0-9a-fA-F]{32}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def holds(kind: Kind, type_: str, value: Raw) -> bool:
    """Whether the column can hold the value as it is."""
    if value is None:
        return True
    if has_bad_text(kind, value):
        return False
    if type_ in JSON_TYPES:
        return not any(k.is_text and b"\0" in v for k, v in scalars(kind, value))
    if type_.endswith("[]"):
        return all(holds(kind.of[0], type_.removesuffix("[]"), v) for v in value)
    name, _, rest = type_.partition("(")
    number = int(re.split("[,)]", rest)[0]) if rest else None
    if kind.name == "decimal" or kind.name in WHOLE:
        return _holds_number(type_, Decimal(value))
    if kind.is_text:
        return b"\0" not in value and _holds_text(name, number, value)
    if name == "date":
        return DATE_DAYS[0] <= value <= DATE_DAYS[1]
    if name.startswith("timestamp"):
        micros = value * MICROS_PER_DAY if kind.name == "date" else value
        step = 1 if number is None else 10 ** (6 - number)
        return TIMESTAMP_MICROS[0] <= micros <= TIMESTAMP_MICROS[1] and micros % step == 0
    return True


def _holds_number(type_: str, value: Decimal) -> bool:
    bits = {"smallint": 16, "integer": 32, "bigint": 64}.get(type_)
    if bits is not None:
        return -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)
    given = re.fullmatch(r"numeric\((\d+),(-?\d+)\)", type_)
    if given is None:
        return True
    precision, scale = int(given[1]), int(given[2])
    _, digits, exponent = value.as_tuple()
    unscaled = int("".join(map(str, digits))) * 10 ** (60 + int(exponent))  # in units of 10**-60
    unit = 10 ** (60 - scale)
    return unscaled % unit == 0 and unscaled // unit < 10**precision


def _holds_text(name: str, number: int | None, value: bytes) -> bool:
    if name == "character":
        return len(value.decode().rstrip(" ")) <= (number or 0)
    if name == "character varying":
        return len(value.decode()) <= (number or 0)
    if name == "name":
        return len(value) <= 63
    if name == "uuid":
        return _UUID.fullmatch(value) is not None
    return name == "text"  # no text that is made here is a time of day


def canonical(kind: Kind, type_: str, value: Raw) -> Any:
    """What a reader must find."""
    if value is None:
        return None
    if type_ in JSON_TYPES:
        return in_json(kind, value)
    if type_.endswith("[]"):
        return [canonical(kind.of[0], type_.removesuffix("[]"), v) for v in value]
    if type_ in ("real", "double precision"):
        return bits_of(float(value))
    if kind.name in WHOLE:
        return Decimal(value)
    if kind.name == "date" and type_.startswith("timestamp"):
        return value * MICROS_PER_DAY
    return value.rstrip(b" ") if type_.startswith("character(") else value


def shown(type_: str, column: str) -> str:
    """An SQL expression of the column as text, or as an array of texts."""
    if not type_.endswith("[]"):
        return _shown(type_, column)
    element = _shown(type_.removesuffix("[]"), "x")
    return (
        f"CASE WHEN {column} IS NULL THEN NULL ELSE ARRAY(SELECT {element} "
        f"FROM unnest({column}) WITH ORDINALITY AS u(x, i) ORDER BY i) END"
    )


def _shown(type_: str, x: str) -> str:
    if type_ == "date":
        return f"({x} - date '1970-01-01')::text"
    if type_.startswith("timestamp"):
        # Not extract(epoch): that of the last instants is a few microseconds off.
        at = f"({x} AT TIME ZONE 'UTC')" if type_.endswith("with time zone") else x
        clock = f"extract(hour FROM {at}) * 3600000000 + extract(minute FROM {at}) * 60000000"
        days = f"({at}::date - date '1970-01-01')::numeric * 86400000000"
        return f"({days} + {clock} + extract(microseconds FROM {at}))::numeric(40, 0)::text"
    return f"encode({x}, 'hex')" if type_ == "bytea" else f"{x}::text"


def found(type_: str, text: Any) -> Any:
    """The canonical value of what ``shown`` gave."""
    if text is None:
        return None
    if type_.endswith("[]"):
        return [found(type_.removesuffix("[]"), t) for t in text]
    return _READERS[type_.partition("(")[0]](text)


def bits_of(value: float) -> bytes:
    return b"NaN" if math.isnan(value) else struct.pack(">d", value)


_READERS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("smallint", "integer", "bigint", "numeric"), Decimal),
    **dict.fromkeys(("text", "character varying", "name"), str.encode),
    **dict.fromkeys(
        JSON_TYPES, lambda text: json.loads(text, parse_int=Decimal, parse_float=Decimal)
    ),
    **dict.fromkeys(
        ("date", "timestamp", "timestamp without time zone", "timestamp with time zone"), int
    ),
    "boolean": lambda text: text == "true",
    "real": lambda text: bits_of(single(float(text))),
    "double precision": lambda text: bits_of(float(text)),
    "character": lambda text: text.rstrip(" ").encode(),
    "bytea": bytes.fromhex,
    "uuid": lambda text: text.encode(),
}


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
        return {_key(kind.of[0], k): in_json(kind.of[1], v) for k, v in value}
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
    if kind.name == "time(6)":
        return str(_clock(value // 1000))
    return value


def _key(kind: Kind, value: Raw) -> str:
    text = in_json(kind, value)
    return text if isinstance(text, str) else str(text)


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
    return f"{_day(days)}T{_clock(clock).isoformat('microseconds')}"


def _clock(micros: int) -> datetime.time:
    seconds, fraction = divmod(micros, 1_000_000)
    return datetime.time(seconds // 3600, seconds // 60 % 60, seconds % 60, fraction)


__all__ = ["TYPES", "canonical", "found", "holds", "kind_of", "shown"]
