"""What an operator sees of a database's transactions: of one sink of one query, or of all."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from exactum.errors import SettingRefused
from exactum.protocol.inspection import TransactionState, TransactionView
from exactum.protocol.model import Incarnation, PreparedTransaction
from exactum.sql.dialect import (
    DIRECTORY,
    Dialect,
    Mode,
    PreparedOnServer,
    Role,
    ServerFailure,
    Session,
    SqlFailure,
)
from exactum.sql.failure import port_error
from exactum.sql.ledger import WHOLE_EPOCH, Ledger, digest_of
from exactum.sql.participant import SqlParticipant
from exactum.sql.plan import Mechanism, SqlScope, WritePlan
from exactum.sql.retrying_session import RetryingSession
from exactum.sql.table import TableName
from exactum.sql.transaction import SqlTransaction
from exactum.sql.url import Address

T = TypeVar("T")

LABEL = "exactum operator"
LOCK_TIMEOUT_S = 20.0
"""Longest wait for somebody else's lock."""
_GID = re.compile(r"exactum_(?P<scope>[0-9a-f]{20})_(?P<incarnation>[0-9a-z]{1,16})_[0-9a-z]{1,16}")
_SCOPE = re.compile(r"(?P<query>[^/]+)/(?P<participant>.*)#[0-9a-f]{32}")
"""As ``plan.SqlScope`` makes them."""


class SqlInspector:
    """Of one sink of one query; see ``protocol.inspection.Inspector``.

    ``plan`` need not know the target's columns: what is staged says itself how it is moved.
    """

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan
        self._dialect = plan.dialect
        self._scope = plan.scope
        self._where = f"sink {plan.scope.participant!r} at {plan.address.where}"
        self._session = RetryingSession(plan.dialect, plan.address, LABEL, plan.lock_timeout_s)
        self._participant: SqlParticipant | None = None

    @property
    def name(self) -> str:
        return self._scope.participant

    def list_open(self) -> Sequence[TransactionView]:
        return self._asked(lambda session: [*self._staged(session), *self._prepared(session)])

    def describe(self, prepared: Sequence[PreparedTransaction]) -> Sequence[TransactionView]:
        """By the directory and the server's list, then by the ledger: in this order nothing is seen
        in neither place.
        """

        def step(session: Session) -> list[TransactionView]:
            waiting = {
                view.identity: view for view in (*self._staged(session), *self._prepared(session))
            }
            return [
                waiting.get(p.identity) or self._settled(session, p, prepared) for p in prepared
            ]

        return self._asked(step)

    def participant(self) -> SqlParticipant:
        if self._participant is None:
            self._participant = SqlParticipant(self._plan)
        return self._participant

    def close(self) -> None:
        if self._participant is not None:
            self._participant.close()
        self._session.close()

    # ---- in the session's transaction --------------------------------------------------------

    def _staged(self, session: Session) -> list[TransactionView]:
        directory = self._plan.target.sibling(DIRECTORY)
        try:
            rows = session.query(
                self._dialect.sql("inspect_staged", directory=directory), (self._scope.text,)
            )
        except SqlFailure as failure:
            if failure.failure is not ServerFailure.MISSING:
                raise
            session.rollback()  # no query has ever written here
            return []
        return [
            TransactionView(
                self.name,
                str(identity),
                self._scope.query_id,
                Incarnation(str(incarnation)),
                TransactionState.PREPARED,
                batch_id=int(batch_id),
                attempt=int(attempt),
                rows=int(count),
                details=(f"staged in {self._plan.target.sibling(str(staging))}, part {part}",),
            )
            for identity, incarnation, batch_id, attempt, staging, part, count in rows
        ]

    def _prepared(self, session: Session) -> list[TransactionView]:
        gids = self._dialect.list_prepared(session, self._scope.gid_prefix)
        if not gids:
            return []
        shown = {one.gid: one for one in self._dialect.inspect_prepared(session)}
        return [
            _view(shown.get(gid, PreparedOnServer(gid)), self.name, self._scope.query_id)
            for gid in gids
            if self._scope.incarnation_of(gid) is not None
        ]

    def _settled(
        self,
        session: Session,
        prepared: PreparedTransaction,
        all_of_record: Sequence[PreparedTransaction],
    ) -> TransactionView:
        """Of one that waits nowhere. The ledger's row is there if and only if its rows are."""
        transaction = SqlTransaction.of(prepared)
        ledger = Ledger(self._dialect, self._scope, transaction.target)
        is_staged = transaction.mechanism is Mechanism.STAGED
        identity = WHOLE_EPOCH if is_staged else prepared.identity
        try:
            digest = ledger.digest(session, transaction.batch_id, identity)
            highest = ledger.highest(session)
        except SqlFailure as failure:
            if failure.failure is not ServerFailure.MISSING:
                raise
            session.rollback()
            return self._of(prepared, transaction, TransactionState.GONE, "there is no ledger")
        staged = [p for p in all_of_record if SqlTransaction.of(p).mechanism is Mechanism.STAGED]
        if digest is not None and is_staged and digest != digest_of(staged):
            text = "the ledger has this batch from other transactions"
            return self._of(prepared, transaction, TransactionState.GONE, text)
        if digest is not None or (highest is not None and highest > transaction.batch_id):
            row = "its row" if digest is not None else f"batch {highest}, a later one"
            text = f"the ledger has {row}"
            return self._of(prepared, transaction, TransactionState.COMMITTED, text)
        text = "neither the ledger nor the server knows it: it was undone"
        return self._of(prepared, transaction, TransactionState.GONE, text)

    def _of(
        self,
        prepared: PreparedTransaction,
        transaction: SqlTransaction,
        state: TransactionState,
        text: str,
    ) -> TransactionView:
        return TransactionView(
            self.name,
            prepared.identity,
            self._scope.query_id,
            self._scope.incarnation_of(prepared.identity),
            state,
            batch_id=transaction.batch_id,
            attempt=transaction.attempt,
            rows=prepared.rows,
            details=(f"table {transaction.target}", text),
        )

    def _asked(self, step: Callable[[Session], T]) -> T:
        def looking(session: Session) -> T:
            try:
                return step(session)
            finally:
                session.rollback()

        try:
            return self._session.run(looking)
        except SqlFailure as failure:
            raise port_error(failure, self._where) from failure


