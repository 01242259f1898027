"""What the logs of Kafka say of a range of epochs, read by headers: exact, missing, extra, in doubt,
unknowable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from exactum.checkpoint.query_place import QueryPlace
from exactum.kafka.evidence import evidence_of
from exactum.kafka.requests import BrokerRequests
from exactum.kafka.transaction import KafkaTransaction
from exactum.local import LocalKafka
from exactum.monitor.decisions import read_promises
from exactum.protocol.decision_log import PermitLog
from exactum.protocol.inspection import Evidence, Finding, Promise
from tests.contract.targets import Kafka
from tests.kit.kafka.broker import Broker
from tests.kit.transactions.operator import accept, invoke
from tests.kit.verify.recorded_query import RecordedQuery

pytestmark = pytest.mark.broker

ROWS = 4
"""Of one task; there are three."""
BATCH = 3 * ROWS
SINK = "kafka:out"


class World:
    """A query into a topic, and what verifying says of it."""

    def __init__(self, folder: Path, target: Kafka) -> None:
        self.target, self.broker = target, Broker(target.kafka)
        self.query = RecordedQuery(folder, {SINK: (target.sink, target.columns, target.tasks)})
        self.place = QueryPlace.of(folder)

    def look(self, first: int = 0, last: int = 100) -> list[Evidence]:
        requests = BrokerRequests({"bootstrap.servers": self.broker.servers}, "a test")
        try:
            readings: list[Sequence[Promise]] = []

            def read() -> Sequence[Promise]:
                readings.append(read_promises(self.place, None, None).each)
                return readings[-1]

            found = evidence_of(SINK, requests, read, first, last)
            assert len(readings) == 2
            return found
        finally:
            requests.close()


@pytest.fixture
def world(kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path) -> World:
    return World(tmp_path / "checkpoint", Kafka(tmp_path, kafka, topic))


def findings(evidence: list[Evidence]) -> list[str]:
    return [each.text for each in evidence]


def undo_first(world: World) -> None:
    """Of the transactions of batch 1, which is decided."""
    with closing(world.place.open_log()) as log:
        (prepared, *_) = log.read(1)[-1].prepared
    world.broker.initialised(KafkaTransaction.of(prepared).transactional_id)


def test_an_older_copy_is_not_exact(world: World, tmp_path: Path) -> None:
    """A Kafka topic has no marker. What the copy knows of is there, and there is more."""
    world.query.run([0, 1])
    copytree(world.query.folder, tmp_path / "copy")
    world.query.run([2, 3])
    assert invoke("verify", "--checkpoint", world.query.folder).exit_code == 0
    told = invoke("verify", "--checkpoint", tmp_path / "copy")
    assert (told.exit_code, "older copy" in told.output) == (1, True), told.output


def test_an_aborted_transaction_is_missing_until_it_is_salvaged(world: World) -> None:
    """Only it: the other task's rows are there. A range leaves the other epochs out."""
    world.query.run([0, 1], dies_after_decision=True)
    undo_first(world)
    last = world.look()[-1]
    assert (last.text, last.found) == (f"missing {BATCH - last.found}", last.found)
    assert "aborted" in last.why
    world.query.run([1, 2])  # under a record that supersedes
    assert findings(world.look()) == ["exact"] * 3
    assert [e.found for e in world.look(1, 1)] == [BATCH]


def test_a_batch_that_was_given_up_in_this_sink(world: World) -> None:
    """Nothing more of it was promised, so what had become visible before is not too much; what is
    visible of it is said.
    """
    world.query.run([0, 1], dies_after_decision=True)
    undo_first(world)
    sink: Any = world.target.sink()
    inspector = sink.inspector(world.query.query_id, SINK)
    with closing(world.place.open_log()) as log, closing(inspector):
        permits = PermitLog(log)
        record = permits.read(1)[-1]
        inspector.participant().commit(permits.permit(record), record.prepared[1:])
    accept(world.query.folder, 1, "--without", SINK)
    world.query.run([1, 2])
    evidence = world.look()
    assert [(each.text, each.found) for each in evidence] == [
        ("exact", BATCH),
        ("exact", 0),
        ("exact", BATCH),
    ]
    assert "are visible" in evidence[1].why
    assert len(world.target.rows()) == BATCH + 2 * ROWS + BATCH


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
    assert findings(world.look()) == ["exact", f"extra {BATCH}"]


def test_what_retention_took_is_unknowable(world: World) -> None:
    """Never missing: nobody can tell any more. A topic that is no more is missing all."""
    world.query.run([0, 1])
    for (topic, index), end in offsets(world, 0).items():
        world.broker.delete_before(topic, index, end)
    first, second = world.look()
    assert (first.finding, first.found) == (Finding.UNKNOWABLE, None)
    assert "retention" in first.why
    assert second.finding is Finding.EXACT
    world.broker.kafka.delete_topic(world.target.topic)
    gone = world.look()
    assert findings(gone) == [f"missing {BATCH}"] * 2
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
