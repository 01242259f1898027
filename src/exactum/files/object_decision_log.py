"""A decision log in an object store: one small object for each record, created by a conditional put.

    <folder>/<query id>/00000000000000000042-0.json     batch 42, attempt 0
    <folder>/<query id>/floor-00000000000000000030      every batch below 30 is pruned, for ever

*Create if absent* is a put with ``If-None-Match: *`` (S3), ``ifGenerationMatch=0`` (GCS) or the like, which obstore
calls mode ``create``. An object is whole when it appears.

That a slot emptied by pruning never becomes free again is proved in ``decision_log``, and the proof asks two things of
a listing that object stores give as well: it returns every name that is there all through it, and it sees what was
written before it began. S3 (since December 2020), GCS, Azure and MinIO promise both; a listing in several pages goes in
the order of names, and each page is up to date when it is made. A store with eventual listings cannot be used.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from exactum.errors import (
    CheckpointRefused,
    Fenced,
    InvariantBroken,
    OutcomeUnknown,
    SettingRefused,
    Unavailable,
)
from exactum.files.decision_log import FLOOR, PRUNE_EVERY, RACES_MAX, REMOVED_MAX, slots
from exactum.files.object_store import (
    FORBIDDEN,
    STORE_ERRORS,
    ObjectLocation,
    answering,
    brief,
    get,
    obstore,
    remove,
    sizes,
)
from exactum.protocol.model import DecisionRecord


class ObjectDecisionLog:
    """The decisions of one query, below a folder of their own. See ``protocol.decision_log`` for the promises.

    Args:
        url: of a prefix in an object store (``s3://bucket/decisions``); the query's id is added to it.
        query_id: whose decisions these are.
        store: an obstore store whose root is that prefix, a mapping of obstore's settings for the URL, or None.
        prune_every: how many batches may pile up before ``prune`` does real work.

    Raises:
        SettingRefused: obstore does not take the URL or a setting.
    """

    def __init__(self, url: str, query_id: str, *, store: Any = None, prune_every: int = PRUNE_EVERY) -> None:
        self._location = ObjectLocation.of(url, store)
        self._store = self._location.store
        self._query_id = query_id
        self._prune_every = prune_every
        self._floor = 0  # the highest seen; the true one may be higher, never lower
        self._pruned_below: int | None = None
        self._read_before = False

    # ---- the port ----------------------------------------------------------------------------

    def read(self, batch_id: int) -> Sequence[DecisionRecord]:
        """See the port. Costs one failed get for a batch without records.

        The first call, and each that finds records, also lists the folder: for the floor and for gaps.

        Raises:
            CheckpointRefused: the batch is pruned; or a record is of another query or a newer version.
            InvariantBroken: a record is damaged or missing.
            Unavailable: the store did not answer.
        """
        for _ in range(RACES_MAX):
            records = self._probe(batch_id)
            if not records and self._read_before:
                return ()
            self._refuse_pruned_or_torn(batch_id)
            if self._probe(batch_id)[: len(records)] == records:
                self._read_before = True
                return records
        raise Unavailable(f"The decision log {self._where} changed {RACES_MAX} times while it was read.")

    def decide(self, record: DecisionRecord) -> DecisionRecord:
        """See the port. One conditional put, two gets, one listing.

        Raises:
            Fenced: the batch is pruned.
            SettingRefused: the store has no conditional put, or the user may not write.
            Unavailable: the store did not answer, and no record was made.
            OutcomeUnknown: the store did not answer, and the record may or may not stand.
        """
        self._refuse_below(record)
        path = self._path(record.epoch.batch_id, record.attempt)
        for _ in range(RACES_MAX):
            self._create(path, record)
            try:
                stands = self._load(path)
                self._see_floor(self._list())
                if record.epoch.batch_id < self._floor:
                    if stands == record:
                        self._remove([path])
                    self._refuse_below(record)
                if stands is not None and self._load(path) == stands:
                    return stands
            except Unavailable as error:
                raise OutcomeUnknown(
                    f"{record.epoch}: the record {path} may stand, and could not be read: {error}"
                ) from error
        raise OutcomeUnknown(
            f"{record.epoch}: the record {path} of {self._where} vanished {RACES_MAX} times. Something else removes "
            "objects from the decision log (a lifecycle rule?): stop it, then start the query again."
        )

    def prune(self, below_batch_id: int) -> int:
        """See the port. Does real work once in ``prune_every`` batches, and a bounded amount of it.

        Raises:
            Unavailable: the store did not answer; the next call goes on.
        """
        if self._pruned_below is None:
            names = self._list()
            self._see_floor(names)
            self._pruned_below = min((batch for batch, _ in slots(names)), default=below_batch_id)
        if below_batch_id - self._pruned_below < self._prune_every:
            return 0
        return self._prune_round(below_batch_id)

    def close(self) -> None:
        """Nothing is held open between calls."""

    # ---- reading -----------------------------------------------------------------------------

    def _probe(self, batch_id: int) -> tuple[DecisionRecord, ...]:
        """The records of a batch up to the first free slot."""
        records: list[DecisionRecord] = []
        while (record := self._load(self._path(batch_id, len(records)))) is not None:
            records.append(record)
        return tuple(records)

    def _load(self, path: str) -> DecisionRecord | None:
        with answering(self._where, "could not be read"):
            text = get(self._store, path)
        if text is None:
            return None
        try:
            value = json.loads(text)
        except ValueError as error:
            raise InvariantBroken(self._damaged(path, str(error))) from error
        if not isinstance(value, dict):
            raise InvariantBroken(self._damaged(path, "it is not a JSON object"))
        record = DecisionRecord.from_json(value, f"{self._where}/{path}")
        if record.epoch.query_id != self._query_id:
            raise CheckpointRefused(
                f"The decision record {self._where}/{path} belongs to query {record.epoch.query_id}; this is query "
                f"{self._query_id}. A decision log was copied: give this query a place of its own. Nothing was written."
            )
        if self._path(record.epoch.batch_id, record.attempt) != path:
            raise InvariantBroken(self._damaged(path, f"it holds attempt {record.attempt} of {record.epoch}"))
        return record

    def _refuse_pruned_or_torn(self, batch_id: int) -> None:
        """Look twice before calling a record missing: a listing is not one moment in time."""
        for look in (1, 2):
            names = self._list()
            self._see_floor(names)
            if batch_id < self._floor:
                raise CheckpointRefused(
                    f"Batch {batch_id} of query {self._query_id} is older than its decision log {self._where}, which "
                    f"was pruned below batch {self._floor}. Either the checkpoint was restored from a backup: restore "
                    "the decision log of the same moment, or start with a new checkpoint location. Or this is an old "
                    "driver that woke up: leave it stopped. Nothing was written."
                )
            taken = slots(names)
            attempts = {attempt for batch, attempt in taken if batch == batch_id}
            missing = next(a for a in range(len(attempts) + 1) if a not in attempts)
            # Nobody passes a batch without a COMMIT in it: a later batch shows that there was one.
            lost = missing < len(attempts) or (not attempts and any(b > batch_id for b, _ in taken))
            if not lost:
                return
            if look == 2:
                raise InvariantBroken(self._damaged(self._path(batch_id, missing), "it is missing"))

    # ---- writing -----------------------------------------------------------------------------

    def _create(self, path: str, record: DecisionRecord) -> None:
        """Put ``record`` in its slot unless the slot is taken."""
        content = (json.dumps(record.to_json(), indent=2) + "\n").encode()
        try:
            obstore.put(self._store, path, content, mode="create", use_multipart=False)
        except obstore.exceptions.AlreadyExistsError:
            pass  # taken; or ours, sent twice by the client: the caller reads what stands
        except FORBIDDEN as error:
            raise SettingRefused(
                f"The decision log {self._where} may not be written with these credentials: {brief(error)}. Grant "
                "put, get, list and delete below it."
            ) from error
        except (obstore.exceptions.NotSupportedError, NotImplementedError) as error:
            raise SettingRefused(
                f"The object store {self._where} has no conditional put ({brief(error)}), and the decision log needs "
                "it to create a record only if it is absent. Put the decision log into another store, on a shared "
                "disk or into a database. Nothing was written."
            ) from error
        except STORE_ERRORS as error:
            self._settle(path, error)

    def _settle(self, path: str, error: BaseException) -> None:
        """A put that failed may still arrive. Returns if the slot is taken by now."""
        try:
            if self._load(path) is not None:
                return
        except Unavailable:
            pass
        raise OutcomeUnknown(
            f"The decision record {self._where}/{path} may or may not have been created: {brief(error)}. Start the "
            "query again: it finds out."
        ) from error

    # ---- pruning -----------------------------------------------------------------------------

    def _prune_round(self, below: int) -> int:
        """One round; the order of its four steps is the proof in ``decision_log``."""
        if self._floor < below:
            with answering(self._where, "could not be pruned"):
                obstore.put(self._store, f"{self._query_id}/floor-{below:020d}", b"")
        names = self._list()
        self._see_floor(names)
        # Highest attempt first: what is left of a batch has no gap.
        doomed = sorted((s for s in slots(names) if s[0] < below), key=lambda s: (s[0], -s[1]))
        for batch, attempt in doomed[:REMOVED_MAX]:
            self._remove([self._path(batch, attempt)])
        if len(doomed) <= REMOVED_MAX:
            floors = (n for n in names if (marker := FLOOR.fullmatch(n)) and int(marker[1]) < below)
            self._remove([f"{self._query_id}/{name}" for name in floors])
            self._pruned_below = below
        return min(len(doomed), REMOVED_MAX)

    # ---- small steps -------------------------------------------------------------------------

    @property
    def _where(self) -> str:
        return f"{self._location.where}/{self._query_id}"

    def _path(self, batch_id: int, attempt: int) -> str:
        return f"{self._query_id}/{batch_id:020d}-{attempt}.json"

    def _list(self) -> list[str]:
        with answering(self._where, "could not be listed"):
            return list(sizes(self._store, self._query_id))

    def _remove(self, paths: list[str]) -> None:
        with answering(self._where, "could not be cleaned up"):
            remove(self._store, paths)

    def _see_floor(self, names: Iterable[str]) -> None:
        found = (FLOOR.fullmatch(name) for name in names if name.startswith("floor-"))
        self._floor = max([self._floor, *(int(m[1]) for m in found if m)])

    def _refuse_below(self, record: DecisionRecord) -> None:
        if record.epoch.batch_id < self._floor:
            raise Fenced(
                f"{record.epoch} is long over: its decision log {self._where} was pruned below batch {self._floor} by "
                f"a newer run. This run (incarnation {record.incarnation}) is an old driver that woke up; it stops, "
                "and what it prepared is aborted."
            )

    def _damaged(self, path: str, how: str) -> str:
        return (
            f"The decision record {self._where}/{path} is damaged: {how}. Restore it from a backup; without it nobody "
            "can tell whether its epoch was committed."
        )
