"""What a function of the user's returns, of every type of Python, in a column of every type of Spark:
the same value, or a bad record with the reason.

The table is written after docs/decoding.md, not after the code.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import struct
from collections import OrderedDict
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import numpy as np
import pytest
from pyspark.sql import types as t

from exactum import Function
from tests.kit.decoding.format_cases import decoded, decoder

pytestmark = pytest.mark.usefixtures("spark")


@dataclasses.dataclass
class Data:
    a: int = 5


@dataclasses.dataclass
class Slots:
    __slots__ = ("a",)
    a: int


class Message(msgspec.Struct):
    a: int = 5


class Number(enum.IntEnum):
    THREE = 3


class Text(str, enum.Enum):
    X = "x"


class Zoned(datetime):
    """As that of pandas, which may have nanoseconds."""


NOON = datetime(2026, 1, 1, 12, 0, 0, 5)  # noqa: DTZ001  (a time without zone is what is meant)
UTC_NOON = NOON.replace(tzinfo=timezone.utc)
EAST = NOON.replace(tzinfo=timezone(timedelta(hours=1)))
TENTH = struct.unpack("f", struct.pack("f", 0.1))[0]
MAX = 2.0**128 - 2.0**104
VALUES: dict[str, Any] = {
    "None": None,
    "True": True,
    "0": 0,
    "5": 5,
    "-128": -128,
    "-129": -129,
    "2^15": 2**15,
    "2^24": 2**24,
    "2^24+1": 2**24 + 1,
    "2^24+2": 2**24 + 2,
    "2^31": 2**31,
    "2^53": -(2**53),
    "2^53+1": 2**53 + 1,
    "2^63": 2**63,
    "2^1030": 2**1030,
    "10^5000": 10**5000,
    "an enum's 3": Number.THREE,
    "1.0": 1.0,
    "1.5": 1.5,
    "0.1": 0.1,
    "numpy 1.5": np.float64(1.5),
    "1e39": 1e39,
    "largest": 3.4028235e38,
    "inf": -math.inf,
    "nan": math.nan,
    "1.5 d": Decimal("1.5"),
    "1.255 d": Decimal("1.255"),
    "1e9 d": Decimal("1e9"),
    "NaN d": Decimal("NaN"),
    "tiny d": Decimal("1e-999999999"),
    "x": "x",
    "an enum's x": Text.X,
    "1": "1",
    "base64": "YWJj",
    "day text": "2026-01-01",
    "time text": "2026-01-01T00:00:00Z",
    "surrogate": "a\ud800",
    "bytes": b"ab",
    "bytearray": bytearray(b"ab"),
    "view": memoryview(b"ab"),
    "date": date(2026, 1, 1),
    "naive": NOON,
    "aware": UTC_NOON,
    "east": EAST,
    "nanosecond": Zoned(2026, 1, 1, tzinfo=timezone.utc),
    "clock": time(1),
    "span": timedelta(1),
    "uuid": UUID(int=1),
    "[5]": [5],
    "(5,)": (5,),
    "['x']": ["x"],
    "[None]": [None],
    "{5}": {5},
    "range": range(5, 6),
    "{'a': 5}": {"a": 5},
    "ordered": OrderedDict(a=5),
    "{'a': None}": {"a": None},
    "{None: 5}": {None: 5},
    "{'a': 5, 'b': 6}": {"a": 5, "b": 6},
    "{}": {},
    "data": Data(),
    "slots": Slots(5),
    "message": Message(),
    "class": Data,
    "object": object(),
    "numpy int": np.int64(5),
    "numpy bool": np.bool_(True),
}
SMALL: dict[str, Any] = {"0": 0, "5": 5, "-128": -128, "an enum's 3": 3}
SHORT = {**SMALL, "-129": -129}
INT = {**SHORT, "2^15": 2**15, "2^24": 2**24, "2^24+1": 2**24 + 1, "2^24+2": 2**24 + 2}
LONG = {**INT, "2^31": 2**31, "2^53": -(2**53), "2^53+1": 2**53 + 1}
POINT: dict[str, Any] = {
    "1.0": 1.0,
    "1.5": 1.5,
    "numpy 1.5": 1.5,
    "inf": -math.inf,
    "nan": math.nan,
}
FIVES = {"[5]": [5], "(5,)": [5], "{5}": [5]}
TEXTS = ("x", "1", "base64", "day text", "time text")
WITH_A = ("{'a': 5}", "ordered", "{'a': 5, 'b': 6}", "data", "slots", "message")
STRUCTS: dict[str, Any] = {name: {"a": 5} for name in WITH_A}
WITHOUT_A = ("{'a': None}", "{}")
RIGHT: dict[str, dict[str, Any]] = {
    "string": {**{name: VALUES[name] for name in TEXTS}, "an enum's x": "x"},
    "binary": dict.fromkeys(("bytes", "bytearray", "view"), b"ab"),
    "boolean": {"True": True},
    "tinyint": SMALL,
    "smallint": SHORT,
    "int": INT,
    "bigint": LONG,
    "float": {
        **{name: float(one) for name, one in LONG.items() if name not in ("2^24+1", "2^53+1")},
        **POINT,
        "2^63": 2.0**63,
        "0.1": TENTH,
        "largest": MAX,
    },
    "double": {
        **{name: float(one) for name, one in LONG.items() if name != "2^53+1"},
        **POINT,
        **{name: VALUES[name] for name in ("0.1", "1e39", "largest")},
        "2^63": 2.0**63,
    },
    "decimal(4,2)": {
        **{name: Decimal(one) for name, one in SMALL.items() if name != "-128"},
        "1.5 d": Decimal("1.50"),
    },
    "decimal(20,0)": {
        **{name: Decimal(one) for name, one in LONG.items()},
        "2^63": Decimal(2**63),
        "1e9 d": Decimal(10**9),
    },
    "date": {"date": date(2026, 1, 1)},
    "timestamp": {"aware": UTC_NOON, "east": EAST},
    "timestamp_ntz": {"naive": NOON},
    "array<int>": {**FIVES, "[None]": [None]},
    "array<int not null>": FIVES,
    "map<string,int>": {
        **{name: [("a", 5)] for name in WITH_A},
        "{'a': None}": [("a", None)],
        "{'a': 5, 'b': 6}": [("a", 5), ("b", 6)],
        "{}": [],
    },
    "struct<a:int>": {**STRUCTS, **{name: {"a": None} for name in WITHOUT_A}},
    "struct<a:int not null>": STRUCTS,
}
"""For each type of a column, what it has of each value. Of all others the record is bad."""


def kind_of(name: str) -> t.DataType:
    if name == "array<int not null>":  # which DDL cannot say
        return t.ArrayType(t.IntegerType(), containsNull=False)
    return t.DataType.fromDDL(name)


def check(kind: str, name: str, value: Any, reason: str | None) -> None:
    expected = {"None": None, **RIGHT[kind]}
    if name in expected:
        assert reason is None, (name, reason)
        assert repr(value) == repr(expected[name]) or value == expected[name], name
    else:
        assert value is None and reason, (name, value)


@pytest.mark.parametrize("kind", RIGHT)
def test_each_value_is_the_same_in_its_column_or_bad(kind: str) -> None:
    """By itself, so that no neighbour decides what Arrow makes of it; and all in one batch, inside a
    struct, a list and a map.
    """
    values, own = list(VALUES.values()), kind_of(kind)
    alone = decoder(Function(lambda data: values[int(data)], own))
    for number, name in enumerate(VALUES):
        found, reasons = alone([b"%d" % number])
        check(kind, name, found[0], reasons.get(0))
    inside = t.ArrayType(t.MapType(t.StringType(), own))
    together = Function(
        lambda data: {"a": [{"k": values[int(data)]}]}, t.StructType([t.StructField("a", inside)])
    )
    found, reasons = decoded(together, [b"%d" % number for number in range(len(values))])
    for row, name in enumerate(VALUES):
        value = None if found[row] is None else found[row]["a"][0][0][1]
        check(kind, name, value, reasons.get(row))
