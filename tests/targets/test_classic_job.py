"""The classic job, as the example has it: state, offsets and the table go forward together,
through a failing map.
"""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path

import pymysql
import pytest
from confluent_kafka import Producer

from exactum.local import LocalKafka
from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.waiting import WAIT_MAX_S

SCRIPT = Path(__file__).parents[2] / "examples" / "classic_job.py"
TIMEOUT_S = WAIT_MAX_S
KEYS = 5
WORDS = 120
THROWS_AT = 67


def words() -> list[tuple[str, str]]:
    """(key, value): short words, one of them the "x"."""
    return [(f"k{n % KEYS}", "x" if n == THROWS_AT else f"w{n}") for n in range(WORDS)]


def expected() -> list[tuple[str, str]]:
    """Each value in upper case, after the one that its key had before."""
    previous: dict[str, str] = {}
    rows = []
    for key, word in words():
        rows.append((key, previous.get(key, "") + word.upper()))
        previous[key] = word.upper()
    return sorted(rows)


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.mariadb
@pytest.mark.deep
def test_the_table_is_what_a_run_without_failure_leaves(
    kafka: LocalKafka, mariadb: LocalMariaDB, tmp_path
) -> None:
    """The map throws at the first "x", the query stops, the second start finishes, and no row is
    lost or doubled.
    """
    topic, database = f"words-{uuid.uuid4().hex[:8]}", f"classic_{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, partitions=1)
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True, "log_level": 0}
    )
    for key, word in words():
        producer.produce(topic, word, key)
    assert producer.flush(WAIT_MAX_S) == 0
    connection = pymysql.connect(
        host=mariadb.host,
        port=mariadb.port,
        user=mariadb.user,
        password=mariadb.password,
        autocommit=True,
    )
    with connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {database}")
        cursor.execute(f"CREATE TABLE {database}.words (k varchar(64), v text) ENGINE=InnoDB")

        def run() -> subprocess.CompletedProcess[str]:
            options = {
                "bootstrap-servers": kafka.bootstrap_servers,
                "topic": topic,
                "database": mariadb.url_of(database),
                "table": "words",
                "checkpoint": str(tmp_path / "checkpoint"),
            }
            command = [
                sys.executable,
                str(SCRIPT),
                *(part for n, v in options.items() for part in (f"--{n}", v)),
            ]
            return subprocess.run(
                command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
            )

        def table() -> list[tuple[str, str]]:
            cursor.execute(f"SELECT k, v FROM {database}.words")
            return sorted(cursor.fetchall())

        failed = run()
        assert failed.returncode != 0
        assert "the map cannot bear an x, the first time" in failed.stderr
        before = table()
        assert set(before) < set(expected()), (
            "what is there is a part of the whole, in whole epochs"
        )
        finished = run()
        assert finished.returncode == 0, finished.stderr[-4000:]
        assert table() == expected()
