"""Small epochs in fewer tasks than Spark plans, collected briefly (docs/adr/0016, 0018).

Each task costs its start, a transaction in every target, and a share of verify and commit, however
few rows it has. At a thousand records a second that is most of what an epoch takes. Tasks that no
slot is free for gain nothing by being many: they wait, and cost as much.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence, Set

from pyspark.sql import DataFrame, SparkSession

from exactum.spark.jvm.frames import (
    BRIEF_TASKS_MAX,
    PYTHON_FUNCTION,
    Tasks,
    classes_in,
    logical_plan,
)
from exactum.spark.query import Batch, Run
from exactum.spark.settings import is_on

logger = logging.getLogger("exactum")

SETTING = "spark.exactum.coalesceSmallEpochs.enabled"
"""A Spark setting; "false" leaves every epoch in the tasks that Spark plans."""
ROWS_MAX = 30_000
"""By the offsets: what transactions and compaction leave out counts as well. A task needs some 60
ms for so many, and four tasks, two at a time, no less (bench/results)."""
MIDDLE_ROWS_MAX = 250_000
"""Up to here an epoch goes into no more tasks than run at once. Two tasks instead of four, two at a
time, write 125,000 rows in 175 instead of 230 ms; a query that falls behind catches up instead of
staying in epochs of many tasks (bench/results). With more rows there is no difference."""
SHARE_MAX = 2.0
"""Times what each partition would have if all had the same. Spark puts neighbours into one task,
however many rows they have: two large ones would be written one after the other. Where one
partition has more than this, tasks that wait for a slot even it out better."""
PARTITIONS_PER_TASK = 4
"""Spark reads one Kafka partition after another in a task, at 2 to 3 ms each where there is
little in them.
"""
MORE_TASKS = ("minPartitions", "maxRecordsPerPartition")
"""Options of Spark's source by which a partition is read by several tasks."""
GATHERED_PER_TASK = 64
"""Our source reads them at the same time (KafkaRanges.java)."""
LARGE_TASKS_PER_SLOT = 4
"""Of larger epochs: each of hundreds of tasks writes to as many partitions, and a query that is
late stays so. Some more than run at once even out, and a task that is repeated is a small part."""

_BATCH = "LogicalRDD"
"""The plan of a micro-batch, as Spark hands it over."""
_OF_VIEW = frozenset(("Project", "Filter", "SubqueryAlias"))
_OF_QUERY = _OF_VIEW | {
    "WriteToMicroBatchDataSourceV1",
    "StreamingDataSourceV2ScanRelation",
    "StreamingDataSourceV2Relation",
    "Union",
}
"""Nodes that keep no state and compute no more than expressions, by their class in Spark's
logical plan.
"""
_SHUFFLING = frozenset(
    ("Aggregate", "Deduplicate", "DeduplicateWithinWatermark", "EventTimeWatermark", "Join")
)
"""Behind which other tasks go on than those that read."""
_MAP, _COUNTED = "MapInArrow", "CollectMetrics"
_DECODE = f"{PYTHON_FUNCTION}(DecodeTask)"
"""What ``decode`` makes of these two: it takes each record by itself."""
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
_FOREIGN = re.compile(
    r"UDF|UserDefined|Python|Invoke|Reflection|Subquery(?!Alias)|Exists|ListQuery|\.objects\."
)
"""Expressions that run code of the user, or a plan, and so may take any time for one row."""


