"""Copies files durably and names their bytes."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

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
        with (target / name).open("xb") as writer:
            try:
                copied = Copied(name, *sha256_of(source / name, writer))
            except FileNotFoundError as error:
                raise Vanished(name) from error
            writer.flush()
            sync_open(writer.fileno())
        return copied

    with ThreadPoolExecutor(AT_ONCE, "exactum-copy") as pool:
        copied = tuple(pool.map(copy, names))
    between = {p for f in folders for p in (f, *f.parents) if p.is_relative_to(target)}
    for folder in sorted({target} | between, reverse=True):
        sync_folder(folder)
    return copied


def move_into_place(folder: Path, place: Path) -> None:
    """Give a finished folder its name: all at once, and durable when it returns.

    Raises:
        OSError: something that is not an empty folder has the name.
    """
    make_folder(place.parent)
    os.rename(folder, place)
    sync_folder(place.parent)


def sha256_of(path: Path, copy: IO[bytes] | None = None) -> tuple[int, str]:
    """Size in bytes, and the digest. What is read is written to ``copy``, too."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
            if copy is not None:
                copy.write(chunk)
    return size, digest.hexdigest()
