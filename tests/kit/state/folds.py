"""Stateful processors of the tests. Spark ships this file to its workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

TIMER_MS = 10_000
"""After this much event time a key's timer goes off."""
SHORT_TTL_MS, LONG_TTL_MS = 1_000, 3_600_000
FOLD_SCHEMA = "key string, value string"


class Fold(StatefulProcessor):
    """Rows (key, number, at) -> one row for each key and epoch: what value, list and map state say
    by now, which all say the same thing in their own way. A timer in event time says once for each
    key when it first went off.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._sum = handle.getValueState("sum", "count long, total long")
        self._numbers = handle.getListState("numbers", "number long")
        self._by_digit = handle.getMapState("by_digit", "digit int", "total long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        came = [(int(row.number), row.at) for row in rows]
        first = not self._sum.exists()
        count, total = (0, 0) if first else self._sum.get()
        self._sum.update((count + len(came), total + sum(number for number, _ in came)))
        self._numbers.appendList([(number,) for number, _ in came])
        for number, _ in came:
            digit = (number % 10,)
            before = self._by_digit.getValue(digit)[0] if self._by_digit.containsKey(digit) else 0
            self._by_digit.updateValue(digit, (before + number,))
        if first:
            earliest = min(at for _, at in came)
            self._handle.registerTimer(int(earliest.timestamp() * 1000) + TIMER_MS)
        yield Row(key=key[0], value=self._said())

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        yield Row(key=key[0], value=f"timer {expiredTimerInfo.getExpiryTimeInMs()}")

    def close(self) -> None:
        """Nothing is held."""

    def _said(self) -> str:
        count, total = self._sum.get()
        numbers = [number for (number,) in self._numbers.get()]
        digits = sum(total for (total,) in self._by_digit.values())
        return f"{count}:{total} {len(numbers)}:{sum(numbers)} {digits}"


class Forgetful(StatefulProcessor):
    """Rows (key, number) -> one row for each key and epoch: how many numbers a short-lived and a
    long-lived state have seen, and each time a timer in processing time has gone off.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._short = handle.getValueState("short", "count long", SHORT_TTL_MS)
        self._long = handle.getValueState("long", "count long", LONG_TTL_MS)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        came = sum(1 for _ in rows)
        counts = []
        for state in (self._short, self._long):
            count = came + (state.get()[0] if state.exists() else 0)
            state.update((count,))
            counts.append(count)
        self._handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + SHORT_TTL_MS)
        yield Row(key=key[0], value=f"short {counts[0]} long {counts[1]}")

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        yield Row(key=key[0], value="timer")

    def close(self) -> None:
        """Nothing is held."""
