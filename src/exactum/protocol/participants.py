"""The participants of one query, asked all at once; and those that it had before, which are only
swept.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Executor, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeVar

from exactum.errors import (
    CheckpointRefused,
    Disposition,
    ExactumError,
    Fenced,
    HeuristicOutcome,
    InvariantBroken,
    OutcomeUnknown,
)
from exactum.protocol import resolve
from exactum.protocol.model import (
    CommitPermit,
    CommitReport,
    DecisionRecord,
    PreparedTransaction,
    Sighting,
    rows_of,
)
from exactum.protocol.participant import Participant, Sweepable

# ---- all at once -----------------------------------------------------------------------------


T = TypeVar("T")
R = TypeVar("R")
Parallel = Callable[[Callable[[T], R], Sequence[T]], list[R]]
"""Calls a function with each of some values, at once or in turn, and returns when all calls have
ended.
"""


def one_after_another(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    return [function(item) for item in items]


def all_at_once(threads: Executor | None) -> Callable[[Callable[[T], R], Sequence[T]], list[R]]:
    """In ``threads``; without any, or for one value, in the caller's."""

    def run(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        if threads is None or len(items) <= 1:
            return one_after_another(function, items)
        futures = [threads.submit(function, item) for item in items]
        wait(futures)  # also where one has failed: nobody may use what another still uses
        return [future.result() for future in futures]

    return run


@contextlib.contextmanager
def timed(phase_ms: dict[str, float], phase: str) -> Iterator[None]:
    """Add the wall time of the block to ``phase_ms[phase]``."""
    began_s = time.perf_counter()
    try:
        yield
    finally:
        took_ms = (time.perf_counter() - began_s) * 1000
        phase_ms[phase] = phase_ms.get(phase, 0.0) + took_ms


# ---- which of several errors is raised -------------------------------------------------------


log = logging.getLogger("exactum")


@dataclass(frozen=True)
class Failure:
    """A participant's name, and what it raised."""

    participant: str
    error: Exception


def refuse_failures(failures: Sequence[Failure]) -> None:
    """Raise the most serious error, the first of equal ones; log the others.

    Raises:
        Exception: there is one.
    """
    if not failures:
        return
    chosen = min(failures, key=lambda failure: _rank(failure.error))
    for failure in failures:
        if failure is not chosen:
            log.error(
                "sink %s failed as well, as sink %s did: %s: %s",
                failure.participant,
                chosen.participant,
                type(failure.error).__name__,
                failure.error,
            )
    raise chosen.error


def _rank(error: Exception) -> int:
    """0 for what a person must see whatever else there is; the more, the sooner another start
    settles it.

    One who is fenced stops before all that a successor meets as well; what is none of ours may be a
    defect.
    """
    if isinstance(error, (InvariantBroken, HeuristicOutcome)):
        return 0
    if isinstance(error, Fenced):
        return 1
    if not isinstance(error, ExactumError):
        return 3
    if error.disposition is Disposition.HALT:
        return 2
    if error.disposition is Disposition.ABORT:
        return 4
    return 5 if isinstance(error, OutcomeUnknown) else 6


# ---- the participants ------------------------------------------------------------------------


class Participants:
    """``on_swept``: told the batch id, the participant and how many of its transactions were
    aborted.
    """

    def __init__(
        self,
        participants: Sequence[Participant],
        former: Sequence[Sweepable],
        parallel: Parallel[Participant, object],
        on_swept: Callable[[int, str, int], None],
    ) -> None:
        self._participants = tuple(participants)
        self._former = tuple(former)
        self._parallel = parallel
        self._on_swept = on_swept
        self._phase_ms: dict[str, dict[str, float]] = {}

    def phase_ms(self) -> dict[str, dict[str, float]]:
        """What ``verify`` and ``commit`` took of each participant, in ms, since the last call."""
        taken, self._phase_ms = self._phase_ms, {}
        return taken

    def each(self, function: Callable[[Participant], R]) -> list[R]:
        """``function`` of every participant. A failure is raised when all have ended: a
        participant's connections are for one thread at a time, and what follows a failure asks all
        of them again.

        Raises:
            ExactumError: the most serious of their errors; the others are logged.
        """

        def attempt(participant: Participant) -> R | Failure:
            try:
                return function(participant)
            except Exception as error:  # noqa: BLE001  (it is raised below)
                return Failure(participant.name, error)

        ended = self._parallel(attempt, self._participants)
        refuse_failures([each for each in ended if isinstance(each, Failure)])
        return ended  # type: ignore[return-value]

    def remembering(self) -> frozenset[str]:
        """Those whose targets keep a marker."""
        return frozenset(p.name for p in self._participants if p.remembers)

    def _timed(self, participant: Participant, phase: str) -> AbstractContextManager[None]:
        return timed(self._phase_ms.setdefault(participant.name, {}), phase)

    def list_open(self) -> tuple[Sighting, ...]:
        """What is open of this query's sinks, of any incarnation."""
        return tuple(s for seen in self.each(lambda p: p.list_open()) for s in seen)

    def left_by_former(self) -> list[tuple[Sweepable, Sequence[Sighting]]]:
        """What is open of sinks that the query had before."""
        return [(former, former.list_open()) for former in self._former]

    def verify(self, prepared: Sequence[PreparedTransaction]) -> tuple[PreparedTransaction, ...]:
        """The last look before the decision.

        Raises:
            InvariantBroken: a task prepared for another sink, or a sink answers for others.
        """
        known = {p.name for p in self._participants}
        for transaction in prepared:
            if transaction.participant not in known:
                raise InvariantBroken(f"A task prepared for an unknown sink: {transaction}.")

        def of(participant: Participant) -> Sequence[PreparedTransaction]:
            own = [p for p in prepared if p.participant == participant.name]
            with self._timed(participant, "verify"):
                verified = participant.verify(own) if own else ()
            resolve.require_same(participant.name, "verified", own, verified)
            return verified

        return tuple(v for verified in self.each(of) for v in verified)

    def commit(
        self, permit: CommitPermit, only: Collection[str] | None = None
    ) -> list[tuple[Participant, tuple[PreparedTransaction, ...]]]:
        """Commit what the record names (``only``: of these participants); returns what expired
        meanwhile, by participant. Idempotent.
        """

        def of(participant: Participant) -> tuple[Participant, CommitReport]:
            is_asked = only is None or participant.name in only
            own = permit.record.of(participant.name) if is_asked else ()
            with self._timed(participant, "commit"):
                report = participant.commit(permit, own) if own else CommitReport()
            resolve.require_same(
                participant.name, "reported", own, (*report.committed, *report.expired)
            )
            return participant, report

        return [(p, report.expired) for p, report in self.each(of) if report.expired]

    def deliver(self, prepared: Sequence[PreparedTransaction]) -> None:
        """Under a weaker guarantee: make visible what tasks have left to the driver."""

        def of(participant: Participant) -> None:
            own = [p for p in prepared if p.participant == participant.name]
            if own:
                with self._timed(participant, "commit"):
                    participant.deliver(own)

        self.each(of)

    def abort(self, batch_id: int, transactions: Sequence[Sighting]) -> None:
        """Abort what was seen open. Idempotent."""

        def of(participant: Participant) -> None:
            own = [t for t in transactions if t.participant == participant.name]
            self._abort_of(participant, batch_id, own)

        self.each(of)

    def salvage(
        self,
        permit: CommitPermit,
        expired: Sequence[tuple[Participant, tuple[PreparedTransaction, ...]]],
    ) -> list[PreparedTransaction]:
        """Copies of what expired, prepared anew; where that fails, none is left open that can be
        reached.
        """
        fresh: list[PreparedTransaction] = []
        try:
            for participant, transactions in expired:
                copies = participant.salvage(permit, transactions)
                fresh.extend(copies)
                if rows_of(copies) != rows_of(transactions):
                    raise InvariantBroken(
                        f"{permit.record.epoch}: {participant.name} salvaged {rows_of(copies)} of "
                        f"{rows_of(transactions)} rows."
                    )
        except Exception:
            with contextlib.suppress(Exception):  # the next start sweeps; the reason counts
                self.abort_copies(permit.record.epoch.batch_id, fresh)
            raise
        return fresh

    def abort_copies(self, batch_id: int, copies: Sequence[PreparedTransaction]) -> None:
        """Undo copies that no record names. Idempotent; what cannot be reached is left to the next
        start.
        """
        mine = {p.identity for p in copies}
        self.abort(batch_id, [s for s in self.list_open() if s.identity in mine])

    def sweep_former(self, former: Sweepable, batch_id: int, own: Sequence[Sighting]) -> None:
        """What cannot be aborted stops nobody: the target may have been taken down with its
        sink.
        """
        try:
            self._abort_of(former, batch_id, own)
        except ExactumError as error:
            log.warning(
                "what the former sink %r left open could not be aborted: %s", former.name, error
            )

    def refuse_missing(self, record: DecisionRecord) -> None:
        """
        Raises:
            CheckpointRefused: the record names sinks that the query no longer has.
        """
        known = {p.name for p in self._participants}
        missing = sorted({p.participant for p in record.prepared} - known)
        if missing:
            raise CheckpointRefused(
                "SINKS_MISSING",
                f"{record.epoch} is decided but not finished, and belongs to sinks that this query "
                f"no longer has: {', '.join(missing)}. Start it once more with the sinks it had, "
                "then change them.",
            )

    def close(self) -> None:
        for participant in self._participants:
            participant.close()

    def _abort_of(self, participant: Sweepable, batch_id: int, own: Sequence[Sighting]) -> None:
        if own:
            participant.abort(own)
            self._on_swept(batch_id, participant.name, len(own))
