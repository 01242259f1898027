"""Rows that Kafka can never take are handed back, each with its key, its column and the reason; all
others are written.

Whatever a row holds, it arrives exactly or is handed back: never altered, never an error of the
task.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pytest

from exactum.errors import RowsRefused, SettingRefused
from exactum.kafka import topic as topic_facts
from exactum.kafka.messages import HEADERS
from exactum.kafka.sink import KafkaSink
from exactum.kafka.topic import TopicBook
from exactum.protocol.sink import Guarantee, Rejection
from tests.kit.errors import raised
from tests.kit.kafka.broker import Broker
from tests.kit.kafka.transactions import OpenedSink, frame, opened
from tests.kit.waiting import await_true

pytestmark = pytest.mark.broker

NOT_UTF8 = b"\xff\xfe"


@pytest.fixture(autouse=True)
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one broker of the tests knows at once which topics there are."""
    monkeypatch.setattr(topic_facts, "PAUSE_S", 0.2)


def text(values: Sequence[bytes | None]) -> pa.Array:
    """A column of strings with just these bytes, valid UTF-8 or not: Spark's strings may hold
    any.
    """
    raw = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers(), raw.null_count)


def written(sink: OpenedSink, batch: pa.RecordBatch) -> Rejection | None:
    """Write and commit the batch; what was handed back."""
    sink.rejections.clear()
    sink.epoch(batch)
    return sink.rejections[0] if sink.rejections else None


def refused(rejection: Rejection | None) -> dict[bytes | None, str]:
    """The reason for each key that was handed back."""
    assert rejection is not None
    keys = rejection.rows.column("key").cast(pa.binary()).to_pylist()
    assert len(keys) == len(set(keys)) == len(rejection.reasons)
    return dict(zip(keys, rejection.reasons, strict=True))


@pytest.mark.parametrize("guarantee", [Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE])
def test_a_topic_that_no_record_can_go_to(broker: Broker, guarantee: Guarantee) -> None:
    """Null, empty, illegal, endless, not UTF-8, unknown, or Kafka's own: the row is handed back,
    the others arrive.
    """
    good = broker.topic("named", partitions=1)
    odd: dict[bytes, tuple[bytes | None, str]] = {
        b"null": (None, "null"),
        b"empty": (b"", "empty"),
        b"nul": (good.encode() + b"\0x", "may have"),
        b"blank": (b"a b", "may have"),
        b"slash": (b"a/b", "may have"),
        b"umlaut": ("ä".encode(), "may have"),
        b"dot": (b".", "may not be"),
        b"dots": (b"..", "may not be"),
        b"long": (b"x" * 250, "250 characters"),
        b"endless": (b"x" * 600, "600 characters"),
        b"bytes": (NOT_UTF8, "may have"),
        b"unknown": (b"never-made", "does not exist"),
        b"internal": (b"__consumer_offsets", "Kafka's own"),
    }
    names = [good.encode(), *(name for name, _ in odd.values()), good.encode()]
    batch = frame([b"v"] * len(names), [b"first", *odd, b"last"], topic=text(names))
    with opened(KafkaSink(bootstrap_servers=broker.servers), guarantee=guarantee) as sink:
        reasons = refused(written(sink, batch))
    assert reasons.keys() == odd.keys()
    for key, (_, reason) in odd.items():  # each names the row, the column and what is wrong
        assert repr(key) in reasons[key]
        assert "column 'topic'" in reasons[key]
        assert reason in reasons[key]
    assert [record.key for record in broker.read(good)] == [b"first", b"last"]


def test_an_unknown_topic_is_waited_for_once(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it may have been made a moment ago. A row that names it in a later task is asked for, and
    does not wait.
    """
    good, asked = broker.topic("named-too", partitions=1), []
    learn = TopicBook._learn

    def counted(book: TopicBook, names: Iterable[str]) -> None:
        asked.append(sorted(names))
        learn(book, names)

    monkeypatch.setattr(TopicBook, "_learn", counted)
    unknown = ["unknown-1", "unknown-2"]
    names = [name.encode() for name in (good, *unknown)]
    batch = frame([b"v"] * 3, [b"a", b"b", b"c"], topic=text(names))
    with opened(KafkaSink(bootstrap_servers=broker.servers)) as sink:
        for _ in range(3):
            assert refused(written(sink, batch)).keys() == {b"b", b"c"}
    assert asked == [[good, *unknown], unknown, [good, *unknown], [good, *unknown]]
    assert len(broker.read(good)) == 3


def test_a_topic_made_a_moment_ago_is_found(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a row that names it waits, and by the next task where a row named it before."""
    names = ["made-" + broker.topic(x, partitions=1) for x in "xy"]
    batches = [frame([b"v"], [b"k"], topic=text([name.encode()])) for name in names]
    learn = TopicBook._learn

    def late(book: TopicBook, asked: Iterable[str]) -> None:
        learn(book, asked)
        if names[0] in asked:
            broker.kafka.create_topic(names[0], partitions=1)
            monkeypatch.setattr(TopicBook, "_learn", learn)

    with opened(KafkaSink(bootstrap_servers=broker.servers)) as sink:
        monkeypatch.setattr(topic_facts, "PAUSE_S", 2.0)
        monkeypatch.setattr(TopicBook, "_learn", late)
        assert written(sink, batches[0]) is None
        monkeypatch.setattr(topic_facts, "PAUSE_S", 0.2)
        assert refused(written(sink, batches[1])).keys() == {b"k"}
        broker.kafka.create_topic(names[1], partitions=1)
        await_true(lambda: written(sink, batches[1]) is None, "the next task finds the other one")
    assert [len(broker.read(name)) for name in names] == [1, 1]


def test_a_partition_that_was_added_while_the_query_runs(broker: Broker) -> None:
    """Before a row is handed back, the broker is asked again."""
    name = broker.topic("grows", partitions=1)
    with opened(broker.sink(name)) as sink:
        assert written(sink, frame([b"v"], [b"0"], partition=pa.array([0], pa.int32()))) is None
        broker.grow(name, 3)
        assert written(sink, frame([b"v"], [b"2"], partition=pa.array([2], pa.int32()))) is None
    assert {record.key: record.partition for record in broker.read(name)} == {
        b"0": 0,
        b"2": 2,
    }


@pytest.mark.parametrize("name", ["orders\0x", "x" * 600, "a b", ".", "ä", "\ud800"])
def test_a_sink_whose_topic_no_broker_can_have(name: str) -> None:
    """Refused when it is made, with the rule."""
    with raised(SettingRefused, "KAFKA_ARGUMENT", f"KafkaSink({name!r})", "topic"):
        KafkaSink(name, bootstrap_servers="h:1")


@pytest.mark.parametrize("with_headers", [False, True])
def test_a_topic_that_became_compacted_while_the_query_runs(
    broker: Broker, with_headers: bool
) -> None:
    """What only the broker can know is no reason to try again: the error says that rows are
    refused, and which. It stands in the delivery report, of a record with headers as well.
    """
    name = broker.topic("turns", partitions=1)
    with opened(broker.sink(name)) as sink:
        broker.configure(name, "cleanup.policy", "compact")
        some = pa.array([[("a", b"1")], None], HEADERS)
        more = {"headers": some} if with_headers else {}
        with raised(RowsRefused, "ROWS_REFUSED", "INVALID_RECORD", name, "compacted"):
            sink.write(frame([b"v", b"w"], [b"k", None], **more))
