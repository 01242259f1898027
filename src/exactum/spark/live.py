"""A run of a streaming query while it lasts: the little that every kind of session tells of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Protocol

from exactum.checkpoint.offset_log import Offsets, ReadText, from_json
from exactum.protocol.model import SourceOffsets

KAFKA = "kafkatable"
"""What Spark calls the table behind ``format("kafka")``."""
TOPICS = ("subscribe", "subscribePattern", "assign")
"""The options of such a source that say what it reads: it has one of them."""


@dataclass(frozen=True)
class RunningSource:
    """One line of Spark's offset log, which are in the order of the query's sources: a stream that
    the plan reads twice (a self-union) has two.

    ``index`` is the line's place (from 0), ``same_as`` the first index that reads the same stream
    (usually ``index`` itself), ``table`` Spark's name of what is read, in lower case
    (``kafkatable``; empty for the older kind of sources, such as files), ``options`` what was given
    to the reader, in its own spelling (empty likewise), ``metadata`` the source's folder relative
    to the checkpoint (``sources/0``; None likewise).
    """

    index: int
    same_as: int
    table: str
    options: Mapping[str, str]
    metadata: str | None

    @property
    def is_kafka(self) -> bool:
        return self.table == KAFKA

    def __str__(self) -> str:
        topics = filter(None, map(self.option, TOPICS)) if self.is_kafka else ()
        return f"source {self.index} ({next(iter(topics), 'not of Kafka'):.100})"

    def option(self, name: str) -> str | None:
        """The option of this name, ignoring case as Spark does; None: not given."""
        lower = name.lower()
        return next((value for key, value in self.options.items() if key.lower() == lower), None)

    def refuses(self, name: str) -> bool:
        """Whether what the option names stops the query, as with ``failOnDataLoss`` that records
        are gone: it is on unless it is false.
        """
        return (self.option(name) or "true").lower() != "false"


@dataclass(frozen=True)
class SourceRange:
    """What a micro-batch that Spark has planned reads of one source: from where each partition of
    Kafka is read, where that is known, and to where. Both are empty for another kind of source.
    """

    begins: Offsets = field(default_factory=dict)
    ends: Offsets = field(default_factory=dict)

    def rest(self) -> SourceRange:
        """What is to be read after it."""
        return SourceRange(self.ends, self.ends)


def ranges_of(offsets: SourceOffsets, initial: Sequence[Offsets] = ()) -> tuple[SourceRange, ...]:
    """Of each source, in the order of the offset log's lines. ``initial``: where they began, for a
    query's first batch.
    """
    begins = initial or [from_json(text) for text in offsets.start]
    ends = [from_json(text) for text in offsets.end]
    both = zip_longest(begins, ends)  # the batch before may not be on record
    return tuple(SourceRange(begin or {}, end or {}) for begin, end in both)


def noted_offsets(read: ReadText, name: str) -> Offsets:
    """What a file says in which Spark keeps where a source began: it is a zero byte, a line ``v1``,
    then one line of JSON.
    """
    text = read(name)
    return {} if text is None else from_json(text.partition("\n")[2])


def below_checkpoint(metadata_path: str) -> str | None:
    """A source's folder, as Spark prints it, relative to the checkpoint; None: it has none."""
    place = metadata_path.rfind("/sources/")
    return metadata_path[place + 1 :] if place >= 0 else None


class LiveRun(Protocol):
    """One run of one streaming query. ``jvm.execution.Execution`` in a classic session,
    ``connect.server.ConnectRun`` over Spark Connect.
    """

    def is_active(self) -> bool:
        """False once the run has ended."""

    def stop(self) -> None:
        """Stop the query and wait for its thread, unless this is that one."""

    def fail(self, message: str) -> None:
        """End the query, which waits for data, with an error; where that cannot be, stop it."""

    def failure(self) -> str | None:
        """The text of the error with which it ended; None: it was stopped, runs, or is not
        known.
        """

    def last_progress(self) -> str | None:
        """Spark's last StreamingQueryProgress as JSON text, before there is any None."""

    def doing(self) -> str:
        """What Spark says that it does: ``Waiting for data to arrive``, and the like."""

    def end_offsets(self) -> Sequence[str] | None:
        """Where the batch at hand ends in its sources, in no order, as they spell it; None: this
        session does not tell.
        """

    def sources(self) -> Sequence[RunningSource]:
        """One for each line of the offset log; empty while Spark has not planned the query yet."""
