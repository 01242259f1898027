"""What the tests of tables share: epochs of one query without Spark, and a reader that is a process
without exactum.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Schema

from exactum.protocol.model import (
    CommitPermit,
    CommitReport,
    Decision,
    DecisionRecord,
    Epoch,
    PreparedTransaction,
    new_incarnation,
)
from exactum.protocol.sink import Guarantee, QueryRun, Rejection, Sink, TaskName, WriteOrder
from exactum.testing.memory import permit_of

QUERY = "query-of-tables"
READER = """
import os, sys, pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
path, out, wanted = sys.argv[1:]
table = DeltaTable(path)
if wanted:
    (row,) = pa.ipc.open_stream(wanted).read_all().to_pylist()
    found = [table.to_pyarrow_table(filters=[(c, "=", v)]).num_rows for c, v in row.items()]
    rows = pa.table({"found": found})
else:
    rows = pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())
with pa.ipc.new_stream(out, rows.schema) as stream:
    stream.write_table(rows)
assert not any(name.split(".")[0] == "exactum" for name in sys.modules)
os._exit(0)  # at the end of a process delta-rs's threads may fall over Arrow's
"""


def read(table: Path) -> pa.Table:
    """Its rows, as delta-rs reads them in a process of its own."""
    return _answer(table, "")


def found(table: Path, wanted: pa.RecordBatch) -> list[int]:
    """How many rows delta-rs finds for each value of one row, by the statistics of its files."""
    at = table.parent / f"{uuid.uuid4()}.arrow"
    with pa.ipc.new_stream(at, wanted.schema) as stream:
        stream.write_batch(wanted)
    return list(_answer(table, str(at))["found"].to_pylist())


def _answer(table: Path, wanted: str) -> pa.Table:
    out = table.parent / f"{uuid.uuid4()}.arrow"
    command = [sys.executable, "-I", "-c", READER, str(table), str(out), wanted]
    subprocess.run(command, check=True, timeout=120)
    with pa.ipc.open_stream(out) as stream:
        return stream.read_all()


def ids(table: Path) -> list[int]:
    return sorted(read(table)["id"].to_pylist())


def numbers(*values: int, **more: Any) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(values, pa.int64()), **more})


def columns_of(*batches: pa.RecordBatch) -> tuple[tuple[str, str], ...]:
    names = {"int64": "bigint", "string": "string", "bool": "boolean", "date32[day]": "date"}
    return tuple((f.name, names[str(f.type)]) for f in batches[0].schema)


class Query:
    """One run of a query with one sink."""

    def __init__(
        self,
        sink: Sink,
        columns: Sequence[tuple[str, str]] = (),
        guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
    ) -> None:
        self.run = QueryRun(QUERY, new_incarnation(), guarantee)
        sink.check_columns(columns) if columns else None
        self.opened = sink.open(self.run, "lake", columns)
        self.participant: Any = self.opened.participant
        self.rejected: list[Rejection] = []

    def prepare(self, batch_id: int, *batches: pa.RecordBatch) -> list[PreparedTransaction]:
        """One task for each batch."""
        prepared = []
        order = WriteOrder(self.run, batch_id, 0, batch_id + 1)
        for task, batch in enumerate(batches):
            writer = self.opened.writers.open(order, TaskName(task, 0, 0))
            rejection = writer.write(batch)
            self.rejected += [rejection] if rejection else []
            prepared.append(writer.prepare())
        return [p for p in prepared if p is not None]

    def decide(self, batch_id: int, prepared: Sequence[PreparedTransaction]) -> CommitPermit:
        verified = tuple(self.participant.verify(prepared))
        epoch = Epoch(QUERY, batch_id)
        return permit_of(DecisionRecord(epoch, 0, Decision.COMMIT, self.run.incarnation, verified))

    def commit(self, permit: CommitPermit) -> CommitReport:
        report: CommitReport = self.participant.commit(permit, permit.record.prepared)
        return report

    def write(self, batch_id: int, *batches: pa.RecordBatch) -> CommitReport:
        return self.commit(self.decide(batch_id, self.prepare(batch_id, *batches)))


def new_table(path: Path, schema: pa.Schema, **more: Any) -> DeltaTable:
    return DeltaTable.create(str(path), Schema.from_arrow(schema), **more)


def commit_by_hand(table: Path, *actions: dict[str, Any]) -> None:
    """A version of the table that any writer of Delta could have made, as the protocol has it."""
    log = table / "_delta_log"
    version = len(list(log.glob("*.json")))
    lines = "".join(json.dumps(action) + "\n" for action in actions)
    (log / f"{version:020d}.json").write_text(lines)


def with_features(table: Path, *features: str, readers: Sequence[str] = ()) -> None:
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": list(readers),
        "writerFeatures": [*features],
    }
    commit_by_hand(table, {"protocol": protocol})


def with_metadata(table: Path, column: dict[str, Any] | None = None, **settings: str) -> None:
    """The same with settings, and with metadata of its first column."""
    first = json.loads((table / "_delta_log" / f"{0:020d}.json").read_text().splitlines()[-1])
    lines = (table / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
    first = next(json.loads(line) for line in lines if "metaData" in line)
    schema = json.loads(first["metaData"]["schemaString"])
    schema["fields"][0]["metadata"] = column or {}
    first["metaData"]["schemaString"] = json.dumps(schema)
    first["metaData"]["configuration"] = {k.replace("__", "."): v for k, v in settings.items()}
    commit_by_hand(table, first)


def at_once(*commits: Callable[[Any], object], permit: Any) -> None:
    """Each in a thread of its own, to its end."""
    threads = [threading.Thread(target=commit, args=(permit,)) for commit in commits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
