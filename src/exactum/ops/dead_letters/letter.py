"""One dead letter, wherever it lies."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

HEADER_PREFIX = "exactum."
"""Of the headers in which Kafka holds what is a column elsewhere."""


@dataclass(frozen=True)
class DeadLetter:
    """The columns of ``protocol.sink.DEAD_LETTER_COLUMNS``, and a name of its own.

    ``identity`` is the same at each look: in Kafka ``topic-partition@offset``, elsewhere made of
    what the letter holds. ``timestamp`` is ISO-8601 text.
    """

    identity: str
    key: bytes | None
    value: bytes | None
    sink: str
    error: str
    source_topic: str | None = None
    source_partition: int | None = None
    source_offset: int | None = None
    timestamp: str | None = None
    row_json: str | None = None

    @property
    def origin(self) -> tuple[str, int, int] | None:
        """(topic, partition, offset) of the record that it was, where it is known."""
        place = self.source_topic, self.source_partition, self.source_offset
        return None if None in place else place  # type: ignore[return-value]

    @property
    def names(self) -> tuple[str, ...]:
        """Under which of a replay's names it counts as sent again: its own, and that of its record,
        which may have other letters.
        """
        if self.origin is None:
            return (self.identity,)
        topic, index, offset = self.origin
        return self.identity, f"record {topic}-{index}@{offset}"

    def sent_to(self, replayed: Mapping[str, str]) -> str | None:
        """The topic that it was sent to again, or None."""
        return next((replayed[name] for name in self.names if name in replayed), None)

    def digest(self) -> str:
        """Of all that it holds, 24 hexadecimal digits."""
        content = [
            None if self.key is None else self.key.hex(),
            None if self.value is None else self.value.hex(),
            self.sink,
            self.error,
            self.source_topic,
            self.source_partition,
            self.source_offset,
            self.timestamp,
            self.row_json,
        ]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:24]


def named(letters: Iterable[DeadLetter]) -> Iterator[DeadLetter]:
    """Letters of a store without places, named by what they hold: equal ones are numbered, so each
    has a name of its own, and it does not matter which of them has which.
    """
    seen: Counter[str] = Counter()
    for letter in letters:
        digest = letter.digest()
        seen[digest] += 1
        yield replace(letter, identity=f"{digest}#{seen[digest]}")


@dataclass(frozen=True)
class Choice:
    """Which letters are meant; None: all. ``error`` is a part of the reason's text."""

    identities: frozenset[str] | None = None
    sink: str | None = None
    error: str | None = None

    def takes(self, letter: DeadLetter) -> bool:
        return (
            (self.identities is None or letter.identity in self.identities)
            and (self.sink is None or letter.sink == self.sink)
            and (self.error is None or self.error.lower() in letter.error.lower())
        )
