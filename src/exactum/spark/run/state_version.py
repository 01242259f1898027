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
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from exactum.checkpoint.offset_log import local_folder
from exactum.checkpoint.state_store import CHANGES, DEFAULT, VERSION_FILE
from exactum.durable import sync_folder
from exactum.spark.jvm.hadoop_files import HadoopFiles

_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"


@dataclass(frozen=True)
class VersionFile:
    """One file of one version of one store. ``version_id`` is empty in format 1."""

    path: str
    partition: int
    store: str
    version_id: str
    is_change: bool
    size_bytes: int

    @property
    def below(self) -> str:
        """Its path below the folder of its operator."""
        name = self.path.rpartition("/")[2]
        store = "" if self.store == DEFAULT else f"{self.store}/"
        return f"{self.partition}/{store}{name}"


@dataclass(frozen=True)
class Sealed:
    """A version of an operator's state in format 1: its seal, and its stores (partition, name)."""

    seal: str
    stores: list[tuple[int, str]]


def version_files(session: SparkSession, operator: str, version: int) -> list[VersionFile]:
    """The files of ``version`` below the folder ``operator``, a URI as Spark prints it.

    Raises:
        OSError: the local folder could not be read.
        JvmError: the JVM could not read the folder.
    """
    patterns = f"[0-9]*/{version}[._]*", f"[0-9]*/*/{version}[._]*"
    folder = local_folder(operator)
    # The whole of a version in two calls of the file system. In a local folder's own name Hadoop
    # would take brackets for a pattern.
    found = (
        HadoopFiles(session, operator).like(patterns)
        if folder is None
        else ((str(p), p.stat().st_size) for each in patterns for p in folder.glob(each))
    )
    return [file for path, size_bytes in found if (file := _file(path, size_bytes)) is not None]


def remove_snapshots(
    session: SparkSession, operator: str, files: Iterable[VersionFile]
) -> list[str]:
    """Remove the snapshots among ``files``, which are all of one version in format 1, before the
    version is written once more. Returns their paths.

    Spark writes the changes of a version over those of an earlier try of its batch, and makes a
    snapshot beside the batches, or none. A snapshot of the earlier try would stand beside changes
    that are not its own, and the next start would load it in their place.

    Where RocksDB keeps no changes a snapshot is the version itself, and the next try writes over
    it. It stays: a function of the user's may have persisted and computed this very batch, and
    nothing writes it once more.

    Raises:
        OSError: a folder could not be fsynced.
        JvmError: the JVM could not remove a file.
    """
    there = HadoopFiles(session, operator)
    keeps_changes = str(session.conf.get(_CHANGELOG, "false")).lower() == "true"
    with_changes = {(file.partition, file.store) for file in files if file.is_change}
    found = [
        file
        for file in files
        if not file.is_change
        and not file.version_id
        and (keeps_changes or (file.partition, file.store) in with_changes)
    ]
    for file in found:
        there.remove(file.below)
    for folder in {local_folder(file.path.rpartition("/")[0]) for file in found}:
        if folder is not None:
            sync_folder(folder)
    return [file.path for file in found]


def sealed(folder: Path, version: int, partitions: int) -> Sealed | None:
    """The files in which the stores of an operator keep ``version``, in format 1. The seal is a
    digest of names, sizes and times: another one when any of them was written again, whatever the
    clock says. None where not every partition has its stores.

    Asked in each epoch, so only the files of this version are looked at, by their names.

    Raises:
        OSError: a folder or a file could not be looked at.
    """
    found: dict[tuple[int, str], str] = {}
    stores = ["", *_folders(f"{folder}/0")]  # the stores of every partition have these names
    for store in stores:
        for partition in range(partitions):
            for kind in (*CHANGES, "zip"):  # a snapshot of what changed may be made later
                try:
                    status = os.stat(f"{folder}/{partition}/{store}/{version}.{kind}")
                except FileNotFoundError:
                    continue
                line = f"{partition}/{store} {kind} {status.st_size} {status.st_mtime_ns}"
                found[partition, store or DEFAULT] = line
                break
    if not found or len(found) % partitions:
        return None
    return Sealed(hashlib.sha256("\n".join(found.values()).encode()).hexdigest(), list(found))


def _folders(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except FileNotFoundError:
        return []


def _file(path: str, size_bytes: int) -> VersionFile | None:
    *_, above, folder, name = path.split("/")
    found = VERSION_FILE.fullmatch(name)
    if found is None:
        return None
    partition, store = (folder, DEFAULT) if folder.isdigit() else (above, folder)
    if not partition.isdigit():
        return None
    return VersionFile(path, int(partition), store, found[2] or "", found[3] in CHANGES, size_bytes)
