"""The numbered orders of the demo: written at a steady rate, and judged by what a reader sees of
them against what was produced. It uses nothing of exactum's own protocol, so that it can judge both
sinks.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exactum.ops.crash_test.topics import LocalTopics
from exactum.testing.crash_verdict import OutputDifference, OutputRecord

CUSTOMERS = 100
TICK_S = 0.05


def order_of(number: int) -> OutputRecord:
    """What the producer writes. Its key is its customer, so that every customer's orders stay in
    order.
    """
    customer = f"{number % CUSTOMERS:02d}"
    return OutputRecord(customer, f"order {number} of customer {customer}")


def shouted(number: int) -> OutputRecord:
    """What the query makes of it."""
    key, value = order_of(number)
    return OutputRecord(key, str(value).upper())


def produce(
    topics: LocalTopics, topic: str, records_per_second: float, stop: threading.Event
) -> int:
    """Write orders 0, 1, 2, ... until ``stop`` is set, and return how many are in the topic: every
    acknowledgement is waited for. A broker that is behind gets larger parts.

    Raises:
        ExactumError: one was not acknowledged.
    """
    number, started = 0, time.monotonic()
    while not stop.wait(TICK_S):
        due = int((time.monotonic() - started) * records_per_second)
        topics.produce(topic, map(order_of, range(number, due)))
        number = due
    return number


class RowsSeen:
    """What a reader that runs along has seen. One thread adds; the numbers may be read by all."""

    def __init__(self) -> None:
        self.rows: Counter[OutputRecord] = Counter()
        self.committed = 0

    def add(self, record: OutputRecord) -> None:
        self.rows[record] += 1
        self.committed += 1

    @property
    def distinct(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class DemoVerdict:
    """The counts of one output topic at rest.

    ``disordered`` are rows that come after a later one of their key, or in another partition than
    those before; ``hidden`` is how many offsets open transactions hide from a read_committed reader
    (high watermark minus last stable offset); ``stable`` is whether the reader that ran all along
    saw the same as the fresh one.
    """

    name: str
    kills: int
    produced: int
    committed: int
    difference: OutputDifference
    disordered: int
    hidden: int
    stable: bool

    @staticmethod
    def of(
        name: str,
        *,
        kills: int,
        produced: int,
        fresh: Mapping[int, Sequence[OutputRecord]],
        live: RowsSeen,
        hidden: int,
    ) -> DemoVerdict:
        """Judge ``fresh``, what a reader from the beginning found at rest, by partition; ``live``
        ran along.
        """
        expected = [shouted(number) for number in range(produced)]
        found = [record for partition in fresh.values() for record in partition]
        return DemoVerdict(
            name,
            kills,
            produced,
            len(found),
            OutputDifference.of(expected, found),
            _disordered(expected, fresh),
            hidden,
            stable=Counter(found) == live.rows,
        )

    @property
    def exact(self) -> bool:
        """Every order that was produced is there once, in order, and nothing else; and something
        was produced.
        """
        at_rest = self.stable and self.hidden == 0 and self.produced > 0
        return at_rest and not self.difference and self.disordered == 0

    @property
    def remark(self) -> str:
        """What has to be said of a sink that is there to show duplicates and shows none; else
        empty.
        """
        if self.difference.doubles:
            return ""
        return (
            f"{self.name} doubled nothing this time: only a kill between a write and the end of "
            "its micro-batch makes it do so. Try another --seed."
        )

    def __str__(self) -> str:
        word = "exact" if self.exact else "NOT exact"
        order = "kept in each key" if self.disordered == 0 else f"broken {self.disordered:,} times"
        altered = len(self.difference.altered)
        unexpected = len(self.difference.unexpected) + altered
        parts = [
            f"produced {self.produced:,}",
            f"committed {self.committed:,}",
            f"{self.difference.doubles:,} duplicates",
            f"{len(self.difference.lost) + altered:,} missing",
            f"order {order}",
            "no transaction left open"
            if self.hidden == 0
            else f"{self.hidden:,} offsets hidden by open transactions",
        ]
        if unexpected:
            parts.append(f"{unexpected:,} records that nobody produced")
        if not self.stable:
            parts.append("a reader that ran all along saw something else")
        kills = f"{self.kills} SIGKILL{'' if self.kills == 1 else 's'}"
        return f"VERDICT {self.name}: {word} after {kills} ({', '.join(parts)})"


def _disordered(
    expected: Sequence[OutputRecord], found: Mapping[int, Sequence[OutputRecord]]
) -> int:
    position = {record: number for number, record in enumerate(expected)}
    last: dict[object, tuple[int, int]] = {}
    broken = 0
    for partition in sorted(found):
        for record in dict.fromkeys(found[partition]):  # a repetition is doubled, not disordered
            if record in position:
                home, latest = last.get(record.key, (partition, -1))
                broken += partition != home or position[record] < latest
                last[record.key] = home, max(position[record], latest)
    return broken
