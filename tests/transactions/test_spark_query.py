"""``exactum transactions`` on a query that Spark ran: what it left beside its checkpoint is enough."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import exactum
from exactum.errors import OutcomeUnknown
from exactum.files.slot_log import SlotLog
from exactum.protocol.model import Decision, DecisionRecord
from tests.kit.errors import check_query_error
from tests.kit.spark.files import rows_in
from tests.kit.spark.query import Query
from tests.kit.transactions.given import given
from tests.kit.transactions.operator import listed, transactions

pytestmark = pytest.mark.spark


def test_a_query_of_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with a decision that is not carried out; finish does it, and its next run adds
    nothing. Where its decisions are has to be said.
    """
    query, out, decisions = Query(spark, tmp_path), tmp_path / "files", tmp_path / "decisions"
    query.give(*range(10), batches=4)
    once = exactum.exactly_once(exactum.FileSink(out, format="json"), decision_log=decisions)
    decide = SlotLog.decide

    def reply_lost(log: SlotLog, record: DecisionRecord) -> DecisionRecord:
        stands = decide(log, record)
        if record.decision is Decision.COMMIT and record.epoch.batch_id == 1:
            raise OutcomeUnknown("the reply was lost")
        return stands

    monkeypatch.setattr(SlotLog, "decide", reply_lost)
    error = query.run(once)
    monkeypatch.undo()
    check_query_error(error, OutcomeUnknown, "the reply was lost")
    # What starts the query says it all.
    arguments = ("--checkpoint", query.checkpoint, "--decision-log", decisions, *given(once))
    without = transactions("list", *arguments[:2], *given(once), status=2)
    assert "--decision-log" in without.output
    found = listed(query.checkpoint, *arguments[2:], status=1)
    assert {(t["on_record"], t["batch_id"], t["owner"]) for t in found} == {
        ("COMMIT on record", 1, "a dead run of this query")
    }
    assert "rows are committed" in transactions("finish", *arguments, status=0).output
    assert sum(t["rows"] for t in found) == 10
    assert len(rows_in(out)) == 20
    assert query.run(once) is None
    assert listed(query.checkpoint, *arguments[2:], status=0) == []
    assert sorted(row["v"] for row in rows_in(out)) == sorted([*range(10)] * 4)
