"""Finds that a target has lost a commit, and commits again.

A database that failed over to an asynchronous standby, was restored, or lost its newest commits in
a power cut has gone back in time: what an earlier COMMIT names is open in it once more, staged or
prepared. The record has all that is needed, and a commit may be repeated, so it is delivered again
before anything later is decided. It is never a leftover.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Sequence, Set

from exactum.errors import (
    CheckpointRefused,
    EpochAborted,
    HeuristicOutcome,
    InvariantBroken,
    RowsRefused,
)
from exactum.protocol import resolve
from exactum.protocol.decision_log import DecisionLog, StandingRecords
from exactum.protocol.model import (
    Decision,
    DecisionRecord,
    PreparedTransaction,
    Sighting,
    rows_of,
)
from exactum.protocol.participant import (
    Accountable,
    Committed,
    Participant,
    Remembering,
    none_on_record,
)
from exactum.protocol.participants import Participants

logger = logging.getLogger("exactum")

RECORDS_KEPT = 16
"""COMMITs of finished batches that a run remembers. What is open again is of one batch: the next
one's tasks begin when it stands."""


class FinishedCommits:
    """The last COMMITs that were carried out, as far as this run knows."""

    def __init__(self, participants: Participants, log: StandingRecords) -> None:
        self._participants = participants
        self._log = log
        self._records: deque[DecisionRecord] = deque(maxlen=RECORDS_KEPT)
        self._list_settled: set[str] = set()
        """Participants that list what is committed as well, as a user's sink may."""

    def add(self, records: Iterable[DecisionRecord]) -> None:
        """Those that are COMMITs, in the order of their batches."""
        commits = [r for r in records if r.decision is Decision.COMMIT and r not in self._records]
        self._records.extend(sorted(commits, key=lambda r: (r.epoch.batch_id, r.attempt)))

    def leftovers(
        self, sightings: Iterable[Sighting], records: Iterable[DecisionRecord] = ()
    ) -> tuple[Sighting, ...]:
        """See ``resolve.leftovers``: neither these nor ``records`` name them."""
        return resolve.leftovers(sightings, (*self._records, *records))

    def redeliver(self, sightings: Sequence[Sighting], begins: int | None = None) -> bool:
        """Commit again, batch by batch, what was seen open although it was committed; False where
        there is none. Only the participants that lost it are asked. Idempotent. ``begins``: at a
        start, the batch it begins with.

        Nothing is salvaged: a record in a slot of a batch that is over would be beyond the fences.

        Raises:
            CheckpointRefused: something else may have written since.
            HeuristicOutcome: a part of it is gone.
            ExactumError: as ``DecisionLog.read`` and ``Participant.commit``.
        """
        seen = {
            (s.participant, s.identity)
            for s in sightings
            if s.participant not in self._list_settled
        }
        if begins is not None and begins - 1 not in {r.epoch.batch_id for r in self._records}:
            self._refuse_written_since(begins - 1, seen)
        done = [lost for r in list(self._records) if (lost := self._again(r, seen))]
        if not done:
            return False
        listed = {(s.participant, s.identity) for s in self._participants.list_open()}
        self._list_settled |= {name for lost in done for name, identity in lost & listed}
        for name in sorted({name for lost in done for name, _ in lost} - self._list_settled):
            logger.warning(
                "sink %r had lost a commit: transactions that the decision log has as committed "
                "were only prepared there, and are committed again now. The target has gone back "
                "in time (a failover to a server without the newest commits, a restored copy, a "
                "power cut): see by 'exactum verify' whether it lost more",
                name,
            )
        return True

    def verify(
        self, prepared: Sequence[PreparedTransaction]
    ) -> tuple[tuple[PreparedTransaction, ...], tuple[Sighting, ...]]:
        """The last look before the decision, and what is open: once what was lost is committed
        again. Rows that a target refuses may refer to those (a foreign key), so it is asked twice.

        Raises:
            ExactumError: as ``redeliver`` and ``Participants.verify``.
        """
        try:
            verified = self._participants.verify(prepared)
        except RowsRefused:
            if not self.redeliver(self._participants.list_open()):
                raise
            verified = self._participants.verify(prepared)
        sightings = self._participants.list_open()
        if self.redeliver(sightings):
            verified = self._participants.verify(prepared)
        return verified, sightings

    def cause(self, error: Exception) -> Exception:
        """``error`` of an attempt; or, where tasks' rows were refused by a target that had lost
        what they refer to, that the next one will do, or why a person has to look at it first.

        Raises:
            Unavailable: a target did not answer.
        """
        if not isinstance(error, RowsRefused):
            return error
        try:
            if not self.redeliver(self._participants.list_open()):
                return error
        except (CheckpointRefused, HeuristicOutcome) as refused:
            return refused
        return EpochAborted(
            f"Rows were refused while the target lacked a commit that it had lost ({error}). It is "
            "committed again now, and they may refer to it. The attempt is void; start the query "
            "again."
        )

    def refuse_gone_back(self) -> None:
        """Of the last of these batches that has rows for it, each participant is asked. One that
        lost it would go on without these rows, and without a word.

        Raises:
            CheckpointRefused: a target has gone back to before it.
        """
        standing = {r.epoch.batch_id: r for r in self._records}  # by attempt: the last is in force
        records = list(standing.values())
        asking = threading.Lock()  # participants are asked all at once, and the log is one

        def of(participant: Participant) -> str:
            def committed(batch_id: int) -> Sequence[PreparedTransaction]:
                with asking:
                    return committed_of(self._log, batch_id, participant.name) or ()

            return loss_of(participant, records, committed)

        found = [text for text in self._participants.each(of) if text]
        if found:
            raise CheckpointRefused(found[0])

    def _refuse_written_since(self, last: int, seen: Set[tuple[str, str]]) -> None:
        """Batch ``last`` is done and has no COMMIT. Only targets that keep which batches they have
        count: a user's sink may list what is committed.
        """

        def of(participant: Participant) -> str:
            return participant.name if isinstance(participant, Remembering) else ""

        kept = set(self._participants.each(of))
        for record in list(self._records):
            its = [
                p
                for p in record.prepared
                if p.participant in kept and (p.participant, p.identity) in seen
            ]
            if its and self._stands(record):
                raise CheckpointRefused(
                    f"{record.epoch} is decided and not committed: sink {its[0].participant!r} "
                    f"still holds {len(its)} of its transactions. And batch {last}, which Spark "
                    "has finished, has no COMMIT that counts. Something else has written it, such "
                    "as Spark's own sink, or the decision log has lost it. To commit the older "
                    "batch behind newer rows could double its rows, or put old ones over newer. If "
                    f"nothing else has written batches {record.epoch.batch_id} to {last}, run "
                    "'exactum transactions finish', see by 'exactum verify' what is missing, and "
                    "start again. If something has, move all records of batch "
                    f"{record.epoch.batch_id} out of the decision log: the next start aborts what "
                    "they name. Nothing was written."
                )

    def _again(self, record: DecisionRecord, seen: Set[tuple[str, str]]) -> set[tuple[str, str]]:
        """What of ``seen`` the record names, once it is committed."""
        lost = {(p.participant, p.identity) for p in record.prepared} & seen
        if not lost or not self._stands(record):
            return set()
        names = {name for name, _ in lost}
        expired = self._participants.commit(self._log.permit(record), names)
        undone = [p for _, its in expired for p in its]
        if undone:
            shown = ", ".join(repr(name) for name in sorted({p.participant for p in undone}))
            raise HeuristicOutcome(
                f"{record.epoch} was committed, and sink {shown} has gone back to a moment before "
                "that: it failed over to a server without the newest commits, was restored from an "
                f"older copy, or lost them in a power cut. {len(undone)} of the transactions that "
                f"the record names, with {rows_of(undone)} rows, are gone from it. The others are "
                "kept. Spark has finished the batch and never repeats it, so leave its record "
                "where it is: without it the next start would drop the others, too, and go on. "
                "Restore the newer state, or keep the batch as decided and load what is missing by "
                "hand: the record has the source offsets. docs/guarantees.md says how to go on."
            )
        return lost

    def _stands(self, record: DecisionRecord) -> bool:
        try:
            return resolve.standing_commit(self._log.read(record.epoch.batch_id)) == record
        except CheckpointRefused:  # pruned: somebody is far ahead, and his fence stops this run
            return False


def committed_of(
    log: DecisionLog | StandingRecords, batch_id: int, participant: str
) -> Sequence[PreparedTransaction] | None:
    """What the log has as committed of a batch long ago; None where it has no record of it. One
    that the query was given later begins above it: to that, the batch is missing.

    Raises:
        Unavailable: the log did not answer.
    """
    try:
        record = resolve.standing_commit(log.read(batch_id))
    except (CheckpointRefused, InvariantBroken):
        return None
    return None if record is None else record.of(participant)


def loss_of(
    participant: Participant,
    records: Iterable[DecisionRecord],
    committed: Committed = none_on_record,
) -> str:
    """Why the target cannot have any more what the last of ``records`` with rows for it committed,
    and what to do; empty where it may. They are COMMITs in force of batches that are over;
    ``committed`` tells of others.

    Raises:
        Unavailable: the target did not answer.
    """
    if not isinstance(participant, Accountable):
        return ""
    for record in sorted(records, key=lambda r: r.epoch.batch_id, reverse=True):
        its = [p for p in record.of(participant.name) if p.rows]
        if its:
            return participant.gone_back(record.epoch.batch_id, its, committed)
    return ""
