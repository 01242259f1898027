"""The executor half of a ``WriteAheadSink``: one task's rows into one file of the log, or straight
to the target.
"""

from __future__ import annotations

import errno
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from exactum import durable
from exactum.custom.chunks import joined
from exactum.custom.sending import RetryPolicy
from exactum.custom.transaction_name import TransactionScope
from exactum.custom.write_ahead_log import WriteAheadLog
from exactum.durable import OF_THE_SETTING
from exactum.errors import EpochAborted, SettingRefused
from exactum.protocol.model import PreparedTransaction
from exactum.protocol.sink import Guarantee, TaskName, WriteOrder, Writer

log = logging.getLogger("exactum.custom")

NEVER = OF_THE_SETTING | {errno.EISDIR, errno.ENAMETOOLONG}
"""What does not pass by itself, unlike a full disk."""


class Sender(Protocol):
    """Sends one chunk; its ``key`` is the same whenever the chunk is sent again."""

    def send(self, batch: Any, key: str) -> None: ...


@dataclass(frozen=True)
class LogWriterFactory:
    """Goes to the executors. Carries no ``send``: what the driver sends with need not pickle."""

    folder: Path
    scope: TransactionScope
    rows_per_send: int

    def open(self, order: WriteOrder, task: TaskName) -> Writer:
        return LogWriter(self, order, task)


class LogWriter:
    """Exactly once: rows go into a file that only a recorded decision lets be sent."""

    def __init__(self, factory: LogWriterFactory, order: WriteOrder, task: TaskName) -> None:
        self._factory = factory
        self._log = WriteAheadLog(factory.folder, factory.scope)
        self._identity = str(factory.scope.name(order, task))
        self._path = self._log.rows_path(self._identity)
        self._file: Any = None
        self._stream: Any = None
        self._rows = 0

    def write(self, batch: Any) -> None:
        if batch.num_rows == 0:
            return
        try:
            self._opened(batch.schema).write_batch(batch)
        except OSError as error:
            raise self._failure(error) from error
        self._rows += batch.num_rows

    def prepare(self) -> PreparedTransaction | None:
        if self._stream is None:
            return None
        try:
            self._stream.close()
            self._file.close()
            durable.sync_file(self._path)
            size_bytes = self._path.stat().st_size
            self._log.sync()
        except OSError as error:
            raise self._failure(error) from error
        payload = {"size_bytes": size_bytes, "rows_per_send": self._factory.rows_per_send}
        return PreparedTransaction(
            self._factory.scope.participant, self._identity, self._rows, json.dumps(payload)
        )

    def abort(self) -> None:
        """Idempotent. After ``prepare`` as well: another sink's writer may have failed, so nobody
        else knows of it.
        """
        try:
            if self._file is not None:
                self._log.remove_rows(self._identity)
                self._file.close()
        except OSError as error:
            # The driver sweeps what is still there.
            log.warning("%s could not be removed by its own task: %s", self._path, error)

    def _opened(self, schema: Any) -> Any:
        if self._stream is None:
            import pyarrow as pa

            self._file = pa.OSFile(str(self._path), "wb")
            self._stream = pa.ipc.new_stream(self._file, schema)
        return self._stream

    def _failure(self, error: OSError) -> EpochAborted | SettingRefused:
        what = (
            f"Sink {self._factory.scope.participant!r} could not write its log {self._path}: "
            f"{error}."
        )
        if isinstance(error, FileNotFoundError):
            return SettingRefused(
                "WRITE_AHEAD_FOLDER",
                f"{what} The driver has made this folder: it is on no file system that this "
                "executor shares with it. Give the sink a folder that all machines share. Nothing "
                "was sent.",
            )
        if error.errno in NEVER:
            return SettingRefused(
                "WRITE_AHEAD_FOLDER",
                f"{what} Correct the folder or the rights on it. Nothing was sent.",
            )
        return EpochAborted(f"{what} The attempt is void; correct this and start the query again.")


@dataclass(frozen=True)
class DirectWriterFactory:
    """For weaker guarantees: goes to the executors with ``send`` and all."""

    sender: Sender
    scope: TransactionScope
    rows_per_send: int
    delivery: RetryPolicy

    def open(self, order: WriteOrder, task: TaskName) -> Writer:
        return DirectWriter(self, order, task)


class DirectWriter:
    """At least once, at most once: the task sends by itself; when ``prepare`` returns, all is
    acknowledged.
    """

    def __init__(self, factory: DirectWriterFactory, order: WriteOrder, task: TaskName) -> None:
        self._factory = factory
        self._identity = str(factory.scope.name(order, task))
        once = order.run.guarantee is Guarantee.AT_MOST_ONCE
        self._delivery = RetryPolicy(1, 0, 0) if once else factory.delivery
        self._pieces: list[Any] = []
        self._waiting_rows = 0
        self._sent = 0

    def write(self, batch: Any) -> None:
        while batch.num_rows:
            piece = batch.slice(0, self._factory.rows_per_send - self._waiting_rows)
            batch = batch.slice(piece.num_rows)
            self._pieces.append(piece)
            self._waiting_rows += piece.num_rows
            if self._waiting_rows == self._factory.rows_per_send:
                self._flush()

    def prepare(self) -> PreparedTransaction | None:
        if self._waiting_rows:
            self._flush()
        return None

    def abort(self) -> None:
        """What is sent cannot be taken back, and these guarantees do not promise it."""
        self._pieces, self._waiting_rows = [], 0

    def _flush(self) -> None:
        key = f"{self._identity}.{self._sent}"
        self._delivery.deliver(
            self._factory.sender.send, joined(self._pieces), key, before_each_try=lambda: None
        )
        self._pieces, self._waiting_rows, self._sent = [], 0, self._sent + 1
