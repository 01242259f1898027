"""One checkpoint, read again and again: its history, its run files and Spark's logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from exactum.checkpoint.layout import HISTORY
from exactum.checkpoint.query_place import QueryPlace
from exactum.checkpoint.run_file import RecordedRun, living
from exactum.errors import ExactumError
from exactum.monitor.query_stats import InDoubt
from exactum.ops.dashboard.chronicle import ACKNOWLEDGED, Chronicle
from exactum.ops.dashboard.history_tail import HistoryTail
from exactum.ops.dashboard.picture import QueryPicture, picture_of
from exactum.protocol.model import rows_of
from exactum.protocol.resolve import standing_commit

T = TypeVar("T")

DOUBT_AFTER_MS = 5_000
DOUBT_AGAIN_MS = 5_000
"""How often the decision log is asked about a batch that stays unfinished."""


class CheckpointWatch:
    """Used by one thread at a time. It keeps what it has seen, also when the folder goes."""

    def __init__(self, folder: Path, decision_log: str | None = None) -> None:
        self.folder = folder
        self._decision_log = decision_log
        self._place: QueryPlace | None = None
        self._chronicle = Chronicle("")
        self._tail = HistoryTail(folder)
        self._living: tuple[RecordedRun, ...] | None = None
        self._planned: int | None = None
        self._finished: int | None = None
        self._in_doubt: InDoubt | None = None
        self._looked_at: tuple[int | None, int] = (None, 0)
        self._troubles: list[str] = []

    @property
    def query_id(self) -> str | None:
        """None until a query has begun there."""
        return self._place.query_id if self._place is not None else None

    def refresh(self, now_ms: int) -> None:
        """Read what is new. Never raises: what could not be read is a trouble of the picture."""
        self._troubles = []
        place = self._read(lambda: QueryPlace.of(self.folder, self._decision_log))
        if place is None:
            self._living = None if not self.folder.is_dir() else ()
            return
        if self._place is None or self._place.query_id != place.query_id:
            self._chronicle = Chronicle(place.query_id)
            self._tail = HistoryTail(self.folder)
        self._place = place
        self._read(lambda: self._tail.added(self._chronicle.hear, now_ms))
        self._read(lambda: self._tail.added_minutes(self._chronicle.hear_minute))
        self._planned = self._read(place.planned)
        self._finished = self._read(place.finished)
        found = self._read(lambda: living(self.folder))
        self._living = None if found is None else tuple(found)
        self._look_for_doubt(place, now_ms)
        self._say_what_is_missing()

    def picture(self, key: str, now_ms: int) -> QueryPicture:
        """What was read last."""
        return picture_of(
            self._chronicle,
            key,
            now_ms,
            in_doubt=self._in_doubt,
            place=self._place,
            folder=str(self.folder),
            living=self._living,
            planned=self._planned,
            finished=self._finished,
            troubles=tuple(self._troubles),
        )

    def plots(self, now_ms: int, *, days: bool) -> Mapping[str, Any]:
        """See ``Series``."""
        series = self._chronicle.series
        return series.days(now_ms) if days else series.hour(now_ms)

    def _read(self, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except (OSError, ExactumError) as error:
            said = str(error)
            if said not in self._troubles:
                self._troubles.append(said)
            return None

    def _look_for_doubt(self, place: QueryPlace, now_ms: int) -> None:
        """The history has no decisions: ask the log about a batch that stays unfinished."""
        batch_id = self._planned
        is_open = batch_id is not None and batch_id != self._finished
        if batch_id is None or not is_open or self._is_acknowledged(batch_id):
            self._in_doubt, self._looked_at = None, (None, 0)
            return
        if self._looked_at[0] != batch_id:
            # A living driver is past this in a moment; nobody else is.
            self._looked_at = batch_id, now_ms + (DOUBT_AFTER_MS if self._living else 0)
            self._in_doubt = None
        if now_ms >= self._looked_at[1]:
            self._looked_at = batch_id, now_ms + DOUBT_AGAIN_MS
            self._in_doubt = self._read(lambda: _decided(place, batch_id))

    def _is_acknowledged(self, batch_id: int) -> bool:
        lines = self._chronicle.batch(batch_id)
        return any(line.outcome in ACKNOWLEDGED for line in lines)

    def _say_what_is_missing(self) -> None:
        if not (self.folder / HISTORY).is_dir():
            place = self.folder / HISTORY
            self._troubles.append(
                f"The history {place} is gone. What is shown of the past was read before."
                if self._chronicle.began_ms is not None
                else f"There is no history at {place}: plots and past micro-batches are missing. "
                "An exactly-once query writes it, unless spark.exactum.history.enabled is false."
            )
        malformed = self._tail.unreadable + sum(self._chronicle.malformed.values())
        if malformed:
            self._troubles.append(
                f"{malformed:,} lines of the history could not be read and are not shown "
                "(half a line after a crash, or a damaged disk)."
            )


def _decided(place: QueryPlace, batch_id: int) -> InDoubt | None:
    """The batch, where a COMMIT of it stands."""
    log = place.open_log()
    try:
        record = standing_commit(log.read(batch_id))
    finally:
        log.close()
    if record is None:
        return None
    since_ms = (place.folder / "offsets" / str(batch_id)).stat().st_mtime_ns // 1_000_000
    return InDoubt(batch_id, since_ms, len(record.prepared), rows_of(record.prepared))
