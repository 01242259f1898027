"""Decided, and timed out by the broker before the commit: the records are brought back. Without
Spark.
"""

from __future__ import annotations

import json
import re
import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition

from exactum.errors import CheckpointRefused, EpochAborted, HeuristicOutcome
from exactum.events import TransactionsSalvaged
from exactum.local import LocalKafka
from exactum.testing import Crash
from tests.kit.crash.epochs import Hold, Moment, Query, crash, rows
from tests.kit.crash.oracle import check_at_rest, ongoing, read_all
from tests.kit.errors import raised
from tests.kit.kafka.broker import Broker
from tests.kit.transactions.operator import accept
from tests.kit.waiting import WAIT_MAX_S, await_true

pytestmark = pytest.mark.broker

TIMEOUT_MS = 6_000
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


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
def all_expired(
    kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> dict[str, Expired]:
    """One for each case that is played; they all wait for their timeout together."""
    cases = {}
    for case in played_cases(request):
        topic = Broker(kafka).topic("salvage", partitions=3)
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
        while not dies(query, when, cases[case].frames()):
            print("the broker was faster than this machine")
    for case, each in cases.items():
        each.await_expiry()
        if case != "twice":  # which is to expire once more
            each.query.wait_for_slow_servers()
    return cases


def dies(query: Query, when: Moment, frames: Sequence[pa.RecordBatch]) -> bool:
    """False: what it had open was timed out before it was decided."""
    try:
        with query.driver({when: crash}) as driver:
            driver.epoch(0, *frames)
    except Crash:
        return True
    except EpochAborted:
        return False
    raise AssertionError("it lives")


def played_cases(request: pytest.FixtureRequest) -> list[str]:
    """The parameters ``case`` of this file's tests, each once."""
    own = [item for item in request.session.items if item.path == request.path]
    return [*dict.fromkeys(item.callspec.params["case"] for item in own)]  # type: ignore[attr-defined]


@pytest.fixture
def expired(all_expired: dict[str, Expired], case: str) -> Expired:
    return all_expired[case]


@pytest.mark.variants(1)
@pytest.mark.parametrize("case", COMPRESSIONS)
def test_all_records_come_back(expired: Expired) -> None:
    """Keys, values, nulls, headers, partitions and order: as they were sent. The events say what
    happened.
    """
    expired.check_nothing_visible()
    with expired.query.driver() as driver:
        assert driver.epoch(0, *expired.frames()).written is False
        assert driver.names() == [
            "TransactionsExpired",
            "TransactionsSalvaged",
            "EpochRedelivered",
            "OlderRunsFenced",
        ]
        (event,) = [e for e in driver.events if isinstance(e, TransactionsSalvaged)]
        assert event.rows == sum(map(len, TASKS))
        expired.check_exact()
        assert driver.epoch(1, rows([{"value": b"next"}])).written is True
    assert len(expired.query.values()) == sum(map(len, TASKS)) + 1


@pytest.mark.deep
@pytest.mark.parametrize(
    ("case", "moment"),
    [("before the record", ("decide", "before")), ("after the record", ("decide", "after"))],
)
def test_killed_in_the_middle_of_a_salvage(
    expired: Expired, case: str, moment: tuple[str, str]
) -> None:
    """The copy was written, its record was not made, or was made and not carried out: still
    exactly once.
    """
    with expired.query.driver({moment: crash}) as driver, pytest.raises(Crash):
        driver.epoch(0, *expired.frames())
    expired.check_nothing_visible()
    with expired.query.driver() as driver:
        driver.epoch(0, *expired.frames())
        assert ("TransactionsSalvaged" in driver.names()) is (case == "before the record")
    expired.check_exact()


@pytest.mark.deep
@pytest.mark.parametrize("case", ["twice"])
def test_the_salvaged_copy_expires_as_well(expired: Expired) -> None:
    """A salvage that is recorded and then times out itself is salvaged again."""
    with expired.query.driver({("decide", "after"): crash}) as driver, pytest.raises(Crash):
        driver.epoch(0, *expired.frames())
    expired.await_expiry()
    with expired.query.driver() as driver:
        driver.epoch(0, *expired.frames())
        assert "TransactionsSalvaged" in driver.names()
    expired.check_exact()


@pytest.mark.parametrize("case", ["half"])
def test_a_committed_half_is_not_written_again(expired: Expired) -> None:
    """One task's transaction was committed before the crash, the other one expired: only that is
    salvaged.
    """
    assert len(read_all(expired.servers, [expired.query.topic])) == len(TASKS[0])
    with expired.query.driver() as driver:
        driver.epoch(0, *expired.frames())
        (event,) = [e for e in driver.events if isinstance(e, TransactionsSalvaged)]
        assert event.rows == len(TASKS[1])
    expired.check_exact()


@pytest.mark.deep
@pytest.mark.parametrize(
    ("case", "held"), [("two drivers", ("salvage", "before")), ("late loser", ("decide", "before"))]
)
def test_two_drivers_salvage_the_same_epoch(expired: Expired, held: tuple[str, str]) -> None:
    """One is held before it writes its copy, or before it records it, while the other one does
    it all.
    """
    hold = Hold()
    failures: list[BaseException] = []

    def slow() -> None:
        try:
            with expired.query.driver({held: hold}) as driver:
                driver.epoch(0, *expired.frames())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=slow)
    thread.start()
    assert hold.reached.wait(WAIT_MAX_S), failures
    with expired.query.driver() as driver:
        driver.epoch(0, *expired.frames())
    hold.go.set()
    thread.join(WAIT_MAX_S)
    assert not failures, failures
    expired.check_exact()


