"""Rows become the records that Spark's own sink would have made, and stay invisible until the
commit.
"""

import re
import time

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from exactum.errors import FrameRefused, SettingRefused, Unavailable
from exactum.kafka.sink import KafkaSink
from exactum.protocol.sink import Guarantee, TaskName, WriteOrder
from tests.kit.kafka.transactions import Record, frame, opened, read_all
from tests.kit.waiting import WAIT_MAX_S

pytestmark = pytest.mark.broker


def test_null_and_empty_keys_and_values_arrive_as_they_are(kafka, topic) -> None:
    """A null value is a tombstone, an empty one is not."""
    name = topic("nulls", partitions=1)
    rows = [(b"k", b"v"), (b"k", None), (None, b"v"), (b"", b""), (None, None)]
    with opened(KafkaSink(name, bootstrap_servers=kafka.bootstrap_servers)) as sink:
        prepared = sink.write(frame([v for _, v in rows], [k for k, _ in rows]))
        assert read_all(kafka.bootstrap_servers, name, open_ones=True) == []
        verified = sink.participant.verify(prepared)
        report = sink.participant.commit(sink.permit(verified), verified)
    assert len(report.committed) == 1
    assert [(r.key, r.value) for r in read_all(kafka.bootstrap_servers, name)] == rows


def test_strings_binary_and_sliced_arrays_all_the_same(kafka, topic) -> None:
    """Arrow's string, binary and large types, whole or sliced, give the same bytes."""
    name = topic("types", partitions=1)
    texts = ["a", "", None, "ä" * 1000, "b"]
    whole = pa.record_batch({"value": pa.array(texts)})
    frames = [
        whole,
        pa.record_batch({"value": pa.array(texts, pa.large_string())}),
        pa.record_batch(
            {
                "value": pa.array(
                    [None if t is None else t.encode() for t in texts], pa.large_binary()
                )
            }
        ),
        pa.record_batch({"value": pa.array(["x", *texts, "y"])}).slice(1, 5),
    ]
    with opened(KafkaSink(name, bootstrap_servers=kafka.bootstrap_servers)) as sink:
        verified = sink.participant.verify(sink.write(*frames))
        sink.participant.commit(sink.permit(verified), verified)
    expected = [None if t is None else t.encode() for t in texts] * len(frames)
    assert [r.value for r in read_all(kafka.bootstrap_servers, name)] == expected


def test_headers_with_order_repeats_and_null(kafka, topic) -> None:
    """As Spark's sink writes them: several of one name, in order, null values kept."""
    name = topic("headers", partitions=1)
    type_ = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = [
        [{"key": "a", "value": b"1"}, {"key": "a", "value": b"2"}, {"key": "n", "value": None}],
        [],
        None,
        [{"key": "e", "value": b""}],
    ]
    batch = frame([b"0", b"1", None, b"3"], [b"k"] * 4, headers=pa.array(headers, type_))
    with opened(KafkaSink(name, bootstrap_servers=kafka.bootstrap_servers)) as sink:
        verified = sink.participant.verify(sink.write(batch))
        sink.participant.commit(sink.permit(verified), verified)
    assert [r.headers for r in read_all(kafka.bootstrap_servers, name)] == [
        (("a", b"1"), ("a", b"2"), ("n", None)),
        (),
        (),
        (("e", b""),),
    ]


def test_the_partition_column_counts_and_null_leaves_it_to_the_key(kafka, topic) -> None:
    """As in Spark's own sink."""
    name = topic("partitions", partitions=4)
    partitions = pa.array([3, 0, 2, None], pa.int32())
    batch = frame([b"a", b"b", b"c", b"d"], [b"k"] * 4, partition=partitions)
    with opened(KafkaSink(name, bootstrap_servers=kafka.bootstrap_servers)) as sink:
        verified = sink.participant.verify(sink.write(batch))
        sink.participant.commit(sink.permit(verified), verified)
    placed = {r.value: r.partition for r in read_all(kafka.bootstrap_servers, name)}
    assert (placed[b"a"], placed[b"b"], placed[b"c"]) == (3, 0, 2)


def test_keys_go_where_javas_partitioner_puts_them(kafka, topic) -> None:
    """murmur2 of the key, sign bit off, modulo: computed here by the text of Kafka's
    Utils.murmur2.
    """
    name = topic("murmur", partitions=4)
    keys = [f"key-{i}".encode() for i in range(200)]
    with opened(KafkaSink(name, bootstrap_servers=kafka.bootstrap_servers)) as sink:
        verified = sink.participant.verify(sink.write(frame([b"x"] * 200, keys)))
        sink.participant.commit(sink.permit(verified), verified)
    placed = {r.key: r.partition for r in read_all(kafka.bootstrap_servers, name)}
    assert placed == {key: (murmur2(key) & 0x7FFFFFFF) % 4 for key in keys}


