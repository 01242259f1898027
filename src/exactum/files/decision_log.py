"""A decision log on a local or shared file system: one small JSON file for each record.

    00000000000000000042-0.json     batch 42, attempt 0; complete from the moment it exists
    floor-00000000000000000030      every batch below 30 is pruned, for ever
    .00000000000000000042-0.json.3f… .tmp   a record on its way; nobody reads it

*Create if absent* is ``link(2)``: the content is written and fsynced under a name of its own, then linked
to the slot's name, which fails if the slot is taken. A reader never sees half a record.

Why a pruned slot never becomes free again
------------------------------------------
A pruning round, for floor f: (1) create the marker ``floor-f`` and make it durable, (2) list the folder,
(3) remove every listed record below f, (4) remove every listed marker below f. ``decide`` for batch b:
(i) create the record, (ii) list the folder, (iii) read the record again. It is void if (ii) shows a
marker above b; otherwise it stands if (iii) finds it unchanged.

*Claim: a record that takes a slot freed by pruning is always found void.* The slot was freed in some
step 3, so before (i) a marker above b existed; let m be the highest one at (i). A directory listing
returns every name that is there all through it, so (ii) shows m unless m was removed before (ii) ended.
Whoever removes m does so in a step 4 of a round with a marker above m, hence made after (i), hence with a
step 2 after (i): that listing has our record, and step 3 removes it before step 4 removes m. Then
(iii) does not find it, and we look again. *A stalled old pruner is harmless:* when it wakes it only adds a
marker below the highest, and removes only records and markers below its own, which is below the highest.

The same holds for a reader: records are believed only if no marker above them is seen and they are still
there afterwards, so that nobody redelivers the void COMMIT of a zombie.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from exactum.errors import (
    CheckpointRefused,
    Fenced,
    InvariantBroken,
    OutcomeUnknown,
    SettingRefused,
    Unavailable,
)
from exactum.files.durable import make_folder, sync_folder, write_durably
from exactum.protocol.model import DecisionRecord

PRUNE_EVERY = 20
"""How many batches may pile up before ``prune`` does real work."""
REMOVED_MAX = 1_000
"""How many records one call of ``prune`` removes at most; the rest follows with the next calls."""
TEMPORARY_AGE_S = 3_600.0
"""A temporary file older than this belongs to a writer that crashed."""
RACES_MAX = 10
"""How often a record may vanish under our eyes before we give up."""

_RECORD = re.compile(r"(\d{20})-(\d+)\.json")
FLOOR = re.compile(r"floor-(\d{20})")
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})
_NO_EFFECT = frozenset({errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EDQUOT})


class FileDecisionLog:
    """The decisions of one query, in a folder of their own. See ``protocol.decision_log`` for the promises.

    The folder is made with the first record. ``prune_every`` is in batches.
    """

    def __init__(self, folder: Path, query_id: str, *, prune_every: int = PRUNE_EVERY) -> None:
        self._folder = Path(folder)
        self._query_id = query_id
        self._prune_every = prune_every
        self._floor = 0  # the highest seen; the true one may be higher, never lower
        self._pruned_below: int | None = None
        self._ready = False
        self._read_before = False

    # ---- the port ----------------------------------------------------------------------------

    def read(self, batch_id: int) -> Sequence[DecisionRecord]:
        """See the port. Costs one failed ``open`` for a batch without records.

        The first call, and each that finds records, also lists the folder: for the floor and for gaps.

        Raises:
            CheckpointRefused: the batch is pruned; or a record is of another query or a newer version.
            InvariantBroken: a record is damaged or missing.
            Unavailable: the file system failed.
        """
        for _ in range(RACES_MAX):
            records = self._probe(batch_id)
            if not records and self._read_before:
                return ()
            if records:
                # Its maker may have crashed before this: whoever acts on a record makes it durable first.
                self._sync_folder(Unavailable)
            self._refuse_pruned_or_torn(batch_id)
            if self._probe(batch_id)[: len(records)] == records:
                self._read_before = True
                return records
        raise Unavailable(f"The decision log {self._folder} changed {RACES_MAX} times while it was read.")

    def decide(self, record: DecisionRecord) -> DecisionRecord:
        """See the port. Two fsyncs, one link, one listing of the folder.

        Raises:
            Fenced: the batch is pruned.
            SettingRefused: the file system has no hard links.
            Unavailable: the file system failed, and no record was made.
            OutcomeUnknown: the file system failed, and the record may or may not stand.
        """
        self._refuse_below(self._floor, record)
        self._make_folder()
        path = self._path(record.epoch.batch_id, record.attempt)
        for _ in range(RACES_MAX):
            self._create(path, record)
            self._sync_folder(OutcomeUnknown)
            stands = self._load(path)
            self._see_floor(self._list())
            if record.epoch.batch_id < self._floor:
                if stands == record:
                    path.unlink(missing_ok=True)
                self._refuse_below(self._floor, record)
            if stands is not None and self._load(path) == stands:
                return stands
        raise OutcomeUnknown(
            f"{record.epoch}: the record {path} vanished {RACES_MAX} times. Something else removes files "
            "from the decision log: stop it, then start the query again."
        )

    def prune(self, below_batch_id: int) -> int:
        """See the port. Does real work once in ``prune_every`` batches, and a bounded amount of it.

        Raises:
            Unavailable: the file system failed; the next call goes on.
        """
        try:
            if self._pruned_below is None:
                names = self._list()
                self._see_floor(names)
                self._pruned_below = min((batch for batch, _ in slots(names)), default=below_batch_id)
            if below_batch_id - self._pruned_below < self._prune_every:
                return 0
            return self._prune_round(below_batch_id)
        except OSError as error:
            raise Unavailable(f"The decision log {self._folder} could not be pruned: {error}") from error

    def close(self) -> None:
        """Nothing is held open between calls."""

    # ---- reading -----------------------------------------------------------------------------

    def _probe(self, batch_id: int) -> tuple[DecisionRecord, ...]:
        """The records of a batch up to the first free slot."""
        records: list[DecisionRecord] = []
        while (record := self._load(self._path(batch_id, len(records)))) is not None:
            records.append(record)
        return tuple(records)

    def _load(self, path: Path) -> DecisionRecord | None:
        """The record at ``path``, or None if there is none."""
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unavailable(f"The decision record {path} could not be read: {error}") from error
        try:
            value = json.loads(text)
        except ValueError as error:
            raise InvariantBroken(_damaged(path, str(error))) from error
        if not isinstance(value, dict):
            raise InvariantBroken(_damaged(path, "it is not a JSON object"))
        record = DecisionRecord.from_json(value, str(path))
        if record.epoch.query_id != self._query_id:
            raise CheckpointRefused(
                f"The decision record {path} belongs to query {record.epoch.query_id}; this is query "
                f"{self._query_id}. Two queries share a decision log, or a checkpoint was copied: give "
                "this query a checkpoint location of its own. Nothing was written."
            )
        if self._path(record.epoch.batch_id, record.attempt) != path:
            raise InvariantBroken(_damaged(path, f"it holds attempt {record.attempt} of {record.epoch}"))
        return record

    def _refuse_pruned_or_torn(self, batch_id: int) -> None:
        """Look twice before calling a record missing: a listing is not one moment in time."""
        for look in (1, 2):
            names = self._list()
            self._see_floor(names)
            if batch_id < self._floor:
                raise CheckpointRefused(
                    f"Batch {batch_id} of query {self._query_id} is older than its decision log, which "
                    f"was pruned below batch {self._floor}. Either the checkpoint was restored from a "
                    "backup without the decision log that belongs to it: restore both from the same "
                    "moment, or start with a new checkpoint location. Or this is an old driver that woke "
                    "up: leave it stopped. Nothing was written."
                )
            taken = slots(names)
            attempts = {attempt for batch, attempt in taken if batch == batch_id}
            missing = next(a for a in range(len(attempts) + 1) if a not in attempts)
            # Nobody passes a batch without a COMMIT in it: a later batch shows that there was one.
            lost = missing < len(attempts) or (not attempts and any(b > batch_id for b, _ in taken))
            if not lost:
                return
            if look == 2:
                raise InvariantBroken(_damaged(self._path(batch_id, missing), "it is missing"))

    # ---- writing -----------------------------------------------------------------------------

    def _create(self, path: Path, record: DecisionRecord) -> None:
        """Put ``record`` in its slot unless the slot is taken."""
        temporary = self._folder / f".{path.name}.{secrets.token_hex(8)}.tmp"
        content = (json.dumps(record.to_json(), indent=2) + "\n").encode()
        try:
            try:
                write_durably(temporary, content)
            except OSError as error:
                raise Unavailable(f"{record.epoch}: the record {path} could not be written: {error}") from error
            try:
                os.link(temporary, path)
            except FileExistsError:
                pass  # taken; or ours, sent twice by a network file system: the caller reads what stands
            except OSError as error:
                self._settle_link(temporary, path, error)
        finally:
            # What cannot be removed now is removed by prune, by its age.
            with contextlib.suppress(OSError):
                temporary.unlink()

    def _settle_link(self, temporary: Path, path: Path, error: OSError) -> None:
        """A link that failed may still have been made (a lost reply). Returns if the slot is taken."""
        if error.errno in _NO_LINKS:
            raise SettingRefused(
                f"The file system of {self._folder} has no hard links ({error}), and the decision log "
                "needs them to create a record only if it is absent. Put the decision log on a local "
                "disk, on NFS, or in a database. Nothing was written."
            ) from error
        if error.errno in _NO_EFFECT:
            raise Unavailable(f"The decision record {path} could not be created: {error}") from error
        try:
            if os.stat(temporary).st_nlink > 1 or path.exists():
                return
        except OSError as again:
            error = again
        raise OutcomeUnknown(
            f"The decision record {path} may or may not have been created: {error}. Start the query again: "
            "it finds out."
        ) from error

    def _make_folder(self) -> None:
        if self._ready:
            return
        try:
            make_folder(self._folder)
            sync_folder(self._folder)
        except OSError as error:
            raise SettingRefused(
                f"The folder {self._folder} of the decision log cannot be made durable: {error}. Choose a "
                "folder that this user may write to, on a file system that can fsync folders. Nothing "
                "was written."
            ) from error
        self._ready = True

    def _sync_folder(self, failure: type[Unavailable] | type[OutcomeUnknown]) -> None:
        try:
            sync_folder(self._folder)
        except OSError as error:
            raise failure(f"The decision log {self._folder} could not be made durable: {error}") from error

    # ---- pruning -----------------------------------------------------------------------------

    def _prune_round(self, below: int) -> int:
        """One round; the order of its four steps is the proof at the top of this file."""
        if self._floor < below and self._folder.exists():
            with contextlib.suppress(FileExistsError):
                write_durably(self._folder / f"floor-{below:020d}", b"")
            sync_folder(self._folder)
        names = self._list()
        self._see_floor(names)
        # Highest attempt first: what is left of a batch has no gap.
        doomed = sorted((s for s in slots(names) if s[0] < below), key=lambda s: (s[0], -s[1]))
        for batch, attempt in doomed[:REMOVED_MAX]:
            self._path(batch, attempt).unlink(missing_ok=True)
        if len(doomed) <= REMOVED_MAX:
            self._remove_rest(names, below)
            self._pruned_below = below
        return min(len(doomed), REMOVED_MAX)

    def _remove_rest(self, names: Iterable[str], below: int) -> None:
        """Markers below ours, which no longer say anything, and what crashed writers left."""
        for name in names:
            path = self._folder / name
            if (marker := FLOOR.fullmatch(name)) and int(marker[1]) < below:
                path.unlink(missing_ok=True)
            elif name.startswith(".") and name.endswith(".tmp"):
                with contextlib.suppress(FileNotFoundError):
                    if time.time() - path.stat().st_mtime > TEMPORARY_AGE_S:
                        path.unlink()

    # ---- small steps -------------------------------------------------------------------------

    def _path(self, batch_id: int, attempt: int) -> Path:
        return self._folder / f"{batch_id:020d}-{attempt}.json"

    def _list(self) -> list[str]:
        try:
            return os.listdir(self._folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise Unavailable(f"The decision log {self._folder} could not be listed: {error}") from error

    def _see_floor(self, names: Iterable[str]) -> None:
        found = (FLOOR.fullmatch(name) for name in names if name.startswith("floor-"))
        self._floor = max([self._floor, *(int(m[1]) for m in found if m)])

    def _refuse_below(self, floor: int, record: DecisionRecord) -> None:
        if record.epoch.batch_id < floor:
            raise Fenced(
                f"{record.epoch} is long over: its decision log was pruned below batch {floor} by a newer "
                f"run. This run (incarnation {record.incarnation}) is an old driver that woke up; it "
                "stops, and what it prepared is aborted."
            )


def slots(names: Iterable[str]) -> list[tuple[int, int]]:
    return [(int(m[1]), int(m[2])) for m in map(_RECORD.fullmatch, names) if m]


def _damaged(path: Path, how: str) -> str:
    return (
        f"The decision record {path} is damaged: {how}. Restore it from a backup of the checkpoint folder; "
        "without it nobody can tell whether its epoch was committed."
    )
