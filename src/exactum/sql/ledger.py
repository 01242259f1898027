"""The rows by which a target knows what was committed: the ledger.

The row of an epoch is written in the very transaction that makes its rows visible, so it is there
if and only if they are. Epochs are sequential: a row of a later batch shows that every
earlier one is committed, which lets old rows go.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

from exactum.sql.dialect import LEDGER, Dialect, Session
from exactum.sql.plan import SqlScope
from exactum.sql.table import TableName

BATCHES_KEPT = 100
"""How many batches the ledger keeps at least."""
PRUNE_EVERY = 20
"""In batches."""


@dataclass(frozen=True)
class LedgerRow:
    """What is committed: an epoch, of which ``digest`` names the staged files."""

    batch_id: int
    identity: str
    digest: str
    attempt: int
    rows: int


class Ledger:
    """The ledger of one scope, beside the table ``sibling``. Every method works in the
    session's transaction and raises ``SqlFailure``; none commits."""

    def __init__(self, dialect: Dialect, scope: SqlScope, sibling: TableName) -> None:
        self._dialect = dialect
        self._scope = scope.text
        self._sibling = sibling

    def enter(self, session: Session, row: LedgerRow) -> bool:
        """Write the row unless it is there; False when it was. Waits for whoever is just writing
        the same one.
        """
        return session.execute(self._sql("enter_ledger"), (self._scope, *astuple(row))) == 1

    def enter_again(self, session: Session, row: LedgerRow) -> None:
        """Write another row in the place of the one that this transaction has entered."""
        session.execute(self._sql("forget_batch"), (self._scope, row.batch_id, row.identity))
        self.enter(session, row)

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

    def _sql(self, name: str) -> str:
        return self._dialect.sql(name, ledger=self._sibling.sibling(LEDGER))
