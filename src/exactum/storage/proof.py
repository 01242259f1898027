"""Whether a place can hold what a query keeps there: tried by what a query does, and taken back.

A folder that is not there yet is tried in the nearest one above it that is: the file system is the
same, and nothing has to be made. What a killed process leaves has a name that begins with
``.exactum-doctor-`` and may be removed.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from exactum.errors import ExactumError
from exactum.problem import Level, Problem, clock, error, of_failure, ok, warning
from exactum.storage.folder import Folder
from exactum.storage.mount import mount_problems
from exactum.storage.storage import Storage

PROBE = ".exactum-doctor-"
FREE_MIN_BYTES = 2**30
FILES_MIN = 10_000
STAMP_S = 2.0
"""Object stores stamp in whole seconds, and so do some file systems."""


def prove(storage: Storage, where: str) -> Iterator[Problem]:
    """``where``: in messages."""
    if isinstance(storage, Folder):
        yield from _prove_folder(Path(storage.root).absolute(), where)
        return
    probe = storage.below(f"{PROBE.strip('.-')}-{secrets.token_hex(8)}")
    try:
        yield from _prove_files(probe, where, "the store")
    finally:
        with suppress(ExactumError):  # that files can be removed was tried
            probe.delete(probe.names())


def _prove_folder(folder: Path, where: str) -> Iterator[Problem]:
    there = next(path for path in (folder, *folder.parents) if path.exists())
    work = there / f"{PROBE}{secrets.token_hex(8)}"
    try:
        work.mkdir()
    except OSError as failure:
        yield _not_writable(where, there, failure)
        return
    try:
        yield _owner(where, folder)
        yield from mount_problems(where, work)
        yield _room(where, work)
        yield from _prove_files(Folder(work), where, "the file system's server")
    except OSError as failure:
        yield of_failure(where, failure)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _prove_files(storage: Storage, where: str, whose_clock: str) -> Iterator[Problem]:
    """Files appear whole, a new one only if its name is free, one takes another's place."""
    try:
        storage.open()
        first, second = (storage.create_if_absent("slot", text) for text in (b"first", b"second"))
        before_s = time.time()
        for text in (b"old", b"new"):
            storage.put("file", text)
        middle_s, took_s = (before_s + time.time()) / 2, time.time() - before_s
        names = {entry.name: entry.modified_ms for entry in storage.entries()}
        is_kept = storage.read("slot") == b"first" and storage.read("file") == b"new"
        storage.delete(list(names))
    except ExactumError as failure:
        yield of_failure(where, failure)
        return
    if not first or second or not is_kept or names.keys() != NAMES:
        yield error(
            where,
            f"{storage.where} does not keep to create-if-absent, or does not show what was written "
            "last.",
            "A decision is a file that is created only if it is absent. Without that two drivers "
            "can both believe that their decision stands, and rows are doubled or lost.",
            "Choose a local disk, NFS, a database or another object store.",
        )
        return
    yield ok(
        where,
        "Files are created only if they are absent (a second one was refused), replaced, listed "
        "and removed.",
    )
    found = clock(where, whose_clock, names["file"] / 1000 - middle_s, took_s + STAMP_S)
    if found.level is not Level.OK or not isinstance(storage, Folder):  # mostly it is ours
        yield found


NAMES = {"slot", "file"}


def _not_writable(where: str, folder: Path, failure: OSError) -> Problem:
    if failure.errno == errno.ENOTDIR:
        return error(where, f"{folder} is no folder.", "", "Give the path of a folder.")
    return error(
        where,
        f"{folder} cannot be written: {failure}",
        "The query keeps files there.",
        f"Let the user who runs the query (here {_user(os.geteuid())}) write there, or choose "
        "another folder.",
    )


def _owner(where: str, folder: Path) -> Problem:
    if not folder.exists():
        return ok(where, f"{folder} is not there yet; it can be made.")
    found = folder.stat()
    text = f"{folder} belongs to {_user(found.st_uid)} (mode {found.st_mode & 0o7777:o})"
    if os.geteuid() == 0 and found.st_uid != 0:
        return warning(
            where,
            f"{text}, and you are root.",
            "root may write where the query's user may not, so this says little of him; and what "
            "root makes there that user may not be able to change.",
            f"Run exactum doctor as the user who runs the query, such as {_user(found.st_uid)}.",
        )
    return ok(where, f"{text} and can be written.")


def _user(number: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _room(where: str, work: Path) -> Problem:
    found = os.statvfs(work)
    free = found.f_bavail * found.f_frsize
    text = f"{free / 2**30:.1f} GiB and {found.f_favail:,} files are free there."
    if free >= FREE_MIN_BYTES and (found.f_files == 0 or found.f_favail >= FILES_MIN):
        return ok(where, text)
    return warning(
        where,
        text,
        "A full disk stops the query. Nothing is lost by it, and nothing goes on.",
        "Make room, and have the disk watched.",
    )
