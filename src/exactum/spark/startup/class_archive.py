"""The class archive of a local session's JVM: used where it is there, and made in the background
where it is missed again.

The first session that misses it only leaves a note: a container that is thrown away, or a
machine of a CI run, would never use an archive. From the second one on it is made, by a process
of its own that is idle as far as anybody else needs the processors. After ``TRIES_MAX`` that came
to nothing nobody tries by itself any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from exactum.java.class_archive import ClassArchive
from exactum.java.jars import cache_folder
from exactum.spark.runtime.driver_archive import spark_archive
from exactum.spark.startup import class_path
from exactum.spark.startup.python_path import given_path, package_path

logger = logging.getLogger("exactum")

ENABLED = "spark.exactum.classArchive.enabled"
OPTIONS = "spark.driver.defaultJavaOptions"
"""The setting that brings the archive's options to the JVM."""
VERIFIED = "-XX:+VerifySharedSpaces"
"""A JVM that takes a damaged archive crashes. Takes 0.1 s for 200 MB."""
MAKER = "exactum.spark.startup.archive_maker"
TRIES_MAX = 3
SIZE = "200 MB"
DISK_BYTES_MIN = 2 * 2**30
"""Of the cache's disk: below that nobody would thank for 200 MB less."""
MEMORY_BYTES_MIN = 3 * 2**30
"""What the machine has to have left: the maker takes 1 GB for a while."""
JAVA_OPTIONS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""Of the environment."""
AGAINST = re.compile(r"AOT|-Xshare|SharedArchive|UseZGC|UseShenandoahGC|UseEpsilonGC")
"""What among a JVM's options goes with another archive or with none: some refuse to start."""
PYTHON = re.compile(r"(python|pypy)[\d.]*(\.exe)?")
CGROUP = Path("/sys/fs/cgroup")
MEMORY = Path("/proc/meminfo")


def archive_for(given: Mapping[str, str]) -> ClassArchive | None:
    """The archive that fits a session with these settings, made or not; None where none would: the
    JVM runs already, somebody else has a say in its class path or options, or it is switched off.
    """
    if given.get(ENABLED, "true").lower() == "false" or OPTIONS in given or "spark.jars" in given:
        return None
    options = [given.get("spark.driver.extraJavaOptions", "")]
    options += [os.environ.get(name, "") for name in JAVA_OPTIONS]
    if any(map(AGAINST.search, options)):
        return None
    return spark_archive() if class_path.is_ours(given) else None


def reading_options(archive: ClassArchive) -> list[str]:
    """The options of a JVM that is to use it, none while there is no archive. With a damaged one
    the JVM goes without it.
    """
    options = archive.reading_options()
    if not options:
        return []
    with contextlib.suppress(OSError):  # the cache may be read-only
        os.utime(archive.path)  # in use: those that nobody has used for long are removed
    return [*options, VERIFIED]


def tell_refused(archive: ClassArchive) -> None:
    """Say that the JVM has not taken it: a start is slower then than with none."""
    logger.warning(
        "this JVM does not take the class archive %s: it is damaged, or was made by another Java "
        "or on another disk. Remove it, and run: exactum local class-archive",
        archive.path,
    )


def miss(archive: ClassArchive) -> None:
    """Note that a session has started without it, and have it made if that was not the first one.
    Returns at once, and never raises: nothing depends on it.
    """
    try:
        _note_miss(archive)
    except Exception as error:  # noqa: BLE001  (nothing depends on it, and the session runs)
        logger.info("no class archive is made by itself: %s", error)


def _note_miss(archive: ClassArchive) -> None:
    """A byte in the lock's file stands for the first miss, and for each maker that was started."""
    archive.path.parent.mkdir(parents=True, exist_ok=True)
    with archive.lock_path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # it is being made
        noted = file.tell()
        if noted and (reason := unfit(archive.path.parent)) is not None:
            logger.info("no class archive is made by itself: %s", reason)
        elif noted <= TRIES_MAX + 1 and not archive.path.exists():
            file.write(b".")
            file.flush()
            if 0 < noted <= TRIES_MAX:
                _say(
                    f"making the class archive {archive.path} in the background, once ({SIZE}): "
                    f"later sessions start seconds earlier. {ENABLED}=false leaves it out."
                )
                _start_maker(file.fileno())
            elif noted > TRIES_MAX:
                _say(
                    f"the class archive {archive.path} was not made in {TRIES_MAX} tries. "
                    "exactum local class-archive makes it, or says why not."
                )


def unfit(cache: Path) -> str | None:
    """Why this place is not one where an archive is made unasked; None if it is."""
    if os.environ.get("CI"):
        return "a machine of a CI run (CI is set) is seldom used twice"
    if getattr(sys, "frozen", False) or not PYTHON.fullmatch(Path(sys.executable or "").name):
        return f"{sys.executable!r} is no Python that could be started beside this one"
    if shutil.disk_usage(cache).free < DISK_BYTES_MIN:
        return f"the disk of {cache} has less than {DISK_BYTES_MIN >> 30} GiB left"
    if _memory_left() < MEMORY_BYTES_MIN:
        return f"there is less than {MEMORY_BYTES_MIN >> 30} GiB of memory left"
    limits = {"cpu.max": "processor time", "memory.max": "memory"}
    for file, what in limits.items():
        if _word(CGROUP / file, "max") != "max":
            return (
                f"this container has a limit of {what}, which the maker would share with the "
                "query. Let the build of its image run: exactum local class-archive"
            )
    return None


def _memory_left() -> int:
    """What is left of the machine's, in bytes."""
    told = MEMORY.read_text().splitlines() if MEMORY.exists() else []  # it is Linux's
    left = [int(line.split()[1]) * 1024 for line in told if line.startswith("MemAvailable:")]
    return min(left, default=MEMORY_BYTES_MIN)


def _word(file: Path, otherwise: str) -> str:
    return (file.read_text().split() or [otherwise])[0] if file.exists() else otherwise


def _start_maker(lock: int) -> None:
    """``lock``: the descriptor of the lock that this process holds, and that the maker holds from
    here on.
    """
    path = package_path() or os.pathsep.join(given_path())
    process = subprocess.Popen(
        [sys.executable, "-m", MAKER, str(lock)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=[lock],
        cwd="/",  # another folder may be unmounted, or hold modules of any name
        env={
            **os.environ,
            "EXACTUM_CACHE": os.path.abspath(cache_folder()),
            "PYTHONPATH": path,
        },
        start_new_session=True,  # neither Ctrl-C nor the end of this process is its end
    )
    # It is reaped if it ends before this process does.
    threading.Thread(target=process.wait, name="exactum-archive", daemon=True).start()


def _say(text: str) -> None:
    sys.stderr.write(f"exactum: {text}\n")
