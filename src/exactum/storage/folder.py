"""A folder on a local or shared file system as a storage.

The same path must show the same files on the driver and on every executor: a local disk with
everything on one machine, or NFS, CephFS, Lustre and the like. *Create if absent* is ``link(2)`` of
a file that is whole and fsynced, a move is one ``rename``. Network file systems send a request
again whose answer was lost, and then report an error of a step that was done: what became of it is
read from the files. They also remember for a while that a name was not there: before a file is
called missing, its folder is listed.
"""

from __future__ import annotations

import contextlib
import errno
import filecmp
import os
import secrets
import shutil
import stat
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from exactum.durable import (
    OF_THE_SETTING,
    create_whole,
    free_bytes,
    make_folder,
    names_in,
    sync_folder,
    sync_folders,
    sync_open,
    write_durably,
)
from exactum.errors import HeuristicOutcome, OutcomeUnknown, SettingRefused, Unavailable
from exactum.storage.storage import UNFINISHED, Entry, NewFile

UNFINISHED_AGE_S = 3_600.0
"""An unfinished file that is older than this belongs to a process that died."""
RENAME_TRIES = 3
"""How often a folder may be removed under our eyes."""

_NO_LINKS = frozenset(
    {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
)
_LASTING = OF_THE_SETTING | {errno.EXDEV, errno.ENAMETOOLONG, errno.EINVAL}
"""What no other start mends; EINVAL is the answer of a file system that cannot fsync a folder."""
_RIGHTS = (
    "Whoever types a command has to be able to read it, and whoever runs the query to write to it "
    "and to fsync folders there; under this path for driver and executors alike."
)
_TODO = {
    errno.EXDEV: "Files are moved by a rename: bring all that lies below onto one file system.",
    errno.ENAMETOOLONG: "Its file system has shorter names: choose another one, or a shorter path.",
    errno.ENOTDIR: "Move away the file that stands in the place of a folder.",
}
_NO_EFFECT = _LASTING | {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOENT}
"""After these no file was created, so it is known what became of it."""


@dataclass(frozen=True)
class Folder:
    """``root`` is an absolute path, or one below the working directory of this process alone.
    ``file_mode``: of large files, before the umask.
    """

    root: str | Path
    file_mode: int = 0o666

    streams_max = 64
    may_be_unmounted = True

    @property
    def where(self) -> str:
        return str(self.root)

    def below(self, prefix: str) -> Folder:
        return Folder(self._path(prefix), self.file_mode)

    def remove(self) -> None:
        with self._explained("could not be removed"):
            shutil.rmtree(self.root)

    # ---- small files -------------------------------------------------------------------------

    def open(self, *folders: str) -> None:
        with self._explained("could not be opened"):
            for folder in map(self._make, folders or ("",)):
                self._tidy(folder)
                sync_folder(folder)
            self._make("")

    def names(self, prefix: str = "") -> list[str]:
        with self._explained("could not be listed"):
            return names_in(Path(self._path(prefix)))

    def read(self, name: str) -> bytes | None:
        with self._explained("could not be read"):
            try:
                return Path(self._path(name)).read_bytes()
            except FileNotFoundError:
                return None

    def create_if_absent(self, name: str, content: bytes) -> bool:
        path = Path(self._path(name))
        try:
            created = create_whole(path, content)
        except OSError as error:
            self._settle(name, error)
            created = False
        try:
            # Taken or created: who made it may have died before it was durable.
            sync_folder(path.parent)
            return created or self.read(name) == content
        except (OSError, Unavailable) as error:
            raise OutcomeUnknown(
                f"{path} is there, and may not survive a power failure: {error}. Start the query "
                "again: it finds out."
            ) from error

    def put(self, name: str, content: bytes, *, durable: bool = True) -> None:
        path = self._path(name)
        temporary = _temporary(path)
        with self._explained("could not be written"):
            try:
                if durable:
                    write_durably(temporary, content)
                else:
                    Path(temporary).write_bytes(content)
                _rename(temporary, path)
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
            if durable:
                sync_folder(os.path.dirname(path))

    def delete(self, names: Sequence[str]) -> None:
        with self._explained("could not be cleaned up"):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._path(name))

    def sync(self, prefix: str = "") -> None:
        with self._explained("could not be made durable"):
            sync_folder(self._path(prefix))

    def close(self) -> None:
        """It holds nothing."""

    # ---- large files -------------------------------------------------------------------------

    def entries(self, prefix: str = "") -> list[Entry]:
        with self._explained("could not be listed"):
            return list(_below(self._path(prefix), ""))

    def entry(self, name: str) -> Entry | None:
        with self._explained("could not be read"):
            try:
                found = os.stat(self._path(name))
            except (FileNotFoundError, NotADirectoryError):
                return None
            return _entry(name, found)

    def existing(self, names: Sequence[str]) -> set[str]:
        with self._explained("could not be read"):
            return {name for name in names if _is_found(self._path(name))}

    def reader(self, name: str) -> IO[bytes]:
        return open(self._path(name), "rb")

    def create(self, name: str) -> _FolderFile:
        return _FolderFile(self._path(name), self.file_mode)

    def make_way(self, targets: Collection[str]) -> None:
        with self._explained("cannot take the files of an epoch"):
            for folder in sorted({os.path.dirname(name) for name in targets}):
                self._make(folder)

    def move_if_absent(self, moves: Sequence[tuple[str, str]]) -> list[bool]:
        with self._explained("could not take the files of a decided epoch"):
            arrived = [self._move(self._path(a), self._path(b)) for a, b in moves]
            # Whoever made the folders and renamed the files: they are durable before anybody says
            # so.
            sync_folders(self._path(above) for _, target in moves for above in _above(target))
            return arrived

    def failure(self, trouble: str, error: OSError) -> Unavailable | SettingRefused:
        what = f"The folder {self.root} {trouble}: {error}"
        if error.errno in _LASTING:
            return SettingRefused("FOLDER_ACCESS", f"{what}. {_TODO.get(error.errno, _RIGHTS)}")
        return Unavailable(
            f"{what} ({free_bytes(self.root)}). Start the query again when it can be: what is "
            "decided is then carried out."
        )

    # ---- small steps -------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return os.path.join(self.root, name) if name else str(self.root)

    def _make(self, name: str) -> str:
        """A folder that files can be moved to from all others here."""
        folder = self._path(name)
        make_folder(folder)
        if os.stat(f"{folder}/").st_dev != os.stat(self.root).st_dev:
            raise OSError(errno.EXDEV, "it lies on another file system", folder)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "no files may be made in it", folder)
        return folder

    @contextlib.contextmanager
    def _explained(self, trouble: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self.failure(trouble, error) from error

    def _settle(self, name: str, error: OSError) -> None:
        """Returns if ``name`` is taken all the same: a link that failed may have been made."""
        path = self._path(name)
        if error.errno in _NO_LINKS:
            raise SettingRefused(
                "FOLDER_HARD_LINKS",
                f"The file system of {self.root} has no hard links ({error}), and exactum needs "
                "them to create a file only if it is absent. Use a local disk or NFS; a decision "
                "log may lie in a database as well. Nothing was written.",
            ) from error
        if error.errno in _NO_EFFECT:
            raise self.failure("could not be written", error) from error
        with contextlib.suppress(Unavailable, SettingRefused):
            if self.read(name) is not None:
                return
        raise OutcomeUnknown(
            f"{path} may or may not have been created: {error}. Start the query again: it finds "
            "out."
        ) from error

    def _move(self, source: str, target: str) -> bool:
        for _ in range(RENAME_TRIES):
            if _is_there(target):
                _settle_both(source, target)
                return True
            try:
                os.rename(source, target)
                return True
            except FileNotFoundError:
                if not _is_there(source):
                    return _is_found(target)
                make_folder(os.path.dirname(target))
        raise OSError(errno.ENOENT, "its folder is removed again and again", target)

    def _tidy(self, folder: str) -> None:
        """What writers that died left unfinished."""
        for name in names_in(Path(folder)):
            path = os.path.join(folder, name)
            # Gone, or another user's: both are well.
            with contextlib.suppress(OSError):
                if name.endswith(UNFINISHED) and _age_s(path) > UNFINISHED_AGE_S:
                    os.unlink(path)


class _FolderFile(NewFile):
    """Fsynced through the descriptor that it is written through, so that no write error between the
    two can be missed. One that is dropped lets go of the file.
    """

    _descriptor: int | None = None

    def __init__(self, path: str, mode: int) -> None:
        super().__init__()
        self._path = path
        self._temporary = _temporary(path)
        self._descriptor = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)

    def append(self, data: memoryview) -> None:
        while data and self._descriptor is not None:
            data = data[os.write(self._descriptor, data) :]

    def finish(self) -> int:
        if self._descriptor is None:
            raise ValueError("finish() of a file that was discarded")
        try:
            sync_open(self._descriptor)
            _rename(self._temporary, self._path)
            return self.tell()
        finally:
            self._close()

    def discard(self) -> None:
        self._close()
        with contextlib.suppress(OSError):  # a start removes what this cannot
            os.unlink(self._temporary)

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __del__(self) -> None:
        self._close()


