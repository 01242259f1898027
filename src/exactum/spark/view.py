"""Which sink sees which rows of a micro-batch, and how one read of the source serves them all.

Sinks without ``rows=`` see the batch as it is; each distinct ``rows`` function gives a view. Views that only choose and
compute columns are written by one job (``side_by_side``). Otherwise each has a job of its own, and the batch is
persisted for the time of the epoch, so the source is read and the state stores are advanced once (docs/adr/0013, 0019).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame

from exactum.errors import FrameRefused
from exactum.protocol.sink import Sink
from exactum.spark.view_columns import named

Rows = Callable[[Any], Any]


@dataclass(frozen=True)
class View:
    """What several sinks see of a batch: ``rows`` of it, or all of it where ``rows`` is None.

    ``sinks`` are their places in the query's list of sinks, in order.
    """

    rows: Rows | None
    sinks: tuple[int, ...]

    def of(self, frame: DataFrame) -> DataFrame:
        """
        Raises:
            FrameRefused: the user's function returned something else than a DataFrame.
        """
        if self.rows is None:
            return frame
        result = self.rows(frame)
        if not isinstance(result, DataFrame):
            raise FrameRefused(
                f"rows={name_of(self.rows)} returned {type(result).__name__}, and must return the DataFrame that "
                "this sink shall write, made from the one that it is given. Nothing was written."
            )
        if result.isStreaming:
            raise FrameRefused(
                f"rows={name_of(self.rows)} returned a streaming DataFrame, not a view of the batch it was given. "
                "Nothing was written."
            )
        return result


def views(sinks: Sequence[Sink]) -> tuple[View, ...]:
    """The distinct views of ``sinks``, the whole batch first where any sink sees it."""
    found: dict[Rows | None, list[int]] = {}
    for place, sink in enumerate(sinks):
        found.setdefault(sink.rows, []).append(place)
    ordered = sorted(found.items(), key=lambda item: item[0] is not None)
    return tuple(View(rows, tuple(places)) for rows, places in ordered)


def name_of(rows: Rows) -> str:
    return getattr(rows, "__qualname__", None) or repr(rows)


@contextmanager
def read_once(frame: DataFrame, times: int) -> Iterator[DataFrame]:
    """``frame``, kept in memory and on disk as long as the context lasts if it is used more than once."""
    if times <= 1:
        yield frame
        return
    kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield kept
    finally:
        kept.unpersist()


def side_by_side(frames: Sequence[DataFrame]) -> DataFrame | None:
    """One frame with the columns of all ``frames``, named by ``view_columns.named``, or None.

    That is where all of them compute their columns row by row from the rows of one and the same plan: then each row
    of the result holds one row of each. A view that filters, explodes, joins or aggregates has a plan of its own below
    its columns.
    """
    session: Any = frames[0].sparkSession
    jvm = session.sparkContext._jvm
    layers = [_layers(jvm, frame.toDF(*named(place, frame.columns))) for place, frame in enumerate(frames)]
    whole = layers[0][0].child() if layers[0] else None
    if not all(own and own[0].child().equals(whole) for own in layers):
        return None
    top = max(map(len, layers)) - 1
    for level in range(top + 1):
        columns = [own[level].projectList() if level < len(own) else own[-1].output() for own in layers]
        whole = jvm.org.apache.spark.sql.catalyst.plans.logical.Project(_together(jvm, columns, level == top), whole)
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, whole), session)


def _layers(jvm: Any, frame: DataFrame) -> list[Any]:
    """The ``Project`` nodes on top of the frame's plan, the lowest first.

    Most often that is one: CollapseProject writes columns that are computed of computed columns as one ``Project``,
    where nothing costly or random would be evaluated twice by it.
    """
    plain: Any = frame
    plan = jvm.org.apache.spark.sql.catalyst.optimizer.CollapseProject.apply(plain._jdf.queryExecution().analyzed())
    layers: list[Any] = []
    while str(plan.getClass().getSimpleName()) == "Project":
        layers.insert(0, plan)
        plan = plan.child()
    return layers


def _together(jvm: Any, columns: Sequence[Any], last: bool) -> Any:
    """The columns (Scala's Seq of NamedExpression) of one layer of all views; what several pass on is there once."""
    if last:  # each has a name of its own
        whole = columns[0]
        for more in columns[1:]:
            whole = whole.concat(more)
        return whole
    together: dict[int, Any] = {}
    for some in columns:
        for place in range(some.size()):
            column = some.apply(place)
            together.setdefault(column.exprId().id(), column)
    distinct = jvm.java.util.ArrayList()
    for column in together.values():
        distinct.add(column)
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(distinct).toSeq()
