"""Decided, and timed out by the broker before the commit: the records are brought back. Without
Spark.
"""

from __future__ import annotations

import json
import re
import threading
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition

from exactum.errors import CheckpointRefused, HeuristicOutcome
from exactum.events import TransactionsSalvaged
from exactum.local import LocalKafka
from tests.kit.crash.epochs import Crash, Hold, Query, crash, rows
from tests.kit.crash.oracle import check_at_rest, end_offsets, ongoing, read_all
from tests.kit.errors import raised
from tests.kit.transactions.operator import accept
from tests.kit.waiting import WAIT_MAX_S, await_true

pytestmark = pytest.mark.broker

TIMEOUT_MS = 6_000
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
OTHERS = (
    "before the record",
    "after the record",
    "two drivers",
    "late loser",
    "half",
    "gone",
    "partly gone",
    "half gone",
    "twice",
)


def records(task: int) -> list[dict[str, Any]]:
    """Every shape of record, several batches of them, in three partitions."""
    shapes: list[dict[str, Any]] = [
        {"key": b"k", "value": b"plain"},
        {"key": None, "value": b"no key"},
        {"key": b"tombstone", "value": None},
        {"key": None, "value": None},
        {"key": b"", "value": b""},
        {"key": b"h", "value": b"one", "headers": [("trace", b"\x00\xff")]},
        {
            "key": b"h",
            "value": b"more",
            "headers": [("a", b"1"), ("a", b"2"), ("b", None), ("", b"")],
        },
        {"key": b"big", "value": bytes(range(256)) * 40},
        {"key": b"\xff\xfe", "value": b"\xff\x00 binary"},
    ]
    numbered = [{"key": b"n", "value": f"{task}-{n:05d}-{'x' * 90}".encode()} for n in range(1500)]
    return [{**r, "partition": n % 3} for n, r in enumerate(shapes + numbered)]


TASKS = [records(0), records(1)]


