"""What a watched script has told of its queries, as numbers for a screen. Pure: no clock, no
terminal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

EPOCHS_KEPT = 256
"""Over how many epochs the percentiles of the phases are taken."""
RATE_WINDOW_S = 10.0


@dataclass
class QueryStats:
    """One query. ``lag_records`` and ``state_rows`` are None where Spark does not say."""

    query_id: str
    name: str | None = None
    epoch: int | None = None
    rows: int = 0
    redelivered: int = 0
    lag_records: int | None = None
    state_rows: int | None = None
    _phases: deque[Mapping[str, float]] = field(default_factory=lambda: deque(maxlen=EPOCHS_KEPT))
    _rows: deque[tuple[float, int]] = field(default_factory=deque)

    def hear(self, event: str, fields: Mapping[str, Any], now_s: float) -> None:
        """Take an event of the query."""
        if event == "RunStarted":
            self.name = fields["name"]
        elif event == "EpochCompleted":
            self.epoch = int(fields["batch_id"])
            self.rows += int(fields["rows"])
            self._rows.append((now_s, int(fields["rows"])))
            phases = {name: float(ms) for name, ms in fields["phase_ms"].items()}
            self._phases.append({**phases, "epoch": sum(phases.values())})
        elif event == "EpochRedelivered":
            self.epoch = int(fields["batch_id"])
            self.redelivered += 1
        elif event == "Progress":
            self.lag_records = fields["lag_records"]
            self.state_rows = fields["state_rows"]

    def rows_per_s(self, now_s: float) -> float:
        """Rows committed in the last seconds, per second."""
        while self._rows and now_s - self._rows[0][0] > RATE_WINDOW_S:
            self._rows.popleft()
        return sum(rows for _, rows in self._rows) / RATE_WINDOW_S

    def phase_ms(self, phase: str) -> tuple[float, float] | None:
        """The median and the 95th percentile of a phase over the last epochs; ``epoch`` is all of
        them together.
        """
        values = sorted(phases[phase] for phases in self._phases if phase in phases)
        return (quantile(values, 0.5), quantile(values, 0.95)) if values else None

    def phases(self) -> list[str]:
        """The phases of the last epoch, in the order in which they come."""
        return list(self._phases[-1]) if self._phases else []


@dataclass
class RunStats:
    """All queries of a script, and what the supervisor did."""

    state: str = "starting"
    restarts: int = 0
    queries: dict[str, QueryStats] = field(default_factory=dict)

    def hear(self, event: str, fields: Mapping[str, Any], now_s: float) -> None:
        query_id = str(fields["query_id"])
        self.queries.setdefault(query_id, QueryStats(query_id)).hear(event, fields, now_s)


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest of the ordered values that is not below ``share`` of them."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
