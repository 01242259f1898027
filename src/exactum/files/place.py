"""A place that holds files and is seen by the driver and all tasks: a folder, or a prefix in an
object store.

    <place>/day=2026-01-01/part-0000000042-0-<identity>-0.parquet
        what readers see
    <place>/.exactum/<scope>/scope
        which query and sink this is, for people
    <place>/.exactum/<scope>/new
        in folders, until the first batch is there
    <place>/.exactum/<scope>/staged/<incarnation>.<identity>/0.staged
        written, not yet decided
    <place>/.exactum/<scope>/committed/00000000000000000042
        every file of batch 42 is where readers look

``scope`` is a hash of query id and participant name, so that any number of queries may share a
place. The suffix ``.staged`` hides files from readers that look for ``**/*.parquet`` in hidden
folders too (DuckDB).
"""

from __future__ import annotations

import errno
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from exactum.errors import SettingRefused
from exactum.protocol.model import Incarnation
from exactum.protocol.scope import Scope
from exactum.storage.storage import Storage

HIDDEN = ".exactum"
MARKS_KEPT = 16
"""How many markers of committed batches stay; the highest one speaks for all before it."""
PLAIN_AGE_S = 86_400.0
"""Staged files of weaker guarantees that are older than this belong to tasks that died."""
COMMITTED = "committed"
NEW = "new"
"""Beside ``scope``, from when the scope's folder is made until its first mark."""

OWNERS = ("_spark_metadata", "_delta_log", ".hoodie")
"""Folders whose presence makes readers trust a list of files instead of what they find."""

MARK = re.compile(r"\d{20}")
_STAGING = re.compile(r"([0-9A-Za-z_-]{1,64})\.([0-9a-f]{32})")

FILE_NAME_BYTES_MAX = 96
"""No name of a file of ours is longer:
``part-<batch>-<attempt>-<identity>-<number>.<extension>``.
"""
STAGED_BYTES_MAX = 224
"""No path of ours below the place and outside of partition folders is longer."""
NAME_BYTES_MAX = 255
"""Longest name of a folder or file on the usual file systems; some take less."""
FOLDER_BYTES_MAX = 700
"""Longest partition folder in all its levels."""


@dataclass(frozen=True)
class NameLimits:
    """What a place takes: bytes of one name, and of a partition folder in all its levels."""

    name_bytes_max: int
    folder_bytes_max: int

    @staticmethod
    def of(name_bytes_max: int, path_bytes_max: int, where: str) -> NameLimits:
        """``path_bytes_max``: of a path below the place.

        Raises:
            SettingRefused: not even a file without partitions has room.
        """
        if path_bytes_max < STAGED_BYTES_MAX or name_bytes_max < FILE_NAME_BYTES_MAX:
            raise SettingRefused(
                "FILES_PATH_LONG",
                f"FileSink({where!r}): paths there may have {path_bytes_max} bytes below it, and "
                f"names {name_bytes_max}; the sink needs {STAGED_BYTES_MAX} and "
                f"{FILE_NAME_BYTES_MAX}. Choose a shorter path. Nothing was written.",
            )
        return NameLimits(
            name_bytes_max, min(FOLDER_BYTES_MAX, path_bytes_max - 1 - FILE_NAME_BYTES_MAX)
        )


class Area(Enum):
    """Where staged files wait: for a decision, or only for the end of their task (weaker
    guarantees).
    """

    STAGED = "staged"
    PLAIN = "plain"


@dataclass(frozen=True)
class FileScope(Scope):
    """Its folder at a place."""

    @property
    def folder(self) -> str:
        return f"{HIDDEN}/{self.digest[:32]}"

    def text(self) -> str:
        return (
            json.dumps({"query_id": self.query_id, "participant": self.participant}, indent=2)
            + "\n"
        )


@dataclass(frozen=True)
class StagedFolder:
    """Where the files of one transaction wait: the unit that is listed, aborted and cleaned up."""

    area: Area
    incarnation: Incarnation
    identity: str

    def folder(self, scope: FileScope) -> str:
        return f"{scope.folder}/{self.area.value}/{self.incarnation}.{self.identity}"


@dataclass(frozen=True)
class FileMove:
    """One file from its staging name to the name under which readers find it; ``target`` is below
    the place.
    """

    staging: StagedFolder
    name: str
    target: str


def mark_name(batch_id: int) -> str:
    return f"{batch_id:020d}"


def owned(where: str, owner: str) -> str:
    """Why a place with such a folder is refused."""
    return (
        f"FileSink({where!r}): there is {owner!r}, with which Spark's own streaming sink, Delta "
        "Lake or Hudi lists the files of this table. Their readers would not see the files of this "
        "sink. Write to another folder. Nothing was written."
    )


