"""Avro: what is decoded, by whichever writer's schema, and what is bad."""

from __future__ import annotations

import json
import struct
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from exactum import Avro
from exactum.errors import SettingRefused
from tests.kit.decoding.format_cases import (
    UTC,
    avro,
    decoded,
    framed,
    reason,
)
from tests.kit.decoding.records import Field, avro_record, logical, zigzag
from tests.kit.decoding.registry import Registry
from tests.kit.errors import raised

pytestmark = pytest.mark.usefixtures("spark")


STATE = {"type": "enum", "name": "State", "symbols": ["NEW", "DONE"]}
ORDER = avro_record(
    "Order",
    id="long",
    name=Field(type=["null", "string"], default=None),
    state=STATE,
    tags={"type": "array", "items": "string"},
    counts={"type": "map", "values": "long"},
)


def test_avro_that_is_cut_off_or_goes_on_is_bad() -> None:
    """Every prefix of a record is bad, and so is one with more behind it, wrong text or an
    impossible length.
    """
    order = {"id": 5, "name": "x" * 20, "state": "DONE", "tags": ["a"], "counts": {"k": 1}}
    good = avro(ORDER, order)
    assert decoded(Avro(json.dumps(ORDER)), [good]) == ([{**order, "counts": [("k", 1)]}], {})
    cut = [good[:length] for length in range(len(good))]
    values, reasons = decoded(Avro(ORDER), cut)
    assert values == [None] * len(cut) and len(reasons) == len(cut)
    assert "1 bytes follow" in reason(Avro(ORDER), good + b"\0")
    wrong = reason(Avro(ORDER), good.replace(b"xxxx", b"x\xffxx"))
    assert wrong == "what ends at byte 23 is a text that is not valid UTF-8"
    day = Avro(logical("int", "date"))
    assert "byte 5 is a number that is out of range" in reason(day, b"\xfe\xff\xff\xff\x0f")
    huge = good.replace(b"\x28" + b"x" * 20, b"\xfe\xff\xff\xff\xff\xff\xff\x0f" + b"x" * 20)
    assert huge != good and reason(Avro(ORDER), huge)
    for member in (b"\x7f", b"\x01", b"\x03", b"\xff\x7f"):  # no such member of the union
        assert reason(Avro(ORDER), good[:1] + member + good[2:])
    for symbol in (b"\x01", b"\x03", b"\x04", b"\xff\x7f"):
        assert reason(Avro(STATE), symbol) and reason(Avro(["null", STATE]), b"\x02" + symbol)
    assert decoded(Avro(["null", STATE]), [b"\x00", b"\x02\x02"]) == ([None, "DONE"], {})


def test_avro_of_several_writers_is_read_with_one_schema(registry: Registry) -> None:
    """Records of old and new schemas in one batch have the reader's columns; its defaults fill
    what is missing.
    """
    old = avro_record("R", id="int")
    new = avro_record("R", id="long", n=Field(type="string", default="-"))
    first = registry.register("in-value", old)
    second = registry.register("in-value", new)
    records = [avro(old, {"id": 1}, first), avro(new, {"id": 2**40, "n": "x"}, second)]
    values, reasons = decoded(Avro(registry=registry.url, subject="in-value"), records * 100)
    assert (values, reasons) == ([{"id": 1, "n": "-"}, {"id": 2**40, "n": "x"}] * 100, {})
    asked = [path for path in registry.requests if path.startswith("/schemas")]
    assert len(asked) == 2, "each schema is asked for once"
    pinned, _ = decoded(Avro(registry=registry.url, subject="in-value", version=1), records[:1])
    assert pinned == [{"id": 1}]


