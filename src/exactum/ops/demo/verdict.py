"""The verdict of the demo: what a reader that began at the beginning saw, against what was
produced. It uses nothing of exactum's own protocol, so that it can judge both sinks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exactum.ops.demo.order import shouted
from exactum.testing.crash_verdict import OutputDifference, OutputRecord


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
