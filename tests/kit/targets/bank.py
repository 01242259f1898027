"""The bank's query: transfers in from Kafka; two postings for each into Kafka, PostgreSQL, MariaDB,
files and an HTTP server without transactions.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

import exactum
from tests.kit.crash.queries import Query, Spec
from tests.kit.crash.queries import records as read
from tests.kit.targets.api import ApiSink

POSTINGS = (
    "transform(array(1, -1), s -> named_struct('account', if(s > 0, t.target, t.source), "
    "'amount', s * t.amount))"
)


def records(batch: DataFrame) -> DataFrame:
    return batch.selectExpr("account AS key", "to_json(struct(id, account, amount)) AS value")


def bank(spark: SparkSession, spec: Spec) -> Query:
    """Each transfer takes from one account and gives to the other. ``postgres``, ``mysql`` and
    ``api`` of the spec are URLs, ``files`` a folder.
    """
    transfers = read(spark, spec).selectExpr(
        "from_json(CAST(value AS STRING), 'id long, source string, target string, amount long') "
        "AS t"
    )
    exploded = transfers.selectExpr("t.id AS id", f"explode({POSTINGS}) AS posting")
    postings = exploded.selectExpr("id", "posting.account AS account", "posting.amount AS amount")
    (topic,) = spec["outputs"]
    sinks = [
        exactum.KafkaSink(topic, bootstrap_servers=spec["bootstrap_servers"], rows=records),
        exactum.PostgresSink(spec["postgres"], table="postings"),
        exactum.MySQLSink(spec["mysql"], table="postings"),
        exactum.FileSink(spec["files"], partition_by=["account"]),
        ApiSink(spec["api"], rows_per_send_max=20, tries_max=3, backoff_ms=50),
    ]
    return Query(postings, sinks)
