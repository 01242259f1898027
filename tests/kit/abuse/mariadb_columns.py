"""MariaDB's column types as an oracle: what a plain reader finds of a value of Spark's, or that it
cannot be held.

Computed from the raw values alone (``kinds``), with Python's own types: nothing here knows the code
under test.
"""

from __future__ import annotations

import ipaddress
import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from tests.kit.abuse import frames
from tests.kit.abuse.frames import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
)
from tests.kit.abuse.kinds import MICROS_PER_DAY, Kind, Raw, decimal, is_utf8


class _Refused:
    """The column cannot hold it: the row belongs to the dead letters."""

    def __repr__(self) -> str:
        return "refused"


TEXTS = (STRING, Kind("string collate UTF8_LCASE"))
FITTING_SHARE = 0.93
REFUSED = _Refused()
Reading = Any
"""What the reader's expression gives; ``REFUSED``; or a tuple ``("maybe", reading)``: put aside,
or exactly that.
"""


@dataclass(frozen=True)
class Target:
    """A column type. ``read``: the reader's expression over ``{c}``. ``make``: odd values of its
    own.

    ``seen``: what the reader makes of the expression's value, to compare.
    """

    declared: str
    kinds: tuple[Kind, ...]
    read: str
    reading: Callable[[Raw], Reading]
    make: Callable[[random.Random], Raw] | None = None
    seen: Callable[[Any], Any] = lambda found: found

    def draw(self, kind: Kind, rng: random.Random) -> Raw:
        """Mostly something that fits: else every row would be put aside for one of its columns."""
        tries = 30 if rng.random() < FITTING_SHARE else 1
        for _ in range(tries):
            value = (
                self.make(rng)
                if self.make is not None and rng.random() < 0.9
                else frames.draw(kind, rng)
            )
            if value is not None and self.reading(value) is not REFUSED:
                break
        return value


TEXT = "CAST({c} AS CHAR)"
HEX = "HEX({c})"
UTF8_HEX = "HEX(CONVERT({c} USING utf8mb4))"

# ---- numbers ---------------------------------------------------------------------------------


def integer(declared: str, bits: int) -> Target:
    unsigned = "unsigned" in declared
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)

    def reading(raw: Raw) -> Reading:
        return str(int(raw)) if low <= raw <= high else REFUSED

    kinds = (BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, decimal(1, 0), decimal(38, 0))
    return Target(declared, kinds, TEXT, reading)


def exact(declared: str, precision: int, scale: int) -> Target:
    def reading(raw: Raw) -> Reading:
        sign, digits, exponent = Decimal(raw).as_tuple()
        assert isinstance(exponent, int)
        unscaled = int("".join(map(str, digits)))
        shift = scale + exponent
        if shift < 0 and unscaled % 10**-shift:
            return REFUSED
        unscaled = unscaled * 10**shift if shift >= 0 else unscaled // 10**-shift
        if unscaled >= 10**precision or ("unsigned" in declared and sign and unscaled):
            return REFUSED
        text = str(unscaled).rjust(scale + 1, "0")
        text = f"{text[:-scale]}.{text[-scale:]}" if scale else text
        return f"-{text}" if sign and unscaled else text

    return Target(declared, (TINYINT, SMALLINT, INT, BIGINT, *frames.DECIMALS), TEXT, reading)


def floating(declared: str) -> Target:
    """Zero has no sign in MariaDB."""

    def reading(raw: Raw) -> Reading:
        if not math.isfinite(raw) or ("unsigned" in declared and raw < 0):
            return REFUSED
        return raw + 0.0

    single = declared.startswith("float")
    return Target(declared, (FLOAT,) if single else (FLOAT, DOUBLE), "{c} + 0e0", reading)


# ---- text and bytes --------------------------------------------------------------------------


def text(
    declared: str, characters: int | None, held: Callable[[str], Reading] | None = None
) -> Target:
    """``held``: what the character set makes of it: its length in bytes where the column counts
    these, or REFUSED.
    """
    padded = declared.startswith("char(")

    def reading(raw: Raw) -> Reading:
        if not is_utf8(raw):
            return REFUSED
        value = raw.decode()
        kept = value.rstrip(" ") if padded else value
        if characters is not None and len(kept) > characters:
            return REFUSED
        fits = True if held is None else held(kept)
        return REFUSED if fits is REFUSED else kept.encode().hex().upper()

    return Target(declared, TEXTS, UTF8_HEX, reading)


