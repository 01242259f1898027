"""In-memory doubles of a participant and of a write job. Nothing here knows the coordinator.

A target outlives an incarnation; participants belong to one::

    storage, target = MemoryStorage(), MemoryTarget("orders")
    run = QueryRun("query", new_incarnation(), Guarantee.EXACTLY_ONCE)
    log = MemoryDecisionLog(storage, "query")
    coordinator = Coordinator(run, [MemoryParticipant(target, run)], log)
    coordinator.run(0, SourceOffsets(), MemoryWrite([target]))

A target never refuses what a real one would do; it does it and writes it down in ``violations``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from threading import RLock

from exactum.errors import EpochAborted, HeuristicOutcome, InvariantBroken
from exactum.protocol.model import (
    CommitPermit,
    CommitReport,
    Incarnation,
    PreparedTransaction,
    Sighting,
)
from exactum.protocol.participant import Participant
from exactum.protocol.sink import QueryRun, WriteOrder
from exactum.testing.faults import Around, straight

Row = str


# ---- target --------------------------------------------------------------------------------------


class State(Enum):
    """Of a transaction in memory."""

    OPEN = "open"
    PREPARED = "prepared"
    COMMITTED = "committed"
    ABORTED = "aborted"
    EXPIRED = "expired"  # aborted by the target itself


UNSETTLED = frozenset({State.OPEN, State.PREPARED})


@dataclass
class MemoryTransaction:
    """One transaction of a ``MemoryTarget``. ``ended_by`` is who settled it, or empty;
    ``of_salvage``: no task's. ``is_lost``: its commit was, so it is one of a target that lets
    nothing expire. ``is_gone``: its rows are, with a target that was put back. ``batch_id``: of
    which it was committed by a driver; -1: by a task of a weaker guarantee.
    """

    identity: str
    incarnation: Incarnation
    rows: tuple[Row, ...]
    state: State = State.OPEN
    ended_by: str = ""
    of_salvage: bool = False
    is_lost: bool = False
    is_gone: bool = False
    batch_id: int = -1


class MemoryTarget:
    """A transactional target: the server, in memory, with what every reader may see.

    ``keeps_aborted_rows``: rows of aborted transactions can be read back, as from Kafka's log; set
    it to False and they are gone, as when the log's segments were deleted.
    """

    def __init__(self, name: str, *, keeps_aborted_rows: bool = True) -> None:
        self.name = name
        self.keeps_aborted_rows = keeps_aborted_rows
        self.transactions: dict[str, MemoryTransaction] = {}
        self.visible: list[Row] = []
        self.violations: list[str] = []
        self._unsettled: dict[str, MemoryTransaction] = {}
        self._lock = RLock()

    def begin(
        self, incarnation: Incarnation, rows: Sequence[Row], *, of_salvage: bool = False
    ) -> str:
        """Open a transaction that holds ``rows`` and return its identity."""
        with self._lock:
            identity = f"{self.name}/{incarnation}/{len(self.transactions)}"
            transaction = MemoryTransaction(
                identity, incarnation, tuple(rows), of_salvage=of_salvage
            )
            self.transactions[identity] = self._unsettled[identity] = transaction
            return identity

    def prepare(self, identity: str) -> PreparedTransaction:
        """Make it durable. Idempotent.

        Raises:
            EpochAborted: it was aborted meanwhile.
        """
        with self._lock:
            transaction = self.transactions[identity]
            if transaction.state not in UNSETTLED:
                raise EpochAborted(f"{identity} is {transaction.state.value}.")
            transaction.state = State.PREPARED
            return PreparedTransaction(self.name, identity, len(transaction.rows))

    def unsettled(self) -> list[MemoryTransaction]:
        """What is neither committed nor aborted."""
        with self._lock:
            return list(self._unsettled.values())

    def committed_by(self, is_asked: Callable[[Incarnation], bool]) -> list[MemoryTransaction]:
        """What was committed of tasks of these incarnations; not what a salvage sent."""
        with self._lock:
            mine = (t for t in self.transactions.values() if is_asked(t.incarnation))
            return [t for t in mine if t.state is State.COMMITTED and not t.of_salvage]

    def expire(self, identity: str | None = None) -> int:
        """Abort one, or all, of what is not settled, as a timeout would; returns how many."""
        with self._lock:
            doomed = [
                t for t in self.unsettled() if identity in (None, t.identity) and not t.is_lost
            ]
            for transaction in doomed:
                self._settle(transaction, State.EXPIRED, "timeout")
            return len(doomed)

    def lose_commit(self) -> bool:
        """Go back to before the last commit, as a failover does; False: something is newer."""
        with self._lock:
            kept = [t for t in self.transactions.values() if t.state is not State.ABORTED]
            if not kept or self._unsettled or kept[-1].state is not State.COMMITTED:
                return False
            committed = [t for t in kept if t.state is State.COMMITTED]
            last = max(committed, key=lambda t: self.visible.index(t.rows[0]))
            del self.visible[-len(last.rows) :]
            last.state, last.ended_by, last.is_lost = State.PREPARED, "", True
            self._unsettled[last.identity] = last
            return True

    def last_batch(self) -> int | None:
        """Of which something is committed: the marker, which moves with the rows."""
        with self._lock:
            return max((t.batch_id for t in self._marked()), default=None)

    def put_back(self) -> bool:
        """Go back to before the last batch, as a restored copy does, which holds nothing of it that
        waits; False: there was none before, and no trace would be left.
        """
        with self._lock:
            last = self.last_batch()
            own = [t for t in self._marked() if t.batch_id == last]
            if len(own) == len(self._marked()):
                return False
            for transaction in own:
                for row in transaction.rows:
                    self.visible.remove(row)
                transaction.state, transaction.ended_by = State.EXPIRED, "put back"
                transaction.is_gone = True
            for transaction in self.unsettled():
                self._settle(transaction, State.EXPIRED, "put back")
                transaction.is_gone = True
            return True

    def _marked(self) -> list[MemoryTransaction]:
        each = self.transactions.values()
        return [t for t in each if t.state is State.COMMITTED and t.batch_id >= 0]

    def commit(self, identity: str, by: str, batch_id: int = -1) -> bool:
        """Make it visible; True when it stands committed, False when it was undone. Idempotent."""
        with self._lock:
            transaction = self.transactions.get(identity)
            if transaction is None:
                self.violations.append(f"{by} committed {identity}, which never was")
                return False
            if transaction.state is State.OPEN:
                self.violations.append(f"{by} committed {identity}, which was never prepared")
            if transaction.state is State.ABORTED:
                self.violations.append(
                    f"{by} committed {identity}, which {transaction.ended_by} aborted"
                )
            if transaction.state in UNSETTLED:
                self._settle(transaction, State.COMMITTED, by)
                transaction.batch_id = batch_id
                self.visible.extend(transaction.rows)
            return transaction.state is State.COMMITTED

    def abort(self, identity: str, by: str) -> None:
        """Undo it if it is not settled. Idempotent."""
        with self._lock:
            transaction = self.transactions.get(identity)
            if transaction is None:
                self.violations.append(f"{by} aborted {identity}, which never was")
            elif transaction.state in UNSETTLED:
                self._settle(transaction, State.ABORTED, by)

    def _settle(self, transaction: MemoryTransaction, state: State, by: str) -> None:
        transaction.state = state
        transaction.ended_by = by
        del self._unsettled[transaction.identity]


class MemoryParticipant(Participant):
    """Driver side of a ``MemoryTarget`` for one run."""

    remembers = True

    def __init__(self, target: MemoryTarget, run: QueryRun) -> None:
        self._target = target
        self._run = run

    @property
    def name(self) -> str:
        return self._target.name

    def list_open(self) -> Sequence[Sighting]:
        """See the port."""
        unsettled = self._target.unsettled()
        return tuple(Sighting(self.name, t.identity, t.incarnation) for t in unsettled)

    def list_committed(
        self, is_asked: Callable[[Incarnation], bool], recent: Sequence[PreparedTransaction]
    ) -> Sequence[Sighting]:
        """See the port. This target forgets nothing, and knows its transactions by the incarnation
        alone.
        """
        return tuple(
            Sighting(self.name, t.identity, t.incarnation)
            for t in self._target.committed_by(is_asked)
        )

    def last_batch(self, committed: Sequence[PreparedTransaction] = ()) -> int | None:
        """See the port."""
        return self._target.last_batch()

    def forget_batches(self, first: int = 0) -> None:
        """See the port."""
        for transaction in self._target.transactions.values():
            if transaction.batch_id >= first:
                transaction.batch_id = -1

    def verify(self, prepared: Sequence[PreparedTransaction]) -> Sequence[PreparedTransaction]:
        """See the port. Adds to the payload what ``salvage`` asks for."""
        for p in prepared:
            transaction = self._target.transactions.get(p.identity)
            if transaction is None or transaction.state is not State.PREPARED:
                state = transaction.state.value if transaction else "unknown"
                raise EpochAborted(
                    f"{p.identity} should be prepared and is {state}. Start the query again."
                )
        return tuple(_verified(p) for p in prepared)

    def commit(self, permit: CommitPermit, prepared: Sequence[PreparedTransaction]) -> CommitReport:
        """See the port. A transaction that the permit does not name is a violation."""
        committed: list[PreparedTransaction] = []
        expired: list[PreparedTransaction] = []
        for p in prepared:
            if p not in permit.record.prepared:
                self._target.violations.append(
                    f"{self._run.incarnation} committed {p} without a permit"
                )
            batch_id = permit.record.epoch.batch_id
            done = self._target.commit(p.identity, self._run.incarnation, batch_id)
            (committed if done else expired).append(p)
        return CommitReport(tuple(committed), tuple(expired))

    def abort(self, transactions: Sequence[Sighting]) -> None:
        """See the port."""
        for sighting in transactions:
            self._target.abort(sighting.identity, self._run.incarnation)

    def salvage(
        self, permit: CommitPermit, expired: Sequence[PreparedTransaction]
    ) -> Sequence[PreparedTransaction]:
        """See the port. One new transaction for each expired one."""
        fresh: list[PreparedTransaction] = []
        for p in expired:
            if p not in permit.record.prepared or p.payload != _verified(p).payload:
                self._target.violations.append(
                    f"{self._run.incarnation} salvaged {p}, not as it was verified"
                )
            is_gone = self._target.transactions[p.identity].is_gone
            if is_gone or not self._target.keeps_aborted_rows:
                raise HeuristicOutcome(
                    "SINK_LOST",
                    f"{permit.record.epoch}: the {p.rows} rows of {p.identity} at {self.name} are "
                    "decided but were undone, and they are gone. Load them again from the source "
                    "by hand.",
                )
            rows = self._target.transactions[p.identity].rows
            copy = self._target.begin(self._run.incarnation, rows, of_salvage=True)
            fresh.append(_verified(self._target.prepare(copy)))
        return tuple(fresh)

    def close(self) -> None:
        """Nothing to let go of."""


def _verified(prepared: PreparedTransaction) -> PreparedTransaction:
    payload = json.dumps({"verified": prepared.identity})
    return PreparedTransaction(prepared.participant, prepared.identity, prepared.rows, payload)


class MemoryWrite:
    """The coordinator's ``write`` port: ``tasks`` tasks, each with a transaction in every target.

    The first ``retried`` tasks run twice: the failed try leaves an open transaction behind, and
    every other one a prepared one (a speculative copy that lost). Each step goes through
    ``around``.
    """

    def __init__(
        self,
        targets: Sequence[MemoryTarget],
        *,
        tasks: int = 1,
        retried: int = 0,
        around: Around = straight,
        rows: Callable[[int, int], Sequence[Row]] | None = None,
    ) -> None:
        """``rows``: those of a batch that a task writes; default: its one ``row``."""
        self._rows = rows or (lambda batch_id, task: (self.row(batch_id, task),))
        self._targets = tuple(targets)
        self._tasks = tasks
        self._retried = retried
        self._around = around

    def __call__(self, order: WriteOrder) -> Sequence[PreparedTransaction]:
        winners: list[PreparedTransaction] = []
        for task in range(self._tasks):
            for target in self._targets:
                if task < self._retried:
                    lost = self._begin(target, order, task)
                    if task % 2:
                        self._prepare(target, lost)
                winners.append(self._prepare(target, self._begin(target, order, task)))
        return tuple(winners)

    def _begin(self, target: MemoryTarget, order: WriteOrder, task: int) -> str:
        rows = self._rows(order.batch_id, task)
        identity = self._around("begin", lambda: target.begin(order.run.incarnation, rows))
        if not isinstance(identity, str):
            raise InvariantBroken(f"The wrapper of begin() answered {identity!r}.")
        return identity

    def _prepare(self, target: MemoryTarget, identity: str) -> PreparedTransaction:
        prepared = self._around("prepare", lambda: target.prepare(identity))
        if not isinstance(prepared, PreparedTransaction):
            raise InvariantBroken(f"The wrapper of prepare() answered {prepared!r}.")
        return prepared

    @staticmethod
    def row(batch_id: int, task: int) -> Row:
        """The row that a task writes: the same whoever runs it, so that a double shows."""
        return f"batch {batch_id} task {task}"
