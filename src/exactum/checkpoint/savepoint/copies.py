"""Copies files durably and names their bytes."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from exactum.checkpoint.state_store import Vanished
from exactum.durable import make_folder, sync_folder, sync_open
from exactum.errors import Unavailable

CHUNK_BYTES = 1 << 20
AT_ONCE = 8


@dataclass(frozen=True)
class Copied:
    """One file: its path relative to the folder that was copied, its size in bytes and its
    digest.
    """

    path: str
    size: int
    sha256: str


@contextlib.contextmanager
def writing(place: Path) -> Iterator[None]:
    """What the file system refuses on the way to ``place`` is one clear error.

    Raises:
        Unavailable: no room, no right, a file where a folder should be.
    """
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"{place} could not be written: {error}. Look at the room and the rights there, or "
            "give another place. Nothing of it is left."
        ) from error


def copy_files(source: Path, target: Path, names: Sequence[str]) -> tuple[Copied, ...]:
    """Copy these files from folder to folder, several at a time. All is durable when it returns.

    Raises:
        Vanished: one is gone.
        OSError: the file system failed, or one is there already.
    """
    folders = {(target / name).parent for name in names}
    for folder in sorted(folders):
        folder.mkdir(parents=True, exist_ok=True)

    def copy(name: str) -> Copied:
        try:
            return Copied(name, *_copy(source / name, target / name))
        except FileNotFoundError as error:
            raise Vanished(name) from error

    with ThreadPoolExecutor(AT_ONCE, "exactum-copy") as pool:
        copied = tuple(pool.map(copy, names))
    sync_tree(target, folders)
    return copied


def sync_tree(root: Path, folders: Iterable[Path]) -> None:
    """fsync these folders below ``root``, and all folders between."""
    wanted = {root}
    for folder in folders:
        wanted.update(p for p in (folder, *folder.parents) if p.is_relative_to(root))
    for folder in sorted(wanted, reverse=True):
        sync_folder(folder)


def move_into_place(folder: Path, place: Path) -> None:
    """Give a finished folder its name: all at once, and durable when it returns.

    Raises:
        OSError: something that is not an empty folder has the name.
    """
    make_folder(place.parent)
    os.rename(folder, place)
    sync_folder(place.parent)


def sha256_of(path: Path) -> tuple[int, str]:
    """Size in bytes, and the digest."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return size, digest.hexdigest()


def _copy(source: Path, target: Path) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    with source.open("rb") as reader, target.open("xb") as writer:
        while chunk := reader.read(CHUNK_BYTES):
            digest.update(chunk)
            writer.write(chunk)
            size += len(chunk)
        writer.flush()
        sync_open(writer.fileno())
    return size, digest.hexdigest()