def test_each_row_may_name_its_topic(kafka, topic) -> None:
    """One transaction over several topics; the order within each is kept."""
    first, second = topic("one", partitions=1), topic("two", partitions=1)
    names = [first, second, first, first, second]
    batch = frame([b"0", b"1", b"2", b"3", b"4"], None, topic=pa.array(names))
    with opened(KafkaSink(bootstrap_servers=kafka.bootstrap_servers)) as sink:
        verified = sink.participant.verify(sink.write(batch))
        assert len(verified) == 1
        sink.participant.commit(sink.permit(verified), verified)
    assert [r.value for r in read_all(kafka.bootstrap_servers, first)] == [b"0", b"2", b"3"]
    assert [r.value for r in read_all(kafka.bootstrap_servers, second)] == [b"1", b"4"]


def test_an_empty_partition_prepares_nothing(kafka, topic) -> None:
    """An empty transaction could not be committed: the broker would answer INVALID_TXN_STATE."""
    name = topic("empty")
    with opened(KafkaSink(name, bootstrap_servers=kafka.bootstrap_servers)) as sink:
        assert sink.write(frame([]), frame([])) == []
        assert sink.participant.list_open() == []


def test_a_failing_task_aborts_its_own_transaction(kafka, topic) -> None:
    """Nothing is left open, nothing is visible, whenever it fails: also while its first record
    is on its way.
    """
    name = topic("failing", partitions=1)
    with opened(KafkaSink(name, bootstrap_servers=kafka.bootstrap_servers)) as sink:
        order = WriteOrder(
            sink.run, 1, 0, 1
        )  # one write job: no transactional id is used again, which would tidy up
        for number in range(20):
            writer = sink.opened.writers.open(order, TaskName(number, 0, 0))
            writer.write(frame([b"a"] * 1000))
            time.sleep(number / 1000)
            writer.abort()
        deadline_s = time.monotonic() + 20
        while sink.participant.list_open() and time.monotonic() < deadline_s:
            time.sleep(0.05)  # the coordinator answers before the markers are written
        assert sink.participant.list_open() == []
    assert read_all(kafka.bootstrap_servers, name) == []


def test_a_record_larger_than_the_topic_takes_is_refused_alone(kafka, topic) -> None:
    """It is handed back with its key, its size and the setting to raise; all others are written."""
    name = topic("large", partitions=1, config={"max.message.bytes": "100000"})
    with opened(KafkaSink(name, bootstrap_servers=kafka.bootstrap_servers)) as sink:
        values = [b"small", b"x" * 200_000, b"small too", None]
        verified = sink.participant.verify(
            sink.write(frame(values, [b"s", b"big-one", b"t", b"n"]))
        )
        (rejection,) = sink.rejections
        assert rejection is not None
        assert rejection.rows.column("key").to_pylist() == [b"big-one"]
        (reason,) = rejection.reasons
        assert re.search(
            r"big-one.*200007 bytes.*larger than the 100000 that the topic.*max\.message\.bytes",
            reason,
        )
        assert sum(p.rows for p in verified) == 3
        sink.participant.commit(sink.permit(verified), verified)
    assert [r.key for r in read_all(kafka.bootstrap_servers, name)] == [b"s", b"t", b"n"]


def test_a_batch_of_which_nothing_fits_opens_no_transaction(kafka, topic) -> None:
    """Nothing is prepared, nothing is left open."""
    name = topic("all-large", partitions=1, config={"max.message.bytes": "1000"})
    with opened(KafkaSink(name, bootstrap_servers=kafka.bootstrap_servers)) as sink:
        assert sink.write(frame([b"x" * 2_000])) == []
        assert sink.participant.list_open() == []


def test_a_record_as_large_as_the_topic_allows_passes(kafka, topic) -> None:
    """librdkafka's own limit of 1,000,000 bytes is not in the way where the topic allows more."""
    name = topic("larger", partitions=1, config={"max.message.bytes": "3000000"})
    with opened(KafkaSink(name, bootstrap_servers=kafka.bootstrap_servers)) as sink:
        verified = sink.participant.verify(sink.write(frame([b"x" * 2_500_000], [b"k"])))
        sink.participant.commit(sink.permit(verified), verified)
    assert len(read_all(kafka.bootstrap_servers, name)[0].value or b"") == 2_500_000


