"""The executor half of every sink whose rows wait in staged files: one task, one file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from exactum.durable import OF_THE_SETTING
from exactum.errors import EpochAborted, SettingRefused
from exactum.protocol.model import PreparedTransaction
from exactum.protocol.sink import Rejection, TaskName, WriteOrder
from exactum.sinks.frames import FrameWriter
from exactum.sinks.staged import StagedPart
from exactum.sinks.staging import StagedName, Staging

Frames = Callable[[Mapping[str, Any]], FrameWriter]
"""The task's file; the first call begins it, with this header."""


class TaskRows(Protocol):
    """How one task's rows become frames: what a staged sink writes of its own."""

    def write(self, batch: Any, frames: Frames) -> Rejection | None:
        """See ``Writer.write``. Where no row is taken, no file is begun."""

    def finish(self, frames: Frames) -> None:
        """All rows were written: what was gathered becomes the last frames."""


class StagedWriter:
    """See ``protocol.sink.Writer``. Also under the weaker guarantees rows become visible when the
    driver brings them into the target.
    """

    def __init__(
        self,
        staging: Staging,
        order: WriteOrder,
        task: TaskName,
        rows: TaskRows,
        *,
        at: str,
        facts: Mapping[str, Any],
    ) -> None:
        """``at`` and ``facts`` go on record, see ``StagedPart``."""
        self._staging = staging
        self._name = StagedName.new(order, task)
        self._rows = rows
        self._at = at
        self._facts = facts
        self._frames: FrameWriter | None = None
        self._prepared: PreparedTransaction | None = None

    def write(self, batch: Any) -> Rejection | None:
        with self._explained():
            return self._rows.write(batch, self._begun)

    def prepare(self) -> PreparedTransaction | None:
        """See the port. Idempotent."""
        if self._prepared is None:
            with self._explained():
                self._rows.finish(self._begun)
                if self._frames is None:
                    return None
                size_bytes = self._frames.finish()
                self._staging.sync()
            self._prepared = PreparedTransaction(
                self._staging.scope.participant,
                self._name.identity,
                self._frames.rows,
                StagedPart.payload(size_bytes, self._at, self._facts),
            )
        return self._prepared

    def abort(self) -> None:
        """See the port. What this cannot remove is swept by the driver."""
        if self._prepared is not None:
            with suppress(Exception):
                self._staging.remove([self._name.identity])
        elif self._frames is not None:
            with suppress(OSError):
                self._frames.discard()
        self._frames = None

    def _begun(self, header: Mapping[str, Any]) -> FrameWriter:
        if self._frames is None:
            self._frames = FrameWriter(self._staging.create(self._name), header)
        return self._frames

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """What a failure of the storage means: nothing of the task becomes visible."""
        try:
            yield
        except OSError as error:
            what = (
                f"Task {self._name.task} of batch {self._name.batch_id} of sink "
                f"{self._staging.scope.participant!r} could not write to the staging "
                f"{self._staging.where}: {error}."
            )
            if error.errno in OF_THE_SETTING:
                raise SettingRefused(
                    "STAGING_PLACE",
                    f"{what}\nGive this user the right to write there, on the driver and on every "
                    "executor, or another place by staging=. Nothing was written to a target.",
                ) from error
            raise EpochAborted(
                f"{what} Nothing of this attempt is visible; make room, or repair what it says, "
                "and start the query again."
            ) from error
