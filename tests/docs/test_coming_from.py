"""The pages of docs/coming-from: their programs run, word by word but for addresses, folders and
the names of topics and tables.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from exactum.checkpoint.query_place import QueryPlace
from exactum.java import jars
from exactum.local import LocalKafka, spark_kafka_jars
from tests.conftest import TopicFactory
from tests.kit.docs.onlooker import keys_and_values
from tests.kit.docs.steps import steps
from tests.kit.environment import ROOT, environment
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.spark.commit_log import forget_last_batch
from tests.kit.transactions.given import given
from tests.kit.transactions.operator import accept, typed
from tests.kit.waiting import WAIT_MAX_S

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark", "settings_put_back")]

JARS = '.config("spark.jars", ",".join(map(str, spark_kafka_jars())))'
"""Of no use to a session that runs already."""
DRIVER = jars.JarSet(
    "jdbc-postgres",
    "42.7.4",
    "PostgreSQL's JDBC driver",
    jars.recipe(jars.dependency("org.postgresql", "postgresql", "42.7.4")),
)
PAGES = ROOT / "docs" / "coming-from"
CUSTOMERS = (3, 4, 5)
"""By librdkafka's hash, of two partitions one gets the first of them, the other the others."""


def replaced(page: str, program: str, names: Mapping[str, str]) -> str:
    """The page's program, with each of ``names`` that it has replaced."""
    (text,) = [s.saved[1] for s in steps(PAGES / page) if s.saved and s.saved[0] == program]
    for name, ours in names.items():
        text = text.replace(name, ours)
    return text


def ran(page: str, program: str, names: Mapping[str, str]) -> dict[str, Any]:
    """The names that the page's program has made."""
    made: dict[str, Any] = {"__name__": "__main__"}
    exec(replaced(page, program, names), made)
    return made


def send(servers: str, topic: str, orders: Iterable[int]) -> None:
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    for number in orders:
        producer.produce(topic, key=f"customer {CUSTOMERS[number % 3]}", value=f"order {number}")
    assert producer.flush(WAIT_MAX_S) == 0


class SparkJob:
    """The jobs of spark-kafka-sink.md, each as its last run: it ends when all is read."""

    page = "spark-kafka-sink.md"

    def __init__(self, kafka: LocalKafka, topic: TopicFactory, folder: Path) -> None:
        self.servers = kafka.bootstrap_servers
        self.orders, self.shouted, self.beside = map(topic, ("orders", "shouted", "beside"))
        self.checkpoint = folder / "shout"
        self.names = {
            "127.0.0.1:9092": self.servers,
            '"orders"': f'"{self.orders}"',
            '"shouted"': f'"{self.shouted}"',
            '"beside", boot': f'"{self.beside}", boot',
            'rows("beside")': f'rows("{self.beside}")',
            '"job.pid"': f'"{folder / "job.pid"}"',
            '"data/': f'"{folder}/',
            JARS: "",
        }

    def run(self, program: str) -> None:
        ran(self.page, program, self.names)

    def found(self) -> Counter[bytes]:
        return Counter(value for _, value in keys_and_values(self.servers, self.shouted))


