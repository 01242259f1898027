"""Dead letters of ``decode`` over Spark Connect, where no metric is seen before a batch is over:
each epoch's records are read once more, by a plain read of their offsets, and decoded once more.

    client    the plan of each decoding, which stands on a source itself  --with the function-->
    worker    the same plan, its source read from the epoch's first offsets to its last

Exact for formats that depend on a record's bytes alone: ``decode`` refuses the others there.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from exactum.checkpoint.partition_offsets import Offsets, from_json, to_json
from exactum.errors import SettingRefused
from exactum.protocol.model import PreparedTransaction, SourceOffsets
from exactum.protocol.sink import WriteOrder
from exactum.spark.connect.sources import messages, streaming_reads
from exactum.spark.decoding.bad_records import BadRecords, DeadLetterWriters
from exactum.spark.decoding.decode import METRIC_PREFIX, Policy
from exactum.spark.decoding.decode_task import BAD
from exactum.spark.epoch_listener import Batch
from exactum.spark.query import Run
from exactum.spark.source.bounds import all_initial_offsets
from exactum.spark.source.positions import EARLIEST_SENTINEL
from exactum.spark.write.write_task import DeadLetterPlan, WriteTask
from exactum.spark.write.writing import Writing

_LETTERS = f"{METRIC_PREFIX}{Policy.DEAD_LETTER.value}."
_PLACED = ("subscribe", "subscribepattern", "startingoffsets")
"""Options of a source that streams, in lower case, which a plain read has others for."""


@dataclass(frozen=True)
class DecodingPlan:
    """The plan of a decoding, serialized, with the place of its source in the offset log."""

    source: int
    relation: bytes


def decodings_of(writer: Any) -> tuple[DecodingPlan, ...]:
    """Those of the writer's frame that want dead letters.

    Raises:
        SettingRefused: a frame is used twice, so that two streams decode its records.
    """
    command = writer._write_stream.command(writer._session.client)
    plan = command.write_stream_operation_start.input
    reads, found = list(streaming_reads(plan)), []
    for metrics in messages(plan, "spark.connect.CollectMetrics"):
        if metrics.name.startswith(_LETTERS):
            (read,) = streaming_reads(metrics.input)
            if reads.count(read) > 1:
                raise SettingRefused(
                    "SPARK_CONNECT",
                    "A frame of decode(on_error='dead_letter') is used twice, and over Spark "
                    "Connect each of its streams would write its dead letters. Read the topic "
                    "twice, or use a classic session. Nothing was started.",
                )
            found.append(DecodingPlan(reads.index(read), metrics.input.SerializeToString()))
    return tuple(found)


class PlainReads(BadRecords):
    """Those of one run of one query."""

    def __init__(self, run: Run, decodings: tuple[DecodingPlan, ...], writing: Writing) -> None:
        self._run = run
        self._decodings = decodings
        self._writing = writing
        self._batch: Batch | None = None

    @property
    def wants_dead_letters(self) -> bool:
        return bool(self._decodings)

    def begin(self, batch: Batch) -> None:
        self._batch = batch

    def write(
        self, frame: DataFrame, order: WriteOrder, name: str, plan: DeadLetterPlan
    ) -> list[PreparedTransaction]:
        """See the base class."""
        prepared: list[PreparedTransaction] = []
        task = WriteTask(((name, DeadLetterWriters(plan)),), order.run)
        for decoding in self._decodings:
            begins, ends = self._range(decoding.source)
            if ends:
                relation = _bounded(decoding.relation, begins, ends)
                bad = _frame(frame.sparkSession, relation).where(f"{BAD} IS NOT NULL")
                letters = bad.selectExpr("topic", "partition", "offset", "timestamp", f"{BAD}.*")
                prepared.extend(self._writing.job(task).run(letters, order).prepared)
        return prepared

    def _range(self, source: int) -> tuple[Offsets, Offsets]:
        """Where each partition that the batch at hand advances begins in it, and ends."""
        offsets = SourceOffsets() if self._batch is None else self._batch.offsets
        ends = from_json(offsets.end[source])
        before = (
            from_json(offsets.start[source])
            if source < len(offsets.start)
            else all_initial_offsets(self._run.read, source + 1)[source]
        )
        # A partition that came meanwhile is read from its first record.
        begins = {partition: before.get(partition, EARLIEST_SENTINEL) for partition in ends}
        advance = [partition for partition in ends if begins[partition] != ends[partition]]
        return {p: begins[p] for p in advance}, {p: ends[p] for p in advance}


def _bounded(relation: bytes, begins: Offsets, ends: Offsets) -> Any:
    """The plan with a plain read of these offsets in the place of its source."""
    from pyspark.sql.connect.proto import Relation

    plan = Relation.FromString(relation)
    (read,) = streaming_reads(plan)
    read.is_streaming = False
    options = read.data_source.options
    for name in [name for name in options if name.lower() in _PLACED]:
        del options[name]
    assigned: dict[str, list[int]] = defaultdict(list)
    for topic, partition in ends:
        assigned[topic].append(partition)
    options["assign"] = json.dumps(assigned)
    options["startingOffsets"] = to_json(begins)
    options["endingOffsets"] = to_json(ends)
    return plan


def _frame(session: SparkSession, relation: Any) -> DataFrame:
    """The frame of a plan as it goes over the wire."""
    from pyspark.sql.connect.dataframe import DataFrame as ConnectFrame
    from pyspark.sql.connect.plan import LogicalPlan

    class Given(LogicalPlan):
        def plan(self, session: Any) -> Any:
            return relation

    made: Any = ConnectFrame(Given(None), session)  # type: ignore[arg-type]
    frame: DataFrame = made
    return frame
