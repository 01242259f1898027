"""What the plan that a client of Spark Connect sends says of a query
(spark/connect/relations.proto): its sources, and the decodings that want dead letters.

No metric is seen there before a batch is over. So each epoch's records are read once more, by a
plain read of their offsets, and decoded once more.

    client    the plan of each decoding, which stands on a source itself  --with the function-->
    worker    the same plan, its source read from the epoch's first offsets to its last

Exact for formats that depend on a record's bytes alone: ``decode`` refuses the others there.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from exactum.checkpoint.offset_log import SOURCES, Offsets, to_json
from exactum.errors import SettingRefused
from exactum.protocol.model import PreparedTransaction
from exactum.protocol.sink import WriteOrder
from exactum.spark.decoding.bad_records import BadRecords, task_of
from exactum.spark.decoding.decode import METRIC_PREFIX, Policy
from exactum.spark.decoding.decode_task import BAD
from exactum.spark.live import RunningSource, SourceRange
from exactum.spark.query import Batch, Run
from exactum.spark.source.positions import EARLIEST_SENTINEL
from exactum.spark.write.dead_letter import DeadLetterPlan
from exactum.spark.write.write_job import Jobs

_TABLES = {"kafka": "kafkatable"}
"""By format what Spark calls the table behind it; the others are known by no name."""


def sources_in(plan: Any) -> tuple[RunningSource, ...]:
    """What a frame's plan streams, in the order in which Spark numbers sources: as they stand
    there, from the left. A view's are not in the plan.
    """
    reads = list(streaming_reads(plan))
    found = []
    for index, read in enumerate(reads):
        source = read.data_source  # empty for a table
        table = _TABLES.get(source.format.lower(), "")
        options, metadata = dict(source.options), f"{SOURCES}/{index}"
        found.append(RunningSource(index, reads.index(read), table, options, metadata))
    return tuple(found)


def streaming_reads(message: Any) -> Iterator[Any]:
    """What a part of a plan reads as a stream, from the left."""
    return (read for read in messages(message, "spark.connect.Read") if read.is_streaming)


def messages(message: Any, kind: str) -> Iterator[Any]:
    """The parts of this kind, from the left; those within another one of it as well."""
    if message.DESCRIPTOR.full_name == kind:
        yield message
    for field, value in message.ListFields():  # by their numbers: left stands before right
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for inner in [value] if hasattr(value, "DESCRIPTOR") else value:
            yield from messages(inner, kind)


_LETTERS = f"{METRIC_PREFIX}{Policy.DEAD_LETTER.value}."
_PLACED = ("subscribe", "assign", "starting")
"""How options of a source that streams begin, in lower case, which a plain read has others for."""


@dataclass(frozen=True)
class DecodingPlan:
    """The plan of a decoding, serialized, with the place of its source in the offset log."""

    source: int
    relation: bytes


def decodings_in(plan: Any) -> tuple[DecodingPlan, ...]:
    """Those in a frame's plan that want dead letters.

    Raises:
        SettingRefused: a frame is used twice, so that two streams decode its records.
    """
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

    count_once = True
    """Nobody sees here whether a function reads a batch twice."""

    def __init__(self, run: Run, decodings: tuple[DecodingPlan, ...], jobs: Jobs) -> None:
        """
        Raises:
            SettingRefused: a decoding wants dead letters, and nobody knows which offsets are its.
        """
        if decodings and not run.sources:
            raise SettingRefused(
                "SPARK_CONNECT",
                f"{run} has a source in a view beside decode(on_error='dead_letter'): over Spark "
                "Connect nobody can tell then which offsets are whose. Read it in the query "
                "itself, or use a classic session. Nothing was written.",
            )
        self._run = run
        self._decodings = decodings
        self._jobs = jobs
        self._ranges: Sequence[SourceRange] = ()  # of the batch at hand
        self.has_any = self.wants_dead_letters = bool(decodings)

    def begin(self, batch: Batch) -> None:
        self._ranges = batch.ranges

    def write(
        self, frame: DataFrame, order: WriteOrder, plan: DeadLetterPlan, *, miscounted: bool
    ) -> list[PreparedTransaction]:
        """See the base class."""
        prepared: list[PreparedTransaction] = []
        job = self._jobs(task_of(plan, order))
        for decoding in self._decodings:
            begins, ends = self._range(decoding.source)
            if ends:
                relation = _bounded(decoding.relation, begins, ends)
                bad = _frame(frame.sparkSession, relation).where(f"{BAD} IS NOT NULL")
                letters = bad.selectExpr("topic", "partition", "offset", "timestamp", f"{BAD}.*")
                prepared.extend(job.run(letters, order).prepared)
        return prepared

    def _range(self, source: int) -> tuple[Offsets, Offsets]:
        """Where each partition that the batch at hand advances begins in it, and ends."""
        begins, ends = self._ranges[source].begins, self._ranges[source].ends
        advance = {p: end for p, end in ends.items() if begins.get(p) != end}
        # A partition that came meanwhile is read from its first record.
        return {p: begins.get(p, EARLIEST_SENTINEL) for p in advance}, advance


def _bounded(relation: bytes, begins: Offsets, ends: Offsets) -> Any:
    """The plan with a plain read of these offsets in the place of its source."""
    from pyspark.sql.connect.proto import Relation

    plan = Relation.FromString(relation)
    (read,) = streaming_reads(plan)
    read.is_streaming = False
    options = read.data_source.options
    for name in [name for name in options if name.lower().startswith(_PLACED)]:
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