def bytes_up_to(most: int, width: Callable[[str], int]) -> Callable[[str], Reading]:
    return lambda value: True if sum(map(width, value)) <= most else REFUSED


def only(allowed: Callable[[str], bool]) -> Callable[[str], Reading]:
    return lambda value: True if all(map(allowed, value)) else REFUSED


def utf8_width(c: str) -> int:
    return len(c.encode())


def blob(declared: str, least: int, most: int) -> Target:
    def reading(raw: Raw) -> Reading:
        return raw.hex().upper() if least <= len(raw) <= most else REFUSED

    make = (
        (lambda rng: rng.randbytes(rng.choice((least, least, most - 1, most, most + 1))))
        if most < 1000
        else None
    )
    return Target(declared, (BINARY,), HEX, reading, make)


def members(declared: str, names: Sequence[str]) -> Target:
    def reading(raw: Raw) -> Reading:
        return raw.hex().upper() if is_utf8(raw) and raw.decode() in names else REFUSED

    def make(rng: random.Random) -> Raw:
        if rng.random() < 0.3:
            return rng.choice(
                ("", "1", "3", "0", names[0].upper(), names[0] + " ", " " + names[0], "nothing")
            ).encode()
        return rng.choice(names).encode()

    return Target(declared, TEXTS, UTF8_HEX, reading, make)


def not_taken(declared: str) -> Target:
    """A column that no type of Spark goes into: the server would read a text as another one, or
    has no room for some of its characters.
    """
    return Target(declared, (), TEXT, lambda raw: REFUSED)


# ---- days and times --------------------------------------------------------------------------

DAY_FIRST, DAY_LAST = (
    (date(1000, 1, 1) - date(1970, 1, 1)).days,
    (date(9999, 12, 31) - date(1970, 1, 1)).days,
)


def day_text(days: int) -> str:
    return (date(1970, 1, 1) + timedelta(days=days)).isoformat()


def _day(raw: Raw) -> Reading:
    return day_text(raw) if DAY_FIRST <= raw <= DAY_LAST else REFUSED


def instants(declared: str, digits: int, kinds: tuple[Kind, ...]) -> Target:
    if declared.startswith("timestamp"):
        first, last = 1_000_000, (2**31 - 1) * 1_000_000 + 999_999
    else:
        first, last = DAY_FIRST * MICROS_PER_DAY, (DAY_LAST + 1) * MICROS_PER_DAY - 1

    def reading(raw: Raw) -> Reading:
        if not first <= raw <= last or raw % 10 ** (6 - digits):
            return REFUSED
        days, micros = divmod(raw, MICROS_PER_DAY)
        seconds, fraction = divmod(micros, 1_000_000)
        clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        return f"{day_text(days)} {clock}" + (f".{fraction:06d}"[: digits + 1] if digits else "")

    def make(rng: random.Random) -> Raw:
        step = 10 ** (6 - digits)
        return rng.randrange(2**31 * 1_000_000) // step * step + (rng.random() < 0.1)

    return Target(declared, kinds, TEXT, reading, make)


# ---- what is written as text -----------------------------------------------------------------


def spelled(
    declared: str,
    value: Callable[[str], Reading],
    make: Callable[[random.Random], str],
    seen: Callable[[Any], Any] = str,
) -> Target:
    def reading(raw: Raw) -> Reading:
        return value(raw.decode()) if is_utf8(raw) else REFUSED

    return Target(declared, TEXTS, TEXT, reading, lambda rng: make(rng).encode(), seen)


def _ip4(given: str) -> Reading:
    """A reader compares addresses, not their spelling."""
    try:
        return int(ipaddress.IPv4Address(given))
    except ValueError:
        return REFUSED


def _make_ip4(rng: random.Random) -> str:
    made = ".".join(str(rng.randrange(256)) for _ in range(4))
    return rng.choice(
        (
            made,
            made,
            made,
            made + ".1",
            made.replace(".", ",", 1),
            "256.1.1.1",
            "1.2.3",
            "01.2.3.4",
            "",
        )
    )


ODD_JSON = (
    *(
        "",
        "{",
        "nul",
        "NaN",
        "[1,]",
        '{"a":1',
        "1 2",
        "01",
        '"\\ud800"',
        '"\t"',
        "]",
        '"',
        "{}{}",
        "1,2",
        "[1",
        "2]",
    ),
    *("'a'", "[" * 32 + "]" * 32, "[" * 40 + "1"),
)


