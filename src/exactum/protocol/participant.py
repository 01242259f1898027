"""The participant port: what the coordinator asks of anything that can prepare and later commit.

The executor half that writes and prepares is a ``Writer`` (see ``sink``). This is the driver half:
it holds no state of an epoch, so that any process can finish what another one prepared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from exactum.errors import InvariantBroken
from exactum.protocol.model import (
    CommitPermit,
    CommitReport,
    Incarnation,
    PreparedTransaction,
    Sighting,
)

if TYPE_CHECKING:
    from exactum.protocol.sink import Rejection


class Sweepable(Protocol):
    """What can be found open and aborted: a present sink's participant, or what reaches a former
    one's leftovers.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Unique among the sinks of the query and the same after every restart."""

    @abstractmethod
    def list_open(self) -> Sequence[Sighting]:
        """Every transaction now open under this query's and this participant's name, matched
        exactly.

        Includes those of other incarnations; leaves out what belongs to anybody else.

        Raises:
            Unavailable: the target did not answer.
        """

    @abstractmethod
    def abort(self, transactions: Sequence[Sighting]) -> None:
        """Undo them if they are still open. Idempotent; one that is settled already is left alone.

        Raises:
            Unavailable: the target did not answer.
        """

    def close(self) -> None:
        """Let go of connections. Leaves every open transaction as it is."""


class Participant(Sweepable, ABC):
    """Driver side of one sink; each inherits this. Every method may be called again after any
    crash: all are idempotent.
    """

    def list_committed(
        self, is_asked: Callable[[Incarnation], bool], recent: Sequence[PreparedTransaction]
    ) -> Sequence[Sighting]:
        """Transactions that are committed for certain: of tasks of incarnations that are asked for,
        or later than one of ``recent``.

        Asked at a start, to find out whether a decision is missing from the log. Leaves out what
        tasks of the weaker guarantees have committed themselves, and may leave out any. A
        salvage's are none of those: a start may have made them long before it set its
        fence. Default: none, of a sink that cannot tell, or that refuses in ``verify`` a batch it
        has already.

        Raises:
            Unavailable: the target did not answer.
        """
        return ()

    @abstractmethod
    def verify(self, prepared: Sequence[PreparedTransaction]) -> Sequence[PreparedTransaction]:
        """Check that each is still there, is the one expected, is complete and has time left.

        Returns the same transactions in the same order, each with whatever a later ``salvage`` may
        need added to its payload.

        Raises:
            EpochAborted: one is gone, is not the expected one, or has too little time left.
            Unavailable: the target did not answer.
        """

    @abstractmethod
    def commit(self, permit: CommitPermit, prepared: Sequence[PreparedTransaction]) -> CommitReport:
        """Make them visible. Idempotent: a transaction that is committed already is a success.

        Returns which are committed for certain, and which are for certain undone although decided.

        Raises:
            OutcomeUnknown: neither could be established.
            Fenced: another incarnation is carrying this very commit out.
            Unavailable: the target did not answer.
        """

    @abstractmethod
    def salvage(
        self, permit: CommitPermit, expired: Sequence[PreparedTransaction]
    ) -> Sequence[PreparedTransaction]:
        """Prepare anew the rows of decided transactions that were undone, and return the new ones.

        Nothing of it becomes visible before the new ones are recorded and committed.

        Raises:
            HeuristicOutcome: rows are gone; the message says which and how many.
            Unavailable: the target did not answer.
        """

    # What not every participant has. Where a flag is False, its methods are not called.

    remembers = False
    """Whether the target keeps a marker: the last batch of the query that it has, which moves in
    the same step as the rows. See ``ends``.
    """

    def last_batch(self, committed: Sequence[PreparedTransaction] = ()) -> int | None:
        """The last batch in the target; None: it has no trace of the query, as one that is new, or
        was emptied on purpose.

        ``committed`` is what the log has as committed there last: a target that had it, and can
        tell that it was made anew since, answers with -1.

        Raises:
            Unavailable: the target did not answer.
        """
        return None

    def forget_batches(self, first: int = 0) -> None:
        """Remove the marker of batch ``first`` and of later ones: a person has accepted that they
        are written again. A target that notes its last batch alone forgets that there was one.

        Raises:
            Unavailable: the target did not answer.
        """

    judges = False
    """Whether the target alone knows of some rows whether it takes them."""

    def judge(
        self, prepared: Sequence[PreparedTransaction]
    ) -> tuple[Sequence[PreparedTransaction], Rejection | None]:
        """Find the rows that the target can never take, after all tasks have prepared and before
        ``verify`` or ``deliver``.

        Returns the same transactions without these rows, which the payload names, so that every
        later call leaves them out; and the rows, if there are any. Whoever called it writes them to
        the epoch's dead letters, or stops the epoch. Idempotent.

        Raises:
            RowsRefused: there are too many of them, or rows break a rule that others are part of.
            Unavailable: the target did not answer.
        """
        return prepared, None

    def deliver(self, prepared: Sequence[PreparedTransaction]) -> None:
        """Make visible what tasks have prepared under a weaker guarantee; no decision of it is
        recorded. Default: tasks leave nothing to the driver there.

        Raises:
            ExactumError: they may or may not be visible.
        """
        raise InvariantBroken(f"Sink {self.name!r} prepares what it cannot deliver.")

    def are_for_here(self, prepared: Sequence[PreparedTransaction]) -> bool:
        """Whether all of these were staged for the place that the target has now. Default: they
        wait in the target itself.
        """
        return True

    def own(self, prepared: Sequence[PreparedTransaction]) -> Sequence[PreparedTransaction]:
        """Those that a sink of this kind has prepared: one of its name may have been of another
        kind before. Default: all, of one that cannot tell.
        """
        return prepared
