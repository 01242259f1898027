"""Fields of JSON by names that are not ASCII, as a worker of Spark meets them: in a process that has
not seen the names before, from a pickle.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from exactum import Json
from exactum.errors import SettingRefused
from exactum.formats.format import arrow_type
from tests.kit.environment import ROOT
from tests.kit.errors import raised

pytestmark = pytest.mark.spark

NAMES = ["é", "ключ", "日本", "🎉", "ü x", "naïve", "e\u0301", "plain"]
WORKER = """
import pickle, sys
from exactum.formats.format import decoded
reader, kind, records = pickle.load(sys.stdin.buffer)
column, reasons = decoded(records, kind, reader())
sys.stdout.buffer.write(pickle.dumps((column.to_pylist(), reasons)))
"""


def in_a_worker(given: Json, records: list[Any]) -> tuple[list[Any], dict[int, str]]:
    bound = given.bind()
    kind = arrow_type(bound.column, "test")
    texts = pa.array([json.dumps(one, ensure_ascii=False).encode() for one in records])
    ended = subprocess.run(
        [sys.executable, "-c", WORKER],
        input=pickle.dumps((bound.reader, kind, texts)),
        capture_output=True,
        check=True,
        cwd=ROOT,
    )
    made: tuple[list[Any], dict[int, str]] = pickle.loads(ended.stdout)
    return made


@pytest.mark.parametrize("null", ["", " not null"])
def test_fields_of_any_name_are_found(spark: SparkSession, null: str) -> None:
    """All that the schema can have inside, in the order of the schema and in another one."""
    ddl = ", ".join(
        f"`{name}` struct<`{name}`: int, `{name}2`: decimal(5,2){null}>{null}" for name in NAMES
    )
    inside = {name: {name: 1, f"{name}2": 1.5} for name in NAMES}
    expected = {name: {name: 1, f"{name}2": Decimal("1.50")} for name in NAMES}
    records = [inside, dict(reversed(inside.items()))]
    assert in_a_worker(Json(ddl), records) == ([expected, expected], {})


def test_fields_inside_of_arrays_and_maps(spark: SparkSession) -> None:
    ddl = "array<struct<`é`: map<string, struct<`ключ`: float>>>>"
    value = [{"é": {"日本": {"ключ": 0.5}}}]
    expected = [{"é": [("日本", {"ключ": 0.5})]}]
    assert in_a_worker(Json(ddl), [value]) == ([expected], {})


def test_a_msgspec_that_does_not_find_a_name_is_refused(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What would be null in silence ends at the call."""
    monkeypatch.setattr(msgspec.json, "encode", lambda fields: json.dumps({"a": None}).encode())
    with raised(SettingRefused, "DECODE_TYPE", "é"):
        Json("a int, `é` int").bind()
