"""A ``TwoPhaseCommitSink`` in a run: one task's rows in one transaction of the user's, and on the
driver which of the user's methods is called, and what its errors mean. And what an operator sees of
it.
"""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import NoneType
from typing import TYPE_CHECKING, Any

from exactum.custom.answer import called, shown
from exactum.custom.transaction_name import TransactionName, TransactionScope
from exactum.custom.two_phase import TransactionLost, TwoPhaseCommitSink
from exactum.errors import (
    CodeFailed,
    EpochAborted,
    ExactumError,
    HeuristicOutcome,
    InvariantBroken,
    OutcomeUnknown,
    SettingRefused,
    Unavailable,
)
from exactum.protocol.inspection import Inspector, TransactionState, TransactionView
from exactum.protocol.model import (
    CommitPermit,
    CommitReport,
    PreparedTransaction,
    Sighting,
    new_incarnation,
    rows_of,
)
from exactum.protocol.participant import Participant
from exactum.protocol.sink import Guarantee, QueryRun, Rejection, TaskName, WriteOrder, Writer

if TYPE_CHECKING:
    import pyarrow as pa

# ---- a task ----------------------------------------------------------------------------------


log = logging.getLogger("exactum.custom")

VOID = "Nothing of the epoch is visible."


@dataclass(frozen=True)
class TwoPhaseWriterFactory:
    """Goes to the executors; opens a writer there."""

    sink: TwoPhaseCommitSink[Any]
    scope: TransactionScope

    def open(self, order: WriteOrder, task: TaskName) -> Writer:
        return TwoPhaseWriter(self.sink, self.scope, order, task)


class TwoPhaseWriter:
    """Begins at the first rows, so a partition without rows neither connects nor opens anything."""

    def __init__(
        self,
        template: TwoPhaseCommitSink[Any],
        scope: TransactionScope,
        order: WriteOrder,
        task: TaskName,
    ) -> None:
        self._template = template
        self._scope = scope
        self._order = order
        self._task = task
        self._connected: TwoPhaseCommitSink[Any] | None = None
        self._begun: tuple[TransactionName, Any] | None = None
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> Rejection | None:
        if batch.num_rows == 0:
            return None
        sink = self._sink()
        if self._begun is None:
            name = self._scope.name(self._order, self._task)
            self._begun = (name, _called(self._scope, sink.begin_transaction, name, answers=object))
        transaction = self._begun[1]
        rejection: Rejection | None = _called(
            self._scope, sink.invoke, transaction, batch, answers=Rejection
        )
        self._rows += batch.num_rows - (rejection.rows.num_rows if rejection is not None else 0)
        return rejection

    def prepare(self) -> PreparedTransaction | None:
        if self._begun is None:
            return None
        sink = self._sink()
        name, transaction = self._begun
        changed = _called(self._scope, sink.pre_commit, transaction, answers=object)
        if isinstance(changed, bool) and not isinstance(transaction, bool):
            raise CodeFailed(
                "SINK_ANSWER",
                f"Sink {self._scope.participant!r}: pre_commit() returned {shown(changed)}, which "
                f"would be the transaction from now on, in place of {shown(transaction)}. Return "
                f"that, or nothing. {VOID}",
            )
        if changed is not None:
            transaction = changed
            self._begun = (name, transaction)
        if self._order.run.guarantee is not Guarantee.EXACTLY_ONCE:
            then = "Whether the transaction is committed is not known."
            _called(self._scope, sink.commit, transaction, then=then)
            self._begun = None
            self._close()
            return None
        payload = payload_of(sink, transaction)
        self._close()
        return PreparedTransaction(self._scope.participant, str(name), self._rows, payload)

    def abort(self) -> None:
        """Idempotent. After ``prepare`` as well: another sink's writer may have failed, so nobody
        else knows of it.
        """
        begun, self._begun = self._begun, None
        try:
            if begun is not None:
                _called(self._scope, self._sink().abort, begun[1], then="It may be open still.")
        except Exception as error:  # noqa: BLE001  (it must not hide why the task failed; the driver sweeps)
            log.warning(
                "%s could not be aborted by its own task and is left to the driver: %s",
                begun,
                error,
            )
        self._close()

    def _sink(self) -> TwoPhaseCommitSink[Any]:
        """This task's copy of the user's sink, connected."""
        if self._connected is None:
            mine = copy.deepcopy(self._template)
            mine.connect()
            self._connected = mine
        return self._connected

    def _close(self) -> None:
        connected, self._connected = self._connected, None
        try:
            if connected is not None:
                connected.close()
        except Exception as error:  # noqa: BLE001  (all that matters is durable by now, or aborted)
            log.warning(
                "task %s could not close %s: %s", self._task, type(connected).__name__, error
            )


