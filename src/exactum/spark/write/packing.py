"""Write jobs whose records come packed, past Spark's rows
(docs/adr/0025-columnar-kafka-source.md).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

from exactum.protocol.sink import WriteOrder
from exactum.spark.jvm.collecting import Tasks
from exactum.spark.jvm.error import JvmError
from exactum.spark.jvm.execution import Execution
from exactum.spark.jvm.packed_batches import PackedBatches
from exactum.spark.jvm.packed_job import PackedJob
from exactum.spark.switch import is_on
from exactum.spark.write.packed_records import Layout, UnpackedTask
from exactum.spark.write.write_job import AS_PLANNED, Fresh, WriteJob
from exactum.spark.write.write_task import ORDER_PROPERTY, WriteTask, order_text

logger = logging.getLogger("exactum")

SETTING = "spark.exactum.columnarKafka.packed.enabled"
"""A Spark setting; "false" lets Spark make rows of all records that are read in columns."""
_LARGE = "spark.sql.execution.arrow.useLargeVarTypes"
_ZONE = "spark.sql.session.timeZone"


TasksOf = Callable[[DataFrame, Fresh], Tasks]
"""In which tasks a batch is written: see ``SmallEpochs.tasks``."""


class PackedWriteJob(WriteJob):
    """Of a run, whose records are packed where they can be. What was not once is not asked for
    again.
    """

    def __init__(
        self, task: WriteTask, session: SparkSession, execution: Execution, tasks_of: TasksOf
    ) -> None:
        super().__init__(task)
        self._session = session
        self._tasks_of = tasks_of
        self._batches = PackedBatches(session, execution)
        self._job: tuple[str, PackedJob] | None = None  # with the layout that it is made for
        self._is_known = False

    def _texts(self, frame: DataFrame, order: WriteOrder, fresh: Fresh | None) -> list[str]:
        if fresh is None:
            return self._by_rows(frame, order, AS_PLANNED)
        tasks = self._tasks_of(frame, fresh)
        if not self._is_known:
            self._job, self._is_known = self._made(frame), True
        if self._job is not None:
            layout, job = self._job
            named = ORDER_PROPERTY, order_text(order)
            texts = self._batches.texts(frame, layout, job, tasks, named)
            if texts is not None:
                return texts
            self._job = None
        return self._by_rows(frame, order, tasks)

    def _made(self, frame: DataFrame) -> tuple[str, PackedJob] | None:
        why = "they are more than columns of Kafka records that are read in columns"
        try:
            layout = self._batches.layout(frame) if self._may() else None
            if layout is not None:
                zone = str(self._session.conf.get(_ZONE))
                task = UnpackedTask(self.task, Layout.of(layout, zone))
                logger.debug("the query's records reach its tasks packed")
                return layout, PackedJob(frame.sparkSession, task)
        except JvmError as error:
            why = str(error)
        logger.debug("the query's records reach its tasks as Spark's rows: %s", why)
        return None

    def _may(self) -> bool:
        # Large types are the user's wish, for all that comes as Arrow.
        large = str(self._session.conf.get(_LARGE, "false")).lower() == "true"
        return not large and is_on(self._session, SETTING) and self._batches.are_there()
