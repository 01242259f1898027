"""The rows by which a target knows what was committed: the ledger; and which staged parts are
there: the directory.

The ledger row of a transaction is written in the very transaction that makes its rows visible, so
it is there if and only if they are. Epochs are sequential: a row of a later batch shows that every
earlier one is committed, which lets old rows go.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import astuple, dataclass

from exactum.protocol.model import Incarnation, PreparedTransaction
from exactum.sql.dialect import DIRECTORY, LEDGER, Dialect, Session
from exactum.sql.plan import SqlScope
from exactum.sql.table import TableName

WHOLE_EPOCH = "*"
"""Identity of the ledger row of a staged epoch, which is committed as one."""
BATCHES_KEPT = 100
"""How many batches the ledger keeps at least."""
PRUNE_EVERY = 20
"""In batches."""


@dataclass(frozen=True)
class StagedPart:
    """A row of the directory: what one task has staged."""

    identity: str
    incarnation: Incarnation
    batch_id: int
    staging: TableName
    part: int
    rows: int


@dataclass(frozen=True)
class LedgerRow:
    """What is committed: one transaction, or a staged epoch as a whole, of which ``digest`` names
    the transactions.
    """

    batch_id: int
    identity: str
    digest: str
    attempt: int
    rows: int


class Ledger:
    """Ledger and directory of one scope, beside the table ``sibling``. Every method works in the
    session's transaction and raises ``SqlFailure``; none commits."""

    def __init__(self, dialect: Dialect, scope: SqlScope, sibling: TableName) -> None:
        self._dialect = dialect
        self._scope = scope.text
        self._sibling = sibling

    # ---- ledger ------------------------------------------------------------------------------

    def enter(self, session: Session, row: LedgerRow) -> bool:
        """Write the row unless it is there; False when it was. Waits for whoever is just writing
        the same one.
        """
        return session.execute(self._sql("enter_ledger"), (self._scope, *astuple(row))) == 1

    def highest(self, session: Session) -> int | None:
        """The highest batch with a committed row; None when there is none."""
        rows = session.query(self._sql("highest_batch"), (self._scope,))
        return None if rows[0][0] is None else int(rows[0][0])

    def digest(self, session: Session, batch_id: int, identity: str) -> str | None:
        """Of the row, or None when it is not there."""
        rows = session.query(self._sql("find_digest"), (self._scope, batch_id, identity))
        return str(rows[0][0]) if rows else None

    def prune(self, session: Session, batch_id: int) -> None:
        """Now and then, forget what lies far below ``batch_id``. The row of a later batch speaks
        for it.
        """
        if batch_id % PRUNE_EVERY:
            return
        before = batch_id - BATCHES_KEPT
        for key in session.query(self._sql("list_old_batches"), (self._scope, before)):
            session.execute(self._sql("forget_batch"), (self._scope, *key))

    def forget_batches(self, session: Session) -> None:
        """All of them: a person has accepted that they may be written again."""
        session.execute(self._sql("forget_batches"), (self._scope,))

    # ---- directory ---------------------------------------------------------------------------

    def stage(self, session: Session, part: StagedPart, attempt: int) -> None:
        session.execute(
            self._sql("enter_part"),
            (
                self._scope,
                part.identity,
                part.incarnation,
                part.batch_id,
                attempt,
                part.staging.table,
                part.part,
                part.rows,
            ),
        )

    def staged(self, session: Session) -> list[StagedPart]:
        """Everything that this scope has staged, by whomever."""
        rows = session.query(self._sql("list_staged"), (self._scope,))
        return [
            StagedPart(
                str(i), Incarnation(str(by)), int(b), self._sibling.sibling(str(t)), int(p), int(n)
            )
            for i, by, b, t, p, n in rows
        ]

    def forget(self, session: Session, identities: Sequence[str]) -> int:
        """Remove directory rows; returns how many were there."""
        sql = self._sql("forget_part")
        return sum(session.execute(sql, (self._scope, identity)) for identity in identities)

    def others_staged(self, session: Session, staging: TableName) -> bool:
        """Whether any part is left in the directory for this staging table."""
        return bool(session.query(self._sql("find_part_of_scope"), (self._scope, staging.table)))

    def _sql(self, name: str) -> str:
        ledger, directory = self._sibling.sibling(LEDGER), self._sibling.sibling(DIRECTORY)
        return self._dialect.sql(name, ledger=ledger, directory=directory)


def digest_of(prepared: Sequence[PreparedTransaction]) -> str:
    """Names a set of transactions: the same for every order."""
    text = "\n".join(sorted(p.identity for p in prepared))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
