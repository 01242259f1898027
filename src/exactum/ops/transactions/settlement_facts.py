"""What an operator's command has settled, as facts of the query's history: by them
``exactum status`` and the page know that nothing is in doubt any more.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from exactum.checkpoint.query_place import QueryPlace
from exactum.monitor.fact import Fact
from exactum.monitor.history import HistoryWriter
from exactum.ops.transactions.settlement import FinishOutcome
from exactum.protocol.model import rows_of
from exactum.protocol.takeover import TakenOver


def tell_finished(place: QueryPlace, outcome: FinishOutcome) -> str:
    """Only where nothing is left: what is left may be done by a driver that lives, and it tells.

    Returns:
        Why it could not be written; empty: it was, or there was nothing to write.
    """
    if not outcome.batches or outcome.left or outcome.problems:
        return ""
    batches = outcome.batches
    finished = _finished(
        [batch.batch_id for batch in batches],
        sum(batch.transactions for batch in batches),
        sum(batch.rows for batch in batches),
    )
    return _tell(place, [("DecidedFinished", finished)])


def tell_aborted(place: QueryPlace, done: TakenOver) -> str:
    """Also what was finished on the way. Returns as ``tell_finished``."""
    told: list[tuple[str, Mapping[str, Any]]] = []
    if done.finished:
        prepared = [each for record in done.finished for each in record.prepared]
        batch_ids = [record.epoch.batch_id for record in done.finished]
        told.append(("DecidedFinished", _finished(batch_ids, len(prepared), rows_of(prepared))))
    if done.fence is not None:
        fence = {
            "batch_id": done.fence.epoch.batch_id,
            "attempt": done.fence.attempt,
            "transactions": len(done.aborted),
        }
        told.append(("OperatorFenced", fence))
    return _tell(place, told)


def _finished(batch_ids: Sequence[int], transactions: int, rows: int) -> dict[str, Any]:
    return {
        "batch_ids": list(batch_ids),
        "transactions": transactions,
        "rows": rows,
        "left": 0,
        "troubles": [],
    }


def _tell(place: QueryPlace, told: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    at_ms = time.time_ns() // 1_000_000
    facts = [Fact(at_ms, name, {"query_id": place.query_id, **fields}) for name, fields in told]
    if not facts:
        return ""
    try:
        HistoryWriter(place.folder).write(facts)
    except OSError as error:
        return str(error)
    return ""