def test_avro_numbers_at_the_edges_of_64_bits() -> None:
    """Least as a value, and as the count of a block, which is none; bytes that look like it."""
    least = b"\xff" * 9 + b"\x01"
    longs, nested = {"type": "array", "items": "long"}, {"type": "map", "values": "long"}
    for last in (b"\x01", b"\x03", b"\x81\x00"):  # the second and third are of more than 64 bits
        count = b"\xff" * 9 + last
        assert reason(Avro(longs), count + b"\x01\x02\x00\x00"), "no array of one number"
        assert reason(Avro(longs), count + b"\x02" * 3)
        assert reason(Avro(nested), count + b"\x01\x02\x02k\x00\x00"), "no map of one number"
    values = [-(2**63), 2**63 - 1]
    assert decoded(Avro('"long"'), [least, b"\xfe" + least[1:]]) == (values, {})
    two = b"\x04" + least + b"\xfe" + least[1:] + b"\x00"
    assert decoded(Avro(longs), [two]) == ([values], {})
    assert decoded(Avro('"bytes"'), [b"\x16\xff" + least]) == ([b"\xff" + least], {})


def test_avro_defaults_are_the_values_that_they_stand_for(registry: Registry) -> None:
    """Bytes are text in a schema, times and decimals are numbers and bytes: the columns have what
    a record with the same bytes has.
    """
    stamp = logical("long", "timestamp-millis")
    money = logical("bytes", "decimal", precision=5, scale=2)
    inner = avro_record("I", b="bytes", n=Field(type="int", default=3))
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    fields: list[tuple[Any, Any, Any]] = [
        ("bytes", "\u00ff\u0001", b"\xff\x01"),
        ({"type": "fixed", "name": "F", "size": 2}, "\u0080a", b"\x80a"),
        (stamp, 1000, epoch.replace(second=1)),
        (logical("long", "timestamp-micros"), 1, epoch.replace(microsecond=1)),
        (
            logical("long", "local-timestamp-millis"),
            1,
            epoch.replace(microsecond=1000, tzinfo=None),
        ),
        (logical("int", "date"), 1, date(1970, 1, 2)),
        (money, "\u0081", Decimal("-1.27")),
        ([money, "null"], "\u0001", Decimal("0.01")),
        (["null", stamp], None, None),
        ({"type": "array", "items": "bytes"}, ["\u00ff"], [b"\xff"]),
        ({"type": "map", "values": money}, {"k": "\u0001"}, [("k", Decimal("0.01"))]),
        (inner, {"b": "\u00ff"}, {"b": b"\xff", "n": 3}),
        ("double", 1, 1.0),
        ("boolean", True, True),
    ]
    more = {f"f{n}": Field(type=kind, default=given) for n, (kind, given, _) in enumerate(fields)}
    given = Avro(avro_record("R", id="long", **more), registry=registry.url)
    expected = {"id": 1, **{f"f{n}": value for n, (_, _, value) in enumerate(fields)}}
    number = registry.register("x", avro_record("R", id="long"))
    assert decoded(given, [framed(number) + b"\x02"]) == ([expected], {})
    for kind, wrong in (("bytes", "\u0100"), ({"type": "fixed", "name": "F", "size": 2}, "a")):
        schema = avro_record("R", id="long", x=Field(type=kind, default=wrong))
        with raised(SettingRefused, "AVRO_SCHEMA", "value.x"):
            Avro(schema, registry=registry.url).bind()


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        ("float", "1.000000059604644775390625", 1.0),
        ("float", "1.000000059604644775390625000000000000000000001", 1 + 2**-23),
        ("float", "-1e-50", -0.0),
        ("float", str(2**24 + 2), 2.0**24 + 2),
        ("double", str(-(2**53)), -(2.0**53)),
        ("double", "0.1", 0.1),
    ],
)
def test_avro_defaults_are_the_nearest_numbers(
    registry: Registry, kind: str, default: str, value: float
) -> None:
    """Of what the schema's text says, which is rounded once."""
    number = registry.register("x", avro_record("R"))
    text = f'[{{"name": "x", "type": "{kind}", "default": {default}}}]'
    given = Avro(f'{{"type": "record", "name": "R", "fields": {text}}}', registry=registry.url)
    found, reasons = decoded(given, [framed(number)])
    assert (repr(found[0]["x"]), reasons) == (repr(value), {})


