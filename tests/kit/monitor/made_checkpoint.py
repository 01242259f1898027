"""A query's folder as Spark and exactum leave it, made by hand, for commands that read one."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from exactum.checkpoint.layout import DECISIONS
from exactum.checkpoint.run_file import RunFile
from exactum.files.slot_log import SlotLog
from exactum.monitor.history import HistoryWriter
from exactum.monitor.job import read_job
from exactum.monitor.verdict import judge
from exactum.protocol.model import (
    Decision,
    DecisionRecord,
    Epoch,
    PreparedTransaction,
    new_incarnation,
)
from exactum.storage.folder import Folder
from tests.kit.monitor.facts import QUERY, Story


class Checkpoint:
    """A query's folder as Spark and exactum leave it."""

    def __init__(self, folder: Path, query_id: str = QUERY) -> None:
        self.folder = folder
        self.query_id = query_id
        for name in ("offsets", "commits"):
            (folder / name).mkdir(parents=True)
        (folder / "metadata").write_text(json.dumps({"id": query_id}))

    def spark(self, planned: int, finished: int, age_s: float = 0.0) -> Checkpoint:
        """Batches of 10 offsets, as far as Spark keeps them; the last one was begun so long ago."""
        for batch_id in range(max(0, planned - 100), planned + 1):
            ends = json.dumps({"in": {"0": 10 * (batch_id + 1)}})
            path = self.folder / "offsets" / str(batch_id)
            path.write_text(f"v1\n{{}}\n{ends}")
            begun_s = time.time() - age_s
            os.utime(path, (begun_s, begun_s))
        for batch_id in range(max(0, finished - 100), finished + 1):
            path = self.folder / "commits" / str(batch_id)
            path.write_text("v1\n{}")
            os.utime(path, (time.time() - age_s, time.time() - age_s))
        return self

    def commit(self, batch_id: int, age_s: float = 0.0) -> Checkpoint:
        """The decision log has a COMMIT of two transactions."""
        prepared = tuple(PreparedTransaction("kafka", f"t{n}", 5) for n in range(2))
        log = SlotLog(Folder(self.folder / DECISIONS), self.query_id)
        log.decide(
            DecisionRecord(
                Epoch(self.query_id, batch_id), 0, Decision.COMMIT, new_incarnation(), prepared
            )
        )
        for path in (self.folder / DECISIONS).glob("*.json"):
            os.utime(path, (time.time() - age_s, time.time() - age_s))
        return self

    def tells(self, story: Story) -> Checkpoint:
        """The history, of a run that has left its file."""
        HistoryWriter(Folder(self.folder)).write(story.facts)
        with self.alive():
            return self

    @contextmanager
    def alive(self, incarnation: str = "") -> Iterator[None]:
        """A driver, this process, runs it."""
        file = RunFile(Folder(self.folder), incarnation or str(new_incarnation()), "1", "4")
        file.hold()
        try:
            yield
        finally:
            file.release()

    def says(self, **more: Any) -> tuple[str, str]:
        found = judge(read_job(self.folder, **more))
        return found.verdict.value, found.reason


def ago(seconds: float, query_id: str = QUERY) -> Story:
    """A story that begins so long ago."""
    return Story(round((time.time() - seconds) * 1000), query_id)