@pytest.mark.parametrize("case", ["partly gone"])
def test_records_that_left_the_log_stop_the_query(expired: Expired) -> None:
    """It stops, says how many records of which partitions are missing, shows nothing, and says
    so again.
    """
    topic = expired.query.topic
    admin = expired.kafka.admin()  # kept: its answers come only while it lives
    for future in admin.delete_records([TopicPartition(topic, 1, 250)]).values():
        future.result(WAIT_MAX_S)
    for _ in range(2):
        with expired.query.driver() as driver, pytest.raises(HeuristicOutcome) as raised:
            driver.epoch(0, *expired.frames())
        message = str(raised.value)
        print(message)
        assert re.search(rf"{topic}-1: \d+ of 503 records from offset 0", message)
        assert f"{topic}-0: " not in message
        assert "epoch 0" in message
        assert not ongoing(expired.servers, expired.query.query_id), "its own copy is left open"
        expired.check_nothing_visible()


def stopped(it: Expired) -> None:
    """All that the topic holds is deleted, and the next start says so."""
    Broker(it.kafka).empty(it.query.topic, partitions=3)
    with it.query.driver() as driver, pytest.raises(HeuristicOutcome):
        driver.epoch(0, *it.frames())


@pytest.mark.deep
@pytest.mark.parametrize("case", ["run again"])
def test_a_batch_of_which_nothing_was_visible_is_run_again(expired: Expired) -> None:
    """One way on of docs/guarantees.md. Each record is there once, without a hand's help."""
    stopped(expired)
    commit_record(expired).rename(expired.query.folder.parent / "aside")
    with expired.query.driver() as driver:
        assert driver.epoch(0, *expired.frames()).written is True
    expired.check_exact()


@pytest.mark.parametrize("case", ["half gone"])
def test_a_batch_that_was_visible_in_part_is_kept_as_decided(
    expired: Expired, tmp_path: Path
) -> None:
    """The other way, by the command that the page names. To run the batch again is refused."""
    assert len(read_all(expired.servers, [expired.query.topic])) == len(TASKS[0]), (
        "what readers have seen"
    )
    stopped(expired)
    record, aside = commit_record(expired), expired.query.folder.parent / "aside"
    record.rename(aside)
    with expired.query.driver() as driver, raised(CheckpointRefused, "ENDS_DIFFER", "batch 0"):
        driver.epoch(0, *expired.frames())
    aside.rename(record)
    (tmp_path / "metadata").write_text(json.dumps({"id": expired.query.query_id}))
    logs, sink = expired.query.folder.parent, f"kafka:{expired.query.topic}"
    accept(tmp_path, 0, "--decision-log", logs, "--without", sink)
    with expired.query.driver() as driver:
        assert driver.epoch(0, *expired.frames()).written is False
        assert driver.epoch(1, rows([{"value": b"next"}])).written is True
    assert expired.query.values() == ["next"]


def commit_record(it: Expired) -> Path:
    """Of epoch 0, which has one."""
    records = sorted(it.query.folder.glob(f"{0:020d}-*.json"))
    (found,) = [path for path in records if json.loads(path.read_text())["decision"] == "commit"]
    return found
