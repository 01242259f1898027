"""The bank's job as an ordinary script, for ``exactum run``: every kind of target in one epoch, and
one planned death.

Its one argument is a JSON object: ``session``, ``spec`` (the fields of ``bank.BankSpec``), ``api``, a
URL, ``folder``, where events and the API's write-ahead log go, and ``death``: None or

    {"at": "prepared", "batch_id": 1}    SIGKILL of the driver when all have prepared and nothing is decided
    {"at": "decided", "batch_id": 1}     right after the decision
"""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import exactum
from exactum.checkpoint.layout import DECISIONS
from exactum.files.slot_log import SlotLog
from exactum.protocol.model import Decision, DecisionRecord
from exactum.storage.folder import Folder
from tests.kit.targets.bank import BankSpec, postings, records
from tests.kit.targets.ledger import TABLE
from tests.kit.waiting import WAIT_MAX_S


class ApiSink(exactum.WriteAheadSink):
    """One POST for each chunk."""

    def __init__(self, url: str) -> None:
        super().__init__(name="api", rows_per_send_max=20, tries_max=3, backoff_ms=50)
        self.url = url

    def send(self, batch: Any, key: str) -> None:
        request = urllib.request.Request(
            self.url, json.dumps(batch.to_pylist()).encode(), {"Idempotency-Key": key}
        )
        with urllib.request.urlopen(request, timeout=WAIT_MAX_S) as reply:
            reply.read()


class MortalLog:
    """The query's own decision log; a driver that would record this batch as decided dies
    before.
    """

    def __init__(self, checkpoint: str, batch_id: int) -> None:
        self._checkpoint = Path(checkpoint)
        self._batch_id = batch_id

    def _log(self) -> SlotLog:
        query_id = json.loads((self._checkpoint / "metadata").read_text())["id"]
        return SlotLog(Folder(self._checkpoint / DECISIONS), query_id)

    def decide(self, record: DecisionRecord) -> DecisionRecord:
        if record.decision is Decision.COMMIT and record.epoch.batch_id == self._batch_id:
            die()
        return self._log().decide(record)

    def read(self, batch_id: int) -> Sequence[DecisionRecord]:
        return self._log().read(batch_id)

    def prune(self, below_batch_id: int) -> None:
        self._log().prune(below_batch_id)

    def close(self) -> None:
        """Nothing is held open."""


def die() -> None:
    """SIGKILL of the driver alone: its JVM and its workers are the supervisor's to find."""
    os.kill(os.getpid(), signal.SIGKILL)


def main(play: dict[str, Any]) -> None:
    spec, folder, death = BankSpec(**play["spec"]), Path(play["folder"]), play["death"] or {}

    def on_event(event: exactum.events.Event) -> None:
        name = type(event).__name__
        with (folder / "events").open("a") as file:
            file.write(
                json.dumps({"pid": os.getpid(), "event": name, "batch_id": event.batch_id}) + "\n"
            )
        if name == "EpochDecided" and (death.get("at"), death.get("batch_id")) == (
            "decided",
            event.batch_id,
        ):
            die()

    spark = exactum.local_session("bank", **play["session"])
    log = MortalLog(spec.checkpoint, death["batch_id"]) if death.get("at") == "prepared" else None
    exact = exactum.exactly_once(*sinks(spec, play["api"]), decision_log=log, on_event=on_event)
    writer = postings(spark, spec).writeStream.trigger(availableNow=True)
    query = exact.start(writer, checkpoint=spec.checkpoint)
    query.awaitTermination()


def sinks(spec: BankSpec, api: str) -> Sequence[Any]:
    return (
        exactum.KafkaSink(spec.topic, bootstrap_servers=spec.bootstrap_servers, rows=records),
        exactum.PostgresSink(spec.postgres, table=TABLE),
        exactum.MySQLSink(spec.mysql, table=TABLE),
        exactum.FileSink(spec.files, partition_by=["account"]),
        ApiSink(api),
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
