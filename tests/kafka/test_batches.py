"""When records are sent: in full batches, at the end of the task, and where the queue has no
room for more.
"""

from __future__ import annotations

import time

import pytest

from exactum.kafka import settings
from exactum.kafka.messages import produce
from exactum.kafka.producer_pool import ProducerPlan, initialised
from exactum.kafka.transaction import KafkaScope
from exactum.protocol.model import new_incarnation
from exactum.protocol.sink import Guarantee, TaskName, WriteOrder
from tests.kit.kafka.broker import Broker
from tests.kit.kafka.transactions import frame, opened
from tests.kit.waiting import WAIT_MAX_S, await_true

LATER_S = 0.5
"""A hundred times librdkafka's own linger.ms."""


@pytest.fixture
def lingers_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than a machine stands still."""
    monkeypatch.setattr(settings, "LINGER_MS", 200_000)


@pytest.mark.usefixtures("lingers_long")
@pytest.mark.parametrize("guarantee", [Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE])
def test_a_record_waits_for_the_end_of_its_task(broker: Broker, guarantee) -> None:
    name = broker.topic("waits", partitions=1)
    with opened(broker.sink(name), guarantee=guarantee) as sink:
        writer = sink.opened.writers.open(WriteOrder(sink.run, 1, 0, 1), TaskName(0, 0, 0))
        writer.write(frame([b"v"]))
        time.sleep(LATER_S)
        assert broker.end(name) == 0
        writer.prepare()
        assert broker.end(name) == 1


@pytest.mark.usefixtures("lingers_long")
@pytest.mark.parametrize("name", ["linger.ms", "queue.buffering.max.ms"])
def test_the_users_linger_wins(broker: Broker, name: str) -> None:
    """Under both of its names."""
    target = broker.topic("lingers", partitions=1)
    with opened(broker.sink(target, producer={name: 1})) as sink:
        writer = sink.opened.writers.open(WriteOrder(sink.run, 1, 0, 1), TaskName(0, 0, 0))
        writer.write(frame([b"v"]))
        await_true(lambda: broker.end(target) == 1, "it is sent before the end of its task", 150)
        writer.prepare()


@pytest.mark.parametrize(
    "producer", [{"message.timeout.ms": 4_000}, {"delivery.timeout.ms": 4_000}, {}]
)
def test_the_default_fits_every_timeout(broker: Broker, producer) -> None:
    """librdkafka refuses to wait longer for a batch than for an acknowledgement: all are shorter
    than the 5 s.
    """
    sink = broker.sink(broker.topic("short"), producer=producer, transaction_timeout_ms=4_500)
    for guarantee in (Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE):
        with opened(sink, guarantee=guarantee) as short:
            short.write(frame([b"v"]))


def test_a_queue_full_of_batches_that_are_not(broker: Broker) -> None:
    """Many partitions share one queue: what it holds is sent before any of their batches is
    full.
    """
    name = broker.topic("narrow", partitions=8)
    plan = ProducerPlan(
        broker.servers,
        (("queue.buffering.max.kbytes", "512"), ("linger.ms", "200000")),
        KafkaScope("query", "narrow", "test"),
        new_incarnation(),
        400_000,
        name,
    )
    producer = initialised(plan, "narrow")
    try:
        producer.begin_transaction()
        rows = frame([bytes(1_000)] * 4_000, [str(number).encode() for number in range(4_000)])
        produce(
            producer, rows, name, timeout_ms=150_000
        )  # far less than records wait for full batches
        producer.flush(int(WAIT_MAX_S * 1_000))
    finally:
        producer.destroy()
    assert sum(broker.end(name, partition) for partition in range(8)) >= 4_000
