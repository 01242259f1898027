"""A folder of files as a staged target: what tasks have staged is moved to where readers look.

A file is moved once, whoever tries. What proves, days later and after a compaction job has taken
the files, that an epoch was published is its marker, or the marker of a later epoch: no task of a
later batch is started before an epoch is committed. The marker is the staging's note, and is made
last. It is only asked about files that are neither staged nor where readers look, so that a marker
can never keep a staged file from its readers.
"""

from __future__ import annotations

from collections.abc import Sequence

from exactum.durable import stays_below
from exactum.files.place import NEW
from exactum.protocol.model import PreparedTransaction, of_another_sink
from exactum.sinks.staged import (
    MovingTarget,
    Published,
    StagedEpoch,
    StagedPart,
    missing,
)
from exactum.sinks.staging import Staging


class FileTarget(MovingTarget):
    """See the base classes."""

    def __init__(self, staging: Staging) -> None:
        self._place = staging.storage
        self._may_be_new = self._place.may_be_unmounted
        super().__init__(staging, self._place.where)

    def last_batch(self, committed: Sequence[PreparedTransaction] = ()) -> int | None:
        """A folder that was just made where files were committed is one that is not mounted."""
        highest = self.staging.published()
        if highest is None and self._staged_here(committed):
            return -1 if self._place.existing([self._new]) else None
        return highest

    def published(self, epoch: StagedEpoch) -> Published:
        names = missing(epoch, self.staging.listing())
        return super().published(epoch) if self.lost(epoch, names) else Published.BEFORE

    def place_of(self, part: StagedPart, number: int) -> str:
        """
        Raises:
            InvariantBroken: a record names a file that is not below the place.
        """
        extension, folder = part.facts.get("extension"), part.files[number].facts.get("folder", "")
        name = f"part-{part.name.identity}-{number}.{extension}"
        target = f"{folder}/{name}" if folder else name
        if extension is None or "/" in extension or not stays_below(target):
            why = f"has the file {target!r}, which is none below the sink's folder"
            raise of_another_sink(part.prepared, why)
        return target

    def hold(self, epoch: StagedEpoch) -> Published:
        """There is a way for each move."""
        self._place.make_way(self._moves(epoch).values())
        return Published.DONE

    def publish(self, epoch: StagedEpoch) -> Published:
        if not self._move(epoch) and super().published(epoch) is Published.MISSING:
            return Published.MISSING
        self.staging.note_published(epoch.batch_id)
        if self._may_be_new:
            self._place.delete([self._new])
            self._may_be_new = False
        return Published.DONE

    def deliver(self, epoch: StagedEpoch) -> None:
        if not self._move(epoch):
            raise FileNotFoundError(self.staging.where)

    # ---- small steps -------------------------------------------------------------------------

    @property
    def _new(self) -> str:
        return f"{self.staging.folder}/{NEW}"
