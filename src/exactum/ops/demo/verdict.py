"""The verdict of the demo: what a reader that began at the beginning saw, against what was
produced.
"""

from __future__ import annotations

from dataclasses import dataclass

from exactum.ops.demo.tally import Tally


@dataclass(frozen=True)
class DemoVerdict:
    """The counts of one output topic at rest.

    ``hidden`` is how many offsets open transactions hide from a read_committed reader (high
    watermark minus last stable offset); ``stable`` is whether the reader that ran all along saw the
    same as the fresh one.
    """

    name: str
    kills: int
    produced: int
    committed: int
    duplicates: int
    missing: int
    unexpected: int
    disordered: int
    hidden: int
    stable: bool

    @staticmethod
    def of(
        name: str, *, kills: int, produced: int, fresh: Tally, live: Tally, hidden: int
    ) -> DemoVerdict:
        """Judge ``fresh``, the tally of a reader from the beginning at rest; ``live`` is the one
        that ran along.
        """
        return DemoVerdict(
            name=name,
            kills=kills,
            produced=produced,
            committed=fresh.committed,
            duplicates=fresh.duplicates,
            missing=fresh.missing(produced),
            unexpected=fresh.damaged + fresh.unexpected(produced),
            disordered=fresh.disordered,
            hidden=hidden,
            stable=fresh == live,
        )

    @property
    def exact(self) -> bool:
        """Every order that was produced is there once, in order, and nothing else; and something
        was produced.
        """
        faults = self.duplicates + self.missing + self.unexpected + self.disordered + self.hidden
        return self.stable and faults == 0 and self.produced == self.committed > 0

    @property
    def remark(self) -> str:
        """What has to be said of a sink that is there to show duplicates and shows none; else
        empty.
        """
        if self.duplicates:
            return ""
        return (
            f"{self.name} doubled nothing this time: only a kill between a write and the end of "
            "its micro-batch makes it do so. Try another --seed."
        )

    def __str__(self) -> str:
        word = "exact" if self.exact else "NOT exact"
        order = "kept in each key" if self.disordered == 0 else f"broken {self.disordered:,} times"
        parts = [
            f"produced {self.produced:,}",
            f"committed {self.committed:,}",
            f"{self.duplicates:,} duplicates",
            f"{self.missing:,} missing",
            f"order {order}",
            "no transaction left open"
            if self.hidden == 0
            else f"{self.hidden:,} offsets hidden by open transactions",
        ]
        if self.unexpected:
            parts.append(f"{self.unexpected:,} records that nobody produced")
        if not self.stable:
            parts.append("a reader that ran all along saw something else")
        kills = f"{self.kills} SIGKILL{'' if self.kills == 1 else 's'}"
        return f"VERDICT {self.name}: {word} after {kills} ({', '.join(parts)})"