@dataclass(frozen=True)
class FilePlace:
    """One query's and sink's share of a place. Picklable. Driver and tasks have their own copies;
    what is done here raises as ``Storage`` does.
    """

    storage: Storage
    scope: FileScope

    @property
    def where(self) -> str:
        return self.storage.where

    def path(self, staging: StagedFolder, name: str = "") -> str:
        """Of a staging, or of a file in it."""
        folder = staging.folder(self.scope)
        return f"{folder}/{name}" if name else folder

    # ---- driver ------------------------------------------------------------------------------

    def open(self, area: Area) -> NameLimits:
        """Make what is missing, check by doing it that files can be written, moved and removed
        here, and remove what died tasks of the weaker guarantees left a day ago.
        """
        for owner in OWNERS:
            if self.storage.names(owner):
                raise SettingRefused("FILES_OWNED", owned(self.where, owner))
        # A script that removes old files leaves the folders.
        is_new = self.storage.may_be_unmounted and not self.storage.names(self.scope.folder)
        self.storage.open(*(f"{self.scope.folder}/{name}" for name in (area.value, COMMITTED)))
        limits = NameLimits.of(*self.storage.limits(), self.where)
        if is_new:
            self.storage.put(f"{self.scope.folder}/{NEW}", b"")
        self.storage.put(f"{self.scope.folder}/scope", self.scope.text().encode())
        for staging in self.stagings(Area.PLAIN):
            written_ms = self.written_ms(staging)
            if written_ms is not None and time.time() - written_ms / 1000 > PLAIN_AGE_S:
                self.discard(staging)
        return limits

    def stagings(self, area: Area = Area.STAGED) -> list[StagedFolder]:
        """Every staging of the area, of all incarnations of this scope."""
        names = map(_STAGING.fullmatch, self.storage.names(f"{self.scope.folder}/{area.value}"))
        return [StagedFolder(area, Incarnation(m[1]), m[2]) for m in names if m]

    def staged(self, staging: StagedFolder) -> dict[str, int]:
        """Name and bytes of every file in a staging; empty when there is none."""
        return {entry.name: entry.size for entry in self.storage.entries(self.path(staging))}

    def written_ms(self, staging: StagedFolder) -> int | None:
        """When the last of its files was written to, in ms since 1970 by the place's clock; None
        when there is none.
        """
        entries = self.storage.entries(self.path(staging))
        return max((entry.modified_ms for entry in entries), default=None)

    def publish(self, moves: Sequence[FileMove]) -> list[FileMove]:
        """Bring files to their targets and make that durable. Returns those found in neither
        place.
        """
        pairs = [(self.path(move.staging, move.name), move.target) for move in moves]
        arrived = self.storage.move_if_absent(pairs)
        return [move for move, there in zip(moves, arrived, strict=True) if not there]

    def mark(self, batch_id: int, text: str) -> None:
        """Record durably that all files of a batch are published; forget marks far below the
        highest.
        """
        self.storage.put(self._mark(batch_id), text.encode())
        marks = self._marks()
        past = [self._mark(mark) for mark in marks[:-MARKS_KEPT]]
        if self.storage.may_be_unmounted and len(marks) <= 2:
            past.append(f"{self.scope.folder}/{NEW}")  # the second one's, where a driver died here
        self.storage.delete(past)

    def highest_mark(self) -> int | None:
        """The highest batch that is marked."""
        return max(self._marks(), default=None)

    def forget_marks(self) -> None:
        """Remove all marks, the lowest first: what is left tells the same in between."""
        for mark in self._marks():
            self.storage.delete([self._mark(mark)])
        self.storage.sync(f"{self.scope.folder}/{COMMITTED}")

    def never_marked(self) -> bool:
        """Whether the place was made new for this scope, and nothing was marked since. In an object
        store no: it is not mounted, so it cannot be missing.
        """
        path = f"{self.scope.folder}/{NEW}"
        return bool(self.storage.existing([path])) and not self._marks()

    def discard(self, staging: StagedFolder) -> None:
        """Remove a staging with all that is in it. A task that still writes there fails at its next
        file.
        """
        self.storage.remove(self.path(staging))

    def _marks(self) -> list[int]:
        names = self.storage.names(f"{self.scope.folder}/{COMMITTED}")
        return sorted(int(name) for name in names if MARK.fullmatch(name))

    def _mark(self, batch_id: int) -> str:
        return f"{self.scope.folder}/{COMMITTED}/{mark_name(batch_id)}"

    # ---- task --------------------------------------------------------------------------------

    def seal(self, staging: StagedFolder, sizes: Mapping[str, int]) -> None:
        """Make the names durable, and check that every file is there in full: the last step of
        prepare.

        Raises:
            FileNotFoundError: the staging or a file in it is gone, so somebody has aborted it.
        """
        found = self.staged(staging)
        for name, size in sizes.items():
            if found.get(name) != size:
                path = f"{self.where}/{self.path(staging, name)}"
                raise FileNotFoundError(
                    errno.ENOENT, f"has {found.get(name)} instead of {size} bytes", path
                )
        self.storage.sync(self.path(staging))
        self.storage.sync(f"{self.scope.folder}/{staging.area.value}")


def is_found_below(folder: str, place: str) -> bool:
    """Whether who lists all of ``folder`` finds what lies in ``place``. Readers pass over names
    that begin with a point, or with an underscore unless they name a partition.
    """
    if not folder or not place.startswith(folder.rstrip("/") + "/"):
        return False
    names = place[len(folder.rstrip("/")) + 1 :].split("/")
    return not any(name[:1] == "." or (name[:1] == "_" and "=" not in name) for name in names)