def payload_of(sink: TwoPhaseCommitSink[Any], transaction: Any) -> str:
    """What a decision record holds of ``transaction``, after proof that it can be read back. By
    default it must be the same again; how the user's own ``serialize`` and ``deserialize`` go
    together is known to them alone.

    Raises:
        SettingRefused: it cannot.
    """
    kind, where = type(sink), type(sink).__name__
    default = (TwoPhaseCommitSink.serialize, TwoPhaseCommitSink.deserialize)
    is_compared = (kind.serialize, kind.deserialize) == default
    try:
        text = sink.serialize(transaction)
        again = sink.deserialize(text)
        why = f"would be read back as {again!r}" if is_compared and again != transaction else ""
    except ExactumError:
        raise
    except Exception as error:  # noqa: BLE001  (it may be anything, and of any class)
        why = f"cannot be written as text and read back ({_text(error)})"
    if why:
        raise SettingRefused(
            "SINK_TRANSACTION",
            f"{where}: its transaction {transaction!r} {why}, so nobody could commit it later. Use "
            "text, numbers, lists, dictionaries with text as keys, or a dataclass of these, named "
            f"in the brackets: class {where}(TwoPhaseCommitSink[Mine]). Or give it a serialize() "
            "and a deserialize() that reads what that gives.",
        )
    return json.dumps({"transaction": text})


def transaction_of(sink: TwoPhaseCommitSink[Any], payload: str) -> Any:
    """The user's transaction in a payload."""
    return sink.deserialize(json.loads(payload)["transaction"])


# ---- the driver ------------------------------------------------------------------------------


class TwoPhaseParticipant(Participant):
    """Driver side of the user's sink for one run. Connects at once."""

    def __init__(
        self, template: TwoPhaseCommitSink[Any], run: QueryRun, scope: TransactionScope
    ) -> None:
        self._run = run
        self._scope = scope
        self._lost: dict[str, str] = {}  # identity -> what the target said
        self._sink = copy.deepcopy(template)
        with self._failing(Unavailable, "could not connect", "Start again."):
            self._sink.connect()
        self._connected = True
        listing = type(template).list_transactions
        if (
            listing is TwoPhaseCommitSink.list_transactions
            and run.guarantee is Guarantee.EXACTLY_ONCE
        ):
            log.warning(
                "Sink %r has no list_transactions(): what killed tasks and crashed runs leave "
                "open in the target stays there until the target times it out or you remove it. "
                "Its names begin with %r.",
                self.name,
                scope.prefix,
            )

    @property
    def name(self) -> str:
        return self._scope.participant

    def list_open(self) -> Sequence[Sighting]:
        """See the port. What the user's listing shows of other scopes is left out."""
        with self._failing(Unavailable, "could not list its open transactions", "Start again."):
            listing: Any = self._sink.list_transactions(self._scope)
            found = []
            for pair in listing if isinstance(listing, Iterable) else [listing]:
                is_pair = isinstance(pair, tuple | list) and len(pair) == 2
                if not is_pair or not isinstance(pair[0], TransactionName | str):
                    raise CodeFailed(
                        "SINK_ANSWER",
                        f"Sink {self.name!r}: list_transactions() gave {shown(pair)}, and must "
                        "give pairs of a name, as text, and a transaction. What is open could not "
                        "be found. Correct the class and start again.",
                    )
                if (name := self._scope.find(str(pair[0]))) is not None:
                    payload = payload_of(self._sink, pair[1])
                    found.append(Sighting(self.name, str(name), name.incarnation, payload))
            return tuple(found)

    def verify(self, prepared: Sequence[PreparedTransaction]) -> Sequence[PreparedTransaction]:
        """See the port: the user's ``verify`` for each."""
        for p in prepared:
            what = f"cannot commit its prepared transaction {p.identity}"
            then = "Nothing of its epoch is visible; start the query again."
            with self._failing(EpochAborted, what, then):
                _called(self._scope, self._sink.verify, self._transaction(p), then=then)
        return prepared

    def commit(self, permit: CommitPermit, prepared: Sequence[PreparedTransaction]) -> CommitReport:
        """See the port. Idempotent as far as the user's ``commit`` is. One after another, in the
        order of the record.

        A lost one does not keep the others from being committed.
        """
        committed: list[PreparedTransaction] = []
        expired: list[PreparedTransaction] = []
        for p in prepared:
            transaction = self._transaction(p)
            # Not the record's incarnation: a record that salvage made also names what an earlier
            # run prepared.
            mine = self._prepared_by_this_run(p.identity)
            commit = self._sink.commit if mine else self._sink.recover_and_commit
            what = f"may have committed the transaction {p.identity} of {permit.record.epoch}"
            then = (
                "It is decided: correct what failed and start the query again, and it is committed "
                "again."
            )
            with self._failing(OutcomeUnknown, what, then):
                try:
                    may_be = f"The transaction {p.identity} may be committed. {then}"
                    _called(self._scope, commit, transaction, then=may_be)
                    committed.append(p)
                except TransactionLost as error:
                    self._lost[p.identity] = str(error)
                    expired.append(p)
        return CommitReport(tuple(committed), tuple(expired))

    def abort(self, transactions: Sequence[Sighting]) -> None:
        """See the port. Idempotent as far as the user's ``abort`` is."""
        for sighting in transactions:
            mine = sighting.incarnation == self._run.incarnation
            abort = self._sink.abort if mine else self._sink.recover_and_abort
            what = f"could not abort its transaction {sighting.identity}"
            then = f"Correct what failed and start again: {sighting.identity} is aborted then."
            with self._failing(Unavailable, what, then), suppress(TransactionLost):
                transaction = transaction_of(self._sink, sighting.payload)
                _called(self._scope, abort, transaction, then=then)

    def salvage(
        self, permit: CommitPermit, expired: Sequence[PreparedTransaction]
    ) -> Sequence[PreparedTransaction]:
        """
        Raises:
            HeuristicOutcome: always; only the user's target could tell where the rows are.
        """
        each = "; ".join(
            f"{p.identity} with {p.rows} rows ({self._lost.get(p.identity) or 'it gave no reason'})"
            for p in expired
        )
        raise HeuristicOutcome(
            "SINK_LOST",
            f"{permit.record.epoch} is decided, but the target of sink {self.name!r} has lost "
            f"{len(expired)} of its transactions, {rows_of(expired)} rows in all: {each}. The rest "
            "of the epoch is committed. docs/operations.md says how to go on.",
        )

    def close(self) -> None:
        """See the port. Idempotent."""
        if self._connected:
            self._connected = False
            self._sink.close()

    @contextmanager
    def _failing(self, kind: type[ExactumError], what: str, then: str) -> Iterator[None]:
        """What the user's code raises is an error of this kind, unless it is one of exactum's."""
        try:
            yield
        except ExactumError:
            raise
        except Exception as error:
            raise kind(f"Sink {self.name!r} {what}: {_text(error)}. {then}") from error

    def _prepared_by_this_run(self, identity: str) -> bool:
        name = self._scope.find(identity)
        return name is not None and name.incarnation == self._run.incarnation

    def _transaction(self, prepared: PreparedTransaction) -> Any:
        if self._scope.find(prepared.identity) is None:
            raise InvariantBroken(
                f"Sink {self.name!r} was given a transaction that is not its own: {prepared}."
            )
        try:
            return transaction_of(self._sink, prepared.payload)
        except Exception as error:
            raise SettingRefused(
                "SINK_CLASS_CHANGED",
                f"Sink {self.name!r}: deserialize() cannot read the transaction of "
                f"{prepared.identity}: {_text(error)}. Was the class changed since it was "
                "prepared? Bring back the version that prepared it, let it finish, and then "
                "change it.",
            ) from error


