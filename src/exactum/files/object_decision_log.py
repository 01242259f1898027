"""A decision log in an object store: one small object for each record, created by a conditional
put.

    <folder>/<query id>/00000000000000000042-0.json     batch 42, attempt 0
    <folder>/<query id>/floor-00000000000000000030      every batch below 30 is pruned, for ever

*Create if absent* is a put with ``If-None-Match: *`` (S3), ``ifGenerationMatch=0`` (GCS) or the
like, which obstore calls mode ``create``. An object is whole when it appears.

What ``slot_log`` asks of a listing object stores give as well: S3 (since December 2020), GCS, Azure
and MinIO show what was written before the listing began; a listing in several pages goes in the
order of names, and each page is up to date when it is made. A store with eventual listings cannot
be used.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from exactum.errors import OutcomeUnknown, SettingRefused, Unavailable
from exactum.files.object_store import (
    STORE_ERRORS,
    ObjectLocation,
    answering,
    brief,
    get,
    obstore,
    remove,
    sizes,
)
from exactum.files.slot_log import PRUNE_EVERY, SlotLog, content_of
from exactum.protocol.model import DecisionRecord

PROBE = "probe-"
"""Begins the name of an object that is there for a moment, before the first record of a run."""
PROBES = 4
ELSEWHERE = (
    "Put the decision log into a store that keeps to them, on a shared disk or into a database. "
    "Nothing was written."
)


class ObjectDecisionLog(SlotLog):
    """The decisions of one query, below a prefix of their own. ``decide`` costs one put, two gets,
    one listing; the first one of a run tries before whether the store keeps to conditional puts.

    Args:
        url: of a prefix in an object store (``s3://bucket/decisions``); the query's id is added to
            it.
        query_id: whose decisions these are.
        store: an obstore store whose root is that prefix, a mapping of obstore's settings for the
            URL, or None.
        prune_every: how many batches may pile up before ``prune`` does real work.

    Raises:
        SettingRefused: obstore does not take the URL or a setting.
    """

    def __init__(
        self, url: str, query_id: str, *, store: Any = None, prune_every: int = PRUNE_EVERY
    ) -> None:
        super().__init__(query_id, prune_every)
        self._location = ObjectLocation.of(url, store)
        self._store = self._location.store
        self._proven = False

    @property
    def _where(self) -> str:
        return f"{self._location.where}/{self._query_id}"

    def _list(self) -> list[str]:
        with answering(self._where, "could not be listed"):
            return list(sizes(self._store, self._query_id))

    def _bytes(self, name: str) -> bytes | None:
        with answering(self._where, "could not be read"):
            return get(self._store, self._key(name))

    def _create(self, name: str, record: DecisionRecord) -> None:
        self.prove()
        try:
            self._put_if_absent(self._key(name), content_of(record))
        except STORE_ERRORS as error:
            self._settle(name, error)

    def _put_if_absent(self, key: str, content: bytes) -> bool:
        """True when it was created; False when it was there: by another, or by us, sent twice by
        the client.
        """
        try:
            obstore.put(self._store, key, content, mode="create", use_multipart=False)
            return True
        except obstore.exceptions.AlreadyExistsError:
            return False
        except (obstore.exceptions.NotSupportedError, NotImplementedError) as error:
            raise SettingRefused(
                "LOG_CONDITIONAL_PUT",
                f"The object store {self._where} has no conditional put ({brief(error)}), and the "
                f"decision log needs it to create a record only if it is absent. {ELSEWHERE}",
            ) from error

    def prove(self) -> None:
        """Before the first record: of several puts of one new key at a time one creates it, and a
        later one does not.

        A store that does not know the condition takes every put, and two drivers would both believe
        their record.

        Raises:
            SettingRefused: more than one put was taken.
        """
        if self._proven:
            return
        key = self._key(f"{PROBE}{secrets.token_hex(8)}")
        contents = [f"{number}".encode() for number in range(PROBES)]
        with answering(self._where, "could not be tried"):
            try:
                with ThreadPoolExecutor(PROBES, "exactum-probe") as pool:
                    created = list(
                        pool.map(lambda content: self._put_if_absent(key, content), contents)
                    )
                created.append(self._put_if_absent(key, b"late"))
                there = get(self._store, key)
            finally:
                remove(self._store, [key])
        # None created it: the client sent it twice, and was told so. Then the condition holds.
        if sum(created) > 1 or (
            any(created) and there != [*contents, b"late"][created.index(True)]
        ):
            raise SettingRefused(
                "LOG_CONDITIONAL_PUT",
                f"The object store {self._where} does not keep to conditional puts: {sum(created)} "
                f"of {len(created)} puts with 'If-None-Match: *' (create only if absent) on one "
                "key were taken, and one may be. Two drivers could both believe that their "
                f"decision stands. {ELSEWHERE}",
            )
        self._proven = True

    def _settle(self, name: str, error: BaseException) -> None:
        """A put that failed may still arrive. Returns if the slot is taken by now."""
        try:
            if self._load(name) is not None:
                return
        except (SettingRefused, Unavailable):
            pass
        raise OutcomeUnknown(
            f"The decision record {self._shown(name)} may or may not have been created: "
            f"{brief(error)}. Start the query again: it finds out."
        ) from error

    def _standing(self, name: str, record: DecisionRecord) -> DecisionRecord | None:
        try:
            return super()._standing(name, record)
        except (SettingRefused, Unavailable) as error:
            raise OutcomeUnknown(
                f"{record.epoch}: the record {self._shown(name)} may stand, and could not be read: "
                f"{error}"
            ) from error

    def _mark(self, marker: str) -> None:
        with answering(self._where, "could not be pruned"):
            obstore.put(self._store, self._key(marker), b"")

    def _remove(self, names: Sequence[str]) -> None:
        with answering(self._where, "could not be cleaned up"):
            for name in names:
                remove(self._store, [self._key(name)])

    def _make_durable(self) -> None:
        """An object that can be read is durable."""

    def _remove_debris(self, names: Sequence[str]) -> None:
        """A put that failed leaves nothing."""

    def _key(self, name: str) -> str:
        return f"{self._query_id}/{name}"