def _json(value: str) -> Reading:
    """Text as it is, if it is JSON; MariaDB looks 31 levels deep."""

    def refuse(_: str) -> None:
        raise ValueError

    try:
        parsed = json.loads(value, parse_constant=refuse, parse_int=str, parse_float=str)
        json.dumps(parsed, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return REFUSED

    def depth(v: Any) -> int:
        children = v.values() if isinstance(v, dict) else v if isinstance(v, list) else None
        return 0 if children is None else 1 + max(map(depth, children), default=0)

    return value.encode().hex().upper() if depth(parsed) <= 31 else REFUSED


def _make_json(rng: random.Random) -> str:
    if rng.random() < 0.2:
        return rng.choice(ODD_JSON)

    def value(depth: int) -> Any:
        pick = rng.randrange(8 if depth else 6)
        if pick < 6:
            return (None, True, rng.randrange(10**6), rng.gauss(0, 1e9), 'é漢😀\n"\\\0', "plain")[
                pick
            ]
        some = [value(depth - 1) for _ in range(rng.randrange(4))]
        return some if pick == 6 else {f"k{n}": v for n, v in enumerate(some)}

    return rng.choice(("", " ", "\n")) + json.dumps(value(3), ensure_ascii=rng.random() < 0.5)


TARGETS = (
    integer("tinyint", 8), integer("tinyint unsigned", 8), integer("smallint", 16), integer("mediumint", 24),
    integer("mediumint unsigned", 24), integer("int", 32), integer("int unsigned", 32), integer("bigint", 64),
    integer("bigint unsigned", 64),
    exact("decimal(9,2)", 9, 2), exact("decimal(65,30)", 65, 30), exact("decimal(38,0)", 38, 0),
    exact("decimal(5,5)", 5, 5), exact("decimal(9,2) unsigned", 9, 2), exact("decimal(65,0)", 65, 0),
    floating("float"), floating("double"), floating("double unsigned"), floating("float unsigned"),
    text("varchar(5) CHARACTER SET utf8mb4", 5), text("char(5) CHARACTER SET utf8mb4 COLLATE "
                                                      "utf8mb4_bin", 5),
    text("varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin", 20),
    text("tinytext CHARACTER SET utf8mb4", None, bytes_up_to(255, utf8_width)),
    text("varchar(9) CHARACTER SET ascii", 9, only(str.isascii)),
    text("varchar(9) CHARACTER SET utf8mb3", 9, only(lambda c: c <= "\uffff")),
    text("text CHARACTER SET utf8mb4", None, bytes_up_to(65_535, utf8_width)),
    text("longtext CHARACTER SET utf8mb4", None),
    blob("binary(4)", 4, 4), blob("varbinary(4)", 0, 4), blob("tinyblob", 0, 255), blob("longblob", 0, 2**32 - 1),
    members(r"enum('a','it''s','c\\d','é','3','x y')", ("a", "it's", "c\\d", "é", "3", "x y")),
    Target("date", (DATE,), TEXT, _day),
    instants("datetime(6)", 6, (TIMESTAMP, TIMESTAMP_NTZ)), instants("datetime(3)", 3, (TIMESTAMP, TIMESTAMP_NTZ)),
    instants("datetime", 0, (TIMESTAMP, TIMESTAMP_NTZ)), instants("timestamp(6) NULL", 6, (TIMESTAMP,)),
    instants("timestamp NULL", 0, (TIMESTAMP,)),
    Target("bit(1)", (BOOLEAN,), "CAST({c} + 0 AS CHAR)", lambda raw: str(int(raw))),
    spelled("inet4", _ip4, _make_ip4, lambda found: int(ipaddress.IPv4Address(found))),
    *map(not_taken, (
        "set('a','b','c d','é')", "year", "time(0)", "time(3)", "time(6)", "uuid", "inet6",
        "varchar(250) CHARACTER SET latin1", "tinytext CHARACTER SET utf16", "longtext CHARACTER SET sjis",
        "char(9) CHARACTER SET ucs2", "longtext CHARACTER SET big5", "bit(9)",
    )),
)  # fmt: skip
JSON = Target("json", TEXTS, UTF8_HEX, lambda raw: _json(raw.decode()) if is_utf8(raw) else REFUSED,
              lambda rng: _make_json(rng).encode())  # fmt: skip
TARGETS_AND_JSON = (*TARGETS, JSON)
