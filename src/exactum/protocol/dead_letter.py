"""One dead letter, wherever it lies."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any, Protocol, runtime_checkable

EPOCH_BEGAN = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class DeadLetter:
    """The columns of ``protocol.sink.DEAD_LETTER_COLUMNS``, and a name of its own.

    ``identity`` is the same at each look: in Kafka ``topic-partition@offset``, elsewhere made of
    what the letter holds. ``timestamp`` is that of its record, ISO-8601 text; ``put_aside_ms`` when
    it was put aside (ms since 1970), None where its store does not say.
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
    put_aside_ms: int | None = None

    @property
    def origin(self) -> tuple[str, int, int] | None:
        """(topic, partition, offset) of the record that it was, where it is known."""
        place = self.source_topic, self.source_partition, self.source_offset
        return None if None in place else place  # type: ignore[return-value]

    @property
    def marks(self) -> tuple[str, ...]:
        """By which it is known as sent again: its own mark, and that of its record, which may have
        other letters.

        A place alone would not do: topics are made anew, and hold others at the same offsets. So
        the letter's mark has what it holds, and that of a record its time; without that it has
        none.
        """
        own = f"letter {self.identity} {self.digest()}"
        if self.origin is None or self.timestamp is None:
            return (own,)
        topic, index, offset = self.origin
        return own, f"record {topic}-{index}@{offset} {self.timestamp}"

    def sent_to(self, replayed: Mapping[str, str]) -> str | None:
        """The topic that it was sent to again, or None."""
        return next((replayed[mark] for mark in self.marks if mark in replayed), None)

    @property
    def timestamp_ms(self) -> int | None:
        """Of its record, in ms since 1970 as Kafka has it; None where it is not known."""
        if self.timestamp is None:
            return None
        try:
            at = datetime.fromisoformat(self.timestamp.replace("Z", "+00:00"))
        except ValueError:
            return None
        at = at if at.tzinfo is not None else at.replace(tzinfo=timezone.utc)
        return (at - EPOCH_BEGAN) // timedelta(milliseconds=1)

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
            self.put_aside_ms,
        ]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:24]


def named(dead_letters: Iterable[DeadLetter]) -> Iterator[DeadLetter]:
    """Letters of a store without places, named by what they hold: equal ones are numbered, so each
    has a name of its own, and it does not matter which of them has which.
    """
    seen: Counter[str] = Counter()
    for dead_letter in dead_letters:
        digest = dead_letter.digest()
        seen[digest] += 1
        yield replace(dead_letter, identity=f"{digest}#{seen[digest]}")


def of_columns(rows: Iterable[Mapping[str, Any]]) -> Iterator[DeadLetter]:
    """Of rows in the columns of ``protocol.sink.DEAD_LETTER_COLUMNS``."""
    return named(map(_of_row, rows))


def _of_row(row: Mapping[str, Any]) -> DeadLetter:
    at = row.get("source_timestamp")
    return DeadLetter(
        "",
        _bytes(row.get("key")),
        _bytes(row.get("value")),
        str(row.get("sink") or ""),
        str(row.get("error") or ""),
        row.get("source_topic"),
        number(row.get("source_partition")),
        number(row.get("source_offset")),
        at.isoformat() if isinstance(at, datetime) else at,
        row.get("row_json"),
    )


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def number(value: Any) -> int | None:
    return None if value is None else int(value)


@runtime_checkable
class DeadLetterStore(Protocol):
    """A sink whose dead letters can be read again; all of exactum's own but those that only the
    user's code can read.
    """

    def dead_letters(self) -> Iterator[DeadLetter]:
        """All that readers see, in Kafka the oldest first in each partition.

        Raises:
            SettingRefused: they cannot be read from there.
            Unavailable: the target did not answer.
        """
