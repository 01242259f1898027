"""Checkpoints made by hand: what a query leaves behind, without Spark."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exactum.monitor.fact import Fact
from exactum.monitor.history import HistoryWriter
from exactum.storage.folder import Folder
from tests.kit.monitor.made_checkpoint import Checkpoint

HOUR_MS = 3_600_000


@dataclass
class MadeCheckpoint(Checkpoint):
    """A folder as a query leaves it. ``facts`` come with the query's id."""

    folder: Path
    query_id: str = "3f2a9c1e-5b7d-4e21-9a34-0c8d7e6f5a4b"
    name: str = "orders"
    incarnation: str = "8c1f0a2b3d4e5f60"

    def begin(self) -> MadeCheckpoint:
        super().__init__(self.folder, self.query_id)
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

    def write(self, facts: Sequence[Fact]) -> None:
        HistoryWriter(Folder(self.folder)).write(facts)

    def died(self) -> None:
        """A driver has run it, and is gone: it leaves a file."""
        with self.alive(self.incarnation):
            pass


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
        made.commit(number)
    return batch_id - 1


@contextmanager
def four_queries(folder: Path) -> Iterator[list[MadeCheckpoint]]:
    """One that works, one that an open transaction upstream holds back, one that is in doubt, and
    one that was refused. The first two are alive while this is entered.
    """
    now = time.time_ns() // 1_000_000
    fine = MadeCheckpoint(folder / "orders").begin()
    held = MadeCheckpoint(folder / "clicks", "c1", "clicks").begin()
    doubt = MadeCheckpoint(folder / "invoices", "c2", "invoices").begin()
    refused = MadeCheckpoint(folder / "payments", "c3", "payments").begin()
    busy_hour(fine)
    for made, ago_ms in ((held, 2_000), (doubt, 340_000), (refused, 900_000)):
        begin = now - 1_500_000
        times = range(begin, now - ago_ms, 5_000)
        facts = [made.started(begin)]
        for batch_id, at_ms in enumerate(times):
            facts += [made.completed(at_ms, batch_id, 180 + batch_id % 7), made.lag(at_ms, 0, 0.0)]
        made.write(facts)
        made.spark(len(times) - 1, len(times) - 1)
        made.died()
    upstream = {
        "topic": "clicks",
        "partition": 3,
        "since_ms": now - 420_000,
        "last_stable_offset": 88_120,
        "lso_gap": 5_204,
        "producer_id": 41,
        "transactional_id": "enrich-7",
    }
    held.write([held.fact(now - 1_000, "UpstreamStalled", 9, **upstream)])
    last = len(range(now - 1_500_000, now - 340_000, 5_000))
    doubt.commit(last)
    doubt.spark(last, last - 1)
    reason = (
        "sink postgresql:ledger: column total is NOT NULL, and 1 of 184 rows has none: "
        '{"id": 8124, "total": null}. Nothing of micro-batch 120 was written.'
    )
    refused.write(
        [
            refused.fact(
                now - 890_000,
                "RunEnded",
                120,
                error="RowsRefused",
                disposition="halt",
                reason=reason,
            )
        ]
    )
    with ExitStack() as alive:
        alive.enter_context(fine.alive(fine.incarnation))
        alive.enter_context(held.alive(held.incarnation))
        yield [fine, held, doubt, refused]
