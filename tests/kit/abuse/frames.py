"""Frames that are made to break sinks, by one generator: from a seed for the long runs, and by
hypothesis for the short ones.

    @given(frames(kinds=[STRING, BIGINT, decimal(9, 2)]))             # whole frames: any types, names and rows
    def test_...(frame):
        sink.check_columns(frame.columns)                             # [(name, Spark's simple type string), ...]
        writer.write(frame.batch(zone="America/New_York"))            # a pyarrow RecordBatch, as a task gets it

    frame = bulk(["id", "text"], [BIGINT, STRING], 10_000, random.Random(seed))     # about 100,000 values a second

Values are raw (see ``kinds``): text is bytes, a date is days, a timestamp microseconds, so that
anything that Spark can hold is there and nothing raises before the code under test has it.
``frame.values[column][row]`` is what the oracle compares with.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa

from tests.kit.abuse.kinds import (
    MICROS_PER_DAY,
    WHOLE,
    Kind,
    Raw,
    array,
    decimal,
    map_,
    same,
    struct_,
    to_arrow,
    unit,
)

WHOLES = BOOLEAN, TINYINT, SMALLINT, INT, BIGINT = tuple(
    map(Kind, ("boolean", "tinyint", "smallint", "int", "bigint"))
)
OTHERS = FLOAT, DOUBLE, STRING, BINARY = tuple(map(Kind, ("float", "double", "string", "binary")))
TIMES = DATE, TIMESTAMP, TIMESTAMP_NTZ = tuple(map(Kind, ("date", "timestamp", "timestamp_ntz")))
ATOMIC = (*WHOLES, *OTHERS, *TIMES)
DECIMALS = (
    decimal(1, 0),
    decimal(9, 2),
    decimal(18, 18),
    decimal(38, 0),
    decimal(38, 10),
    decimal(38, 38),
)
SCALARS = (*ATOMIC, *DECIMALS)
NESTED = (
    *(array(k) for k in SCALARS),
    map_(STRING, STRING),
    map_(TIMESTAMP, DOUBLE),
    map_(BINARY, decimal(9, 2)),
    struct_({"a": INT, "b c.d": STRING, "when": TIMESTAMP, "day": DATE}),
    array(array(STRING)),
    array(struct_({"day": DATE, "bytes": BINARY})),
    map_(STRING, struct_({"x": DOUBLE, "list": array(decimal(38, 10))})),
)
RARE = (
    Kind("void"),
    Kind("interval day to second"),
    Kind("time(6)"),
    Kind("string collate UTF8_LCASE"),
)
"""Types that Spark hands over and most targets do not take."""
REFUSED_EVERYWHERE = (
    "interval year to month",
    "variant",
    "geometry(4326)",
    "geography(4326)",
    "calendar_interval",
)
"""Simple strings of types for which there is no Arrow array here: for ``check_columns`` only."""
ALL = (*SCALARS, *NESTED, *RARE)

DAY_EDGES = (
    *(0, 1, -1, -719_162, -719_163, -719_528, 2_932_896, 2_932_897, -2_147_483_648, 2_147_483_647),
    # 10000-02-29, 10100-03-01, 10001-01-31, 07-01 and 12-31
    2_932_956,
    2_969_481,
    2_933_293,
    2_933_444,
    2_933_627,
    # 1582, year 1000, leap days, 1900
    -141_428,
    -141_427,
    -354_285,
    -354_286,
    11_016,
    19_782,
    -25_567,
)
"""0001-01-01 and the day before, year 0, 9999-12-31 and the day after, Spark's ends, the
Gregorian reform.
"""
MICRO_EDGES = (
    *(d * MICROS_PER_DAY for d in DAY_EDGES if abs(d) < 100_000_000),
    1,
    -1,
    999_999,
    -999_999,
    253_402_300_799_000_000,
    253_402_300_799_999_999,
    253_402_318_799_000_000,
    # 0001-01-01 New York, before year 1
    -62_135_578_800_000_000,
    -62_135_579_038_000_000,
    -62_135_596_800_000_001,
    # New York takes standard time, 1883
    -2_717_640_000_000_000,
    -2_717_640_000_000_001,
    -2_717_650_800_000_000,
    # DST, 2038
    1_710_054_000_000_000,
    1_730_611_800_000_000,
    1_730_615_400_000_000,
    2_147_483_648_000_000,
    *(-(2**63), -(2**63) + 1, 2**63 - 1),
)
"""9999-12-31 23:59:59 in UTC and in New York (a common sentinel), the ends of Python's and of
Spark's range.
"""
TEXT_EDGES = (
    b"",
    b" ",
    b"abc   ",
    b"\0",
    b"a\0b",
    b"\t",
    b"\n",
    b"\r\n",
    b"\x01\x1f\x7f",
    b'"',
    b"'",
    b'""',
    b"\\",
    b"\\N",
    b"null",
    b"NULL",
    b"NaN",
    b"true",
    b"0",
    b"-0",
    b"007",
    b"1e5",
    b"a,b;c|d",
    b"{}",
    b"[",
    b"=1+1",
    b"${x}",
    b"%s",
    b"..",
    b"/",
    b"a/b",
    b"\\x41",
    b"__HIVE_DEFAULT_PARTITION__",
    b"%00",
    b"\xef\xbb\xbfbom",
    "é".encode(),
    "e\u0301".encode(),
    "ß ÿ €".encode(),
    "漢字".encode(),
    "😀👩‍👩‍👧".encode(),
    "\u2028\u2029\u0085".encode(),
    *("\ud7ff\ue000\uffff\U0010ffff".encode(), b"x" * 255, "é".encode() * 128, b"y" * 256),
)
BAD_TEXT = (
    b"\xff",
    b"\xc3",
    b"a\x80b",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xe2\x82",
    b"ok\xfe\xff\0",
)
"""Bytes that are no UTF-8: cut off, overlong, surrogates, beyond the last character."""
LONG_TEXT = (b"z" * 65_536, "漢".encode() * 30_000)
FLOAT_EDGES = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.1,
    0.5,
    1e-45,
    5e-324,
    2.0**24 + 1,
    2.0**53,
    1e15,
    1e16,
    1e17,
    123456.789,
    1e-7,
    3.4028234663852886e38,
    1.7976931348623157e308,
    2.2250738585072014e-308,
    float("inf"),
    float("-inf"),
    float("nan"),
)
NAMES = (
    "id",
    "value",
    "Value",
    "a.b",
    "a b",
    " ",
    "quote\"d'",
    "back`tick",
    "a,b",
    "a;b",
    "{x}",
    "a=b",
    "per%cent",
    "back\\slash",
    "tab\tand\nline",
    "sélection",
    "漢字",
    "😀",
    "select",
    "_hidden",
    ".dot",
    "-",
    "0",
    "$(x)",
    "a/b",
    *("n" * 63, "n" * 64, "é" * 32, "n" * 250, "N" * 300),
)


@cache
def edges(kind: Kind) -> tuple[Raw, ...]:
    """The odd values of a scalar type, without null and without very long ones."""
    if kind.name in WHOLE:
        bits = WHOLE[kind.name][0]
        ends = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return tuple(
            n for n in (0, 1, -1, *ends, 10, 2**24 + 1, 2**53 + 1) if ends[0] <= n <= ends[1]
        )
    if kind.name == "decimal":
        last = 10**kind.precision - 1
        return tuple(
            unit(kind, n) for n in (0, 1, -1, 5, last, -last, 10 ** (kind.precision - 1), last // 3)
        )
    if kind.name == "float":
        return tuple(single(v) for v in FLOAT_EDGES)
    if kind.is_text:
        return (*TEXT_EDGES, *BAD_TEXT)
    return {
        "boolean": (True, False),
        "double": FLOAT_EDGES,
        "binary": (*TEXT_EDGES, *BAD_TEXT, bytes(range(256))),
        "date": DAY_EDGES,
        "timestamp": MICRO_EDGES,
        "timestamp_ntz": MICRO_EDGES,
        "interval day to second": (0, -1, 1, 2**63 - 1, -(2**63)),
        "time(6)": (0, 1_000, MICROS_PER_DAY * 1_000 - 1_000),
        "void": (None,),
    }[kind.name]


def single(value: float) -> float:
    """As a float of 32 bits holds it; infinite beyond its largest."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


