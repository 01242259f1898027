"""``exactum transactions`` on a query that Spark ran: what it left beside its checkpoint is enough."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import exactum
from exactum.errors import OutcomeUnknown
from exactum.files.slot_log import SlotLog
from exactum.local import LocalKafka
from exactum.protocol.model import Decision, DecisionRecord
from tests.kit.errors import check_query_error, text_of
from tests.kit.kafka.broker import producer_to
from tests.kit.kafka.transactions import read_all
from tests.kit.transactions.given import given
from tests.kit.transactions.operator import listed, transactions
from tests.kit.waiting import WAIT_MAX_S

pytestmark = [pytest.mark.broker, pytest.mark.spark]

RECORDS = 40


def test_a_query_of_spark(
    spark: SparkSession,
    kafka: LocalKafka,
    topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ends with a decision that is not carried out; finish does it, and its next run adds
    nothing. Where its decisions are has to be said.
    """
    servers = kafka.bootstrap_servers
    source, target = topic("in", partitions=2), topic("out", partitions=2)
    checkpoint, decisions = tmp_path / "checkpoint", tmp_path / "decisions"
    producer = producer_to(servers)
    for number in range(RECORDS):
        producer.produce(source, str(number).encode(), key=str(number).encode())
    producer.flush(WAIT_MAX_S)

    sink = exactum.KafkaSink(target, bootstrap_servers=servers)

    decide = SlotLog.decide

    def reply_lost(log: SlotLog, record: DecisionRecord) -> DecisionRecord:
        stands = decide(log, record)
        if record.decision is Decision.COMMIT and record.epoch.batch_id == 1:
            raise OutcomeUnknown("the reply was lost")
        return stands

    def run() -> str | None:
        rows = exactum.read_kafka(
            spark, source, bootstrap_servers=servers, start="earliest", maxOffsetsPerTrigger=10
        ).selectExpr("key", "value")
        once, writer = exactum.exactly_once(sink, decision_log=decisions), rows.writeStream
        try:
            query = once.start(writer.trigger(availableNow=True), checkpoint=checkpoint)
            assert query.awaitTermination(WAIT_MAX_S)
        except Exception as error:
            return text_of(error)
        return None

    monkeypatch.setattr(SlotLog, "decide", reply_lost)
    error = run()
    monkeypatch.undo()
    check_query_error(error, OutcomeUnknown, "the reply was lost")
    # What starts the query says it all.
    sinks = given(exactum.exactly_once(sink, decision_log=decisions))
    arguments = ("--checkpoint", checkpoint, "--decision-log", decisions, *sinks)
    assert "--decision-log" in transactions("list", *arguments[:2], *sinks, status=2).output
    found = listed(checkpoint, *arguments[2:], status=1)
    assert {(t["on_record"], t["batch_id"], t["owner"]) for t in found} == {
        ("COMMIT on record", 1, "a dead run of this query")
    }
    typed = transactions("finish", *arguments, status=0).output
    assert "rows are committed" in typed
    assert len(read_all(servers, target)) > sum(t["rows"] for t in found) > 0
    assert run() is None
    assert listed(checkpoint, *arguments[2:], status=0) == []
    values = [int(r.value or b"") for r in read_all(servers, target)]
    assert sorted(values) == list(range(RECORDS))
