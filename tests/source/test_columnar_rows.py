"""What a query does with its records, headers among them, and with its batch before it is written:
the same rows and types in each way of reading.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pyspark.sql import functions as f

from tests.kit.kafka.broker import Broker
from tests.kit.source.columnar_ways import (
    PACKED,
    ROWS,
    WAYS,
    Headers,
    give,
    raw_rows,
    run,
    schemas,
)
from tests.kit.source.in_columns import in_columns
from tests.kit.spark.torn_stream import configured

SEVERAL: Headers = [("a", b"1"), ("a", None), ("", b""), ("é€", b"\x00\xff")]
MIXED: Sequence[Headers] = (
    [],
    [("a", b"1")],
    SEVERAL,
    [("n" * 300, b"v" * 300)] * 20,
    [("null", None)],
)
HEADERS: dict[str, Sequence[Headers]] = {
    "headers with every record": [SEVERAL],
    "headers with none": [[]],
    "headers of nulls alone": [MIXED[4], []],
}
"""Where it is not ``MIXED``, by the case."""


def persisted(batch: Any) -> Any:
    batch.persist()
    batch.count()
    return batch


def looked_at(batch: Any) -> Any:
    batch.isEmpty()
    batch.head(3)
    batch.count()
    return batch


def computed(batch: Any) -> Any:
    return batch.selectExpr(
        "md5(value) m",
        "length(value) l",
        "concat(key, value) c",
        "coalesce(value, key, cast('x' as binary)) o",
        "partition",
        "offset",
        "timestamp + interval 1 day as d",
        "date_format(timestamp, 'yyyy-MM-dd HH:mm:ss.SSS') t",
        "timestampType is null as n",
        "struct(key, value) s",
        "array(key, value) a",
        "map('k', value) p",
        "row_number() over (partition by partition order by offset) w",
    )


def of_a_view(batch: Any) -> Any:
    batch.createOrReplaceTempView("some_batch")
    return batch.sparkSession.sql("select value as `a b`, key, offset, partition from some_batch")


def joined_with_itself(batch: Any) -> Any:
    same = f.expr("a.partition = b.partition and a.offset = b.offset")
    both = batch.alias("a").join(batch.alias("b"), same)
    return both.select("a.key", "b.value", "a.topic", "a.partition", "a.offset", "b.timestamp")


OF_THE_BATCH: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "looked at": (looked_at, True),
    "a view": (of_a_view, False),
    "odd names": (
        lambda b: b.selectExpr("value ` `", "key ` x  y `", 'topic `ü€."`', "partition", "offset"),
        True,
    ),
    "persisted": (persisted, False),
    "computed": (computed, False),
    "a name of two lines": (lambda b: b.selectExpr("value `a\nb`", "partition", "offset"), False),
    "a field's metadata": (lambda b: b.withMetadata("value", {"a": "b"}), False),
    "a few": (lambda b: b.orderBy("partition", "offset").limit(5), False),
    "repartitioned": (lambda b: b.repartition(3), False),
    "one task": (lambda b: b.coalesce(1), False),
    "local checkpoint": (lambda b: b.localCheckpoint(), False),
    "twice": (lambda b: b.union(b), False),
    "joined with itself": (joined_with_itself, False),
    "distinct": (lambda b: b.distinct(), False),
    "sampled": (lambda b: b.sample(1.0), False),
    "collected": (lambda b: b.sparkSession.createDataFrame(b.collect(), b.schema), False),
    "Python rows": (lambda b: b.rdd.toDF(b.schema), False),
    "pandas": (
        lambda b: b.withColumn("value", f.pandas_udf(lambda s: s, "binary")("value")),
        False,
    ),
}
"""By ``rows=``, and whether the records may still come packed."""
OF_HEADERS = [
    "headers IS NULL AS without",
    "size(headers) AS count",
    "try_element_at(headers, -1).value AS last",
    "transform(headers, h -> upper(h.key)) AS names",
    "filter(headers, h -> h.value IS NULL) AS nulls",
    "map_from_entries(array_distinct(slice(headers, 1, 1))) AS first",
    "array_sort(headers) AS sorted",
    "named_struct('all', headers) AS struct",
]
OF_THE_QUERY: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "all": (lambda frame: frame, True),
    **dict.fromkeys(HEADERS, (lambda frame: frame, True)),
    "expressions of headers": (
        lambda frame: frame.selectExpr("partition", "offset", *OF_HEADERS),
        False,
    ),
    "some": (lambda frame: frame.select("offset", "partition", "value"), True),
    "renamed": (
        lambda frame: frame.selectExpr("offset", "partition", "value AS key", "key AS `v.1`"),
        True,
    ),
    "as text": (
        lambda frame: frame.selectExpr(
            "key", "CAST(value AS STRING) AS text", "value", "offset", "partition"
        ),
        True,
    ),
    "a column twice": (
        lambda frame: frame.select("*", f.col("value").alias("again")).drop("topic", "key"),
        True,
    ),
    "by layers": (
        lambda frame: frame.alias("a").select("a.*").withColumnRenamed("key", "k"),
        True,
    ),
    "a filter": (lambda frame: frame.where("offset >= 0"), False),
    "an expression": (lambda frame: frame.withColumn("topic", f.upper("topic")), False),
    "a number as text": (
        lambda frame: frame.withColumn("key", f.col("offset").cast("string")),
        False,
    ),
    "text as bytes": (lambda frame: frame.withColumn("key", f.col("topic").cast("binary")), False),
    "Python over Arrow": (
        lambda frame: frame.mapInArrow(lambda batches: batches, frame.schema),
        False,
    ),
    "a function of Arrow arrays": (
        lambda frame: frame.withColumn("key", f.arrow_udf(lambda array: array, "binary")("value")),
        False,
    ),
    "a function of Python": (  # with all columns: Spark 4.2.0 would wait for ever
        lambda frame: frame.withColumn("key", f.udf(lambda key: key, "binary")("key")),
        False,
    ),
    "metadata of a field": (lambda frame: frame.withMetadata("value", {"of": "whom"}), False),
    "a union": (lambda frame: frame.union(frame.where("offset < 0")), False),
}
CASES = {**OF_THE_BATCH, **OF_THE_QUERY}
ONE_OF_A_KIND = {
    *("looked at", "a view", "persisted", "computed", "a few", "joined with itself"),
    *("expressions of headers", "a function of Python"),
}
SETTINGS = {
    "as they are": {},
    "nothing compiled": {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    },
    "odd": {
        "spark.sql.columnVector.offheap.enabled": "true",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "Asia/Kathmandu",
        "spark.sql.adaptive.forceApply": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "3",
    },
}
ALWAYS = {("all", "as they are"), ("a function of Python", "as they are")}
PARAMETERS = [
    pytest.param(
        case,
        name,
        marks=() if (case, name) in ALWAYS else pytest.mark.deep,
    )
    for name in SETTINGS
    for case in (CASES if name == "as they are" else sorted(ONE_OF_A_KIND))
]


@pytest.mark.parametrize(("case", "settings"), PARAMETERS)
def test_the_same_rows(
    make_stream: Any, broker: Broker, packed_jobs: list[Any], case: str, settings: str
) -> None:
    name = broker.topic("rows", partitions=2)
    give(broker, name, 20, 2, headers=HEADERS.get(case, MIXED))
    rows, packs = CASES[case]
    found = []
    # Where nothing is packed, those are one way.
    for way in WAYS if packs else (ROWS, PACKED):
        packed_jobs.clear()
        stream = make_stream()
        with configured(stream.spark, {**SETTINGS[settings], **WAYS[way]}):
            frame = stream.read(name, includeHeaders=True)
            frame = frame if way == ROWS else in_columns(frame)
            of_the_query = case in OF_THE_QUERY
            given = {} if of_the_query else {"rows": rows}
            assert run(stream, rows(frame) if of_the_query else frame, **given) is None
        found.append((raw_rows(stream.out), schemas(stream)))
        if way != PACKED or not packs or settings == "as they are":
            assert bool(packed_jobs) == (way == PACKED and packs)
    assert found[0][0]
    assert all(one == found[0] for one in found)
