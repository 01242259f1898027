"""A prefix in an object store as a storage, through obstore. Needs the extra ``exactum[objects]``.

Objects appear whole or not at all. *Create if absent* is a put with ``If-None-Match: *`` (S3),
``ifGenerationMatch=0`` (GCS) or the like. A move is a copy on the server, only if the target is
absent where the store can do that (S3 cannot), and then a deletion: repeatable in any case, for a
source of a name never changes. The store must list and read what was written just before, as S3
(since December 2020), GCS, Azure and MinIO do; a listing in several pages goes in the order of
names, and each page is up to date when it is made.
"""

from __future__ import annotations

import contextlib
import errno
import io
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from exactum.errors import HeuristicOutcome, OutcomeUnknown, SettingRefused, Unavailable
from exactum.packages import not_installed
from exactum.storage.settings import lacks_credentials, store_settings
from exactum.storage.storage import Entry, NewFile

try:
    import obstore as obstore
    import obstore.store
    from obstore.exceptions import (
        AlreadyExistsError,
        BaseError,
        NotSupportedError,
        PermissionDeniedError,
        UnauthenticatedError,
    )
except ImportError as _error:
    raise SettingRefused(
        "PACKAGE_MISSING", not_installed("Object stores need", "obstore", "objects")
    ) from _error

T = TypeVar("T")
R = TypeVar("R")

UPLOAD_BUFFER_BYTES = 8 * 1024 * 1024
"""What one new file holds in memory before it becomes an upload in parts."""
UPLOADS_AT_ONCE = 4
READ_BUFFER_BYTES = 8 * 1024 * 1024
REQUESTS_AT_ONCE = 16
COPY_PAUSES_S = (0.05, 0.1, 0.2, 0.5, *(1.0,) * 30)
PROBE = "probe-"
"""Begins the name of an object that is there for a moment, when a storage is opened."""
PROBES = 4

_STATUS = re.compile(r"status code: (\d+ [\w ]+)")
_CODE = re.compile(r"<Code>(\w+)</Code>")
STORE_ERRORS = (BaseError, OSError, ValueError)
"""What obstore raises; a missing object is FileNotFoundError."""
FORBIDDEN = (PermissionDeniedError, UnauthenticatedError)
LASTING = ("builder error", "status code: 401", "status code: 403")
"""What a store or its client says of an address that never works: http:// without allow_http, a
listing that is not allowed.
"""
NO_BUCKET = ("NoSuchBucket", "InvalidBucketName", "ContainerNotFound")


class _Cause(NamedTuple):
    of: tuple[str, ...]
    code: str
    do: str


CAUSES = (
    _Cause(
        of=NO_BUCKET,
        code="STORE_BUCKET",
        do="There is no such bucket. Make it, or correct the URL.",
    ),
    _Cause(
        of=("AuthorizationHeaderMalformed", "PermanentRedirect", "redirect without LOCATION"),
        code="STORE_REGION",
        do="It lies in another region than it is asked in. Give the region: "
        "spark.hadoop.fs.s3a.endpoint.region, AWS_REGION, or store={'region': ...}.",
    ),
    _Cause(
        of=("RequestTimeTooSkewed", "RequestTimeTooLarge"),
        code="STORE_CLOCK",
        do="The clock of this machine is too far from the store's. Have it set (NTP), then start "
        "again.",
    ),
)
"""Codes of S3 that no other start mends; the code of the refusal, and what to do."""
EXPIRED = ("ExpiredToken", "TokenRefreshRequired", "InvalidToken")
"""Of credentials; a new start may be given others."""


