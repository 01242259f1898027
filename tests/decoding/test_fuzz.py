"""Every decoder against bytes that nobody meant to write: mutated real records, and texts built to
be at the edges.

What is checked comes from another reader of the same bytes (Python's json with exact numbers; the
message, parsed with wider fields), never from the code under test. A decoder that ends its process
or does not come back is found by the process around it: the fuzz runs in one of its own, which
prints its seed first.
"""

from __future__ import annotations

import base64
import io
import json
import math
import os
import random
import re
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql import types as t

from exactum import Avro, Function, Json, Protobuf, String
from exactum.formats import record_type
from tests.decoding.test_formats import narrow_and_wide

pytestmark = pytest.mark.slow

RECORDS = 4_000
RECORDS_DEEP = 400_000
BATCH = 50
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
TIMEOUT_S, TIMEOUT_DEEP_S = 120, 1_800
BATCH_S_MAX = 20.0
"""A batch of small records takes milliseconds; this much is a hang."""

KIND = t.StructType(
    [
        t.StructField("id", t.LongType(), False),
        t.StructField("name", t.StringType()),
        t.StructField("small", t.ByteType()),
        t.StructField("price", t.DoubleType()),
        t.StructField("rate", t.FloatType()),
        t.StructField("money", t.DecimalType(10, 2)),
        t.StructField("whole", t.DecimalType(38, 0)),
        t.StructField("fine", t.DecimalType(38, 38)),
        t.StructField("at", t.TimestampType()),
        t.StructField("local", t.TimestampNTZType()),
        t.StructField("day", t.DateType()),
        t.StructField("tags", t.ArrayType(t.DecimalType(5, 1))),
        t.StructField("counts", t.MapType(t.StringType(), t.DecimalType(5, 1))),
        t.StructField(
            "inner",
            t.StructType([t.StructField("n", t.IntegerType()), t.StructField("b", t.BinaryType())]),
        ),
    ]
)


def numbers(dice: random.Random) -> str:
    """A number's JSON, or nearly: long, tiny, huge, with zeros, in every notation."""
    digits = "".join(
        dice.choice("0123456789") for _ in range(dice.choice((1, 1, 2, 5, 17, 39, 80, 400)))
    )
    whole = digits.lstrip("0") or "0"
    fraction = dice.choice(
        (
            "",
            "",
            ".5",
            ".25",
            f".{digits}",
            "." + "0" * dice.choice((1, 37, 38, 39, 80)) + "1",
            ".0",
        )
    )
    size = dice.choice((0, 1, 2, 7, 37, 38, 39, 76, 77, 400, 999_999_999, 10**18, 10**19))
    exponent = dice.choice(("", "", "", f"e{size}", f"E-{size}", f"e+{size}"))
    return dice.choice(("", "-")) + dice.choice((whole, "0", "1", "9" * 38)) + fraction + exponent


def decimals(dice: random.Random) -> str:
    text = numbers(dice)
    junk = (
        "1_0",
        " 1",
        "1 ",
        "١٢",
        "NaN",
        "sNaN1",
        "Infinity",
        "-Infinity",
        "+1",
        ".5",
        "5.",
        "0x1",
        "",
        "1\\u005f0",
        "\\u0031",
    )
    return dice.choice((text, text, f'"{text}"', f'"{dice.choice(junk)}"', "null", "true"))


def times(dice: random.Random) -> str:
    clock = dice.choice(("00:00:00", "23:59:59", "12:30:01", "24:00:00", "23:59:60"))
    fraction = dice.choice(
        (
            "",
            ".5",
            ".999999",
            ".9999999",
            ".123456000",
            ".0000001",
            ".999999999999",
            "\\u002e1234567",
        )
    )
    day = dice.choice(("2026-01-01", "1969-12-31", "0001-01-01", "9999-12-31", "2024-02-30"))
    return f'"{day}{dice.choice("T ")}{clock}{fraction}{dice.choice(("Z", "", "+01:00", "-23:59", "z"))}"'


