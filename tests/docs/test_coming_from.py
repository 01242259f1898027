"""The pages of docs/coming-from: their programs run, word by word but for addresses, folders and
the names of topics and tables.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

import exactum
from exactum.checkpoint.query_place import QueryPlace
from exactum.local import LocalKafka
from tests.conftest import TopicFactory
from tests.kit.docs.code import block
from tests.kit.docs.program import ran, replaced
from tests.kit.environment import ROOT
from tests.kit.kafka.broker import producer_to
from tests.kit.kafka.transactions import keys_and_values, read_all
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.transactions.given import given
from tests.kit.transactions.operator import accept, typed
from tests.kit.waiting import WAIT_MAX_S

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark", "settings_put_back")]

PAGES = ROOT / "docs" / "coming-from"
CUSTOMERS = (3, 4, 5)
"""By librdkafka's hash, of two partitions one gets the first of them, the other the others."""


def send(servers: str, topic: str, orders: Iterable[int]) -> None:
    producer = producer_to(servers, {"log_level": 0})
    for number in orders:
        producer.produce(topic, key=f"customer {CUSTOMERS[number % 3]}", value=f"order {number}")
    assert producer.flush(WAIT_MAX_S) == 0


class SparkJob:
    """The two jobs of spark-kafka-sink.md."""

    def __init__(self, kafka: LocalKafka, topic: TopicFactory, folder: Path) -> None:
        self.servers = kafka.bootstrap_servers
        self.orders, self.shouted = topic("orders"), topic("shouted")
        self.checkpoint = folder / "shout"
        page = PAGES / "spark-kafka-sink.md"
        before, after = block(page, 'writeStream.format("kafka")'), block(page, "exactly_once(")
        kept, _, _ = before.partition("query = (")
        self.programs = {"before": before, "after": kept + after}

    def run(self, name: str) -> None:
        ours = {
            '.config("spark.jars.packages", packages)': "",  # of no use to a session that runs
            "localhost:9092": self.servers,
            '"orders"': f'"{self.orders}"',
            '"shouted"': f'"{self.shouted}"',
            '"/data/shout"': f'"{self.checkpoint}"',
        }
        exec(replaced(self.programs[name], ours), {"__name__": "__main__"})

    def found(self) -> Counter[bytes]:
        return Counter(value for _, value in keys_and_values(self.servers, self.shouted))


@pytest.fixture
def job(kafka: LocalKafka, topic: TopicFactory, tmp_path: Path) -> SparkJob:
    return SparkJob(kafka, topic, tmp_path)


def shouts(*numbers: int) -> Counter[bytes]:
    return Counter(b"ORDER %d" % number for number in numbers)


@pytest.mark.deep
def test_one_checkpoint_goes_from_sparks_sink_to_exactum_back_and_forward_again(
    job: SparkJob,
) -> None:
    """Each order once, whichever of the two wrote it. What Spark's sink wrote in between is accepted
    once.
    """
    for day, program in enumerate(("before", "after", "before")):
        send(job.servers, job.orders, range(10 * day, 10 * day + 10))
        job.run(program)
    send(job.servers, job.orders, range(30, 40))
    with pytest.raises(Exception, match="exactum accept"):
        job.run("after")
    sink = exactum.KafkaSink(job.shouted, bootstrap_servers=job.servers)
    begins = (QueryPlace.of(job.checkpoint).finished() or 0) + 1
    accept(job.checkpoint, begins, *given(sink))
    job.run("after")
    assert job.found() == shouts(*range(40))
    typed("verify", "--checkpoint", job.checkpoint, "--from", str(begins), *given(sink), status=0)


def test_rows_of_kafka_stand_in_the_table_once(
    kafka: LocalKafka,
    postgres: LocalPostgres,
    spark: SparkSession,
    topic: TopicFactory,
    tmp_path: Path,
) -> None:
    """jdbc.md, twice."""
    source = topic("orders", partitions=2)
    table = source.replace("-", "_")
    program = block(PAGES / "jdbc.md", "PostgresSink(")
    ours = {
        "postgresql://shop:secret@localhost/shop": postgres.url,
        'table="orders"': f'table="{table}"',
        '"/data/orders"': f'"{tmp_path / "checkpoint"}"',
    }
    with psycopg.connect(postgres.url) as connection:
        connection.execute(f'CREATE TABLE "{table}" (customer text, item text)')
    for day in range(2):
        send(kafka.bootstrap_servers, source, range(10 * day, 10 * day + 10))
        orders = exactum.read_kafka(
            spark, source, bootstrap_servers=kafka.bootstrap_servers, start="earliest"
        )
        exec(replaced(program, ours), {"orders": orders})
    with psycopg.connect(postgres.url) as connection:
        found = Counter(connection.execute(f'SELECT customer, item FROM "{table}"'))
    assert found == Counter((f"customer {CUSTOMERS[n % 3]}", f"order {n}") for n in range(20))


def test_the_query_goes_on_where_flinks_group_is(
    kafka: LocalKafka, topic: TopicFactory, tmp_path: Path
) -> None:
    """flink.md: what lies behind the group's offsets is written once, and nothing before them."""
    servers = kafka.bootstrap_servers
    orders, bills = topic("orders", partitions=2), topic("bills", partitions=1)
    group = f"billing-{orders}"
    send(servers, orders, range(20))
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    positions = [TopicPartition(orders, 0, 3), TopicPartition(orders, 1, 2)]
    consumer.commit(offsets=positions, asynchronous=False)
    consumer.close()
    program = block(PAGES / "flink.md", "read_kafka(")
    ours = {
        "localhost:9092": servers,
        '"orders"': f'"{orders}"',
        '"billing",  #': f'"{group}",  #',
        '"bills"': f'"{bills}"',
        '"/data/billing"': f'"{tmp_path / "checkpoint"}"',
        "query.awaitTermination()": "",
    }
    ran(replaced(program, ours))
    values = defaultdict(list)
    for record in read_all(servers, orders):
        values[record.partition].append((record.value or b"").upper())
    left = values[0][3:] + values[1][2:]
    assert len(left) == 15
    assert Counter(value for _, value in keys_and_values(servers, bills)) == Counter(left)
