"""This machine: Python, packages, Java, jars, memory, temporary files."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
from packaging.requirements import Requirement

from exactum.errors import LocalServerError
from exactum.java.program import JAVA_MIN, java_program
from exactum.problem import Problem, error, ok, unknown, warning

AREA = "machine"
JAVA_TIMEOUT_S = 20
PYTHON_TESTED_MAX = (3, 13)
MEMORY_MIN_BYTES = 2 * 2**30
"""A driver's JVM has 1 GiB of heap by default; Python workers and the JVM itself come on top."""
FREE_MIN_BYTES = 2**30
GIB = 2**30


def findings() -> Iterator[Problem]:
    """All that needs nothing but this machine."""
    yield _python()
    yield from _packages()
    yield _java()
    yield from _jars()
    yield _memory()
    yield from _temporary()


def _python() -> Problem:
    version = sys.version_info[:2]
    text = f"Python {sys.version.split()[0]} at {sys.executable}"
    if version > PYTHON_TESTED_MAX:
        return warning(
            AREA,
            f"{text} is newer than the newest that exactum is tested with (3.13).",
            "PySpark and Arrow may not know it yet.",
            "Use Python 3.10 to 3.13, on the driver and on the executors alike.",
        )
    return ok(AREA, text)


def _packages() -> Iterator[Problem]:
    try:
        own = importlib.metadata.distribution("exactum")
    except importlib.metadata.PackageNotFoundError:
        yield unknown(
            AREA,
            "exactum is not installed as a package here, so its requirements are not known.",
            "Packages of a wrong version are found only when they are used.",
            "Install it: pip install exactum, or 'exactum[spark]' where nothing brings PySpark.",
        )
        return
    asked = [Requirement(text) for text in own.requires or ()]
    wrong = [text for each in asked if (text := _wrong(each))]
    if wrong:
        yield error(
            AREA,
            f"Packages that do not fit exactum {own.version}: {'; '.join(wrong)}.",
            "It was not tested with them, and parts of PySpark that it uses move between versions.",
            "pip install --upgrade exactum (in this environment and on every executor)",
        )
    spark = _version("pyspark") or "none"
    yield ok(AREA, f"exactum {own.version} with PySpark {spark}.")


def _wrong(asked: Requirement) -> str:
    """What is wrong with a package; those of extras may be missing."""
    version = _version(asked.name)
    if version is None:
        return "" if asked.marker else f"{asked.name} is missing (needs {asked.specifier})"
    fits = asked.specifier.contains(version, prereleases=True)
    return "" if fits else f"{asked.name} {version} (needs {asked.specifier})"


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _java() -> Problem:
    try:
        program = java_program("java")
        printed = subprocess.run(
            [program, "-version"],
            capture_output=True,
            text=True,
            timeout=JAVA_TIMEOUT_S,
            check=True,
            stdin=subprocess.DEVNULL,
        ).stderr
    except (LocalServerError, OSError, subprocess.SubprocessError) as failure:
        return error(
            AREA,
            f"No Java that works: {failure}",
            "Spark's driver is a JVM.",
            f"Install Java {JAVA_MIN} or later, or set JAVA_HOME.",
        )
    found = re.search(r'version "(?:1\.)?(\d+)([^"]*)"', printed)
    text = f"Java {found[1]}{found[2]} at {program}" if found else f"{program}: {printed.strip()!r}"
    if found is not None and int(found[1]) >= JAVA_MIN:
        return ok(AREA, text)
    return error(
        AREA,
        f"{text} is too old, or no Java.",
        f"Spark 4 needs Java {JAVA_MIN} or later.",
        "Install one, and set JAVA_HOME if several are there.",
    )


def _jars() -> Iterator[Problem]:
    # Here: it looks for PySpark's folder, and finds none where PySpark is not installed.
    from exactum.java.jars import pyspark_version
    from exactum.spark.runtime.spark_jars import kept_connector

    try:
        version, folder = pyspark_version(), kept_connector()
    except LocalServerError as failure:
        yield error(AREA, str(failure), "", "")
        return
    if folder is not None:
        yield ok(AREA, f"The Kafka connector for PySpark {version} is in {folder}.")
        return
    yield warning(
        AREA,
        f"The jars of the Kafka connector for PySpark {version} are not in exactum's cache yet.",
        "The first local_session() fetches them by Ivy, which needs the network and takes some "
        "10 s. A session of your own brings its jars itself.",
        "Start one session while the network is there, or copy the cache (EXACTUM_CACHE).",
    )


# ---- room ------------------------------------------------------------------------------------


def _memory() -> Problem:
    total, available = _memory_bytes()
    text = f"{available / GIB:.1f} of {total / GIB:.1f} GiB of memory are available."
    if available >= MEMORY_MIN_BYTES:
        return ok(AREA, text)
    return warning(
        AREA,
        text,
        "A driver has 1 GiB of heap by default, its JVM some 0.5 GiB more, each Python worker "
        "100 to 200 MiB. Where memory is short the kernel kills one of them.",
        "Give the machine or the container at least 2 GiB that are free, or set "
        "spark.driver.memory lower.",
    )


def _memory_bytes() -> tuple[int, int]:
    """Total and available, of the container where it has a limit."""
    memory = psutil.virtual_memory()
    total, available = memory.total, memory.available
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and (text := limit.read_text().strip()).isdigit():
        total = min(total, int(text))
        available = min(available, int(text) - int(used.read_text()))
    return total, max(0, available)


def _temporary() -> Iterator[Problem]:
    for folder in sorted({tempfile.gettempdir(), "/tmp"}):
        yield _temporary_folder(Path(folder))


def _temporary_folder(folder: Path) -> Problem:
    try:
        with tempfile.NamedTemporaryFile(prefix=".exactum-doctor-", dir=folder) as file:
            file.write(b"1" * 4096)
            file.flush()
        room = os.statvfs(folder)
    except OSError as failure:
        return error(
            AREA,
            f"{folder} cannot be written: {failure}",
            "Spark, its JVM and its Python workers keep temporary files there.",
            "Make it writable for this user; Spark's own go where spark.local.dir says.",
        )
    if room.f_flag & getattr(os, "ST_NOEXEC", 0):
        return error(
            AREA,
            f"{folder} is mounted noexec.",
            "The JVM loads the libraries of RocksDB, Snappy and Zstandard from files that it "
            "unpacks there.",
            "Mount it without noexec, or let -Djava.io.tmpdir name another folder.",
        )
    free = room.f_bavail * room.f_frsize
    text = f"{folder} can be written; {free / GIB:.1f} GiB are free."
    if free >= FREE_MIN_BYTES:
        return ok(AREA, text)
    return warning(
        AREA,
        text,
        "Shuffles and state stores are spilled there; a full disk ends the query.",
        "Make room, or let spark.local.dir name a larger disk.",
    )
