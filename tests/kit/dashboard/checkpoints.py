"""Queries to look at, made by hand: what they leave behind, without Spark."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.kit.monitor.facts import Story
from tests.kit.monitor.made_checkpoint import Checkpoint, ago

HOUR_MS = 3_600_000
OF_TOPIC = {"topic": "orders", "partitions": 4}


def completed(story: Story, batch_id: int, rows: int, slow: float = 1.0) -> None:
    """A micro-batch of two sinks; ``slow``: how many times as long as it usually takes."""
    phases = {
        "write": 64 * slow,
        "verify": 4.1,
        "decide": 5.2 * slow,
        "commit": 14.0 * slow,
        "sweep": 2.2,
    }
    story.tell(
        "EpochCompleted",
        batch_id=batch_id,
        attempt=1,
        transactions=4,
        rows=rows,
        phase_ms=phases,
        rows_by_sink={"kafka:shouted": rows - rows // 4, "postgresql:totals": rows // 4},
    )


def busy_hour(made: Checkpoint) -> None:
    """An hour of a working query, with a crash in it."""
    end = time.time_ns() // 1_000_000
    begin = end - HOUR_MS + 60_000
    story = Story(begin, made.query_id).starts(checkpoint=str(made.folder))
    batch_id = 0
    for at_ms in range(begin + 2_000, end, 2_500):
        share = (at_ms - begin) / HOUR_MS
        if 0.55 < share < 0.575:
            continue
        rows = int(900 + 420 * math.sin(share * 13) + (1_700 if 0.575 < share < 0.62 else 0))
        completed(story.at(at_ms), batch_id, rows, 1 + 0.6 * math.sin(share * 31) ** 2)
        batch_id += 1
        if batch_id % 2:
            behind = (
                max(0.0, 0.62 - share) * 60_000 if share > 0.575 else 40 + 30 * math.sin(share * 40)
            )
            seconds = round(max(0.3, behind / 400), 2)
            story.at(at_ms + 100).lag(int(behind), seconds, **OF_TOPIC)
    reason = "the broker localhost:9092 did not answer within 30 s"
    story.at(begin + int(0.55 * HOUR_MS)).dies(
        pid=4121,
        error=f"Unavailable: {reason}",
        disposition="retry",
        text=f"it ended with status 1 with Unavailable: {reason}",
    )
    story.after(0.04).finished(batch_id // 2)
    story.after(0.01).tell("ProcessRestarts", delay_s=1.0, disposition="retry")
    again = story.at(begin + int(0.575 * HOUR_MS))
    again.starts(batch_id=batch_id // 2 + 1, checkpoint=str(made.folder), swept=3)
    story.facts.sort(key=lambda fact: fact.at_ms)
    made.tells(story).spark(batch_id - 1, batch_id - 1)
    for number in range(batch_id - 5, batch_id):
        made.commit(number)


@contextmanager
def four_queries(folder: Path) -> Iterator[list[Checkpoint]]:
    """One that works, one that an open transaction upstream holds back, one that is in doubt, and
    one that was refused. The first two are alive while this is entered.
    """
    now = time.time_ns() // 1_000_000
    fine = Checkpoint(folder / "orders")
    held = Checkpoint(folder / "clicks", "c1")
    doubt = Checkpoint(folder / "invoices", "c2")
    refused = Checkpoint(folder / "payments", "c3")
    busy_hour(fine)
    for made, ago_ms in ((held, 2_000), (doubt, 340_000), (refused, 900_000)):
        begin = now - 1_500_000
        times = range(begin, now - ago_ms, 5_000)
        name = made.folder.name
        story = Story(begin, made.query_id).starts(name=name, checkpoint=str(made.folder))
        for batch_id, at_ms in enumerate(times):
            completed(story.at(at_ms), batch_id, 180 + batch_id % 7)
            story.lag(0, **OF_TOPIC)
        made.tells(story).spark(len(times) - 1, len(times) - 1)
    upstream = {
        "topic": "clicks",
        "partition": 3,
        "since_ms": now - 420_000,
        "last_stable_offset": 88_120,
        "lso_gap": 5_204,
        "producer_id": 41,
        "transactional_id": "enrich-7",
    }
    held.tells(ago(1, held.query_id).tell("UpstreamStalled", batch_id=9, **upstream))
    last = len(range(now - 1_500_000, now - 340_000, 5_000))
    doubt.commit(last)
    doubt.spark(last, last - 1)
    reason = (
        "sink postgresql:ledger: column total is NOT NULL, and 1 of 184 rows has none: "
        '{"id": 8124, "total": null}. Nothing of micro-batch 120 was written.'
    )
    refused.tells(ago(890, refused.query_id).ends("RowsRefused", "halt", reason, batch_id=120))
    with ExitStack() as alive:
        for made in (fine, held):
            alive.enter_context(made.alive("i1"))
        yield [fine, held, doubt, refused]
