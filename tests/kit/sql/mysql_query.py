"""A query whose tasks' rows are given with each epoch; see ``sql_epochs``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from exactum.protocol.model import Completed, PreparedTransaction
from exactum.protocol.sink import Guarantee, Rejection, Sink, TaskName, WriteOrder
from tests.kit.sql import sql_epochs
from tests.kit.sql.sql_epochs import Columns

NUMBERS: Columns = (("v", "bigint"),)


def numbers(*values: int | None) -> Any:
    return pa.record_batch([pa.array(values, pa.int64())], ["v"])


class Query(sql_epochs.Query):
    def __init__(
        self,
        sink: Callable[[], Sink],
        columns: Columns = NUMBERS,
        query_id: str = "5f1c9a3e-mysql",
        guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
    ) -> None:
        super().__init__(sink, query_id, columns, guarantee=guarantee)

    def start(self, plan: sql_epochs.FaultPlan | None = None) -> Incarnation:
        return Incarnation(self, plan)


class Incarnation(sql_epochs.Incarnation):
    @property
    def rejections(self) -> list[Rejection]:
        return self.write.rejections

    def epoch(self, batch_id: int, *tasks: Any, losers: int = 0) -> Completed:
        """One batch; each task is a record batch or several. The first ``losers`` tasks run twice,
        and their first try stays prepared, as a speculative copy's would."""
        self.query.tasks = lambda _: [rows if isinstance(rows, list) else [rows] for rows in tasks]
        self.write.duplicates = losers
        return self.run(batch_id)

    def task(self, order: WriteOrder, number: int, rows: Any) -> PreparedTransaction | None:
        batches = rows if isinstance(rows, list) else [rows]
        return self.write.task(order, TaskName(number, 0, 0), batches)
