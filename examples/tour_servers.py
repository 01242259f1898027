"""The servers of the README beside this, on this machine, until Ctrl-C: Kafka and MariaDB, with the
topics, the table and the records that its programs read.

    PYTHONPATH=. python examples/tour_servers.py /tmp/tour
    . /tmp/tour/addresses

The data lie in the folder. Where MariaDB is not installed it is left out, and named.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from pathlib import Path

import pymysql
from confluent_kafka import Producer

from exactum.errors import LocalServerError
from exactum.local import LocalKafka
from tests.kit.servers.mariadb import LocalMariaDB

CUSTOMERS = 5


def words(count: int, throws_at: int) -> list[tuple[str, str]]:
    """For ``classic_job.py``: (key, value), one of them the "x"."""
    return [(f"k{n % CUSTOMERS}", "x" if n == throws_at else f"w{n}") for n in range(count)]


def orders(count: int) -> list[tuple[str, str]]:
    """For the totals: (customer, amount)."""
    return [(f"customer-{n % CUSTOMERS}", str(n + 1)) for n in range(count)]


def send(servers: str, topic: str, records: list[tuple[str, str]]) -> None:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for key, value in records:
        producer.produce(topic, value, key)
    if producer.flush(30):
        raise SystemExit(f"Kafka at {servers} did not take all records within 30 s.")


def make_words_table(mariadb: LocalMariaDB, table: str = "words") -> None:
    with (
        pymysql.connect(
            host=mariadb.host,
            port=mariadb.port,
            user=mariadb.user,
            password=mariadb.password,
            database="exactum",
        ) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(f"CREATE TABLE {table} (k VARCHAR(64), v TEXT)")


def main() -> None:
    folder = Path(sys.argv[1]).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as running:
        kafka = running.enter_context(LocalKafka())
        for topic in ("words", "orders", "totals"):
            kafka.create_topic(topic, partitions=1)
        send(kafka.bootstrap_servers, "words", words(120, throws_at=67))
        send(kafka.bootstrap_servers, "orders", orders(1000))
        addresses = [f"KAFKA={kafka.bootstrap_servers}"]
        try:
            mariadb = running.enter_context(LocalMariaDB())
            make_words_table(mariadb)
            addresses.append(f"MYSQL={mariadb.url}")
        except LocalServerError as error:
            print(f"Without MariaDB: {error}")
        (folder / "addresses").write_text("".join(f"export {each}\n" for each in addresses))
        print(f"The servers run. In another terminal: . {folder / 'addresses'}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main()
