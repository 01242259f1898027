"""A query for each operator of Spark that keeps state, over rows (key, number, at)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.state import GroupStateTimeout

Make = Callable[[DataFrame], DataFrame]
NEAR = (
    "one.key = two.key AND one.at BETWEEN two.at - INTERVAL 2 SECONDS AND two.at + INTERVAL 2 "
    "SECONDS"
)


def update(rows: DataFrame) -> DataFrame:
    return rows.groupBy("key").agg(f.sum("number").alias("total"))


def heavy(rows: DataFrame) -> DataFrame:
    """The weights of each key's rows, by a table that the stream is joined with: see ``weights``."""
    weighed = rows.join(rows.sparkSession.table("weights"), "key")
    return weighed.groupBy("key").agg(f.sum("weight").alias("total"))


def weights(spark: SparkSession, *of_keys: int) -> Callable[[], None]:
    """What makes them these from there on."""
    rows = [(f"k{key}", weight) for key, weight in enumerate(of_keys)]
    frame = spark.createDataFrame(rows, "key string, weight long")
    return lambda: frame.createOrReplaceTempView("weights")


def windows(rows: DataFrame) -> DataFrame:
    return (
        rows.withWatermark("at", "5 seconds").groupBy(f.window("at", "10 seconds"), "key").count()
    )


def sessions(rows: DataFrame) -> DataFrame:
    return (
        rows.withWatermark("at", "2 seconds")
        .groupBy(f.session_window("at", "2 seconds"), "key")
        .count()
    )


def duplicates(rows: DataFrame) -> DataFrame:
    return rows.withWatermark("at", "30 seconds").dropDuplicatesWithinWatermark(["key"])


def seen_before(rows: DataFrame) -> DataFrame:
    return rows.dropDuplicates(["key", "number"])


def first_ones(rows: DataFrame) -> DataFrame:
    return rows.select("key", "number").limit(15)


# ---- joins of two streams ------------------------------------------------------------------------


def joined(rows: DataFrame, how: str) -> DataFrame:
    """Some rows of either side have nobody on the other."""
    one = rows.withWatermark("at", "5 seconds").where("number % 4 != 1").alias("one")
    two = rows.withWatermark("at", "7 seconds").where("number % 5 != 2").alias("two")
    return one.join(two, f.expr(NEAR), how)


def join(rows: DataFrame) -> DataFrame:
    return joined(rows, "inner").selectExpr("one.key", "one.number", "two.number AS other")


def _outer(how: str, name: str) -> Make:
    def outer(rows: DataFrame) -> DataFrame:
        return joined(rows, how).selectExpr(
            "one.key", "one.number", "two.key AS other_key", "two.number AS other"
        )

    outer.__name__ = name
    return outer


left_outer = _outer("left_outer", "left_outer")
right_outer = _outer("right_outer", "right_outer")
full_outer = _outer("full_outer", "full_outer")


def left_semi(rows: DataFrame) -> DataFrame:
    return joined(rows, "left_semi").selectExpr("key", "number")


# ---- code of the user ----------------------------------------------------------------------------


def _groups(rows: DataFrame, timeout: str, quiet: Callable[[Any], None]) -> DataFrame:
    """A sum for each key, and a last word of each that timed out."""

    def fold(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        before = state.get[0] if state.exists else 0
        if state.hasTimedOut:
            state.remove()
            yield pd.DataFrame({"key": [f"{key[0]} is quiet"], "total": [before]})
            return
        total = before + sum(int(frame["number"].sum()) for frame in frames)
        state.update((total,))
        quiet(state)
        yield pd.DataFrame({"key": [key[0]], "total": [total]})

    kept = "key string, total long", "total long", "append", timeout
    return rows.groupBy("key").applyInPandasWithState(fold, *kept)


def groups(rows: DataFrame) -> DataFrame:
    """Times out when it was quiet for a while of event time."""
    marked = rows.withWatermark("at", "5 seconds")
    return _groups(
        marked,
        GroupStateTimeout.EventTimeTimeout,
        lambda state: state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + 3_000),
    )


def groups_by_the_clock(rows: DataFrame) -> DataFrame:
    """Each epoch has rows of one key, so that the others have timed out by then."""
    one_key = rows.where("number DIV 10 % 3 = CAST(substr(key, 2) AS INT)")
    return _groups(
        one_key,
        GroupStateTimeout.ProcessingTimeTimeout,
        lambda state: state.setTimeoutDuration(1),
    )


def groups_for_ever(rows: DataFrame) -> DataFrame:
    return _groups(rows, GroupStateTimeout.NoTimeout, lambda state: None)


