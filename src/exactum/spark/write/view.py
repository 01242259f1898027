"""Which sink sees which rows of a micro-batch, and how one read of the source serves them all.

Sinks without ``rows=`` see the batch as it is; each distinct ``rows`` function gives a view. Views
that only choose and compute rows and columns are written by one job (``view_plan``). Otherwise each
has a job of its own, and the batch is persisted for the time of the epoch, so the source is read
and the state stores are advanced once (docs/adr/0013, 0019).
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
                "VIEW_RESULT",
                f"rows={name_of(self.rows)} returned {type(result).__name__}, and must return the "
                "DataFrame that this sink shall write, made from the one that it is given. "
                "Nothing was written.",
            )
        if result.isStreaming:
            raise FrameRefused(
                "VIEW_RESULT",
                f"rows={name_of(self.rows)} returned a streaming DataFrame, not a view of the "
                "batch it was given. Nothing was written.",
            )
        return result


def views(sinks: Sequence[Sink]) -> tuple[View, ...]:
    """The distinct views of ``sinks``, the whole batch first where any sink sees it."""
    found: dict[Rows | None, list[int]] = {}
    for place, sink in enumerate(sinks):
        found.setdefault(sink.rows, []).append(place)
    ordered = sorted(found.items(), key=lambda item: item[0] is not None)
    return tuple(View(rows, tuple(places)) for rows, places in ordered)


def refuse_other_columns(
    frame: DataFrame, first: Sequence[tuple[str, str]], sinks: Sequence[str], batch_id: int
) -> None:
    """``first``: the columns, as (name, Spark type), for which the sinks were opened.

    Raises:
        FrameRefused: the frame has others, or has them in another order. What the sinks were asked
            whether they can write is not what they would be given.
    """
    columns = frame.dtypes
    if columns == list(first):
        return
    raise FrameRefused(
        "VIEW_CHANGED",
        f"Batch {batch_id} has the columns {_listed(columns)} for {', '.join(sinks)}, and the "
        f"first batch of this run had {_listed(first)}. Give each batch the same columns, in one "
        "order, with select() and cast(): pivot() takes the values that become columns, and "
        "spark.read.json() a schema. Nothing of the epoch is visible.",
    )


def _listed(columns: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)


def name_of(rows: Rows) -> str:
    return getattr(rows, "__qualname__", None) or repr(rows)


@contextmanager
def read_once(frame: DataFrame, times: int) -> Iterator[DataFrame]:
    """``frame``, kept in memory and on disk as long as the context lasts if it is used more than
    once. One that the user keeps is left to the user, who may use it afterwards.
    """
    if times <= 1 or frame.storageLevel != StorageLevel.NONE:
        yield frame
        return
    kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield kept
    finally:
        kept.unpersist()
