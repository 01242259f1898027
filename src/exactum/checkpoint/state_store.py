"""Which files of one of Spark's state stores make up one version of it. Only looks.

    7.zip         a snapshot of version 7 (RocksDB): a few small files, and the names of tables in
                  SSTs/ and logs/
    7.snapshot    the same of the memory-backed provider
    8.changelog   what version 8 changed (RocksDB);  8.delta of the memory-backed provider
    SSTs/000012-<uuid>.sst

A version is its newest snapshot, or nothing where there is none yet, and every change after it.
After epoch N every store is at version N + 1.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from exactum.durable import stays_below
from exactum.errors import CheckpointRefused

_VERSION = re.compile(r"(\d+)\.(zip|snapshot|changelog|delta)")
_WITH_ID = re.compile(r"\d+_[0-9a-f-]{36}\.(zip|changelog)")
DEFAULT = "default"
_SNAPSHOTS, _CHANGES = ("zip", "snapshot"), ("changelog", "delta")


class Vanished(Exception):
    """A file that was listed is gone: the query went on meanwhile. The cut is tried again at a
    later epoch.
    """


@dataclass(frozen=True)
class Store:
    """One store: its folder, and the partition that it keeps the state of."""

    folder: Path
    partition: int

    @property
    def name(self) -> str:
        """Spark's name of it: ``default``, or that of its folder below the partition's."""
        return DEFAULT if self.folder.name == str(self.partition) else self.folder.name

    def files(self, version: int) -> list[Path] | None:
        """What this version consists of, least first; None where it is not (or not any more) all
        there.

        Raises:
            CheckpointRefused: the store's files are of a format that cannot be cut.
            Vanished: a snapshot disappeared while it was read.
        """
        snapshots, changes = self._versions()
        if version not in changes and version not in snapshots:
            return None
        for base in sorted((v for v in snapshots if v <= version), reverse=True):
            after = [changes.get(v) for v in range(base + 1, version + 1)]
            tables = _tables(snapshots[base])
            if all(after) and all(t.exists() for t in tables):
                return [*tables, snapshots[base], *(path for path in after if path is not None)]
        chain = [changes.get(v) for v in range(1, version + 1)]
        return [path for path in chain if path is not None] if all(chain) else None

    def _versions(self) -> tuple[dict[int, Path], dict[int, Path]]:
        snapshots: dict[int, Path] = {}
        changes: dict[int, Path] = {}
        for path in self.folder.iterdir():
            found = _VERSION.fullmatch(path.name)
            if found:
                (snapshots if found[2] in _SNAPSHOTS else changes)[int(found[1])] = path
            elif _WITH_ID.fullmatch(path.name):
                raise CheckpointRefused(
                    "SAVEPOINT_FORMAT_2",
                    f"The state store {self.folder} is of Spark's checkpoint format 2 "
                    "(spark.sql.streaming.stateStore.checkpointFormatVersion=2), of which exactum "
                    "cannot make a savepoint yet. Format 1 is Spark's default; a query keeps the "
                    "one that it began with. Nothing was written.",
                )
        return snapshots, changes


def stores(operator: Path) -> Iterator[Store]:
    """The stores of one stateful operator: one for each partition, or several (a stream-stream join
    has four).
    """
    for partition in sorted(
        (p for p in operator.iterdir() if p.name.isdigit()), key=lambda p: int(p.name)
    ):
        for folder in (partition, *sorted(p for p in partition.iterdir() if p.is_dir())):
            if any(
                _VERSION.fullmatch(p.name) or _WITH_ID.fullmatch(p.name) for p in folder.iterdir()
            ):
                yield Store(folder, int(partition.name))


def _tables(snapshot: Path) -> list[Path]:
    """The files outside of the snapshot that it rests on."""
    if snapshot.suffix != ".zip":
        return []
    try:
        with zipfile.ZipFile(snapshot) as archive:
            text = archive.read("metadata").decode()
        value = json.loads(text.partition("\n")[2])
        tables = [
            snapshot.parent / "SSTs" / _name(each["dfsSstFileName"]) for each in value["sstFiles"]
        ]
        logs = [
            snapshot.parent / "logs" / _name(each["dfsLogFileName"])
            for each in value.get("logFiles") or ()
        ]
    except FileNotFoundError as error:
        raise Vanished(str(snapshot)) from error
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError, UnicodeDecodeError) as error:
        raise CheckpointRefused(
            "CHECKPOINT_DAMAGED",
            f"The state snapshot {snapshot} cannot be read ({type(error).__name__}: {error}). It "
            "is damaged, or of a Spark that this exactum does not know. Nothing was written.",
        ) from error
    return [*tables, *logs]


def _name(text: str) -> str:
    """A file's name, which is no path to anywhere else.

    Raises:
        ValueError: it is one.
    """
    if "/" in text or not stays_below(text):
        raise ValueError(f"{text!r} is no file of this store")
    return text