@dataclass(frozen=True)
class ObjectStore:
    """``prefix`` is empty or ends in a slash, below the root of obstore's ``store``. Picklable if
    the store is; shows no credentials.
    """

    where: str
    store: Any = field(repr=False, compare=False)
    prefix: str = ""
    tried: list[bool] = field(default_factory=list, repr=False, compare=False)
    """Not empty once ``open`` has tried the store, here or at another prefix."""

    streams_max = 16
    may_be_unmounted = False

    @staticmethod
    def of(url: str, store: Any = None, hadoop: Mapping[str, str] | None = None) -> ObjectStore:
        """``store``: an obstore store whose root is the prefix, a mapping of obstore's settings for
        the URL, or None: those in ``hadoop`` (Hadoop's, as Spark has them), else in the
        environment.

        Raises:
            SettingRefused: obstore does not take the URL or a setting.
        """
        parts = urlsplit(url)
        container = f"{parts.username}@" if parts.username and parts.scheme[:4] == "abfs" else ""
        where = f"{parts.scheme}://{container}{parts.netloc.rpartition('@')[2]}{parts.path}"
        if store is not None and not isinstance(store, Mapping):
            return ObjectStore(where, store)
        try:
            settings = store_settings(url, store, hadoop or {})
            made = ObjectStore(where, obstore.store.from_url(url, **settings))
        except BaseException as error:
            if not _is_of_the_store(error):
                raise
            raise SettingRefused(
                "STORE_ACCESS",
                f"The object store {where} cannot be used: {brief(error)}. Give its URL as "
                "s3://bucket/prefix, gs://bucket/prefix or az://account/container/prefix, and "
                "obstore's settings as store={...}.",
            ) from None
        if lacks_credentials(url, settings):
            raise SettingRefused(
                "STORE_ACCESS",
                f"There are no credentials for the object store {where}: none are given, and this "
                "machine has no role. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; a sink "
                "takes them by store={...} as well. Nothing was asked of it.",
            )
        return made

    def below(self, prefix: str) -> ObjectStore:
        where = f"{self.where.rstrip('/')}/{prefix}"
        return ObjectStore(where, self.store, f"{self.prefix}{prefix}/", self.tried)

    def remove(self) -> None:
        self.delete([entry.name for entry in self.entries()])

    # ---- small files -------------------------------------------------------------------------

    def open(self, *folders: str) -> None:
        """Of several puts of one new name at a time one creates it, and a later one does not; it is
        listed, and can be copied. Tried once.

        A store that does not know the condition takes every put, and two drivers would both believe
        their record.
        """
        if self.tried:
            return
        folder = f"{folders[0]}/" if any(folders[:1]) else ""
        name, copy = (f"{folder}{PROBE}{secrets.token_hex(8)}{end}" for end in ("", "-copy"))
        contents = [f"{number}".encode() for number in range(PROBES)]
        with self._explained("could not be tried"):
            try:
                with ThreadPoolExecutor(PROBES, "exactum-probe") as pool:
                    created = list(pool.map(lambda content: self._created(name, content), contents))
                created.append(self._created(name, b"late"))
                there = self.read(name)
                is_listed = name in [f"{folder}{listed}" for listed in self.names(folder[:-1])]
                obstore.copy(self.store, self._key(name), self._key(copy))
            except BaseException:
                with contextlib.suppress(Unavailable, SettingRefused):
                    self.delete([name, copy])
                raise
            self.delete([name, copy])
        # None created it: the client sent it twice, and only the second answer arrived.
        if sum(created) > 1 or (
            any(created) and there != [*contents, b"late"][created.index(True)]
        ):
            raise SettingRefused(
                "STORE_CONDITIONAL_PUT",
                f"The object store {self.where} does not keep to conditional puts: {sum(created)} "
                f"of {len(created)} puts with 'If-None-Match: *' (create only if absent) on one "
                "key were taken, and one may be. Two drivers could both believe that their "
                "decision stands. Use another store, a shared disk or a database.",
            )
        if not is_listed:
            raise SettingRefused(
                "STORE_LISTING",
                f"The object store {self.where} does not list an object that was just written. "
                "exactum needs a store whose listings are up to date. Nothing was written.",
            )
        self.tried.append(True)

    def names(self, prefix: str = "") -> list[str]:
        top = self._key(f"{prefix}/" if prefix else "")
        with self._explained("could not be listed"):
            found = obstore.list_with_delimiter(self.store, top.rstrip("/"))
            paths = (*found["common_prefixes"], *(meta["path"] for meta in found["objects"]))
            names = (str(path).rstrip("/").removeprefix(top) for path in paths)
            return [name for name in names if name]

    def read(self, name: str) -> bytes | None:
        with self._explained("could not be read"):
            try:
                return bytes(obstore.get(self.store, self._key(name)).bytes())
            except FileNotFoundError as error:
                if any(word in str(error) for word in NO_BUCKET):
                    raise
        return None

    def create_if_absent(self, name: str, content: bytes) -> bool:
        try:
            return self._created(name, content) or self.read(name) == content
        except (*STORE_ERRORS, Unavailable) as error:
            # A put that failed may still arrive.
            with contextlib.suppress(Unavailable, SettingRefused):
                there = self.read(name)
                if there is not None:
                    return there == content
            raise OutcomeUnknown(
                f"{self.where}/{name} may or may not have been created: {brief(error)}. Start the "
                "query again: it finds out."
            ) from error

    def put(self, name: str, content: bytes, *, durable: bool = True) -> None:
        with self._explained("could not be written"):
            obstore.put(self.store, self._key(name), content)

    def delete(self, names: Sequence[str]) -> None:
        with self._explained("could not be cleaned up"):
            if not names:
                return
            try:
                obstore.delete(self.store, [self._key(name) for name in names])
            except FileNotFoundError:
                for name in names:
                    with contextlib.suppress(FileNotFoundError):
                        obstore.delete(self.store, self._key(name))

    def sync(self, prefix: str = "") -> None:
        """An object that can be read is durable."""

    def close(self) -> None:
        """obstore's client goes with its last reference."""

    # ---- large files -------------------------------------------------------------------------

    def entries(self, prefix: str = "") -> list[Entry]:
        top = self._key(f"{prefix}/" if prefix else "")
        with self._explained("could not be listed"):
            found = [
                _entry(str(meta["path"]).removeprefix(top), meta)
                for chunk in obstore.list(self.store, top.rstrip("/"), chunk_size=1000)
                for meta in chunk
            ]
        # Hadoop marks a folder by an empty object ``folder/``, which obstore lists as ``folder``.
        empty = [entry.name for entry in found if entry.size == 0 and entry.name]
        real = self.existing([f"{prefix}/{name}" if prefix else name for name in empty])
        return [
            entry
            for entry in found
            if entry.size or (f"{prefix}/{entry.name}" if prefix else entry.name) in real
        ]

    def entry(self, name: str) -> Entry | None:
        with self._explained("could not be read"), contextlib.suppress(FileNotFoundError):
            return _entry(name, obstore.head(self.store, self._key(name)))
        return None

    def existing(self, names: Sequence[str]) -> set[str]:
        return {entry.name for entry in _each(self.entry, names) if entry is not None}

    def reader(self, name: str) -> IO[bytes]:
        with _as_os_error():
            file = obstore.open_reader(self.store, self._key(name), buffer_size=READ_BUFFER_BYTES)
        return io.BufferedReader(_Reading(file), READ_BUFFER_BYTES)

    def create(self, name: str) -> _Upload:
        return _Upload(self.store, self._key(name))

    def make_way(self, targets: Collection[str]) -> None:
        """There are no folders."""

    def move_if_absent(self, moves: Sequence[tuple[str, str]]) -> list[bool]:
        with self._explained("could not copy the objects of a decided epoch"):
            arrived = _each(self._copy, moves)
            self.delete([move[0] for move, there in zip(moves, arrived, strict=True) if there])
            return arrived

    def failure(self, trouble: str, error: BaseException) -> Unavailable | SettingRefused:
        what = f"The object store {self.where} {trouble}: {brief(error)}."
        text = str(error)
        for words, code, todo in CAUSES:
            if any(word in text for word in words):
                return SettingRefused(code, f"{what}\n{todo}\nWhat is decided is kept.")
        if any(word in text for word in EXPIRED):
            return Unavailable(
                f"{what}\nThe credentials have expired. Give new ones and start the query again, "
                "or ones that renew themselves (a role).\nWhat is decided is then carried out."
            )
        if (
            type(error).__name__ == "PanicException"
            or isinstance(error, (*FORBIDDEN, PermissionError))
            or any(word in text for word in LASTING)
        ):
            return SettingRefused(
                "STORE_ACCESS",
                f"{what} Correct the URL and store={{...}}. The credentials need the rights to "
                "put, get, list, copy and delete objects below it.",
            )
        return Unavailable(
            f"{what} Start the query again when it answers: what is decided is then carried out."
        )

    # ---- small steps -------------------------------------------------------------------------

    def _key(self, name: str) -> str:
        return f"{self.prefix}{name}"

    @contextlib.contextmanager
    def _explained(self, trouble: str) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            if not _is_of_the_store(error, STORE_ERRORS):
                raise
            raise self.failure(trouble, error) from error

    def _created(self, name: str, content: bytes) -> bool:
        """True when it was created; False when it was there: by another, or by us, sent twice by
        the client.
        """
        try:
            obstore.put(self.store, self._key(name), content, mode="create", use_multipart=False)
            return True
        except AlreadyExistsError:
            return False
        except (NotSupportedError, NotImplementedError) as error:
            raise SettingRefused(
                "STORE_CONDITIONAL_PUT",
                f"The object store {self.where} has no conditional put ({brief(error)}), which "
                "creates an object only if it is absent. Use another store, a shared disk or a "
                "database. Nothing was written.",
            ) from error

    def _copy(self, move: tuple[str, str]) -> bool:
        source, target = move
        keys = self._key(source), self._key(target)
        try:
            try:
                obstore.copy(self.store, *keys, overwrite=False)
            except NotSupportedError:  # S3: the same bytes again
                obstore.copy(self.store, *keys)
                return True
        except FileNotFoundError:
            return self.entry(target) is not None
        except AlreadyExistsError:
            pass
        return self._is_copied(source, target)

    def _is_copied(self, source: str, target: str) -> bool:
        """Azure may answer before it copies: until then an empty object stands there (Copy Blob,
        x-ms-copy-status).
        """
        for pause_s in (*COPY_PAUSES_S, None):
            wanted, there = self.entry(source), self.entry(target)
            size = 0 if there is None else there.size
            # No source: the one that copied it has removed it meanwhile.
            if wanted is None or size == wanted.size:
                return True
            if size:
                raise HeuristicOutcome(
                    "FILE_REPLACED",
                    f"The object {target} of {self.where} has {size} bytes, and {source}, which "
                    f"belongs to a decided epoch under that very name, has {wanted.size}. "
                    "Something outside has written it: move it away and start again.",
                )
            if pause_s is not None:
                time.sleep(pause_s)
        raise Unavailable(
            f"The object store {self.where} was asked to copy {source} to {target}, which is empty "
            "still. Start the query again: the rows are kept. If it stays empty, delete it."
        )


