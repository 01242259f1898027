"""Text, JSON and the user's own function: what is decoded, what is bad, what is refused at once."""

from __future__ import annotations

import errno
import json
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from email.message import Message
from http.client import IncompleteRead, RemoteDisconnected
from socket import gaierror
from ssl import SSLEOFError
from typing import Any
from urllib.error import HTTPError, URLError
from zoneinfo import ZoneInfo

import msgspec
import pyarrow as pa
import pytest
import requests
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from exactum import Avro, Function, Json, Protobuf, String
from exactum.errors import RowsRefused, SettingRefused, Unavailable
from exactum.formats.format import arrow_type, not_utf_8
from exactum.spark.decoding.decode import _not_utf_8, _raised
from exactum.spark.write.failure import carried_by
from tests.kit.decoding.format_cases import (
    UTC,
    decoded,
    proto_set,
    reason,
)
from tests.kit.decoding.records import avro_record
from tests.kit.environment import ROOT
from tests.kit.errors import raised

pytestmark = pytest.mark.usefixtures("spark")


def test_text_is_strict_utf_8() -> None:
    """Text comes out as it was; bytes that are not UTF-8 are bad, and only they."""
    assert decoded(String(), ["Zoë".encode(), None, b""]) == (["Zoë", None, ""], {})
    values, reasons = decoded(String(), [b"good", "Zoë".encode("latin-1"), b"\xed\xa0\x80", None])
    assert values == ["good", None, None, None] and list(reasons) == [1, 2]
    assert reasons[1] == "it is not valid UTF-8: byte 2 is 0xeb"


JSON = Json(
    "id bigint not null, name string, tags array<string>, inner struct<`x y`: int>, at timestamp, "
    "local timestamp_ntz, money decimal(10,2)"
)


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (b"", "truncated"),
        (b'{"id": 1', "truncated"),
        (b'{"id": 1} x', "trailing"),
        (b'{"id": 1}{"id": 2}', "trailing"),
        (b"null", "Expected `object`"),
        (b"{}", "missing required field `id`"),
        (b'{"id": null}', "got `null`"),
        (b'{"id": 1, "name": "\xff"}', "not valid UTF-8: byte 19 is 0xff"),
        (b'{"id": 1, "not in the schema": "\xff"}', "not valid UTF-8"),
        (b'{"id": 1, "inner": {"x y": "3"}}', "`$.inner.x y`"),
        (b'{"id": 1, "tags": [1]}', r"`$.tags[0]`"),
        (b'{"id": 1, "at": "2026-01-01T00:00:00"}', "timezone"),
        (b'{"id": 1, "money": 1.255}', "money: 1.255 does not fit decimal(10,2)"),
        (b'{"id": 1, "money": true}', "money: True is neither a number nor the text of one"),
        (b'{"id": 1, "money": 1e9999999999999999999}', "too long for a number"),
        (b'{"id": 1, "money": "1_0"}', "money: '1_0' is not a decimal number"),
        (
            b'{"id": 1, "local": "2026-01-01T23:59:59.9999999"}',
            "local: '2026-01-01T23:59:59.9999999' is finer",
        ),
        (b'{"id": 1, "other": ' + b"[" * 100_000, "nested too deeply"),
        (b'{"id": 1, "other": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        ('{"id": 1}'.encode("utf-16"), "not valid UTF-8: byte 0 is 0xff"),
        (b'{"id": 1}\0', "trailing"),
    ],
)
def test_json_that_is_not_what_the_schema_says_is_bad(record: bytes, why: str) -> None:
    """Nothing is guessed: broken texts, what follows them and missing fields are bad records. (Each
    type's texts: test_json_is_what_the_page_says.)
    """
    assert why in reason(JSON, record)


