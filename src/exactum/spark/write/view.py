"""Which sink sees which rows of a micro-batch, and how one read of the source serves them all.

Sinks without ``rows=`` see the batch as it is. Those that declare what they see (``Rows``) are
written with them by one job. A function may do anything with the batch, so it has a job of its own,
and where there are several jobs the batch is persisted for the time of the epoch: the source is
read and the state stores are advanced once (docs/adr/0013, 0047).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, functions

from exactum.errors import FrameRefused, SettingRefused
from exactum.protocol.sink import Sink
from exactum.spark.jvm.frames import quoted
from exactum.spark.query import is_connect
from exactum.spark.write.write_task import mask, named

Function = Callable[[Any], Any]


@dataclass(frozen=True)
class Rows:
    """A part of the batch for a sink's ``rows=``: some of its rows, and columns computed of each.
    All sinks that have one, or none, are written by one Spark job.

    Args:
        where: which rows, a condition in SQL: ``"amount > 1000"``; default None: all of them.
        columns: which columns, each a name or an expression in SQL:
            ``["key", "CAST(total AS STRING) AS value"]``; default none are named: all of them.

    Raises:
        SettingRefused: it is something else.
    """

    where: str | None = None
    columns: Sequence[str] = ()

    def __post_init__(self) -> None:
        is_list = isinstance(self.columns, list | tuple)
        texts = [*self.columns, "true" if self.where is None else self.where]
        if not is_list or not all(isinstance(text, str) and text.strip() for text in texts):
            raise SettingRefused(
                "VIEW_ARGUMENT",
                f"{self!r}: where= must be one condition in SQL, and columns= a list of names or "
                'expressions: Rows(where="amount > 10", columns=["key", "upper(v) AS value"]).',
            )
        object.__setattr__(self, "columns", tuple(self.columns))

    def __call__(self, batch: DataFrame) -> DataFrame:
        """What a sink sees of this batch."""
        chosen = batch if self.where is None else batch.where(self.where)
        return chosen.selectExpr(*self.columns) if self.columns else chosen


@dataclass(frozen=True)
class View:
    """What several sinks see of a batch: ``rows`` of it, or all of it where ``rows`` is None.

    ``sinks`` are their places in the query's list of sinks, in order.
    """

    rows: Function | Rows | None
    sinks: tuple[int, ...]

    @property
    def is_declared(self) -> bool:
        """Whether it is more than a function of the user's."""
        return self.rows is None or isinstance(self.rows, Rows)

    def columns(self, frame: DataFrame) -> list[tuple[str, str]]:
        """(name, Spark type) of what they see of such a batch, at a start.

        Raises:
            FrameRefused: as ``of``; or what is declared cannot be had of this one.
        """
        if isinstance(self.rows, Rows):
            _check(self.rows, frame)
        return self.of(frame).dtypes

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


def _check(rows: Rows, frame: DataFrame) -> None:
    """A filter has no window of rows, and Spark leaves one of time among its columns."""
    f = _functions(frame)
    why = "a window of time has a row several times, or not at all."
    try:
        texts = (rows.where or "true", *rows.columns)
        beside = [f.when(f.lit(True), f.expr(text)) for text in texts]
        frame.select("*", *beside).schema  # noqa: B018  (has it analysed)
        rows(frame).schema  # noqa: B018
        if frame.where(f.struct(*beside).isNotNull()).columns == frame.columns:
            return
    except AnalysisException as error:
        why = str(error).splitlines()[0]
    raise FrameRefused(
        "VIEW_EXPRESSION",
        f"{rows!r} does not give one value of each row: {why}\nOf anything else than columns and "
        "rows give rows= a function. Nothing was written.",
    )


def views(sinks: Sequence[Sink]) -> tuple[View, ...]:
    """The distinct views of ``sinks``, the whole batch first where any sink sees it."""
    found: dict[Function | None, list[int]] = {}
    for place, sink in enumerate(sinks):
        found.setdefault(sink.rows, []).append(place)
    ordered = sorted(found.items(), key=lambda item: item[0] is not None)
    return tuple(View(rows, tuple(places)) for rows, places in ordered)


class SideBySide:
    """Several views that are declared, in one frame: the ``columns`` of each, named by
    ``view_columns``. One that leaves rows out has a ``mask`` column, and null in its own columns
    where that is not true.
    """

    def __init__(self, declared: Sequence[View], columns: Sequence[Sequence[str]]) -> None:
        self._rows = [view.rows if isinstance(view.rows, Rows) else Rows() for view in declared]
        self._names = columns
        # Of no frame in particular, so they are made once: each costs some calls into the JVM.
        self._columns: list[Column] = []

    def of(self, frame: DataFrame) -> DataFrame:
        self._columns = self._columns or self._made(_functions(frame))
        return frame.select(*self._columns)

    def _made(self, f: Any) -> list[Column]:
        """The columns under a condition refer to its own column beside them, so it is evaluated
        once. It is not one of the batch's: ``struct(*)`` has none of ours.
        """
        columns: list[Column] = []
        for place, (rows, names) in enumerate(zip(self._rows, self._names, strict=True)):
            each = [f.expr(text) for text in rows.columns]
            each = each or [f.col(quoted(name)) for name in names]
            if rows.where is not None:
                columns.append(f.expr(rows.where).alias(mask(place)))
                each = [f.when(f.col(quoted(mask(place))), column) for column in each]
            columns += [own.alias(to) for own, to in zip(each, named(place, names), strict=True)]
        return columns


def _functions(frame: DataFrame) -> Any:
    """Those of the kind of the frame's session: this process may know both."""
    if not is_connect(frame):
        return functions
    from pyspark.sql.connect import functions as of_connect

    return of_connect


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


def name_of(rows: Function) -> str:
    return getattr(rows, "__qualname__", None) or repr(rows)


@contextmanager
def read_once(frame: DataFrame) -> Iterator[DataFrame]:
    """``frame``, kept in memory and on disk as long as the context lasts. One that the user keeps
    is left to the user, who may use it afterwards.
    """
    if frame.storageLevel != StorageLevel.NONE:
        yield frame
        return
    kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield kept
    finally:
        kept.unpersist()