def json_record(dice: random.Random) -> bytes:
    """A record of ``KIND``, each field with a value at the edges, some under the wrong name."""
    makers: dict[str, Callable[[random.Random], str]] = {
        "id": lambda d: d.choice(("1", "-9223372036854775808", "9223372036854775807", numbers(d))),
        "name": lambda d: d.choice(
            ('"Zoë"', r'"\u005a\ud83d\ude00"', r'"\ud800"', '"a_b 1"', numbers(d))
        ),
        "small": numbers,
        "price": numbers,
        "rate": numbers,
        "money": decimals,
        "whole": decimals,
        "fine": decimals,
        "at": times,
        "local": times,
        "day": lambda d: d.choice(
            ('"2026-01-01"', '"2026-01-01T00:00:00Z"', '"0000-01-01"', "20000")
        ),
        "tags": lambda d: "[" + ", ".join(decimals(d) for _ in range(d.randrange(3))) + "]",
        "counts": lambda d: (
            "{" + ", ".join(f'"{k}": {decimals(d)}' for k in ("a", "b_1")[: d.randrange(3)]) + "}"
        ),
        "inner": lambda d: d.choice(
            ('{"n": 1, "b": "YWJj"}', '{"n": 2147483648}', '{"b": "a"}', "{}")
        ),
    }
    chosen = dice.sample(list(makers), dice.choice((0, 1, 1, 2)))
    fields = ['"id": 1'] if "id" not in chosen else []
    return (
        "{" + ", ".join([*fields, *(f'"{name}": {makers[name](dice)}' for name in chosen)]) + "}"
    ).encode()


def mutated(dice: random.Random, data: bytes) -> bytes:
    made = bytearray(data)
    for _ in range(dice.choice((0, 0, 1, 1, 2, 5))):
        at = dice.randrange(len(made) + 1)
        kind = dice.randrange(5)
        if kind == 0 and at < len(made):
            made[at] ^= 1 << dice.randrange(8)
        elif kind == 1:
            made[at:at] = dice.choice(
                (
                    b"\0",
                    b"\xff" * 9,
                    b"[" * 2_000,
                    b"9" * 400,
                    b"e-999999999",
                    b"_",
                    b'"',
                    b"\x80\x01",
                )
            )
        elif kind == 2:
            del made[at : at + dice.randrange(1, 9)]
        elif kind == 3:
            made[at:at] = made[: dice.randrange(len(made) + 1)]
        else:
            made[at : at + 1] = dice.randbytes(dice.randrange(1, 4))
    return bytes(made)


# ---- what the values must be, by other readers ----


def is_json_of(kind: Any, text: Any, value: Any) -> bool:
    """True if a column's value is exactly what Python's own json reads; numbers as texts of
    ``parse_float=str``.
    """
    if value is None or text is None:
        return value is None and text is None
    if isinstance(kind, t.StructType):
        return all(
            is_json_of(one.dataType, text.get(one.name), value[one.name]) for one in kind.fields
        )
    if isinstance(kind, t.ArrayType):
        return len(text) == len(value) and all(
            map(is_json_of, [kind.elementType] * len(text), text, value)
        )
    if isinstance(kind, t.MapType):
        return text.keys() == dict(value).keys() and all(
            is_json_of(kind.valueType, text[k], v) for k, v in value
        )
    if isinstance(kind, t.DecimalType):
        return is_number(str(text)) and same_number(str(text), value)
    if isinstance(kind, (t.DoubleType, t.FloatType)):
        near = float(str(text))
        return value == (
            near
            if isinstance(kind, t.DoubleType)
            else struct.unpack("f", struct.pack("f", near))[0]
        )
    if isinstance(kind, (t.TimestampType, t.TimestampNTZType)):
        return same_time(text, value)
    if isinstance(kind, t.DateType):
        return str(value) == text
    if isinstance(kind, t.StringType):
        return type(text) is str and value == text
    if isinstance(kind, t.BinaryType):
        return type(text) is str and base64.b64encode(value).decode() == text
    return isinstance(text, Digits) and int(text) == value


def is_number(text: str) -> bool:
    return re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text) is not None


def same_number(text: str, value: Decimal) -> bool:
    """By their digits: no arithmetic with the exponents of the text, which may be huge."""
    mantissa, _, exponent = text.lower().partition("e")
    if not mantissa.strip("+-.0"):
        return value == 0
    size = int(exponent or 0)
    return abs(size) < 1_000 and Fraction(
        mantissa if mantissa[-1] != "." else mantissa[:-1]
    ) * Fraction(10) ** size == Fraction(value)


def same_time(text: str, value: datetime) -> bool:
    """Its nanoseconds are none, and its seconds are those of Python's own reader."""
    clock = re.fullmatch(r"(.{19})(?:\.([0-9]+))?(.*)", text)
    assert clock is not None, text
    fraction = (clock[2] or "").ljust(6, "0")
    read = datetime.fromisoformat(
        clock[1].replace(" ", "T") + "." + fraction[:6] + clock[3].upper()
    )
    return not fraction[6:].strip("0") and read == value


AVRO = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "DONE"]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {
            "name": "money",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        },
        {"name": "token", "type": {"type": "fixed", "name": "T", "size": 3}},
        {"name": "tags", "type": {"type": "array", "items": ["null", "int"]}},
        {"name": "counts", "type": {"type": "map", "values": "double"}},
    ],
}


