"""What readers see of a topic, on a real broker: every record that is committed; and a control
stream's reader of topics that are not there yet, or not the same any more.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import closing

import pytest

from exactum.errors import CheckpointRefused
from exactum.kafka import readback, topic_reader
from exactum.kafka.readback import committed_records
from exactum.kafka.requests import BrokerRequests, TopicSeen
from exactum.kafka.topic_reader import TopicReader
from tests.kit.errors import raised
from tests.kit.kafka.broker import Broker, producer_to
from tests.kit.waiting import WAIT_MAX_S


@pytest.fixture
def reader(broker: Broker) -> Iterator[TopicReader]:
    name = broker.topic("rules", partitions=1)
    with closing(TopicReader(name, broker.servers, ())) as made:
        yield made


def write(broker: Broker, reader: TopicReader, *values: bytes) -> None:
    broker.produce(reader._topic, *values, key=b"key")


def read(reader: TopicReader) -> list[bytes | None]:
    return [record.value for record in reader.read_to(reader.end_offsets())]


def test_a_topic_that_is_unknown_for_a_moment_is_waited_for(
    broker: Broker, reader: TopicReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One answer that calls it unknown, as a broker gives that has just started, is not yet the
    topic's absence.
    """
    broker.kafka.delete_topic(reader._topic)
    topics, answers = reader._requests.topics, list[bool]()

    def seen(names: Iterable[str], **how: bool) -> dict[str, TopicSeen]:
        """The broker's answer; after the first one the topic is made."""
        answer = topics(names, **how)
        answers.append(bool(answer))
        if answers == [False]:
            broker.kafka.create_topic(reader._topic, partitions=1)
            write(broker, reader, b"1")
        return answer

    monkeypatch.setattr(reader._requests, "topics", seen)
    assert read(reader) == [b"1"]
    assert answers[0] is False and answers[-1] is True


def test_what_is_committed_and_nothing_else(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of interleaved transactions that commit or abort, and of none; from any offset, and in pieces
    of any size: as another client reads them.
    """
    name, chance = broker.topic("seen", partitions=1), random.Random(5)
    producers = [broker.initialised(f"{name}-{number}") for number in range(3)]
    kinds = ("none", "zstd")
    plain = {kind: producer_to(broker.servers, {"compression.type": kind}) for kind in kinds}
    begun = set[int]()
    for number in range(70):
        one = chance.randrange(3)
        if one not in begun:
            producers[one].begin_transaction()
            begun.add(one)
        producers[one].produce(name, f"{one}-{number}", partition=0)
        assert producers[one].flush(WAIT_MAX_S) == 0
        if chance.random() < 0.3:
            end = chance.choice(["commit_transaction", "abort_transaction"])
            getattr(producers[one], end)(WAIT_MAX_S)
            begun.discard(one)
        if chance.random() < 0.2:
            chosen = plain[chance.choice(kinds)]
            chosen.produce(name, f"plain-{number}")
            assert chosen.flush(WAIT_MAX_S) == 0
    for one in begun:
        producers[one].abort_transaction(WAIT_MAX_S)
    expected = [(record.offset, record.value) for record in broker.read(name)]
    assert len(expected) > 30
    with closing(BrokerRequests({"bootstrap.servers": broker.servers}, "here")) as requests:
        for since in range(0, expected[-1][0] + 1, 23):
            monkeypatch.setattr(readback, "READ_BYTES_MAX", chance.choice([1, 300, 5_000]))
            found = committed_records(requests, (name, 0), since)
            assert [(r.offset, r.value) for r in found] == [
                each for each in expected if each[0] >= since
            ]


def test_records_of_a_topic_made_anew_are_never_taken(broker: Broker, reader: TopicReader) -> None:
    """With more records than the old one had, it is known by its id before one of them is read."""
    write(broker, reader, b"1")
    assert read(reader) == [b"1"]
    was = reader._identity
    broker.made_anew(reader._topic)
    write(broker, reader, b"2", b"3")
    with raised(CheckpointRefused, "CONTROL_RECREATED", reader._topic, f"({was} "):
        reader.end_offsets()


def test_a_topic_made_anew_with_nothing_new_is_noticed_in_time(
    broker: Broker, reader: TopicReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With as many records as were read there is nothing to take, and the next regular look finds
    it.
    """
    write(broker, reader, b"1")
    assert read(reader) == [b"1"]
    was = reader._identity
    broker.made_anew(reader._topic)
    write(broker, reader, b"2")
    monkeypatch.setattr(topic_reader, "PARTITIONS_EVERY_S", 3_600.0)
    assert read(reader) == []
    monkeypatch.setattr(topic_reader, "PARTITIONS_EVERY_S", 0.0)
    with raised(CheckpointRefused, "CONTROL_RECREATED", reader._topic, f"({was} "):
        reader.end_offsets()
