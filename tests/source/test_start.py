"""Every start position and every rule of precedence, on a real broker; what was read is the
oracle, and the log.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession

import exactum
from exactum.errors import ExactumError, SettingRefused, Unavailable
from exactum.spark.source import positions, read_kafka
from tests.kit.errors import check_facts, raised
from tests.kit.kafka.broker import Broker
from tests.kit.kafka.transactions import wait_for_rest
from tests.kit.source.source_stream import EPOCH_MS, Stream, Topics
from tests.kit.waiting import WAIT_MAX_S

pytestmark = [pytest.mark.broker, pytest.mark.spark]

RECORDS = 10
AT_4 = datetime.fromtimestamp(EPOCH_MS / 1000 + 4, timezone.utc)
EARLY, LATE = EPOCH_MS + 4001, EPOCH_MS + 1_000_000
RESET = "not named: auto_offset_reset=latest"
NO_OFFSET = "group 'G' has no offset: auto_offset_reset=earliest"

POSITIONS: dict[str, tuple[dict[str, Any], dict[int, int], list[str]]] = {
    # how it is started; the first offset that is read of each partition; what the log says of each
    "default": ({}, {0: 0, 1: 0}, ["earliest"]),
    "default with group": ({"group_id": "G"}, {0: 7, 1: 0}, ["group 'G'", NO_OFFSET]),
    "group, reset to latest": (
        {"group_id": "G", "start": "group", "auto_offset_reset": "latest"},
        {0: 7, 1: 10},
        ["group 'G'", "group 'G' has no offset: auto_offset_reset=latest"],
    ),
    "earliest with group": (
        {"group_id": "G", "start": "earliest"},
        {0: 0, 1: 0},
        ["earliest"],
    ),
    "latest": ({"start": "latest"}, {0: 10, 1: 10}, ["latest"]),
    "datetime": ({"start": AT_4}, {0: 4, 1: 4}, [f"first record at or after {AT_4}"] * 2),
    "between records": ({"start": EARLY}, {0: 5, 1: 5}, [f"first record at or after {EARLY}"] * 2),
    "later than all": ({"start": LATE}, {0: 10, 1: 10}, [f"no record since {LATE}: end"] * 2),
    "offsets": ({"start": {"T": {0: 3, 1: 8}}}, {0: 3, 1: 8}, ["given", "given"]),
    "offsets and group": (
        {"group_id": "G", "start": {"T": {1: 8}}},
        {0: 7, 1: 8},
        ["group 'G'", "given"],
    ),
    "offsets and reset": (
        {"start": {"T": {1: 8}}, "auto_offset_reset": "latest"},
        {0: 10, 1: 8},
        [RESET, "given"],
    ),
    "offset at the end": ({"start": {"T": {0: 10, 1: 9}}}, {0: 10, 1: 9}, ["given", "given"]),
    "pattern and group": (
        {"topics": "pattern", "group_id": "G"},
        {0: 7, 1: 0},
        ["group 'G'", NO_OFFSET],
    ),
    "assignment": ({"topics": "assigned", "start": {"T": {1: 6}}}, {1: 6}, ["given"]),
}
TWICE = ("default with group", "latest", "later than all", "assignment")
"""These are started again, also such as had nothing to read at first."""


@dataclass(frozen=True)
class Started:
    """What came of one way to start: the rows of all its runs, and the log's line."""

    topic: str
    rows: list[tuple[str, int, int]]
    line: str


@pytest.fixture(scope="module")
def started(
    spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Started]:
    """Every way of the table, started at the same time; after one more record in each partition
    some of them once more.
    """
    topics, name = Topics(broker.kafka), "positions"
    broker.kafka.create_topic(name, partitions=2)
    topics.give(name, RECORDS)
    topics.commit("G", name, {0: 7})
    streams = {
        case: Stream(spark, broker.kafka, tmp_path_factory.mktemp("start")) for case in POSITIONS
    }
    lines: list[str] = []
    said: dict[str, str] = {}
    handler = logging.Handler(logging.INFO)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("exactum")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        for cases in (POSITIONS, TWICE):
            queries = []
            for case in cases:
                arguments = {"commit_offsets": False, **POSITIONS[case][0]}
                forms = {"pattern": re.compile("position."), "assigned": {name: [1]}}
                what = forms.get(arguments.pop("topics", ""), name)
                if isinstance(arguments.get("start"), dict):
                    arguments["start"] = named(arguments["start"], name)
                frame = streams[case].read(what, **arguments)
                said.setdefault(case, [line for line in lines if line.startswith("read_")][-1])
                queries.append((streams[case], streams[case].start(frame, availableNow=True)))
            for one, query in queries:
                assert one.end(query) is None
            topics.give(name, 1)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    return {case: Started(name, one.rows(), said[case]) for case, one in streams.items()}