@dataclass(frozen=True)
class Frame:
    """``values[column][row]`` are raw values; ``count`` rows, also where there are no columns."""

    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    values: tuple[list[Raw], ...]
    count: int

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Names and simple type strings, as ``Sink.check_columns`` gets them."""
        return [(n, k.simple) for n, k in zip(self.names, self.kinds, strict=True)]

    def batch(self, zone: str = "UTC") -> pa.RecordBatch:
        """The rows as Spark hands them to a task; ``zone`` is the session's time zone."""
        arrays = [to_arrow(k, v, zone) for k, v in zip(self.kinds, self.values, strict=True)]
        rows = pa.nulls(self.count)
        return pa.RecordBatch.from_arrays([*arrays, rows], [*self.names, "rows"]).select(
            range(len(arrays))
        )

    def batches(self, size: int, zone: str = "UTC") -> Iterator[pa.RecordBatch]:
        """The same in pieces, as Spark makes them."""
        for start in range(0, self.count, size):
            yield self.part(start, size).batch(zone)

    def part(self, start: int, size: int) -> Frame:
        count = max(0, min(size, self.count - start))
        return Frame(
            self.names, self.kinds, tuple(v[start : start + size] for v in self.values), count
        )

    def row(self, number: int) -> tuple[Raw, ...]:
        return tuple(v[number] for v in self.values)

    def check(self, found: Sequence[tuple[Raw, ...]], expected: Sequence[tuple[Raw, ...]]) -> None:
        """These are its rows as they were, to the last bit."""
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            for name, kind, a, b in zip(self.names, self.kinds, one, other, strict=True):
                assert same(kind, a, b), (
                    f"row {number}, column {name!r} ({kind}): {a!r} instead of {b!r}"
                )


