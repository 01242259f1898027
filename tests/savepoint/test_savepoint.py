"""Savepoints of real queries, and queries that start from them. The oracle counts by hand what
must come out.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.admin import KafkaAdminClient
from pyspark.sql import SparkSession

from exactum.checkpoint.savepoint.create import create
from exactum.checkpoint.savepoint.manifest import verify
from exactum.checkpoint.savepoint.restore import restore
from exactum.spark.run.committed_epochs import ON_DIFFERENCE
from exactum.storage.folder import Folder
from tests.kit.kafka.broker import Broker
from tests.kit.savepoint.totals import Totals
from tests.kit.spark.torn_stream import IN_MEMORY, configured
from tests.kit.transactions.operator import typed
from tests.kit.waiting import await_true

pytestmark = [pytest.mark.broker, pytest.mark.spark]

RETAINED = "spark.sql.streaming.minBatchesToRetain"


@pytest.mark.deep
def test_a_running_query_is_thrown_away_and_started_again(
    spark: SparkSession, totals: Totals, broker: Broker, tmp_path: Path
) -> None:
    """Savepoints of a query that runs on meanwhile, and forgets old epochs as fast as it may: each
    of them is whole. Its checkpoint is lost; a fork from the first one writes into a fresh topic
    what an uninterrupted run writes after.
    """
    made = []
    with configured(spark, {RETAINED: "2"}), totals.running():
        made.append(create(str(totals.checkpoint), tmp_path / "savepoint0"))
        totals.source.produce(totals.bootstrap_servers, 40)  # however late the first savepoint came
        while not totals.caught_up():
            made.append(create(str(totals.checkpoint), tmp_path / f"savepoint{len(made)}"))
        await_true(totals.caught_up, "the query reads all input")
    for number, manifest in enumerate(made):
        assert verify(Folder(tmp_path / f"savepoint{number}")) == manifest
    assert 0 < made[0].batch_id < totals.last()
    assert {key: values[-1] for key, values in totals.written().items()} == totals.final()
    totals.checkpoint.rename(
        tmp_path / "lost"
    )  # a state store's maintenance may still be writing a file
    fork = totals.at(tmp_path / "fork", broker.topic("fresh", partitions=3))
    restored = restore(tmp_path / "savepoint0", str(fork.checkpoint))
    assert restored.query_id == fork.query_id != made[0].query_id
    assert not (fork.checkpoint / "exactum" / "decisions").exists(), (
        "a fork has no decisions of its parent"
    )
    totals.source.produce(totals.bootstrap_servers, 40)
    assert fork.run() is None
    fork.check_exact(first=made[0].batch_id + 1)


@pytest.fixture
def memory_backed(spark: SparkSession) -> Iterator[None]:
    with configured(spark, {**IN_MEMORY, ON_DIFFERENCE: "warn"}):
        yield


@pytest.mark.deep
@pytest.mark.usefixtures("memory_backed")
def test_stopped_under_load_and_moved(totals: Totals, tmp_path: Path) -> None:
    """``--stop`` ends a busy query between two epochs with nothing in doubt. The same query goes on
    in another place, into the same topic: no epoch is missing, none is doubled. The place that it
    left refuses to start. With state that Spark keeps in memory and in delta files.
    """
    enough = threading.Event()

    def produce() -> None:
        while not enough.wait(0.1):
            totals.source.produce(totals.bootstrap_servers, 20)

    producer = threading.Thread(target=produce)
    savepoint = tmp_path / "savepoint"
    moved = dataclasses.replace(
        totals.at(tmp_path / "moved", totals.output), offsets_max=3000
    )  # much may have come
    to = ("--checkpoint", totals.checkpoint, "--to", savepoint)
    try:
        with totals.running() as query:
            producer.start()
            typed("savepoint", "create", *to, "--stop", status=0)
            assert not query.isActive
            assert query.exception() is None, "a stop is no failure"
    finally:
        enough.set()
        producer.join()
    # What came last may have been read just before the stop.
    totals.source.produce(totals.bootstrap_servers, 20)
    made = verify(Folder(savepoint))
    assert not totals.caught_up(), "it was stopped in the middle of its work"
    assert made.batch_id == totals.last() == totals.logs.decided()
    assert list((totals.checkpoint / "exactum" / "requests").iterdir()) == []
    assert {Path(file.path).suffix for file in made.files} & {".delta", ".snapshot"}

    restore = ("savepoint", "restore", savepoint, "--checkpoint", moved.checkpoint, "--as", "same")
    typed(*restore, status=0)
    assert "is retired" in (totals.run() or ""), "two queries of one identity"
    assert moved.run() is None
    assert moved.query_id == made.query_id
    every = {key: [*values] for key, values in totals.expected().items()}
    for key, values in moved.expected(first=made.batch_id + 1).items():
        every.setdefault(key, []).extend(values)
    assert moved.written() == every
    assert {key: values[-1] for key, values in every.items()} == moved.final()
    assert "was made of this savepoint before" in typed(*restore, status=0).output


def test_a_fork_beside_its_parent(broker: Broker, totals: Totals, tmp_path: Path) -> None:
    """Parent and fork run at the same time: no transactional id of the one is one of the other,
    and both are exact.
    """
    with totals.running():
        made = create(str(totals.checkpoint), tmp_path / "savepoint")
        fork = totals.at(tmp_path / "fork", broker.topic("forked", partitions=3))
        restore(tmp_path / "savepoint", str(fork.checkpoint))
        with fork.running():
            totals.source.produce(totals.bootstrap_servers, 60)
            await_true(lambda: totals.caught_up() and fork.caught_up(), "both read all input")
    totals.check_exact()
    fork.check_exact(first=made.batch_id + 1)
    admin = KafkaAdminClient(bootstrap_servers=broker.servers)
    try:
        known = [t.transactional_id for each in admin.list_transactions().values() for t in each]
    finally:
        admin.close()
    parents, forks = ({i for i in known if one.query_id in i} for one in (totals, fork))
    assert parents and forks and not parents & forks
    assert totals.query_id != fork.query_id
