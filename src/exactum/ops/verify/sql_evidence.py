"""What a SQL target holds of a range of epochs: by its ledger, and in PostgreSQL by its rows, too.

The ledger's row is written in the transaction that makes an epoch's rows visible. PostgreSQL keeps
with each row the transaction that wrote it (``xmin``), so the rows of that very transaction can be
counted, whatever the writer claims. MySQL and MariaDB show no such thing: there the ledger speaks,
and the table must have as many rows in all. What users or triggers have changed since is another
transaction's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from exactum.ops.verify.evidence import Evidence, Finding, compared
from exactum.ops.verify.promise import Promise
from exactum.protocol.model import PreparedTransaction
from exactum.protocol.scope import Scope
from exactum.sinks.staged import StagedEpoch
from exactum.sinks.staging import Staging
from exactum.sql.dialect import LEDGER, Mode, Session
from exactum.sql.plan import SqlScope
from exactum.sql.sink import SqlSink
from exactum.sql.table import TableName
from exactum.sql.target import WHOLE_EPOCH
from exactum.storage.storage import Storage

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
class Staged:
    """What a record promises of this sink: one row in the ledger beside ``target``, whose
    ``digest`` names the files.
    """

    batch_id: int
    rows: int
    digest: str
    files: frozenset[str]
    target: TableName
    is_upsert: bool

    @staticmethod
    def of(prepared: Sequence[PreparedTransaction]) -> Staged:
        """
        Raises:
            InvariantBroken: it is none of a staged sink.
        """
        epoch = StagedEpoch.of(prepared)
        facts = epoch.parts[0].facts
        return Staged(
            epoch.batch_id,
            epoch.rows,
            epoch.digest,
            frozenset(part.name.identity for part in epoch.parts),
            TableName(*facts["table"]),
            Mode(facts["mode"]) is Mode.UPSERT,
        )

    @property
    def ledger(self) -> TableName:
        return self.target.sibling(LEDGER)


@dataclass(frozen=True)
class SqlAccess:
    """How to ask one server: a session of its own, how it quotes a table, and whether rows tell who
    wrote them.
    """

    session: Session
    quote_table: Callable[[TableName], str]
    there: Callable[[TableName], bool]
    """Whether there is a table of this name."""
    counts_rows: bool


def access_by(sink: SqlSink, session: Session) -> SqlAccess:
    """How to ask through a session at this sink's server."""
    return SqlAccess(
        session,
        sink.quoted,
        lambda name: sink.dialect.read_table(session, name) is not None,
        counts_rows=sink.dialect.scheme == "postgres",
    )


