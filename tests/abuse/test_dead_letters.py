"""A dead letter of any row whatever: made without an error, read by any parser of JSON, and
nothing of it is lost.
"""

from __future__ import annotations

import base64
import json
import os
import random
import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings

from exactum.protocol.sink import DEAD_LETTER_COLUMNS, Rejection
from exactum.spark.write.dead_letter import dead_letters
from tests.kit.abuse.file_target import Digits, never, once
from tests.kit.abuse.frames import ALL, Frame, bulk, frames, single
from tests.kit.abuse.kinds import MICROS_PER_DAY, WHOLE, Kind, Raw, from_arrow, has_bad_text, same

COLUMNS = tuple(name for name, _ in DEAD_LETTER_COLUMNS)
SEED = int(os.environ.get("EXACTUM_SEED", random.randrange(1 << 32)))


def days_of(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01, by counting: leap years before the year, then the days of its
    months.
    """
    before = year - 1
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    lengths = [31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    return (
        365 * before
        + before // 4
        - before // 100
        + before // 400
        + sum(lengths[: month - 1])
        + day
        - 719_163
    )


def instant(text: str) -> int:
    found = re.fullmatch(
        r"([+-]?\d{4,})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)\.(\d{6})(Z|[+-]\d\d:00)?", text
    )
    assert found, text
    year, month, day, hour, minute, second = (int(n) for n in found.groups()[:6])
    offset = 0 if found[8] in (None, "Z") else int(found[8][:3])
    seconds = (hour - offset) * 3600 + minute * 60 + second
    return days_of(year, month, day) * MICROS_PER_DAY + seconds * 1_000_000 + int(found[7])


def raw_of(kind: Kind, found: Any) -> Raw:
    """The raw value that a parsed value of JSON names."""
    if found is None:
        return None
    if kind.name == "array":
        return [raw_of(kind.of[0], v) for v in found]
    if kind.name == "map":
        return [(raw_of(kind.of[0], k), raw_of(kind.of[1], v)) for k, v in found.items()]
    if kind.name == "struct":
        return tuple(raw_of(k, found.get(n)) for n, k in zip(kind.fields, kind.of, strict=True))
    if kind.is_text:
        return base64.b64decode(found["base64"]) if isinstance(found, dict) else found.encode()
    if kind.name in WHOLE or kind.name == "interval day to second":
        return int(found)
    if kind.name == "boolean":
        return found
    if kind.name in ("float", "double"):
        return single(float(found)) if kind.name == "float" else float(found)
    if kind.name == "decimal":
        return Decimal(found)
    if kind.name == "binary":
        return base64.b64decode(found, validate=True)
    if kind.name == "date":
        year, month, day = re.fullmatch(r"([+-]?\d+)-(\d\d)-(\d\d)", found).groups()  # type: ignore[union-attr]
        return days_of(int(year), int(month), int(day))
    if kind.name == "time(6)":
        hour, minute, second = found.split(":")
        return (int(hour) * 3600 + int(minute) * 60) * 10**9 + int(Decimal(second) * 10**9)
    return instant(found)


def has_bad_key(kind: Kind, value: Raw) -> bool:
    """Whether the key of a map, at any depth, is no UTF-8: it is shown, as far as JSON has keys."""
    if value is None or not kind.of:
        return False
    if kind.name == "map" and any(has_bad_text(kind.of[0], key) for key, _ in value):
        return True
    inner = (
        [(k, v) for pair in value for k, v in zip(kind.of, pair, strict=True)]
        if kind.name == "map"
        else []
    )
    inner += [(kind.of[0], v) for v in value] if kind.name == "array" else []
    inner += list(zip(kind.of, value, strict=True)) if kind.name == "struct" else []
    return any(has_bad_key(k, v) for k, v in inner)


def check(frame: Frame) -> None:
    batch = frame.batch("America/New_York")
    rejection = Rejection(batch, tuple(f"reason {n}" for n in range(frame.count)))
    dead_letters(rejection, "sink", ("key", "value", "headers")).validate(full=True)
    letters = dead_letters(rejection, "sink", COLUMNS)
    letters.validate(full=True)
    assert letters.num_rows == frame.count
    for number, text in enumerate(letters.column(COLUMNS.index("row_json")).to_pylist()):
        found = json.loads(
            text, parse_float=Digits, parse_int=Digits, parse_constant=never, object_pairs_hook=once
        )
        assert found.keys() <= set(frame.names)
        for name, kind, value in zip(frame.names, frame.kinds, frame.row(number), strict=True):
            if not has_bad_key(kind, value):
                told = raw_of(kind, found.get(name))
                assert same(kind, told, value), (
                    f"column {name!r} ({kind}): {told!r} instead of {value!r}"
                )
    for name in ("key", "value"):
        if name in frame.names and frame.kinds[frame.names.index(name)].name in (
            "string",
            "binary",
        ):
            kept = from_arrow(Kind("binary"), letters.column(COLUMNS.index(name)))
            assert kept == frame.values[frame.names.index(name)]


@settings(max_examples=60)
@given(frames(ALL, duplicates=False, columns_min=1))
def test_any_row_makes_a_dead_letter(frame: Frame) -> None:
    """Every type, every odd value, every name: the row's JSON has it all, bytes and what is no
    number included.
    """
    check(frame)


@pytest.mark.parametrize("kind", ALL, ids=str)
def test_every_type_is_in_the_row(kind: Kind) -> None:
    """Two hundred values of each type, half of them odd, and a key and a value of Kafka's beside
    them.
    """
    print(f"EXACTUM_SEED={SEED}")
    names, kinds = ["it", "key", "value"], [kind, Kind("binary"), Kind("string")]
    check(bulk(names, kinds, 200, random.Random(SEED), edge_share=0.5))
