"""MariaDB's column types as an oracle, see ``columns``."""

from __future__ import annotations

import json
import math
import random
from typing import Any

from tests.kit.abuse.columns import (
    REFUSED,
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
from tests.kit.abuse.kinds import MICROS_PER_DAY, Kind, Raw, decimal

INTEGERS = (TINYINT, SMALLINT, INT, BIGINT)
ZONES = (TIMESTAMP, TIMESTAMP_NTZ)
DAYS = (-354_285, 2_932_896)
"""1000-01-01 and 9999-12-31."""
DAY = "TO_DAYS({c}) - TO_DAYS('1970-01-01')"
MICROS = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {c})"
DATETIMES = (DAYS[0] * MICROS_PER_DAY, (DAYS[1] + 1) * MICROS_PER_DAY - 1)
TIMESTAMPS = (1_000_000, 2**31 * 1_000_000 - 1)


def integer(declared: str, bits: int) -> Target:
    low = 0 if "unsigned" in declared else -(2 ** (bits - 1))
    return whole(
        declared, (BOOLEAN, *INTEGERS, decimal(1, 0), decimal(38, 0)), low, low + 2**bits - 1
    )


def digits(declared: str, precision: int, scale: int) -> Target:
    lowest = 0 if "unsigned" in declared else None
    return exact(declared, (*INTEGERS, *DECIMALS), precision, scale, lowest)


def floating(declared: str) -> Target:
    """Zero has no sign in MariaDB."""

    def reading(kind: Kind, raw: Raw) -> Reading:
        fits = math.isfinite(raw) and not ("unsigned" in declared and raw < 0)
        return raw + 0.0 if fits else REFUSED

    kinds = (FLOAT,) if declared.startswith("float") else (FLOAT, DOUBLE)
    return Target(declared, kinds, reading, "{c} + 0e0")


# ---- what is written as text -----------------------------------------------------------------


ODD_JSON = (
    "", "{", "nul", "NaN", "[1,]", '{"a":1', "1 2", "01", '"\\ud800"', '"\t"', "]", '"', "{}{}", "1,2", "[1", "2]",
    "'a'", "[" * 32 + "]" * 32, "[" * 40 + "1",
)  # fmt: skip


def _is_json(value: str) -> bool:
    """MariaDB looks 31 levels deep."""

    def refuse(_: str) -> None:
        raise ValueError

    def depth(v: Any) -> int:
        children = v.values() if isinstance(v, dict) else v if isinstance(v, list) else None
        return 0 if children is None else 1 + max(map(depth, children), default=0)

    try:
        parsed = json.loads(value, parse_constant=refuse, parse_int=str, parse_float=str)
        json.dumps(parsed, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return False
    return depth(parsed) <= 31


def _make_json(rng: random.Random, kind: Kind) -> Raw:
    def value(depth: int) -> Any:
        pick = rng.randrange(8 if depth else 6)
        if pick < 6:
            plain = (None, True, rng.randrange(10**6), rng.gauss(0, 1e9), 'é漢😀\n"\\\0', "plain")
            return plain[pick]
        some = [value(depth - 1) for _ in range(rng.randrange(4))]
        return some if pick == 6 else {f"k{n}": v for n, v in enumerate(some)}

    if rng.random() < 0.2:
        return rng.choice(ODD_JSON).encode()
    made = json.dumps(value(3), ensure_ascii=rng.random() < 0.5)
    return (rng.choice(("", " ", "\n")) + made).encode()


TARGETS = (
    integer("tinyint", 8), integer("tinyint unsigned", 8), integer("smallint", 16), integer("mediumint", 24),
    integer("mediumint unsigned", 24), integer("int", 32), integer("int unsigned", 32), integer("bigint", 64),
    integer("bigint unsigned", 64),
    digits("decimal(9,2)", 9, 2), digits("decimal(65,30)", 65, 30), digits("decimal(38,0)", 38, 0),
    digits("decimal(5,5)", 5, 5), digits("decimal(9,2) unsigned", 9, 2), digits("decimal(65,0)", 65, 0),
    floating("float"), floating("double"), floating("double unsigned"), floating("float unsigned"),
    text("varchar(5) CHARACTER SET utf8mb4", characters=5),
    text("char(5) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", characters=5, padded=True),
    text("varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin", characters=20),
    text("tinytext CHARACTER SET utf8mb4", lambda value: len(value.encode()) <= 255),
    text("varchar(9) CHARACTER SET ascii", str.isascii, characters=9),
    text("varchar(9) CHARACTER SET utf8mb3", lambda value: max(value, default="") <= "\uffff", characters=9),
    text("text CHARACTER SET utf8mb4", lambda value: len(value.encode()) <= 65_535),
    text("longtext CHARACTER SET utf8mb4"),
    text("json", _is_json, make=_make_json),
    blob("binary(4)", 4, 4), blob("varbinary(4)", 0, 4), blob("tinyblob", 0, 255), blob("longblob"),
    members(r"enum('a','it''s','c\\d','é','3','x y')", ("a", "it's", "c\\d", "é", "3", "x y")),
    times("date", (DATE,), DAYS, DAY),
    times("datetime(6)", ZONES, DATETIMES, MICROS), times("datetime(3)", ZONES, DATETIMES, MICROS, 3),
    times("datetime", ZONES, DATETIMES, MICROS, 0), times("timestamp(6) NULL", (TIMESTAMP,), TIMESTAMPS, MICROS),
    times("timestamp NULL", (TIMESTAMP,), TIMESTAMPS, MICROS, 0),
    Target("bit(1)", (BOOLEAN,), lambda kind, raw: int(raw), "{c} + 0"),
    *map(not_taken, (
        "set('a','b','c d','é')", "year", "time(0)", "time(3)", "time(6)", "uuid", "inet4", "inet6", "double(9,2)", "float(9,2)",
        "varchar(250) CHARACTER SET latin1", "tinytext CHARACTER SET utf16", "longtext CHARACTER SET sjis",
        "char(9) CHARACTER SET ucs2", "longtext CHARACTER SET big5", "bit(9)",
    )),
)  # fmt: skip
_CREATED = {
    "boolean": "tinyint", "float": "float", "double": "double", "string": "longtext CHARACTER SET utf8mb4",
    "binary": "longblob", "date": "date", "timestamp": "datetime(6)", "timestamp_ntz": "datetime(6)",
}  # fmt: skip


def created(kind: Kind) -> Target:
    """The column that ``create_table`` makes of a type."""
    if kind.name == "decimal":
        return exact(kind.simple, (kind,), kind.precision, kind.scale)
    declared = _CREATED.get("string" if kind.is_text else kind.name, kind.name)
    return next(target for target in TARGETS if target.declared == declared)
