"""A decision log in a folder, an object store or a database: one small file for each record.

    00000000000000000042-0.json     batch 42, attempt 0; whole from the moment it exists
    floor-00000000000000000030      every batch below 30 is pruned, for ever
    log-id                          which log this is, made before its first record

Storage owes three things: a record is created only if its name is free, a listing returns every
name that is there all through it, and it sees what was created before it began.

Why a pruned slot never becomes free again
------------------------------------------
A pruning round, for floor f: (1) create the marker ``floor-f`` and make it durable, (2) list the
names, (3) remove every listed record below f, (4) remove every listed marker below f. ``decide``
for batch b: (i) create the record, (ii) list the names, (iii) read the record again. It is void if
(ii) shows a marker above b; otherwise it stands if (iii) finds it unchanged.

*Claim: a record that takes a slot freed by pruning is always found void.* The slot was freed in
some step 3, so before (i) a marker above b existed; let m be the highest one at (i). A listing
returns every name that is there all through it, so (ii) shows m unless m was removed before (ii)
ended. Whoever removes m does so in a step 4 of a round with a marker above m, hence made after (i),
hence with a step 2 after (i): that listing has our record, and step 3 removes it before step 4
removes m. Then (iii) does not find it, and we look again. *A stalled old pruner is harmless:* when
it wakes it only adds a marker below the highest, and removes only records and markers below its
own, which is below the highest.

The same holds for a reader: records are believed only if no marker above them is seen and they are
still there afterwards, so that nobody redelivers the void COMMIT of a zombie.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Sequence

from exactum.errors import (
    CheckpointRefused,
    Fenced,
    InvariantBroken,
    OutcomeUnknown,
    SettingRefused,
    Unavailable,
)
from exactum.protocol.model import DecisionRecord
from exactum.storage.storage import SmallFiles

PRUNE_EVERY = 20
"""How many batches may pile up before ``prune`` does real work."""
REMOVED_MAX = 1_000
"""How many records one call of ``prune`` removes at most; the rest follows with the next calls."""
RACES_MAX = 10
"""How often a record may vanish under our eyes before we give up."""

_RECORD = re.compile(r"(\d{20})-(\d+)\.json")
_FLOOR = re.compile(r"floor-(\d{20})")
LOG_ID = "log-id"
HIGHEST_FLOOR = f"floor-{'9' * 20}"
"""A marker above every batch: whoever decides anything under it is fenced."""


class SlotLog:
    """The decisions of one query, one name for each, in a storage of their own, which is made with
    the first record. See ``protocol.decision_log`` for the promises.

    ``prune_every`` is in batches. ``decide`` costs one file that is created, one listing and two
    reads; the first one of a run tries before whether the storage keeps to its conditions.
    """

    def __init__(
        self, storage: SmallFiles, query_id: str, *, prune_every: int = PRUNE_EVERY
    ) -> None:
        self._storage = storage
        self._query_id = query_id
        self._prune_every = prune_every
        self._is_open = False
        self._floor = 0  # the highest seen; the true one may be higher, never lower
        self._pruned_below: int | None = None
        self._newest_read = -1

    # ---- the port ----------------------------------------------------------------------------

    def read(self, batch_id: int) -> Sequence[DecisionRecord]:
        """See the port. Costs one failed read for a batch without records.

        The first call, each that finds records, and each that looks at a batch again also list the
        names: for the floor and for gaps. A batch that was looked at before may have been decided
        and pruned by others since.

        Raises:
            CheckpointRefused: the batch is pruned; or a record is of another query or a newer
                version.
            InvariantBroken: a record is damaged or missing.
            Unavailable: the storage failed.
        """
        for _ in range(RACES_MAX):
            records = self._probe(batch_id)
            if not records and 0 <= self._newest_read < batch_id:
                self._newest_read = batch_id
                return ()
            if records:
                self._storage.sync()  # its maker may have crashed before
            self._refuse_pruned_or_torn(batch_id)
            if self._probe(batch_id)[: len(records)] == records:
                self._newest_read = max(self._newest_read, batch_id)
                return records
        raise Unavailable(
            f"The decision log {self._storage.where} changed {RACES_MAX} times while it was read."
        )

    def first_batch(self) -> int | None:
        """The lowest batch that has a record; None: there is none.

        Raises:
            Unavailable: the storage failed.
        """
        return min((batch for batch, _ in slots(self._list())), default=None)

    def last_batch(self) -> int | None:
        """The highest one. Raises as ``first_batch``."""
        return max((batch for batch, _ in slots(self._list())), default=None)

    def log_id(self) -> str | None:
        """See ``Identified``."""
        text = self._storage.read(LOG_ID)
        return None if text is None else text.decode(errors="replace").strip()

    def has_records(self, batch_id: int) -> bool:
        """Whether any record of the batch is there, whole or not.

        Raises:
            Unavailable: the storage failed.
        """
        return any(batch == batch_id for batch, _ in slots(self._list()))

    def decide(self, record: DecisionRecord) -> DecisionRecord:
        """See the port.

        Raises:
            Fenced: the batch is pruned.
            SettingRefused: the storage cannot create a record only if it is absent, or we may not
                write to it.
            Unavailable: the storage failed, and no record was made.
            OutcomeUnknown: the storage failed, and the record may or may not stand.
        """
        self._refuse_below(record)
        name = slot_name(record.epoch.batch_id, record.attempt)
        for _ in range(RACES_MAX):
            self._open()
            self._storage.create_if_absent(name, content_of(record))
            try:
                in_force = self._record_in_force(name, record)
            except (SettingRefused, Unavailable) as error:
                raise OutcomeUnknown(
                    f"{record.epoch}: the record {self._shown(name)} may stand, and could not be "
                    f"read: {error}"
                ) from error
            if in_force is not None:
                return in_force
        raise OutcomeUnknown(
            f"{record.epoch}: the record {self._shown(name)} vanished {RACES_MAX} times. Something "
            "else removes records from the decision log (a clean-up job, a lifecycle rule?): stop "
            "it, then start the query again. Or a network file system shows an old state of the "
            "folder: mount it without nocto, then start again."
        )

    def prune(self, below_batch_id: int) -> int:
        """See the port. Does real work once in ``prune_every`` batches, and a bounded amount of it.

        Raises:
            Unavailable: the storage failed; the next call goes on.
        """
        if self._pruned_below is None:
            names = self._list()
            self._see_floor(names)
            self._pruned_below = min((batch for batch, _ in slots(names)), default=below_batch_id)
        if below_batch_id - self._pruned_below < self._prune_every:
            return 0
        return self._prune_round(below_batch_id)

    def close(self) -> None:
        """See the port."""
        self._storage.close()

    # ---- reading -----------------------------------------------------------------------------

    def _probe(self, batch_id: int) -> tuple[DecisionRecord, ...]:
        """The records of a batch up to the first free slot."""
        records: list[DecisionRecord] = []
        while (record := self._load(slot_name(batch_id, len(records)))) is not None:
            records.append(record)
        return tuple(records)

    def _load(self, name: str) -> DecisionRecord | None:
        """The record under ``name``, or None if there is none."""
        text = self._storage.read(name)
        if text is None:
            return None
        try:
            value = json.loads(text)
        except ValueError as error:
            raise InvariantBroken(self._damaged(name, str(error))) from error
        if not isinstance(value, dict):
            raise InvariantBroken(self._damaged(name, "it is not a JSON object"))
        record = DecisionRecord.from_json(value, self._shown(name))
        if record.epoch.query_id != self._query_id:
            raise CheckpointRefused(
                "LOG_OTHER_QUERY",
                f"The decision record {self._shown(name)} belongs to query "
                f"{record.epoch.query_id}; this is query {self._query_id}. Two queries share a "
                "decision log, or a checkpoint was copied: give this query a checkpoint location "
                "of its own. Nothing was written.",
            )
        if slot_name(record.epoch.batch_id, record.attempt) != name:
            raise InvariantBroken(
                self._damaged(name, f"it holds attempt {record.attempt} of {record.epoch}")
            )
        return record

    def _refuse_pruned_or_torn(self, batch_id: int) -> None:
        """Look twice before calling a record missing: a listing is not one moment in time."""
        for look in (1, 2):
            names = self._list()
            self._see_floor(names)
            if batch_id < self._floor:
                over, todo = self._over()
                raise CheckpointRefused(
                    "LOG_PRUNED",
                    f"Batch {batch_id} of query {self._query_id} is older than its decision log "
                    f"{self._storage.where}, which {over}. {todo}If this is an old driver that "
                    "woke up, leave it stopped. Nothing was written.",
                )
            taken = slots(names)
            attempts = {attempt for batch, attempt in taken if batch == batch_id}
            missing = next(a for a in range(len(attempts) + 1) if a not in attempts)
            # Nobody passes a batch without a COMMIT in it: a later batch shows that there was one.
            lost = missing < len(attempts) or (not attempts and any(b > batch_id for b, _ in taken))
            if not lost:
                return
            if look == 2:
                raise InvariantBroken(self._damaged(slot_name(batch_id, missing), "it is missing"))

    # ---- deciding and pruning ------------------------------------------------------------------

    def _record_in_force(self, name: str, record: DecisionRecord) -> DecisionRecord | None:
        """The record in force under ``name``; None if it vanished. Steps (ii) and (iii) of the
        proof above.

        Raises:
            Fenced: it is void.
        """
        in_force = self._load(name)
        self._see_floor(self._list())
        if record.epoch.batch_id < self._floor:
            if in_force == record:
                self._remove([name])
            self._refuse_below(record)
        is_unchanged = in_force is not None and self._load(name) == in_force
        return in_force if is_unchanged else None

    def _prune_round(self, below: int) -> int:
        """One round; the order of its four steps is the proof at the top of this file."""
        if self._floor < below:
            self._mark(f"floor-{below:020d}")
        names = self._list()
        self._see_floor(names)
        # Highest attempt first: what is left of a batch has no gap.
        doomed = sorted((s for s in slots(names) if s[0] < below), key=lambda s: (s[0], -s[1]))
        self._remove([slot_name(*slot) for slot in doomed[:REMOVED_MAX]])
        if len(doomed) <= REMOVED_MAX:
            floors = ((name, floor_of(name)) for name in names)
            self._remove([name for name, floor in floors if floor is not None and floor < below])
            self._pruned_below = below
        return min(len(doomed), REMOVED_MAX)

    # ---- small steps -------------------------------------------------------------------------

    def _open(self) -> None:
        if not self._is_open:
            self._storage.open()
            if self._storage.read(LOG_ID) is None:
                self._storage.create_if_absent(LOG_ID, f"{secrets.token_hex(8)}\n".encode())
            self._is_open = True

    def _list(self) -> list[str]:
        return self._storage.names()

    def _mark(self, marker: str) -> None:
        self._open()
        self._storage.put(marker, b"")

    def _remove(self, names: Iterable[str]) -> None:
        """In their order."""
        for name in names:
            self._storage.delete([name])

    def _see_floor(self, names: Iterable[str]) -> None:
        found = map(floor_of, names)
        self._floor = max([self._floor, *(floor for floor in found if floor is not None)])

    def _refuse_below(self, record: DecisionRecord) -> None:
        if record.epoch.batch_id < self._floor:
            raise Fenced(
                f"{record.epoch} is long over: its decision log {self._storage.where} "
                f"{self._over()[0]}. This run (incarnation {record.incarnation}) is an old driver "
                "that woke up; it stops, and what it prepared is aborted."
            )

    def _over(self) -> tuple[str, str]:
        """Why nothing below the floor counts any more, and what to do where it is wanted."""
        if self._floor == floor_of(HIGHEST_FLOOR):
            return "is retired: the query goes on in the checkpoint that retired.json names", ""
        return (
            f"was pruned below batch {self._floor} by a newer run",
            "Restore checkpoint and log from the same moment, or start with a new checkpoint "
            "location. ",
        )

    def _shown(self, name: str) -> str:
        return f"{self._storage.where}/{name}"

    def _damaged(self, name: str, how: str) -> str:
        return (
            f"The decision record {self._shown(name)} is damaged: {how}. Restore it from a backup "
            "of the decision log; without it nobody can tell whether its epoch was committed."
        )


def slot_name(batch_id: int, attempt: int) -> str:
    return f"{batch_id:020d}-{attempt}.json"


def slots(names: Iterable[str]) -> list[tuple[int, int]]:
    """The (batch id, attempt) of every record among ``names``."""
    return [(int(m[1]), int(m[2])) for m in map(_RECORD.fullmatch, names) if m]


def floor_of(name: str) -> int | None:
    """The batch below which everything is pruned, if ``name`` is a marker that says so."""
    marker = _FLOOR.fullmatch(name)
    return int(marker[1]) if marker else None


def content_of(record: DecisionRecord) -> bytes:
    """JSON that a person can read with a pager."""
    return (json.dumps(record.to_json(), indent=2) + "\n").encode()
