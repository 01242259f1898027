"""A run of a streaming query while it lasts: the little that every kind of session tells of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class SourceLeaf:
    """What a leaf of the query's plan tells of the stream that it reads.

    ``same_as`` is the first line of the offset log that reads the same stream, ``table`` Spark's
    name of what is read, in lower case, ``options`` what was given to the reader, ``metadata_path``
    the source's folder as Spark prints it; empty for the older kind of sources, such as files.
    """

    same_as: int
    table: str
    options: Mapping[str, str]
    metadata_path: str


class LiveRun(Protocol):
    """One run of one streaming query. ``jvm.execution.Execution`` in a classic session,
    ``connect.live.ConnectRun`` over Spark Connect.
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

    def last_logged_batch(self) -> int | None:
        """The highest batch id in Spark's commit log."""

    def last_progress(self) -> str | None:
        """Spark's last StreamingQueryProgress as JSON text, before there is any None."""

    def doing(self) -> str:
        """What Spark says that it does: ``Waiting for data to arrive``, and the like."""

    def leaves(self) -> Sequence[SourceLeaf]:
        """One for each line of the offset log; empty while Spark has not planned the query yet."""

    def metrics_planned(self, prefix: str) -> Iterable[str]:
        """The names of the observed metrics in the query's plan."""
