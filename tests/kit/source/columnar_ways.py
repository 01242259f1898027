"""The ways in which records of Kafka reach a query's sinks, and a query over one of them: into
Parquet, with what its writers note beside it.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import exactum
from exactum.spark.source import columnar
from exactum.spark.write import write_job
from tests.kit.kafka.broker import Broker, producer_to
from tests.kit.spark.torn_stream import configured
from tests.kit.waiting import WAIT_MAX_S

ROWS, LAZY, PACKED = "Spark's rows", "columns below Spark's expressions", "packed"
MOVING = "packed, by consumers that move"
"""As of a micro-batch of more partitions than Spark keeps consumers for."""
WAYS: dict[str, dict[str, str]] = {
    ROWS: {columnar.SETTING: "false"},
    LAZY: {write_job.PACKED_SETTING: "false"},
    PACKED: {},
}
BEGAN_MS = int(time.time()) * 1000 - 3_600_000
Headers = Sequence[tuple[str, bytes | None]]
KEPT = "spark.kafka.consumer.cache.capacity"


@contextmanager
def way_of(spark: Any, way: str) -> Iterator[None]:
    """Queries that start meanwhile read in this way."""
    conf = spark.sparkContext._jsc.sc().conf()
    with configured(spark, WAYS.get(way, {})):
        if way == MOVING:
            conf.set(KEPT, "0")
        try:
            yield
        finally:
            conf.remove(KEPT)


@dataclasses.dataclass(frozen=True)
class MadeWriters:
    """Those of ``WriterSink``, in the tasks."""

    writers: Any
    made: Callable[[Callable[[], Any], Any, Any, Path], Any]
    folder: Path

    def open(self, order: Any, task: Any) -> Any:
        return self.made(lambda: self.writers.open(order, task), order, task, self.folder)


class WriterSink(exactum.FileSink):
    """Parquet, by the writers that a function of a module makes: of what opens the sink's own, the
    order, the task, and a folder for notes.
    """

    def __init__(self, out: str | Path, made: Any, **settings: Any) -> None:
        super().__init__(str(out), **{"format": "parquet", **settings})
        self._made = made

    def open(self, run: Any, participant: str, columns: Any = ()) -> Any:
        opened = super().open(run, participant, columns)
        made = MadeWriters(opened.writers, self._made, notes_of(self._path))
        return dataclasses.replace(opened, writers=made)


class NotingWriter:
    """Notes the Arrow schema and the size of each batch."""

    def __init__(self, opened: Callable[[], Any], order: Any, task: Any, folder: Path) -> None:
        self._writer = opened()
        self._folder = folder
        self.prepare, self.abort = self._writer.prepare, self._writer.abort

    def write(self, batch: Any) -> Any:
        (self._folder / f"{os.getpid()}-{time.monotonic_ns()}").write_text(
            f"{batch.nbytes}\n{batch.schema.to_string()}"
        )
        return self._writer.write(batch)


def notes_of(out: Any) -> Path:
    return Path(f"{str(out).removeprefix('file://')}-notes")


def schemas(stream: Any) -> set[str]:
    """Of the batches that were written."""
    return {note.read_text().partition("\n")[2] for note in notes_of(stream.out).iterdir()}


def give(
    broker: Broker,
    topic: str,
    count: int,
    partitions: int,
    first: int = 0,
    headers: Sequence[Headers] = ((),),
) -> list[dict[str, Any]]:
    """Records with and without keys and values, empty ones, and bytes that are no text; as the
    source shows them.
    """
    producer = producer_to(broker.servers)
    given = []
    for number in range(first, first + count):
        for partition in range(partitions):
            record = {
                "key": (None, b"", b"k%d" % number, b"\xff\xfe")[number % 4],
                "value": (b"v%d" % number, None, b"", "ü€".encode(), b"\x00" * 70)[number % 5],
                "partition": partition,
                "timestamp": BEGAN_MS + 1234 * number + partition,
            }
            own = list(headers[(number + partition) % len(headers)])
            producer.produce(topic, **record, headers=own or None)
            given.append({**record, "topic": topic, "offset": number, "timestampType": 0})
    assert producer.flush(WAIT_MAX_S) == 0
    for row in given:
        row["timestamp"] = datetime.fromtimestamp(row["timestamp"] / 1000, timezone.utc)
    return sorted(given, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def run(stream: Any, frame: Any, **sink: Any) -> str | None:
    """The query to its end, into Parquet; the text of its error, or None."""
    notes_of(stream.out).mkdir(exist_ok=True)
    once = exactum.exactly_once(
        WriterSink(stream.out, NotingWriter, **sink), on_event=stream.events.append
    )
    writer = frame.writeStream.trigger(availableNow=True)
    return stream.end(lambda: once.start(writer, checkpoint=stream.checkpoint))  # type: ignore[no-any-return]


def written(out: Path) -> list[dict[str, Any]]:
    files = sorted(out.glob("part-*"))
    rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    return sorted(rows, key=lambda row: (row.get("topic", ""), row["partition"], row["offset"]))


def raw_rows(out: Path) -> list[tuple[Any, ...]]:
    """The rows of the files, in an order of their own: text as bytes, instants in microseconds."""
    rows = []
    for file in sorted(out.glob("part-*")):
        table = pq.ParquetFile(file).read()
        for place, field in enumerate(table.schema):
            if pa.types.is_timestamp(field.type) or pa.types.is_string(field.type):
                plain = pa.int64() if pa.types.is_timestamp(field.type) else pa.binary()
                table = table.set_column(place, field.name, table.column(place).cast(plain))
        rows += list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return sorted(rows, key=repr)
