"""What a folder's file system can do, tried in it: each step leaves nothing.

A folder that is not there yet is made for the while, with its parents, and removed again. What a
killed doctor leaves has a name that begins with ``.exactum-doctor-`` and may be removed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

from exactum.durable import create_whole, sync_folder, write_durably
from exactum.ops.doctor.examination import skew_findings
from exactum.ops.doctor.mount import Mount, mount_findings, mount_of
from exactum.ops.problem import Problem, error, of_failure, ok, warning

PROBE = ".exactum-doctor-"
FREE_MIN_BYTES = 2**30
FILES_MIN = 10_000
LOCK_TIMEOUT_S = 20
AT_ONCE = 4
Check = Callable[[str, Path], Iterator[Problem]]

_TRY_LOCK = (
    "import fcntl, sys\n"
    "file = open(sys.argv[1], 'rb')\n"
    "try: fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)\n"
    "except BlockingIOError: sys.exit(3)\n"
)
"""Another process, as on NFS the locks of one process do not exclude each other."""


@contextlib.contextmanager
def work_folder(folder: Path) -> Iterator[tuple[Path, bool]]:
    """A folder of the doctor's own below ``folder``, and whether ``folder`` was there; all that is
    made is removed.

    Raises:
        OSError: it could not be made.
    """
    folder.exists()  # not under the lock: a file system that hangs holds nobody else up
    with _Made(folder) as was_there:
        work = folder / f"{PROBE}{secrets.token_hex(8)}"
        work.mkdir()
        try:
            yield work, was_there
        finally:
            shutil.rmtree(work, ignore_errors=True)


class _Made:
    """Folders that were missing: made by the first who needs them, removed by the last. Areas that
    are looked at beside one another may need the same.
    """

    _lock = threading.Lock()
    _users: ClassVar[Counter[Path]] = Counter()

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: list[Path] = []

    def __enter__(self) -> bool:
        """Whether the folder was there."""
        try:
            with self._lock:
                for path in reversed((self._folder, *self._folder.parents)):
                    if path in self._users or not path.exists():
                        if path not in self._users:
                            path.mkdir()
                        self._users[path] += 1
                        self._known.append(path)
        except BaseException:
            self.__exit__()
            raise
        return self._folder not in self._known

    def __exit__(self, *_: object) -> None:
        with self._lock:
            for path in reversed(self._known):
                self._users[path] -= 1
                if not self._users[path]:
                    del self._users[path]
                    with contextlib.suppress(OSError):  # somebody has put something into it
                        path.rmdir()


def folder_findings(area: str, folder: Path, checks: Sequence[Check]) -> Iterator[Problem]:
    """What each check finds, in a folder of its own below ``folder``; first whether that can be."""
    with contextlib.ExitStack() as stack:
        try:
            work, was_there = stack.enter_context(work_folder(folder))
        except OSError as failure:
            yield _not_writable(area, folder, failure)
            return
        yield _owner(area, folder, was_there=was_there)
        for check in checks:
            yield from _guarded(area, check, work)


def _guarded(area: str, check: Check, work: Path) -> Iterator[Problem]:
    """An OSError of one check is its finding; the next ones are tried all the same."""
    try:
        yield from check(area, work)
    except OSError as failure:
        yield of_failure(area, failure)


def _not_writable(area: str, folder: Path, failure: OSError) -> Problem:
    if failure.errno == errno.EEXIST or (folder.exists() and not folder.is_dir()):
        return error(area, f"{folder} is no folder.", "", "Give the path of a folder.")
    return error(
        area,
        f"{folder} cannot be written: {failure}",
        "The query keeps files there.",
        f"Let the user who runs the query (here {_user(os.geteuid())}) write there, or choose "
        "another folder.",
    )


def _owner(area: str, folder: Path, *, was_there: bool) -> Problem:
    if not was_there:
        return ok(area, f"{folder} is not there yet; it can be made.")
    found = folder.stat()
    text = f"{folder} belongs to {_user(found.st_uid)} (mode {found.st_mode & 0o7777:o})"
    if os.geteuid() == 0 and found.st_uid != 0:
        return warning(
            area,
            f"{text}, and you are root.",
            "root may write where the query's user may not, so this says little of him; and what "
            "root makes there that user may not be able to change.",
            f"Run exactum doctor as the user who runs the query, such as {_user(found.st_uid)}.",
        )
    return ok(area, f"{text} and can be written.")


def _user(number: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


# ---- the checks ------------------------------------------------------------------------------


def create_if_absent(area: str, work: Path) -> Iterator[Problem]:
    """A file appears whole, and only if its name is free: the commit point of a decision log in a
    folder.
    """
    why = (
        "A decision is a file that is created only if it is absent. Without that two drivers can "
        "both believe that their decision stands, and rows are doubled or lost."
    )
    mend = (
        "Put the decision log on a local disk, on NFS, in a database or in an object store "
        "(decision_log=)."
    )
    try:
        first = create_whole(work / "slot", b"first")
        second = create_whole(work / "slot", b"second")
        with ThreadPoolExecutor(AT_ONCE, "exactum-doctor-link") as pool:
            raced = list(pool.map(lambda number: create_whole(work / "raced", number), _contents()))
    except OSError as failure:
        yield error(area, f"Files cannot be created only if absent there: {failure}", why, mend)
        return
    kept = (work / "slot").read_bytes() == b"first"
    if not first or second or not kept or sum(raced) != 1:
        yield error(
            area,
            "The file system does not keep to create-if-absent: a second file of one name was "
            f"taken ({second or sum(raced) != 1}), or the first was replaced ({not kept}).",
            why,
            mend,
        )
        return
    yield ok(area, "A file is created only if it is absent: a second one was refused.")


def _contents() -> list[bytes]:
    return [str(number).encode() for number in range(AT_ONCE)]


def durable_files(area: str, work: Path) -> Iterator[Problem]:
    """fsync of a file and of a folder, and how long they take."""
    began_s = time.monotonic()
    try:
        write_durably(work / "durable", b"1" * 512)
        sync_folder(work)
    except OSError as failure:
        yield error(
            area,
            f"Files and folders cannot be fsynced there: {failure}",
            "What is decided has to survive a power failure.",
            "Choose a file system that can fsync folders: ext4, XFS, ZFS, NFS.",
        )
        return
    took_ms = (time.monotonic() - began_s) * 1000
    if took_ms > 200:
        yield warning(
            area,
            f"fsync of a file and its folder took {took_ms:.0f} ms.",
            "Every micro-batch waits for a few of them.",
            "Choose a faster disk, or see what else writes to this one.",
        )
        return
    yield ok(area, f"fsync of a file and its folder took {took_ms:.1f} ms.")


def rename_over(area: str, work: Path) -> Iterator[Problem]:
    """A file takes another one's place in one step."""
    (work / "old").write_bytes(b"old")
    (work / "new").write_bytes(b"new")
    try:
        os.replace(work / "new", work / "old")
    except OSError as failure:
        yield error(
            area,
            f"A file cannot be renamed over another there: {failure}",
            "Spark's checkpoint and exactum's files are replaced whole, or readers see halves.",
            "Choose another file system.",
        )
        return
    if (work / "old").read_bytes() != b"new" or (work / "new").exists():
        yield error(
            area,
            "A rename over another file left both, or the old one.",
            "Spark's checkpoint and exactum's files are replaced whole, or readers see halves.",
            "Choose another file system; an object store mounted as a folder is none.",
        )
        return
    yield ok(area, "A file is renamed over another in one step.")


