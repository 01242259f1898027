"""Keys of a map that are one key in the column, signs of zeros, and times by an offset."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import SparkSession

from exactum import Function, Json
from exactum.errors import SettingRefused
from tests.kit.decoding.format_cases import UTC, decoded, reason
from tests.kit.errors import raised

pytestmark = pytest.mark.spark

FOLD = datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
ONE_KEY: list[tuple[str, list[tuple[Any, int]], Any]] = [
    ("decimal(5,2)", [(Decimal(1), 1), (Decimal("1.0"), 2)], Decimal(1)),
    ("decimal(5,2)", [(Decimal(0), 1), (Decimal("-0"), 2)], Decimal(0)),
    ("double", [(0.0, 1), (-0.0, 2)], 0.0),
    ("timestamp", [(FOLD, 1), (datetime(2024, 10, 27, 0, 30, tzinfo=UTC), 2)], FOLD),
]


@pytest.mark.parametrize(("key", "pairs", "expected"), ONE_KEY)
def test_the_last_of_two_equal_keys_counts(
    spark: SparkSession, key: str, pairs: list[tuple[Any, int]], expected: Any
) -> None:
    given = Function(lambda _: dict(pairs), f"map<{key}, int>")
    (made,) = decoded(given, [b""])[0]
    assert [(one - expected, other) for one, other in made] == [(expected - expected, 2)]


def test_the_last_of_two_equal_decimals_counts_in_json(spark: SparkSession) -> None:
    given = Json("map<decimal(5,2), int>")
    records = [b'{"1": 1, "1.0": 2}', b'{"0": 1, "-0": 2}']
    expected = [[(Decimal("1.00"), 2)], [(Decimal("0.00"), 2)]]
    assert decoded(given, records) == (expected, {})


def test_minus_zero_keeps_its_sign(spark: SparkSession) -> None:
    """With a point or an exponent; without one it is an integer, which has none."""
    for kind in ("double", "float"):
        made, bad = decoded(Json(kind), [b"-0.0", b"-0e0", b"-0.5", b"0", b"-0"])
        assert (list(map(repr, made)), bad) == (["-0.0", "-0.0", "-0.5", "0.0", "0.0"], {})


def test_microseconds_of_an_offset_count(spark: SparkSession) -> None:
    offset = timezone(timedelta(seconds=1, microseconds=5))
    given = Function(lambda _: datetime(2024, 1, 1, tzinfo=offset), "timestamp")
    expected = datetime(2023, 12, 31, 23, 59, 58, 999995, tzinfo=UTC)
    assert decoded(given, [b""]) == ([expected], {})
    before = Function(lambda _: datetime(1, 1, 1, tzinfo=offset), "timestamp")
    assert "outside of the years 1 to 9999" in reason(before, b"")


@pytest.mark.parametrize("kind", ["struct<a: int>", "array<int>", "map<string, int>"])
def test_keys_with_others_inside_are_refused_at_the_call(spark: SparkSession, kind: str) -> None:
    for given in (Json(f"map<{kind}, int>"), Function(eval, f"a map<{kind}, int>")):
        with raised(SettingRefused, "DECODE_TYPE", "map"):
            given.bind()


def test_booleans_are_keys_of_a_function_and_not_of_json(spark: SparkSession) -> None:
    with raised(SettingRefused, "DECODE_TYPE", "boolean"):
        Json("map<boolean, int>").bind()
    given = Function(lambda _: {True: 1}, "map<boolean, int>")
    assert decoded(given, [b""]) == ([[(True, 1)]], {})
