"""``exactum transactions`` on a real broker: a driver that died after its decision, and one that died
before it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from exactum import KafkaSink
from exactum.checkpoint.layout import DECISIONS, HISTORY
from exactum.checkpoint.query_place import QueryPlace
from exactum.checkpoint.run_file import RunFile
from exactum.errors import Fenced
from exactum.files.slot_log import SlotLog
from exactum.local import LocalKafka
from exactum.monitor.job import read_job
from exactum.ops.render import job_value
from exactum.ops.targets.sinks import targets_of
from exactum.ops.transactions import settlement
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.model import Decision, DecisionRecord, SourceOffsets, new_incarnation
from exactum.protocol.sink import Guarantee, QueryRun
from exactum.storage.folder import Folder
from exactum.testing.task_job import TaskJob
from tests.kit.kafka.transactions import frame, read_all
from tests.kit.monitor.facts import read_facts
from tests.kit.query_record import newest
from tests.kit.transactions.given import given
from tests.kit.transactions.operator import listed, transactions
from tests.kit.verify.recorded_query import RecordedQuery
from tests.kit.waiting import WAIT_MAX_S

pytestmark = pytest.mark.broker

TASKS, ROWS = 2, 3
SINK = "kafka"
COLUMNS = (("value", "binary"),)


def tasks(batch_id: int) -> list[list[pa.RecordBatch]]:
    return [
        [frame([f"{batch_id}/{task}/{i}".encode() for i in range(ROWS)])] for task in range(TASKS)
    ]


def values(batches: range) -> list[bytes]:
    return sorted(
        f"{b}/{task}/{i}".encode() for b in batches for task in range(TASKS) for i in range(ROWS)
    )


class World:
    def __init__(self, folder: Path, kafka: LocalKafka, topic: str) -> None:
        self.servers, self.topic = kafka.bootstrap_servers, topic
        self.query = RecordedQuery(folder, {SINK: (self.sink, COLUMNS, tasks)})
        self.checkpoint = folder

    def sink(self) -> KafkaSink:
        return KafkaSink(self.topic, bootstrap_servers=self.servers)

    def read(self, *, open_ones: bool = False) -> list[bytes | None]:
        return sorted(
            (r.value for r in read_all(self.servers, self.topic, open_ones=open_ones)),
            key=lambda value: value or b"",
        )

    def log(self) -> SlotLog:
        return SlotLog(Folder(self.checkpoint / DECISIONS), self.query.query_id)


@pytest.fixture
def world(tmp_path: Path, kafka: LocalKafka, topic: Callable[..., str]) -> World:
    return World(tmp_path / "checkpoint", kafka, topic("tx", partitions=2))


@contextmanager
def foreign(world: World) -> Iterator[str]:
    """Somebody else's open transaction on the same topic."""
    name = f"foreign-{world.topic}"
    producer = Producer({"bootstrap.servers": world.servers, "transactional.id": name})
    producer.init_transactions(WAIT_MAX_S)
    producer.begin_transaction()
    producer.produce(world.topic, b"foreign", partition=1)
    producer.flush(WAIT_MAX_S)
    yield name
    producer.commit_transaction(WAIT_MAX_S)


def test_another_cluster_at_the_address_is_not_believed(world: World) -> None:
    """It knows nothing of the query, which is no reason to say that nothing is open."""
    world.query.run([0, 1], dies_before_decision=True)
    record = newest(world.checkpoint)
    text = record.read_text()
    cluster = json.loads(text)["sinks"][0]["trace"]["kafka"]
    record.write_text(text.replace(cluster, "another-cluster-of-long-ago"))
    place = ("--checkpoint", world.checkpoint)
    for command in (["list"], ["abort"], ["finish"]):
        told = " ".join(transactions(*command, *place, status=2).output.split())
        assert f"cluster {cluster} answers" in told, told
        assert "are in cluster another-cluster-of-long-ago" in told
        assert "nothing is open" not in told
    record.write_text(text)
    assert [t["state"] for t in listed(world.checkpoint, status=1)] == ["open"] * TASKS


def test_decided_and_not_committed(world: World) -> None:
    """The list says how long the broker waits; finish goes into the query's history, and says where
    that cannot be written.
    """
    world.query.run([0, 1], dies_after_decision=True)
    found = listed(world.checkpoint, status=1)
    assert len(found) == TASKS and all(0 < t["left_ms"] < t["timeout_ms"] for t in found)
    assert f"{ROWS} records from offset" in found[0]["details"][0]
    assert job_value(read_job(world.checkpoint))["stats"]["in_doubt"]["batch_id"] == 1
    history = world.checkpoint / HISTORY
    history.write_text("no folder can be made here")
    out = transactions("finish", "--checkpoint", world.checkpoint, status=0).output
    assert "history could not be written" in out
    assert job_value(read_job(world.checkpoint))["stats"]["in_doubt"]["batch_id"] == 1
    history.unlink()
    done = transactions("finish", "--checkpoint", world.checkpoint, "--json", status=0).json
    assert done["batches"] == [
        {"batch_id": 1, "transactions": TASKS, "rows": TASKS * ROWS, "left": 0}
    ]
    status = job_value(read_job(world.checkpoint))
    assert (status["verdict"], status["stats"]["in_doubt"]) == ("DOWN", None)
    assert "tart it again" in status["todo"]


def test_finish_beside_a_living_driver(world: World) -> None:
    """What it commits, the driver that lives finds committed."""
    world.query.run([0], dies_after_decision=True)
    alive = RunFile(Folder(world.checkpoint), new_incarnation(), "", "")
    alive.hold()
    text = transactions("list", "--checkpoint", world.checkpoint, status=0).output
    assert "the living run commits it" in text and "lives: run" in text
    out = transactions("finish", "--checkpoint", world.checkpoint, status=0).output
    assert f"{TASKS} transactions with {TASKS * ROWS} rows are committed" in out
    alive.release()
    assert world.read() == values(range(1))
    world.query.run([0, 1])
    assert world.read() == values(range(2))


