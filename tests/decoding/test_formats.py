"""Each format, in a task's own code: what it decodes a record into, and which records it calls
bad.
"""

from __future__ import annotations

import io
import json
import pickle
import socket
import struct
from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from exactum import Avro, Function, Json, Protobuf, String
from exactum.errors import SettingRefused, Unavailable
from exactum.formats import record_type
from tests.kit.decoding.messages import narrow_and_wide
from tests.kit.decoding.registry import Registry

pytestmark = pytest.mark.spark

UTC = timezone.utc

JSON_DDL = (
    "id bigint not null, name string, small tinyint, price double, ok boolean, tags "
    "array<string>, inner struct<`x y`: int>, counts map<string, bigint>, at timestamp, local "
    "timestamp_ntz, day date, money decimal(10,2), raw binary"
)
JSON_RECORD = {
    "id": 12,
    "name": "Zoë",
    "small": -128,
    "price": 3,
    "ok": True,
    "tags": ["a", "b"],
    "inner": {"x y": 3},
    "counts": {"k": 1},
    "at": "2026-01-01T01:00:00+01:00",
    "local": "2026-01-01T00:00:00",
    "day": "2026-01-01",
    "money": 1.25,
    "raw": "YWJj",
    "not in the schema": [1, {"y": None}],
}
JSON_DECODED = {
    "id": 12,
    "name": "Zoë",
    "small": -128,
    "price": 3.0,
    "ok": True,
    "tags": ["a", "b"],
    "inner": {"x y": 3},
    "counts": [("k", 1)],
    "at": datetime(2026, 1, 1, tzinfo=UTC),
    "local": datetime(2026, 1, 1),  # noqa: DTZ001  (a time without zone is what is promised)
    "day": date(2026, 1, 1),
    "money": Decimal("1.25"),
    "raw": b"abc",
}

AVRO_ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "DONE"]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {
            "name": "money",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        },
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "token", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}
AVRO_RECORD = {
    "id": 5,
    "name": "x" * 20,
    "state": "DONE",
    "at": datetime(2026, 1, 1, tzinfo=UTC),
    "day": date(2026, 1, 1),
    "money": Decimal("1.25"),
    "tags": ["a"],
    "counts": {"k": 1},
    "token": "00000000-0000-0000-0000-000000000001",
}


def decoded(given: Any, records: Sequence[bytes | None]) -> tuple[list[Any], dict[int, str]]:
    """What a task makes of the records, its codec having been carried there as Spark does."""
    bound = given.bind()
    codec = pickle.loads(cloudpickle.dumps(bound.codec))
    kind = record_type.arrow_type(record_type.as_nullable(bound.kind), "test")
    column, reasons = codec.open(kind).decode(pa.array(records, pa.binary()))
    assert column.type == kind and len(column) == len(records)
    return column.to_pylist(), reasons


def reason(given: Any, record: bytes) -> str:
    """Why a record is bad, between two good ones of the same kind which stay."""
    values, reasons = decoded(given, [None, record, None])
    assert values == [None, None, None]
    assert list(reasons) == [1], f"{record[:50]!r} should be bad"
    return reasons[1]


def avro(schema: Any, value: Any, number: int | None = None) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema, named_schemas={}), value)
    return (b"" if number is None else framed(number)) + out.getvalue()


def framed(number: int) -> bytes:
    return b"\0" + struct.pack(">I", number)


