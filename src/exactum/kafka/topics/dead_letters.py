"""Dead letters in a topic: the columns that others have are headers there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from exactum.errors import Unavailable
from exactum.kafka.topics.committed_records import CommittedRecords, NotReadable
from exactum.protocol.dead_letter import DeadLetter, number

GROUP = "exactum-dead-letters"
"""The group whose name stands in the brokers' logs; it has no offsets."""
PREFIX = "exactum."
"""Of the headers."""


def dead_letters_in(topic: str, settings: Mapping[str, str], where: str) -> Iterator[DeadLetter]:
    """``settings``: librdkafka's, with ``bootstrap.servers``.

    Raises:
        Unavailable: the topic cannot be read.
    """
    records = CommittedRecords(settings, GROUP, where)
    try:
        for partition in records.partitions(topic):
            for message in records.read(partition):
                yield _of_message(message)
    except NotReadable as error:
        raise Unavailable(f"The topic {topic!r} cannot be read: {error}.") from error
    finally:
        records.close()


def _of_message(message: Any) -> DeadLetter:
    fields = {
        name.removeprefix(PREFIX): (value or b"").decode("utf-8", "replace")
        for name, value in message.headers() or ()
        if name.startswith(PREFIX)
    }
    return DeadLetter(
        f"{message.topic()}-{message.partition()}@{message.offset()}",
        message.key(),
        message.value(),
        fields.get("sink", ""),
        fields.get("error", ""),
        fields.get("source_topic"),
        number(fields.get("source_partition")),
        number(fields.get("source_offset")),
        fields.get("source_timestamp"),
        fields.get("row_json"),
        message.timestamp()[1],
    )
