"""What Spark alone says of text that is not UTF-8, where nothing else is decoded."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from exactum.errors import RowsRefused
from exactum.formats.format import not_utf_8
from exactum.spark.decoding.decode import _not_utf_8, _raised
from exactum.spark.write.failure import carried_by

pytestmark = pytest.mark.spark

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
    for data, reason in zip(WRONG, made, strict=True):
        with pytest.raises(UnicodeDecodeError) as caught:
            data.decode()
        assert reason == not_utf_8(caught.value)


def test_the_refusal_has_the_code_of_a_bad_record(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [("t", 0, 7, b"\xfe")], "topic string, partition int, offset bigint, value binary"
    )
    (text,) = rows.select(_raised(_not_utf_8(f.col("value")))).first() or ()
    error = carried_by(RuntimeError(text))
    assert isinstance(error, RowsRefused)
    assert error.code == "RECORD_BAD"
    assert "t-0 at offset 7 cannot be decoded: it is not valid UTF-8: byte 0 is 0xfe" in str(error)
