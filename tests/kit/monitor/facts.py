"""Facts of a query as its driver and its supervisor tell them, with the fields that matter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from exactum.checkpoint.layout import HISTORY
from exactum.monitor.fact import Fact
from exactum.monitor.history import segments
from exactum.monitor.query_stats import QueryStats
from exactum.storage.folder import Folder

QUERY = "0e9d1c5e-0000-4000-8000-000000000001"
NAME = {"query_id": QUERY, "batch_id": 0, "incarnation": "i1"}
WHEN_MS = 1_700_000_000_000


def history_files(checkpoint: Path) -> list[Path]:
    """Oldest first."""
    return [checkpoint / HISTORY / each.name for each in segments(Folder(checkpoint))]


def read_facts(checkpoint: Path) -> list[Fact]:
    """All that stand in the history of a checkpoint, by time, of all writers."""
    lines = [
        line
        for path in history_files(checkpoint)
        for line in path.read_text("utf-8", "replace").split("\n")
    ]
    found = [fact for line in lines if (fact := Fact.from_line(line)) is not None]
    return sorted(found, key=lambda fact: fact.at_ms)


class Story:
    """Facts one after another; ``now_ms`` moves on with ``after``."""

    def __init__(self, now_ms: int = WHEN_MS, query_id: str = QUERY) -> None:
        self.now_ms = now_ms
        self.query_id = query_id
        self.facts: list[Fact] = []
        self.stats = QueryStats(query_id)

    def at(self, now_ms: int) -> Story:
        self.now_ms = now_ms
        return self

    def after(self, seconds: float) -> Story:
        self.now_ms += round(seconds * 1000)
        return self

    def tell(self, name: str, /, **fields: Any) -> Story:
        fact = Fact(self.now_ms, name, {**NAME, "query_id": self.query_id, **fields})
        self.facts.append(fact)
        self.stats.observe(fact)
        return self

    def starts(self, incarnation: str = "i1", **fields: Any) -> Story:
        given = {
            "name": "orders",
            "run_id": f"run of {incarnation}",
            "guarantee": "exactly once",
            "checkpoint": "file:/data/orders",
            "offsets": (),
            "redelivered": (),
            "swept": 0,
            "timeouts_ms": {},
            "trigger_ms": 0,
            "ends": False,
            "incarnation": incarnation,
        }
        return self.tell("RunStarted", **{**given, **fields})

    def ends(self, error: str = "", disposition: str = "", reason: str = "", **of: Any) -> Story:
        return self.tell("RunEnded", error=error, disposition=disposition, reason=reason, **of)

    def dies(self, meaning: str = "restart", **fields: Any) -> Story:
        text = "it was ended by SIGKILL"
        given = {"pid": 7, "meaning": meaning, "error": "", "disposition": "", "text": text}
        return self.tell("ProcessEnded", **{**given, **fields})

    def finished(self, batch_id: int) -> Story:
        """An operator has committed what was decided."""
        return self.tell("DecidedFinished", batch_ids=[batch_id], transactions=2, rows=10)

    def waits(self, doing: str = "Waiting for data to arrive", incarnation: str = "i1") -> Story:
        named = {"run_id": f"run of {incarnation}", "name": "orders", "checkpoint": "c"}
        return self.tell("QueryWaits", incarnation=incarnation, doing=doing, **named)

    def begins(self, batch_id: int, records: int | None = 10) -> Story:
        return self.tell("EpochBegan", batch_id=batch_id, input_records=records)

    def decides(self, batch_id: int, rows: int = 10) -> Story:
        return self.tell("EpochDecided", batch_id=batch_id, attempt=0, transactions=2, rows=rows)

    def completes(self, batch_id: int, rows: int = 10, **phase_ms: float) -> Story:
        return self.tell(
            "EpochCompleted",
            batch_id=batch_id,
            attempt=0,
            transactions=2,
            rows=rows,
            phase_ms=phase_ms or {"write": 50.0, "commit": 5.0},
            rows_by_sink={"kafka": rows},
        )

    def epoch(self, batch_id: int, seconds: float = 1.0, records: int = 10) -> Story:
        self.begins(batch_id, records).after(seconds).decides(batch_id)
        return self.completes(batch_id)

    def lag(self, records: int, seconds: float | None = None, **fields: Any) -> Story:
        if seconds is None and not records:
            seconds = 0.0
        given = {"topic": "in", "partitions": 2, "lso_gap_records": 0}
        return self.tell(
            "InputLag", **{**given, "lag_records": records, "lag_seconds": seconds, **fields}
        )

    def held(self, since_ms: int, gap: int = 5, partition: int = 0) -> Story:
        return self.tell(
            "UpstreamStalled",
            topic="in",
            partition=partition,
            since_ms=since_ms,
            last_stable_offset=100,
            lso_gap=gap,
            producer_id=42,
            transactional_id="theirs",
        )
