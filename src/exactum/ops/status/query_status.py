"""What ``exactum status`` says of one checkpoint: a value of one moment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exactum.checkpoint.query_place import QueryPlace
from exactum.checkpoint.retirement import refuse_retired
from exactum.errors import ExactumError
from exactum.monitor.checkpoint_verdict import CheckpointState, state_of
from exactum.monitor.verdict import Judgement
from exactum.monitor.window import LagSample
from exactum.monitor.words import now_ms as clock_ms
from exactum.ops import render
from exactum.ops.render import ExitStatus

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
    def exit_status(self) -> ExitStatus:
        if self.judgement is None:
            return ExitStatus.CANNOT_TELL
        is_working = self.judgement.verdict.is_working
        return ExitStatus.FINE if is_working else ExitStatus.NEEDS_PERSON

    @property
    def is_ready(self) -> bool:
        """It works, and has shown that since its start."""
        return (
            self.exit_status is ExitStatus.FINE and self.state is not None and self.state.has_begun
        )

    @property
    def name(self) -> str:
        """How people know it: its name, or its checkpoint's folder."""
        known = None if self.state is None else self.state.stats.name
        return known or Path(self.checkpoint).name or self.checkpoint

    @property
    def lag(self) -> LagSample | None:
        """As it was seen last; None where nobody has."""
        lags = () if self.state is None else self.state.stats.window.lags
        return lags[-1] if lags else None

    def to_json(self) -> dict[str, Any]:
        """Names stay what they are: others' programs read them."""
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
        return found if self.state is None else {**found, **render.plain(self._of(self.state))}

    def _of(self, state: CheckpointState) -> dict[str, Any]:
        stats = state.stats
        return {
            "guarantee": stats.guarantee,
            "heard_ms": stats.observed_ms,
            "planned": state.planned,
            "decided": state.decided,
            "completed": state.completed,
            "finished": state.finished,
            "lag": self.lag,
            "topics": stats.inputs,
            "held_upstream": list(stats.stalled.values()),
            "in_doubt": stats.in_doubt,
            "running": list(state.living),
            "last_failure": stats.last_failure,
            "troubles": list(state.troubles),
        }


def status_of(
    checkpoint: str, decision_log: str | None = None, now_ms: int | None = None
) -> QueryStatus:
    """How the query of this checkpoint is. Never raises: what cannot be told is said.

    ``now_ms``: judged as at that time, by what is on disk now; None: now.
    """
    at_ms = clock_ms() if now_ms is None else now_ms
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


def checkpoints_below(folder: Path) -> list[str]:
    """The checkpoints that are this folder or lie in it, or in a folder of it."""
    found = [
        metadata.parent
        for pattern in ("metadata", "*/metadata", "*/*/metadata")
        for metadata in sorted(folder.glob(pattern))
        if (metadata.parent / "offsets").is_dir()
    ]
    return [str(path) for path in found[:FOUND_MAX]]