BAD = object()
AT_ONE = datetime(2026, 1, 1, 0, 0, 0, tzinfo=UTC)
JANUARY = "2026-01-01T01:00:00"
TENTH = struct.unpack("f", struct.pack("f", 0.1))[0]
MAX = 2.0**128 - 2.0**104
PAGE: dict[str, dict[str, Any]] = {
    "bigint": {
        "1": 1,
        "-0": 0,
        "9" * 20: BAD,
        **dict.fromkeys(("1.0", "1e2", '"1"', "true"), BAD),
    },
    "tinyint": {"-128": -128, "128": BAD},
    "boolean": {"true": True, **dict.fromkeys(("1", '"true"'), BAD)},
    "string": {'"Zoë"': "Zoë", '""': "", "3": BAD},
    "decimal(5,2)": {
        **{
            text: Decimal("1.5")
            for text in ("1.5", "1.50000", "15e-1", '"1.5"', '"+1.5"', '"15E-1"')
        },
        '".5"': Decimal("0.5"),
        '"-.5"': Decimal("-0.5"),
        **{text: Decimal("1.25") for text in ("125E-2", "1.25" + "0" * 100)},
        "0e-999999999": Decimal(0),
        **dict.fromkeys(("1e-60", "1e999999999", "1e9999999999999999999"), BAD),
        **{text: Decimal(100) for text in ("1e2", '"1e2"', '"100."', '"0100"', '"\\u0031e2"')},
        **dict.fromkeys(
            ('"1_0"', '" 10"', '"10 "', '"NaN"', '"sNaN"', '"Infinity"', '""', '"."', '"e2"'), BAD
        ),
        **dict.fromkeys(
            ('"1,5"', '"0x1"', '"--1"', '"\u0661"', '"1\\n"', '"1\\u005f0"', "true", "[1]"), BAD
        ),
        **dict.fromkeys(("1.255", "1000"), BAD),
    },
    "float": {
        "1e-50": 0.0,
        "0.5": 0.5,
        "3": 3.0,
        "0.1": TENTH,
        # as Java and JavaScript's libraries write the largest, and what is nearest to it
        **dict.fromkeys(("3.4028235e38", "3.4028235677973366e38", "3.4028234663852886e38"), MAX),
        **dict.fromkeys(("3.4028235677973367e38", "-3.4028236e38", "1e39", "NaN"), BAD),
        **dict.fromkeys(('"1"', "true", "[]"), BAD),
    },
    "double": {
        "1e-50": 1e-50,
        "1e-400": 0.0,
        "9007199254740993": 2.0**53,
        **dict.fromkeys(('"1"', "1e400"), BAD),
    },
    "timestamp": {
        **{
            f'"{text}"': AT_ONE
            for text in (
                *(
                    f"{JANUARY}{zone}"
                    for zone in ("+01:00", "+0100", ".000+01:00", ".0000000+01:00")
                ),
                *("2026-01-01 00:00:00Z", "2026-01-01t00:00:00z", "2026-01-01T00:00:00-00:00"),
            )
        },
        **{
            f'"{text}"': BAD
            for text in (
                *(f"{JANUARY}{zone}" for zone in ("", "+01", "+1:00", "+24:00", ".Z", ",5Z", " Z")),
                *(
                    "2026-01-01T24:00:00Z",
                    "2026-01-01T23:59:60Z",
                    "2026-01-01T00:00Z",
                    "2026-01-01",
                ),
                *(
                    "20260101T000000Z",
                    f"{JANUARY}.0000001Z",
                    f" {JANUARY}Z",
                    f"{JANUARY}\\u002e9999999Z",
                ),
            )
        },
        '"2026-01-01T00:00:00.5000000000Z"': AT_ONE.replace(microsecond=500_000),
        "1767225600": BAD,
    },
    "timestamp_ntz": {
        f'"{JANUARY}"': datetime(2026, 1, 1, 1),  # noqa: DTZ001
        f'"{JANUARY}.1234567"': BAD,
        f'"{JANUARY}Z"': BAD,
    },
    "date": {
        '"2026-01-01"': date(2026, 1, 1),
        **dict.fromkeys(('"20260101"', f'"{JANUARY}"', '"2026-1-1"', "20454"), BAD),
    },
    "binary": {'"YWJj"': b"abc", '""': b"", **dict.fromkeys(('"YWI"', '"YW I="', '"_-=="'), BAD)},
    "struct<a:int>": {
        ' {"a": 1, "b": [1, {"y": null}]}\n': {"a": 1},
        "{}": {"a": None},
        '{"a": 1, "a": 2}': {"a": 2},
        '{"a": 1, "\\u0061": null}': {"a": None},
        '{"a": "x", "a": 2}': BAD,
    },
    "map<string,int>": {
        '{"a": 1, "a": 2, "b": 3}': [("a", 2), ("b", 3)],
        '{"a": "x", "a": 2}': BAD,
    },
    "map<decimal(5,2),int>": {
        '{"1": 1, "1.0": 2}': [(Decimal(1), 2)],
        '{"0": 1, "-0": 2}': [(Decimal(0), 2)],
    },
    "map<string,decimal(5,1)>": {
        '{"k": 1.5, "k": 2.5, "1_0": 1e1}': [("k", Decimal("2.5")), ("1_0", Decimal(10))],
        '{"k": 1e-60}': BAD,
    },
    "struct<inner: struct<b: string>>": {
        '{"inner": {"b": "x", "b": "y"}}': {"inner": {"b": "y"}},
    },
}
"""For each type the texts of docs/decoding.md, and some beside them."""


