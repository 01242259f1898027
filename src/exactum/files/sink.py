"""``FileSink``: a folder or a prefix in an object store as the target of a query."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote, urlsplit

from exactum.errors import SettingRefused
from exactum.files.evidence import FileEvidence, dead_letter_rows
from exactum.files.format import FileFormat, check_frame
from exactum.files.place import nobodys, open_place
from exactum.files.target import FileTarget
from exactum.files.writer import FilePlan, FileRows
from exactum.problem import Problem
from exactum.protocol.dead_letter import DeadLetter, of_columns
from exactum.protocol.inspection import Evidence, Promise
from exactum.protocol.sink import OpenSink, QueryRun
from exactum.sinks.inspection import StagedInspector
from exactum.sinks.sink import StagedSink
from exactum.sinks.staging import staging_at
from exactum.storage.at import storage_at
from exactum.storage.proof import prove
from exactum.storage.storage import Storage

BYTES_PER_FILE_MAX = 128 * 1024 * 1024
OBJECT_BYTES_MAX = 4 * 1024**3
"""A server-side copy in one request ends at 5 GiB on S3; a file may grow past its limit by one
run of rows.
"""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_NO_URL = re.compile(
    r"(file|s3[an]?|gs|az|adl|abfss?|wasbs?|hdfs|viewfs|dbfs|https?):(?!/)|~", re.IGNORECASE
)
"""What a user means for a URL or a home, and the operating system takes for a folder's name."""


class FileSink(StagedSink):
    """Writes a frame's rows to Parquet, JSON-lines or CSV files that any reader finds by listing
    the folder.

    A reader never sees part of a file. The files of one epoch appear one after another, within
    milliseconds, and all of them stand or none; file names begin with ``part-<batch>-<attempt>-``.
    What is not yet decided lies in ``<path>/.exactum``. On a shared file system driver and
    executors must be able to rename and remove each other's files: the same user, or one group and
    a umask of 002.

    Args:
        path: a folder, as a path or ``file:`` URL, that the driver and all executors see under the
            same path; or the URL of a prefix in an object store (``s3://bucket/prefix``,
            ``gs://bucket/prefix``, ``az://account/container/prefix``), which needs ``pip install
            'exactum[objects]'``. It is made if it is not there.
        format: ``"parquet"``, ``"json"`` (one object on a line) or ``"csv"``.
        partition_by: columns that name folders (``day=2026-01-01``) instead of going into the
            files, outermost first; values are escaped as Spark does, null and the empty text are
            ``__HIVE_DEFAULT_PARTITION__``.
        bytes_per_file_max: a file is closed when it has at least so many bytes after a run of rows
            (at most 32 MiB in memory) was added; default 128 MiB.
        options: ``compression`` (parquet: snappy, which is the default, gzip, zstd, lz4, brotli or
            none; json and csv: gzip or none, which is the default), ``compression_level``
            (parquet), ``header`` (csv; default True), ``delimiter`` (csv; default a comma).
        store: object stores only: an obstore store whose root is the sink's prefix, or a mapping of
            obstore's settings for the URL (``region``, ``endpoint``, ``allow_http``, credentials
            ...). Default: from the environment.
        name: of the participant in decision records; default ``files:<path>``.
        rows: the sink's own view of the batch, ``exactum.Rows`` or a function from DataFrame to
            DataFrame; default: the batch as it is.

    Raises:
        SettingRefused: a setting that cannot be.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        format: str = "parquet",  # noqa: A002  (Spark's word)
        partition_by: str | Sequence[str] | None = None,
        bytes_per_file_max: int = BYTES_PER_FILE_MAX,
        options: Mapping[str, Any] | None = None,
        store: Any = None,
        name: str | None = None,
        rows: Callable[[Any], Any] | None = None,
    ) -> None:
        self._path = checked_path(path, store, "FileSink")
        self._is_object_store = _URL.match(self._path) is not None
        self._where = f"FileSink({shown(self._path)!r})"
        self._store = store
        self._format = FileFormat.of(format, options, self._where)
        self._partition_by = _names(partition_by, self._where)
        check_limit("bytes_per_file_max", bytes_per_file_max, self._where)
        if self._is_object_store and bytes_per_file_max > OBJECT_BYTES_MAX:
            raise SettingRefused(
                "FILES_ARGUMENT",
                f"{self._where}: bytes_per_file_max={bytes_per_file_max} is more than the "
                f"{OBJECT_BYTES_MAX} bytes that can be copied in one request.",
            )
        self._bytes_per_file_max = bytes_per_file_max
        self.name = name or f"files:{shown(self._path)}"
        self.rows = rows

    waits_in_staging = False

    def __repr__(self) -> str:
        return f"{self._where[:-1]}, format={self._format.name!r})"

    @property
    def location(self) -> tuple[str, Any]:
        """The folder or the URL, and obstore's store or settings for it (may hold secrets)."""
        return self._path, self._store

    @property
    def options(self) -> Mapping[str, Any]:
        """Those of its format, the defaults among them."""
        return dict(self._format.options)

    def check_columns(self, columns: Sequence[tuple[str, str]]) -> None:
        """See the port ``Sink``."""
        check_frame(columns, self._partition_by, self._where)
        self._format.check_columns(
            [c for c in columns if c[0] not in self._partition_by], self._where
        )

    def open(
        self, run: QueryRun, participant: str, columns: Sequence[tuple[str, str]] = ()
    ) -> OpenSink:
        """See the port ``Sink``. Makes the folder, and writes, renames and removes a file in it
        once.
        """
        target = self.target_of(run, participant)
        open_place(target.staging)
        plan = FilePlan(self._format, self._partition_by, self._bytes_per_file_max)
        folder = self._folder()
        kind = "prefix" if self._is_object_store else "folder"
        return replace(
            self.open_with(run, target, FileRows, plan, {"extension": plan.format.extension}),
            target=f"{kind} {folder}" if folder else None,  # a store object does not tell where
            folder=folder,
        )

    def target_of(self, run: QueryRun, participant: str) -> FileTarget:
        """See the base class."""
        return FileTarget(staging_at(self._storage(), run.query_id, participant))

    def evidence_of(
        self, inspector: StagedInspector, promises: Sequence[Promise]
    ) -> Sequence[Evidence]:
        """See the base class."""
        scope = inspector.staging.scope
        found = FileEvidence(scope.participant, scope.query_id, self._storage(), self.options)
        return found.of(promises)

    def prove(self, longest_outage_s: float | None = None) -> Iterator[Problem]:
        """See ``protocol.inspection.Provable``."""
        storage = self._storage()
        yield from prove(storage, self.name)
        if self._is_object_store or os.path.isdir(self._path):
            with nobodys(storage) as staging:
                open_place(staging)

    def dead_letters(self) -> Iterator[DeadLetter]:
        """See ``protocol.dead_letter.DeadLetterStore``."""
        return of_columns(dead_letter_rows(self._storage()))

    def _folder(self) -> str:
        """Empty where only a store object knows."""
        is_known = self._store is None or isinstance(self._store, Mapping)
        return true_place(self._path, self._store) if is_known else ""

    def _storage(self) -> Storage:
        return storage_at(self._path, self._store)