def _called(
    scope: TransactionScope,
    method: Callable[..., Any],
    *given: Any,
    then: str = VOID,
    answers: type = NoneType,
) -> Any:
    """See ``called``; ``method`` is one of the user's sink."""
    what = f"Sink {scope.participant!r}: {getattr(method, '__name__', 'a method')}()"
    return called(method, *given, what=what, then=then, answers=answers)


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


# ---- an operator -----------------------------------------------------------------------------


class TwoPhaseInspector(Inspector):
    """Of one ``TwoPhaseCommitSink``; see ``protocol.inspection.Inspector``. What its target does
    not list, nobody but the target knows.
    """

    def __init__(self, template: TwoPhaseCommitSink[Any], scope: TransactionScope) -> None:
        run = QueryRun(scope.query_id, new_incarnation(), Guarantee.AT_LEAST_ONCE)
        self._scope = scope
        self._lists = type(template).list_transactions is not TwoPhaseCommitSink.list_transactions
        # The guarantee is what the participant warns by, and nothing else here.
        self._participant = TwoPhaseParticipant(template, run, scope)

    def list_open(self) -> Sequence[TransactionView]:
        return [
            _view(self._scope, s.identity, TransactionState.OPEN, (s.payload,))
            for s in self._participant.list_open()
        ]

    def describe(self, prepared: Sequence[PreparedTransaction]) -> Sequence[TransactionView]:
        """Listed, or not: then it may be committed, and the next commit of it tells."""
        listed = {s.identity for s in self._participant.list_open()}
        views: list[TransactionView] = []
        for p in prepared:
            here = p.identity in listed
            text = (
                "its target lists it"
                if here
                else "its target does not list it any more: it is committed, or lost"
                if self._lists
                else "nobody can tell: the sink has no list_transactions()"
            )
            state = TransactionState.PREPARED if here else TransactionState.UNKNOWN
            views.append(_view(self._scope, p.identity, state, (text, p.payload)))
        return views

    def participant(self) -> TwoPhaseParticipant:
        return self._participant


def _view(
    scope: TransactionScope,
    identity: str,
    state: TransactionState,
    details: tuple[str, ...],
) -> TransactionView:
    name = scope.find(identity)
    return TransactionView(
        scope.participant,
        identity,
        scope.query_id,
        None if name is None else name.incarnation,
        state,
        batch_id=None if name is None else name.batch_id,
        attempt=None if name is None else name.attempt,
        details=details,
    )
