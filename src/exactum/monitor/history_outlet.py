"""Writes what a process hears of its queries into their histories, and sums up each minute."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from exactum.monitor.fact import Fact
from exactum.monitor.history import HistoryWriter

logger = logging.getLogger("exactum")

NOT_KEPT = frozenset({"EpochBegan", "EpochDecided"})
"""Facts of each epoch that say nothing once it is completed; the decision log has the decision."""
PROGRESS_EVERY_MS = 10_000
"""Reports of a fast query come twice in five seconds; one of them in this time is kept."""
MINUTE_MS = 60_000
LETTERS_MAX = 2_000
"""Longest text of a fact that is kept."""


class HistoryOutlet:
    """An outlet of a ``Recorder``. Queries that it was not told of by ``begin`` are not written.

    ``minutes``: also sum up each minute; one of the writers of a query does.
    """

    def __init__(self, *, minutes: bool = True) -> None:
        self._has_minutes = minutes
        self._queries: dict[str, _QueryHistory] = {}

    def __str__(self) -> str:
        return "the history could not be written"

    def begin(self, query_id: str, checkpoint: Path) -> None:
        """From now on the query's facts go beside this checkpoint."""
        known = self._queries.get(query_id)
        if known is None or known.checkpoint != checkpoint:
            self._queries = {
                **self._queries,
                query_id: _QueryHistory(query_id, checkpoint, has_minutes=self._has_minutes),
            }

    def take(self, facts: Sequence[Fact]) -> None:
        """See ``recorder.Outlet``.

        Raises:
            OSError: of the first query that could not be written; the others are.
        """
        troubles: list[OSError] = []
        for query_id, history in self._queries.items():
            try:
                history.take([fact for fact in facts if fact.query_id == query_id])
            except OSError as error:
                troubles.append(error)
        if troubles:
            raise troubles[0]


class _QueryHistory:
    def __init__(self, query_id: str, checkpoint: Path, *, has_minutes: bool) -> None:
        self.checkpoint = checkpoint
        self._writer = HistoryWriter(checkpoint)
        self._minute = _Minute(query_id)
        self._has_minutes = has_minutes
        self._progress_ms = 0

    def take(self, facts: Sequence[Fact]) -> None:
        kept: list[Fact] = []
        for fact in facts:
            if self._has_minutes:
                self._minute.add(fact)
            if fact.name == "Progress":
                if fact.at_ms - self._progress_ms < PROGRESS_EVERY_MS:
                    continue
                self._progress_ms = fact.at_ms
            if fact.name not in NOT_KEPT:
                kept.append(Fact(fact.at_ms, fact.name, _short(fact.fields)))
        minutes = self._minute.over(time.time_ns() // 1_000_000)
        if kept or minutes:
            self._writer.write(kept, minutes)


class _Minute:
    """Adds up the facts of a minute: what plots over days are drawn from."""

    def __init__(self, query_id: str) -> None:
        self._query_id = query_id
        self._began_ms = 0
        self._sums: dict[str, float] = {}
        self._lags: dict[str, tuple[int, float]] = {}
        self._last: dict[str, Any] = {}

    def add(self, fact: Fact) -> None:
        of = fact.fields
        if not self._began_ms:
            self._began_ms = fact.at_ms
        if fact.name == "EpochCompleted":
            self._count("epochs")
            self._count("rows", of["rows"])
            for phase, ms in of["phase_ms"].items():
                self._count(f"{phase}_ms", ms)
            whole = sum(of["phase_ms"].values())
            self._sums["epoch_ms_max"] = max(self._sums.get("epoch_ms_max", 0.0), whole)
        elif fact.name == "EpochBegan" and of["input_records"] is not None:
            self._count("records_read", of["input_records"])
        elif fact.name == "EpochAbandoned":
            self._count("abandoned")
        elif fact.name in ("RowsDeadLettered", "RowsSkipped"):
            self._count(
                "dead_lettered" if fact.name == "RowsDeadLettered" else "skipped", of["rows"]
            )
        elif fact.name == "InputLag":
            self._lags[str(of["topic"])] = (int(of["lag_records"]), float(of["lag_seconds"] or 0.0))
        elif fact.name == "Progress":
            self._last = {
                "state_rows": of["state_rows"],
                "state_bytes": of["state_bytes"],
                "event_time_watermark": of["event_time_watermark"],
            }

    def over(self, now_ms: int) -> list[Fact]:
        """The fact ``Minute`` of what was added, once it is a minute old; then it begins anew."""
        if not self._began_ms or now_ms - self._began_ms < MINUTE_MS:
            return []
        fields: dict[str, Any] = {
            "query_id": self._query_id,
            "lasted_ms": now_ms - self._began_ms,
            **{name: round(value, 3) for name, value in self._sums.items()},
            **self._last,
        }
        if self._lags:
            fields["lag_records"] = sum(records for records, _ in self._lags.values())
            fields["lag_seconds"] = round(max(seconds for _, seconds in self._lags.values()), 3)
        self._began_ms = 0
        self._sums, self._lags, self._last = {}, {}, {}
        return [Fact(now_ms, "Minute", fields)]

    def _count(self, name: str, by: float = 1) -> None:
        self._sums[name] = self._sums.get(name, 0) + by


def _short(value: Any) -> Any:
    """A value of JSON without texts that fill a file."""
    if isinstance(value, str) and len(value) > LETTERS_MAX:
        return f"{value[:LETTERS_MAX]} [cut: {len(value) - LETTERS_MAX:,} more characters]"
    if isinstance(value, dict):
        return {name: _short(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_short(one) for one in value]
    return value
