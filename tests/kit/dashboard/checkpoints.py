"""Checkpoints made by hand: what a query leaves behind, without Spark."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exactum.checkpoint.layout import DECISIONS
from exactum.files.decision_log import FileDecisionLog
from exactum.monitor.fact import Fact
from exactum.monitor.history import HistoryWriter
from exactum.protocol.model import (
    Decision,
    DecisionRecord,
    Epoch,
    Incarnation,
    PreparedTransaction,
    SourceOffsets,
)

HOUR_MS = 3_600_000


@dataclass
class MadeCheckpoint:
    """A folder as a query leaves it. ``facts`` come with the query's id."""

    folder: Path
    query_id: str = "3f2a9c1e-5b7d-4e21-9a34-0c8d7e6f5a4b"
    name: str = "orders"
    incarnation: str = "8c1f0a2b3d4e5f60"

    def begin(self) -> MadeCheckpoint:
        self.folder.mkdir(parents=True)
        (self.folder / "metadata").write_text(json.dumps({"id": self.query_id}))
        return self

    def fact(self, at_ms: int, kind: str, batch_id: int = -1, **fields: Any) -> Fact:
        common = {
            "query_id": self.query_id,
            "batch_id": batch_id,
            "incarnation": self.incarnation,
        }
        return Fact(at_ms, kind, {**common, **fields})

    def started(self, at_ms: int, batch_id: int = 0, **fields: Any) -> Fact:
        whole = {
            "run_id": "f00d",
            "name": self.name,
            "guarantee": "exactly once",
            "checkpoint": str(self.folder),
            "offsets": [],
            "redelivered": [],
            "swept": 0,
        }
        return self.fact(at_ms, "RunStarted", batch_id, **{**whole, **fields})

    def completed(self, at_ms: int, batch_id: int, rows: int = 100, **fields: Any) -> Fact:
        whole = {
            "attempt": 1,
            "transactions": 4,
            "rows": rows,
            "phase_ms": {
                "write": 60.0,
                "verify": 3.0,
                "decide": 4.0,
                "commit": 12.0,
                "sweep": 2.0,
            },
            "rows_by_sink": {"kafka:shouted": rows - rows // 4, "postgresql:totals": rows // 4},
        }
        return self.fact(at_ms, "EpochCompleted", batch_id, **{**whole, **fields})

    def lag(self, at_ms: int, records: int, seconds: float | None, **fields: Any) -> Fact:
        whole = {
            "topic": "orders",
            "partitions": 4,
            "lag_records": records,
            "lag_seconds": seconds,
            "lso_gap_records": 0,
        }
        return self.fact(at_ms, "InputLag", **{**whole, **fields})

    def write(self, facts: Sequence[Fact], minutes: Sequence[Fact] = ()) -> None:
        HistoryWriter(self.folder).write(facts, minutes)

    def spark(self, planned: int, finished: int) -> None:
        """Spark's own logs as they are after these batches."""
        for name, last in (("offsets", planned), ("commits", finished)):
            (self.folder / name).mkdir(exist_ok=True)
            for batch_id in range(max(0, last - 5), last + 1):
                (self.folder / name / str(batch_id)).write_text(
                    "v1\n{}\n" + (offsets(batch_id) if name == "offsets" else "")
                )

    def decide(
        self, batch_id: int, attempt: int, decision: Decision = Decision.COMMIT, **fields: Any
    ) -> DecisionRecord:
        """Put a record into the decision log."""
        names = [f"exactum-3f2a-{batch_id}-{task}" for task in range(3)]
        prepared = (
            *(PreparedTransaction("kafka:shouted", name, 25) for name in names),
            PreparedTransaction("postgresql:totals", f"exactum_3f2a_{batch_id}", 25),
        )
        whole: dict[str, Any] = {
            "prepared": prepared if decision is Decision.COMMIT else (),
            "offsets": SourceOffsets((offsets(batch_id - 1),), (offsets(batch_id),)),
        }
        record = DecisionRecord(
            Epoch(self.query_id, batch_id),
            attempt,
            decision,
            Incarnation(self.incarnation),
            **{**whole, **fields},
        )
        log = FileDecisionLog(self.folder / DECISIONS, self.query_id)
        log.decide(record)
        log.close()
        return record


def offsets(batch_id: int) -> str:
    ends = {str(partition): 1_000 + 25 * batch_id for partition in range(4)}
    return json.dumps({"orders": ends}, separators=(",", ":"))


def busy_hour(made: MadeCheckpoint, until_ms: int | None = None) -> int:
    """An hour of a working query, with a crash in it; its last batch."""
    end = until_ms or time.time_ns() // 1_000_000
    begin = end - HOUR_MS + 60_000
    facts = [made.started(begin)]
    batch_id = 0
    for at_ms in range(begin + 2_000, end, 2_500):
        share = (at_ms - begin) / HOUR_MS
        down = 0.55 < share < 0.575
        if down:
            continue
        rows = int(900 + 420 * math.sin(share * 13) + (1_700 if 0.575 < share < 0.62 else 0))
        slow = 1 + 0.6 * math.sin(share * 31) ** 2
        phases = {
            "write": 64 * slow,
            "verify": 4.1,
            "decide": 5.2 * slow,
            "commit": 14.0 * slow,
            "sweep": 2.2,
        }
        facts.append(made.completed(at_ms, batch_id, rows, phase_ms=phases))
        batch_id += 1
        if batch_id % 2:
            behind = (
                max(0.0, 0.62 - share) * 60_000 if share > 0.575 else 40 + 30 * math.sin(share * 40)
            )
            facts.append(made.lag(at_ms + 100, int(behind), round(max(0.3, behind / 400), 2)))
    death = begin + int(0.55 * HOUR_MS)
    reason = "the broker localhost:9092 did not answer within 30 s"
    facts += [
        made.fact(
            death,
            "ProcessEnded",
            pid=4121,
            meaning="restart",
            error=f"Unavailable: {reason}",
            disposition="retry",
            text=f"it ended with status 1 with Unavailable: {reason}",
        ),
        made.fact(
            death + 40,
            "DecidedFinished",
            batch_ids=[batch_id // 2],
            transactions=4,
            rows=900,
            left=[],
            troubles=[],
        ),
        made.fact(death + 50, "ProcessRestarts", delay_s=1.0, disposition="retry"),
        made.started(begin + int(0.575 * HOUR_MS), batch_id // 2 + 1, swept=3),
    ]
    made.write(sorted(facts, key=lambda fact: fact.at_ms))
    made.spark(batch_id - 1, batch_id - 1)
    for number in range(batch_id - 5, batch_id):
        made.decide(number, 0)
    return batch_id - 1
