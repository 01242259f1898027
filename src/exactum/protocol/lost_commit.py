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

from exactum.errors import CheckpointRefused, EpochAborted, HeuristicOutcome, RowsRefused
from exactum.protocol import resolve
from exactum.protocol.decision_log import StandingRecords
from exactum.protocol.model import (
    Decision,
    DecisionRecord,
    PreparedTransaction,
    Sighting,
    rows_of,
)
from exactum.protocol.participant import Accountable, Participant
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

    def redeliver(self, sightings: Sequence[Sighting]) -> bool:
        """Commit again, batch by batch, what was seen open although it was committed; False where
        there is none. Only the participants that lost it are asked. Idempotent.

        Nothing is salvaged: a record in a slot of a batch that is over would be beyond the fences.

        Raises:
            HeuristicOutcome: a part of it is gone.
            ExactumError: as ``DecisionLog.read`` and ``Participant.commit``.
        """
        seen = {
            (s.participant, s.identity)
            for s in sightings
            if s.participant not in self._list_settled
        }
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
        what they refer to, that the next one will do.

        Raises:
            ExactumError: as ``redeliver``.
        """
        if not isinstance(error, RowsRefused) or not self.redeliver(self._participants.list_open()):
            return error
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
        asking = threading.Lock()  # participants are asked all at once, and the log is one

        def of(participant: Participant) -> str:
            if not isinstance(participant, Accountable):
                return ""

            def committed(batch_id: int) -> Sequence[PreparedTransaction]:
                with asking:
                    record = self._on_record(batch_id)
                return () if record is None else record.of(participant.name)

            for batch_id in sorted(standing, reverse=True):
                its = [p for p in standing[batch_id].of(participant.name) if p.rows]
                if its:
                    return participant.gone_back(batch_id, its, committed)
            return ""

        found = [text for text in self._participants.each(of) if text]
        if found:
            raise CheckpointRefused(found[0])

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
                "kept. Restore the newer state, or load the missing rows by hand: the decision "
                "record has the source offsets. docs/guarantees.md says how to go on."
            )
        return lost

    def _stands(self, record: DecisionRecord) -> bool:
        # pruned: somebody is far ahead, and his fence stops this run
        return self._on_record(record.epoch.batch_id) == record

    def _on_record(self, batch_id: int) -> DecisionRecord | None:
        """The COMMIT in force; None where there is none, or where it is pruned."""
        try:
            return resolve.standing_commit(self._log.read(batch_id))
        except CheckpointRefused:
            return None