# ---- hypothesis ------------------------------------------------------------------------------

ODD_SHARE = 0.5
RANDOMS = st.randoms(use_true_random=False)
"""Whose choices hypothesis makes, and makes small."""
COLUMN_NAMES = st.one_of(
    st.sampled_from(NAMES),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8),
)
"""Odd ones among them; never empty, never with half of a surrogate pair."""


@st.composite
def frames(
    draw: Any,
    kinds: Sequence[Kind] = ALL,
    *,
    columns_min: int = 0,
    columns_max: int = 5,
    rows_max: int = 12,
    duplicates: bool = True,
) -> Frame:
    """Whole frames: any types, names (two may be one, if ``duplicates``) and rows; without
    columns or rows as well.
    """
    types = draw(st.lists(st.sampled_from(list(kinds)), min_size=columns_min, max_size=columns_max))
    called = draw(
        st.lists(
            COLUMN_NAMES,
            min_size=len(types),
            max_size=len(types),
            unique_by=None if duplicates else str.lower,
        )
    )
    return bulk(called, types, draw(st.integers(0, rows_max)), draw(RANDOMS), edge_share=ODD_SHARE)


# ---- many rows, from a seed ------------------------------------------------------------------

EDGE_SHARE, NULL_SHARE, LONG_SHARE = 0.05, 0.03, 0.0002


def bulk(
    names: Sequence[str],
    kinds: Sequence[Kind],
    count: int,
    rng: random.Random,
    *,
    edge_share: float = EDGE_SHARE,
) -> Frame:
    """``count`` rows: mostly plain values, ``edge_share`` of them odd. The same rows for the
    same seed.
    """
    made = tuple([draw(kind, rng, edge_share) for _ in range(count)] for kind in kinds)
    return Frame(tuple(names), tuple(kinds), made, count)