@pytest.mark.parametrize("kind", PAGE)
def test_json_is_what_the_page_says(kind: str) -> None:
    """Each text alone, in an array, and as a field that may be missing."""
    texts = list(PAGE[kind])
    for given, around, inside in (
        (Json(kind), "{}", lambda value: value),
        (Json(f"array<{kind}>"), "[null, {}]", lambda value: [None, value]),
        (Json(f"struct<x: {kind}>"), '{{"x": {}}}', lambda value: {"x": value}),
    ):
        values, reasons = decoded(given, [around.format(text).encode() for text in texts])
        for row, text in enumerate(texts):
            expected = PAGE[kind][text]
            if expected is BAD:
                assert row in reasons, (text, values[row])
                assert "Error" not in reasons[row], (text, reasons[row])
            else:
                assert (reasons.get(row), values[row]) == (None, inside(expected)), text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # halfway between two floats, which are 1 and 1 + 2^-23, and a little beside it
        ("1.000000059604644775390625", 1.0),
        ("1.000000059604644775390625000000000000000000001", 1 + 2**-23),
        ("1.000000178813934326171875", 1 + 2**-22),
        ("1.000000178813934326171874999999999999999999999", 1 + 2**-23),
        ("-1.000000059604644775390625000000000000000000001", -1 - 2**-23),
        ("16777217", 2.0**24),
        ("16777217.0000000000000000001", 2.0**24 + 2),
        ("16777219", 2.0**24 + 4),
        ("16777218.9999999999999999999", 2.0**24 + 2),
        # half of the smallest one is 0
        ("7.006492321624085354618e-46", 0.0),
        ("7.00649232162408535461864791644958065640130970938257885878535e-46", 2.0**-149),
        ("340282356779733661637539395458142568447", 2.0**128 - 2.0**104),
    ],
)
def test_json_floats_are_rounded_once(text: str, value: float) -> None:
    """The float nearest to the text, and not to the double that is nearest to it."""
    assert decoded(Json("f float"), [b'{"f": %s}' % text.encode()]) == ([{"f": value}], {})


def test_a_function_of_the_user() -> None:
    """Values of the declared type come out; an exception's text is the reason; other types are
    bad.
    """

    def read(data: bytes) -> Any:
        if data == b"boom":
            raise ValueError("no such\nthing as boom, \ud800 or \0")
        return eval(data)

    given = Function(read, "id int not null, tags array<string>")
    assert decoded(given, [b"{'id': 1, 'tags': ['a']}", b"{'id': 2}", None]) == (
        [{"id": 1, "tags": ["a"]}, {"id": 2, "tags": None}, None],
        {},
    )
    assert reason(given, b"boom") == r"ValueError: no such thing as boom, \ud800 or \0", (
        "text that any target takes"
    )
    assert "missing required field `id`" in reason(given, b"{}")
    assert "Expected `int`, got `float` - at `$.id`" in reason(given, b"{'id': 1.5}")
    assert "`int` <= 2147483647 - at `$.id`" in reason(given, b"{'id': 2**31}")
    assert "got `str`" in reason(Function(read, "bigint"), b"'1'")
    assert "`$.tags[0]`" in reason(given, b"{'id': 1, 'tags': [1]}")
    money = Function(lambda data: Decimal(data.decode()), "decimal(10,2)")
    assert decoded(money, [b"1.25", b"0e-999999999"]) == ([Decimal("1.25"), Decimal(0)], {})
    assert "1E-999999999 does not fit decimal(10,2)" in reason(money, b"1e-999999999")


