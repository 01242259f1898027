"""Reads the records again that dead letters were, from the query's own input."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, TopicPartition

from exactum.errors import Unavailable
from exactum.ops.dead_letters.letter import DeadLetter
from exactum.ops.dead_letters.replay import Record

READ_TIMEOUT_S = 30.0
NEAR = 500
"""A record so few offsets on is read up to, instead of looked for anew."""


@dataclass(frozen=True)
class Original:
    """A record of the input. ``timestamp_ms`` is its time as Kafka has it."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int

    def is_of(self, letter: DeadLetter) -> bool:
        """Whether it is the one that was refused: a topic that was made anew has others there. By
        its time; where the letter does not know that, by its key.
        """
        if letter.timestamp_ms is not None:
            return letter.timestamp_ms == self.timestamp_ms
        return letter.key is not None and letter.key == self.key


class Originals:
    """Of one cluster. Closed by its owner. ``lost`` are letters whose record is not to be had."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """``settings`` are librdkafka's, with ``bootstrap.servers``."""
        own = {
            "group.id": "exactum-dead-letters",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
        }
        self._consumer = Consumer({**settings, **own})
        self.lost: list[DeadLetter] = []

    def close(self) -> None:
        self._consumer.close()

    def of(self, letters: Iterable[DeadLetter]) -> Iterator[Record]:
        """The record of each letter, to go back to its topic; in the order of their offsets.

        Raises:
            Unavailable: the brokers did not answer for 30 s.
        """
        by_partition: dict[tuple[str, int], dict[int, list[DeadLetter]]] = defaultdict(dict)
        for letter in letters:
            origin = letter.origin
            if origin is None:
                self.lost.append(letter)
            else:
                topic, index, offset = origin
                by_partition[topic, index].setdefault(offset, []).append(letter)
        for (topic, index), wanted in sorted(by_partition.items()):
            yield from self._in_partition(topic, index, wanted)

    def _in_partition(
        self, topic: str, index: int, wanted: Mapping[int, list[DeadLetter]]
    ) -> Iterator[Record]:
        """A record that two sinks refused goes back once."""
        at: int | None = None
        for offset in sorted(wanted):
            if at is None or not at <= offset <= at + NEAR:
                self._consumer.assign([TopicPartition(topic, index, offset)])
            found = self._read_to(topic, index, offset)
            at = offset + 1
            letters = wanted[offset]
            if found is None:
                at = None
            same = [letter for letter in letters if found is not None and found.is_of(letter)]
            self.lost += [letter for letter in letters if letter not in same]
            if found is not None and same:
                marks = dict.fromkeys(mark for letter in same for mark in letter.marks)
                yield Record(same[0].identity, tuple(marks), topic, found.key, found.value)

    def _read_to(self, topic: str, index: int, offset: int) -> Original | None:
        """The record at that offset; None where there is none any more."""
        while True:
            message = self._consumer.poll(READ_TIMEOUT_S)
            if message is None:
                raise Unavailable(f"{topic}-{index} gave nothing for {READ_TIMEOUT_S:.0f} s.")
            error = message.error()
            if error is not None:
                gone = (
                    KafkaError._PARTITION_EOF,
                    KafkaError._AUTO_OFFSET_RESET,
                    KafkaError.OFFSET_OUT_OF_RANGE,
                    KafkaError.UNKNOWN_TOPIC_OR_PART,
                )
                if error.code() in gone:
                    return None
                raise Unavailable(f"{topic}-{index} cannot be read: {error.str()}.")
            if message.offset() == offset:
                return Original(message.key(), message.value(), message.timestamp()[1])
            if message.offset() > offset:
                return None
