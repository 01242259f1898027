"""What a SQL target holds of a range of epochs: by its ledger, and in PostgreSQL by its rows, too.

The ledger's row is written in the transaction that makes an epoch's rows visible. PostgreSQL keeps
with each row the transaction that wrote it (``xmin``), so the rows of that very transaction can be
counted, whatever the writer claims. MySQL and MariaDB show no such thing: there the ledger speaks,
and the table must have as many rows in all. What users or triggers have changed since is another
transaction's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from exactum.protocol.inspection import Evidence, Finding, Promise, compared
from exactum.sinks.staged import StagedEpoch
from exactum.sinks.staging import Staging
from exactum.sql.dialect import LEDGER, Mode
from exactum.sql.session import Role, Session, SqlFailure, port_error
from exactum.sql.sink import SqlSink
from exactum.sql.table import TableName
from exactum.sql.target import WHOLE_EPOCH
from exactum.sql.writer import SqlScope

LEDGER_ROWS = """
SELECT batch_id, identity, digest, row_count FROM {ledger}
WHERE scope = %s AND batch_id >= %s ORDER BY batch_id"""
LEDGER_ROWS_AND_XIDS = """
SELECT batch_id, identity, digest, row_count, xmin::text FROM {ledger}
WHERE scope = %s AND batch_id >= %s ORDER BY batch_id"""
LOWEST = "SELECT min(batch_id) FROM {ledger} WHERE scope = %s"
ROWS_BY_XID = """
SELECT xmin::text, count(*) FROM {target} WHERE xmin::text = ANY(%s) GROUP BY 1"""
ROWS_UP_TO = "SELECT count(*) FROM (SELECT 1 FROM {target} LIMIT {limit}) some_rows"
TIMEOUT_S = 10.0
BY_LEDGER, BY_ROWS = "ledger", "rows"


@dataclass(frozen=True)
class LedgerFact:
    """``xid`` is the transaction that wrote it, None where the server does not tell."""

    batch_id: int
    identity: str
    digest: str
    rows: int
    xid: str | None


def _table_of(epoch: StagedEpoch) -> TableName:
    return TableName(*epoch.parts[0].facts["table"])


def _is_upsert(epoch: StagedEpoch) -> bool:
    return Mode(epoch.parts[0].facts["mode"]) is Mode.UPSERT


def sql_evidence(
    sink: SqlSink, scope: SqlScope, staging: Staging, promises: Sequence[Promise]
) -> list[Evidence]:
    """
    Raises:
        ExactumError: the server did not answer, or refused; the staging did not answer.
    """
    try:
        session = sink.dialect.connect(sink.address, Role.DRIVER, "exactum verify", TIMEOUT_S)
        try:
            return SqlEvidence(sink, session, scope, staging).of(promises)
        finally:
            session.close()
    except SqlFailure as failure:
        where = f"sink {scope.participant!r} at {sink.address.where}"
        raise port_error(failure, where) from failure


class SqlEvidence:
    """Of one participant in one database."""

    def __init__(self, sink: SqlSink, session: Session, scope: SqlScope, staging: Staging) -> None:
        self._sink = sink
        self._session = session
        self._scope = scope
        self._participant = scope.participant
        self._staging = staging
        self._counts_rows = sink.dialect.scheme == "postgres"
        """Whether a row tells which transaction wrote it."""

    def of(self, promises: Sequence[Promise]) -> list[Evidence]:
        """
        Raises:
            SqlFailure: the server did not answer, or refused.
            Unavailable: the staging did not.
        """
        staged = self._staged(promises)
        found: dict[int, Evidence] = {}
        if staged:
            ledger = self._ledger(staged, promises[0].batch_id)
            lowest = self._lowest(staged)
            targets = {_table_of(each) for each in staged}
            gone = {t for t in targets if not self._sink.dialect.read_table(self._session, t)}
            self._session.rollback()
            counts = self._counts([each for each in staged if _table_of(each) not in gone], ledger)
            waiting = {name.identity for name in self._staging.listing().staged()}
            for each in staged:
                evidence = self._evidence(
                    each, ledger, lowest.get(_table_of(each).sibling(LEDGER)), counts, waiting
                )
                found[each.batch_id] = _without_its_table(evidence, each, gone)
            if not self._counts_rows and not gone:
                self._refuse_short(found, staged)
        return [
            found.get(p.batch_id)
            or Evidence(p.batch_id, self._participant, 0, 0, Finding.EXACT, BY_LEDGER)
            for p in promises
        ]

    # ---- facts -------------------------------------------------------------------------------

    def _staged(self, promises: Sequence[Promise]) -> list[StagedEpoch]:
        """Of those that name this sink."""
        own = (promise.record.of(self._participant) for promise in promises)
        return [StagedEpoch.of(prepared) for prepared in own if prepared]

    def _ledger(self, staged: Sequence[StagedEpoch], first: int) -> list[LedgerFact]:
        text = LEDGER_ROWS_AND_XIDS if self._counts_rows else LEDGER_ROWS
        found: list[LedgerFact] = []
        for ledger in {_table_of(each).sibling(LEDGER) for each in staged}:
            rows = self._session.query(
                text.format(ledger=self._sink.quoted(ledger)), (self._scope.text, first)
            )
            for batch_id, identity, digest, count, *xid in rows:
                by = str(xid[0]) if xid else None
                found.append(LedgerFact(int(batch_id), str(identity), str(digest), int(count), by))
        self._session.rollback()
        return found

    def _lowest(self, staged: Sequence[StagedEpoch]) -> Mapping[TableName, int]:
        """The first batch of each ledger that has one, whatever the range is: rows go from the
        lowest batch on, and the newest stay.
        """
        found: dict[TableName, int] = {}
        for ledger in {_table_of(each).sibling(LEDGER) for each in staged}:
            text = LOWEST.format(ledger=self._sink.quoted(ledger))
            lowest = self._session.query(text, (self._scope.text,))[0][0]
            if lowest is not None:
                found[ledger] = int(lowest)
        self._session.rollback()
        return found

    def _counts(
        self, staged: Sequence[StagedEpoch], ledger: Sequence[LedgerFact]
    ) -> Mapping[str, int]:
        """Rows that stand in the targets, by the transaction that wrote them."""
        xids = sorted({row.xid for row in ledger if row.xid is not None})
        found: dict[str, int] = {}
        if not xids:
            return found
        for target in {_table_of(each) for each in staged if not _is_upsert(each)}:
            text = ROWS_BY_XID.format(target=self._sink.quoted(target))
            for xid, count in self._session.query(text, (xids,)):
                found[str(xid)] = found.get(str(xid), 0) + int(count)
        self._session.rollback()
        return found

    # ---- judgement ---------------------------------------------------------------------------

    def _evidence(
        self,
        each: StagedEpoch,
        ledger: Sequence[LedgerFact],
        lowest: int | None,
        counts: Mapping[str, int],
        waiting: Set[str],
    ) -> Evidence:
        there = [row for row in ledger if row.batch_id == each.batch_id]
        if any((row.identity, row.digest) != (WHOLE_EPOCH, each.digest) for row in there):
            why = "the ledger has transactions of this batch that no record names"
            found = max(sum(row.rows for row in there), each.rows + 1)
            return self._found(each, found, Finding.EXTRA, why)
        if there:
            return self._in_force(each, there[0], counts)
        if {part.name.identity for part in each.parts} <= waiting:
            why = "decided, and waiting in the staging: start the query, or finish it"
            return self._found(each, 0, Finding.IN_DOUBT, why)
        if lowest is not None and each.batch_id < lowest:
            why = "its ledger row is pruned; that of a later batch speaks for it"
            return self._found(each, None, Finding.UNKNOWABLE, why)
        return self._found(each, 0, Finding.MISSING, "neither the ledger nor the staging has it")

    def _found(self, each: StagedEpoch, found: int | None, finding: Finding, why: str) -> Evidence:
        return Evidence(each.batch_id, self._participant, each.rows, found, finding, BY_LEDGER, why)

    def _in_force(self, each: StagedEpoch, row: LedgerFact, counts: Mapping[str, int]) -> Evidence:
        batch_id, name = each.batch_id, self._participant
        if self._counts_rows and not _is_upsert(each):
            found = counts.get(str(row.xid), 0)
            why = "rows that somebody changed or deleted since count as missing"
            why = why if found < each.rows else ""
            return compared(batch_id, name, each.rows, found, by=BY_ROWS, why=why)
        why = (
            "an upsert's rows are replaced by later ones, so they are not counted"
            if self._counts_rows
            else "this server does not tell which transaction wrote a row"
        )
        return compared(batch_id, name, each.rows, row.rows, by=BY_LEDGER, why=why)

    def _refuse_short(self, found: dict[int, Evidence], staged: Sequence[StagedEpoch]) -> None:
        """Where rows do not tell who wrote them: whether the tables have as many as are said to
        stand.
        """
        exact = [
            each
            for each in staged
            if not _is_upsert(each) and found[each.batch_id].finding is Finding.EXACT
        ]
        short = 0
        for target in {_table_of(each) for each in exact}:
            rows = sum(each.rows for each in exact if _table_of(each) == target)
            text = ROWS_UP_TO.format(target=self._sink.quoted(target), limit=rows)
            short += rows - int(self._session.query(text)[0][0])
        self._session.rollback()
        if not short:
            return
        why = (
            f"the table has {short:,} rows less than these batches wrote; which they are of cannot "
            "be told; rows that somebody deleted since count as missing"
        )
        last = found[exact[-1].batch_id]
        found[last.batch_id] = replace(
            last, found=last.promised - short, finding=Finding.MISSING, why=why
        )


def _without_its_table(each: Evidence, staged: StagedEpoch, gone: Set[TableName]) -> Evidence:
    """What the ledger says is not there any more where the table itself is gone."""
    if _table_of(staged) not in gone or each.finding in (Finding.EXTRA, Finding.IN_DOUBT):
        return each
    why = f"the table {_table_of(staged)} is no more"
    return replace(each, found=0, finding=Finding.MISSING, why=why)
