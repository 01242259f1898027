"""How far a query is, from Spark's own progress reports: the event ``Progress``, off the critical
path.

Spark keeps its last report; ``idle`` looks at it every other second. That costs one call into the
JVM and no work within an epoch, and onlookers see each report that is still the last one when
looked at.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from exactum import events
from exactum.protocol.sink import QueryRun
from exactum.spark.epoch_listener import EpochListener
from exactum.spark.run_context import RunContext


class ProgressReports(EpochListener):
    """A listener that emits ``Progress`` when Spark has a new report."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._last = ""

    def idle(self) -> None:
        """See the base class."""
        text = self._context.query.live.last_progress()
        if text is not None and text != self._last:
            self._last = text
            self._context.emit(progress_of(json.loads(text), self._context.run))


def progress_of(report: Mapping[str, Any], run: QueryRun) -> events.Progress:
    """The event that says what ``report`` does: Spark's StreamingQueryProgress as JSON."""
    sources, states = report.get("sources") or (), report.get("stateOperators") or ()
    return events.Progress(
        run.query_id,
        int(report["batchId"]),
        run.incarnation,
        input_rows=int(report.get("numInputRows") or 0),
        input_rows_per_s=_rate(report.get("inputRowsPerSecond")),
        processed_rows_per_s=_rate(report.get("processedRowsPerSecond")),
        lag_records=lag_records(sources),
        state_rows=sum(int(s.get("numRowsTotal") or 0) for s in states) if states else None,
        state_bytes=sum(int(s.get("memoryUsedBytes") or 0) for s in states) if states else None,
        event_time_watermark=(report.get("eventTime") or {}).get("watermark"),
        phase_ms={name: float(ms) for name, ms in (report.get("durationMs") or {}).items()},
    )


def lag_records(sources: Iterable[Mapping[str, Any]]) -> int | None:
    """Records that the sources have and the query has not read yet; None where no source says so
    (Kafka's does).

    As Spark counts: by offsets, so control markers and aborted records count too.
    """
    known: list[int] = []
    for source in sources:
        ends, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        if ends is not None and latest is not None:
            known += [
                max(0, offset - ends.get(partition, offset)) for partition, offset in latest.items()
            ]
    return sum(known) if known else None


def _offsets(value: object) -> dict[tuple[str, str], int] | None:
    """Kafka's offsets, ``{"topic": {"0": 12}}``; None for those of another source."""
    if not isinstance(value, Mapping) or not all(
        isinstance(partitions, Mapping) for partitions in value.values()
    ):
        return None
    try:
        return {
            (t, p): int(offset)
            for t, partitions in value.items()
            for p, offset in partitions.items()
        }
    except (TypeError, ValueError):
        return None


def _rate(value: object) -> float:
    """Spark leaves a rate out, or says NaN or Infinity, where it has nothing to divide by."""
    rate = float(value) if isinstance(value, int | float | str) else 0.0
    return rate if math.isfinite(rate) else 0.0
