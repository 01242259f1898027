"""A decision log in a database that has lost all records of the query is told from one that has
some, or had them pruned.
"""

from __future__ import annotations

from exactum.protocol.model import Decision, DecisionRecord, Epoch
from exactum.spark.run.moved_log import _is_empty
from tests.kit.sql.sql_database import SqlDatabase

QUERY = "query"


def test_a_log_that_was_emptied(database: SqlDatabase) -> None:
    log = database.log(QUERY, prune_every=1)
    assert _is_empty(log, 0, 0)
    for batch_id in range(9):
        log.decide(DecisionRecord(Epoch(QUERY, batch_id), 0, Decision.COMMIT, "i"))
    assert not _is_empty(log, 9, 2), "the last records"
    assert not _is_empty(log, 500, 2), "the one that was noted"
    log.prune(5)
    assert not _is_empty(log, 500, 2), "it is pruned, so it was there"
    log.close()
    database.drop_all()
    log = database.log(QUERY)
    assert _is_empty(log, 9, 2)
    log.close()