def locks(area: str, work: Path) -> Iterator[Problem]:
    """flock between processes: it tells a query that runs from one that is over."""
    import fcntl

    why = (
        "Locks tell commands whether a query runs (savepoint, status). No guarantee rests on them."
    )
    path = work / "locked"
    with path.open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as failure:
            yield warning(
                area,
                f"Files cannot be locked there: {failure}",
                why,
                "On NFS let the lock service run, or mount it without nolock.",
            )
            return
        other = subprocess.run(
            [sys.executable, "-c", _TRY_LOCK, str(path)],
            capture_output=True,
            timeout=LOCK_TIMEOUT_S,
            check=False,
        ).returncode
    if other != 3:
        yield warning(
            area,
            "A lock that one process holds does not keep another one out there.",
            why,
            "Mount it with locks (NFS: without nolock and local_lock).",
        )
        return
    yield ok(area, "Locks hold between processes.")


def room(area: str, work: Path) -> Iterator[Problem]:
    """Bytes and files that are left."""
    found = os.statvfs(work)
    free = found.f_bavail * found.f_frsize
    few_files = found.f_files > 0 and found.f_favail < FILES_MIN
    text = f"{free / 2**30:.1f} GiB and {found.f_favail:,} files are free there."
    if free >= FREE_MIN_BYTES and not few_files:
        yield ok(area, text)
        return
    yield warning(
        area,
        text,
        "A full disk stops the query. Nothing is lost by it, and nothing goes on.",
        "Make room, and have the disk watched.",
    )


def mount(area: str, work: Path) -> Iterator[Problem]:
    """Which file system it is, and how it is mounted."""
    found: Mount | None = mount_of(work)
    if found is not None:
        yield from mount_findings(area, found)


def server_clock(area: str, work: Path) -> Iterator[Problem]:
    """The clock that stamps files: a network file system's is its server's."""
    path = work / "stamped"
    before_s = time.time()
    path.write_bytes(b"1")
    after_s = time.time()
    stamped_s = path.stat().st_mtime
    middle_s = (before_s + after_s) / 2
    if abs(stamped_s - middle_s) > 2 + (after_s - before_s):
        yield from skew_findings(
            area, "the file system's server", stamped_s - middle_s, after_s - before_s
        )


FOR_CHECKPOINT: list[Check] = [mount, room, durable_files, rename_over, locks, server_clock]
FOR_DECISIONS: list[Check] = [mount, room, durable_files, create_if_absent]
FOR_FILES: list[Check] = [mount, room, durable_files, rename_over, server_clock]
