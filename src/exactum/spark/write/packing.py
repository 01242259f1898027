"""Whether an epoch's records may come to its tasks packed, past Spark's rows
(docs/adr/0025-columnar-kafka-source.md).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from exactum.spark.jvm.error import JvmError
from exactum.spark.jvm.execution import Execution
from exactum.spark.jvm.packed_batches import PackedBatches
from exactum.spark.switch import is_on
from exactum.spark.write.packed_records import Layout

logger = logging.getLogger("exactum")

SETTING = "spark.exactum.columnarKafka.packed.enabled"
"""A Spark setting; "false" lets Spark make rows of all records that are read in columns."""
_LARGE = "spark.sql.execution.arrow.useLargeVarTypes"
_ZONE = "spark.sql.session.timeZone"


@dataclass(frozen=True)
class PackedFrame:
    """The rows of a frame, packed: ``records`` is what ``PackedBatches.packed`` gives."""

    session: SparkSession
    records: Any
    layout: Layout


class Packing:
    """Of one run of a query. What cannot be packed once is not asked for again."""

    def __init__(self, session: SparkSession, execution: Execution) -> None:
        self._session = session
        self._batches = PackedBatches(session, execution)
        self._layouts: dict[str, Layout] = {}
        self._suited: bool | None = None

    def of(self, frame: DataFrame) -> PackedFrame | None:
        """The frame with its records packed; None where Spark's rows are the way."""
        why = "they are more than columns of Kafka records that are read in columns"
        try:
            if self._suited is None:
                self._suited = self._may()
            if not self._suited:
                return None
            found = self._batches.packed(frame)
            if found is not None:
                records, layout = found
                return PackedFrame(frame.sparkSession, records, self._layout(layout))
        except JvmError as error:
            why = str(error)
        logger.debug("the query's records reach its tasks as Spark's rows: %s", why)
        self._suited = False
        return None

    def _may(self) -> bool:
        # Large types are the user's wish, for all that comes as Arrow.
        large = str(self._session.conf.get(_LARGE, "false")).lower() == "true"
        return not large and is_on(self._session, SETTING) and self._batches.are_there()

    def _layout(self, text: str) -> Layout:
        if text not in self._layouts:
            logger.debug("the query's records reach its tasks packed")
            self._layouts[text] = Layout.of(text, str(self._session.conf.get(_ZONE)))
        return self._layouts[text]