Item = msgspec.defstruct(
    "Item", [("unit_price", int), ("how_many", int, 1)], rename="camel", omit_defaults=True
)


@dataclass
class Order:
    items: list[Any]


@pytest.mark.parametrize("wrap", [lambda items: {"items": items}, Order])
def test_an_object_has_its_attributes(wrap: Callable[[Any], Any]) -> None:
    """Not the names that it is encoded by, nor without its defaults."""
    given = Function(
        lambda data: wrap([Item(int(data))]), "items array<struct<unit_price int, how_many int>>"
    )
    assert decoded(given, [b"7"]) == ([{"items": [{"unit_price": 7, "how_many": 1}]}], {})


def by_a_client() -> Exception:
    """As requests does: an OSError of its own, around the one of the network."""
    try:
        try:
            raise ConnectionRefusedError("connection refused")
        except ConnectionRefusedError:
            raise OSError("Max retries exceeded")  # noqa: B904
    except OSError as error:
        return error


def by_a_library() -> Exception:
    """Whose error is no OSError, and names what caused it."""
    error = RuntimeError("look-up failed")
    error.__cause__ = ConnectionResetError("the service hung up")
    return error


def by_requests(status: int) -> Exception:
    """What its ``raise_for_status`` raises."""
    response = requests.Response()
    response.status_code, response.url = status, "http://x"
    try:
        response.raise_for_status()
    except requests.HTTPError as error:
        return error
    raise AssertionError(status)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (lambda: ConnectionResetError("the service hung up"), "the service hung up"),
        (lambda: TimeoutError("no answer"), "no answer"),
        (lambda: Unavailable("is down"), "is down"),
        (lambda: URLError("connection refused"), "connection refused"),
        (lambda: gaierror(-3, "Temporary failure in name resolution"), "Temporary failure"),
        (lambda: OSError(errno.ENETUNREACH, "Network is unreachable"), "is unreachable"),
        (lambda: FutureTimeoutError("of a pool"), "of a pool"),
        (by_a_client, "Max retries exceeded"),
        (lambda: IncompleteRead(b"1", 9), "IncompleteRead"),
        (lambda: RemoteDisconnected("closed"), "closed"),
        (lambda: SSLEOFError(8, "EOF occurred"), "EOF occurred"),
        (by_a_library, "look-up failed"),
        (lambda: HTTPError("http://x", 503, "Unavailable", Message(), None), "503"),
        (lambda: HTTPError("http://x", 429, "Too Many Requests", Message(), None), "429"),
        (lambda: by_requests(503), "503 Server Error"),
        (lambda: by_requests(429), "429 Client Error"),
    ],
)
def test_a_service_that_a_function_asks_is_no_property_of_a_record(
    error: Callable[[], Exception], text: str
) -> None:
    """Nobody answered: the task fails, and no record is skipped or put aside for it."""
    with raised(Unavailable, text):
        decoded(raising(error), [b"1"])


def raising(error: Callable[[], Exception]) -> Function:
    def look_up(data: bytes) -> str:
        raise error()

    return Function(look_up, "string")