class _Upload(NewFile):
    """An upload that becomes an object only by ``finish``; it begins with the first byte."""

    def __init__(self, store: Any, key: str) -> None:
        super().__init__()
        self._begin: Callable[[], Any] | None = lambda: obstore.open_writer(
            store, key, buffer_size=UPLOAD_BUFFER_BYTES, max_concurrency=UPLOADS_AT_ONCE
        )
        self._upload: Any = None

    def append(self, data: memoryview) -> None:
        if self._begin is not None:
            with _as_os_error():
                self._upload = self._upload or self._begin()
                self._upload.write(bytes(data))

    def finish(self) -> int:
        if self._begin is None:
            raise ValueError("finish() of a file that was discarded")
        with _as_os_error():
            (self._upload or self._begin()).close()
        self.discard()
        return self.tell()

    def discard(self) -> None:
        """The upload is dropped without its end, so no object appears."""
        self._begin = self._upload = None


class _Reading(io.RawIOBase):
    """obstore's reader as one of Python's."""

    def __init__(self, file: Any) -> None:
        super().__init__()
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _as_os_error():
            content = bytes(self._file.read(len(buffer)))
        buffer[: len(content)] = content
        return len(content)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())


@contextlib.contextmanager
def _as_os_error() -> Iterator[None]:
    try:
        yield
    except STORE_ERRORS as error:
        if isinstance(error, OSError):
            raise
        number = errno.EACCES if isinstance(error, FORBIDDEN) else errno.EIO
        raise OSError(number, brief(error)) from error


def _is_of_the_store(
    error: BaseException, kinds: tuple[type[BaseException], ...] = (Exception,)
) -> bool:
    """obstore panics, outside of Exception, on settings that it knows for something else, and on an
    address that is none.
    """
    return type(error).__name__ == "PanicException" or isinstance(error, kinds)


def _entry(name: str, meta: Any) -> Entry:
    return Entry(name, int(meta["size"]), int(meta["last_modified"].timestamp() * 1000))


def _each(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    if len(items) <= 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(REQUESTS_AT_ONCE, len(items)), "exactum-objects") as pool:
        return list(pool.map(function, items))


def brief(error: BaseException) -> str:
    """The store's answer; else the first line of obstore's text. The rest is a dump of the
    request.
    """
    text = str(error)
    status, code = _STATUS.search(text), _CODE.search(text)
    if status is not None:
        return status[1] if code is None else f"{status[1]}, {code[1]}"
    return f"{type(error).__name__}: {(text.splitlines() or [''])[0]}"
