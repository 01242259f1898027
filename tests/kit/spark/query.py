"""A query over files of which each is one micro-batch, into a folder, in the session that all share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import DataStreamWriter

import exactum
from exactum.spark.delivery import Delivery
from tests.kit.errors import text_of
from tests.kit.spark import folder_sink
from tests.kit.spark.commit_log import forget_last_batch
from tests.kit.spark.ended import ended
from tests.kit.spark.files import InputFiles, stream_of
from tests.kit.transactions.given import given
from tests.kit.transactions.operator import accept


class Query:
    """A query over JSON files of ``{"k", "v"}``, one file for each batch, into a ``FolderSink``."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.checkpoint = folder / "check point"  # a blank in the name must not matter
        self.out = folder / "out"
        self.events: list[Any] = []
        self.error: BaseException | None = None
        """What the last run ended with."""
        self._files = InputFiles(folder / "input")

    @property
    def sink(self) -> folder_sink.FolderSink:
        return folder_sink.FolderSink(str(self.out))

    def exactly_once(self, *sinks: Any, **settings: Any) -> Any:
        return exactum.exactly_once(
            *(sinks or (self.sink,)), on_event=self.events.append, **settings
        )

    def give(self, *values: int, batches: int = 1) -> None:
        """Files whose rows have ``v`` of ``values`` and ``k`` of their parity, the same in every
        batch.
        """
        for _ in range(batches):
            self._files.give({"k": "eo"[v % 2], "v": v} for v in values)

    def writer(
        self,
        transform: Callable[[DataFrame], DataFrame] = lambda frame: frame,
        mode: str = "append",
        **trigger: Any,
    ) -> DataStreamWriter:
        frame = stream_of(self.spark, self._files.folder, "k string, v long")
        writer = transform(frame).writeStream.outputMode(mode)
        return writer.trigger(**(trigger or {"availableNow": True}))

    def start(
        self,
        batch: Delivery | Callable[[DataFrame, int], None],
        *,
        transform: Callable[[DataFrame], DataFrame] = lambda frame: frame,
        mode: str = "append",
        name: str | None = None,
        **trigger: Any,
    ) -> Any:
        writer = self.writer(transform, mode, **trigger)
        if isinstance(batch, Delivery):
            return batch.start(writer, checkpoint=self.checkpoint, name=name)
        writer = writer.foreachBatch(batch).option("checkpointLocation", str(self.checkpoint))
        return (writer.queryName(name) if name else writer).start()

    def run(self, batch: Delivery | Callable[[DataFrame, int], None], **how: Any) -> str | None:
        """Run until all files are read or the query fails; the text of its error, or None."""
        self.error = ended(lambda: self.start(batch, **how))
        return text_of(self.error)

    def accept(self, batch_id: int) -> str:
        """``exactum accept``; what it prints."""
        return accept(self.checkpoint, batch_id, *given(self.sink))

    def values(self, where: str = "visible") -> list[int]:
        return sorted(row["v"] for row in folder_sink.rows(self.out, where))

    def forget_last_commit(self) -> None:
        """As after a crash between the sink's commit and Spark's commit log."""
        forget_last_batch(self.checkpoint)

    def seen(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def summed(frame: DataFrame) -> DataFrame:
    """A query with state: the sum of v for each k."""
    return frame.groupBy("k").agg(f.sum("v").alias("v"))