def named(offsets: dict[str, Any], topic: str) -> dict[str, Any]:
    """Offsets of the topic T as offsets of ``topic``."""
    return {topic if name == "T" else name: own for name, own in offsets.items()}


@pytest.mark.parametrize("case", POSITIONS)
def test_start_position(case: str, started: dict[str, Started]) -> None:
    """A new query begins exactly there in each partition, the log says where and why, and the
    next run goes on.
    """
    _, first, why = POSITIONS[case]
    seen, end = started[case], RECORDS + (case in TWICE)
    assert seen.rows == [
        (seen.topic, p, o) for p, begin in first.items() for o in range(begin, end)
    ]
    where = ", ".join(
        f"{seen.topic}-{p} at {'its first record' if w.endswith('=earliest') else o} ({w})"
        for (p, o), w in zip(first.items(), why, strict=False)
    )
    begun = f"all partitions at {why[0]}" if why[0] in ("earliest", "latest") else where
    assert seen.line == f"read_kafka: a query without a checkpoint begins with {begun}"


@pytest.mark.parametrize(
    ("sink", "first", "then", "begins"),
    [
        ("no such topic", "earliest", {0: 5, 1: 5}, 5),
        ("no such topic", "latest", "earliest", 0),
        ("no answer", "latest", "latest", RECORDS),
    ],
)
def test_a_start_behind_one_that_failed(
    stream: Any, topics: Any, sink: str, first: Any, then: Any, begins: int
) -> None:
    """Spark had planned the first micro-batch, with the position of then. That goes with a refusal,
    which somebody mends, and stays where a start is only repeated.
    """
    name = topics.topic("orders", partitions=2)
    topics.give(name, RECORDS)
    out: Any = exactum.FileSink("/proc/none", format="json")
    if sink == "no such topic":
        out = exactum.KafkaSink("none", bootstrap_servers=topics.servers)
    frame = stream.read(name, start=first).select("value")
    with pytest.raises(ExactumError):
        exactum.exactly_once(out).start(frame.writeStream, checkpoint=stream.checkpoint)
    topics.give(name, RECORDS)
    start = {name: then} if isinstance(then, dict) else then
    frame = stream.read(name, start=start)
    assert stream.end(lambda: stream.start(frame, availableNow=True)) is None
    assert stream.rows() == [(name, p, o) for p in range(2) for o in range(begins, 2 * RECORDS)]


@pytest.mark.deep
def test_checkpoint_takes_precedence(stream: Any, topics: Any) -> None:
    """Whatever start= says by then, a query goes on from its checkpoint, also if the start is
    impossible now.
    """
    name = topics.topic("precedence", partitions=1)
    topics.give(name, 6, partitions=1)
    assert stream.run(stream.read(name, start={name: {0: 4}})) is None
    for start in ("earliest", "latest", {name: {0: 999}}, EPOCH_MS):
        topics.give(name, 1, partitions=1)
        assert stream.run(stream.read(name, start=start)) is None
    assert stream.rows() == [(name, 0, offset) for offset in range(4, 10)]


@pytest.fixture(scope="module")
def name(broker: Broker) -> str:
    """A topic of two partitions that nobody reads."""
    return broker.topic("unread", partitions=2)