class Sums(StatefulProcessor):
    """The same as ``groups``, with a timer; beside its value state a list and a map."""

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._total = handle.getValueState("total", "total long")
        self._numbers = handle.getListState("numbers", "number long")
        self._by_digit = handle.getMapState("by_digit", "digit int", "total long")

    def _add(self, numbers: list[int]) -> int:
        total = (self._total.get()[0] if self._total.exists() else 0) + sum(numbers)
        self._total.update((total,))
        self._numbers.appendList([(number,) for number in numbers])
        for number in numbers:
            digit = (number % 10,)
            before = self._by_digit.getValue(digit)[0] if self._by_digit.containsKey(digit) else 0
            self._by_digit.updateValue(digit, (before + number,))
        return total

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        total = self._add([int(row.number) for row in rows])
        for timer in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer)
        self._handle.registerTimer(timerValues.getCurrentWatermarkInMs() + 3_000)
        yield Row(key=key[0], total=total)

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        self._total.update((int(initialState.number),))

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        total = self._total.get()[0]
        for state in (self._total, self._numbers, self._by_digit):
            state.clear()
        yield Row(key=f"{key[0]} is quiet", total=total)

    def close(self) -> None:
        pass


class Expiring(Sums):
    """What has lived for longer than an epoch is not seen any more, but for the total; a timer in
    processing time goes off in the next epoch.
    """

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._total = handle.getValueState("total", "total long", 3_600_000)
        self._numbers = handle.getListState("numbers", "number long", 1)
        self._by_digit = handle.getMapState("by_digit", "digit int", "total long", 1)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        numbers = [int(row.number) for row in rows]
        total = self._add(numbers)
        self._handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 1)
        alive = [number for (number,) in self._numbers.get()]
        digits = [digit for (digit,), _ in self._by_digit.iterator()]
        assert (sorted(alive), sorted(digits)) == (sorted(numbers), sorted(n % 10 for n in numbers))
        yield Row(key=key[0], total=total)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        yield Row(key=f"{key[0]} went off", total=self._total.get()[0])


class SumsInPandas(Sums):
    """The same over frames of pandas."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        flat = (row for frame in rows for row in frame.itertuples())
        for row in super().handleInputRows(key, flat, timerValues):
            yield pd.DataFrame([row.asDict()])

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        self._total.update((int(initialState["number"].iloc[0]),))

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        for row in super().handleExpiredTimer(key, timerValues, expiredTimerInfo):
            yield pd.DataFrame([row.asDict()])


RESULT = "key string, total long", "append", "eventTime"


def timers(rows: DataFrame) -> DataFrame:
    marked = rows.withWatermark("at", "5 seconds")
    return marked.groupBy("key").transformWithState(Sums(), *RESULT)


def expiring(rows: DataFrame) -> DataFrame:
    result = "key string, total long", "append", "processingTime"
    return rows.groupBy("key").transformWithState(Expiring(), *result)


def _initial(rows: DataFrame) -> Any:
    given = [("k0", 1_000), ("k2", 2_000)]
    return rows.sparkSession.createDataFrame(given, "key string, number long").groupBy("key")


def initial_state(rows: DataFrame) -> DataFrame:
    marked = rows.withWatermark("at", "5 seconds")
    return marked.groupBy("key").transformWithState(Sums(), *RESULT, initialState=_initial(rows))


def initial_state_in_pandas(rows: DataFrame) -> DataFrame:
    marked = rows.withWatermark("at", "5 seconds")
    return marked.groupBy("key").transformWithStateInPandas(
        SumsInPandas(), *RESULT, initialState=_initial(rows)
    )


# ---- several operators ---------------------------------------------------------------------------


def two_operators(rows: DataFrame) -> DataFrame:
    once = rows.withWatermark("at", "5 seconds").dropDuplicatesWithinWatermark(["key", "number"])
    return once.groupBy(f.window("at", "10 seconds")).count()


def join_and_aggregate(rows: DataFrame) -> DataFrame:
    pairs = joined(rows, "inner").selectExpr("one.key AS key", "one.at AS at")
    return pairs.groupBy(f.window("at", "10 seconds"), "key").count()


def aggregate_twice(rows: DataFrame) -> DataFrame:
    small = (
        rows.withWatermark("at", "2 seconds").groupBy(f.window("at", "5 seconds"), "key").count()
    )
    return small.groupBy(f.window(f.window_time("window"), "20 seconds")).agg(
        f.sum("count").alias("rows")
    )


def stateless(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("key", "number * 2 AS twice")


QUERIES: list[tuple[Make, str]] = [
    (update, "update"),
    (update, "complete"),
    (windows, "append"),
    (sessions, "append"),
    (duplicates, "append"),
    (join, "append"),
    (left_outer, "append"),
    (right_outer, "append"),
    (full_outer, "append"),
    (left_semi, "append"),
    (seen_before, "append"),
    (first_ones, "append"),
    (groups, "append"),
    (groups_for_ever, "append"),
    (groups_by_the_clock, "append"),
    (timers, "append"),
    (expiring, "append"),
    (initial_state, "append"),
    (initial_state_in_pandas, "append"),
    (two_operators, "append"),
    (join_and_aggregate, "append"),
    (aggregate_twice, "append"),
    (stateless, "append"),
]
SETTINGS: dict[Make, dict[str, str]] = {
    # Spark would run epochs without input for ever, so that keys can time out.
    groups_by_the_clock: {"spark.sql.streaming.noDataMicroBatches.enabled": "false"},
    expiring: {"spark.sql.streaming.noDataMicroBatches.enabled": "false"},
}