def test_errors_of_a_function_that_are_of_the_record() -> None:
    """An answer that says no, and a file that the record names."""
    no = raising(lambda: HTTPError("http://x", 404, "Not Found", Message(), None))
    assert "Not Found" in reason(no, b"1")
    assert "404 Client Error" in reason(raising(lambda: by_requests(404)), b"1")
    after_another_answer = ValueError("no such unit")
    after_another_answer.__context__ = ConnectionResetError("the first service hung up")
    assert "no such unit" in reason(raising(lambda: after_another_answer), b"1")
    missing = raising(lambda: FileNotFoundError(errno.ENOENT, "No such file"))
    assert "No such file" in reason(missing, b"1")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (Json(None), ["DECODE_TYPE", "Json"]),
        (Json("no such ddl <"), ["DECODE_TYPE", "'no such ddl <'"]),
        (Json("a interval day to second"), ["DECODE_TYPE", "interval day to second"]),
        (Json("map<boolean, int>"), ["DECODE_TYPE", "boolean"]),
        (Json("map<float, int>"), ["DECODE_TYPE", "double"]),
        (Function(print, "array<map<float, int>>"), ["DECODE_TYPE", "double"]),
        *(
            (given, ["DECODE_TYPE", "map"])
            for kind in ("struct<a: int>", "array<int>", "map<string, int>")
            for given in (Json(f"map<{kind}, int>"), Function(print, f"a map<{kind}, int>"))
        ),
        (Json("a int, b int, a string"), ["DECODE_TYPE", " a,"]),
        (Function(print, "s array<struct<x int, x int>>"), ["DECODE_TYPE", " x,"]),
        (Json("a int", registry="nowhere"), ["REGISTRY_ARGUMENT", "'url'"]),
        (Json("a bigint,, b int"), ["DECODE_TYPE", "CREATE TABLE"]),
        (Avro(5), ["DECODE_ARGUMENT", "Avro(5)"]),
        (Avro(), ["DECODE_ARGUMENT"]),
        (Avro("{"), ["AVRO_SCHEMA", "Error"]),
        (Avro(avro_record("R", r=["null", "R"])), ["AVRO_TYPE", "value.r"]),
        (Avro(avro_record("R", u=["int", "string"])), ["AVRO_TYPE", "value.u", "union", 2]),
        (Avro({"type": "array", "items": "null"}), ["AVRO_TYPE", "value", "null"]),
        (Avro(avro_record("R")), ["AVRO_TYPE", "value"]),
        (Protobuf(), ["PROTOBUF_MESSAGE", "descriptors="]),
        (Protobuf("shop.Order", b"no descriptors"), ["PROTOBUF_MESSAGE", "Error"]),
        (Protobuf("shop.Order", "/no/such/file"), ["PROTOBUF_MESSAGE", "/no/such/file"]),
        (Protobuf("shop.No", proto_set()), ["PROTOBUF_MESSAGE", "shop.No"]),
        (Function(print, "nothing <"), ["DECODE_TYPE", "'nothing <'"]),
    ],
)
def test_settings_that_cannot_be_are_refused_at_once(given: Any, why: list[object]) -> None:
    """One clear error before any record is read."""
    with raised(SettingRefused, *why) as refused:
        given.bind()
    assert str(refused.value).count("\n") < 3 and ": ." not in str(refused.value)


# ---- keys of a map that are one key in the column, signs of zeros, times by an offset ------------

FOLD = datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
ONE_KEY: list[tuple[str, list[tuple[Any, int]], Any]] = [
    ("decimal(5,2)", [(Decimal(1), 1), (Decimal("1.0"), 2)], Decimal(1)),
    ("decimal(5,2)", [(Decimal(0), 1), (Decimal("-0"), 2)], Decimal(0)),
    ("double", [(0.0, 1), (-0.0, 2)], 0.0),
    ("timestamp", [(FOLD, 1), (datetime(2024, 10, 27, 0, 30, tzinfo=UTC), 2)], FOLD),
]


@pytest.mark.parametrize(("key", "pairs", "expected"), ONE_KEY)
def test_the_last_of_two_equal_keys_counts(
    key: str, pairs: list[tuple[Any, int]], expected: Any
) -> None:
    given = Function(lambda _: dict(pairs), f"map<{key}, int>")
    (made,) = decoded(given, [b""])[0]
    assert [(one - expected, other) for one, other in made] == [(expected - expected, 2)]


def test_minus_zero_keeps_its_sign() -> None:
    """With a point or an exponent; without one it is an integer, which has none."""
    for kind in ("double", "float"):
        made, bad = decoded(Json(kind), [b"-0.0", b"-0e0", b"-0.5", b"0", b"-0"])
        assert (list(map(repr, made)), bad) == (["-0.0", "-0.0", "-0.5", "0.0", "0.0"], {})


def test_microseconds_of_an_offset_count() -> None:
    offset = timezone(timedelta(seconds=1, microseconds=5))
    given = Function(lambda _: datetime(2024, 1, 1, tzinfo=offset), "timestamp")
    expected = datetime(2023, 12, 31, 23, 59, 58, 999995, tzinfo=UTC)
    assert decoded(given, [b""]) == ([expected], {})
    before = Function(lambda _: datetime(1, 1, 1, tzinfo=offset), "timestamp")
    assert "outside of the years 1 to 9999" in reason(before, b"")


