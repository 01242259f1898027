"""The driver half of a ``TwoPhaseCommitSink``: which of the user's methods is called, and what its
errors mean.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from typing import Any

from exactum.custom.answer import refuse_answer, shown
from exactum.custom.transaction_name import TransactionName, TransactionScope
from exactum.custom.two_phase import TransactionLost, TwoPhaseCommitSink
from exactum.custom.two_phase_writer import payload_of, transaction_of
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
from exactum.protocol.model import (
    CommitPermit,
    CommitReport,
    Incarnation,
    PreparedTransaction,
    Sighting,
    rows_of,
)
from exactum.protocol.sink import Guarantee, QueryRun

log = logging.getLogger("exactum.custom")


class TwoPhaseParticipant:
    """Driver side of the user's sink for one run. Connects at once."""

    def __init__(
        self, template: TwoPhaseCommitSink[Any], run: QueryRun, scope: TransactionScope
    ) -> None:
        self._run = run
        self._scope = scope
        self._lost: dict[str, str] = {}  # identity -> what the target said
        self._sink = copy.copy(template)
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
            found = [(self._named(name), transaction) for name, transaction in self._listed()]
            return tuple(
                Sighting(
                    self.name, str(name), name.incarnation, payload_of(self._sink, transaction)
                )
                for name, transaction in found
                if name is not None
            )

    def _listed(self) -> list[tuple[TransactionName | str, Any]]:
        """
        Raises:
            CodeFailed: the user's listing is none.
            Exception: what it raises.
        """
        listing: Any = self._sink.list_transactions(self._scope)
        pairs = list(listing) if isinstance(listing, Iterable) else [listing]
        for pair in pairs:
            is_pair = isinstance(pair, tuple | list) and len(pair) == 2
            if not is_pair or not isinstance(pair[0], TransactionName | str):
                raise CodeFailed(
                    "SINK_ANSWER",
                    f"Sink {self.name!r}: list_transactions() gave {shown(pair)}, and must give "
                    "pairs of a name, as text, and a transaction. What is open could not be found. "
                    "Correct the class and start again.",
                )
        return pairs

    def list_committed(
        self, incarnations: Set[Incarnation], recent: Sequence[PreparedTransaction]
    ) -> Sequence[Sighting]:
        """See the port: none, the target is not ours to ask."""
        return ()

    def _named(self, name: TransactionName | str) -> TransactionName | None:
        return self._scope.find(str(name))

    def verify(self, prepared: Sequence[PreparedTransaction]) -> Sequence[PreparedTransaction]:
        """See the port: the user's ``verify`` for each."""
        for p in prepared:
            what = f"cannot commit its prepared transaction {p.identity}"
            then = "Nothing of its epoch is visible; start the query again."
            with self._failing(EpochAborted, what, then):
                self._call(self._sink.verify, self._transaction(p), then)
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
                    self._call(
                        commit,
                        transaction,
                        f"The transaction {p.identity} may be committed. {then}",
                    )
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
                self._call(abort, transaction_of(self._sink, sighting.payload), then)

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

    def _call(self, method: Callable[[Any], object], transaction: Any, then: str) -> None:
        """
        Raises:
            CodeFailed: the user's method returned something; ``then`` says what that means.
            Exception: what it raises.
        """
        name = getattr(method, "__name__", "a method")
        refuse_answer(method(transaction), f"Sink {self.name!r}: {name}()", then)

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
        name = TransactionName.parse(identity)
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


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