def avro_record(dice: random.Random) -> bytes:
    record = {
        "id": dice.choice((0, 5, -(2**63), 2**63 - 1)),
        "name": dice.choice((None, "", "Zoë", "x" * 70)),
        "state": dice.choice(("NEW", "DONE")),
        "at": dice.choice((0, -62135596800000000, 253402300799999999, 1767225600000001)),
        "day": dice.choice((0, -719162, 2932896)),
        "money": dice.choice((0, -1, 12345, 10**10 - 1, 10**10, 10**40)),
        "token": dice.randbytes(3),
        "tags": [dice.choice((None, 1, -(2**31))) for _ in range(dice.randrange(3))],
        "counts": {"k" * n: dice.choice((0.0, -1.5, math.inf)) for n in range(dice.randrange(3))},
    }
    money = record["money"]
    assert isinstance(money, int)
    record["money"] = money.to_bytes(money.bit_length() // 8 + 1, "big", signed=True)
    plain = [{**one, "type": "long"} if one["name"] == "at" else one for one in AVRO["fields"]]  # type: ignore[index]
    plain[4], plain[5] = {"name": "day", "type": "int"}, {"name": "money", "type": "bytes"}
    out = io.BytesIO()
    fastavro.schemaless_writer(
        out, fastavro.parse_schema({**AVRO, "fields": plain}, named_schemas={}), record
    )
    return out.getvalue()


class AvroBytes:
    """Reads the bytes of one Avro value by the letter of the specification; any error means that
    they are none.
    """

    def __init__(self, data: bytes) -> None:
        self.data, self.place, self.beyond = data, 0, False

    def long(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        self.beyond |= value >= 2**64 or shift > 70
        return (value >> 1) ^ -(value & 1)

    def take(self, count: int) -> bytes:
        found = self.data[self.place : self.place + count]
        assert count >= 0 and len(found) == count, "cut off"
        self.place += count
        return found

    def blocks(self) -> Iterator[None]:
        while count := self.long():
            if count < 0:
                self.beyond |= count == -(2**63)
                count = -count
                self.long()
            for _ in range(count):
                yield

    def value(self, schema: Any) -> Any:
        if isinstance(schema, list):
            return self.value(schema[self.index(len(schema))])
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind == "record":
            return {one["name"]: self.value(one["type"]) for one in schema["fields"]}
        if kind == "array":
            return [self.value(schema["items"]) for _ in self.blocks()]
        if kind == "map":
            return {
                self.take(self.long()).decode(): self.value(schema["values"]) for _ in self.blocks()
            }
        if kind == "enum":
            return schema["symbols"][self.index(len(schema["symbols"]))]
        if kind == "fixed":
            return self.take(schema["size"])
        if kind in ("bytes", "string"):
            data = self.take(self.long())
            return self.logical(schema, data if kind == "bytes" else data.decode())
        if kind == "double":
            return struct.unpack("<d", self.take(8))[0]
        return None if kind == "null" else self.logical(schema, self.long())

    def index(self, count: int) -> int:
        found = self.long()
        assert 0 <= found < count, "no such member"
        return found

    def logical(self, schema: Any, value: Any) -> Any:
        name = schema.get("logicalType") if isinstance(schema, dict) else None
        if name == "decimal":
            return Fraction(int.from_bytes(value, "big", signed=True), 100)
        if name == "date":
            return date(1970, 1, 1) + timedelta(days=value)
        return EPOCH + timedelta(microseconds=value) if name else value


def is_avro_of(data: bytes, value: Any) -> bool:
    reader = AvroBytes(data)
    try:
        read = reader.value(AVRO)
    except (AssertionError, ValueError, OverflowError, struct.error):
        if not reader.beyond:
            raise
    if (
        reader.beyond
    ):  # a number of more than 64 bits, of which fastavro keeps 64; so with the size of a block
        return True
    value = {**value, "money": Fraction(value["money"]), "counts": dict(value["counts"])}
    return reader.place == len(data) and repr(read) == repr(value).replace(
        repr(value["at"]), repr(read["at"])
    )


def is_proto_of(data: bytes, value: Any) -> bool:
    """As the same message with fields of 64 bits reads it."""
    read = narrow_and_wide()[1].FromString(data)
    one = read.one if read.HasField("one") else None
    if (one is None) != (value["one"] is None):
        return False
    for name in ("f1", "f2", "f3") if one is not None else ():
        if (getattr(one, name) if one.HasField(name) else None) != value["one"][name]:
            return False
    return one is None or list(one.many) == value["one"]["many"]


def proto_record(dice: random.Random) -> bytes:
    wide = narrow_and_wide()[1]
    at_edges = (0, 1, -1, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32, 2**63 - 1, -(2**63))
    number = dice.choice
    one = {
        "f1": number(at_edges),
        "f2": abs(number(at_edges)) & (2**64 - 1),
        "f3": number(at_edges),
    }
    chosen = {name: one[name] for name in dice.sample(sorted(one), dice.randrange(3))}
    more = {
        "many": [number(at_edges) for _ in range(dice.choice((0, 0, 2)))],
        "states": [0] * dice.randrange(2),
    }
    return wide(
        one={**chosen, **more, "state": number((0, 0, 7))}, at=number(at_edges)
    ).SerializeToString()


def is_text_of(data: bytes, value: Any) -> bool:
    return data.decode() == value


def is_json_record_of(data: bytes, value: Any) -> bool:
    def refuse(text: str) -> None:
        raise ValueError(text)

    read = json.loads(data.decode(), parse_float=Digits, parse_int=Digits, parse_constant=refuse)
    return is_json_of(KIND, read, value)


class Digits(str):
    """A number of a JSON text, as it is written."""


def formats() -> dict[
    str, tuple[Any, Callable[[random.Random], bytes], Callable[[bytes, Any], bool]]
]:
    """Each format with what makes its records, and another reader that says whether a value is a
    record's.
    """
    return {
        "Json": (Json(KIND), json_record, is_json_record_of),
        "Avro": (Avro(AVRO), avro_record, is_avro_of),
        "Protobuf": (Protobuf(narrow_and_wide()[0]), proto_record, is_proto_of),
        "String": (
            String(),
            lambda dice: dice.choice(("", "Zoë", "\U0001f600" * 9)).encode(),
            is_text_of,
        ),
        "Function": (
            Function(lambda data: Decimal(data.decode()), t.DecimalType(10, 2)),
            lambda dice: numbers(dice).encode(),
            lambda data, value: same_number(data.decode().strip().replace("_", ""), value),
        ),
    }


def python_value(one: Any) -> Any:
    """None for a time that Python's calendar does not have, with its offset taken off:
    0001-01-01T00:00:00+01:00.
    """
    try:
        return one.as_py()
    except OverflowError:
        return None


def fuzz(seed: int, records: int) -> None:
    """Decodes ``records`` of each format; ends at the first wrong value, with what is needed to
    see it again.
    """
    sys.setrecursionlimit(20_000)
    for name, (given, make, is_right) in formats().items():
        dice = random.Random(f"{seed} {name}")
        bound = given.bind()
        decoder = bound.codec.open(
            record_type.arrow_type(record_type.as_nullable(bound.kind), name)
        )
        good = 0
        for _ in range(records // BATCH):
            batch = [mutated(dice, make(dice)) for _ in range(BATCH)]
            Path("batch").write_text(f"{name} {batch!r}")
            began = time.monotonic()
            column, reasons = decoder.decode(pa.array([*batch, None], pa.binary()))
            assert time.monotonic() - began < BATCH_S_MAX, f"{name}: a batch took too long"
            column.validate(full=True)
            for row, data in enumerate(batch):
                assert (row in reasons) != column[row].is_valid, (
                    f"{name}: {data!r} has no value and no reason, or both"
                )
                if row not in reasons:
                    good += 1
                    value = python_value(column[row])
                    assert value is None or is_right(data, value), (
                        f"{name}: {data!r} became {value!r}"
                    )
        assert good > records // 20, f"{name}: only {good} records are good"
        print(f"{name}: {good} of {records} are good")


def run(seed: int, records: int, timeout_s: float, place: Path) -> None:
    """The fuzz in a process of its own, so that one that ends or hangs is a failure with its
    records.
    """
    print(f"seed {seed}")
    again = f"python {__file__} {seed} {records}"
    try:
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", __file__, str(seed), str(records)],
            cwd=place,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.fail(f"{again} hangs on {(place / 'batch').read_text()}")
    print(done.stdout)
    if done.returncode:
        pytest.fail(
            f"{again}: exit "
            f"{done.returncode}\n{done.stderr[-4_000:]}\n{(place / 'batch').read_text()[:9_000]}"
        )


def test_no_bytes_end_a_decoder_or_become_another_value(tmp_path: Path) -> None:
    """Whatever the bytes, a record has exactly its value or a reason; the process lives, and
    comes back.
    """
    run(random.SystemRandom().randrange(2**32), RECORDS, TIMEOUT_S, tmp_path)


@pytest.mark.deep
def test_no_bytes_end_a_decoder_at_length(tmp_path: Path) -> None:
    """The same with many more records."""
    run(random.SystemRandom().randrange(2**32), RECORDS_DEEP, TIMEOUT_DEEP_S, tmp_path)


if __name__ == "__main__":
    fuzz(int(sys.argv[1]), int(sys.argv[2]))
