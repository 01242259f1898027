"""A control stream's reader on a real broker: topics that are not there yet, and topics that are not
the same any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing

import pytest

from exactum.errors import CheckpointRefused
from exactum.kafka import topic_reader
from exactum.kafka.requests import TopicSeen
from exactum.kafka.topic_reader import TopicReader
from tests.kit.kafka.broker import Broker

pytestmark = pytest.mark.broker


@pytest.fixture
def reader(broker: Broker) -> Iterator[TopicReader]:
    name = broker.topic("rules", partitions=1)
    with closing(TopicReader(name, broker.servers, ())) as made:
        yield made


def write(broker: Broker, reader: TopicReader, *values: bytes) -> None:
    broker.produce(reader._topic, *values, key=b"key")


def read(reader: TopicReader) -> list[bytes | None]:
    return [record.value for record in reader.read_to(reader.end_offsets())]


def made_anew(broker: Broker, reader: TopicReader) -> None:
    broker.kafka.delete_topic(reader._topic)
    broker.kafka.create_topic(reader._topic, partitions=1)


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


def test_records_of_a_topic_made_anew_are_never_taken(broker: Broker, reader: TopicReader) -> None:
    """With more records than the old one had, it is known by its id before one of them is read."""
    write(broker, reader, b"1")
    assert read(reader) == [b"1"]
    made_anew(broker, reader)
    write(broker, reader, b"2", b"3")
    with pytest.raises(CheckpointRefused, match="made anew"):
        reader.end_offsets()


def test_a_topic_made_anew_with_nothing_new_is_noticed_in_time(
    broker: Broker, reader: TopicReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With as many records as were read there is nothing to take, and the next regular look finds
    it.
    """
    write(broker, reader, b"1")
    assert read(reader) == [b"1"]
    made_anew(broker, reader)
    write(broker, reader, b"2")
    monkeypatch.setattr(topic_reader, "PARTITIONS_EVERY_S", 3_600.0)
    assert read(reader) == []
    monkeypatch.setattr(topic_reader, "PARTITIONS_EVERY_S", 0.0)
    with pytest.raises(CheckpointRefused, match="made anew"):
        reader.end_offsets()
