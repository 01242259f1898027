"""Values that are not on the wire, names that only one side has, and what refusals of schemas say."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from pyspark.sql import SparkSession

from exactum import Avro, Json, Protobuf
from exactum.errors import SettingRefused
from tests.decoding.test_protobuf_pairs import class_of, file_with
from tests.kit.decoding.format_cases import UTC, decoded, framed
from tests.kit.decoding.registry import Registry

pytestmark = pytest.mark.spark


def proto3(kind: str, label: str = "optional", *, presence: bool = False, **more: Any) -> Any:
    file = file_with(kind, label, **more)
    file.MergeFrom(descriptor_pb2.FileDescriptorProto(syntax="proto3"))
    if presence:
        message = file.message_type[0]
        message.field[0].proto3_optional = True
        message.field[0].oneof_index = 0
        message.oneof_decl.add(name="_v")
    return file


def test_a_default_without_presence_is_not_written(spark: SparkSession, registry: Registry) -> None:
    """So it is what a field that was not set is: Protobuf itself reads it so."""
    for kind, zero in (("int32", 0), ("string", "")):
        written = proto3(kind)
        number = registry.register(kind, written.SerializeToString(), "PROTOBUF")
        data = framed(number) + b"\0" + class_of(written)(v=zero).SerializeToString()
        for file, expected in (
            (proto3(kind), zero),
            (proto3(kind, presence=True), None),
            (proto3(kind, "repeated"), []),
        ):
            given = Protobuf(class_of(file), registry=registry.url)
            assert decoded(given, [data]) == ([{"v": expected}], {})


def test_a_number_that_only_the_writers_enum_names(spark: SparkSession, registry: Registry) -> None:
    written = proto3("enum")
    written.enum_type[0].value.add(name="SEVEN", number=7)
    number = registry.register("v", written.SerializeToString(), "PROTOBUF")
    data = framed(number) + b"\0" + class_of(written)(v=7).SerializeToString()
    opened, closed = (
        Protobuf(class_of(file), registry=registry.url)
        for file in (proto3("enum"), file_with("enum"))
    )
    assert decoded(opened, [data]) == ([{"v": "7"}], {})
    assert "closed enum" in decoded(closed, [data])[1][0]


def zigzag(number: int) -> bytes:
    number, made = (number << 1) ^ (number >> 63), bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


def test_dates_of_avro_are_of_the_years_1_to_9999(spark: SparkSession) -> None:
    days = Avro({"type": "int", "logicalType": "date"})
    first, last = (date(1, 1, 1) - date(1970, 1, 1)).days, (date.max - date(1970, 1, 1)).days
    made, bad = decoded(days, [zigzag(one) for one in (first, last, first - 1, last + 1)])
    assert (made[:2], sorted(bad)) == ([date.min, date.max], [2, 3])
    micros = Avro({"type": "long", "logicalType": "timestamp-micros"})
    end = (datetime.max.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
        microseconds=1
    )
    made, bad = decoded(micros, [zigzag(end), zigzag(end + 1)])
    assert (made[0], list(bad)) == (datetime.max.replace(tzinfo=UTC), [1])


def test_refusals_say_what_to_do(spark: SparkSession) -> None:
    for given, code, said in (
        (Avro(5), "DECODE_ARGUMENT", "Avro(5): a schema is its text in JSON"),
        (Avro(), "DECODE_ARGUMENT", "needs a schema"),
        (Avro("{}"), "AVRO_SCHEMA", "Correct it."),
        (Json("a bigint,, b int"), "DECODE_TYPE", "Write it as in CREATE TABLE"),
    ):
        with pytest.raises(SettingRefused) as caught:
            given.bind()
        assert caught.value.code == code
        assert said in str(caught.value)
        assert ": ." not in str(caught.value)
        assert str(caught.value).count("\n") < 3
