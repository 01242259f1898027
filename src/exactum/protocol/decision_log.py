"""The decision log port: a durable, append-once record of decisions. Its one write is the commit
point.

Storage must offer one thing: *create if absent*, atomically and durably. A slot is (batch,
attempt); the first record in it stands for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from exactum.errors import InvariantBroken
from exactum.protocol.model import GRANT, CommitPermit, DecisionRecord


class DecisionLog(Protocol):
    """The decisions of one query."""

    def read(self, batch_id: int) -> Sequence[DecisionRecord]:
        """The records of a batch, by attempt from 0 without a gap; empty when there are none.

        Raises:
            CheckpointRefused: a record is of a newer version or of another query.
            InvariantBroken: a record is damaged or missing between two others.
            Unavailable: storage did not answer.
        """

    def decide(self, record: DecisionRecord) -> DecisionRecord:
        """Create the record unless its slot is taken, and return the record that stands in the
        slot.

        Idempotent: the same record again returns itself. When this returns, the record that stands
        is durable.

        Raises:
            Fenced: the batch is below what was pruned, so a newer incarnation is far ahead.
            OutcomeUnknown: the record may or may not stand.
        """

    def prune(self, below_batch_id: int) -> int:
        """Forget the records of batches below ``below_batch_id``; return how many were removed.

        Idempotent. A later ``decide`` for such a batch is refused, by whomever: an old slot never
        becomes free again.
        """

    def close(self) -> None:
        """Let go of connections."""


@runtime_checkable
class EndKnown(Protocol):
    """A decision log that can say where it ends."""

    def last_batch(self) -> int | None:
        """The highest batch that has a record; None: there is none.

        Raises:
            Unavailable: storage did not answer.
        """


@runtime_checkable
class Identified(Protocol):
    """A decision log that has an id of its own, from its first record on."""

    def log_id(self) -> str | None:
        """Which log it is, wherever it is moved; None while it holds nothing.

        Raises:
            Unavailable: storage did not answer.
        """


class PermitLog:
    """A decision log, and what it has last said to stand. Permits come from here alone."""

    def __init__(self, log: DecisionLog) -> None:
        self._log = log
        self._in_force: tuple[DecisionRecord, ...] = ()

    def read(self, batch_id: int) -> Sequence[DecisionRecord]:
        """See ``DecisionLog.read``."""
        self._in_force = tuple(self._log.read(batch_id))
        return self._in_force

    def decide(self, record: DecisionRecord) -> DecisionRecord:
        """See ``DecisionLog.decide``."""
        in_force = self._log.decide(record)
        self._in_force = (in_force,)
        return in_force

    def permit(self, record: DecisionRecord) -> CommitPermit:
        """For what the last ``read`` or ``decide`` returned.

        Raises:
            InvariantBroken: it was not among that, or is an ABORT.
        """
        if record not in self._in_force:
            raise InvariantBroken(f"The decision log did not say that this stands: {record}.")
        return CommitPermit(record, GRANT)

    def log_id(self) -> str | None:
        """See ``Identified``; None, too, where the log cannot tell."""
        return self._log.log_id() if isinstance(self._log, Identified) else None

    def last_batch(self) -> int | None:
        """The last batch with a record; None: there is none, or the log cannot tell.

        Raises:
            Unavailable: storage did not answer.
        """
        return self._log.last_batch() if isinstance(self._log, EndKnown) else None

    def prune(self, below_batch_id: int) -> int:
        """See ``DecisionLog.prune``."""
        return self._log.prune(below_batch_id)

    def close(self) -> None:
        self._log.close()
