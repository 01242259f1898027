"""Avro: what is decoded, by whichever writer's schema, and what is bad."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from exactum import Avro
from exactum.errors import SettingRefused
from tests.kit.decoding.format_cases import (
    AVRO_ORDER,
    AVRO_RECORD,
    UTC,
    avro,
    decoded,
    framed,
    reason,
)
from tests.kit.decoding.registry import Registry

pytestmark = pytest.mark.spark


@pytest.mark.in_turn
def test_avro_round_trip(spark: SparkSession) -> None:
    """Every type that Avro and Spark share comes out with its value; other logical types as what
    they are stored as.
    """
    expected = {**AVRO_RECORD, "counts": [("k", 1)]}
    values, reasons = decoded(Avro(json.dumps(AVRO_ORDER)), [avro(AVRO_ORDER, AVRO_RECORD), None])
    assert (values, reasons) == ([expected, None], {})


@pytest.mark.in_turn
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
