"""When the tasks of each micro-batch ran, from Spark's own event log."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Batch = tuple[str, int]
"""(query id, batch id)"""
Span = tuple[int, int]
"""(launch, end) of a task, in ms since 1970."""


def task_spans(log: Path) -> dict[Batch, list[Span]]:
    """The tasks of each micro-batch. ``log``: the event log of one application."""
    of_stage: dict[int, Batch] = {}
    found: dict[Batch, list[Span]] = defaultdict(list)
    with log.open() as lines:
        for line in lines:
            event: dict[str, Any] = json.loads(line)
            if event["Event"] == "SparkListenerJobStart":
                properties = event.get("Properties") or {}
                query, batch = (
                    properties.get("sql.streaming.queryId"),
                    properties.get("streaming.sql.batchId"),
                )
                if query is not None and batch is not None:
                    of_stage |= dict.fromkeys(event["Stage IDs"], (query, int(batch)))
            elif event["Event"] == "SparkListenerTaskEnd" and event["Stage ID"] in of_stage:
                info = event["Task Info"]
                found[of_stage[event["Stage ID"]]].append(
                    (info["Launch Time"], info["Finish Time"])
                )
    return found


def covered_ms(spans: Sequence[Span]) -> int:
    """How long at least one of them lasted."""
    total, reached = 0, 0
    for begin, end in sorted(spans):
        total += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return total