def draw(kind: Kind, rng: random.Random, edge_share: float = EDGE_SHARE) -> Raw:
    """One value of a type."""
    chance = rng.random()
    if chance < NULL_SHARE:
        return None
    if kind.name == "array":
        return [draw(kind.of[0], rng, edge_share) for _ in range(rng.randrange(4))]
    if kind.name == "map":
        keys = {
            repr(k): k
            for k in (_present(kind.of[0], rng, edge_share) for _ in range(rng.randrange(4)))
        }
        return [(k, draw(kind.of[1], rng, edge_share)) for k in keys.values()]
    if kind.name == "struct":
        return tuple(draw(k, rng, edge_share) for k in kind.of)
    return _scalar(kind, rng, edge_share)


def _present(kind: Kind, rng: random.Random, edge_share: float) -> Raw:
    while (value := draw(kind, rng, edge_share)) is None:
        pass
    return value


def _scalar(kind: Kind, rng: random.Random, edge_share: float) -> Raw:
    chance = rng.random()
    name = kind.name
    if chance < edge_share / 8 and name not in ("boolean", "void"):
        return _anything(kind, rng)
    if chance < edge_share:
        return rng.choice(edges(kind))
    if name in WHOLE:
        return rng.getrandbits(rng.randrange(1, WHOLE[name][0])) * rng.choice((1, -1))
    if kind.is_text or name == "binary":
        if chance > 1 - LONG_SHARE:
            return rng.choice(LONG_TEXT)
        length = rng.randrange(12)
        return (
            rng.randbytes(length)
            if name == "binary"
            else "".join(rng.choices(LETTERS, k=length)).encode()
        )
    if name == "decimal":
        return unit(kind, rng.randrange(10 ** rng.randint(1, kind.precision)) * rng.choice((1, -1)))
    if name in ("float", "double"):
        value = rng.choice(
            (
                rng.uniform(-1e6, 1e6),
                rng.randrange(-1000, 1000) / 8,
                rng.gauss(0, 1) * 10 ** rng.randrange(-30, 30),
            )
        )
        return single(value) if name == "float" else value
    if name == "boolean":
        return rng.random() < 0.5
    if name == "date":
        return rng.randrange(-719_162, 2_932_897)
    if name == "time(6)":
        return rng.randrange(MICROS_PER_DAY) * 1_000
    return (
        rng.randrange(-719_162 * MICROS_PER_DAY, 2_932_897 * MICROS_PER_DAY)
        if name != "void"
        else None
    )


def _anything(kind: Kind, rng: random.Random) -> Raw:
    """Of all that there is, each as often as the other."""
    if kind.name == "decimal":
        return unit(kind, rng.randrange(1 - 10**kind.precision, 10**kind.precision))
    if kind.name == "float":
        return float(struct.unpack("f", rng.randbytes(4))[0])
    if kind.name == "double":
        return float(struct.unpack("d", rng.randbytes(8))[0])
    if kind.name == "binary" or (kind.is_text and rng.random() < 0.3):
        return rng.randbytes(rng.randrange(12))
    if kind.is_text:
        codes = [rng.randrange(0x110000 - 0x800) for _ in range(rng.randrange(8))]
        return "".join(chr(c if c < 0xD800 else c + 0x800) for c in codes).encode()
    if kind.name == "time(6)":
        return rng.randrange(MICROS_PER_DAY) * 1_000
    bits = WHOLE[kind.name][0] if kind.name in WHOLE else 32 if kind.name == "date" else 64
    return rng.getrandbits(bits) - 2 ** (bits - 1)


LETTERS = "abcdefghij ABC0123456789 ,;:'\"\\/éß漢😀\n\t"


def seed_of_run() -> int:
    """The one that is given, to replay it, or another each time; it is printed."""
    seed = int(os.environ.get("EXACTUM_SEED") or random.SystemRandom().randrange(2**31))
    print(f"EXACTUM_SEED={seed}")
    return seed