@pytest.mark.parametrize(
    ("kind", "default", "data", "value"),
    [
        (["null", "long"], "null", b"\2\2", 1),
        ("string", None, b"\4ab", "ab"),
        ({"type": "array", "items": "int"}, None, b"\2\2\0", [1]),
        ({"type": "array", "items": "string"}, "ab", b"\0", []),
        ("long", "0", b"\2", 1),
        ("long", 1.5, b"\2", 1),
        ("double", 2**53 + 1, struct.pack("<d", 1.5), 1.5),
        ("double", 10**400, struct.pack("<d", 1.5), 1.5),
        ("double", "NaN", struct.pack("<d", 1.5), 1.5),
        ("double", False, struct.pack("<d", 1.5), 1.5),
        ("float", 2**24 + 1, struct.pack("<f", 1.5), 1.5),
        ("float", 1e39, struct.pack("<f", 1.5), 1.5),
        ("int", 2**31, b"\2", 1),
        ("int", True, b"\2", 1),
        (logical("int", "date"), "1970-01-01", b"\2", date(1970, 1, 2)),
        ({"type": "fixed", "name": "F", "size": 2}, "a", b"ab", b"ab"),
    ],
)
def test_avro_defaults_of_another_type_harm_nobody_who_has_the_field(
    registry: Registry, kind: Any, default: Any, data: bytes, value: Any
) -> None:
    """Registries have taken such schemas for years: reading needs no default, unless the field is
    missing. A schema of one's own is refused, since one can correct it.
    """
    wrong, right = avro_record("R", x=Field(type=kind, default=default)), avro_record("R", x=kind)
    lacking = registry.register("in-value", avro_record("R"))
    number = registry.register("in-value", wrong)
    subject = Avro(registry=registry.url, subject="in-value")
    for given in (subject, Avro(right, registry=registry.url)):
        assert decoded(given, [framed(number) + data]) == ([{"x": value}], {})
    assert decoded(Avro(wrong), [data]) == ([{"x": value}], {})
    assert "value.x" in reason(subject, framed(lacking))
    with raised(SettingRefused, "AVRO_SCHEMA", "value.x"):
        Avro(wrong, registry=registry.url).bind()


@pytest.mark.parametrize(("precision", "scale"), [(64, 2), (64, 127), (39, 0), (2, 3), (None, 0)])
def test_avro_decimals_that_spark_lacks_are_refused_by_name(
    registry: Registry, precision: int | None, scale: int
) -> None:
    """Kafka Connect says that a decimal has 64 digits, and of Oracle's that 127 are its scale. A
    schema of one's own reads what fits, or the other columns.
    """

    def with_amount(precision: int | None, scale: int) -> Any:
        kind = logical("bytes", "decimal", precision=precision, scale=scale)
        return avro_record("R", id="int", amount=Field(type=["null", kind], default=None))

    schema = with_amount(precision, scale)
    number = registry.register("in-value", schema)
    for given in (Avro(registry=registry.url, subject="in-value"), Avro(schema)):
        with raised(SettingRefused, "AVRO_TYPE", "value.amount", "decimal") as refused:
            given.bind()
        assert len(str(refused.value).splitlines()) <= 3
    unscaled = (5 * 10**scale).to_bytes(60, "big")
    data = framed(number) + b"\2\2\x78" + unscaled
    for own, expected in (
        (avro_record("R", id="int"), {"id": 1}),
        (with_amount(38, 2), {"id": 1, "amount": Decimal(5)}),
    ):
        assert decoded(Avro(own, registry=registry.url), [data]) == ([expected], {})


def test_dates_of_avro_are_of_the_years_1_to_9999() -> None:
    days = Avro(logical("int", "date"))
    first, last = (date(1, 1, 1) - date(1970, 1, 1)).days, (date.max - date(1970, 1, 1)).days
    made, bad = decoded(days, [zigzag(one) for one in (first, last, first - 1, last + 1)])
    assert (made[:2], sorted(bad)) == ([date.min, date.max], [2, 3])
    micros = Avro(logical("long", "timestamp-micros"))
    end = (datetime.max.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
        microseconds=1
    )
    made, bad = decoded(micros, [zigzag(end), zigzag(end + 1)])
    assert (made[0], list(bad)) == (datetime.max.replace(tzinfo=UTC), [1])
