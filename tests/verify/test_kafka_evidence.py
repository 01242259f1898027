"""What the logs of Kafka say of a range of epochs, read by headers: exact, missing, extra, in doubt,
unknowable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from exactum import KafkaSink
from exactum.checkpoint.query_place import QueryPlace
from exactum.kafka.evidence import evidence_of
from exactum.kafka.requests import BrokerRequests
from exactum.kafka.transaction import KafkaTransaction
from exactum.local import LocalKafka
from exactum.monitor.decisions import read_promises
from exactum.protocol.decision_log import PermitLog
from exactum.protocol.inspection import Evidence, Finding, Inspector, Promise
from tests.kit.kafka.transactions import read_all
from tests.kit.transactions.operator import accept
from tests.kit.verify.recorded_query import RecordedQuery
from tests.kit.waiting import WAIT_MAX_S

pytestmark = pytest.mark.broker

ROWS = 6
"""Of one task; there are two."""


def tasks(batch_id: int) -> list[list[pa.RecordBatch]]:
    return [
        [
            pa.record_batch(
                {
                    "key": [f"{batch_id}/{task}/{i}" for i in range(ROWS)],
                    "value": [f"value {i}" for i in range(ROWS)],
                }
            )
        ]
        for task in range(2)
    ]


class World:
    """A query into a topic of four partitions, and what verifying says of it."""

    def __init__(self, kafka: LocalKafka, topic: str, folder: Path) -> None:
        self.servers, self.topic = kafka.bootstrap_servers, topic
        self.query = RecordedQuery(
            folder,
            {
                "kafka:out": (
                    lambda: KafkaSink(topic, bootstrap_servers=self.servers),
                    (("key", "string"), ("value", "string")),
                    tasks,
                )
            },
        )
        self.place = QueryPlace.of(folder)

    def inspector(self) -> Inspector:
        sink = KafkaSink(self.topic, bootstrap_servers=self.servers)
        return sink.inspector(self.query.query_id, "kafka:out")

    def look(self, first: int = 0, last: int = 100) -> list[Evidence]:
        requests = BrokerRequests(self.servers, (), "a test")
        try:
            readings: list[Sequence[Promise]] = []

            def read() -> Sequence[Promise]:
                readings.append(read_promises(self.place, None, None).each)
                return readings[-1]

            found = evidence_of("kafka:out", requests, read, first, last)
            assert len(readings) == 2
            return found
        finally:
            requests.close()


@pytest.fixture
def world(kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path) -> World:
    return World(kafka, topic("out"), tmp_path / "checkpoint")


def findings(evidence: list[Evidence]) -> list[str]:
    return [each.text for each in evidence]


def undo_first(world: World) -> None:
    """Of the transactions of batch 1, which is decided."""
    with closing(world.place.open_log()) as log:
        (prepared, *_) = log.read(1)[-1].prepared
    name = KafkaTransaction.of(prepared).transactional_id
    producer = Producer({"bootstrap.servers": world.servers, "transactional.id": name})
    producer.init_transactions(WAIT_MAX_S)


def test_an_aborted_transaction_is_missing_until_it_is_salvaged(world: World) -> None:
    """Only it: the other task's rows are there. A range leaves the other epochs out."""
    world.query.run([0, 1], dies_after_decision=True)
    undo_first(world)
    last = world.look()[-1]
    assert (last.text, last.found) == (f"missing {2 * ROWS - last.found}", last.found)
    assert "aborted" in last.why
    world.query.run([1, 2])  # under a record that supersedes
    assert findings(world.look()) == ["exact"] * 3
    assert [e.found for e in world.look(1, 1)] == [2 * ROWS]


def test_a_batch_that_was_given_up_in_this_sink(world: World) -> None:
    """Nothing more of it was promised, so what had become visible before is not too much; what is
    visible of it is said.
    """
    world.query.run([0, 1], dies_after_decision=True)
    undo_first(world)
    with closing(world.place.open_log()) as log, closing(world.inspector()) as inspector:
        permits = PermitLog(log)
        record = permits.read(1)[-1]
        inspector.participant().commit(permits.permit(record), record.prepared[1:])
    accept(world.query.folder, 1, "--without", "kafka:out")
    world.query.run([1, 2])
    evidence = world.look()
    assert [(each.text, each.found) for each in evidence] == [
        ("exact", 2 * ROWS),
        ("exact", 0),
        ("exact", 2 * ROWS),
    ]
    assert "are visible" in evidence[1].why
    assert len(read_all(world.servers, world.topic)) == 5 * ROWS


def test_what_no_record_names_is_extra(world: World) -> None:
    """A record that is gone leaves its committed rows without a name."""
    world.query.run([0, 1, 2])
    (record,) = [
        path
        for path in (world.query.folder / "exactum" / "decisions").iterdir()
        if path.name.startswith("00000000000000000002") or path.name.startswith("2-")
        if "commit" in path.read_text()
    ]
    record.unlink()
    assert findings(world.look()) == ["exact", f"extra {2 * ROWS}"]


def test_what_retention_took_is_unknowable(world: World) -> None:
    """Never missing: nobody can tell any more. A topic that is no more is missing all."""
    world.query.run([0, 1])
    ends = offsets(world, 0)
    admin = AdminClient({"bootstrap.servers": world.servers})
    cells = [TopicPartition(world.topic, index, end) for (_, index), end in ends.items()]
    for future in admin.delete_records(cells).values():
        future.result(WAIT_MAX_S)
    first, second = world.look()
    assert (first.finding, first.found) == (Finding.UNKNOWABLE, None)
    assert "retention" in first.why
    assert second.finding is Finding.EXACT
    for future in admin.delete_topics([world.topic]).values():
        future.result(WAIT_MAX_S)
    gone = world.look()
    assert findings(gone) == [f"missing {2 * ROWS}"] * 2
    assert "is no more" in gone[0].why


def offsets(world: World, batch_id: int) -> dict[tuple[str, int], int]:
    """Where each partition goes on after a batch."""
    log = world.place.open_log()
    found: dict[tuple[str, int], int] = {}
    for p in log.read(batch_id)[-1].prepared:
        for partition, (first, count) in KafkaTransaction.of(p).partitions:
            found[partition] = max(found.get(partition, 0), first + count)
    log.close()
    return found
