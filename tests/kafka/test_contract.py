"""KafkaSink keeps the contract of every sink, as those of tests/sql, tests/files and tests/custom do."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition

import exactum
from exactum.kafka.writer import TransactionalWriter
from exactum.local import LocalKafka
from exactum.protocol.sink import Writer
from exactum.testing import SinkContract
from tests.kit.waiting import WAIT_MAX_S

PARTITIONS = 2
_numbers = itertools.count(1)


@pytest.mark.sweep
@pytest.mark.broker
class TestKafka(SinkContract):
    """Rows of one text column, none of them twice.

    The sweeps take minutes here and are for ``make deep``; tests/crash and other tests of this
    folder crash and repeat every call of this sink in ways of their own.
    """

    @pytest.mark.deep
    def test_every_fault_at_every_call_of_the_driver(self) -> None:
        super().test_every_fault_at_every_call_of_the_driver()

    @pytest.mark.deep
    def test_every_fault_at_every_call_of_a_recovery(self) -> None:
        super().test_every_fault_at_every_call_of_a_recovery()

    @pytest.mark.deep
    def test_every_fault_at_every_call_of_a_task(self) -> None:
        super().test_every_fault_at_every_call_of_a_task()

    @pytest.mark.deep
    def test_a_task_may_die_at_every_call_and_is_tried_again(self) -> None:
        super().test_a_task_may_die_at_every_call_and_is_tried_again()

    @pytest.mark.deep
    def test_two_drivers_at_once(self) -> None:
        super().test_two_drivers_at_once()

    def batches(self) -> Sequence[Any]:
        number = next(_numbers)
        return [
            pa.record_batch({"value": [f"{number}/{batch}/{i}" for i in range(3)]})
            for batch in range(4)
        ]

    def rows_in(self, batch: Any) -> list[object]:
        return batch.column("value").to_pylist()

    @pytest.fixture(autouse=True)
    def _place(self, kafka: LocalKafka) -> None:
        self.kafka = kafka
        self.reset()

    def reset(self) -> None:
        self.topic = f"contract-{uuid.uuid4().hex[:12]}"
        self.kafka.create_topic(self.topic, partitions=PARTITIONS)

    def make_sink(self) -> exactum.KafkaSink:
        return exactum.KafkaSink(self.topic, bootstrap_servers=self.kafka.bootstrap_servers)

    def kill_task(self, writer: Writer) -> None:
        """Its process is gone, and its transaction open: the producer ends without a word."""
        if isinstance(writer, TransactionalWriter):
            owned, writer._owned = writer._owned, None
            if owned is not None:
                writer._pool.let_go(owned)
            writer._pool.leave(writer)

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
                message = consumer.poll(WAIT_MAX_S)
                assert message is not None, "the broker does not answer the reader"
                if message.error():
                    ends += 1
                else:
                    rows.append(message.value().decode())
            return rows
        finally:
            consumer.close()
