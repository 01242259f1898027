"""Keyed sums of weighted values, the weights coming from a control stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle


class WeighedSum(StatefulProcessor):
    """Rows (k, v) -> one row (k, v) for each key: the sum so far of v times the weight of its
    epoch.
    """

    def __init__(self, weights: Any) -> None:
        self._weights = weights

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._sum = handle.getValueState("sum", "v long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        so_far = self._sum.get()[0] if self._sum.exists() else 0
        for row in rows:
            so_far += row.v * self._weights.current()[key[0]]
        self._sum.update((so_far,))
        yield Row(k=key[0], v=so_far)

    def close(self) -> None:
        """Nothing is held."""