class SqlEvidence:
    """Of one participant in one database."""

    def __init__(
        self, participant: str, query_id: str, access: SqlAccess, staging: Storage | None
    ) -> None:
        """``staging``: where its rows wait; None where that is not known."""
        self._participant = participant
        self._scope = SqlScope(query_id, participant)
        self._access = access
        self._staging = None if staging is None else Staging(staging, Scope(query_id, participant))
        self.last_batch: int | None = None
        """The highest one that the ledger has, once it was looked at."""

    def cost_bytes(self, promises: Sequence[Promise]) -> int:
        """Bytes of the tables that are read whole; 0 where only the ledger is asked."""
        if not self._access.counts_rows:
            return 0
        sizes = 0
        targets = {each.target for each in self._staged(promises) if not each.is_upsert}
        for target in filter(self._access.there, targets):
            name = self._access.quote_table(target).replace("%%", "%")
            sizes += int(self._access.session.query(SIZE, (name,))[0][0])
        self._access.session.rollback()
        return sizes

    def look(self, promises: Sequence[Promise]) -> list[Evidence]:
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
            self.last_batch = max((row.batch_id for row in ledger), default=None)
            gone = {t for t in {each.target for each in staged} if not self._access.there(t)}
            self._access.session.rollback()
            counts = self._counts([each for each in staged if each.target not in gone], ledger)
            waiting = self._waiting()
            for each in staged:
                evidence = self._evidence(each, ledger, lowest.get(each.ledger), counts, waiting)
                found[each.batch_id] = _without_its_table(evidence, each, gone)
            if not self._access.counts_rows and not gone:
                self._refuse_short(found, staged)
        return [
            found.get(p.batch_id)
            or Evidence(p.batch_id, self._participant, 0, 0, Finding.EXACT, BY_LEDGER)
            for p in promises
        ]

    # ---- facts -------------------------------------------------------------------------------

    def _staged(self, promises: Sequence[Promise]) -> list[Staged]:
        """Of those that name this sink."""
        own = (promise.record.of(self._participant) for promise in promises)
        return [Staged.of(prepared) for prepared in own if prepared]

    def _ledger(self, staged: Sequence[Staged], first: int) -> list[LedgerFact]:
        text = LEDGER_ROWS_AND_XIDS if self._access.counts_rows else LEDGER_ROWS
        found: list[LedgerFact] = []
        for ledger in {each.ledger for each in staged}:
            rows = self._access.session.query(
                text.format(ledger=self._access.quote_table(ledger)), (self._scope.text, first)
            )
            for batch_id, identity, digest, count, *xid in rows:
                by = str(xid[0]) if xid else None
                found.append(LedgerFact(int(batch_id), str(identity), str(digest), int(count), by))
        self._access.session.rollback()
        return found

    def _lowest(self, staged: Sequence[Staged]) -> Mapping[TableName, int]:
        """The first batch of each ledger that has one, whatever the range is: rows go from the
        lowest batch on, and the newest stay.
        """
        found: dict[TableName, int] = {}
        for ledger in {each.ledger for each in staged}:
            text = LOWEST.format(ledger=self._access.quote_table(ledger))
            lowest = self._access.session.query(text, (self._scope.text,))[0][0]
            if lowest is not None:
                found[ledger] = int(lowest)
        self._access.session.rollback()
        return found

    def _counts(self, staged: Sequence[Staged], ledger: Sequence[LedgerFact]) -> Mapping[str, int]:
        """Rows that stand in the targets, by the transaction that wrote them."""
        xids = sorted({row.xid for row in ledger if row.xid is not None})
        found: dict[str, int] = {}
        if not xids:
            return found
        for target in {each.target for each in staged if not each.is_upsert}:
            text = ROWS_BY_XID.format(target=self._access.quote_table(target))
            for xid, count in self._access.session.query(text, (xids,)):
                found[str(xid)] = found.get(str(xid), 0) + int(count)
        self._access.session.rollback()
        return found

    def _waiting(self) -> Set[str]:
        """Files in the staging."""
        if self._staging is None:
            return set()
        return {name.identity for name in self._staging.listing().staged()}

    # ---- judgement ---------------------------------------------------------------------------

    def _evidence(
        self,
        each: Staged,
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
        if each.files <= waiting:
            why = "decided, and waiting in the staging: start the query, or finish it"
            return self._found(each, 0, Finding.IN_DOUBT, why)
        if lowest is not None and each.batch_id < lowest:
            why = "its ledger row is pruned; that of a later batch speaks for it"
            return self._found(each, None, Finding.UNKNOWABLE, why)
        return self._found(each, 0, Finding.MISSING, "neither the ledger nor the staging has it")

    def _found(self, each: Staged, found: int | None, finding: Finding, why: str) -> Evidence:
        return Evidence(each.batch_id, self._participant, each.rows, found, finding, BY_LEDGER, why)

    def _in_force(self, each: Staged, row: LedgerFact, counts: Mapping[str, int]) -> Evidence:
        batch_id, name = each.batch_id, self._participant
        if self._access.counts_rows and not each.is_upsert:
            found = counts.get(str(row.xid), 0)
            why = "rows that somebody changed or deleted since count as missing"
            why = why if found < each.rows else ""
            return compared(batch_id, name, each.rows, found, by=BY_ROWS, why=why)
        why = (
            "an upsert's rows are replaced by later ones, so they are not counted"
            if self._access.counts_rows
            else "this server does not tell which transaction wrote a row"
        )
        return compared(batch_id, name, each.rows, row.rows, by=BY_LEDGER, why=why)

    def _refuse_short(self, found: dict[int, Evidence], staged: Sequence[Staged]) -> None:
        """Where rows do not tell who wrote them: whether the tables have as many as are said to
        stand.
        """
        exact = [
            each
            for each in staged
            if not each.is_upsert and found[each.batch_id].finding is Finding.EXACT
        ]
        short = 0
        for target in {each.target for each in exact}:
            rows = sum(each.rows for each in exact if each.target == target)
            text = ROWS_UP_TO.format(target=self._access.quote_table(target), limit=rows)
            short += rows - int(self._access.session.query(text)[0][0])
        self._access.session.rollback()
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


def _without_its_table(each: Evidence, staged: Staged, gone: Set[TableName]) -> Evidence:
    """What the ledger says is not there any more where the table itself is gone."""
    if staged.target not in gone or each.finding in (Finding.EXTRA, Finding.IN_DOUBT):
        return each
    why = f"the table {staged.target} is no more"
    return replace(each, found=0, finding=Finding.MISSING, why=why)
