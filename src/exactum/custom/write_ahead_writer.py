"""The executor half of a ``WriteAheadSink``: one task's rows into one file of the log, or straight
to the target.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from exactum.custom.chunks import joined
from exactum.custom.sending import RetryPolicy
from exactum.custom.transaction_name import TransactionScope
from exactum.custom.write_ahead_log import WriteAheadLog
from exactum.errors import EpochAborted, ExactumError, SettingRefused, Unavailable
from exactum.protocol.model import PreparedTransaction
from exactum.protocol.sink import Guarantee, TaskName, WriteOrder, Writer
from exactum.storage.storage import NewFile

log = logging.getLogger("exactum.custom")


class Sender(Protocol):
    """Sends one chunk; its ``key`` is the same whenever the chunk is sent again."""

    def send(self, batch: Any, key: str) -> None: ...


@dataclass(frozen=True)
class LogWriterFactory:
    """Goes to the executors. Carries no ``send``: what the driver sends with need not pickle."""

    log: WriteAheadLog
    rows_per_send: int

    def open(self, order: WriteOrder, task: TaskName) -> Writer:
        return LogWriter(self, order, task)


class LogWriter:
    """Exactly once: rows go into a file that only a recorded decision lets be sent."""

    def __init__(self, factory: LogWriterFactory, order: WriteOrder, task: TaskName) -> None:
        self._rows_per_send = factory.rows_per_send
        self._log = factory.log
        self._identity = str(self._log.scope.name(order, task))
        self._file: NewFile | None = None
        self._stream: Any = None
        self._rows = 0

    def write(self, batch: Any) -> None:
        if batch.num_rows == 0:
            return
        with self._explained():
            self._opened(batch.schema).write_batch(batch)
        self._rows += batch.num_rows

    def prepare(self) -> PreparedTransaction | None:
        if self._file is None:
            return None
        storage = self._log.storage
        with self._explained():
            self._stream.close()
            size_bytes = self._file.finish()
            storage.sync(self._identity)
            storage.sync()
        payload = {"size_bytes": size_bytes, "rows_per_send": self._rows_per_send}
        return PreparedTransaction(
            self._log.scope.participant, self._identity, self._rows, json.dumps(payload)
        )

    def abort(self) -> None:
        """Idempotent. After ``prepare`` as well: another sink's writer may have failed, so nobody
        else knows of it.
        """
        if self._file is None:
            return
        self._file.discard()
        try:
            self._log.abort(self._identity)
        except ExactumError as error:
            # The driver sweeps what is still there.
            path = self._log.rows_path(self._identity)
            log.warning("%s could not be removed by its own task: %s", path, error)

    def _opened(self, schema: Any) -> Any:
        if self._file is None:
            import pyarrow as pa

            try:
                self._log.storage.make(self._identity)
            except FileNotFoundError as error:
                raise SettingRefused(
                    "WRITE_AHEAD_FOLDER",
                    f"Sink {self._log.scope.participant!r} could not write its log: {error}. The "
                    "driver has made this folder: it is on no file system that this executor "
                    "shares with it. Give the sink a folder that all machines share. Nothing was "
                    "sent.",
                ) from error
            self._file = self._log.storage.create(self._log.rows_name(self._identity))
            self._stream = pa.ipc.new_stream(pa.PythonFile(self._file, mode="w"), schema)
        return self._stream

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (OSError, Unavailable) as error:
            failure: Unavailable | SettingRefused | OSError = error
            if isinstance(failure, OSError):
                failure = self._log.storage.failure("could not be written", failure)
            if isinstance(failure, SettingRefused):
                raise failure from error
            raise EpochAborted(
                f"Sink {self._log.scope.participant!r}: {failure} Nothing of this attempt was sent."
            ) from error


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
