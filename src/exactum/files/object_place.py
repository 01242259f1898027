"""A prefix in an object store as the place of files.

Objects appear whole or not at all, and there is no rename: a task uploads under a staging name, and
the commit copies on the server, only if the target is absent where the store can do that (S3
cannot), and then removes the staged object. Copying is repeatable in any case: the target's name
holds the transaction's identity, and its content is that of the one staged object, which never
changes. The store must list and read what was written just before (S3, GCS, Azure, MinIO do).
"""

from __future__ import annotations

import errno
import io
import secrets
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from exactum.errors import HeuristicOutcome, SettingRefused
from exactum.files.object_store import (
    STORE_ERRORS,
    ObjectLocation,
    answering,
    exists,
    get,
    obstore,
    remove,
    sizes,
)
from exactum.files.place import (
    IDENTITY,
    INCARNATION,
    MARK,
    MARKS_KEPT,
    NAME_BYTES_MAX,
    OWNERS,
    PLAIN_AGE_S,
    TEMPORARY,
    TEMPORARY_AGE_S,
    Area,
    FileMove,
    FileScope,
    NameLimits,
    Staging,
    mark_name,
    owned,
)
from exactum.protocol.model import Incarnation

OPEN_FILES_MAX = 16
UPLOAD_BUFFER_BYTES = 8 * 1024 * 1024
"""What one open file holds in memory before it becomes an upload in parts."""
UPLOADS_AT_ONCE = 4
COPIES_AT_ONCE = 16
KEY_BYTES_MAX = 1024
"""Longest key of an object, with the prefix (S3, GCS, Azure)."""