def proto_file() -> Any:
    """A file with the messages Shop.Order and Shop.Other: what protoc would make of it."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    order = file.message_type.add(name="Order")
    field = descriptor_pb2.FieldDescriptorProto
    one, many = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    order.field.add(name="id", number=1, type=field.TYPE_INT64, label=one)
    order.field.add(
        name="name",
        number=2,
        type=field.TYPE_STRING,
        label=one,
        proto3_optional=True,
        oneof_index=0,
    )
    order.oneof_decl.add(name="_name")
    order.field.add(name="big", number=3, type=field.TYPE_UINT64, label=one)
    order.field.add(name="tags", number=4, type=field.TYPE_STRING, label=many)
    order.field.add(
        name="state", number=5, type=field.TYPE_ENUM, type_name=".shop.State", label=one
    )
    order.field.add(
        name="at",
        number=6,
        type=field.TYPE_MESSAGE,
        type_name=".google.protobuf.Timestamp",
        label=one,
    )
    order.field.add(name="raw", number=7, type=field.TYPE_BYTES, label=one)
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=one)
    entry.field.add(name="value", number=2, type=field.TYPE_INT32, label=one)
    order.field.add(
        name="counts",
        number=8,
        type=field.TYPE_MESSAGE,
        type_name=".shop.Order.CountsEntry",
        label=many,
    )
    state = file.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="DONE", number=1)
    other = file.message_type.add(name="Other")
    other.field.add(name="id", number=1, type=field.TYPE_STRING, label=one)
    tree = file.message_type.add(name="Tree")
    tree.field.add(
        name="child", number=1, type=field.TYPE_MESSAGE, type_name=".shop.Tree", label=one
    )
    return file


def proto_set() -> bytes:
    return descriptor_pb2.FileDescriptorSet(file=[proto_file()]).SerializeToString()


def message(name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(proto_file().SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}"))


PROTO_DECODED = {
    "id": 7,
    "name": None,
    "big": Decimal(2**64 - 1),
    "tags": ["a", "b"],
    "state": "DONE",
    "at": datetime(2026, 1, 1, tzinfo=UTC),
    "raw": b"\xff",
    "counts": [("k", 1)],
}


def proto_order() -> Any:
    made = message("Order")(
        id=7, big=2**64 - 1, tags=["a", "b"], state=1, raw=b"\xff", counts={"k": 1}
    )
    made.at.FromDatetime(datetime(2026, 1, 1, tzinfo=UTC))
    return made


def test_text_is_strict_utf_8(spark: SparkSession) -> None:
    """Text comes out as it was; bytes that are not UTF-8 are bad, and only they."""
    assert decoded(String(), ["Zoë".encode(), None, b""]) == (["Zoë", None, ""], {})
    values, reasons = decoded(String(), [b"good", "Zoë".encode("latin-1"), b"\xed\xa0\x80", None])
    assert values == ["good", None, None, None] and list(reasons) == [1, 2]
    assert "utf-8" in reasons[1]


def test_json_round_trip(spark: SparkSession) -> None:
    """Every type of Spark that JSON has a form for comes out with its value; what may be missing
    is null.
    """
    values, reasons = decoded(
        Json(JSON_DDL), [json.dumps(JSON_RECORD).encode(), b' {"id": 1}\n', None]
    )
    assert reasons == {}
    assert values == [JSON_DECODED, {**dict.fromkeys(JSON_DECODED), "id": 1}, None]
    assert decoded(Json("array<int>"), [b"[1, 2]"]) == ([[1, 2]], {})


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
        (b'{"id": "1"}', "got `str`"),
        (b'{"id": 1.5}', "got `float`"),
        (b'{"id": true}', "got `bool`"),
        (b'{"id": 99999999999999999999}', "9223372036854775807"),
        (b'{"id": 1, "small": 128}', "127"),
        (b'{"id": 1, "price": 1e400}', "out of range"),
        (b'{"id": 1, "name": 3}', "got `int`"),
        (b'{"id": 1, "name": "\xff"}', "utf-8"),
        (b'{"id": 1, "not in the schema": "\xff"}', "utf-8"),
        (b'{"id": 1, "inner": {"x y": "3"}}', "`$.inner.x y`"),
        (b'{"id": 1, "tags": [1]}', r"`$.tags[0]`"),
        (b'{"id": 1, "at": "2026-01-01T00:00:00"}', "timezone"),
        (b'{"id": 1, "local": "2026-01-01T00:00:00Z"}', "timezone"),
        (b'{"id": 1, "money": 1.255}', "money: 1.255 does not fit decimal(10,2)"),
        (b'{"id": 1, "money": 1e-999999999}', "money: 1E-999999999 does not fit decimal(10,2)"),
        (b'{"id": 1, "money": 1e-60}', "money: 1E-60 does not fit"),
        (b'{"id": 1, "money": 1e999999999}', "money: 1E+999999999 does not fit"),
        (b'{"id": 1, "money": "NaN"}', "NaN"),
        (b'{"id": 1, "money": "sNaN"}', "sNaN does not fit"),
        (b'{"id": 1, "money": "1_0"}', "money: '1_0' is not a decimal number"),
        (rb'{"id": 1, "money": "1\u005f0"}', "money: '1_0' is not a decimal number"),
        (b'{"id": 1, "money": " 10"}', "is not a decimal number"),
        ('{"id": 1, "money": "١٢"}'.encode(), "is not a decimal number"),
        (
            b'{"id": 1, "local": "2026-01-01T23:59:59.9999999"}',
            "local: '2026-01-01T23:59:59.9999999' is finer",
        ),
        (rb'{"id": 1, "at": "2026-01-01T23:59:59\u002e9999999Z"}', "is finer than a microsecond"),
        (b'{"id": 1, "at": "2026-01-01T23:59:59.000000001Z"}', "is finer than a microsecond"),
        (b'{"id": 1, "other": ' + b"[" * 100_000, "recursion"),
        (b'{"id": 1, "other": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "recursion"),
        ('{"id": 1}'.encode("utf-16"), "malformed"),
        (b'{"id": 1}\0', "trailing"),
    ],
)
def test_json_that_is_not_what_the_schema_says_is_bad(
    spark: SparkSession, record: bytes, why: str
) -> None:
    """Nothing is guessed: broken texts, what follows them, wrong types, ranges and missing
    fields are bad records.
    """
    assert why in reason(Json(JSON_DDL), record)


def test_json_values_are_exact_however_they_are_written(spark: SparkSession) -> None:
    """Zeros behind a decimal or a time change nothing, however many, and so does an exponent
    that fits.
    """
    given = Json(
        "money decimal(10,2), at timestamp, more array<decimal(5,1)>, counts map<string, "
        "decimal(5,1)>"
    )
    for text, value in {
        "1.25" + "0" * 100: "1.25",
        "0e-999999999": "0",
        '"1e2"': "100",
        "125E-2": "1.25",
        '"-.5"': "-0.5",
    }.items():
        assert decoded(given, [b'{"money": %s}' % text.encode()])[0][0]["money"] == Decimal(value)
    record = (
        b'{"at": "2026-01-01T00:00:00.5000000000Z", "more": [1, 2.5, null], "counts": {"1_0": 1e1}}'
    )
    values, reasons = decoded(given, [record])
    assert reasons == {}
    assert values[0]["at"] == datetime(2026, 1, 1, 0, 0, 0, 500_000, UTC)
    assert values[0]["more"] == [1, Decimal("2.5"), None] and values[0]["counts"] == [
        ("1_0", Decimal(10))
    ]
    assert "more: 1E-60 does not fit" in reason(given, b'{"more": [1, 1e-60]}')
    assert "counts: 1E-60 does not fit" in reason(given, b'{"counts": {"k": 1e-60}}')
    assert "more: '1_0' is not a decimal number" in reason(given, b'{"more": ["1_0"]}')


def test_json_of_a_name_that_stands_twice_the_last_value_counts(spark: SparkSession) -> None:
    """In a column of an object, and in a map: as docs/decoding.md says."""
    given = Json("a bigint, inner struct<b: string>, counts map<string, decimal(5,1)>")
    text = b'{"a": 1, "inner": {"b": "x", "b": "y"}, "counts": {"k": 1.5, "k": 2.5}, "a": 2}'
    expected = {"a": 2, "inner": {"b": "y"}, "counts": [("k", Decimal("2.5"))]}
    assert decoded(given, [text]) == ([expected], {})
    assert decoded(given, [b'{"a": 1, "\\u0061": null}'])[0] == [
        {"a": None, "inner": None, "counts": None}
    ]


def test_json_numbers_with_a_point_are_the_nearest_ones(spark: SparkSession) -> None:
    """As in Spark, and as docs/decoding.md says: 1e-50 as a float is 0, as a double it is not."""
    given = Json("f float, d double")
    values, reasons = decoded(given, [b'{"f": 1e-50, "d": 1e-50}', b'{"f": 0.1, "d": 1e-400}'])
    nearest = struct.unpack("f", struct.pack("f", 0.1))[0]
    assert (values, reasons) == ([{"f": 0.0, "d": 1e-50}, {"f": nearest, "d": 0.0}], {})


def test_a_bad_record_leaves_its_neighbours_alone(spark: SparkSession) -> None:
    """Of many records in one batch only the bad ones are, also where Arrow refuses the whole
    batch for one value.
    """
    records = [
        b'{"id": 1, "money": 1.25}',
        b'{"id": 2, "money": 1.255}',
        b"x",
        b'{"id": 3, "money": 2}',
    ]
    values, reasons = decoded(Json("id int not null, money decimal(10,2)"), records)
    assert [None if one is None else one["id"] for one in values] == [1, None, None, 3]
    assert sorted(reasons) == [1, 2]


def test_avro_round_trip(spark: SparkSession) -> None:
    """Every type that Avro and Spark share comes out with its value; other logical types as what
    they are stored as.
    """
    expected = {**AVRO_RECORD, "counts": [("k", 1)]}
    values, reasons = decoded(Avro(json.dumps(AVRO_ORDER)), [avro(AVRO_ORDER, AVRO_RECORD), None])
    assert (values, reasons) == ([expected, None], {})


def test_avro_that_is_cut_off_or_goes_on_is_bad(spark: SparkSession) -> None:
    """Every prefix of a record is bad, and so is one with more behind it, wrong text or an
    impossible length.
    """
    good = avro(AVRO_ORDER, AVRO_RECORD)
    cut = [good[:length] for length in range(len(good))]
    values, reasons = decoded(Avro(AVRO_ORDER), cut)
    assert values == [None] * len(cut) and len(reasons) == len(cut)
    assert "1 bytes follow" in reason(Avro(AVRO_ORDER), good + b"\0")
    assert "utf-8" in reason(Avro(AVRO_ORDER), good.replace(b"xxxx", b"x\xffxx"))
    huge = good.replace(b"\x28" + b"x" * 20, b"\xfe\xff\xff\xff\xff\xff\xff\x0f" + b"x" * 20)
    assert huge != good and reason(Avro(AVRO_ORDER), huge)
    for member in (b"\x7f", b"\x01", b"\x03", b"\xff\x7f"):  # no such member of the union
        assert reason(Avro(AVRO_ORDER), good[:1] + member + good[2:])
    state = {"type": "enum", "name": "State", "symbols": ["NEW", "DONE"]}
    for symbol in (b"\x01", b"\x03", b"\x04", b"\xff\x7f"):
        assert reason(Avro(state), symbol) and reason(Avro(["null", state]), b"\x02" + symbol)
    assert decoded(Avro(["null", state]), [b"\x00", b"\x02\x02"]) == ([None, "DONE"], {})


def test_avro_of_several_writers_is_read_with_one_schema(
    spark: SparkSession, registry: Registry
) -> None:
    """Records of old and new schemas in one batch have the reader's columns; its defaults fill
    what is missing.
    """
    old = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
    new = {
        "type": "record",
        "name": "R",
        "fields": [*old["fields"], {"name": "n", "type": "string", "default": "-"}],
    }
    new["fields"][0] = {"name": "id", "type": "long"}
    first = registry.register("in-value", old)
    second = registry.register("in-value", new)
    records = [avro(old, {"id": 1}, first), avro(new, {"id": 2**40, "n": "x"}, second)]
    values, reasons = decoded(Avro(registry=registry.url, subject="in-value"), records * 100)
    assert (values, reasons) == ([{"id": 1, "n": "-"}, {"id": 2**40, "n": "x"}] * 100, {})
    asked = [path for path in registry.requests if path.startswith("/schemas")]
    assert len(asked) == 2, "each schema is asked for once"
    pinned, _ = decoded(Avro(registry=registry.url, subject="in-value", version=1), records[:1])
    assert pinned == [{"id": 1}]


def test_avro_numbers_are_never_taken_for_times(spark: SparkSession, registry: Registry) -> None:
    """A plain number is no time because the reader calls it one; times of another unit are the
    same times.
    """
    fields = {
        name: {"type": "long", "logicalType": name}
        for name in ("timestamp-millis", "timestamp-micros")
    }
    kinds = {"plain": "long", **fields, "day": {"type": "int", "logicalType": "date"}}
    schemas = {
        n: {"type": "record", "name": "R", "fields": [{"name": "x", "type": ["null", k]}]}
        for n, k in kinds.items()
    }
    ids = {name: registry.register("x", schema) for name, schema in schemas.items()}
    given = Avro(schemas["timestamp-micros"], registry=registry.url)
    record = avro(
        schemas["timestamp-millis"],
        {"x": datetime(2026, 1, 1, tzinfo=UTC)},
        ids["timestamp-millis"],
    )
    assert decoded(given, [record]) == ([{"x": datetime(2026, 1, 1, tzinfo=UTC)}], {})
    assert "has no logical type for value.x" in reason(
        given, avro(schemas["plain"], {"x": 5}, ids["plain"])
    )
    assert "date logical type" in reason(given, avro(schemas["day"], {"x": 5}, ids["day"]))
    plain = Avro(schemas["plain"], registry=registry.url)
    assert "timestamp-millis logical type" in reason(plain, record)


def test_avro_numbers_under_another_name_are_never_taken_for_times(
    spark: SparkSession, registry: Registry
) -> None:
    """An alias, a list, a map and a union change nothing: a plain number, or a decimal, is of
    its own logical type.
    """
    stamp = {"type": "long", "logicalType": "timestamp-micros"}
    money = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}

    def record(name: str, kind: Any, called: str = "R", **more: Any) -> Any:
        return {"type": "record", "name": called, "fields": [{"name": name, "type": kind, **more}]}

    inside = [
        (record("x", "long"), record("y", stamp, aliases=["x"])),
        (
            record("x", record("at", "long", "I")),
            record("y", record("then", stamp, "I", aliases=["at"]), aliases=["x"]),
        ),
        (record("x", ["null", "long"]), record("y", ["null", stamp], aliases=["x"])),
        (record("x", ["string", "long"]), record("y", stamp, aliases=["x"])),
        (
            record("x", {"type": "array", "items": "long"}),
            record("x", {"type": "array", "items": stamp}),
        ),
        (
            record("x", {"type": "map", "values": stamp}),
            record("x", {"type": "map", "values": "long"}),
        ),
        (record("x", stamp), record("x", "double")),
        (record("x", money), record("x", "string")),
    ]
    for writer, reader in inside:
        number = registry.register("x", writer)
        assert "logical type for value." in reason(
            Avro(reader, registry=registry.url), framed(number) + b"\x02" * 8
        )
    number = registry.register("x", record("x", stamp))
    given = Avro(record("y", stamp, aliases=["x"]), registry=registry.url)
    assert decoded(given, [framed(number) + b"\x02"])[0] == [
        {"y": datetime(1970, 1, 1, 0, 0, 0, 1, UTC)}
    ]


def test_avro_decimals_keep_every_digit(spark: SparkSession, registry: Registry) -> None:
    """A decimal of more digits than its writer's schema says keeps its value, or is bad where it
    does not fit.
    """
    for kind, data in (
        ({"type": "bytes"}, b"\x04\x30\x39"),
        ({"type": "fixed", "name": "F", "size": 2}, b"\x30\x39"),
    ):
        writer = {**kind, "logicalType": "decimal", "precision": 4, "scale": 2}
        reader = {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 3}
        assert "123.45 does not fit decimal(4,2)" in reason(Avro(writer), data)
        assert "123.45 does not fit decimal(4,2)" in reason(Avro(["null", writer]), b"\x02" + data)
        number = registry.register("x", writer)
        given = Avro(
            reader if kind["type"] == "bytes" else {**reader, **kind, "precision": 4},
            registry=registry.url,
        )
        values, reasons = decoded(given, [framed(number) + data])
        if kind["type"] == "bytes":
            assert (values, reasons) == ([Decimal("123.450")], {})
        else:
            assert "123.45 does not fit decimal(4,3)" in reasons[0]
    tiny = registry.register(
        "x", {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 60}
    )
    given = Avro(
        {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 3},
        registry=registry.url,
    )
    assert "a decimal of scale 60" in reason(given, framed(tiny) + b"\x02\x01")
    small = {"type": "fixed", "name": "F", "size": 1, "logicalType": "decimal", "precision": 2}
    assert "127 does not fit decimal(2,0)" in reason(Avro(small), b"\x7f"), "not 130"


def test_avro_numbers_of_more_than_64_bits_are_bad(spark: SparkSession, registry: Registry) -> None:
    """Wherever one stands: as a number, a length, a count or a member, also in what nobody reads;
    and a boolean is the byte 0 or 1. 64 bits, long texts and decimals stay what they are.
    """
    over = (b"\x80" * 9 + b"\x02", b"\xff" * 9 + b"\x03", b"\x84" + b"\x80" * 8 + b"\x04")
    over += (b"\x80" * 10 + b"\x00", b"\x82" + b"\x80" * 12 + b"\x01")
    symbols = {"type": "enum", "name": "S", "symbols": ["A", "B"]}
    longs, counts = {"type": "array", "items": "long"}, {"type": "map", "values": "long"}
    for kind, end in (
        ("long", b""),
        ("int", b""),
        (["null", "long"], b""),
        ("bytes", b""),
        ("string", b""),
        (symbols, b""),
        (longs, b"\x02\x00"),
        (counts, b"\x00\x02\x00"),
    ):
        schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}
        number = registry.register(
            "x", {**schema, "fields": [*schema["fields"], {"name": "id", "type": "long"}]}
        )
        later = Avro({**schema, "fields": [{"name": "id", "type": "long"}]}, registry=registry.url)
        for one in over:
            assert reason(Avro(schema), one + end), (kind, one)
            assert reason(later, framed(number) + one + end + b"\x02"), (kind, one)
    assert "more than 64 bits" in reason(Avro('"long"'), over[0])
    least = b"\xff" * 9 + b"\x01"
    assert reason(Avro(longs), least + b"\x02" * 3), "a count of -2^63 is no 0"
    assert decoded(Avro('"long"'), [least, b"\xfe" + least[1:]]) == ([-(2**63), 2**63 - 1], {})
    assert decoded(Avro('"string"'), [b"\x30" + "\u4e2d".encode() * 8]) == (["\u4e2d" * 8], {})
    assert decoded(Avro('"bytes"'), [b"\x16" + over[0] + b"\x80"]) == ([over[0] + b"\x80"], {})
    assert decoded(Avro('"boolean"'), [b"\0", b"\1"]) == ([False, True], {})
    for byte in (b"\x02", b"\x80", b"\xff"):
        assert "neither 0 nor 1" in reason(Avro(["null", "boolean"]), b"\x02" + byte)


def test_avro_defaults_are_the_values_that_they_stand_for(
    spark: SparkSession, registry: Registry
) -> None:
    """Bytes are text in a schema, times and decimals are numbers and bytes: the columns have what
    a record with the same bytes has.
    """
    stamp = {"type": "long", "logicalType": "timestamp-millis"}
    money = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
    inner = {"type": "record", "name": "I", "fields": [{"name": "b", "type": "bytes"}]}
    inner["fields"].append({"name": "n", "type": "int", "default": 3})  # type: ignore[attr-defined]
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    fields: list[tuple[Any, Any, Any]] = [
        ("bytes", "\u00ff\u0001", b"\xff\x01"),
        ({"type": "fixed", "name": "F", "size": 2}, "\u0080a", b"\x80a"),
        (stamp, 1000, epoch.replace(second=1)),
        ({**stamp, "logicalType": "timestamp-micros"}, 1, epoch.replace(microsecond=1)),
        (
            {**stamp, "logicalType": "local-timestamp-millis"},
            1,
            epoch.replace(microsecond=1000, tzinfo=None),
        ),
        ({"type": "int", "logicalType": "date"}, 1, date(1970, 1, 2)),
        (money, "\u0081", Decimal("-1.27")),
        ([money, "null"], "\u0001", Decimal("0.01")),
        (["null", stamp], None, None),
        ({"type": "array", "items": "bytes"}, ["\u00ff"], [b"\xff"]),
        ({"type": "map", "values": money}, {"k": "\u0001"}, [("k", Decimal("0.01"))]),
        (inner, {"b": "\u00ff"}, {"b": b"\xff", "n": 3}),
        ("double", 1, 1.0),
        ("boolean", True, True),
    ]
    old = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
    more = [
        {"name": f"f{n}", "type": kind, "default": given}
        for n, (kind, given, _) in enumerate(fields)
    ]
    given = Avro({**old, "fields": [*old["fields"], *more]}, registry=registry.url)
    expected = {"id": 1, **{f"f{n}": value for n, (_, _, value) in enumerate(fields)}}
    number = registry.register("x", old)
    assert decoded(given, [framed(number) + b"\x02"]) == ([expected], {})
    for kind, wrong in (("bytes", "\u0100"), ({"type": "fixed", "name": "F", "size": 2}, "a")):
        field = {"name": "x", "type": kind, "default": wrong}
        with pytest.raises(SettingRefused, match="value.x is none of its type"):
            Avro({**old, "fields": [*old["fields"], field]}, registry=registry.url).bind()


def test_avro_of_two_fields_for_one_column_is_bad(spark: SparkSession, registry: Registry) -> None:
    """Where a writer has a field of the column's name and one of its alias, neither is taken for
    the other.
    """
    both = [{"name": "a", "type": "int"}, {"name": "b", "type": "int"}]
    given = Avro(
        {"type": "record", "name": "R", "fields": [{"name": "b", "type": "int", "aliases": ["a"]}]},
        registry=registry.url,
    )
    for fields in (both, both[::-1]):
        number = registry.register("x", {"type": "record", "name": "R", "fields": fields})
        assert "two fields for value.b" in reason(given, framed(number) + b"\x02\x04")


def test_avro_arrays_of_nothing_are_refused(spark: SparkSession, registry: Registry) -> None:
    """Values without bytes may be 2^62 in a record of ten bytes: neither a reader's schema nor a
    writer's has them.
    """
    empty = {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}
    with pytest.raises(SettingRefused, match="without bytes"):
        Avro(empty).bind()
    for items in (
        "null",
        empty["items"],
        {"type": "record", "name": "E", "fields": [{"name": "n", "type": "null"}]},
    ):
        inside = {"name": "more", "type": {"type": "array", "items": items}}
        writer = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}, inside]}
        number = registry.register("x", writer)
        given = Avro({**writer, "fields": writer["fields"][:1]}, registry=registry.url)
        assert "may be without end" in reason(
            given, framed(number) + b"\x02" + b"\xfe" + b"\xff" * 8 + b"\x01\x00"
        )


def test_avro_types_of_other_subjects_are_found(spark: SparkSession, registry: Registry) -> None:
    """A schema may refer to types that another subject has."""
    registry.register(
        "money", {"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "long"}]}
    )
    schema = {"type": "record", "name": "R", "fields": [{"name": "m", "type": "Money"}]}
    number = registry.register(
        "in-value", schema, references=({"name": "Money", "subject": "money", "version": 1},)
    )
    values, _ = decoded(Avro(registry=registry.url, subject="in-value"), [framed(number) + b"\x0a"])
    assert values == [{"m": {"cents": 5}}]


def test_what_a_registry_cannot_explain_is_bad(spark: SparkSession, registry: Registry) -> None:
    """Unknown ids, other kinds of schema, other types and a wrong frame are properties of a
    record.
    """
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
    tree = {
        "type": "record",
        "name": "R",
        "fields": [*schema["fields"], {"name": "t", "type": ["null", "R"]}],
    }
    number = registry.register("in-value", schema)
    text = registry.register(
        "text", {"type": "record", "name": "R", "fields": [{"name": "id", "type": "string"}]}
    )
    other = registry.register("json", {"type": "object"}, kind="JSON")
    nested = registry.register("tree", tree)
    given = Avro(schema, registry=registry.url)
    assert "99999 is not known" in reason(given, framed(99_999) + b"\x02")
    assert "magic byte is 1" in reason(given, b"\x01" + framed(number)[1:] + b"\x02")
    assert "4 bytes are too short" in reason(given, framed(number)[:4])
    assert "0 bytes are too short" in reason(given, b"")
    assert "mismatch" in reason(given, framed(text) + b"\x02x").lower()
    assert "of kind JSON" in reason(given, framed(other) + b"{}")
    assert "contains itself" in reason(given, framed(nested) + b"\x02" * 1_000_000)
    assert decoded(given, [framed(number) + b"\x0a"]) == ([{"id": 5}], {})


def test_a_registry_that_is_down_is_no_bad_record(spark: SparkSession) -> None:
    """No answer, or a server's error, is Unavailable for the epoch; the message has no password."""
    server = Registry()
    number = server.register("s", '"long"')
    quick = {"url": f"http://me:secret@{server.address}", "max.retries": 0}
    server.status = 503
    with pytest.raises(Unavailable, match=r"HTTP 503") as refused:
        decoded(Avro('"long"', registry=quick), [framed(number) + b"\x02"])
    server.close()
    with pytest.raises(Unavailable, match=r"did not answer \(Connect") as gone:
        decoded(Avro('"long"', registry=quick), [framed(number) + b"\x02"])
    assert server.address in str(gone.value)
    assert "secret" not in f"{refused.value}{gone.value}{Avro(registry=quick)!r}"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b"<html>default backend - 404</html>"),
        (404, b""),
        (404, b"{}"),
        (404, b"[]"),
        (404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}'),
        (404, b'{"error_code": "40403 or so"}'),
        (200, b"<html>log in</html>"),
        (200, b'{"status": "ok"}'),
        (200, b"[]"),
        (200, b""),
    ],
)
def test_what_stands_before_a_registry_does_not_speak_for_it(
    spark: SparkSession, registry: Registry, status: int, body: bytes
) -> None:
    """A 404 without the registry's own code, and a page where a schema belongs, say nothing
    about a record.
    """
    number = registry.register("s", '"long"')
    given = Avro('"long"', registry={"url": registry.url, "max.retries": 0})
    registry.foreign = (status, body)
    with pytest.raises(Unavailable, match="No record is taken for a bad one"):
        decoded(given, [framed(number) + b"\x02"])
    with pytest.raises(Unavailable):
        Avro(registry=registry.url, subject="s").bind()
    registry.foreign = None
    assert decoded(given, [framed(number) + b"\x02"]) == ([1], {})