@pytest.fixture
def job(
    kafka: LocalKafka, topic: TopicFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> SparkJob:
    monkeypatch.setattr(sys, "argv", ["job.py", "--last-run"])
    return SparkJob(kafka, topic, tmp_path)


def shouts(*numbers: int) -> Counter[bytes]:
    return Counter(b"ORDER %d" % number for number in numbers)


@pytest.mark.deep
def test_one_checkpoint_goes_from_sparks_sink_to_exactum_back_and_forward_again(
    job: SparkJob, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each order once, whichever of the two wrote it; and the new job beside the old one. What Spark's
    sink wrote in between is accepted once.
    """
    for day, program in enumerate(("before.py", "after.py", "before.py")):
        send(job.servers, job.orders, range(10 * day, 10 * day + 10))
        job.run(program)
    send(job.servers, job.orders, range(30, 40))
    with pytest.raises(Exception, match="exactum accept"):
        job.run("after.py")
    sinks = ran(job.page, "sinks.py", job.names)
    begins = (QueryPlace.of(job.checkpoint).finished() or 0) + 1
    accept(job.checkpoint, begins, *given(sinks["SHOUTED"]))
    job.run("after.py")
    assert job.found() == shouts(*range(40))
    job.run("beside.py")
    beside = job.checkpoint.parent / "beside"
    typed("verify", "--checkpoint", beside, *given(sinks["BESIDE"]), status=0)
    assert "only in the old output: 0, only in the new one: 0" in capsys.readouterr().out


@pytest.mark.deep  # what Spark's own sink does
def test_a_batch_that_sparks_sink_did_not_finish_is_written_twice(job: SparkJob) -> None:
    """As the page warns. Spark's own last run would do the same, so it has to come before."""
    send(job.servers, job.orders, range(10))
    job.run("before.py")
    send(job.servers, job.orders, range(10, 20))
    job.run("before.py")
    forget_last_batch(job.checkpoint)
    job.run("after.py")
    assert job.found() == shouts(*range(20), *range(10, 20))


class JdbcJob:
    """The programs of jdbc.md."""

    def __init__(
        self, kafka: LocalKafka, postgres: LocalPostgres, topic: TopicFactory, folder: Path
    ) -> None:
        self.servers, self.url = kafka.bootstrap_servers, postgres.url
        self.orders, self.checkpoint = topic("orders", partitions=2), folder / "checkpoint"
        self.table = self.orders.replace("-", "_")
        parts = urlsplit(postgres.url)
        jdbc = f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}"
        self.names = {
            "localhost:9092": self.servers,
            '"subscribe", "orders"': f'"subscribe", "{self.orders}"',
            "postgresql://shop:secret@localhost/shop": self.url,
            "jdbc:postgresql://localhost/shop?user=shop&password=secret": (
                f"{jdbc}?user={parts.username}&password={parts.password}"
            ),
            'table="orders"': f'table="{self.table}"',
            '"orders",\n        mode': f'"{self.table}",\n        mode',
            '"/data/orders"': f'"{self.checkpoint}"',
        }
        with psycopg.connect(self.url) as connection:
            connection.execute(f'CREATE TABLE "{self.table}" (customer text, item text)')

    def found(self) -> Counter[tuple[str, str]]:
        with psycopg.connect(self.url) as connection:
            return Counter(connection.execute(f'SELECT customer, item FROM "{self.table}"'))


@pytest.fixture
def jdbc_job(
    kafka: LocalKafka, postgres: LocalPostgres, topic: TopicFactory, tmp_path: Path
) -> JdbcJob:
    return JdbcJob(kafka, postgres, topic, tmp_path)


def items(*numbers: int) -> Counter[tuple[str, str]]:
    return Counter((f"customer {CUSTOMERS[number % 3]}", f"order {number}") for number in numbers)


def test_rows_of_kafka_stand_in_the_table_once(jdbc_job: JdbcJob) -> None:
    """jdbc.md, the program after, twice."""
    session = {'.config("spark.jars.packages", packages)': ""}
    for day in range(2):
        send(jdbc_job.servers, jdbc_job.orders, range(10 * day, 10 * day + 10))
        ran("jdbc.md", "after.py", {**jdbc_job.names, **session})
    assert jdbc_job.found() == items(*range(20))


@pytest.mark.deep
def test_one_checkpoint_goes_from_jdbc_to_exactum_and_back(
    jdbc_job: JdbcJob, tmp_path: Path
) -> None:
    """Each in a process of its own: a running session takes no JDBC driver any more."""
    paths = ",".join(map(str, [*spark_kafka_jars(), *jars.cached(DRIVER)]))
    session = {'"spark.jars.packages", packages': f'"spark.jars", "{paths}"'}
    for day, name in enumerate(("before.py", "after.py", "before.py")):
        send(jdbc_job.servers, jdbc_job.orders, range(10 * day, 10 * day + 10))
        program = tmp_path / name
        program.write_text(replaced("jdbc.md", name, {**jdbc_job.names, **session}))
        subprocess.run([sys.executable, program], env=environment(), check=True, timeout=WAIT_MAX_S)
    assert jdbc_job.found() == items(*range(30))


@pytest.mark.parametrize(
    "page", ["flink.md", pytest.param("kafka-streams.md", marks=pytest.mark.deep)]
)
def test_the_query_goes_on_where_the_other_systems_group_is(
    page: str, kafka: LocalKafka, topic: TopicFactory, tmp_path: Path
) -> None:
    """What lies behind the group's offsets is written once, and nothing before them."""
    servers = kafka.bootstrap_servers
    orders, bills = topic("orders", partitions=2), topic("bills", partitions=1)
    group = f"billing-{orders}"
    send(servers, orders, range(20))
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    positions = [TopicPartition(orders, 0, 3), TopicPartition(orders, 1, 2)]
    consumer.commit(offsets=positions, asynchronous=False)
    consumer.close()
    names = {
        "localhost:9092": servers,
        '"orders"': f'"{orders}"',
        '"billing",  #': f'"{group}",  #',
        '"bills"': f'"{bills}"',
        '"/data/billing"': f'"{tmp_path / "checkpoint"}"',
        "query.awaitTermination()": "query.processAllAvailable()\nquery.stop()",
    }
    ran(page, "job.py", names)
    left = [value.upper() for value in from_offsets(servers, positions)]
    assert len(left) == 15
    assert Counter(value for _, value in keys_and_values(servers, bills)) == Counter(left)
    if page == "flink.md":
        made = ran(page, "elsewhere.py", {k: v for k, v in names.items() if "query" not in k})
        assert made["at_offsets"].isStreaming
        assert made["at_a_time"].isStreaming


def from_offsets(servers: str, positions: list[TopicPartition]) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "onlooker"})
    values = []
    for position in positions:
        _, end = consumer.get_watermark_offsets(position, timeout=WAIT_MAX_S)
        consumer.assign([position])
        for _ in range(end - position.offset):
            message = consumer.poll(WAIT_MAX_S)
            assert message is not None
            values.append(message.value())
    consumer.close()
    return values
