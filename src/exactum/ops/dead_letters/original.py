"""Reads the records again that dead letters were, from the query's own input."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exactum.errors import Unavailable
from exactum.kafka.topic_reader import DEAD_LETTERS_GROUP, CommittedRecords, NotReadable, RangeGone
from exactum.kafka.transaction import Partition
from exactum.ops.dead_letters.replay import REPLAYED_HEADER, Headers, Record
from exactum.protocol.dead_letter import DeadLetter

NEAR = 500
"""A record so few offsets on is read up to, instead of looked for anew."""


@dataclass(frozen=True)
class Original:
    """A record of the input. ``timestamp_ms`` is its time as Kafka has it. ``headers`` are its own:
    without what an earlier replay added.
    """

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers = ()

    def is_of(self, dead_letter: DeadLetter) -> bool:
        """Whether it is the one that was refused: a topic that was made anew has others there. By
        its time; where the letter does not know that, by its key.
        """
        if dead_letter.timestamp_ms is not None:
            return dead_letter.timestamp_ms == self.timestamp_ms
        return dead_letter.key is not None and dead_letter.key == self.key


class Originals:
    """Of one cluster. Closed by its owner. ``lost`` are letters whose record is not to be had."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """``settings`` are librdkafka's, with ``bootstrap.servers``."""
        self._records = CommittedRecords(settings, DEAD_LETTERS_GROUP, "exactum dead-letters")
        self.lost: list[DeadLetter] = []

    def close(self) -> None:
        self._records.close()

    def of(self, dead_letters: Iterable[DeadLetter]) -> Iterator[Record]:
        """The record of each letter, to go back to its topic; in the order of their offsets.

        Raises:
            Unavailable: the brokers did not answer for 30 s.
        """
        by_partition: dict[Partition, dict[int, list[DeadLetter]]] = defaultdict(dict)
        for dead_letter in dead_letters:
            origin = dead_letter.origin
            if origin is None:
                self.lost.append(dead_letter)
            else:
                topic, index, offset = origin
                by_partition[topic, index].setdefault(offset, []).append(dead_letter)
        for partition, wanted in sorted(by_partition.items()):
            yield from self._in_partition(partition, wanted)

    def _in_partition(
        self, partition: Partition, wanted: Mapping[int, list[DeadLetter]]
    ) -> Iterator[Record]:
        """A record that two sinks refused goes back once."""
        for offset, found in self._at(partition, sorted(wanted)):
            dead_letters = wanted[offset]
            same = [
                dead_letter
                for dead_letter in dead_letters
                if found is not None and found.is_of(dead_letter)
            ]
            self.lost += [dead_letter for dead_letter in dead_letters if dead_letter not in same]
            if found is not None and same:
                marks = dict.fromkeys(mark for dead_letter in same for mark in dead_letter.marks)
                yield Record(
                    same[0].identity,
                    tuple(marks),
                    partition[0],
                    found.key,
                    found.value,
                    found.headers,
                )

    def _at(
        self, partition: Partition, offsets: Sequence[int]
    ) -> Iterator[tuple[int, Original | None]]:
        """Each of these offsets, which ascend, with its record; None where there is none any
        more.
        """
        left = deque(offsets)
        while left:
            try:
                yield from self._onwards(partition, left)
            except RangeGone:
                yield left.popleft(), None
            except NotReadable as error:
                raise Unavailable(
                    f"{partition[0]}-{partition[1]} cannot be read: {error}."
                ) from error

    def _onwards(
        self, partition: Partition, left: deque[int]
    ) -> Iterator[tuple[int, Original | None]]:
        """From the first one on, taken from ``left``, while the next one is near."""
        for message in self._records.read(partition, left[0]):
            while left and left[0] < message.offset():
                yield left.popleft(), None
            if left and left[0] == message.offset():
                own = Original(
                    message.key(), message.value(), message.timestamp()[1], _own_headers(message)
                )
                yield left.popleft(), own
            if not left or left[0] > message.offset() + NEAR:
                return
        while left:  # the partition has ended
            yield left.popleft(), None


def _own_headers(message: Any) -> Headers:
    headers: Headers = tuple(message.headers() or ())
    return tuple(each for each in headers if each[0] != REPLAYED_HEADER)
