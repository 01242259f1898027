"""A staged sink, whole: rows as JSON text in a SQLite file. See docs/reference/ports.md."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from dataclasses import replace

from exactum.sinks.frames import FrameReader
from exactum.sinks.sink import StagedSink
from exactum.sinks.staged import Published, PublishFailed, StagedTarget
from exactum.sinks.writer import TaskRows


class JsonRows(TaskRows):
    def write(self, batch, files):
        if batch.num_rows:
            texts = "\n".join(json.dumps(row, default=str) for row in batch.to_pylist())
            files.frames({}).write(texts.encode(), batch.num_rows)


TABLES = """
CREATE TABLE IF NOT EXISTS target (row TEXT);
CREATE TABLE IF NOT EXISTS marker (scope TEXT PRIMARY KEY, batch INTEGER, digest TEXT);
"""


def connected(path):
    database = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")  # a commit is on the disk when it returns
    return database


class SqliteTarget(StagedTarget):
    def __init__(self, path, staging):
        super().__init__(staging, path)
        self._scope = staging.scope.digest
        self._database = connected(path)

    def create_tables(self):
        self._database.executescript(TABLES)

    def _marker(self):
        query = "SELECT batch, digest FROM marker WHERE scope = ?"
        return self._database.execute(query, (self._scope,)).fetchone() or (None, "")

    def last_batch(self, committed=()):
        return self._marker()[0]

    def forget_batches(self, first=0):
        self._database.execute("DELETE FROM marker WHERE scope = ?", (self._scope,))

    def published(self, epoch):
        batch, digest = self._marker()
        if batch is None or batch < epoch.batch_id:
            return Published.MISSING
        if batch == epoch.batch_id and digest != epoch.digest:
            return Published.OTHER
        return Published.BEFORE

    def publish(self, epoch):
        try:
            return self._in_one_step(epoch, is_marked=True)
        except sqlite3.OperationalError as error:
            raise PublishFailed(str(error), is_transient=True) from error

    def deliver(self, epoch):
        self._in_one_step(epoch, is_marked=False)

    def _in_one_step(self, epoch, is_marked):
        with self._database:  # commits, or rolls back
            self._database.execute("BEGIN IMMEDIATE")
            state = self.published(epoch) if is_marked else Published.MISSING
            if state is not Published.MISSING:
                return state
            for part in epoch.parts:
                try:
                    file = self.staging.open_file(part.name.file(0))
                except FileNotFoundError:
                    self._database.execute("ROLLBACK")
                    return Published.MISSING
                with closing(file):
                    for frame, _ in FrameReader(file):
                        rows = [(text,) for text in bytes(frame).decode().split("\n")]
                        self._database.executemany("INSERT INTO target VALUES (?)", rows)
            if is_marked:
                marker = (self._scope, epoch.batch_id, epoch.digest)
                self._database.execute("INSERT OR REPLACE INTO marker VALUES (?, ?, ?)", marker)
        return Published.DONE

    def close(self):
        self._database.close()


class SqliteSink(StagedSink):
    def __init__(self, path, *, name="sqlite", rows=None):
        self.path, self.name, self.rows = path, name, rows

    def target_of(self, run, participant):
        return SqliteTarget(self.path, self.staging_of(run, participant))

    def open(self, run, participant, columns=()):
        target = self.target_of(run, participant)
        target.staging.open()
        target.create_tables()
        opened = self.open_with(run, target, JsonRows)
        return replace(opened, target=os.path.realpath(self.path))
