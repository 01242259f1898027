"""The files in which the state stores of one operator keep the version that a batch has left, on
any file system.

    <state>/<operator>/<partition>/[<store>/]8.changelog            checkpoint format 1
    <state>/<operator>/<partition>/[<store>/]8_<id>.changelog       format 2: each try of a task has
                                                                    an id of its own

Looks for this one version only: what came before was there when the batch began, and Spark rests on
it in any case.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from exactum.checkpoint.offset_log import local_folder
from exactum.checkpoint.state_store import DEFAULT
from exactum.durable import sync_folder
from exactum.spark.jvm.hadoop_files import HadoopFiles

_FILE = re.compile(r"(\d+)(?:_([0-9a-f-]{36}))?\.(zip|snapshot|changelog|delta)")
_CHANGES = ("changelog", "delta")
_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"


@dataclass(frozen=True)
class VersionFile:
    """One file of one version of one store. ``version_id`` is empty in format 1; ``written_ms``
    counts from 1970.
    """

    path: str
    partition: int
    store: str
    version_id: str
    is_change: bool
    size_bytes: int
    written_ms: float

    @property
    def below(self) -> str:
        """Its path below the folder of its operator."""
        name = self.path.rpartition("/")[2]
        store = "" if self.store == DEFAULT else f"{self.store}/"
        return f"{self.partition}/{store}{name}"


def version_files(session: SparkSession, operator: str, version: int) -> list[VersionFile]:
    """The files of ``version`` below the folder ``operator``, a URI as Spark prints it.

    Raises:
        OSError: the local folder could not be read.
        JvmError: the JVM could not read the folder.
    """
    folder = local_folder(operator)
    # The whole of a version in two calls of the file system.
    found = (
        _local(folder, version)
        if folder is not None
        else HadoopFiles(session, operator).like(_patterns(version))
    )
    return [
        file
        for path, size_bytes, written_ms in found
        if (file := _file(path, size_bytes, written_ms)) is not None
    ]


def remove_snapshots(session: SparkSession, operator: str, version: int) -> list[str]:
    """Remove the snapshots of ``version`` in format 1, before the version is written once more.
    Returns their paths.

    Spark writes the changes of a version over those of an earlier try of its batch, and makes a
    snapshot beside the batches, or none. A snapshot of the earlier try would stand beside changes
    that are not its own, and the next start would load it in their place.

    Where RocksDB keeps no changes a snapshot is the version itself, and the next try writes over
    it. It stays: a function of the user's may have persisted and computed this very batch, and
    nothing writes it once more.

    Raises:
        OSError: a folder could not be read or fsynced.
        JvmError: the JVM could not read the folder, or not remove a file.
    """
    files = HadoopFiles(session, operator)
    there = version_files(session, operator, version)
    keeps_changes = str(session.conf.get(_CHANGELOG, "false")).lower() == "true"
    with_changes = {(file.partition, file.store) for file in there if file.is_change}
    found = [
        file
        for file in there
        if not file.is_change
        and not file.version_id
        and (keeps_changes or (file.partition, file.store) in with_changes)
    ]
    for file in found:
        files.remove(file.below)
    if local_folder(operator) is not None:
        for folder in {Path(file.path).parent for file in found}:
            sync_folder(folder)
    return [file.path for file in found]


def seal(folder: Path, version: int, partitions: int) -> str:
    """A digest of the names, sizes and times of the files in which the stores of an operator keep
    ``version``, in format 1. It is another one when any of them was written again, whatever the
    clock says.

    Asked in each epoch, so only the files of this version are looked at, by their names.

    Raises:
        OSError: a folder or a file could not be looked at.
    """
    found = []
    for store in ("", *_folders(f"{folder}/0")):  # the stores of every partition have these names
        for partition in range(partitions):
            for kind in (*_CHANGES, "zip"):  # a snapshot of what changed may be made later
                try:
                    status = os.stat(f"{folder}/{partition}/{store}/{version}.{kind}")
                except FileNotFoundError:
                    continue
                found.append(f"{partition}/{store} {kind} {status.st_size} {status.st_mtime_ns}")
                break
    return hashlib.sha256("\n".join(found).encode()).hexdigest()


def _folders(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except FileNotFoundError:
        return []


def _patterns(version: int) -> tuple[str, str]:
    return f"[0-9]*/{version}[._]*", f"[0-9]*/*/{version}[._]*"


def _local(folder: Path, version: int) -> Iterator[tuple[str, int, float]]:
    for pattern in _patterns(version):
        for path in folder.glob(pattern):
            status = path.stat()
            yield str(path), status.st_size, status.st_mtime_ns / 1_000_000


def _file(path: str, size_bytes: int, written_ms: float) -> VersionFile | None:
    *_, above, folder, name = path.split("/")
    found = _FILE.fullmatch(name)
    if found is None:
        return None
    partition, store = (folder, DEFAULT) if folder.isdigit() else (above, folder)
    if not partition.isdigit():
        return None
    return VersionFile(
        path, int(partition), store, found[2] or "", found[3] in _CHANGES, size_bytes, written_ms
    )
