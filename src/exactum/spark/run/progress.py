"""How far a query is, from Spark's own progress reports: the event ``Progress``, off the critical
path.

Spark keeps its last report, and is asked for it every other second. That costs one call into the
JVM and no work within an epoch, and onlookers see each report that is still the last one then.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from exactum import events
from exactum.protocol.sink import QueryRun
from exactum.spark.query import Run


class ProgressReports:
    """Emits ``Progress`` when Spark has a new report."""

    every_s = 2.0
    trouble = "what Spark reports of it is not known"

    def __init__(self, run: Run) -> None:
        self._run = run
        self._last = ""

    def tend(self) -> None:
        text = self._run.live.last_progress()
        if text is not None and text != self._last:
            self._last = text
            self._run.emit(progress_of(json.loads(text), self._run.identity))


def progress_of(report: Mapping[str, Any], run: QueryRun) -> events.Progress:
    """The event that says what ``report`` does: Spark's StreamingQueryProgress as JSON."""
    states = report.get("stateOperators") or ()
    return events.Progress(
        run.query_id,
        int(report["batchId"]),
        run.incarnation,
        input_rows=int(report.get("numInputRows") or 0),
        input_rows_per_s=_rate(report.get("inputRowsPerSecond")),
        processed_rows_per_s=_rate(report.get("processedRowsPerSecond")),
        state_rows=sum(int(s.get("numRowsTotal") or 0) for s in states) if states else None,
        state_bytes=sum(int(s.get("memoryUsedBytes") or 0) for s in states) if states else None,
        event_time_watermark=(report.get("eventTime") or {}).get("watermark"),
        phase_ms={name: float(ms) for name, ms in (report.get("durationMs") or {}).items()},
    )


def _rate(value: object) -> float:
    """Spark leaves a rate out, or says NaN or Infinity, where it has nothing to divide by."""
    rate = float(value) if isinstance(value, int | float | str) else 0.0
    return rate if math.isfinite(rate) else 0.0
