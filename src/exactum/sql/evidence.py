"""What a SQL target holds of a range of epochs: by its ledger, and in PostgreSQL by its rows, too.

The ledger's row is written in the transaction that makes an epoch's rows visible. PostgreSQL keeps
with each row the transaction that wrote it (``xmin``), so the rows of that very transaction can be
counted, whatever the writer claims. MySQL and MariaDB show no such thing: there the ledger speaks,
and the table must have as many rows in all; where it has fewer, nobody knows of which batches. What
users or triggers have changed since is another transaction's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from exactum.protocol.inspection import Evidence, Finding, Promise, compared
from exactum.sinks.staged import StagedEpoch
from exactum.sinks.staging import Staging
from exactum.sql.dialect import LEDGER, Mode
from exactum.sql.session import Session, asking
from exactum.sql.sink import SqlSink
from exactum.sql.table import TableName
from exactum.sql.target import BATCHES_KEPT
from exactum.sql.writer import scope_text

ROWS_OF_A_LEDGER = "SELECT batch_id, digest, row_count{xid} FROM {ledger} WHERE scope = %s"
ROWS_BY_XID = """
SELECT xmin::text, count(*) FROM {target} WHERE xmin::text = ANY(%s) GROUP BY 1"""
ROWS_UP_TO = "SELECT count(*) FROM (SELECT 1 FROM {target} LIMIT {limit}) some_rows"
BY_LEDGER, BY_ROWS = "ledger", "rows"


@dataclass(frozen=True)
class LedgerFact:
    """``xid`` is the transaction that wrote it, empty where the server does not tell."""

    digest: str
    rows: int
    xid: str


Facts = Mapping[int, LedgerFact]
"""Of one ledger, by batch. The newest ones stay, so what is below the lowest was pruned."""


def _table_of(epoch: StagedEpoch) -> TableName:
    return TableName(*epoch.parts[0].facts["table"])


def _is_upsert(epoch: StagedEpoch) -> bool:
    return Mode(epoch.parts[0].facts["mode"]) is Mode.UPSERT


def sql_evidence(sink: SqlSink, staging: Staging, promises: Sequence[Promise]) -> list[Evidence]:
    """
    Raises:
        ExactumError: the server did not answer, or refused; the staging did not answer.
    """
    name = staging.scope.participant
    own = (promise.record.of(name) for promise in promises)
    staged = [StagedEpoch.of(prepared) for prepared in own if prepared]
    found: Mapping[int, Evidence] = {}
    if staged:
        shown = f"sink {name!r} at {sink.address.where}"
        with asking(sink.dialect, sink.address, "exactum verify", shown) as session:
            found = SqlEvidence(sink, session, staging).of(staged)
    none = {
        p.batch_id: Evidence(p.batch_id, name, 0, 0, Finding.EXACT, BY_LEDGER) for p in promises
    }
    return list((none | dict(found)).values())


class SqlEvidence:
    """Of one participant in one database."""

    def __init__(self, sink: SqlSink, session: Session, staging: Staging) -> None:
        self._sink = sink
        self._session = session
        self._scope = staging.scope
        self._staging = staging
        self._counts_rows = sink.dialect.scheme == "postgres"
        """Whether a row tells which transaction wrote it."""

    def of(self, staged: Sequence[StagedEpoch]) -> Mapping[int, Evidence]:
        """
        Raises:
            SqlFailure: the server did not answer, or refused.
            Unavailable: the staging did not.
        """
        targets = {_table_of(each) for each in staged}
        ledgers = {t.sibling(LEDGER): self._facts(t.sibling(LEDGER)) for t in targets}
        gone = {t for t in targets if not self._sink.dialect.read_table(self._session, t)}
        self._session.rollback()
        appended = {_table_of(each) for each in staged if not _is_upsert(each)} - gone
        counts = self._counts(appended, ledgers.values())
        waiting = {name.identity for name in self._staging.listing().staged()}
        found = {}
        for each in staged:
            target = _table_of(each)
            evidence = self._evidence(each, ledgers[target.sibling(LEDGER)], counts, waiting)
            if target in gone and evidence.finding not in (Finding.EXTRA, Finding.IN_DOUBT):
                why = f"the table {target} is no more"  # of which the ledger knows nothing
                evidence = replace(evidence, found=0, finding=Finding.MISSING, why=why)
            found[each.batch_id] = evidence
        if not self._counts_rows and not gone:
            self._refuse_short(found, staged)
        return {each.batch_id: self._placed(found[each.batch_id], each) for each in staged}

    # ---- facts -------------------------------------------------------------------------------

    def _facts(self, ledger: TableName) -> Facts:
        xid = ", xmin::text" if self._counts_rows else ", ''"
        text = ROWS_OF_A_LEDGER.format(ledger=self._sink.quoted(ledger), xid=xid)
        rows = self._session.query(text, (scope_text(self._scope),))
        self._session.rollback()
        return {int(batch): LedgerFact(digest, int(rows), by) for batch, digest, rows, by in rows}

    def _counts(self, targets: Set[TableName], ledgers: Iterable[Facts]) -> Mapping[str, int]:
        """Rows that stand in the targets, by the transaction that wrote them."""
        xids = sorted({fact.xid for facts in ledgers for fact in facts.values()} - {""})
        found: dict[str, int] = {}
        for target in targets if xids else ():
            text = ROWS_BY_XID.format(target=self._sink.quoted(target))
            for xid, count in self._session.query(text, (xids,)):
                found[xid] = found.get(xid, 0) + int(count)
        self._session.rollback()
        return found

    # ---- judgement ---------------------------------------------------------------------------

    def _evidence(
        self, each: StagedEpoch, ledger: Facts, counts: Mapping[str, int], waiting: Set[str]
    ) -> Evidence:
        def evidence(found: int | None, finding: Finding, why: str) -> Evidence:
            name = self._scope.participant
            return Evidence(each.batch_id, name, each.rows, found, finding, BY_LEDGER, why)

        fact = ledger.get(each.batch_id)
        if fact is not None and fact.digest != each.digest:
            why = "the ledger has this batch from files that no record names"
            return evidence(max(fact.rows, each.rows + 1), Finding.EXTRA, why)
        if fact is not None:
            return self._in_force(each, fact, counts)
        if ledger and each.batch_id < min(ledger):  # though its files may be kept in the staging
            is_pruned = each.batch_id < max(ledger) - BATCHES_KEPT
            why = (
                "its ledger row is pruned; that of a later batch speaks for it"
                if is_pruned
                else "the ledger begins with a later batch: it was emptied, or the sink was moved "
                "here; nothing is loaded again, so look whether the rows are there"
            )
            return evidence(None, Finding.UNKNOWABLE, why)
        if {part.name.identity for part in each.parts} <= waiting:
            why = "decided, and waiting in the staging: start the query, or finish it"
            return evidence(0, Finding.IN_DOUBT, why)
        return evidence(0, Finding.MISSING, "neither the ledger nor the staging has it")

    def _in_force(self, each: StagedEpoch, fact: LedgerFact, counts: Mapping[str, int]) -> Evidence:
        found, by = fact.rows, BY_LEDGER
        if self._counts_rows and not _is_upsert(each):
            found, by = counts.get(fact.xid, 0), BY_ROWS
            why = "rows that somebody changed or deleted since count as missing"
            why = why if found < each.rows else ""
        elif self._counts_rows:
            why = "an upsert's rows are replaced by later ones, so they are not counted"
        else:
            why = "this server does not tell which transaction wrote a row"
        name = self._scope.participant
        return compared(each.batch_id, name, each.rows, found, by=by, why=why)

    def _placed(self, evidence: Evidence, each: StagedEpoch) -> Evidence:
        """A copy of the target has ledger and rows as well."""
        at, here = each.parts[0].at, self._sink.address.place
        if at == here:
            return evidence
        why = f"it was staged for {at}; {here} may be a copy of that, or another name of it"
        return replace(evidence, why="; ".join(filter(None, (evidence.why, why))))

    def _refuse_short(self, found: dict[int, Evidence], staged: Sequence[StagedEpoch]) -> None:
        """Where rows do not tell who wrote them: whether a table has as many as are said to stand.
        If not, some are missing of these batches together.
        """
        exact = [
            each
            for each in staged
            if not _is_upsert(each) and found[each.batch_id].finding is Finding.EXACT
        ]
        for target in {_table_of(each) for each in exact}:
            own = [each for each in exact if _table_of(each) == target]
            rows = sum(each.rows for each in own)
            text = ROWS_UP_TO.format(target=self._sink.quoted(target), limit=rows)
            there = int(self._session.query(text)[0][0])
            if there == rows:
                continue
            untold = "which of them are missing cannot be told; " if there else ""
            why = (
                f"these batches wrote {rows:,} rows, and the table {target} has {there:,} in all; "
                f"{untold}rows that somebody deleted since count as missing"
            )
            for batch_id in (each.batch_id for each in own):
                found[batch_id] = replace(
                    found[batch_id],
                    found=None if there else 0,
                    finding=Finding.MISSING,
                    why=why,
                )
        self._session.rollback()