def _temporary(path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.{secrets.token_hex(8)}{UNFINISHED}")


def _age_s(path: str) -> float:
    return time.time() - os.stat(path).st_mtime


def _rename(temporary: str, path: str) -> None:
    """Nobody else takes ``temporary`` away: where it is gone and ``path`` is there, a network file
    system has sent the rename twice.
    """
    try:
        os.rename(temporary, path)
    except FileNotFoundError:
        if _is_there(temporary) or not _is_there(path):
            raise


def _settle_both(source: str, target: str) -> None:
    """The target is there. A source of the same content is a copy (a power failure, a restored
    backup).
    """
    try:
        same = os.path.samefile(source, target) or filecmp.cmp(source, target, shallow=False)
    except FileNotFoundError:
        return
    if not same:
        raise HeuristicOutcome(
            "FILE_REPLACED",
            f"The file {target} is there already with other content than {source}, which belongs "
            "to a decided epoch under that very name. Something outside has written it: move it "
            "away and start again.",
        )
    with contextlib.suppress(FileNotFoundError):
        os.unlink(source)


def _is_found(path: str) -> bool:
    if _is_there(path):
        return True
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return os.path.basename(path) in os.listdir(os.path.dirname(path))
    return False


def _is_there(path: str) -> bool:
    """Unlike ``os.path.exists`` never says "no" for "I could not look"."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _below(folder: str, prefix: str) -> Iterator[Entry]:
    """Without files that somebody else moves away meanwhile: they are found where they went."""
    for name in names_in(Path(folder)):
        path = os.path.join(folder, name)
        try:
            found = os.stat(path)
        except FileNotFoundError:
            continue
        if stat.S_ISDIR(found.st_mode) and not os.path.islink(path):
            yield from _below(path, f"{prefix}{name}/")
        elif not stat.S_ISDIR(found.st_mode):
            yield _entry(f"{prefix}{name}", found)


def _entry(name: str, found: os.stat_result) -> Entry:
    return Entry(name, found.st_size, found.st_mtime_ns // 1_000_000)


def _above(name: str) -> Iterator[str]:
    """Every folder that ``name`` lies in, up to the root itself."""
    while name:
        name = os.path.dirname(name)
        yield name
