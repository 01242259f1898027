"""Where a decision log in a database ends: told from one that has no record of the query, or had
them pruned.
"""

from __future__ import annotations

from exactum.protocol.model import Decision, DecisionRecord, Epoch
from tests.kit.sql.sql_database import SqlDatabase

QUERY = "query"


def test_a_log_that_was_emptied(database: SqlDatabase) -> None:
    log = database.log(QUERY, prune_every=1)
    assert log.last_batch() is None
    for batch_id in range(9):
        log.decide(DecisionRecord(Epoch(QUERY, batch_id), 0, Decision.COMMIT, "i"))
    assert log.last_batch() == 8
    log.prune(5)
    assert log.last_batch() == 8
    log.close()
    database.drop_all()
    log = database.log(QUERY)
    assert log.last_batch() is None
    log.close()
