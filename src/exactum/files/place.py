"""A place that holds files and is seen by the driver and all tasks: a folder, or a prefix in an
object store.

    <place>/day=2026-01-01/part-0000000042-0-<identity>-0.parquet
        what readers see
    <place>/.exactum/<scope>/scope
        which query and sink this is, for people
    <place>/.exactum/<scope>/new
        in folders, until the first batch is there
    <place>/.exactum/<scope>/staged/<incarnation>/<identity>/0.staged
        written, not yet decided
    <place>/.exactum/<scope>/committed/00000000000000000042
        every file of batch 42 is where readers look

``scope`` is a hash of query id and participant name, so that any number of queries may share a
place. The suffix ``.staged`` hides files from readers that look for ``**/*.parquet`` in hidden
folders too (DuckDB).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from exactum.errors import SettingRefused
from exactum.protocol.model import Incarnation
from exactum.protocol.scope import Scope

HIDDEN = ".exactum"
MARKS_KEPT = 16
"""How many markers of committed batches stay; the highest one speaks for all before it."""
PLAIN_AGE_S = 86_400.0
"""Staged files of weaker guarantees that are older than this belong to tasks that died."""
TEMPORARY = "temporary-"
TEMPORARY_AGE_S = 3_600.0
"""A temporary file of a start that is older than this belongs to a driver that died."""

OWNERS = ("_spark_metadata", "_delta_log", ".hoodie")
"""Folders whose presence makes readers trust a list of files instead of what they find."""

IDENTITY = re.compile(r"[0-9a-f]{32}")
INCARNATION = re.compile(r"[0-9A-Za-z_-]{1,64}")
MARK = re.compile(r"\d{20}")


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
class Staging:
    """Where the files of one transaction wait: the unit that is listed, aborted and cleaned up."""

    area: Area
    incarnation: Incarnation
    identity: str

    def folder(self, scope: FileScope) -> str:
        return f"{scope.folder}/{self.area.value}/{self.incarnation}/{self.identity}"


@dataclass(frozen=True)
class FileMove:
    """One file from its staging name to the name under which readers find it; ``target`` is below
    the place.
    """

    staging: Staging
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


class StagedFile(Protocol):
    """One file on its way. Used by one thread until ``finish``."""

    @property
    def stream(self) -> Any:
        """What pyarrow writes into."""

    def position(self) -> int:
        """Bytes written so far."""

    def finish(self) -> int:
        """Make it durable and return its bytes. Called once, from any thread; raises OSError."""

    def discard(self) -> None:
        """Let go of it unfinished; what is left of it goes with its staging. Idempotent."""


class Place(Protocol):
    """Picklable. Driver and tasks have their own copies. Every method is idempotent and may run at
    the same time in several processes. Task methods raise OSError, which the writer explains;
    driver methods raise ``Unavailable`` (the place did not answer) and ``SettingRefused``."""

    @property
    def where(self) -> str:
        """The path or URL, for messages; never with a password."""

    @property
    def scope(self) -> FileScope: ...

    @property
    def open_files_max(self) -> int:
        """How many files one task may have open at a time."""

    # ---- driver ------------------------------------------------------------------------------

    def open(self, area: Area) -> NameLimits:
        """Make what is missing, check by doing it that files can be written, moved and removed
        here, and remove what died tasks of the weaker guarantees left a day ago. Returns how long
        names may be."""

    def stagings(self) -> Sequence[Staging]:
        """Every staging of the area STAGED, of all incarnations of this scope."""

    def staged(self, staging: Staging) -> Mapping[str, int]:
        """Name and bytes of every finished file in a staging; empty when there is none."""

    def written_ms(self, staging: Staging) -> int | None:
        """When the last of its files was begun or written, in ms since 1970 by the place's clock;
        None when there is none.
        """

    def read_staged(self, staging: Staging, name: str) -> bytes | None:
        """The content of one small file; None when it is not there."""

    def visible(self, targets: Sequence[str]) -> set[str]:
        """Which of these files readers find now."""

    def publish(self, moves: Sequence[FileMove]) -> Sequence[FileMove]:
        """Bring files to their targets and make that durable. Returns those found in neither place.

        A target that is there while the staged file is gone has been published before: a success.
        Never replaces another file: ``HeuristicOutcome``.
        """

    def mark(self, batch_id: int, text: str) -> None:
        """Record durably that all files of a batch are published; forget marks far below the
        highest.
        """

    def highest_mark(self) -> int | None:
        """The highest batch that is marked."""

    def forget_marks(self) -> None:
        """Remove all marks, the lowest first: what is left tells the same in between."""

    def never_marked(self) -> bool:
        """Whether the place was made new for this scope, and nothing was marked since. A place that
        cannot tell says no.
        """

    def discard(self, staging: Staging) -> None:
        """Remove a staging with all that is in it. A task that still writes there fails at its next
        file.
        """

    # ---- task --------------------------------------------------------------------------------

    def begin(self, staging: Staging) -> None:
        """Make the staging. Raises FileNotFoundError where this machine does not see the driver's
        folder.
        """

    def create(self, staging: Staging, name: str) -> StagedFile:
        """Open a new file in the staging."""

    def seal(self, staging: Staging, sizes: Mapping[str, int]) -> None:
        """Make the names durable, and check that every file is there in full: the last step of
        prepare.

        Raises:
            FileNotFoundError: the staging or a file in it is gone, so somebody has aborted it.
        """

    def write_staged(self, staging: Staging, name: str, content: bytes) -> None:
        """Create one small file durably in the staging; ``seal`` follows."""

    def room(self) -> str:
        """Text on the room left, for messages; empty where nothing is known."""
