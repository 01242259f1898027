"""A query without Spark: a real Coordinator and a real sink; its tasks run here, one after
another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from exactum.protocol.coordinator import Coordinator
from exactum.protocol.model import Completed, PreparedTransaction, SourceOffsets, new_incarnation
from exactum.protocol.sink import (
    Guarantee,
    OpenSink,
    QueryRun,
    Rejection,
    Sink,
    TaskName,
    WriteOrder,
)
from exactum.sql.mysql.sink import MySQLSink
from exactum.testing import FaultPlan, MemoryDecisionLog, MemoryStorage, faulty, interpose

QUERY_ID = "5f1c9a3e-mysql"
Columns = Sequence[tuple[str, str]]
NUMBERS: Columns = (("v", "bigint"),)


def numbers(*values: int | None) -> Any:
    return pa.record_batch([pa.array(values, pa.int64())], ["v"])


@dataclass
class Query:
    """What outlives an incarnation: the decision log and how the sink is made."""

    make_sink: Callable[[], MySQLSink]
    columns: Columns = NUMBERS
    participant: str = "mysql:t"
    query_id: str = QUERY_ID
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    storage: MemoryStorage = field(default_factory=MemoryStorage)

    def started(self, plan: FaultPlan | None = None) -> Incarnation:
        """One more incarnation, with ``plan``'s fault in it."""
        return Incarnation(self, plan)


class Incarnation:
    def __init__(self, query: Query, plan: FaultPlan | None) -> None:
        self.run = QueryRun(query.query_id, new_incarnation(), query.guarantee)
        self.sink = query.make_sink()
        self.opened = opened(self.sink, query.columns, self.run, query.participant)
        self.participant = self.opened.participant
        log = MemoryDecisionLog(query.storage, query.query_id)
        self._plan = plan
        ports = (
            (self.participant, log)
            if plan is None
            else (faulty(self.participant, plan), faulty(log, plan))
        )
        self.coordinator = Coordinator(self.run, [ports[0]], ports[1])
        self.rejections: list[Rejection] = []

    def epoch(self, batch_id: int, *tasks: Any, losers: int = 0) -> Completed:
        """One batch; each task is a record batch or several. The first ``losers`` tasks run twice,
        and their first try stays prepared, as a speculative copy's would."""

        def write(order: WriteOrder) -> Sequence[PreparedTransaction]:
            for number, rows in enumerate(tasks[:losers]):
                self.task(order, number, rows)
            done = [self.task(order, number, rows) for number, rows in enumerate(tasks)]
            return tuple(p for p in done if p is not None)

        call = write if self._plan is None else faulty(write, self._plan)
        return self.coordinator.run(batch_id, SourceOffsets(), call)

    def task(self, order: WriteOrder, number: int, rows: Any) -> PreparedTransaction | None:
        writer = self.opened.writers.open(order, TaskName(number, 0, 0))
        try:
            for batch in rows if isinstance(rows, list) else [rows]:
                rejection = writer.write(batch)
                if rejection is not None:
                    self.rejections.append(rejection)
            return writer.prepare()
        except BaseException:
            writer.abort()
            raise

    def order(self, batch_id: int, attempt: int = 1) -> WriteOrder:
        return WriteOrder(self.run, batch_id, attempt, 1)

    def die(self) -> None:
        """The process is gone: the system closes its connections, and the server rolls back what
        they had begun.
        """
        self.participant.close()


def opened(sink: Sink, columns: Columns, run: QueryRun, participant: str) -> OpenSink:
    return sink.open(run, participant, columns)


def before(port: Any, call: str, action: Callable[[], object]) -> Any:
    """``port`` with ``action`` done before each ``call``."""

    def around(label: str, do: Callable[[], object]) -> object:
        if label == call:
            action()
        return do()

    return interpose(port, around)