def test_undecided_beside_others(world: World) -> None:
    """An abort says whom it would stop, goes into the query's history, and leaves what is somebody
    else's.
    """
    world.query.run([0, 1], dies_before_decision=True)
    arguments = ("abort", "--checkpoint", world.checkpoint)
    with foreign(world):
        found = listed(world.checkpoint, status=1)
        alive = RunFile(Folder(world.checkpoint), new_incarnation(), "", "")
        alive.hold()
        assert "say --take-over" in transactions(*arguments, status=1).output
        assert world.log().read(1) == ()  # nobody was fenced so far
        done = transactions(*arguments, "--take-over", "--json", status=0).json
        alive.release()
        assert sorted(done["aborted"]) == sorted(t["identity"] for t in found)
        assert [r.decision for r in world.log().read(1)] == [Decision.ABORT]
        (told_of,) = read_facts(world.checkpoint)
        assert (told_of.name, told_of.query_id) == ("OperatorFenced", world.query.query_id)
        assert told_of.fields["transactions"] == len(found)

    world.query.run([1, 2])
    assert world.read() == sorted([*values(range(3)), b"foreign"])


class HeldLog:
    """A decision log whose first COMMIT of a batch waits."""

    def __init__(self, log: SlotLog, batch_id: int) -> None:
        self.read, self.prune, self.close = log.read, log.prune, log.close
        self.reached, self.go = threading.Event(), threading.Event()
        self._log, self._batch_id = log, batch_id

    def decide(self, record: DecisionRecord) -> DecisionRecord:
        if record.decision is Decision.COMMIT and record.epoch.batch_id == self._batch_id:
            self.reached.set()
            assert self.go.wait(WAIT_MAX_S), "nobody let it go"
        return self._log.decide(record)


class Driver(threading.Thread):
    """A driver that lives, and stops right before it decides a batch."""

    def __init__(self, world: World, batch_id: int, last: int) -> None:
        super().__init__()
        run = QueryRun(world.query.query_id, new_incarnation(), Guarantee.EXACTLY_ONCE)
        self._opened = world.sink().open(run, SINK, COLUMNS)
        self.log = HeldLog(world.log(), batch_id)
        self._coordinator = Coordinator(run, [self._opened.participant], self.log)
        self._batches = range(batch_id, last + 1)
        self.ending: BaseException | None = None

    def run(self) -> None:
        try:
            for batch_id in self._batches:
                job = TaskJob(self._opened.writers, tasks(batch_id))
                self._coordinator.run(batch_id, SourceOffsets(), job)
        except BaseException as error:
            self.ending = error
        finally:
            self._opened.participant.close()


def test_an_abort_against_a_driver_about_to_decide(world: World) -> None:
    """The driver has verified everything and is about to write its COMMIT: it is fenced, and nothing
    of its epoch is visible. The next start writes it once.
    """
    world.query.run([0])
    driver = Driver(world, 1, 1)
    driver.start()
    assert driver.log.reached.wait(WAIT_MAX_S)
    transactions("abort", "--checkpoint", world.checkpoint, status=0)
    driver.log.go.set()
    driver.join(WAIT_MAX_S)
    assert isinstance(driver.ending, Fenced), driver.ending
    assert world.read() == values(range(1))
    world.query.run([1, 2])
    assert world.read() == values(range(3))


def test_a_driver_that_decides_during_an_abort(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator has listed what is open, and the driver decides it before he fences: its epoch
    stands, and the driver goes on unfenced.
    """
    world.query.run([0])
    driver = Driver(world, 1, 2)
    driver.start()
    assert driver.log.reached.wait(WAIT_MAX_S)
    place = QueryPlace.of(world.checkpoint)
    log = world.log()

    class DecidedMeanwhile:
        read, prune, close = log.read, log.prune, log.close

        def decide(self, record: DecisionRecord) -> DecisionRecord:
            driver.log.go.set()
            driver.join(WAIT_MAX_S)
            return log.decide(record)

    monkeypatch.setattr(QueryPlace, "open_log", lambda self: DecidedMeanwhile())
    targets = targets_of(place.record(), world.query.sinks(), "")
    done = settlement.abort_of_query(place, targets, take_over=True)
    monkeypatch.undo()
    assert driver.ending is None
    assert done.fence is None and done.aborted == () and len(done.decided) == TASKS
    assert world.read() == values(range(3))
    world.query.run([3])
    assert world.read() == values(range(4))


def test_servers_that_are_away(world: World) -> None:
    """Status 2: it could not be found out."""
    world.query.run([0])
    away = given({SINK: KafkaSink(world.topic, bootstrap_servers="127.0.0.1:1")})
    out = transactions("list", "--checkpoint", world.checkpoint, *away, status=2).output
    assert "could not be looked at" in out
    transactions("abort", "--checkpoint", world.checkpoint, *away, status=2)


def test_a_sink_with_another_prefix_is_not_believed(world: World) -> None:
    """It would find none of the query's transactions, which is no reason to say that none is open."""
    world.query.run([0, 1], dies_before_decision=True)
    other = KafkaSink(
        world.topic, bootstrap_servers=world.servers, transactional_id_prefix="another"
    )
    told = transactions("list", "--checkpoint", world.checkpoint, *given({SINK: other}), status=2)
    assert "transactional_id_prefix='another'" in told.output
    assert "nothing is open" not in told.output
    assert len(listed(world.checkpoint, status=1)) == TASKS
