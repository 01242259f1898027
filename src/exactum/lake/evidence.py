"""What a table of a lakehouse has of a range of epochs: by its log, the rows of the files that came
with each, and by the marker where those were rewritten since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from exactum.protocol.evidence import Evidence, Finding, Promise, compared
from exactum.protocol.inspection import TransactionState, TransactionView

BY = "table"


def table_evidence(
    promise: Promise, sink: str, views: Sequence[TransactionView], rows_by_file: Mapping[str, int]
) -> Evidence:
    """``views``: of what the promise names. ``rows_by_file``: of the files that the table names, by
    the identity of their task.
    """
    batch_id, promised = promise.batch_id, promise.rows(sink)
    states = {view.state for view in views}
    found = sum(rows_by_file.get(view.identity, 0) for view in views)
    if TransactionState.PREPARED in states or TransactionState.OPEN in states:
        why = "decided, and staged: start the query, or finish it"
        return Evidence(batch_id, sink, promised, found, Finding.IN_DOUBT, BY, why)
    if states == {TransactionState.COMMITTED} and found < promised:
        why = (
            "the table has the batch, by its marker; an upsert, a compaction or somebody else has "
            "rewritten files since, so its rows cannot be counted"
        )
        return Evidence(batch_id, sink, promised, None, Finding.UNKNOWABLE, BY, why)
    return compared(batch_id, sink, promised, found, by=BY)
