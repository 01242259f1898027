"""What a table of a lakehouse has of a range of epochs: by its log, the rows of the files that came
with each, and by the marker where those were rewritten since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from exactum.ops.verify.evidence import Evidence, Finding, compared
from exactum.ops.verify.promise import Promise
from exactum.protocol.inspection import Inspector, TransactionState

BY = "table"


def table_evidence(
    name: str, inspector: Inspector, rows_by_file: Mapping[str, int], promises: Sequence[Promise]
) -> list[Evidence]:
    """``rows_by_file``: of the files that the table names, by the identity of their task."""
    return [_of(promise, name, inspector, rows_by_file) for promise in promises]


def _of(
    promise: Promise, name: str, inspector: Inspector, rows_by_file: Mapping[str, int]
) -> Evidence:
    batch_id, promised = promise.batch_id, promise.rows(name)
    prepared = promise.record.of(name)
    states = {view.state for view in inspector.describe(prepared)}
    found = sum(rows_by_file.get(p.identity, 0) for p in prepared)
    if TransactionState.PREPARED in states or TransactionState.OPEN in states:
        why = "decided, and staged: start the query, or finish it"
        return Evidence(batch_id, name, promised, found, Finding.IN_DOUBT, BY, why)
    if states == {TransactionState.COMMITTED} and found < promised:
        why = (
            "the table has the batch, by its marker; an upsert, a compaction or somebody else has "
            "rewritten files since, so its rows cannot be counted"
        )
        return Evidence(batch_id, name, promised, None, Finding.UNKNOWABLE, BY, why)
    return compared(batch_id, name, promised, found, by=BY)
