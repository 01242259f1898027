"""``exactum transactions`` on a real broker: a driver that died after its decision, and one that died
before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from exactum import KafkaSink
from exactum.checkpoint.layout import DECISIONS, HISTORY
from exactum.checkpoint.run_file import RunFile
from exactum.files.slot_log import SlotLog
from exactum.local import LocalKafka
from exactum.monitor.job import read_job
from exactum.ops.render import job_value
from exactum.protocol.model import Decision, new_incarnation
from exactum.storage.folder import Folder
from tests.contract.targets import Kafka
from tests.kit.monitor.facts import read_facts
from tests.kit.query_record import newest
from tests.kit.sql.sql_epochs import expected
from tests.kit.transactions.given import given
from tests.kit.transactions.operator import listed, transactions
from tests.kit.verify.recorded_query import RecordedQuery

pytestmark = pytest.mark.broker

TASKS, ROWS = 3, 4
SINK = "kafka"


class World:
    def __init__(self, folder: Path, target: Kafka) -> None:
        self.target, self.checkpoint = target, folder
        sinks = {SINK: (target.sink, target.columns, target.tasks)}
        self.query = RecordedQuery(folder, sinks)

    def log(self) -> SlotLog:
        return SlotLog(Folder(self.checkpoint / DECISIONS), self.query.query_id)


@pytest.fixture
def world(tmp_path: Path, kafka: LocalKafka, topic: Callable[..., str]) -> World:
    return World(tmp_path / "checkpoint", Kafka(tmp_path, kafka, topic))


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
    counted = re.findall(r": (\d+) records from offset", " ".join(found[0]["details"]))
    assert sum(map(int, counted)) == ROWS
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
    assert sorted(world.target.rows()) == expected([0])
    world.query.run([0, 1])
    assert sorted(world.target.rows()) == expected([0, 1])


def test_an_abort_beside_a_living_run(world: World) -> None:
    """It says whom it would stop, and goes into the query's history."""
    world.query.run([0, 1], dies_before_decision=True)
    found = listed(world.checkpoint, status=1)
    arguments = ("abort", "--checkpoint", world.checkpoint)
    alive = RunFile(Folder(world.checkpoint), new_incarnation(), "", "")
    alive.hold()
    assert "say --take-over" in transactions(*arguments, status=2).output
    nothing_to_do = transactions("finish", "--checkpoint", world.checkpoint, status=0).output
    assert "abort" not in nothing_to_do  # what a run that lives has open is its own affair
    assert world.log().read(1) == ()  # nobody was fenced so far
    done = transactions(*arguments, "--take-over", "--json", status=0).json
    alive.release()
    assert sorted(done["aborted"]) == sorted(t["identity"] for t in found)
    assert [r.decision for r in world.log().read(1)] == [Decision.ABORT]
    (told_of,) = read_facts(world.checkpoint)
    assert (told_of.name, told_of.query_id) == ("OperatorFenced", world.query.query_id)
    assert told_of.fields["transactions"] == len(found)


def test_a_sink_with_another_prefix_is_not_believed(world: World) -> None:
    """It would find none of the query's transactions, which is no reason to say that none is open."""
    world.query.run([0, 1], dies_before_decision=True)
    other = KafkaSink(
        world.target.topic,
        bootstrap_servers=world.target.kafka.bootstrap_servers,
        transactional_id_prefix="another",
    )
    told = transactions("list", "--checkpoint", world.checkpoint, *given({SINK: other}), status=2)
    assert "transactional_id_prefix='another'" in told.output
    assert "nothing is open" not in told.output
    assert len(listed(world.checkpoint, status=1)) == TASKS