def test_booleans_are_keys_of_a_function() -> None:
    given = Function(lambda _: {True: 1}, "map<boolean, int>")
    assert decoded(given, [b""]) == ([[(True, 1)]], {})


# ---- names that are not ASCII, in a process that has not seen them, from a pickle ----------------

NAMES = ["é", "ключ", "日本", "🎉", "ü x", "naïve", "e\u0301", "plain"]
INSIDE = {name: {name: 1, f"{name}2": 1.5} for name in NAMES}
DEEP = [{"é": {"日本": {"ключ": 0.5}}}]
WORKER = """
import pickle, sys
from exactum.formats.format import decoded
read = [decoded(given, kind, reader()) for reader, kind, given in pickle.load(sys.stdin.buffer)]
made = [(column.to_pylist(), reasons) for column, reasons in read]
sys.stdout.buffer.write(pickle.dumps(made))
"""


def fields(null: str) -> Json:
    """A struct of each name, with two fields of it."""
    of_each = "`{0}` struct<`{0}`: int, `{0}2`: decimal(5,2){1}>{1}"
    return Json(", ".join(of_each.format(name, null) for name in NAMES))


def test_fields_of_any_name_are_found() -> None:
    """All that the schema can have inside, in the order of the schema and in another one; and inside
    of arrays and maps.
    """
    orders = [INSIDE, dict(reversed(INSIDE.items()))]
    named = {name: {name: 1, f"{name}2": Decimal("1.50")} for name in NAMES}
    deep = Json("array<struct<`é`: map<string, struct<`ключ`: float>>>>")
    cases = []
    for given, records in ((fields(""), orders), (fields(" not null"), orders), (deep, [DEEP])):
        bound = given.bind()
        texts = pa.array([json.dumps(one, ensure_ascii=False).encode() for one in records])
        cases.append((bound.reader, arrow_type(bound.column, "test"), texts))
    command = [sys.executable, "-c", WORKER]
    ended = subprocess.run(
        command, input=pickle.dumps(cases), capture_output=True, check=True, cwd=ROOT
    )
    in_maps = [{"é": [("日本", {"ключ": 0.5})]}]
    expected = [([named, named], {}), ([named, named], {}), ([in_maps], {})]
    assert pickle.loads(ended.stdout) == expected


def test_a_msgspec_that_does_not_find_a_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be null in silence ends at the call."""
    monkeypatch.setattr(msgspec.json, "encode", lambda fields: json.dumps({"a": None}).encode())
    with raised(SettingRefused, "DECODE_TYPE", "é"):
        Json("a int, `é` int").bind()


# ---- what Spark alone says of text that is not UTF-8, where nothing else is decoded -------------

WRONG = [
    b"\xfe",
    b"ok\xc3",
    b"\xef\xbf\xbd\xff",
    "\ufffc\ufffd\u00e9\U0001f389".encode() + b"\xf0\x9f\x8e",
    b"\xef\xbf\xff\xef\xbf\xbd",
    b"a\xed\xa0\x80b",
    b"\xf1\xef\xbf\xbd",
    b"\xc0\x80",
    b"\x80" * 3,
]


def test_the_place_is_that_which_python_finds(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(one,) for one in WRONG], "value binary")
    made = [row[0] for row in rows.select(_not_utf_8(f.col("value"))).collect()]
    for data, said in zip(WRONG, made, strict=True):
        with pytest.raises(UnicodeDecodeError) as caught:
            data.decode()
        assert said == not_utf_8(caught.value)


def test_the_refusal_has_the_code_of_a_bad_record(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [("t", 0, 7, b"\xfe")], "topic string, partition int, offset bigint, value binary"
    )
    (text,) = rows.select(_raised(_not_utf_8(f.col("value")))).first() or ()
    error = carried_by(RuntimeError(text))
    assert isinstance(error, RowsRefused)
    assert error.code == "RECORD_BAD"
    assert "t-0 at offset 7 cannot be decoded: it is not valid UTF-8: byte 0 is 0xfe" in str(error)