def shown(path: str) -> str:
    """A path or URL without user, password, query and fragment, which may hold credentials."""
    if not _URL.match(path):
        return path
    parts = urlsplit(path)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


def true_place(path: str, store: Mapping[str, Any] | None) -> str:
    """A folder's true path, or the URL after its store's endpoint."""
    if "://" not in path:
        return os.path.realpath(path)
    return f"{(store or {}).get('endpoint', '')} {shown(path)}".lstrip()


def checked_path(path: str | os.PathLike[str], store: Any, sink: str) -> str:
    """An absolute path, or a URL as obstore has it; ``sink`` is the class for messages.

    Raises:
        SettingRefused: it is neither.
    """
    text = os.fspath(path) if isinstance(path, str | bytes | os.PathLike) else path
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        why = "path must be the text of a folder or of a URL."
        raise SettingRefused("FILES_PATH", f"{sink}({text!r}): {why}")
    scheme = _URL.match(text)
    if why := _wrong_url(text) if scheme else _no_folder(text):
        raise SettingRefused("FILES_PATH", f"{sink}({shown(text)!r}): {why} Nothing was written.")
    if scheme is None or (scheme[1].lower() == "file" and store is None):
        if store is not None:
            raise SettingRefused(
                "FILES_ARGUMENT",
                f"{sink}({text!r}): store= is for the URLs of object stores (s3://bucket/prefix).",
            )
        return os.path.abspath(unquote(urlsplit(text).path) if scheme else text)
    if re.match(r"s3[an]:", text, re.IGNORECASE):
        text = "s3" + text[3:]
    return text.rstrip("/")


def _no_folder(text: str) -> str:
    """What is wrong with the path of a folder; empty: nothing."""
    if not _NO_URL.match(text):
        return ""
    return (
        "this would make a folder of that very name where the program was started. A URL has a "
        "slash after its colon (file:/lake, s3://bucket/prefix), and ~ is not looked up: give the "
        "whole path. (For such a folder, write './' before it.)"
    )


def _wrong_url(url: str) -> str:
    """What is wrong with a URL; empty: nothing."""
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    if parts.query or parts.fragment or url.endswith(("?", "#")):
        return (
            "the URL goes on with ? or #, and nothing after these says where files are. Where it "
            "is a part of a name, write %3F for ? and %23 for #; settings of a store go into "
            "store={...}."
        )
    if scheme == "file" and parts.netloc not in ("", "localhost"):
        return (
            f"{parts.netloc!r} stands where a file: URL names a machine. Write "
            f"file:///{parts.netloc}{parts.path} if it is a folder."
        )
    if scheme in ("hdfs", "viewfs", "dbfs", "wasb", "wasbs"):
        return (
            f"{scheme}: is neither a folder of the operating system nor an object store. Mount it "
            "and give the path, or write to an object store (s3, gs, az)."
        )
    return "" if parts.netloc or scheme == "file" else "no bucket, as in s3://bucket/prefix."


def _names(partition_by: str | Sequence[str] | None, where: str) -> tuple[str, ...]:
    names = (partition_by,) if isinstance(partition_by, str) else partition_by or ()
    why = ""
    if not isinstance(names, list | tuple) or not all(isinstance(n, str) and n for n in names):
        why = f"partition_by={partition_by!r} must be names of columns."
    elif hidden := [name for name in names if name[0] in "._"]:
        why = (
            f"the partition column {hidden[0]!r} would make folders that begin with "
            f"{hidden[0][0]!r}, and readers take those for hidden. Rename it."
        )
    elif len({n.lower() for n in names}) != len(names):
        why = f"partition_by={list(names)!r} names a column twice."
    if why:
        raise SettingRefused("FILES_ARGUMENT", f"{where}: {why}")
    return tuple(names)


def check_limit(setting: str, value: int, where: str) -> None:
    """Raises SettingRefused: it is no number above 0."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise SettingRefused(
            "FILES_ARGUMENT", f"{where}: {setting}={value!r} must be a whole number above 0."
        )
