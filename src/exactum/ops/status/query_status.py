"""What ``exactum status`` says of one checkpoint: a value of one moment."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exactum.checkpoint.query_place import QueryPlace
from exactum.checkpoint.retirement import refuse_retired
from exactum.errors import ExactumError
from exactum.monitor.checkpoint_verdict import CheckpointState, state_of
from exactum.monitor.verdict import Judgement

WORKING, NOT_WORKING, UNKNOWN = 0, 1, 2
"""Exit statuses: OK or SLOW; every other verdict; nobody can tell."""
FOUND_MAX = 200


@dataclass(frozen=True)
class QueryStatus:
    """``judgement`` is None where nobody can tell how the query is; ``trouble`` says why then."""

    checkpoint: str
    at_ms: int
    query_id: str | None = None
    state: CheckpointState | None = None
    judgement: Judgement | None = None
    trouble: str = ""

    @property
    def exit_status(self) -> int:
        if self.judgement is None:
            return UNKNOWN
        return WORKING if self.judgement.verdict.is_working else NOT_WORKING

    @property
    def is_ready(self) -> bool:
        """It works, and has shown that since its start."""
        return self.exit_status == WORKING and self.state is not None and self.state.has_begun

    @property
    def name(self) -> str:
        """How people know it: its name, or its checkpoint's folder."""
        known = None if self.state is None else self.state.stats.name
        return known or Path(self.checkpoint).name or self.checkpoint

    @property
    def lag(self) -> tuple[int, float | None] | None:
        """In offsets and seconds, as it was seen last; None where nobody has told."""
        lags = () if self.state is None else self.state.stats.window.lags
        return (lags[-1].records, lags[-1].seconds) if lags else None

    @property
    def lag_at_ms(self) -> int | None:
        """When ``lag`` was seen."""
        lags = () if self.state is None else self.state.stats.window.lags
        return lags[-1].at_ms if lags else None

    def to_json(self) -> dict[str, Any]:
        """Plain values. Names stay what they are: others' programs read them."""
        found: dict[str, Any] = {
            "checkpoint": self.checkpoint,
            "query_id": self.query_id,
            "name": self.name,
            "verdict": None if self.judgement is None else self.judgement.verdict.value,
            "reason": self.trouble if self.judgement is None else self.judgement.reason,
            "todo": "" if self.judgement is None else self.judgement.todo,
            "status": self.exit_status,
            "at_ms": self.at_ms,
        }
        return found if self.state is None else {**found, **_of_state(self.state, self)}


def _of_state(state: CheckpointState, status: QueryStatus) -> dict[str, Any]:
    stats, lag = state.stats, status.lag
    doubt, failure = stats.in_doubt, stats.last_failure
    return {
        "guarantee": stats.guarantee,
        "heard_ms": stats.heard_ms,
        "planned": state.planned,
        "decided": state.decided,
        "completed": state.completed,
        "finished": state.finished,
        "lag": None
        if lag is None
        else {"records": lag[0], "seconds": lag[1], "at_ms": status.lag_at_ms},
        "topics": {
            topic: {
                "partitions": seen.partitions,
                "lag_records": seen.lag_records,
                "lag_seconds": seen.lag_seconds,
                "lso_gap_records": seen.lso_gap_records,
            }
            for topic, seen in stats.inputs.items()
        },
        "held_upstream": [dict(of) for of in stats.stalled.values()],
        "in_doubt": None
        if doubt is None
        else {
            "batch_id": doubt.batch_id,
            "since_ms": doubt.since_ms,
            "transactions": doubt.transactions,
            "rows": doubt.rows,
        },
        "running": [
            {
                "incarnation": run.incarnation,
                "host": run.host,
                "pid": run.pid,
                "exactum": run.exactum,
                "spark": run.spark,
                "started_ms": run.started_ms,
            }
            for run in state.living
        ],
        "last_failure": None
        if failure is None
        else {
            "at_ms": failure.at_ms,
            "error": failure.error,
            "disposition": failure.disposition,
            "reason": failure.reason,
        },
        "troubles": list(state.troubles),
    }


def status_of(
    checkpoint: str, decision_log: str | None = None, now_ms: int | None = None
) -> QueryStatus:
    """How the query of this checkpoint is. Never raises: what cannot be told is said.

    ``now_ms``: judged as at that time, by what is on disk now; None: now.
    """
    at_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    try:
        place = QueryPlace.of(checkpoint, decision_log)
        refuse_retired(place.folder)  # it is not down: it is to stay so
    except (ExactumError, OSError) as error:
        return QueryStatus(checkpoint, at_ms, trouble=str(error))
    state = state_of(place, at_ms)
    if not state.is_known:
        trouble = (
            "Nothing is known of a run of exactum on this checkpoint: there is no history and no "
            "run's file below its folder exactum/."
        )
        return QueryStatus(checkpoint, at_ms, place.query_id, state, trouble=trouble)
    return QueryStatus(checkpoint, at_ms, place.query_id, state, state.judged(at_ms))


def exit_status_of(statuses: Iterable[QueryStatus]) -> int:
    """Not working before unknown before working."""
    found = {status.exit_status for status in statuses}
    return next((each for each in (NOT_WORKING, UNKNOWN) if each in found), WORKING)


def checkpoints_below(folder: Path) -> list[str]:
    """The checkpoints that are this folder or lie in it, or in a folder of it."""
    found = [
        metadata.parent
        for pattern in ("metadata", "*/metadata", "*/*/metadata")
        for metadata in sorted(folder.glob(pattern))
        if (metadata.parent / "offsets").is_dir()
    ]
    return [str(path) for path in found[:FOUND_MAX]]
