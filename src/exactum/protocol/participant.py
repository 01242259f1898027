"""The participant port: what the coordinator asks of anything that can prepare and later commit.

The executor half that writes and prepares is a ``Writer`` (see ``sink``). This is the driver half:
it holds no state of an epoch, so that any process can finish what another one prepared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Protocol, runtime_checkable

from exactum.protocol.model import (
    CommitPermit,
    CommitReport,
    Incarnation,
    PreparedTransaction,
    Sighting,
)


class Sweepable(Protocol):
    """What can be found open and aborted: a present sink's participant, or what reaches a former
    one's leftovers.
    """

    @property
    def name(self) -> str:
        """Unique among the sinks of the query and the same after every restart."""

    def list_open(self) -> Sequence[Sighting]:
        """Every transaction now open under this query's and this participant's name, matched
        exactly.

        Includes those of other incarnations; leaves out what belongs to anybody else.

        Raises:
            Unavailable: the target did not answer.
        """

    def abort(self, transactions: Sequence[Sighting]) -> None:
        """Undo them if they are still open. Idempotent; one that is settled already is left alone.

        Raises:
            Unavailable: the target did not answer.
        """


@runtime_checkable
class Remembering(Protocol):
    """A participant whose target keeps which batches of the query it has."""

    def last_decided(self) -> int | None:
        """The highest batch that was decided for certain, as the target shows; None: it shows none.

        Raises:
            Unavailable: the target did not answer.
        """


Committed = Callable[[int], Sequence[PreparedTransaction]]
"""From a batch to what the decision log has as committed of it; empty where it has no record."""


def none_on_record(batch_id: int) -> Sequence[PreparedTransaction]:
    """A ``Committed`` where nobody can tell."""
    return ()


@runtime_checkable
class Accountable(Protocol):
    """A participant whose target can be seen to have lost what it had committed."""

    def gone_back(
        self,
        batch_id: int,
        prepared: Sequence[PreparedTransaction],
        committed: Committed = none_on_record,
    ) -> str:
        """Why the target cannot have ``prepared`` any more, all that was committed of a batch that
        is over, and what to do; empty where it may, or where they were committed elsewhere.
        ``committed`` tells of its other batches.

        Asked at a start. Whatever has no trace of the query at all may be new, or was reset on
        purpose, and is none.

        Raises:
            Unavailable: the target did not answer.
        """


@runtime_checkable
class Renamable(Protocol):
    """A participant whose target is told by a name, as a server is, and may be an older copy of
    what was written by another name.
    """

    def older_copy(
        self,
        batch_id: int,
        prepared: Sequence[PreparedTransaction],
        is_on_record: Callable[[int], bool],
    ) -> str:
        """Why the target may be a copy from before ``prepared``, all that was committed of a batch
        that is over, and what to do; empty where they were written by this name, or where the
        target's last batch is on record (see ``Accountable``).

        Asked at a start, where nothing on file says that the query has had this target before.

        Raises:
            Unavailable: the target did not answer.
        """


class Participant(Sweepable, Protocol):
    """Driver side of one sink. Every method may be called again after any crash: all are
    idempotent.
    """

    def list_committed(
        self, incarnations: Set[Incarnation], recent: Sequence[PreparedTransaction]
    ) -> Sequence[Sighting]:
        """Transactions that are committed for certain: of tasks of ``incarnations``, or later than
        one of ``recent``.

        Asked at a start, to find out whether a decision is missing from the log. Leaves out what
        tasks of the weaker guarantees have committed themselves, and may leave out any; a sink that
        cannot tell, or that refuses in ``verify`` a batch it has already, answers with none. A
        salvage's are none of ``incarnations``: a start may have made them long before it set its
        fence.

        Raises:
            Unavailable: the target did not answer.
        """

    def verify(self, prepared: Sequence[PreparedTransaction]) -> Sequence[PreparedTransaction]:
        """Check that each is still there, is the one expected, is complete and has time left.

        Returns the same transactions in the same order, each with whatever a later ``salvage`` may
        need added to its payload.

        Raises:
            EpochAborted: one is gone, is not the expected one, or has too little time left.
            Unavailable: the target did not answer.
        """

    def commit(self, permit: CommitPermit, prepared: Sequence[PreparedTransaction]) -> CommitReport:
        """Make them visible. Idempotent: a transaction that is committed already is a success.

        Returns which are committed for certain, and which are for certain undone although decided.

        Raises:
            OutcomeUnknown: neither could be established.
            Fenced: another incarnation is carrying this very commit out.
            Unavailable: the target did not answer.
        """

    def salvage(
        self, permit: CommitPermit, expired: Sequence[PreparedTransaction]
    ) -> Sequence[PreparedTransaction]:
        """Prepare anew the rows of decided transactions that were undone, and return the new ones.

        Nothing of it becomes visible before the new ones are recorded and committed.

        Raises:
            HeuristicOutcome: rows are gone; the message says which and how many.
            Unavailable: the target did not answer.
        """

    def close(self) -> None:
        """Let go of connections. Leaves every open transaction as it is."""
