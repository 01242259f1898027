"""The driver half of the file sink: verifies, publishes and removes what tasks have staged.

A file is published by moving it, so it is published once, whoever tries. What proves, days later
and after a compaction job has taken the published files, that an epoch was committed is its marker,
or the marker of a later epoch: no task of a later batch is started before an epoch is committed. A
marker is only asked about files that are neither staged nor published, so that a marker can never
keep a staged file from being published.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from exactum.errors import EpochAborted, HeuristicOutcome, InvariantBroken
from exactum.files.place import Area, FileMove, FilePlace, StagedFolder, mark_name
from exactum.files.transaction import (
    MANIFEST,
    FileTransaction,
    PartFile,
    read_manifest,
    sizes_of,
    staged_name,
)
from exactum.protocol.model import (
    CommitPermit,
    CommitReport,
    Incarnation,
    PreparedTransaction,
    Sighting,
)

T = TypeVar("T")
R = TypeVar("R")

AT_ONCE = 8
"""How many transactions are looked at at the same time."""
NAMED_MAX = 20
"""How many lost files a message names."""


@dataclass(frozen=True)
class _Found:
    """What there is of a decided transaction. ``lost`` are neither staged nor published."""

    prepared: PreparedTransaction
    moves: tuple[FileMove, ...]
    lost: tuple[str, ...]


class FileParticipant:
    """Participant of one file sink in one run of a query. Holds no state."""

    def __init__(self, place: FilePlace) -> None:
        self._place = place

    @property
    def name(self) -> str:
        return self._place.scope.participant

    def list_open(self) -> Sequence[Sighting]:
        return [Sighting(self.name, s.identity, s.incarnation) for s in self._place.stagings()]

    def list_committed(
        self, incarnations: Set[Incarnation], recent: Sequence[PreparedTransaction]
    ) -> Sequence[Sighting]:
        """See the port: none, for the marks say which batches are there."""
        return ()

    def last_batch(self, committed: Sequence[PreparedTransaction] = ()) -> int | None:
        """See ``Remembering``: by the marks. A folder that was just made where files were committed
        is one that is not mounted.
        """
        highest = self._place.highest_mark()
        if highest is None and self._were_staged_here(committed) and self._place.never_marked():
            return -1
        return highest

    def forget_batches(self) -> None:
        """See ``Remembering``."""
        self._place.forget_marks()

    def verify(self, prepared: Sequence[PreparedTransaction]) -> Sequence[PreparedTransaction]:
        """Look at each staged file from here: it is there, with the bytes that the task wrote."""
        self._each(self._check_staged, prepared)
        return prepared

    def commit(self, permit: CommitPermit, prepared: Sequence[PreparedTransaction]) -> CommitReport:
        """Publish all files, mark the batch, remove the stagings; in this order, so that a crash
        anywhere is followed by the same again. Idempotent."""
        found = self._each(self._find, prepared)
        marked = any(f.lost for f in found) and self._is_marked(permit)
        whole = [f for f in found if not f.lost or marked]
        lost = self._place.publish([m for f in whole for m in f.moves])
        if lost and not self._is_marked(permit):
            gone = {m.staging.identity for m in lost}
            whole = [f for f in whole if f.prepared.identity not in gone]
        committed = tuple(f.prepared for f in whole)
        expired = tuple(p for p in prepared if p not in committed)
        if not expired:
            self._place.mark(permit.record.epoch.batch_id, _mark_text(permit, prepared))
            # Not before the mark: a staging may hold the list of its files.
            self._each(self._place.discard, [FileTransaction.of(p).staging for p in committed])
        return CommitReport(committed, expired)

    def abort(self, transactions: Sequence[Sighting]) -> None:
        self._each(
            self._place.discard,
            [StagedFolder(Area.STAGED, t.incarnation, t.identity) for t in transactions],
        )

    def salvage(
        self, permit: CommitPermit, expired: Sequence[PreparedTransaction]
    ) -> Sequence[PreparedTransaction]:
        """There is no second copy of a staged file: stops, and says which are gone."""
        lines: list[str] = []
        for found in self._each(self._find, expired):
            transaction = FileTransaction.of(found.prepared)
            named = ", ".join(found.lost[:NAMED_MAX])
            more = f" and {len(found.lost) - NAMED_MAX} more" if len(found.lost) > NAMED_MAX else ""
            lines.append(
                f"{len(found.lost)} of {transaction.count} files ({found.prepared.rows} rows in "
                "all), staged at "
                f"{transaction.where}/{self._place.path(transaction.staging)}: "
                f"{named}{more}"
            )
        folder = f"{self._place.where}/{self._place.scope.folder}/committed"
        mark = f"{folder}/{mark_name(permit.record.epoch.batch_id)}"
        raise HeuristicOutcome(
            "FILES_MISSING",
            f"{permit.record.epoch} is decided, and files of sink {self.name!r} are neither staged "
            f"nor where readers find them at {self._place.where}. Missing: {'; '.join(lines)}. No "
            "other file of these transactions was published. Point the sink back, or restore the "
            "files. Where a compaction took them, or you wrote the rows by hand, create the empty "
            f"file {mark} and start again.",
        )

    def close(self) -> None:
        """Nothing is held open between calls."""

    # ---- small steps -------------------------------------------------------------------------

    def _were_staged_here(self, prepared: Sequence[PreparedTransaction]) -> bool:
        """A sink that was moved has its marks elsewhere, and one of this name may have had none."""
        try:
            return {FileTransaction.of(p).where for p in prepared} == {self._place.where}
        except InvariantBroken:
            return False

    def _check_staged(self, prepared: PreparedTransaction) -> None:
        transaction = FileTransaction.of(prepared)
        files = self._files(transaction)
        sizes = self._place.staged(transaction.staging)
        wrong = [n for n, size in sizes_of(files or ()).items() if sizes.get(n) != size]
        if files is None or wrong or sum(f.rows for f in files) != prepared.rows:
            first = (
                f"{wrong[0]} has {sizes.get(wrong[0])} bytes" if wrong else "its list is not there"
            )
            raise EpochAborted(
                f"The staged files of transaction {prepared.identity} of sink {self.name!r} are "
                f"not all at {self._place.where}/{self._place.path(transaction.staging)} "
                f"as the task wrote them: {first}. Do all executors write to the folder that the "
                "driver sees? Or has a newer run aborted them? Nothing was committed."
            )

    def _find(self, prepared: PreparedTransaction) -> _Found:
        """Staged first, published second: a file moves only that way, so it cannot slip through."""
        transaction = FileTransaction.of(prepared)
        files = self._files(transaction)
        if files is None:
            return _Found(prepared, (), tuple(staged_name(n) for n in range(transaction.count)))
        moves = transaction.moves(files)
        sizes = self._place.staged(transaction.staging)
        gone = [m.target for m in moves if m.name not in sizes]
        visible = self._place.storage.existing(gone)
        lost = tuple(t for t in gone if t not in visible)
        return _Found(prepared, tuple(m for m in moves if m.target not in lost), lost)

    def _files(self, transaction: FileTransaction) -> tuple[PartFile, ...] | None:
        if transaction.files is not None:
            return transaction.files
        path = self._place.path(transaction.staging, MANIFEST)
        content = self._place.storage.read(path)
        return None if content is None else read_manifest(content, f"{self._place.where}/{path}")

    def _is_marked(self, permit: CommitPermit) -> bool:
        highest = self._place.highest_mark()
        return highest is not None and highest >= permit.record.epoch.batch_id

    def _each(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        if len(items) <= 1:
            return [function(item) for item in items]
        with ThreadPoolExecutor(min(AT_ONCE, len(items)), "exactum-files") as pool:
            return list(pool.map(function, items))


def _mark_text(permit: CommitPermit, prepared: Sequence[PreparedTransaction]) -> str:
    value = {
        "batch_id": permit.record.epoch.batch_id,
        "attempt": permit.record.attempt,
        "incarnation": permit.record.incarnation,
        "transactions": len(prepared),
        "rows": sum(p.rows for p in prepared),
    }
    return json.dumps(value) + "\n"