class SmallEpochs:
    """Whether the epochs of one run of a query may be written in a cheaper way, and how."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._suited: bool | None = None
        self._gathered_after: int | None = None

    def tasks(self, frame: DataFrame, batch: Batch) -> Tasks:
        """As many as it is worth for ``frame``, what is written of the batch. For a run's first
        one, which somebody waits for, the plan is looked at only where there are many.
        """
        sizes = batch.sizes
        few = sizes is not None and len(sizes) <= BRIEF_TASKS_MAX * PARTITIONS_PER_TASK
        if not sizes or (batch.first and few):
            return Tasks()
        rows = sum(sizes)
        if not self._may(frame, batch.batch_id) or rows > MIDDLE_ROWS_MAX:
            return Tasks()
        if self._gathered_after is not None and batch.batch_id > self._gathered_after:
            return Tasks(None, rows <= ROWS_MAX)
        if rows > ROWS_MAX:
            if max(sizes) * len(sizes) > SHARE_MAX * rows:
                return Tasks()
            number = slots_of(frame.sparkSession)
        else:
            # Of few the JVM is not asked.
            number = tasks_worth(len(sizes), 0 if few else slots_of(frame.sparkSession))
        return Tasks(number if number < len(sizes) else None, number <= BRIEF_TASKS_MAX)

    def _may(self, frame: DataFrame, batch_id: int) -> bool:
        """Looked at once, for expressions may be many: what is written of one batch is written of
        the others.
        """
        if self._suited is None:
            self._suited = False
            if is_on(frame.sparkSession, SETTING):
                self._look(frame, batch_id)
        return self._suited

    def _look(self, frame: DataFrame, batch_id: int) -> None:
        query = classes_in(self._run.execution.logical_plan())
        view = classes_in(logical_plan(frame))
        heavy = heavy_in(query, _OF_QUERY) or heavy_in(view, {_BATCH, *_OF_VIEW})
        self._suited = not heavy and all(source.is_kafka for source in self._run.sources)
        if heavy:
            logger.debug("%s: its epochs go into the tasks that Spark plans: %s", self._run, heavy)
        limits = None
        if self._suited or (shuffles(query) and not heavy_in(query, _OF_QUERY | _SHUFFLING)):
            limits = ROWS_MAX, GATHERED_PER_TASK, MIDDLE_ROWS_MAX, LARGE_TASKS_PER_SLOT, SHARE_MAX
        elif is_row_by_row(query, view) and not _may_grow(frame.sparkSession):
            limits = 0, 1, ROWS_MAX, 0, SHARE_MAX  # no more tasks than run at once
        asks_for_more = any(s.option(name) for s in self._run.sources for name in MORE_TASKS)
        if limits is not None and not asks_for_more and self._run.execution.gather(*limits):
            self._gathered_after = batch_id


def shuffles(query: Sequence[str]) -> bool:
    return any(_simple(name) in _SHUFFLING for name in query)


def is_row_by_row(query: Sequence[str], view: Sequence[str]) -> bool:
    """True where the tasks that read compute each row from one record, by whatever expressions."""
    nodes = _OF_QUERY | _SHUFFLING | {_MAP, _COUNTED}
    maps = sum(_simple(name) == _MAP for name in query)
    if other_nodes(query, nodes) or maps != query.count(_DECODE):
        return False
    return shuffles(query) or not other_nodes(view, {_BATCH, *_OF_VIEW})


def _may_grow(session: SparkSession) -> bool:
    """Whether Spark asks for more executors where tasks wait."""
    return str(session.conf.get("spark.dynamicAllocation.enabled", "false")).lower() == "true"


def tasks_worth(partitions: int, slots: int) -> int:
    """In how many tasks so many partitions with few rows each are read soonest, where ``slots``
    tasks run at once, 0: not known. One for ``PARTITIONS_PER_TASK``, but no more than run at once:
    each of many writes to as many partitions, which costs more than to read them.
    """
    return min(-(-partitions // PARTITIONS_PER_TASK), slots or BRIEF_TASKS_MAX)


def slots_of(session: SparkSession) -> int:
    """How many tasks run at once: the cores of the executors that are there now, unless the user
    has set ``spark.default.parallelism``.
    """
    return int(session.sparkContext.defaultParallelism)


def other_nodes(plan: Sequence[str], nodes: Set[str]) -> list[str]:
    """The classes in a logical plan that are neither ``nodes`` nor expressions of Spark's own."""
    return [n for n in plan if not n.startswith(_EXPRESSIONS) and _simple(n) not in nodes]


def heavy_in(plan: Sequence[str], nodes: Set[str]) -> str:
    """The first class in a logical plan that is none of these, or runs foreign code; or ""."""
    others = other_nodes(plan, nodes)
    return next((name for name in plan if name in others or _FOREIGN.search(name)), "")


def _simple(name: str) -> str:
    return name.rpartition(".")[2]