def test_at_least_once_rows_are_visible_when_the_task_is_done(kafka, topic) -> None:
    """No transaction: acknowledged means visible."""
    name = topic("plain", partitions=1)
    with opened(
        KafkaSink(name, bootstrap_servers=kafka.bootstrap_servers),
        guarantee=Guarantee.AT_LEAST_ONCE,
    ) as sink:
        assert sink.write(frame([b"a", b"b"])) == []
    assert read_all(kafka.bootstrap_servers, name) == [Record(0, None, v, ()) for v in (b"a", b"b")]


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"topic": "never-made"}, SettingRefused, "does not exist"),
        ({"transaction_timeout_ms": 900_001}, SettingRefused, "above the 900000 ms"),
        ({"transaction_timeout_ms": 10}, SettingRefused, "at least 1000"),
        ({"producer": {"no.such.setting": "1"}}, SettingRefused, r"no\.such\.setting"),
        ({"producer": {"message.timeout.ms": "9999999"}}, SettingRefused, r"message\.timeout\.ms"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_start(
    kafka, topic, arguments, error, match
) -> None:
    """Each with one clear message, before anything is written."""
    settings = {
        "topic": topic("refused"),
        "bootstrap_servers": kafka.bootstrap_servers,
        **arguments,
    }
    with pytest.raises(error, match=match), opened(KafkaSink(**settings)) as sink:
        sink.write(frame([b"a"]))


def test_a_broker_that_is_not_there(kafka) -> None:
    """Said within seconds, with the address."""
    with pytest.raises(Unavailable, match=r"no broker could be reached at 127\.0\.0\.1:1"):
        with opened(KafkaSink("t", bootstrap_servers="127.0.0.1:1")):
            pass


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ([("key", "string")], "no column 'value'"),
        ([("value", "int")], "type int, and must be string or binary"),
        ([("value", "string"), ("headers", "map<string,string>")], "headers"),
        ([("value", "string"), ("partition", "string")], "partition"),
        ([("value", "string"), ("key", "bigint")], "key"),
        ([("value", "string"), ("Key", "string")], "'Key' would not be written: Kafka's is 'key'"),
        ([("value", "string"), ("HEADERS", "binary")], "'HEADERS' would not be written"),
    ],
)
def test_frames_that_cannot_be_written_are_refused(columns, match) -> None:
    """The message lists the columns there are."""
    with pytest.raises(FrameRefused, match=match):
        KafkaSink("t", bootstrap_servers="h:1").check_columns(columns)


def test_columns_that_are_nobodys() -> None:
    """What is no word of Kafka's is not written, and a column of the right name is enough."""
    columns = [("value", "string"), ("key", "string"), ("KEY", "int"), ("Topic", "string")]
    KafkaSink("t", bootstrap_servers="h:1").check_columns([*columns, ("customer", "string")])
    with pytest.raises(FrameRefused, match="'Topic' would not be written|no topic"):
        KafkaSink(bootstrap_servers="h:1").check_columns(columns)


def test_a_frame_without_a_topic_is_refused_only_where_the_sink_has_none() -> None:
    """The sink's topic overrides the column, as in Spark."""
    KafkaSink("t", bootstrap_servers="h:1").check_columns([("value", "string"), ("topic", "int")])
    with pytest.raises(FrameRefused, match="no topic"):
        KafkaSink(bootstrap_servers="h:1").check_columns([("value", "string")])


def test_plain_clients_agree_with_the_partitioner(kafka, topic) -> None:
    """A librdkafka producer set to Java's partitioner and our sink write one key to one
    partition.
    """
    name = topic("shared", partitions=4)
    keys = [f"k{i}".encode() for i in range(50)]
    plain = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "partitioner": "murmur2_random"}
    )
    for key in keys:
        plain.produce(name, key=key, value=b"plain")
    assert plain.flush(WAIT_MAX_S) == 0
    with opened(KafkaSink(name, bootstrap_servers=kafka.bootstrap_servers)) as sink:
        verified = sink.participant.verify(sink.write(frame([b"ours"] * 50, keys)))
        sink.participant.commit(sink.permit(verified), verified)
    placed: dict[bytes | None, set[int]] = {}
    for record in read_all(kafka.bootstrap_servers, name):
        placed.setdefault(record.key, set()).add(record.partition)
    assert all(len(p) == 1 for p in placed.values())


def murmur2(data: bytes) -> int:
    """org.apache.kafka.common.utils.Utils.murmur2, seed 0x9747b28c, in 32-bit arithmetic."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = (0x9747B28C ^ len(data)) & mask
    for i in range(0, len(data) - len(data) % 4, 4):
        k = (int.from_bytes(data[i : i + 4], "little") * m) & mask
        k = ((k ^ (k >> 24)) * m) & mask
        h = ((h * m) & mask) ^ k
    rest = data[len(data) - len(data) % 4 :]
    if rest:
        h = ((h ^ int.from_bytes(rest, "little")) * m) & mask
    h = ((h ^ (h >> 13)) * m) & mask
    return h ^ (h >> 15)