def shown(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")


def expected() -> dict[int, list[tuple[Any, ...]]]:
    """By partition, sorted: the tasks' order among each other is free."""
    result = defaultdict(list)
    for task in TASKS:
        for r in task:
            result[r["partition"]].append(
                (shown(r["key"]), shown(r["value"]), tuple(r.get("headers", ())))
            )
    return result


@dataclass
class Expired:
    """A query whose epoch 0 is decided, was never committed, and is aborted by the broker."""

    query: Query
    servers: str
    kafka: LocalKafka

    def frames(self) -> list[pa.RecordBatch]:
        return [rows(task) for task in TASKS]

    def check_exact(self) -> None:
        topic = self.query.topic
        check_at_rest(self.servers, [topic], self.query.query_id)
        seen = read_all(self.servers, [topic])
        for partition, wanted in expected().items():
            there = [(s.key, s.value, s.headers) for s in seen if s.partition == partition]
            assert sorted(there, key=repr) == sorted(wanted, key=repr)
            for task in TASKS:
                numbers = [
                    shown(r["value"])
                    for r in task
                    if r["key"] == b"n" and r["partition"] == partition
                ]
                assert [value for _, value, _ in there if value in set(numbers)] == numbers, (
                    "order within a task"
                )

    def check_nothing_visible(self) -> None:
        assert read_all(self.servers, [self.query.topic]) == []

    def await_expiry(self) -> None:
        await_true(
            lambda: not ongoing(self.servers, self.query.query_id),
            f"{self.query.query_id} is timed out by the broker",
        )


@pytest.fixture(scope="module")
def expired(kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Expired]:
    """One for each case; they all wait for their timeout together."""
    cases = {}
    for number, case in enumerate((*COMPRESSIONS, *OTHERS)):
        topic = f"salvage-{number}-{tmp_path_factory.getbasetemp().name}"
        kafka.create_topic(topic, partitions=3)
        producer = {
            "compression.type": case if case in COMPRESSIONS else "lz4",
            "batch.num.messages": 200,
        }
        query = Query(
            tmp_path_factory.mktemp("salvage"),
            topic,
            kafka.bootstrap_servers,
            transaction_timeout_ms=TIMEOUT_MS,
            producer=producer,
        )
        cases[case] = Expired(query, kafka.bootstrap_servers, kafka)
        when = ("commit", "half") if case.startswith("half") else ("commit", "before")
        with query.driver({when: crash}) as driver, pytest.raises(Crash):
            driver.epoch(0, *cases[case].frames())
    for case, each in cases.items():
        each.await_expiry()
        if case != "twice":  # which is to expire once more
            each.query.wait_for_slow_servers()
    return cases


@pytest.mark.variants(1)
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_all_records_come_back(expired: dict[str, Expired], compression: str) -> None:
    """Keys, values, nulls, headers, partitions and order: as they were sent. The events say what
    happened.
    """
    case = expired[compression]
    case.check_nothing_visible()
    with case.query.driver() as driver:
        assert driver.epoch(0, *case.frames()).written is False
        assert driver.names() == [
            "TransactionsExpired",
            "TransactionsSalvaged",
            "EpochRedelivered",
            "OlderRunsFenced",
        ]
        (event,) = [e for e in driver.events if isinstance(e, TransactionsSalvaged)]
        assert event.rows == sum(map(len, TASKS))
        case.check_exact()
        assert driver.epoch(1, rows([{"value": b"next"}])).written is True
    check_at_rest(case.servers, [case.query.topic], case.query.query_id)
    assert len(read_all(case.servers, [case.query.topic])) == sum(map(len, TASKS)) + 1


@pytest.mark.deep
@pytest.mark.parametrize(
    ("case", "moment"),
    [("before the record", ("decide", "before")), ("after the record", ("decide", "after"))],
)
def test_killed_in_the_middle_of_a_salvage(
    expired: dict[str, Expired], case: str, moment: tuple[str, str]
) -> None:
    """The copy was written, its record was not made, or was made and not carried out: still
    exactly once.
    """
    it = expired[case]
    with it.query.driver({moment: crash}) as driver, pytest.raises(Crash):
        driver.epoch(0, *it.frames())
    it.check_nothing_visible()
    with it.query.driver() as driver:
        driver.epoch(0, *it.frames())
        assert ("TransactionsSalvaged" in driver.names()) is (case == "before the record")
    it.check_exact()


@pytest.mark.deep
def test_the_salvaged_copy_expires_as_well(expired: dict[str, Expired]) -> None:
    """A salvage that is recorded and then times out itself is salvaged again."""
    it = expired["twice"]
    with it.query.driver({("decide", "after"): crash}) as driver, pytest.raises(Crash):
        driver.epoch(0, *it.frames())
    it.await_expiry()
    with it.query.driver() as driver:
        driver.epoch(0, *it.frames())
        assert "TransactionsSalvaged" in driver.names()
    it.check_exact()


def test_a_committed_half_is_not_written_again(expired: dict[str, Expired]) -> None:
    """One task's transaction was committed before the crash, the other one expired: only that is
    salvaged.
    """
    it = expired["half"]
    assert len(read_all(it.servers, [it.query.topic])) == len(TASKS[0])
    with it.query.driver() as driver:
        driver.epoch(0, *it.frames())
        (event,) = [e for e in driver.events if isinstance(e, TransactionsSalvaged)]
        assert event.rows == len(TASKS[1])
    it.check_exact()


@pytest.mark.deep
@pytest.mark.parametrize(
    ("case", "held"), [("two drivers", ("salvage", "before")), ("late loser", ("decide", "before"))]
)
def test_two_drivers_salvage_the_same_epoch(
    expired: dict[str, Expired], case: str, held: tuple[str, str]
) -> None:
    """One is held before it writes its copy, or before it records it, while the other one does
    it all.
    """
    it, hold = expired[case], Hold()
    failures: list[BaseException] = []

    def slow() -> None:
        try:
            with it.query.driver({held: hold}) as driver:
                driver.epoch(0, *it.frames())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=slow)
    thread.start()
    assert hold.reached.wait(WAIT_MAX_S), failures
    with it.query.driver() as driver:
        driver.epoch(0, *it.frames())
    hold.go.set()
    thread.join(WAIT_MAX_S)
    assert not failures, failures
    it.check_exact()