def inspector_of(
    dialect: Dialect, address: Address, target: TableName, scope: SqlScope, where: str
) -> SqlInspector:
    """Of a sink that writes to ``target``; ``where`` names it in messages.

    Raises:
        SettingRefused: the server refused the user.
        Unavailable: it did not answer.
    """
    try:
        session = dialect.connect(address, Role.TASK, LABEL, LOCK_TIMEOUT_S)
    except SqlFailure as failure:
        raise port_error(failure, f"{where} at {address.where}") from failure
    try:
        table = dialect.read_table(session, target)
    except (SqlFailure, SettingRefused):  # whatever has become of it, its siblings may be there
        table = None
    finally:
        session.close()
    return SqlInspector(
        WritePlan(
            dialect=dialect,
            address=address,
            where=where,
            scope=scope,
            target=target if table is None else table.name,
            columns=(),
            frame_columns=(),
            flag=None,
            flag_column=None,
            mechanism=Mechanism.STAGED,  # each transaction says by which it was prepared
            mode=Mode.APPEND,
            key=(),
            order_by=(),
            named_by=(),
            lock_timeout_s=LOCK_TIMEOUT_S,
        )
    )


def database_transactions(dialect: Dialect, address: Address) -> list[TransactionView]:
    """Everything that waits in a database: what is staged for any query, and everybody's prepared
    transactions.

    Raises:
        SettingRefused: the server refuses the user.
        Unavailable: it did not answer.
    """
    session = RetryingSession(dialect, address, LABEL, LOCK_TIMEOUT_S)
    try:
        return session.run(lambda line: _everything(dialect, line))
    except SqlFailure as failure:
        raise port_error(failure, address.where) from failure
    finally:
        session.close()


def _everything(dialect: Dialect, session: Session) -> list[TransactionView]:
    views: list[TransactionView] = []
    names: dict[str, tuple[str, str]] = {}
    for directory in dialect.list_directories(session):
        text = dialect.sql("inspect_directory", directory=directory)
        for scope, identity, incarnation, batch_id, attempt, staging, rows in session.query(text):
            query_id, participant = names.setdefault(str(scope), _named(str(scope)))
            views.append(
                TransactionView(
                    participant,
                    str(identity),
                    query_id,
                    Incarnation(str(incarnation)),
                    TransactionState.PREPARED,
                    batch_id=int(batch_id),
                    attempt=int(attempt),
                    rows=int(rows),
                    details=(f"staged in {directory.sibling(str(staging))}",),
                )
            )
    prepared = dialect.inspect_prepared(session)
    session.rollback()
    return views + [_view(one, None, None) for one in prepared]


def _named(scope: str) -> tuple[str, str]:
    """(query id, participant) as far as the scope's text shows them."""
    match = _SCOPE.fullmatch(scope)
    return (match["query"], match["participant"]) if match else ("", scope)


def _view(one: PreparedOnServer, participant: str | None, query_id: str | None) -> TransactionView:
    match = _GID.fullmatch(one.gid)
    details = ["prepared on the server"]
    if one.owner:
        details.append(f"by user {one.owner}")
    if query_id is None and match:
        details.append(f"of exactum, scope {match['scope']}...: --checkpoint says of which query")
    return TransactionView(
        participant,
        one.gid,
        query_id,
        Incarnation(match["incarnation"]) if match else None,
        TransactionState.PREPARED,
        one.began_ms,
        details=tuple(details),
    )
