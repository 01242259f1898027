"""The guides of the targets: the first program of each page runs, word by word but for addresses,
folders and the names of topics and tables.
"""

from __future__ import annotations

import itertools
import json
import logging
import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

import exactum
from exactum.local import LocalKafka
from tests.conftest import TopicFactory
from tests.kit.docs.code import block
from tests.kit.docs.program import ran, replaced
from tests.kit.environment import ROOT
from tests.kit.kafka.broker import Broker
from tests.kit.kafka.transactions import keys_and_values
from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.serving import serving
from tests.kit.spark.files import InputFiles, stream_of
from tests.kit.targets.api import Api

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark", "settings_put_back")]

ROWS = [(1, "a", Decimal("1.25")), (2, "b", Decimal("2.00")), (3, "a", Decimal("0.50"))]
_numbers = itertools.count(1)


def run(
    page: str, kafka: LocalKafka, topic: TopicFactory, folder: Path, names: Mapping[str, str]
) -> None:
    """Run the page's first program over ``ROWS`` until it has written them."""
    orders = topic("orders", partitions=1)
    rows = ({"id": n, "customer": customer, "amount": float(a)} for n, customer, a in ROWS)
    Broker(kafka).produce(orders, *map(json.dumps, rows))
    program = block(ROOT / "docs" / page, 'read_kafka(spark, "orders"')
    (kept,) = re.findall(r'checkpoint=("/data/[\w-]+")', program)
    ours = {
        'read_kafka(spark, "orders"': f'read_kafka(spark, "{orders}"',
        "localhost:9092": kafka.bootstrap_servers,
        f"checkpoint={kept}": f'checkpoint="{folder / "checkpoint"}"',
        "query.awaitTermination()": "",
        **names,
    }
    ran(replaced(program, ours))


def test_readme(kafka: LocalKafka, topic: TopicFactory, tmp_path: Path) -> None:
    shouted = topic("shouted", partitions=1)
    run("../README.md", kafka, topic, tmp_path, {'"shouted"': f'"{shouted}"'})
    found = [json.loads(value) for _, value in keys_and_values(kafka.bootstrap_servers, shouted)]
    assert [(row["ID"], row["CUSTOMER"].lower()) for row in found] == [row[:2] for row in ROWS]


FRAGMENTS = {
    ("cluster.md", "decision_log="): {'"/shared/decisions"': "folder"},
    ("databases.md", "mode="): {},
    ("files.md", "s3://"): {},
    ("kafka.md", "localhost:9092"): {},
    ("metrics.md", "serve_metrics("): {"port=9404": "port=0"},
    ("running.md", "JsonFormatter("): {},
    ("source.md", "readStream"): {'"localhost:9092"': "servers", '"orders"': "topic"},
    ("targets.md", "Rows("): {
        'write.start(totals.writeStream, checkpoint="/data/totals")': "write"
    },
    ("targets.md", "staging="): {},
}
"""Further programs of the pages, by page and what stands in them alone, and what is replaced."""


@pytest.mark.parametrize(("page", "text"), sorted(FRAGMENTS))
def test_a_fragment(
    page: str,
    text: str,
    kafka: LocalKafka,
    spark: SparkSession,
    topic: TopicFactory,
    tmp_path: Path,
) -> None:
    """It makes what it says, without a word of complaint; sinks do not connect before a query."""
    fragment = replaced(block(ROOT / "docs" / page, text), FRAGMENTS[page, text])
    names: dict[str, Any] = {
        "exactum": exactum,
        "logging": logging,
        "spark": spark,
        "servers": kafka.bootstrap_servers,
        "brokers": kafka.bootstrap_servers,
        "topic": topic("orders", partitions=1),
        "folder": str(tmp_path / "decisions"),
        "sink": exactum.FileSink(str(tmp_path / "lake")),
        "totals": spark.readStream.format("rate").load(),
    }
    before = list(logging.getLogger("exactum").handlers)
    try:
        exec(fragment, names)
        if page == "source.md":
            assert names["orders"].isStreaming
    finally:
        logging.getLogger("exactum").handlers[:] = before


def test_postgres(
    kafka: LocalKafka, postgres: LocalPostgres, topic: TopicFactory, tmp_path: Path
) -> None:
    table = f"guide_{next(_numbers)}"
    names = {
        "postgresql://shop:secret@localhost/shop": postgres.url,
        'table="orders"': f'table="{table}"',
    }
    run("databases.md", kafka, topic, tmp_path, names)
    with psycopg.connect(postgres.url) as connection:
        found = connection.execute(f'SELECT id, customer, amount FROM "{table}" ORDER BY id')
        assert found.fetchall() == ROWS


