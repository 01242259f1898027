"""A folder on a local or shared file system as the place of files. Publishing is one ``rename`` for
each file.

The same path must show the same files on the driver and on every executor: a local disk with
everything on one machine, or NFS, CephFS, Lustre and the like. Who finds a file neither staged nor
published looks into the folder itself before it says so: network file systems remember for a while
that a name was not there.
"""

from __future__ import annotations

import contextlib
import errno
import filecmp
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from exactum.durable import (
    OF_THE_SETTING,
    free_bytes,
    make_folder,
    sync_folder,
    sync_folders,
    write_durably,
)
from exactum.errors import HeuristicOutcome, SettingRefused, Unavailable
from exactum.files.folder_file import FolderFile
from exactum.files.place import (
    IDENTITY,
    INCARNATION,
    MARK,
    MARKS_KEPT,
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

OPEN_FILES_MAX = 64
RENAME_TRIES = 3
"""How often a partition folder may be removed under our eyes."""
NEW = "new"
"""Beside ``scope``, from when the scope's folder is made until its first mark."""
ABORTED = ".aborted"
"""Suffix of a staging that is being removed: one rename takes it away from a task that still
writes.
"""
_OF_THE_SETTING = OF_THE_SETTING | {errno.EXDEV, errno.ENAMETOOLONG}


@dataclass(frozen=True)
class FolderPlace:
    """``root`` is an absolute path."""

    root: str
    scope: FileScope

    @property
    def where(self) -> str:
        return self.root

    @property
    def open_files_max(self) -> int:
        return OPEN_FILES_MAX

    def room(self) -> str:
        return free_bytes(self.root)

    # ---- driver ------------------------------------------------------------------------------

    def open(self, area: Area) -> NameLimits:
        for owner in OWNERS:
            if os.path.exists(self._path(owner)):
                raise SettingRefused("FILES_OWNED", owned(self.root, owner))
        try:
            is_new = not os.path.exists(self._path(self.scope.folder))
            for name in (Area.STAGED.value, Area.PLAIN.value, "committed"):
                make_folder(self._path(self.scope.folder, name))
            limits = self._limits()
            self._introduce(is_new)
            self._tidy()
            return limits
        except OSError as error:
            if error.errno in _OF_THE_SETTING:
                raise SettingRefused(
                    "FILES_NOT_WRITABLE",
                    f"FileSink({self.root!r}): files cannot be written and renamed there: {error}. "
                    "Choose a folder that this user may write to and that lies on one file "
                    "system, seen under the same path by the driver and all executors. Nothing "
                    "was written.",
                ) from error
            raise self._unavailable("could not be opened", error) from error

    def stagings(self) -> Sequence[Staging]:
        with self._answering("could not be listed"):
            return [s for s, _ in self._stagings(Area.STAGED)]

    def staged(self, staging: Staging) -> Mapping[str, int]:
        with self._answering("could not be listed"):
            return self._sizes(staging)

    def written_ms(self, staging: Staging) -> int | None:
        with self._answering("could not be listed"):
            try:
                return int(os.stat(self._path(staging.folder(self.scope))).st_mtime * 1000)
            except FileNotFoundError:
                return None

    def read_staged(self, staging: Staging, name: str) -> bytes | None:
        with self._answering("could not be read"):
            try:
                with open(self._path(staging.folder(self.scope), name), "rb") as file:
                    return file.read()
            except FileNotFoundError:
                return None

    def visible(self, targets: Sequence[str]) -> set[str]:
        with self._answering("could not be read"):
            return {t for t in targets if self._is_visible(self._path(t))}

    def publish(self, moves: Sequence[FileMove]) -> Sequence[FileMove]:
        with self._answering("could not take the files of a decided epoch"):
            lost = [move for move in moves if not self._rename(move)]
            # Whoever made the folders and renamed the files: they are durable before anybody says
            # so.
            sync_folders(self._path(folder) for move in moves for folder in _above(move.target))
            return lost

    def mark(self, batch_id: int, text: str) -> None:
        with self._answering("could not be marked"):
            folder = self._path(self.scope.folder, "committed")
            with contextlib.suppress(FileExistsError):
                write_durably(os.path.join(folder, mark_name(batch_id)), text.encode())
            sync_folder(folder)
            marks = sorted(self._marks())
            if len(marks) <= 2:  # the second one's, where the first one's driver died here
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._path(self.scope.folder, NEW))
            for mark in marks[:-MARKS_KEPT]:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(folder, mark_name(mark)))

    def highest_mark(self) -> int | None:
        with self._answering("could not be read"):
            return max(self._marks(), default=None)

    def forget_marks(self) -> None:
        with self._answering("could not be cleaned up"):
            folder = self._path(self.scope.folder, "committed")
            for mark in sorted(self._marks()):
                os.unlink(os.path.join(folder, mark_name(mark)))
            sync_folder(folder)

    def never_marked(self) -> bool:
        with self._answering("could not be read"):
            return os.path.exists(self._path(self.scope.folder, NEW)) and not self._marks()

    def discard(self, staging: Staging) -> None:
        with self._answering("could not be cleaned up"):
            folder = self._path(staging.folder(self.scope))
            aborted = folder + ABORTED
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                pass
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                with contextlib.suppress(FileNotFoundError):
                    os.rename(folder, aborted)
            self._remove(aborted)

    # ---- task --------------------------------------------------------------------------------

    def begin(self, staging: Staging) -> None:
        folder = self._path(staging.folder(self.scope))
        for _ in range(RENAME_TRIES):
            with contextlib.suppress(FileExistsError):
                os.mkdir(
                    os.path.dirname(folder)
                )  # never its parent: it is the driver's, and proves a shared folder
            try:
                os.mkdir(folder)
            except FileNotFoundError:  # a starting driver has tidied up an empty folder
                continue
            except FileExistsError:  # its name is random: a network file system was asked twice
                return
            return
        os.mkdir(folder)

    def create(self, staging: Staging, name: str) -> FolderFile:
        return FolderFile(self._path(staging.folder(self.scope), name))

    def seal(self, staging: Staging, sizes: Mapping[str, int]) -> None:
        folder = self._path(staging.folder(self.scope))
        found = self._sizes(staging)
        for name, size in sizes.items():
            if found.get(name) != size:
                raise FileNotFoundError(
                    errno.ENOENT,
                    f"has {found.get(name)} instead of {size} bytes",
                    f"{folder}/{name}",
                )
        incarnation = os.path.dirname(folder)
        for one in (folder, incarnation, os.path.dirname(incarnation)):
            sync_folder(one)

    def write_staged(self, staging: Staging, name: str, content: bytes) -> None:
        write_durably(self._path(staging.folder(self.scope), name), content)

    # ---- small steps -------------------------------------------------------------------------

    def _rename(self, move: FileMove) -> bool:
        """True when the file is at its target, whoever brought it there; False when it is in
        neither place.
        """
        staged = self._path(move.staging.folder(self.scope), move.name)
        target = self._path(move.target)
        for _ in range(RENAME_TRIES):
            if _is_there(target):
                self._settle_both(staged, target)
                return True
            try:
                os.rename(staged, target)
                return True
            except FileNotFoundError:
                if not _is_there(staged):
                    return self._is_visible(target)
                make_folder(os.path.dirname(target))
        raise OSError(errno.ENOENT, "its folder is removed again and again", target)

    def _settle_both(self, staged: str, target: str) -> None:
        """The target is there. A staged file of the same content is a copy (a power failure, a
        restored backup).
        """
        try:
            same = os.path.samefile(staged, target) or filecmp.cmp(staged, target, shallow=False)
        except FileNotFoundError:
            return
        if not same:
            raise HeuristicOutcome(
                "FILE_REPLACED",
                f"The file {target} is there already with other content than {staged}, which "
                "belongs to a decided epoch under that very name. Something outside has written "
                "it: move it away and start again.",
            )
        with contextlib.suppress(FileNotFoundError):
            os.unlink(staged)

    def _is_visible(self, path: str) -> bool:
        if _is_there(path):
            return True
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return os.path.basename(path) in os.listdir(os.path.dirname(path))
        return False

    def _sizes(self, staging: Staging) -> dict[str, int]:
        """Without those that another driver moves away meanwhile: they are found where they
        went.
        """
        folder = self._path(staging.folder(self.scope))
        found: dict[str, int] = {}
        for name in _names(folder):
            with contextlib.suppress(FileNotFoundError):
                found[name] = os.stat(os.path.join(folder, name)).st_size
        return found

    def _stagings(self, area: Area) -> Iterator[tuple[Staging, str]]:
        top = self._path(self.scope.folder, area.value)
        for incarnation in _names(top):
            if incarnation.startswith(TEMPORARY) or not INCARNATION.fullmatch(incarnation):
                continue
            for name in _names(os.path.join(top, incarnation)):
                identity = name.removesuffix(ABORTED)
                if IDENTITY.fullmatch(identity):
                    yield (
                        Staging(area, Incarnation(incarnation), identity),
                        os.path.join(top, incarnation, name),
                    )

    def _marks(self) -> list[int]:
        return [
            int(n) for n in _names(self._path(self.scope.folder, "committed")) if MARK.fullmatch(n)
        ]

    def _limits(self) -> NameLimits:
        """As the file system says. A path ends with a NUL, which counts."""
        path_bytes_max = os.pathconf(self.root, "PC_PATH_MAX") - 1
        name_bytes_max = os.pathconf(self.root, "PC_NAME_MAX")
        return NameLimits.of(
            name_bytes_max, path_bytes_max - len(os.fsencode(self.root)) - 1, self.root
        )

    def _introduce(self, is_new: bool) -> None:
        """Say in a file, for people, whose folder this is. Doing so tries what every commit does:
        write and rename.

        ``is_new``: it was made just now. A script that removes old files leaves the folders.
        """
        folder = self._path(self.scope.folder)
        temporary = os.path.join(folder, Area.STAGED.value, f"{TEMPORARY}{secrets.token_hex(8)}")
        if is_new:
            with contextlib.suppress(FileExistsError):
                write_durably(os.path.join(folder, NEW), b"")
        try:
            write_durably(temporary, self.scope.text().encode())
            os.rename(temporary, os.path.join(folder, "scope"))
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        sync_folder(folder)
        if not os.access(self.root, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "no files may be made in it", self.root)
        if os.stat(self.root).st_dev != os.stat(folder).st_dev:
            raise OSError(errno.EXDEV, "it lies on another file system", folder)

    def _tidy(self) -> None:
        """Empty folders of older incarnations, and what tasks of the weaker guarantees left when
        they died.
        """
        for staging, path in self._stagings(Area.PLAIN):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - os.stat(path).st_mtime > PLAIN_AGE_S:
                    self.discard(staging)
        for area in Area:
            top = self._path(self.scope.folder, area.value)
            for name in _names(top):
                path = os.path.join(top, name)
                # Not empty, or gone: both are well. A task that wants it makes it again.
                with contextlib.suppress(OSError):
                    if not name.startswith(TEMPORARY):
                        os.rmdir(path)
                    elif time.time() - os.stat(path).st_mtime > TEMPORARY_AGE_S:
                        os.unlink(path)

    def _remove(self, folder: str) -> None:
        for name in _names(folder):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, name))
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            pass
        except OSError as error:
            # NFS keeps the name of a removed file while a task has it open: the next sweep gets it.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise

    def _path(self, *parts: str) -> str:
        return os.path.join(self.root, *parts)

    @contextlib.contextmanager
    def _answering(self, trouble: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._unavailable(trouble, error) from error

    def _unavailable(self, trouble: str, error: OSError) -> Unavailable:
        return Unavailable(
            f"FileSink({self.root!r}), scope {self.scope.folder}: the folder {trouble}: {error} "
            f"({self.room()}). Make it available again and start the query again: what is decided "
            "is then carried out."
        )


def _above(target: str) -> Iterator[str]:
    """Every folder that ``target`` lies in, up to the place itself."""
    while target:
        target = os.path.dirname(target)
        yield target


def _is_there(path: str) -> bool:
    """Unlike ``os.path.exists`` never says "no" for "I could not look"."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