UNREACHABLE: list[tuple[dict[str, Any], str]] = [
    ({"start": {"T": {0: 99, 1: 0}}}, "at 99 (given): it has the offsets 1 to 2"),
    ({"start": {"T": {0: 0, 1: 0}}}, "at 0 (given): it has the offsets 1 to 2"),
    ({"group_id": "far"}, "at 99 (group 'far'): it has the offsets 1 to 2"),
    (
        {"group_id": "new", "auto_offset_reset": "none"},
        "(group 'new' has no offset): auto_offset_reset is none",
    ),
    (
        {"start": {"T": {1: 0}}, "auto_offset_reset": "none"},
        "(not named): auto_offset_reset is none",
    ),
]


@pytest.mark.deep
def test_new_query_out_of_reach(
    make_stream: Callable[[], Any], topics: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A new query that cannot begin where it is told to stops with the reason, and leaves no
    position behind.
    """
    name = topics.topic("reach", partitions=2)
    topics.give(name, 2)
    topics.delete_before(name, 0, 1)
    topics.commit("far", name, {0: 99})
    streams = []
    for arguments, said in UNREACHABLE:
        given = dict(arguments)
        if "start" in given:
            given["start"] = named(given["start"], name)
        stream = make_stream()
        streams.append((stream, stream.start(stream.read(name, **given), availableNow=True), said))
    for stream, query, said in streams:
        assert f"exactum refuses to start {name}-0 {said}" in (stream.end(query) or "")
        assert said in caplog.text
        assert stream.rows() == []
    again = [
        (stream, stream.start(stream.read(name), availableNow=True)) for stream, _, _ in streams
    ]
    for stream, query in again:
        assert stream.end(query) is None, "the same checkpoint, with a start that is possible"
        assert stream.rows() == [(name, 0, 1), (name, 1, 0), (name, 1, 1)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"start": datetime(2026, 1, 1)}, ["start=", "timezone.utc"]),  # noqa: DTZ001
        ({"stop": datetime(2026, 1, 1)}, ["stop=", "timezone.utc"]),  # noqa: DTZ001
        ({"start": "yesterday"}, ["start='yesterday'"]),
        ({"start": True}, ["start=True"]),
        ({"start": 1.5}, ["start=1.5"]),
        ({"start": -1}, ["start=-1", "1970"]),
        (
            {"start": datetime(1969, 12, 31, 23, 59, 59, 999_000, timezone.utc)},
            ["start=datetime.datetime(1969", "1970"],
        ),
        ({"start": EPOCH_MS + 10**9}, [f"start={EPOCH_MS + 10**9}"]),
        ({"stop": datetime(2999, 1, 1, tzinfo=timezone.utc)}, ["stop=datetime.datetime(2999"]),
        ({"start": {}}, ["start={}", "'orders'"]),
        ({"start": {"T": 3}}, ["start={", ": 3}", "'orders'"]),
        ({"start": {("T", 0): 3}}, ["start={", "'orders'"]),
        ({"start": {"T": {0: -2}}}, ["start={", "{0: -2}", "'orders'"]),
        ({"start": {"T": {0: "3"}}}, ["start={", "{0: '3'}", "'orders'"]),
        ({"start": {"T": {7: 0}}}, ["start=", "-7"]),
        ({"start": {"other": {0: 0}}}, ["start=", "other-0"]),
        ({"start": "group"}, ["start='group'", "group_id="]),
        ({"group_id": " "}, ["group_id"]),
        ({"group_id": "g", "auto_offset_reset": "smallest"}, ["auto_offset_reset='smallest'"]),
        ({"commit_offsets": True}, ["commit_offsets=True", "group_id="]),
        ({"stop": "earliest"}, ["stop='earliest'"]),
        ({"stop": {"T": {0: 1}}}, ["stop=", "-1"]),
        ({"exactum.group.id": "g"}, ["'exactum.group.id'"]),
        (
            {"kafka.ssl.truststore.location": "x.jks", "group_id": "g"},
            ["kafka.ssl.truststore.location", "client="],
        ),
    ],
)
def test_refused_at_once(
    arguments: dict[str, Any], said: list[str], stream: Any, name: str
) -> None:
    """What can never be meant is refused by read_kafka itself."""
    given = {k: named(v, name) if isinstance(v, dict) else v for k, v in arguments.items()}
    of_client = any(setting.startswith("kafka.") for setting in given)
    with raised(SettingRefused, "KAFKA_SETTING" if of_client else "SOURCE_ARGUMENT", *said):
        stream.read(name, **given)


@pytest.mark.parametrize("start", [{"start": "earliest"}, {"start": "latest"}, {"group_id": "g"}])
def test_no_such_topic(
    start: dict[str, Any], stream: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic or a partition that is not there is refused by name, with every kind of start."""
    monkeypatch.setattr(read_kafka, "NEW_TOPIC_S", 0.1)
    servers = stream.broker.servers
    with raised(SettingRefused, "SOURCE_TOPIC_MISSING", "nowhere", servers):
        stream.read([name, "nowhere"], **start)
    with raised(SettingRefused, "SOURCE_TOPIC_MISSING", f"{name}-5", servers):
        stream.read({name: [0, 5]}, **start)


@pytest.mark.variants(1)
@pytest.mark.parametrize(
    "start", [{"start": "earliest"}, {"start": "latest"}, {"start": 0}, {"group_id": "g"}]
)
def test_wrong_address(
    start: dict[str, Any], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody answers, read_kafka says so with the address, with every kind of start and of
    topics.
    """
    monkeypatch.setattr(read_kafka, "LOOK_TIMEOUT_MS", 1500)
    for topics in ("orders", re.compile("order.*")):
        with raised(Unavailable, "127.0.0.1:1", "Connection refused"):
            exactum.read_kafka(spark, topics, bootstrap_servers="127.0.0.1:1", **start)


def test_a_flag_in_a_patterns_text(stream: Any, topics: Any) -> None:
    small = topics.topic("flags-a", partitions=1)
    large = small.upper()
    topics.kafka.create_topic(large, partitions=1)
    for name in (small, large):
        topics.give(name, 3, partitions=1)
    assert stream.run(stream.read(re.compile(f"(?i){re.escape(small)}"))) is None
    assert {name for name, _, _ in stream.rows()} == {small, large}


def test_topic_made_a_moment_ago(stream: Any, topics: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that appears while read_kafka looks is not called missing."""
    monkeypatch.setattr(read_kafka, "NEW_TOPIC_S", WAIT_MAX_S)
    name = f"just-made-{time.time_ns()}"
    making = threading.Timer(0.7, stream.broker.kafka.create_topic, [name], {"partitions": 1})
    making.start()
    frame = stream.read(name, start="earliest")
    making.join()
    topics.give(name, 3, partitions=1)
    assert stream.run(frame) is None
    assert len(stream.rows()) == 3


def test_pattern_of_nothing(stream: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A pattern may wait for its first topic; the log says that there is none yet, and where."""
    stream.read(re.compile("no-such-topic-.*"))
    assert f"no topics matching 'no-such-topic-.*' at {stream.broker.servers} yet" in caplog.text


def test_a_start_behind_an_open_transaction(make_stream: Callable[[], Any], topics: Any) -> None:
    """Records behind an open transaction are neither left out nor read too early: a new query does
    not start there before it has ended.
    """
    name = topics.topic("open", partitions=1)
    topics.give(name, 5, partitions=1)
    with topics.open_transaction(name) as transaction:
        topics.give(name, 5, partitions=1)  # the offsets 6 to 10
        stream, start = make_stream(), EPOCH_MS + 8000
        error = stream.run(stream.read(name, start=start)) or ""
        check_facts(error, f"{name}-0", 8, "transaction", 5)
        assert stream.rows() == []
        transaction.commit_transaction(WAIT_MAX_S)
    wait_for_rest(stream.broker.servers, [TopicPartition(name, 0)])  # its marker is written
    assert stream.run(stream.read(name, start=start)) is None
    assert [offset for _, _, offset in stream.rows()] == [8, 9, 10]


@pytest.mark.parametrize(("micros", "millis"), [(0, 0), (1, 1), (5_300, 6), (5_700, 6), (6_000, 6)])
def test_a_moment_between_two_milliseconds(micros: int, millis: int) -> None:
    """The first record at or after it is the first of the next one."""
    moment = datetime(2026, 11, 28, tzinfo=timezone.utc)
    whole_ms = round(moment.timestamp() * 1000)
    found = positions.milliseconds(moment + timedelta(microseconds=micros), "start")
    assert found == whole_ms + millis
