"""What a job put out beside what was expected, as a crash test of a user's job finds it, and the
error that carries it. It knows rows, no Kafka and no Spark.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

# ---- two outputs -----------------------------------------------------------------------------


SHOWN_MAX = 5
"""Examples of each kind in a report."""
SHOWN_CHARACTERS_MAX = 160

Text = str | bytes | None
"""A key or a value: text where the bytes are UTF-8, else the bytes."""


class OutputRecord(NamedTuple):
    """A record of a topic as tests compare it. It equals the tuple ``(key, value)``."""

    key: Text
    value: Text


def latest_by_key(rows: Sequence[Hashable]) -> Iterable[Hashable]:
    """The last row of each key, for outputs that state the newest value of a key.

    A query with state in update mode writes a row for each key and micro-batch. How many there are
    depends on the size of the micro-batches, and only the last one of a key is certain.
    """
    return {_identity(row): row for row in rows}.values()


@dataclass(frozen=True)
class OutputDifference:
    """What is wrong in an output. Every row stands in one of four kinds.

    Attributes:
        lost: rows that were expected, and are not there: each as often as it is missing.
        doubled: rows that are there more often than expected, with how often: ``(row, expected,
            found)``.
        altered: pairs ``(expected, found)`` of rows with the same key and different content.
        unexpected: other rows that nobody expected.
    """

    lost: tuple[Hashable, ...]
    doubled: tuple[tuple[Hashable, int, int], ...]
    altered: tuple[tuple[Hashable, Hashable], ...]
    unexpected: tuple[Hashable, ...]

    @staticmethod
    def of(expected: Iterable[Hashable], found: Iterable[Hashable]) -> OutputDifference:
        """Compare two outputs, in any order.

        Raises:
            TypeError: a row is not hashable.
        """
        wanted, seen = Counter(expected), Counter(found)
        missing, extra = wanted - seen, seen - wanted
        doubled = tuple((row, wanted[row], seen[row]) for row in extra if wanted[row])
        strange = [row for row in extra.elements() if not wanted[row]]
        strange_by_key: defaultdict[Hashable, list[Hashable]] = defaultdict(list)
        for row in reversed(strange):
            strange_by_key[_identity(row)].append(row)
        lost, altered = [], []
        for row in missing.elements():
            others = strange_by_key[_identity(row)]
            if others:
                altered.append((row, others.pop()))
            else:
                lost.append(row)
        left = [row for rows in strange_by_key.values() for row in reversed(rows)]
        return OutputDifference(tuple(lost), doubled, tuple(altered), tuple(left))

    @property
    def doubles(self) -> int:
        """How many rows are too many, of those that were expected less often."""
        return sum(found - expected for _, expected, found in self.doubled)

    def __bool__(self) -> bool:
        """Whether anything is wrong."""
        return bool(self.lost or self.doubled or self.altered or self.unexpected)

    def __str__(self) -> str:
        return (
            f"{len(self.lost):,} lost, {self.doubles:,} doubled, {len(self.altered):,} altered, "
            f"{len(self.unexpected):,} unexpected"
        )

    def examples(self) -> Iterator[str]:
        """A few lines for each kind that there is."""
        yield from _listed("lost", [_shown(row) for row in self.lost])
        yield from _listed(
            "doubled",
            [
                f"{_shown(row)} is there {found} times, not {wanted}"
                for row, wanted, found in self.doubled
            ],
        )
        yield from _listed(
            "altered",
            [f"{_shown(found)} instead of {_shown(wanted)}" for wanted, found in self.altered],
        )
        yield from _listed("unexpected", [_shown(row) for row in self.unexpected])


def _identity(row: Hashable) -> Hashable:
    """The key of a record, the first column of a row of a table; else the row itself."""
    return row[0] if isinstance(row, tuple) and row else row


def _shown(row: Hashable) -> str:
    text = repr(tuple(row) if isinstance(row, tuple) else row)
    cut = text[: SHOWN_CHARACTERS_MAX - 3] + "..."
    return text if len(text) <= SHOWN_CHARACTERS_MAX else cut


def _listed(kind: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield f"{kind}:"
        yield from (f"    {line}" for line in lines[:SHOWN_MAX])
        if len(lines) > SHOWN_MAX:
            yield f"    ... and {len(lines) - SHOWN_MAX:,} more"


# ---- a crash test ----------------------------------------------------------------------------


SEED_VARIABLE = "EXACTUM_CRASH_SEED"


@dataclass(frozen=True)
class CrashRun:
    """One run of the job under test: what its script has to be told.

    Attributes:
        name: ``killed``, or ``undisturbed`` for the run to compare with.
        bootstrap_servers: of the Kafka cluster with both topics.
        input: the topic to read. Both runs read the same one.
        output: the topic to write, which exists. With ``read`` it is a free name for a table.
        checkpoint: the folder for the query's checkpoint. It does not exist yet.
    """

    name: str
    bootstrap_servers: str
    input: str
    output: str
    checkpoint: str


@dataclass(frozen=True)
class CrashVerdict:
    """What a reader found at rest, after the kills.

    Attributes:
        job: the name of the script.
        seed: of the kills.
        kills: what each kill met, in order.
        expected: how many rows were expected.
        found: how many rows were read.
        difference: what is wrong with them.
        hidden: offsets of the output topic that open transactions hide from read_committed readers.
        log: the file with everything the killed run printed.
    """

    job: str
    seed: int
    kills: tuple[str, ...]
    expected: int
    found: int
    difference: OutputDifference
    hidden: int
    log: str

    @property
    def exact(self) -> bool:
        """Whether every expected row is there as often as expected, and nothing else."""
        return not self.difference and self.hidden == 0

    def __str__(self) -> str:
        word = "exact" if self.exact else "NOT exact"
        plural = "" if len(self.kills) == 1 else "s"
        lines = [
            f"{self.job} is {word} after {len(self.kills)} SIGKILL{plural}: {self.difference} "
            f"({self.expected:,} rows expected, {self.found:,} found)"
        ]
        if self.hidden:
            lines.append(f"{self.hidden:,} offsets of the output are hidden by open transactions")
        lines += self.difference.examples()
        lines += [f"kill {number}: {kill}" for number, kill in enumerate(self.kills, 1)]
        lines += [
            f"the same kills again: {SEED_VARIABLE}={self.seed}",
            f"log of the job: {self.log}",
        ]
        return "\n".join(lines)


class OutputNotExact(AssertionError):
    """The job under test lost, doubled or altered rows. ``verdict`` has all of them."""

    def __init__(self, verdict: CrashVerdict) -> None:
        super().__init__(str(verdict))
        self.verdict = verdict

    def __reduce__(self) -> tuple[type[OutputNotExact], tuple[CrashVerdict]]:
        return type(self), (self.verdict,)
