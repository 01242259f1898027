"""What a SQL target holds of a range of epochs: by its ledger, and in PostgreSQL by its rows, too.

The ledger's row is written in the transaction that makes an epoch's rows visible. PostgreSQL keeps
with each row the transaction that wrote it (``xmin``), so the rows of that very transaction can be
counted, whatever the writer claims. MySQL and MariaDB show no such thing: there the ledger speaks,
and the table must have as many rows in all. What users or triggers have changed since is another
transaction's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from exactum.ops.targets.quoting import quoting_of
from exactum.ops.verify.evidence import Evidence, Finding, compared
from exactum.ops.verify.promise import Promise
from exactum.protocol.model import PreparedTransaction
from exactum.sql.dialect import DIRECTORY, LEDGER, Dialect, Session
from exactum.sql.plan import SqlScope
from exactum.sql.table import TableName

WHOLE_EPOCH = "*"
LEDGER_ROWS = """
SELECT batch_id, identity, digest, row_count FROM {ledger}
WHERE scope = %s AND batch_id >= %s ORDER BY batch_id"""
LEDGER_ROWS_AND_XIDS = """
SELECT batch_id, identity, digest, row_count, xmin::text FROM {ledger}
WHERE scope = %s AND batch_id >= %s ORDER BY batch_id"""
LOWEST = "SELECT min(batch_id) FROM {ledger} WHERE scope = %s"
STAGED = "SELECT identity FROM {directory} WHERE scope = %s"
ROWS_BY_XID = """
SELECT xmin::text, count(*) FROM {target} WHERE xmin::text = ANY(%s) GROUP BY 1"""
ROWS_UP_TO = "SELECT count(*) FROM (SELECT 1 FROM {target} LIMIT {limit}) some_rows"
SIZE = "SELECT pg_relation_size(%s::regclass)"
BY_LEDGER, BY_ROWS = "ledger", "rows"


@dataclass(frozen=True)
class LedgerFact:
    """``xid`` is the transaction that wrote it, None where the server does not tell."""

    batch_id: int
    identity: str
    digest: str
    rows: int
    xid: str | None


@dataclass(frozen=True)
class SqlAccess:
    """How to ask one server: a session of its own, how it quotes a table, the prepared
    transactions it holds, and whether rows tell who wrote them.
    """

    session: Session
    quote_table: Callable[[TableName], str]
    prepared: Callable[[str], Sequence[str]]
    """From a prefix to the names of prepared transactions."""
    there: Callable[[TableName], bool]
    """Whether there is a table of this name."""
    counts_rows: bool


def access_by(dialect: Dialect, session: Session) -> SqlAccess:
    """How to ask through a session of this dialect."""
    return SqlAccess(
        session,
        quoting_of(dialect).table,
        lambda prefix: dialect.list_prepared(session, prefix),
        lambda name: dialect.read_table(session, name) is not None,
        counts_rows=dialect.scheme == "postgres",
    )


class SqlEvidence:
    """Of one participant in one database."""

    def __init__(self, participant: str, query_id: str, access: SqlAccess) -> None:
        self._participant = participant
        self._scope = SqlScope(query_id, participant)
        self._access = access
        self.last_batch: int | None = None
        """The highest one that the ledger has, once it was looked at."""

    def cost_bytes(self, promises: Sequence[Promise]) -> int:
        """Bytes of the tables that are read whole; 0 where only the ledger is asked."""
        if not self._access.counts_rows:
            return 0
        sizes = 0
        targets = {_target(p) for p in self._prepared(promises) if not _is_upsert(p)}
        for target in filter(self._access.there, targets):
            name = self._access.quote_table(target).replace("%%", "%")
            sizes += int(self._access.session.query(SIZE, (name,))[0][0])
        self._access.session.rollback()
        return sizes

    def look(self, promises: Sequence[Promise]) -> list[Evidence]:
        """
        Raises:
            SqlFailure: the server did not answer, or refused.
        """
        if not promises:
            return []
        named = self._prepared(promises)
        if not named:
            return [
                Evidence(p.batch_id, self._participant, 0, 0, Finding.EXACT, BY_LEDGER)
                for p in promises
            ]
        ledger = self._ledger(named, promises[0].batch_id)
        lowest = self._lowest(named)
        self.last_batch = max((row.batch_id for row in ledger), default=None)
        gone = {target for target in map(_target, named) if not self._access.there(target)}
        self._access.session.rollback()
        counts = self._counts([p for p in named if _target(p) not in gone], ledger)
        waiting = self._waiting(named)
        found = [self._evidence(promise, ledger, lowest, counts, waiting) for promise in promises]
        found = [
            _without_its_table(each, promise.record.of(self._participant), gone)
            for each, promise in zip(found, promises, strict=True)
        ]
        return found if self._access.counts_rows or gone else self._all_there(found, promises)

    # ---- facts -------------------------------------------------------------------------------

    def _prepared(self, promises: Sequence[Promise]) -> list[PreparedTransaction]:
        return [p for promise in promises for p in promise.record.of(self._participant)]

    def _ledger(self, named: Sequence[PreparedTransaction], first: int) -> list[LedgerFact]:
        text = LEDGER_ROWS_AND_XIDS if self._access.counts_rows else LEDGER_ROWS
        found: list[LedgerFact] = []
        for ledger in {_target(p).sibling(LEDGER) for p in named}:
            rows = self._access.session.query(
                text.format(ledger=self._access.quote_table(ledger)), (self._scope.text, first)
            )
            found += [
                LedgerFact(
                    int(row[0]),
                    str(row[1]),
                    str(row[2]),
                    int(row[3]),
                    str(row[4]) if self._access.counts_rows else None,
                )
                for row in rows
            ]
        self._access.session.rollback()
        return found

    def _lowest(self, named: Sequence[PreparedTransaction]) -> Mapping[TableName, int]:
        """The first batch of each ledger that has one, whatever the range is: rows go from the
        lowest batch on, and the newest stay.
        """
        found: dict[TableName, int] = {}
        for ledger in {_target(p).sibling(LEDGER) for p in named}:
            text = LOWEST.format(ledger=self._access.quote_table(ledger))
            lowest = self._access.session.query(text, (self._scope.text,))[0][0]
            if lowest is not None:
                found[ledger] = int(lowest)
        self._access.session.rollback()
        return found

    def _counts(
        self, named: Sequence[PreparedTransaction], ledger: Sequence[LedgerFact]
    ) -> Mapping[str, int]:
        """Rows that stand in the targets, by the transaction that wrote them."""
        xids = sorted({row.xid for row in ledger if row.xid is not None})
        found: dict[str, int] = {}
        if not xids:
            return found
        for target in {_target(p) for p in named if not _is_upsert(p)}:
            text = ROWS_BY_XID.format(target=self._access.quote_table(target))
            for xid, count in self._access.session.query(text, (xids,)):
                found[str(xid)] = found.get(str(xid), 0) + int(count)
        self._access.session.rollback()
        return found

    def _all_there(self, found: Sequence[Evidence], promises: Sequence[Promise]) -> list[Evidence]:
        """Where rows do not tell who wrote them: whether the tables have as many as are said to
        stand.
        """
        rows_by_target: dict[TableName, int] = {}
        for each, promise in zip(found, promises, strict=True):
            for p in promise.record.of(self._participant):
                if each.finding is Finding.EXACT and not _is_upsert(p):
                    rows_by_target[_target(p)] = rows_by_target.get(_target(p), 0) + p.rows
        short = 0
        for target, rows in rows_by_target.items():
            text = ROWS_UP_TO.format(target=self._access.quote_table(target), limit=rows)
            short += rows - int(self._access.session.query(text)[0][0])
        self._access.session.rollback()
        if not short:
            return list(found)
        last = max(i for i, e in enumerate(found) if e.finding is Finding.EXACT and e.promised)
        why = (
            f"the table has {short:,} rows less than these batches wrote; which they are of cannot "
            "be told; rows that somebody deleted since count as missing"
        )
        missing = replace(
            found[last], found=found[last].promised - short, finding=Finding.MISSING, why=why
        )
        return [*found[:last], missing, *found[last + 1 :]]

    def _waiting(self, named: Sequence[PreparedTransaction]) -> set[str]:
        """Transactions that are staged or prepared on the server."""
        found = set(self._access.prepared(self._scope.gid_prefix))
        for directory in {_target(p).sibling(DIRECTORY) for p in named}:
            text = STAGED.format(directory=self._access.quote_table(directory))
            rows = self._access.session.query(text, (self._scope.text,))
            found |= {str(row[0]) for row in rows}
        self._access.session.rollback()
        return found

    # ---- judgement ---------------------------------------------------------------------------

    def _evidence(
        self,
        promise: Promise,
        ledger: Sequence[LedgerFact],
        lowest: Mapping[TableName, int],
        counts: Mapping[str, int],
        waiting: set[str],
    ) -> Evidence:
        own = promise.record.of(self._participant)
        batch_id, rows, name = promise.batch_id, promise.rows(self._participant), self._participant
        if not own:
            return Evidence(batch_id, name, 0, 0, Finding.EXACT, BY_LEDGER)
        is_staged = _payload(own[0])["mechanism"] == "staged"
        wanted = {WHOLE_EPOCH: _digest(own)} if is_staged else {p.identity: None for p in own}
        there = [row for row in ledger if row.batch_id == batch_id]
        other = [
            row
            for row in there
            if row.identity not in wanted or wanted[row.identity] not in (None, row.digest)
        ]
        if other:
            why = "the ledger has transactions of this batch that no record names"
            found = sum(row.rows for row in there)
            return Evidence(
                batch_id, name, rows, max(found, rows + 1), Finding.EXTRA, BY_LEDGER, why
            )
        if len(there) < len(wanted):
            first = lowest.get(_target(own[0]).sibling(LEDGER), batch_id)
            return self._not_there(promise, own, there, waiting, is_pruned=batch_id < first)
        return self._in_force(promise, own, there, counts, is_staged=is_staged)

    def _not_there(
        self,
        promise: Promise,
        own: Sequence[PreparedTransaction],
        there: Sequence[LedgerFact],
        waiting: set[str],
        *,
        is_pruned: bool,
    ) -> Evidence:
        """``is_pruned``: the ledger begins with a later batch."""
        batch_id, rows, name = promise.batch_id, promise.rows(self._participant), self._participant
        known = {row.identity for row in there}
        left = [p for p in own if p.identity not in known]
        found = sum(row.rows for row in there)
        if all(p.identity in waiting for p in left):
            why = "decided, and waiting in the database: start the query, or finish it"
            return Evidence(batch_id, name, rows, found, Finding.IN_DOUBT, BY_LEDGER, why)
        if is_pruned:
            why = "its ledger row is pruned; that of a later batch speaks for it"
            return Evidence(batch_id, name, rows, None, Finding.UNKNOWABLE, BY_LEDGER, why)
        why = "neither the ledger nor the staging has it"
        return Evidence(batch_id, name, rows, found, Finding.MISSING, BY_LEDGER, why)

    def _in_force(
        self,
        promise: Promise,
        own: Sequence[PreparedTransaction],
        there: Sequence[LedgerFact],
        counts: Mapping[str, int],
        *,
        is_staged: bool,
    ) -> Evidence:
        batch_id, rows, name = promise.batch_id, promise.rows(self._participant), self._participant
        by_ledger = sum(row.rows for row in there) if is_staged else rows
        if not self._access.counts_rows:
            why = "this server does not tell which transaction wrote a row"
            return compared(batch_id, name, rows, by_ledger, by=BY_LEDGER, why=why)
        if any(_is_upsert(p) for p in own):
            why = "an upsert's rows are replaced by later ones, so they are not counted"
            return compared(batch_id, name, rows, by_ledger, by=BY_LEDGER, why=why)
        found = sum(counts.get(str(row.xid), 0) for row in there)
        if found < rows and not is_staged:
            why = (
                f"{found:,} rows carry its transaction's id; rows that were loaded behind a "
                "savepoint carry another one, as do rows that were changed since"
            )
            return Evidence(batch_id, name, rows, None, Finding.UNKNOWABLE, BY_ROWS, why)
        why = "rows that somebody changed or deleted since count as missing" if found < rows else ""
        return compared(batch_id, name, rows, found, by=BY_ROWS, why=why)


def _without_its_table(
    each: Evidence, own: Sequence[PreparedTransaction], gone: Set[TableName]
) -> Evidence:
    """What the ledger says is not there any more where the table itself is gone."""
    lost = [target for target in map(_target, own) if target in gone]
    if not lost or each.finding in (Finding.EXTRA, Finding.IN_DOUBT):
        return each
    why = f"the table {lost[0]} is no more"
    return replace(each, found=0, finding=Finding.MISSING, why=why)


def _payload(prepared: PreparedTransaction) -> Mapping[str, object]:
    payload: Mapping[str, object] = json.loads(prepared.payload)
    return payload


def _target(prepared: PreparedTransaction) -> TableName:
    schema, table = json.loads(prepared.payload)["target"]
    return TableName(schema, table)


def _is_upsert(prepared: PreparedTransaction) -> bool:
    return _payload(prepared).get("mode") == "upsert"


def _digest(prepared: Sequence[PreparedTransaction]) -> str:
    """As docs/targets.md says of the ledger: SHA-256 over the sorted identities, 32 digits."""
    text = "\n".join(sorted(p.identity for p in prepared))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