@dataclass(frozen=True)
class ObjectPlace:
    """``location``'s store has the place as its root."""

    location: ObjectLocation
    scope: FileScope

    @property
    def where(self) -> str:
        return self.location.where

    @property
    def open_files_max(self) -> int:
        return OPEN_FILES_MAX

    def room(self) -> str:
        return "an object store; look at its quota, its rights and the network"

    @property
    def _store(self) -> Any:
        return self.location.store

    # ---- driver ------------------------------------------------------------------------------

    def open(self, area: Area) -> NameLimits:
        limits = NameLimits.of(NAME_BYTES_MAX, KEY_BYTES_MAX - self._prefix_bytes(), self.where)
        with answering(self.where, "could not be opened"):
            self._probe()
        with answering(self.where, "could not be tidied up"):
            for owner in OWNERS:
                if any(chunk for chunk in obstore.list(self._store, owner, chunk_size=1)):
                    raise SettingRefused("FILES_OWNED", owned(self.where, owner))
            self._remove_old_plain()
        return limits

    def stagings(self) -> Sequence[Staging]:
        with answering(self.where, "could not be listed"):
            return sorted(self._stagings(Area.STAGED), key=lambda s: (s.incarnation, s.identity))

    def staged(self, staging: Staging) -> Mapping[str, int]:
        with answering(self.where, "could not be listed"):
            return {
                name: int(m["size"])
                for name, m in sizes(self._store, staging.folder(self.scope)).items()
            }

    def written_ms(self, staging: Staging) -> int | None:
        with answering(self.where, "could not be listed"):
            found = sizes(self._store, staging.folder(self.scope)).values()
            times = [int(meta["last_modified"].timestamp() * 1000) for meta in found]
            return max(times, default=None)

    def read_staged(self, staging: Staging, name: str) -> bytes | None:
        with answering(self.where, "could not be read"):
            return get(self._store, f"{staging.folder(self.scope)}/{name}")

    def visible(self, targets: Sequence[str]) -> set[str]:
        with answering(self.where, "could not be read"):
            return {
                t
                for t, there in zip(targets, self._each(self._exists, targets), strict=True)
                if there
            }

    def publish(self, moves: Sequence[FileMove]) -> Sequence[FileMove]:
        with answering(self.where, "could not copy the objects of a decided epoch"):
            arrived = self._each(self._copy, moves)
            remove(
                self._store,
                [self._staged(m) for m, there in zip(moves, arrived, strict=True) if there],
            )
            return [m for m, there in zip(moves, arrived, strict=True) if not there]

    def mark(self, batch_id: int, text: str) -> None:
        with answering(self.where, "could not be marked"):
            folder = f"{self.scope.folder}/committed"
            obstore.put(self._store, f"{folder}/{mark_name(batch_id)}", text.encode())
            remove(
                self._store,
                [f"{folder}/{mark_name(m)}" for m in sorted(self._marks())[:-MARKS_KEPT]],
            )

    def highest_mark(self) -> int | None:
        with answering(self.where, "could not be read"):
            return max(self._marks(), default=None)

    def forget_marks(self) -> None:
        with answering(self.where, "could not be cleaned up"):
            folder = f"{self.scope.folder}/committed"
            remove(self._store, [f"{folder}/{mark_name(m)}" for m in sorted(self._marks())])

    def never_marked(self) -> bool:
        """No: a bucket is not mounted, so it cannot be missing."""
        return False

    def discard(self, staging: Staging) -> None:
        with answering(self.where, "could not be cleaned up"):
            folder = staging.folder(self.scope)
            remove(self._store, [f"{folder}/{name}" for name in sizes(self._store, folder)])

    # ---- task --------------------------------------------------------------------------------

    def begin(self, staging: Staging) -> None:
        """Nothing to make: a prefix is there when an object is."""

    def create(self, staging: Staging, name: str) -> ObjectFile:
        return ObjectFile(self._store, f"{staging.folder(self.scope)}/{name}")

    def seal(self, staging: Staging, sizes: Mapping[str, int]) -> None:
        found = self.staged(staging)
        for name, size in sizes.items():
            if found.get(name) != size:
                raise FileNotFoundError(
                    errno.ENOENT, f"has {found.get(name)} instead of {size} bytes", name
                )

    def write_staged(self, staging: Staging, name: str, content: bytes) -> None:
        with _as_os_error():
            obstore.put(self._store, f"{staging.folder(self.scope)}/{name}", content)

    # ---- small steps -------------------------------------------------------------------------

    def _copy(self, move: FileMove) -> bool:
        """True when the object is at its target, whoever brought it there."""
        staged = self._staged(move)
        try:
            try:
                obstore.copy(self._store, staged, move.target, overwrite=False)
            except obstore.exceptions.NotSupportedError:  # S3: the same bytes again
                obstore.copy(self._store, staged, move.target)
        except FileNotFoundError:
            return self._exists(move.target)
        except obstore.exceptions.AlreadyExistsError:
            self._refuse_foreign(staged, move.target)
        return True

    def _refuse_foreign(self, staged: str, target: str) -> None:
        try:
            there, wanted = (obstore.head(self._store, path)["size"] for path in (target, staged))
        except FileNotFoundError:
            return  # the one that copied it has removed the staged one meanwhile
        if there != wanted:
            raise HeuristicOutcome(
                "FILE_REPLACED",
                f"The object {target} of {self.where} has {there} bytes, and {staged}, which "
                f"belongs to a decided epoch under that very name, has {wanted}. Something else "
                "has written it: move it away and start again.",
            )

    def _prefix_bytes(self) -> int:
        """Of what stands before each path in the store's keys."""
        own = str(getattr(self._store, "prefix", None) or "")
        return max(len(own.encode()), len(urlsplit(self.where).path.encode())) + 1

    def _exists(self, path: str) -> bool:
        return exists(self._store, path)

    def _staged(self, move: FileMove) -> str:
        return f"{move.staging.folder(self.scope)}/{move.name}"

    def _stagings(self, area: Area) -> dict[Staging, float]:
        """Each staging that has an object, and when its youngest one was written."""
        found: dict[Staging, float] = {}
        for path, meta in sizes(self._store, f"{self.scope.folder}/{area.value}").items():
            incarnation, _, rest = path.partition("/")
            identity = rest.partition("/")[0]
            if INCARNATION.fullmatch(incarnation) and IDENTITY.fullmatch(identity):
                staging = Staging(area, Incarnation(incarnation), identity)
                found[staging] = max(found.get(staging, 0.0), meta["last_modified"].timestamp())
        return found

    def _remove_old_plain(self) -> None:
        for staging, written_s in self._stagings(Area.PLAIN).items():
            if time.time() - written_s > PLAIN_AGE_S:
                self.discard(staging)

    def _marks(self) -> list[int]:
        return [
            int(n)
            for n in sizes(self._store, f"{self.scope.folder}/committed")
            if MARK.fullmatch(n)
        ]

    def _probe(self) -> None:
        """Do once what every commit does: put, list, copy, remove."""
        name = f"{TEMPORARY}{secrets.token_hex(8)}"
        staged, target = f"{self.scope.folder}/{name}", f"{self.scope.folder}/scope"
        obstore.put(self._store, staged, self.scope.text().encode())
        try:
            listed = sizes(self._store, self.scope.folder)
            if name not in listed:
                raise SettingRefused(
                    "STORE_LISTING",
                    f"FileSink({self.where!r}): an object that was just written is not listed. "
                    "exactum needs a store whose listings are up to date. Nothing was written.",
                )
            obstore.copy(self._store, staged, target)
        finally:
            remove(self._store, [staged])
        for old, meta in listed.items():
            if (
                old.startswith(TEMPORARY)
                and time.time() - meta["last_modified"].timestamp() > TEMPORARY_AGE_S
            ):
                remove(self._store, [f"{self.scope.folder}/{old}"])

    def _each(self, function: Any, items: Sequence[Any]) -> list[Any]:
        if len(items) <= 1:
            return [function(item) for item in items]
        with ThreadPoolExecutor(min(COPIES_AT_ONCE, len(items)), "exactum-objects") as pool:
            return list(pool.map(function, items))


class ObjectFile(io.RawIOBase):
    """An upload that becomes an object only by ``finish``. Arrow writes into ``stream``."""

    def __init__(self, store: Any, path: str) -> None:
        super().__init__()
        self._open = partial(
            obstore.open_writer,
            store,
            path,
            buffer_size=UPLOAD_BUFFER_BYTES,
            max_concurrency=UPLOADS_AT_ONCE,
        )
        self._upload: Any = None
        self._bytes = 0
        self.stream = pa.PythonFile(self, mode="w")

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        with _as_os_error():
            if self._upload is None:
                self._upload = self._open()
            content = bytes(memoryview(data))
            self._upload.write(content)
        self._bytes += len(content)
        return len(content)

    def tell(self) -> int:
        return self._bytes

    def position(self) -> int:
        return self._bytes

    def finish(self) -> int:
        with _as_os_error():
            if self._upload is None:
                self._upload = self._open()
            self._upload.close()
        self._upload = None
        return self._bytes

    def discard(self) -> None:
        """The upload is dropped without its end, so no object appears."""
        self._upload = None


class _as_os_error:  # noqa: N801  (a context manager, read as a verb)
    """Turns the errors of a store into OSError, which the writer explains."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, STORE_ERRORS) and not isinstance(error, OSError):
            raise OSError(
                errno.EIO, f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            ) from error