def delete_records(kafka: LocalKafka, offsets: dict[tuple[str, int], int]) -> None:
    asked = [
        TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()
    ]
    admin = kafka.admin()  # kept: its answers come only while it lives
    for future in admin.delete_records(asked).values():
        future.result(WAIT_MAX_S)


@pytest.mark.parametrize("case", [pytest.param("gone", marks=pytest.mark.deep), "partly gone"])
def test_records_that_left_the_log_stop_the_query(expired: dict[str, Expired], case: str) -> None:
    """It stops, says how many records of which partitions are missing, shows nothing, and says
    so again.
    """
    it, topic = expired[case], expired[case].query.topic
    ends = end_offsets(it.servers, [topic], committed=False)
    delete_records(it.kafka, ends if case == "gone" else {(topic, 1): 250})
    for _ in range(2):
        with it.query.driver() as driver, pytest.raises(HeuristicOutcome) as raised:
            driver.epoch(0, *it.frames())
        message = str(raised.value)
        print(message)
        assert re.search(rf"{topic}-1: \d+ of 503 records from offset 0", message)
        assert (f"{topic}-0: " in message) is (case == "gone")
        assert "epoch 0" in message
        assert not ongoing(it.servers, it.query.query_id), "its own copy is left open"
        it.check_nothing_visible()


def stopped(it: Expired) -> None:
    """All that the topic holds is deleted, and the next start says so."""
    delete_records(it.kafka, end_offsets(it.servers, [it.query.topic], committed=False))
    with it.query.driver() as driver, pytest.raises(HeuristicOutcome):
        driver.epoch(0, *it.frames())


@pytest.mark.deep
def test_a_batch_of_which_nothing_was_visible_is_run_again(expired: dict[str, Expired]) -> None:
    """One way on of docs/guarantees.md. Each record is there once, without a hand's help."""
    it = expired["gone"]
    stopped(it)
    commit_record(it).rename(it.query.folder.parent / "aside")
    with it.query.driver() as driver:
        assert driver.epoch(0, *it.frames()).written is True
    it.check_exact()


def test_a_batch_that_was_visible_in_part_is_kept_as_decided(
    expired: dict[str, Expired], tmp_path: Path
) -> None:
    """The other way, by the command that the page names. To run the batch again is refused."""
    it = expired["half gone"]
    assert len(read_all(it.servers, [it.query.topic])) == len(TASKS[0]), "what readers have seen"
    stopped(it)
    record, aside = commit_record(it), it.query.folder.parent / "aside"
    record.rename(aside)
    with it.query.driver() as driver, raised(CheckpointRefused, "ENDS_DIFFER", "batch 0"):
        driver.epoch(0, *it.frames())
    aside.rename(record)
    keep_as_decided(it, tmp_path)
    with it.query.driver() as driver:
        assert driver.epoch(0, *it.frames()).written is False
        assert driver.epoch(1, rows([{"value": b"next"}])).written is True
    check_at_rest(it.servers, [it.query.topic], it.query.query_id)
    assert [seen.value for seen in read_all(it.servers, [it.query.topic])] == ["next"]


def commit_record(it: Expired) -> Path:
    """Of epoch 0, which has one."""
    records = sorted(it.query.folder.glob(f"{0:020d}-*.json"))
    (found,) = [path for path in records if json.loads(path.read_text())["decision"] == "commit"]
    return found


def keep_as_decided(it: Expired, folder: Path) -> None:
    """By the command, as docs/guarantees.md says."""
    (folder / "metadata").write_text(json.dumps({"id": it.query.query_id}))
    logs, sink = it.query.folder.parent, f"kafka:{it.query.topic}"
    accept(folder, 0, "--decision-log", logs, "--without", sink)
