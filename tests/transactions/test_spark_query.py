"""``exactum transactions`` on a query that Spark ran: what it left beside its checkpoint is enough."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

import exactum
from exactum.errors import OutcomeUnknown
from exactum.files.slot_log import SlotLog
from exactum.local import LocalKafka
from exactum.protocol.model import Decision, DecisionRecord
from exactum.storage.folder import Folder
from tests.kit.errors import check_query_error, text_of
from tests.kit.kafka.transactions import read_all
from tests.kit.transactions.given import given
from tests.kit.transactions.operator import listed, transactions
from tests.kit.waiting import WAIT_MAX_S

pytestmark = [pytest.mark.broker, pytest.mark.spark]

RECORDS = 40


class ReplyLost:
    """A decision log elsewhere, whose answer to the first COMMIT from ``batch_id`` on is lost."""

    def __init__(self, checkpoint: Path, folder: Path, batch_id: int) -> None:
        self._checkpoint, self._folder, self._batch_id = checkpoint, folder, batch_id

    def read(self, batch_id: int) -> Sequence[DecisionRecord]:
        return self._log.read(batch_id)

    def decide(self, record: DecisionRecord) -> DecisionRecord:
        stands = self._log.decide(record)
        if record.decision is Decision.COMMIT and record.epoch.batch_id >= self._batch_id:
            raise OutcomeUnknown("the reply was lost")
        return stands

    def log_id(self) -> str | None:
        return self._log.log_id()

    def prune(self, below_batch_id: int) -> int:
        return self._log.prune(below_batch_id)

    def close(self) -> None:
        """Nothing is held."""

    @property
    def _log(self) -> SlotLog:
        query_id = json.loads((self._checkpoint / "metadata").read_text())["id"]
        return SlotLog(Folder(self._folder / query_id), query_id)


def test_a_query_of_spark(
    spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    """It ends with a decision that is not carried out; finish does it, and its next run adds
    nothing. Where its decisions are has to be said.
    """
    servers = kafka.bootstrap_servers
    source, target = topic("in", partitions=2), topic("out", partitions=2)
    checkpoint, decisions = tmp_path / "checkpoint", tmp_path / "decisions"
    producer = Producer({"bootstrap.servers": servers})
    for number in range(RECORDS):
        producer.produce(source, str(number).encode(), key=str(number).encode())
    producer.flush(WAIT_MAX_S)

    sink = exactum.KafkaSink(target, bootstrap_servers=servers)

    def run(log: Any) -> str | None:
        rows = exactum.read_kafka(
            spark, source, bootstrap_servers=servers, start="earliest", maxOffsetsPerTrigger=10
        ).selectExpr("key", "value")
        once, writer = exactum.exactly_once(sink, decision_log=log), rows.writeStream
        try:
            query = once.start(writer.trigger(availableNow=True), checkpoint=checkpoint)
            query.awaitTermination(60)
        except Exception as error:
            return text_of(error)
        return None

    error = run(ReplyLost(checkpoint, decisions, 1))
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
    assert run(decisions) is None
    assert listed(checkpoint, *arguments[2:], status=0) == []
    values = [int(r.value or b"") for r in read_all(servers, target)]
    assert sorted(values) == list(range(RECORDS))
