"""A run of a query, as Spark Connect tells of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from exactum.checkpoint.offset_log import COMMITS, OFFSETS, highest_batch, parse, reader
from exactum.spark.live import RunningSource
from exactum.storage.folder import Folder


class ConnectRun:
    """See ``live.LiveRun``. ``session`` is that of its batches, ``folder`` its checkpoint,
    ``sources`` what the client says of its sources.
    """

    def __init__(
        self, session: SparkSession, run_id: str, folder: Path, sources: Sequence[RunningSource]
    ) -> None:
        self._session: Any = session
        self._run_id = run_id
        self._files = Folder(folder)
        self._sources = sources

    def is_active(self) -> bool:
        return self._query() is not None

    def stop(self) -> None:
        query = self._query()
        if query is not None:
            query.stop()

    def fail(self, message: str) -> None:
        """It is stopped: over Spark Connect nothing but a batch's function can fail a query."""
        self.stop()

    def failure(self) -> str | None:
        """None: an ended query is not told of any more."""
        return None

    def last_logged_batch(self) -> int | None:
        return highest_batch(self._files, COMMITS)

    def last_progress(self) -> str | None:
        query = self._query()
        report = None if query is None else query.lastProgress
        return None if report is None else json.dumps(json.loads(report.json))

    def doing(self) -> str:
        query = self._query()
        return "" if query is None else str(query.status["message"])

    def sources(self) -> Sequence[RunningSource]:
        """None where they are not as many as Spark logs offsets of: a view has more."""
        last = highest_batch(self._files, OFFSETS)
        text = None if last is None else reader(self._files)(f"offsets/{last}")
        lines = () if text is None else parse(text, self._files.where)
        return self._sources if len(lines) == len(self._sources) else ()

    def _query(self) -> Any:
        return next((q for q in self._session.streams.active if str(q.runId) == self._run_id), None)
