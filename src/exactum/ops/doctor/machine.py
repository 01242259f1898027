"""This machine: Python, packages, Java, jars."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Iterator

from packaging.requirements import Requirement

from exactum.errors import LocalServerError
from exactum.java.program import JAVA_MIN, java_program
from exactum.problem import Problem, error, ok, unknown, warning

AREA = "machine"
JAVA_TIMEOUT_S = 20
PYTHON_TESTED_MAX = (3, 13)


def findings() -> Iterator[Problem]:
    """All that needs nothing but this machine."""
    yield _python()
    yield from _packages()
    yield _java()
    yield from _jars()


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
