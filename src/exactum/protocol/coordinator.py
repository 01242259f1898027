"""The coordinator: the one object that decides. One for each run of a query, on the driver.

Every guarantee starts with it. ``AtLeastOnce`` and ``AtMostOnce`` write a batch in another way.

    open --every task prepares--> prepared --COMMIT recorded--> decided --all ack--> completed
     |                              |                             |
     +--a task fails--> aborted     crash: presumed abort         crash: the next run redelivers

Two rules carry the safety; ``model.simulation`` walks every crash and interleaving of this code.

1. *Fencing.* A starting incarnation creates ABORT in the next free slot of the
   batch it begins with, redelivering every COMMIT it finds on the way. Whoever was running must
   pass that slot, finds a record that is not its own, and is fenced. The newest wins; no lease, no
   clock.
2. *List before the record, abort after it.* A transaction is swept only if it was seen open before
   a record of our own was created and no COMMIT names it, of this batch or an earlier one.

``except Exception`` clauses here never hide anything: they clean up and raise. A crash is not an
``Exception``: nothing that must happen after a crash is left to this process.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NoReturn

from exactum import events
from exactum.errors import (
    CheckpointRefused,
    EpochAborted,
    ExactumError,
    Fenced,
    HeuristicOutcome,
    OutcomeUnknown,
    RowsRefused,
)
from exactum.protocol import resolve
from exactum.protocol.decision_log import DecisionLog, PermitLog
from exactum.protocol.ends import NOTHING_NOTED, Noted, check_start, refuse_lost_commit
from exactum.protocol.model import (
    CommitPermit,
    Completed,
    Decision,
    DecisionRecord,
    Epoch,
    PreparedTransaction,
    Sighting,
    SourceOffsets,
    rows_by_participant,
    rows_of,
)
from exactum.protocol.participant import Participant, Sweepable
from exactum.protocol.participants import Parallel, Participants, one_after_another, timed
from exactum.protocol.sink import QueryRun, Ready, Write, WriteOrder, refuse_nothing

SALVAGES_MAX = 8
"""How often one epoch may be salvaged in a row before it is called hopeless."""
STARTS_CONTESTED_MAX = 1_000
"""How often a start may lose a slot to others before it gives up."""
COMMITS_KEPT = 16
"""COMMITs of finished batches that a run remembers: what they name is never a leftover."""


class Coordinator:
    """Runs the epochs of one incarnation, in order, one at a time."""

    def __init__(
        self,
        run: QueryRun,
        participants: Sequence[Participant],
        log: DecisionLog,
        *,
        former: Sequence[Sweepable] = (),
        noted: Noted = NOTHING_NOTED,
        engine: Callable[[], str] = lambda: "",
        on_event: events.Listener = lambda event: None,
        parallel: Parallel[Participant, object] = one_after_another,
    ) -> None:
        """``former``: of sinks that the query had before; what they left open is swept at the
        start. ``noted``: what the checkpoint knows of the log. ``engine``: asked after the write
        job of each batch, and recorded with its decision.
        """
        self._run = run
        self._participants = Participants(participants, former, parallel, self._report_swept)
        self._engine = engine
        self._log = PermitLog(log)
        self._noted = noted
        self._finished: deque[DecisionRecord] = deque(maxlen=COMMITS_KEPT)
        self._committed: dict[str, int] = {}
        self._emit = on_event
        self._fence: resolve.Fence | None = None
        self._swept: tuple[Sighting, ...] = ()
        self._sequence = 0
        self._stopped: BaseException | None = None
        self._abandoned: int | None = None
        self._between_epochs = threading.Lock()
        self._phase_ms: dict[str, float] = {}
        self._ready: Ready = refuse_nothing

    def run(
        self, batch_id: int, offsets: SourceOffsets, write: Write, ready: Ready = refuse_nothing
    ) -> Completed:
        """Bring one batch into every sink, as the guarantee has it. Idempotent over crashes and
        incarnations.

        Raises:
            Fenced: another incarnation has taken over; what this one prepared is aborted.
            EpochAborted: the attempt was void; start the query again.
            CheckpointRefused: the batch is on record with other source offsets.
            HeuristicOutcome: a decided epoch was undone outside and cannot be made whole.
            Unavailable, OutcomeUnknown: a server did not answer; a restart settles it.

        After any of these this coordinator is spent. A decision that was sent may still take
        effect, and only another incarnation, by fencing this one, can find out whether it did.
        """
        with self._between_epochs:
            if self._stopped is not None:
                raise self._spent(batch_id, self._stopped)
            try:
                self._ready = ready
                return self._run_batch(batch_id, offsets, write)
            except BaseException as error:
                self._stopped = error
                raise

    def _run_batch(self, batch_id: int, offsets: SourceOffsets, write: Write) -> Completed:
        self._phase_ms = {}
        if self._fence is None:
            self._fence = self._start(batch_id)
        step = resolve.when_asked(batch_id, self._fence, self._log.read(batch_id))
        if isinstance(step, resolve.FencedBy):
            raise self._fenced(step.record)
        if isinstance(step, resolve.Stands):
            record = step.record
            resolve.refuse_other_offsets(record, offsets)
            return Completed(False, rows_of(record.prepared), record.engine)
        return self._attempt(batch_id, step.attempt, offsets, write)

    @property
    def abandoned(self) -> int | None:
        """The batch whose attempt was aborted before a decision, this run's last: its tasks may
        still be at work.
        """
        return self._abandoned

    def sweep_own(self, batch_id: int) -> int:
        """Abort what this incarnation has open between two epochs, or after its last; returns how
        many. Idempotent.

        For a quiet stream, or one that failed: a task that opens its transaction after the epoch's
        listing (a speculative one, or one that has not noticed yet that Spark cancelled it) would
        hold readers back until the next epoch. Everything decided is committed by now, so what is
        open and ours is nobody's. Does nothing before the first epoch, while one runs, or after a
        failure that may have left a decision.
        """
        if not self._between_epochs.acquire(blocking=False):
            return 0
        try:
            if self._fence is None or (self._stopped is not None and self._abandoned is None):
                return 0
            return self._abort_own(batch_id)
        finally:
            self._between_epochs.release()

    def prune(self, below_batch_id: int) -> None:
        """Forget the records of batches that Spark can no longer ask for. Idempotent."""
        self._log.prune(below_batch_id)

    def close(self) -> None:
        """Let go of the participants and of the decision log."""
        self._participants.close()
        self._log.close()

    # ---- start -------------------------------------------------------------------------------

    def _start(self, batch_id: int) -> resolve.Fence:
        """Redeliver what is decided, fence older runs, sweep what was open before. Idempotent."""
        each = self._participants.each
        query_id, run = self._run.query_id, self._run.number
        earlier, ends = check_start(query_id, batch_id, self._log, each, self._noted, run=run)
        self._finish(earlier)
        self._committed = {t.name: t.has for t in ends.targets if t.has is not None}
        sightings = self._participants.list_open()
        left = self._participants.left_by_former()
        self._commit_again(sightings)
        self._committed |= {t.name: t.owes for t in ends.targets if t.waits and t.owes is not None}
        seen = self._fence_from(batch_id)
        batch_id, slot = seen[-1].epoch.batch_id, seen[-1].attempt
        self._swept = self._leftovers(sightings, seen)
        self._participants.abort(batch_id, self._swept)
        for former, own in left:
            self._participants.sweep_former(former, batch_id, self._leftovers(own, seen))
        self._finish(seen)
        self._emit(events.OlderRunsFenced(*self._name(batch_id), slot, len(self._swept)))
        return resolve.Fence(batch_id, slot)

    def _fence_from(self, batch_id: int) -> list[DecisionRecord]:
        """Carry every COMMIT from that batch on out, then create an ABORT in the next free slot.
        Returns all records on the way, the ABORT last.

        Raises:
            Fenced: others take the slots without end.
        """
        epoch, seen = Epoch(self._run.query_id, batch_id), list[DecisionRecord]()
        for _ in range(STARTS_CONTESTED_MAX):
            seen.extend(records := self._log.read(epoch.batch_id))
            step = resolve.at_start(records)
            if isinstance(step, resolve.Redeliver):
                seen.append(self._redeliver(step.record))
                epoch = Epoch(epoch.query_id, epoch.batch_id + 1)
                continue
            mine = DecisionRecord(epoch, step.attempt, Decision.ABORT, self._run.incarnation)
            if self._log.decide(mine) == mine:
                return [*seen, mine]
        raise Fenced(
            f"{epoch}: others took the next slot {STARTS_CONTESTED_MAX} times, so this run could "
            "not take the query over. Run it in one place only."
        )

    def _redeliver(self, record: DecisionRecord) -> DecisionRecord:
        final = self._commit(record)
        self._emit(
            events.EpochRedelivered(
                *self._name(record.epoch.batch_id),
                final.attempt,
                len(final.prepared),
                rows_of(final.prepared),
                rows_by_participant(final.prepared),
            )
        )
        return final

    # ---- one attempt -------------------------------------------------------------------------

    def _attempt(
        self, batch_id: int, attempt: int, offsets: SourceOffsets, write: Write
    ) -> Completed:
        epoch = Epoch(self._run.query_id, batch_id)
        prepared = self._prepare(epoch, attempt, write)
        sightings, record = self._decide(epoch, attempt, offsets, prepared)
        name, rows = self._name(batch_id), rows_of(prepared)
        self._emit(events.EpochDecided(*name, attempt, len(prepared), rows))
        with timed(self._phase_ms, "commit"):
            final = self._commit(record)
        self._finish((record, final))
        with timed(self._phase_ms, "sweep"):
            self._participants.abort(batch_id, self._leftovers(sightings))
        self._emit(
            events.EpochCompleted(
                *self._name(batch_id),
                final.attempt,
                len(final.prepared),
                rows_of(final.prepared),
                dict(self._phase_ms),
                rows_by_participant(final.prepared),
                self._participants.phase_ms(),
            )
        )
        return Completed(True, rows_of(final.prepared), phase_ms=dict(self._phase_ms))

    def _prepare(self, epoch: Epoch, attempt: int, write: Write) -> tuple[PreparedTransaction, ...]:
        order = self._next_order(epoch.batch_id, attempt)
        try:
            self._ready(order)
            with timed(self._phase_ms, "write"):
                return tuple(write(order))
        except Exception as error:  # noqa: BLE001  (it is raised there)
            self._give_up(epoch, attempt, error)

    def _decide(
        self,
        epoch: Epoch,
        attempt: int,
        offsets: SourceOffsets,
        prepared: tuple[PreparedTransaction, ...],
    ) -> tuple[tuple[Sighting, ...], DecisionRecord]:
        """Verify, list what is open, create the record. Past a failed ``decide`` nothing may be
        undone.
        """
        try:
            with timed(self._phase_ms, "verify"):
                self._refuse_lost_commit(epoch.batch_id, {p.participant for p in prepared})
                verified = self._participants.verify(prepared)
                sightings = self._participants.list_open()
                # Of a target with a marker alone: others may list what is settled.
                with_marker = self._participants.remembering() if sightings else frozenset()
                self._commit_again([s for s in sightings if s.participant in with_marker])
                engine = self._engine()
        except Exception as error:  # noqa: BLE001  (it is raised there)
            self._give_up(epoch, attempt, error)
        mine = DecisionRecord(
            epoch, attempt, Decision.COMMIT, self._run.incarnation, verified, offsets, engine=engine
        )
        with timed(self._phase_ms, "decide"):
            try:
                in_force = self._log.decide(mine)
            except Fenced as error:
                self._abandon(epoch, attempt, error)
                raise
        if in_force != mine:
            self._abandon(epoch, attempt, Fenced("a newer incarnation has taken over"))
            raise self._fenced(in_force)
        return sightings, mine

    def _give_up(self, epoch: Epoch, attempt: int, error: Exception) -> NoReturn:
        """Abandon an attempt that failed, and raise ``error``, or ``Fenced`` where that is the
        reason.

        A successor sweeps us after fencing us, so what we find gone may be its doing: told apart
        here, for an aborted epoch says "start again" and would take the query back from it.
        """
        try:
            records = self._log.read(epoch.batch_id)
            is_over = len(records) > attempt
            reason = self._fenced(records[attempt]) if is_over else error
        except CheckpointRefused as refused:
            reason = Fenced(str(refused))
        except Exception as unread:  # noqa: BLE001  (only the reason is unknown then)
            # A target that is ahead may be a successor's work, and the next start compares again.
            reason = unread if isinstance(error, CheckpointRefused) else error
        if reason is error and isinstance(error, RowsRefused):
            reason = self._loss_behind(epoch.batch_id, error)
        self._abandon(epoch, attempt, reason)
        if reason is error:
            raise error
        raise reason from error

    def _abandon(self, epoch: Epoch, attempt: int, reason: Exception) -> None:
        """Abort all that this incarnation has open, after an attempt that was never decided.
        Idempotent.

        What cannot be reached now is swept by the next start, so a failure here must not hide the
        reason.
        """
        text = str(reason)
        try:
            self._abort_own(epoch.batch_id)
            self._abandoned = epoch.batch_id
        except Exception as error:  # noqa: BLE001  (it is reported, and the reason is raised)
            text += f" (and its open transactions are left to the next start: {error})"
        self._emit(events.EpochAbandoned(*self._name(epoch.batch_id), attempt, text))

    # ---- commit ------------------------------------------------------------------------------

    def _commit(self, record: DecisionRecord) -> DecisionRecord:
        """Carry a recorded COMMIT out; salvage what was undone meanwhile. Idempotent.

        Returns the record that is in force at the end: ``record``, or one that supersedes it.
        """
        self._participants.refuse_missing(record)
        for _ in range(SALVAGES_MAX):
            permit = self._log.permit(record)
            expired = self._participants.commit(permit)
            if not expired:
                batch_id = record.epoch.batch_id
                self._committed |= {p.participant: batch_id for p in record.prepared if p.rows}
                return record
            record = self._salvage(permit, expired)
        raise OutcomeUnknown(
            f"{record.epoch}: its transactions expired {SALVAGES_MAX} times in a row before they "
            "could be committed. Raise transaction_timeout_ms, look at the load of the target, "
            "and start again: the records are still there."
        )

    def _salvage(
        self,
        permit: CommitPermit,
        expired: Sequence[tuple[Participant, tuple[PreparedTransaction, ...]]],
    ) -> DecisionRecord:
        """Prepare expired rows anew, record that, and return the record in force. Idempotent.

        Two incarnations may both get here: only one creates the superseding record, and the other
        one takes it over and aborts its own copy.
        """
        record = permit.record
        name = self._name(record.epoch.batch_id)
        for participant, transactions in expired:
            rows = rows_of(transactions)
            self._emit(events.TransactionsExpired(*name, participant.name, len(transactions), rows))
        gone = [transaction for _, own in expired for transaction in own]
        fresh = self._participants.salvage(permit, expired)
        mine = resolve.superseding(record, record.attempt + 1, self._run.incarnation, gone, fresh)
        try:
            in_force = self._log.decide(mine)
        except Fenced:
            with contextlib.suppress(Exception):
                self._participants.abort_copies(record.epoch.batch_id, fresh)
            raise
        if in_force != mine:
            self._participants.abort_copies(record.epoch.batch_id, fresh)
            if in_force.supersedes != record.attempt:
                raise self._fenced(in_force)
            return in_force
        for participant, _ in expired:
            own = [p for p in fresh if p.participant == participant.name]
            self._emit(events.TransactionsSalvaged(*name, participant.name, len(own), rows_of(own)))
        return mine

    # ---- what was committed before ------------------------------------------------------------

    def _finish(self, records: Iterable[DecisionRecord]) -> None:
        """Remember those that are COMMITs: they are carried out."""
        commits = {r for r in records if r.decision is Decision.COMMIT} - set(self._finished)
        self._finished.extend(sorted(commits, key=lambda r: (r.epoch.batch_id, r.attempt)))

    def _leftovers(
        self, sightings: Sequence[Sighting], records: Sequence[DecisionRecord] = ()
    ) -> tuple[Sighting, ...]:
        """See ``resolve.leftovers``: neither these nor what was committed before name them."""
        return resolve.leftovers(sightings, (*self._finished, *records))

    def _commit_again(self, sightings: Sequence[Sighting]) -> None:
        """What a COMMIT of a batch that is over names, and is still open: in order, before anything
        new. The commit failed, and nobody told Spark; or the target has lost it, and it waits
        again. A sink that has lost more is refused before.

        Raises:
            HeuristicOutcome: a part of it is gone.
        """
        opened = {(s.participant, s.identity) for s in sightings}
        for record in tuple(self._finished):
            own = record.prepared
            names = {p.participant for p in own if (p.participant, p.identity) in opened}
            if not names or not self._still_stands(record):
                continue
            expired = self._participants.commit(self._log.permit(record), names)
            if expired:
                raise HeuristicOutcome(
                    "COMMIT_UNDONE_LATE",
                    f"{record.epoch}: it is decided, Spark has finished it, and transactions of it "
                    f"with {sum(rows_of(gone) for _, gone in expired)} rows are gone from sink "
                    f"{expired[0][0].name!r}.\nIt failed over, was restored from an older copy, or "
                    "somebody undid them. The others are kept.\nKeep the batch as decided without "
                    "that sink ('exactum accept --without'), and load what is missing by hand: "
                    "docs/operations.md.",
                )

    def _still_stands(self, record: DecisionRecord) -> bool:
        try:
            return resolve.commit_in_force(self._log.read(record.epoch.batch_id)) == record
        except CheckpointRefused:  # pruned: somebody is far ahead, and his fence stops this run
            return False

    def _refuse_lost_commit(self, batch_id: int, names: Collection[str]) -> None:
        refuse_lost_commit(
            self._run.query_id, batch_id, self._participants.each, names, self._committed
        )

    def _loss_behind(self, batch_id: int, error: RowsRefused) -> Exception:
        """Rows may be refused because a target has lost what they refer to: then the loss is the
        reason.
        """
        try:
            self._refuse_lost_commit(batch_id, set(self._committed))
        except CheckpointRefused as lost:
            return lost
        except Exception:  # noqa: BLE001  (only the reason is unknown then, and ``error`` is raised)
            return error
        return error

    # ---- small steps -------------------------------------------------------------------------

    def _next_order(self, batch_id: int, attempt: int) -> WriteOrder:
        self._sequence += 1
        return WriteOrder(self._run, batch_id, attempt, self._sequence)

    def _fenced(self, record: DecisionRecord) -> Fenced:
        self._emit(
            events.IncarnationFenced(
                *self._name(record.epoch.batch_id), record.attempt, record.incarnation
            )
        )
        return resolve.taken_over(record, self._run.incarnation)

    def _spent(self, batch_id: int, error: BaseException) -> ExactumError:
        text = (
            f"{Epoch(self._run.query_id, batch_id)}: incarnation {self._run.incarnation} has "
            f"stopped already ({error}). Start the query again: that makes a new one."
        )
        return error.with_message(text) if isinstance(error, ExactumError) else EpochAborted(text)

    def _abort_own(self, batch_id: int) -> int:
        left = self._leftovers(self._participants.list_open())
        mine = [s for s in left if s.incarnation == self._run.incarnation]
        self._participants.abort(batch_id, mine)
        return len(mine)

    def _report_swept(self, batch_id: int, participant: str, count: int) -> None:
        self._emit(events.LeftoversSwept(*self._name(batch_id), participant, count))

    def _name(self, batch_id: int) -> tuple[str, int, str]:
        return self._run.query_id, batch_id, self._run.incarnation