def test_batch(
    kafka: LocalKafka,
    postgres: LocalPostgres,
    spark: SparkSession,
    topic: TopicFactory,
    tmp_path: Path,
) -> None:
    """The program of batch.md, twice."""
    loaded, table = topic("loaded", partitions=1), f"guide_{next(_numbers)}"
    names = {
        "postgresql://shop:secret@localhost/shop": postgres.url,
        'table="orders"': f'table="{table}"',
        '"orders-loaded"': f'"{loaded}"',
        "localhost:9092": kafka.bootstrap_servers,
        "/data/loads": str(tmp_path / "loads"),
        "/data/orders-2026-11-28": str(tmp_path / "orders"),
    }
    program = block(ROOT / "docs" / "batch.md", "once.write(")
    orders = spark.createDataFrame([("a", "1"), ("b", "2")], "key string, value string")
    orders.write.parquet(str(tmp_path / "orders"))
    for written in (True, False):
        found: dict[str, Any] = {"exactum": exactum, "spark": spark}
        exec(replaced(program, names), found)
        assert found["loaded"].written is written
    with psycopg.connect(postgres.url) as connection:
        rows = connection.execute(f'SELECT key, value FROM "{table}" ORDER BY key').fetchall()
    assert rows == [("a", "1"), ("b", "2")]
    assert sorted(keys_and_values(kafka.bootstrap_servers, loaded)) == [
        (None, b'{"key":"a","value":"1"}'),
        (None, b'{"key":"b","value":"2"}'),
    ]


def test_mysql(
    kafka: LocalKafka, mariadb: LocalMariaDB, topic: TopicFactory, tmp_path: Path
) -> None:
    """The same program, with the other sink of the page."""
    table = f"guide_{next(_numbers)}"
    program = block(ROOT / "docs" / "databases.md", "read_kafka(")
    other = block(ROOT / "docs" / "databases.md", "MySQLSink(")
    (first,) = (line for line in program.splitlines() if line.startswith("sink = "))
    ours = {
        "mysql://shop:secret@localhost/shop": mariadb.url,
        'table="orders"': f'table="{table}"',
    }
    run("databases.md", kafka, topic, tmp_path, {first: replaced(other, ours)})
    assert mariadb.ask(f"SELECT id, customer, amount FROM `{table}` ORDER BY id") == ROWS


def test_files(kafka: LocalKafka, spark: SparkSession, topic: TopicFactory, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    run("files.md", kafka, topic, tmp_path, {"/lake/orders": str(lake)})
    found = spark.read.parquet(str(lake)).select("id", "customer", "amount").orderBy("id")
    assert [tuple(row) for row in found.collect()] == ROWS
    assert list(lake.glob("customer=a/part-0000000000-*.parquet"))


def test_delta(kafka: LocalKafka, topic: TopicFactory, tmp_path: Path) -> None:
    """And the program that tidies up."""
    lake = str(tmp_path / "lake")
    run("delta.md", kafka, topic, tmp_path, {"/lake/orders": lake})
    found: dict[str, Any] = {}
    exec(replaced(block(ROOT / "docs" / "delta.md", "compact("), {"/lake/orders": lake}), found)
    rows = found["table"].to_pyarrow_table(columns=["id", "customer", "amount"]).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == ROWS


def test_iceberg(kafka: LocalKafka, topic: TopicFactory, tmp_path: Path) -> None:
    """And the program that tidies up."""
    lake = {"/lake": str(tmp_path)}
    run("iceberg.md", kafka, topic, tmp_path, lake)
    page = ROOT / "docs" / "iceberg.md"
    program = replaced(block(page, "read_kafka("), lake)
    (settings,) = re.findall(r"^LAKE = (.*)$", program, re.MULTILINE)
    found: dict[str, Any] = {"LAKE": json.loads(settings)}
    exec(block(page, "expire_snapshots("), found)
    rows = found["table"].scan().to_arrow().select(["id", "customer", "amount"]).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == ROWS


def test_own_target(kafka: LocalKafka, topic: TopicFactory, tmp_path: Path) -> None:
    with serving(Api()) as api:
        names = {"http://localhost:8080/orders": f"{api.url}/orders"}
        run("own-target.md", kafka, topic, tmp_path, names)
    ((key, body),) = api.received
    assert key
    assert [(row["id"], row["customer"], Decimal(row["amount"])) for row in body] == ROWS


@pytest.mark.deep
def test_control(
    kafka: LocalKafka, spark: SparkSession, topic: TopicFactory, tmp_path: Path
) -> None:
    """Over payments of the reader's own: one is over its account's rule, none over what holds
    without one.
    """
    limits, out = topic("limits", partitions=1), topic("suspicious", partitions=1)
    Broker(kafka).produce(limits, json.dumps({"max": 10}), key="a")
    files = InputFiles(tmp_path / "in")
    files.give({"account": who, "amount": n} for who, n in (("a", 9), ("a", 11), ("b", 999)))
    frame = stream_of(spark, files.folder, "account string, amount int")
    program = block(ROOT / "docs" / "control.md", "control=")
    ours = {
        "localhost:9092": kafka.bootstrap_servers,
        '"limits"': f'"{limits}"',
        '"suspicious", boot': f'"{out}", boot',
        '"/data/suspicious"': f'"{tmp_path / "checkpoint"}"',
    }
    ran(replaced(program, ours), payments=frame)
    assert keys_and_values(kafka.bootstrap_servers, out) == [(b"a", b"11")]
