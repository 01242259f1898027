"""One suite for every sink, on real servers.

MariaDB is under it in tests/mysql, files and object stores in tests/files, the user's own classes
and the write-ahead log in tests/custom.
"""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition

import exactum
from exactum.local import LocalKafka, LocalPostgres
from exactum.protocol.model import PreparedTransaction
from exactum.protocol.participant import Participant
from exactum.protocol.sink import Writer
from exactum.testing import SinkContract

PARTITIONS = 2
_numbers = itertools.count(1)


class Suite(SinkContract):
    """What the sinks below have in common: rows of one text column, none of them twice.

    A scenario takes a tenth of a second and more here, and these have hundreds of them: tests/crash
    and tests/kafka, and tests/sql, crash and repeat every call of these sinks in ways of their own.
    """

    test_every_fault_at_every_call_of_the_driver = None  # type: ignore[assignment]
    test_every_fault_at_every_call_of_a_recovery = None  # type: ignore[assignment]
    test_every_fault_at_every_call_of_a_task = None  # type: ignore[assignment]
    test_a_task_may_die_at_every_call_and_is_tried_again = None  # type: ignore[assignment]
    test_two_drivers_at_once = None  # type: ignore[assignment]

    def batches(self) -> Sequence[Any]:
        number = next(_numbers)
        return [
            pa.record_batch({"value": [f"{number}/{batch}/{i}" for i in range(3)]})
            for batch in range(4)
        ]

    def rows_in(self, batch: Any) -> list[object]:
        return batch.column("value").to_pylist()


@pytest.mark.broker
class TestKafka(Suite):
    @pytest.fixture(autouse=True)
    def _place(self, kafka: LocalKafka) -> None:
        self.kafka = kafka
        self.reset()

    def reset(self) -> None:
        self.topic = f"contract-{uuid.uuid4().hex[:12]}"
        self.kafka.create_topic(self.topic, partitions=PARTITIONS)

    def make_sink(self) -> exactum.KafkaSink:
        return exactum.KafkaSink(self.topic, bootstrap_servers=self.kafka.bootstrap_servers)

    def visible_rows(self) -> list[object]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.kafka.bootstrap_servers,
                "group.id": uuid.uuid4().hex,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 5,
            }
        )
        try:
            consumer.assign(
                [TopicPartition(self.topic, partition, 0) for partition in range(PARTITIONS)]
            )
            rows: list[object] = []
            ends = 0
            while ends < PARTITIONS:
                message = consumer.poll(10)
                assert message is not None, "the broker does not answer the reader"
                if message.error():
                    ends += 1
                else:
                    rows.append(message.value().decode())
            return rows
        finally:
            consumer.close()


@pytest.mark.postgres
class Postgres(Suite):
    """``mechanism`` is the subclass's; a dead task's connection is closed, as its system would."""

    mechanism: str
    columns = (("value", "string"),)
    stalls_in_tasks = False

    def kill_task(self, writer: Writer) -> None:
        session = getattr(writer, "_session", None)
        if session is not None:
            session.close()

    def lose(self, participant: Participant, prepared: Sequence[PreparedTransaction]) -> None:
        """An operator empties the staging table, or rolls back, by a plain client."""
        for transaction in prepared:
            payload = json.loads(transaction.payload)
            if "part" in payload:
                staging = f'{self.schema}."{payload["staging"]}"'
                self.connection.execute(
                    f"DELETE FROM {staging} WHERE exactum_part = {payload['part']}"
                )
            else:
                self.connection.execute(f"ROLLBACK PREPARED '{transaction.identity}'")

    @pytest.fixture(autouse=True)
    def _place(self, postgres: LocalPostgres) -> Iterator[None]:
        self.url = postgres.url
        self.schema = f"contract_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.url, autocommit=True) as self.connection:
            self.connection.execute(f"CREATE SCHEMA {self.schema}")
            self.connection.execute(f"CREATE TABLE {self.schema}.rows (value text NOT NULL)")
            yield

    def reset(self) -> None:
        self.connection.execute(f"TRUNCATE {self.schema}.rows")

    def make_sink(self) -> exactum.PostgresSink:
        return exactum.PostgresSink(self.url, table=f"{self.schema}.rows", mechanism=self.mechanism)

    def visible_rows(self) -> list[object]:
        return [
            value
            for (value,) in self.connection.execute(
                f"SELECT value FROM {self.schema}.rows"
            ).fetchall()
        ]


class TestPostgresStaged(Postgres):
    mechanism = "staged"


class TestPostgresPrepared(Postgres):
    mechanism = "prepared"