def test_a_registry_that_follows_another_is_waited_for(
    spark: SparkSession, registry: Registry
) -> None:
    """That a schema is unknown is believed only after another look; one wait is enough for all
    ids of a task.
    """
    number = registry.register("s", '"long"')
    registry.behind = 2
    assert decoded(Avro('"long"', registry=registry.url), [framed(number) + b"\x02"]) == ([1], {})
    registry.behind = 1
    assert decoded(Avro(registry=registry.url, subject="s"), [framed(number) + b"\x02"]) == (
        [1],
        {},
    )
    before = len(registry.requests)
    _, reasons = decoded(
        Avro('"long"', registry=registry.url), [framed(900 + at) + b"\x02" for at in range(50)] * 2
    )
    assert len(reasons) == 100
    asked = registry.requests[before:]
    assert all(asked.count(path) >= 2 for path in asked) and len(asked) < 50 * 2 + 10


def test_a_registry_that_does_not_answer_is_given_up(spark: SparkSession) -> None:
    """A registry that accepts and is silent is Unavailable after the client's timeout."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = {
            "url": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "timeout": 0.2,
            "max.retries": 0,
        }
        with pytest.raises(Unavailable, match="Timeout"):
            decoded(Avro('"long"', registry=settings), [framed(1) + b"\x02"])


def test_a_registry_with_a_password(spark: SparkSession) -> None:
    """Credentials are used, refused ones are a setting to change, and neither shows them."""
    server = Registry(user="me:secret")
    number = server.register("s", '"long"')
    good = {"url": server.url, "basic.auth.user.info": "me:secret"}
    assert decoded(Avro(registry=good, subject="s"), [framed(number) + b"\x02"]) == ([1], {})
    with pytest.raises(SettingRefused, match="refuses access") as refused:
        Avro(registry={**good, "basic.auth.user.info": "me:geheim"}, subject="s").bind()
    assert "geheim" not in str(refused.value) + repr(Avro(registry=good))
    with pytest.raises(SettingRefused, match="not those of a client") as unknown:
        Avro('"long"', registry={**good, "no.such": 1}).bind()
    assert "secret" not in str(unknown.value)
    server.close()


def test_json_in_a_registry_of_records_that_are_cut_off(
    spark: SparkSession, registry: Registry
) -> None:
    """One that is shorter than the frame, and null ones, are no error of their batch."""
    number = registry.register("x", {"type": "object"}, kind="JSON")
    given, good = Json("a int", registry=registry.url), framed(number) + b'{"a": 1}'
    for batch in ([b"1", None], [good, b"", b"\0\0", None], [None, good], [b""] * 9):
        values, reasons = decoded(given, batch)
        assert values == [{"a": 1} if one == good else None for one in batch]
        assert list(reasons) == [row for row, one in enumerate(batch) if one not in (None, good)]


def test_json_with_a_registry(spark: SparkSession, registry: Registry) -> None:
    """The registry's frame is taken off and its id looked up; the columns come from the subject
    or are given.
    """
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": ["string", "null"]}},
        },
        "required": ["id"],
    }
    number = registry.register("in-value", schema, kind="JSON")
    record = framed(number) + b'{"id": 1, "tags": ["a", null], "more": 1}'
    assert decoded(Json(registry=registry.url, subject="in-value"), [record]) == (
        [{"id": 1, "tags": ["a", None]}],
        {},
    )
    given = Json("id bigint not null", registry=registry.url)
    assert decoded(given, [record]) == ([{"id": 1}], {})
    assert "not known" in reason(given, framed(99) + b'{"id": 1}')
    assert "magic byte" in reason(given, b'{"id": 1}')
    assert "missing required field" in reason(
        Json(registry=registry.url, subject="in-value"), framed(number) + b"{}"
    )


def test_protobuf_round_trip(spark: SparkSession) -> None:
    """Every kind of field comes out with its value; a class and a descriptor set mean the same."""
    data = proto_order().SerializeToString()
    for given in (Protobuf(message("Order")), Protobuf("shop.Order", proto_set())):
        assert decoded(given, [data, None]) == ([PROTO_DECODED, None], {})
    nothing = {
        "id": 0,
        "name": None,
        "big": Decimal(0),
        "tags": [],
        "state": "NEW",
        "at": None,
        "raw": b"",
        "counts": [],
    }
    assert decoded(Protobuf(message("Order")), [b""]) == ([nothing], {}), (
        "an empty message is a message"
    )


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (b"\x08", "DecodeError"),  # a field without its value
        (b"\x12\x05ab", "DecodeError"),  # a text shorter than it says
        (b"\x12\x02\xff\xfe", "DecodeError"),  # a text that is not UTF-8
        (b"\x12\xff\xff\xff\xff\x0fab", "DecodeError"),  # a huge one
        (b"\x0a\x01a", "field id has a wire type"),  # a text where a number belongs
        (b"\x08\x01\x00", "DecodeError"),  # a field with the number 0 behind the message
        (b"\x32\x06\x10\x80\x94\xeb\xdc\x03", "1000000000 nanoseconds"),
        (
            b"\x32\x0a\x08\xff\xff\xff\xff\xff\xff\xff\x7f",
            "Error",
        ),  # a time outside of the calendar
    ],
)
def test_protobuf_that_is_not_the_message_is_bad(
    spark: SparkSession, record: bytes, why: str
) -> None:
    """Broken messages, wrong wire types and values outside of their column's range are bad
    records.
    """
    assert why in reason(Protobuf(message("Order")), record)


def test_protobuf_numbers_are_never_cut_off(spark: SparkSession) -> None:
    """A number of 64 bits in a field of 32 is taken where it fits, and else makes the record
    bad: none wraps around.
    """
    narrow, wide = narrow_and_wide()
    ranges = {"f1": (-(2**31), 2**31 - 1), "f2": (0, 2**32 - 1), "f3": (-(2**31), 2**31 - 1)}
    for name, (low, high) in ranges.items():
        for number in (low, high, 0, 5):
            data = wide(one={name: number}, at=-1).SerializeToString()
            assert decoded(Protobuf(narrow), [data])[0][0]["one"][name] == number
        for number in (
            high + 1,
            2**32,
            2**33 + 5,
            2**63 - 1,
            *((low - 1, -(2**33) - 1) if low else ()),
        ):
            data = wide(one={name: number}, at=-1).SerializeToString()
            why = reason(Protobuf(narrow), data)
            assert f"the field {name} holds" in why and "does not fit its 32 bits" in why
    assert decoded(Protobuf(narrow), [wide(one={"many": [1, -1]}).SerializeToString()])[0][0][
        "one"
    ]["many"] == [1, -1]
    assert "many holds 4294967296" in reason(
        Protobuf(narrow), wide(one={"many": [1, 2**32]}).SerializeToString()
    )
    last_wins = (
        wide(one={"f1": 2**32}).SerializeToString()
        + wide(one={"f1": 5}, at=2**60).SerializeToString()
    )
    assert "f1 holds 4294967296" in reason(Protobuf(narrow), last_wins)


def test_protobuf_numbers_of_more_than_64_bits_are_bad(spark: SparkSession) -> None:
    """Protobuf keeps 64 of them in silence, whatever the field; a text may have such bytes."""
    over = b"\x80" * 9 + b"\x02"
    for cls in narrow_and_wide():
        assert "more than 64 bits" in reason(Protobuf(cls), b"\x10" + over)
        for field in (b"\x08", b"\x10", b"\x18"):
            inner = field + over
            assert "more than 64 bits" in reason(
                Protobuf(cls), b"\x0a" + bytes([len(inner)]) + inner
            )
        packed = b"\x22" + bytes([len(over)]) + over
        assert "more than 64 bits" in reason(Protobuf(cls), b"\x0a" + bytes([len(packed)]) + packed)
    least = b"\x10" + b"\x80" * 9 + b"\x01"
    assert decoded(Protobuf(narrow_and_wide()[1]), [least])[0][0]["at"] == -(2**63)
    order = proto_order()
    order.name = "\u4e2d" * 9 + "\x02"
    assert decoded(Protobuf(message("Order")), [order.SerializeToString()])[1] == {}


def test_protobuf_enums_of_a_newer_schema(spark: SparkSession) -> None:
    """A value that a closed enum lacks makes the record bad and is named; one that an open enum
    lacks is its number.
    """
    narrow, wide = narrow_and_wide()
    assert "the field state holds 7, which the closed enum n.State does not have" in reason(
        Protobuf(narrow), wide(one={"state": 7}).SerializeToString()
    )
    assert "the field states holds 7" in reason(
        Protobuf(narrow), wide(one={"states": [0, 7]}).SerializeToString()
    )
    assert decoded(Protobuf(message("Order")), [b"\x28\x07"])[0][0]["state"] == "7"
    assert "has a wire type that is not its own" in reason(Protobuf(narrow), b"\x0a\x03\x2a\x01a")


def test_protobuf_with_a_registry(spark: SparkSession, registry: Registry) -> None:
    """The message's place in its schema is read and checked; the columns come from the class or
    the subject.
    """
    number = registry.register("in-value", proto_file().SerializeToString(), kind="PROTOBUF")
    data = proto_order().SerializeToString()
    for given in (
        Protobuf(message("Order"), registry=registry.url),
        Protobuf(registry=registry.url, subject="in-value"),
        Protobuf("shop.Order", registry=registry.url, subject="in-value"),
    ):
        records = [
            framed(number) + b"\x00" + data,
            framed(number) + b"\x02\x00" + data,
        ]  # both mean the first message
        assert decoded(given, records) == ([PROTO_DECODED] * 2, {})
        assert "holds the message shop.Other" in reason(given, framed(number) + b"\x02\x02")
        assert "no message at [9]" in reason(given, framed(number) + b"\x02\x12")
        assert "cut off" in reason(given, framed(number))
        assert "not known" in reason(given, framed(99) + b"\x00" + data)


def test_a_function_of_the_user(spark: SparkSession) -> None:
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
    assert "got `float`" in reason(given, b"{'id': 1.5}")
    assert "2147483647" in reason(given, b"{'id': 2**31}")
    assert "got `str`" in reason(Function(read, "bigint"), b"'1'")
    money = Function(lambda data: Decimal(data.decode()), "decimal(10,2)")
    assert decoded(money, [b"1.25", b"0e-999999999"]) == ([Decimal("1.25"), Decimal(0)], {})
    assert "1E-999999999 does not fit decimal(10,2)" in reason(money, b"1e-999999999")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (Json(), "needs a schema"),
        (Json("no such ddl <"), "not a type that Spark knows"),
        (Json("a interval day to second"), "cannot be decoded into"),
        (Json(registry="nowhere"), "must be a URL"),
        (Avro(), "needs a schema"),
        (Avro("{"), "cannot be used"),
        (
            Avro({"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}),
            "contains itself",
        ),
        (
            Avro(
                {
                    "type": "record",
                    "name": "R",
                    "fields": [{"name": "u", "type": ["int", "string"]}],
                }
            ),
            "a union of 2",
        ),
        (Avro({"type": "array", "items": "null"}), "of type null"),
        (Avro({"type": "record", "name": "R", "fields": []}), "without fields"),
        (Protobuf(), "needs a message"),
        (Protobuf("shop.Order", b"no descriptors"), "cannot be found"),
        (Protobuf("shop.Order", "/no/such/file"), "cannot be found"),
        (Protobuf("shop.No", proto_set()), "cannot be found"),
        (Function(print, "nothing <"), "not a type that Spark knows"),
    ],
)
def test_settings_that_cannot_be_are_refused_at_once(
    spark: SparkSession, given: Any, why: str
) -> None:
    """One clear error before any record is read."""
    with pytest.raises(SettingRefused, match=why):
        given.bind()


def test_a_message_that_contains_itself_is_refused(spark: SparkSession) -> None:
    """It has no type of Spark."""
    with pytest.raises(SettingRefused, match=r"shop\.Tree contains itself"):
        Protobuf(message("Tree")).bind()


def test_subjects_that_are_not_there_are_refused(spark: SparkSession, registry: Registry) -> None:
    """A missing subject, version or name of it is a setting to correct, not a server to wait
    for.
    """
    registry.register("in-value", '"long"')
    with pytest.raises(SettingRefused, match="no version of subject 'none'"):
        Avro(registry=registry.url, subject="none").bind()
    with pytest.raises(SettingRefused, match="no version 7"):
        Avro(registry=registry.url, subject="in-value", version=7).bind()
    with pytest.raises(SettingRefused, match="Give subject="):
        Avro(registry=registry.url).bind()
    with pytest.raises(SettingRefused, match="holds AVRO, not JSON"):
        Json(registry=registry.url, subject="in-value").bind()
