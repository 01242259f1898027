"""Which files of one of Spark's state stores make up one version of it. Only looks.

    7.zip         a snapshot of version 7 (RocksDB): a few small files, and the names of tables in
                  SSTs/ and logs/
    7.snapshot    the same of the memory-backed provider
    8.changelog   what version 8 changed (RocksDB);  8.delta of the memory-backed provider
    SSTs/000012-<uuid>.sst

In checkpoint format 2 names have an id, ``8_<id>.changelog``: that of the attempt at a micro-batch.
Which attempts count is said in Spark's commit log, and there alone.

A version is its newest snapshot, or nothing where there is none yet, and every change after it.
After epoch N every store is at version N + 1.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from exactum.durable import stays_below
from exactum.errors import CheckpointRefused
from exactum.storage.storage import Storage

STATE = "state"
"""What Spark has in a checkpoint besides its two logs."""
VERSION_FILE = re.compile(r"(\d+)(?:_([0-9a-f-]{36}))?\.(zip|snapshot|changelog|delta)")
CHANGES = ("changelog", "delta")
DEFAULT = "default"

Ids = Mapping[int, frozenset[str]]
"""By version the ids that count. Where there are none the commit log does not say: in format 1, and
of versions that it has forgotten.
"""


class Vanished(Exception):
    """A file that was listed is gone: the query went on meanwhile. The cut is tried again at a
    later epoch.
    """


@dataclass(frozen=True)
class Store:
    """One store of the checkpoint ``files``: its folder, the paths of the files in it, and the
    partition that it keeps the state of.
    """

    files: Storage
    folder: str
    paths: frozenset[str]
    partition: int
    ids: Ids

    def of_version(self, version: int) -> list[str] | None:
        """What this version consists of, least first; None where it is not (or not any more) all
        there.

        Raises:
            CheckpointRefused: a snapshot is damaged.
            Vanished: a snapshot disappeared while it was read.
        """
        snapshots, changes = self._versions()
        if version not in changes and version not in snapshots:
            return None
        for base in sorted((v for v in snapshots if v <= version), reverse=True):
            after = [changes.get(v, []) for v in range(base + 1, version + 1)]
            tables = self._tables(snapshots[base])
            if all(after) and self.paths.issuperset(tables):
                return [*tables, snapshots[base], *(path for paths in after for path in paths)]
        chain = [changes.get(v, []) for v in range(1, version + 1)]
        return [path for paths in chain for path in paths] if all(chain) else None

    def _versions(self) -> tuple[dict[int, str], dict[int, list[str]]]:
        """Of each version the snapshot, and the changes. Where nobody can tell which of several
        attempts counts, all changes are taken, for Spark reads those alone that it knows the ids
        of; and no snapshot is.
        """
        found: dict[int, dict[str, dict[bool, str]]] = defaultdict(lambda: defaultdict(dict))
        for path in sorted(self.paths):
            folder, _, name = path.rpartition("/")
            named = VERSION_FILE.fullmatch(name)
            if named is None or folder != self.folder:
                continue
            version, version_id = int(named[1]), named[2] or ""
            if version not in self.ids or version_id in self.ids[version]:
                found[version][version_id][named[3] in CHANGES] = path
        snapshots = {
            version: one[False]
            for version, attempts in found.items()
            if len(attempts) == 1
            for one in attempts.values()
            if False in one
        }
        changes = {
            version: paths
            for version, attempts in found.items()
            if (paths := [one[True] for one in attempts.values() if True in one])
        }
        return snapshots, changes

    def _tables(self, snapshot: str) -> list[str]:
        """The files outside of the snapshot that it rests on."""
        if not snapshot.endswith(".zip"):
            return []
        try:
            with self.files.reader(snapshot) as file, zipfile.ZipFile(file) as archive:
                text = archive.read("metadata").decode()
            value = json.loads(text.partition("\n")[2])
            tables = [
                f"{self.folder}/SSTs/{_name(each['dfsSstFileName'])}" for each in value["sstFiles"]
            ]
            logs = [
                f"{self.folder}/logs/{_name(each['dfsLogFileName'])}"
                for each in value.get("logFiles") or ()
            ]
        except FileNotFoundError as error:
            raise Vanished(snapshot) from error
        except (zipfile.BadZipFile, KeyError, ValueError, TypeError, UnicodeDecodeError) as error:
            raise CheckpointRefused(
                "CHECKPOINT_DAMAGED",
                f"The state snapshot {self.files.where}/{snapshot} cannot be read "
                f"({type(error).__name__}: {error}). It is damaged, or of a Spark that this "
                "exactum does not know. Nothing was written.",
            ) from error
        return [*tables, *logs]


def stores(files: Storage, operator: str, sizes: Mapping[str, int], ids: Ids) -> Iterator[Store]:
    """The stores of one stateful operator: one for each partition, or several (a stream-stream join
    has four). ``operator`` is its folder, ``sizes`` has all files in the checkpoint with their
    bytes, ``ids`` are those of the operator, of all its stores.
    """
    inside: dict[tuple[int, str], set[str]] = defaultdict(set)
    for path, size in sizes.items():
        if not size and "/logs/" not in path:  # what is empty was lost; a log of RocksDB's may be
            continue
        parts = path.removeprefix(f"{operator}/").split("/")
        if path.startswith(f"{operator}/") and len(parts) > 1 and parts[0].isdigit():
            for depth in (1, 2):  # of the partition, and of a store within it
                if len(parts) > depth:
                    folder = f"{operator}/{'/'.join(parts[:depth])}"
                    inside[int(parts[0]), folder].add(path)
    for (partition, folder), own in sorted(inside.items()):
        if any(VERSION_FILE.fullmatch(path[len(folder) + 1 :]) for path in own):
            yield Store(files, folder, frozenset(own), partition, ids)


def ids_of_version(version: int, paths: Iterable[str]) -> frozenset[str]:
    """The ids in the names of these files of state stores that are of this version."""
    named = (VERSION_FILE.fullmatch(path.rpartition("/")[2]) for path in paths)
    return frozenset(one[2] for one in named if one is not None and int(one[1]) == version)


def _name(text: str) -> str:
    """A file's name, which is no path to anywhere else.

    Raises:
        ValueError: it is one.
    """
    if "/" in text or not stays_below(text):
        raise ValueError(f"{text!r} is no file of this store")
    return text
