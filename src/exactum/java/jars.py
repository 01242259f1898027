"""What exactum keeps for Java in a cache: sets of jars, such as those of a Kafka broker, retrieved
once by Ivy, and archives of their loaded classes.

PySpark carries Apache Ivy, and Ivy knows the central repository by itself: with PySpark and Java
nothing else is needed, and no repository is named here. The cache is `$EXACTUM_CACHE`,
`$XDG_CACHE_HOME/exactum` or `~/.cache/exactum`. A finished set is a folder that appeared by one
rename, so a half-finished one is never seen; a lock makes a second process wait for the first.

Behind a proxy, set `JAVA_TOOL_OPTIONS`; for a mirror, let `$EXACTUM_IVY_SETTINGS` name an Ivy
settings file.

With an archive of classes a broker starts in half the time, a Spark driver seconds earlier. There
is one for each Java and set of jars. The JVM checks it against its own version and the class path,
and runs without it where it does not fit. A broker's is written by the first one that is stopped
cleanly (that stop takes some 3 s longer); Spark's by ``exactum.spark.startup.class_archive``.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from exactum import packages
from exactum.durable import sync_file
from exactum.errors import LocalServerError
from exactum.java.program import java_program, run_program
from exactum.packages import HERE

SCALA_VERSION = "2.13"

# A second attempt goes on from what the first one fetched: a hiccup of the network heals.
ATTEMPTS_MAX = 2
ATTEMPT_TIMEOUT_S = 900
OUTPUT_LINES_KEPT = 4
_MISSING = re.compile(r":: (\S+#\S+;\S+): not found")
_TROUBLE = re.compile(
    r"Server access error|(?:SERVER|CLIENT) ERROR|Your proxy requires|\[FAILED|Connection "
)
"""What Ivy prints where it had no answer. It then calls a module "not found" that may well be
there.
"""
MADE_NAME = "classes.jsa"
SILENCE = "-Xlog:cds*=off"
"""An archive that does not fit is no news for who reads the program's output."""


@dataclass(frozen=True)
class JarSet:
    """One retrieval: what it is called, for which version, why it is needed, and Ivy's recipe."""

    name: str
    version: str
    purpose: str
    recipe: str

    @property
    def folder_name(self) -> str:
        """Name and version, and a digest of the recipe: a changed recipe never meets old jars."""
        digest = hashlib.sha256(self.recipe.encode()).hexdigest()[:8]
        return f"{self.name}-{self.version}-{digest}"


class NotPublished(LocalServerError):
    """The repositories answered, and they do not have a module of the set in any version that was
    asked for.
    """


def cache_folder() -> Path:
    """Return the folder of exactum's own that holds all it retrieves (it may not exist yet)."""
    own = os.environ.get("EXACTUM_CACHE")
    if own:
        return Path(own).expanduser().absolute()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache").absolute() / "exactum"


def recipe(*lines: str) -> str:
    body = "\n    ".join(lines)
    return (
        '<ivy-module version="2.0">\n'
        '  <info organisation="exactum" module="jars"/>\n'
        '  <configurations><conf name="default"/></configurations>\n'
        f"  <dependencies>\n    {body}\n  </dependencies>\n"
        "</ivy-module>\n"
    )


def dependency(org: str, name: str, version: str) -> str:
    return f'<dependency org="{org}" name="{name}" rev="{version}" conf="default->default"/>'


def artifact_name(file_name: str) -> str:
    """Return a jar's name without version: ``log4j-1.2-api-2.25.4.jar`` -> ``log4j-1.2-api``."""
    stem = file_name.removesuffix(".jar")
    match = re.fullmatch(r"(.+)-\d[^-]*(?:-[A-Za-z][^-]*)*", stem)
    return match.group(1) if match else stem


def pyspark_version() -> str:
    try:
        installed = packages.pyspark_version()
    except ModuleNotFoundError as error:
        raise _no_pyspark() from error
    release = re.match(r"\d+\.\d+\.\d+", installed)  # 4.2.0.dev1 uses the jars of 4.2.0
    if release is None:
        raise LocalServerError(f"PySpark's version {installed!r} is not of the form 4.2.0.")
    return release.group()


def _no_pyspark() -> LocalServerError:
    need = "Jars are retrieved by PySpark's Ivy, which needs"
    return LocalServerError(packages.not_installed(need, "pyspark", "spark", HERE))


def pyspark_jars() -> Path:
    """Return PySpark's folder of jars, found without importing PySpark: the import takes long."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None:
        raise _no_pyspark()
    folder = Path(spec.origin).parent / "jars" if spec.origin else None
    if folder is None or not folder.is_dir():
        raise LocalServerError(
            f"the installed PySpark has no folder of jars (looked for {folder}). "
            "The full package is needed, not pyspark-client: pip install 'exactum[spark]'"
        )
    return folder


def jar_folder(jars: JarSet) -> Path:
    """Return the set's folder in the cache, which is there as soon as the set is complete."""
    return cache_folder() / "jars" / jars.folder_name


def cached(jars: JarSet) -> list[Path]:
    """Return the jars of the set, and retrieve them first if no finished folder is there.

    Idempotent. Any number of processes may call it at once: one retrieves, the others wait.

    Raises:
        NotPublished: the repositories do not have it, so that trying again is of no use.
        LocalServerError: it could not be retrieved.
    """
    folder = jar_folder(jars)
    if not folder.is_dir():
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            lock = folder.with_name(f"{folder.name}.lock").open("w")
        except OSError as error:
            raise LocalServerError(
                f"the cache {folder.parent} cannot be written ({error}). Set EXACTUM_CACHE to a "
                "folder that can be."
            ) from error
        with lock, _locked(lock.fileno(), jars):
            if not folder.is_dir():  # somebody may have finished while this process waited
                _retrieve(jars, folder)
    return sorted(folder.glob("*.jar"))


@contextmanager
def _locked(descriptor: int, jars: JarSet) -> Iterator[None]:
    """Hold the lock; the system frees it when this process dies, however it dies."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _say(f"another process is retrieving the jars for {jars.purpose}: waiting for it")
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield


def _retrieve(jars: JarSet, folder: Path) -> None:
    """Retrieve into a temporary folder beside `folder`, and rename it when it is complete."""
    started = time.monotonic()
    java = java_program("java")
    _say(f"retrieving the jars for {jars.purpose} into {folder}, once")
    with tempfile.TemporaryDirectory(prefix=f".{jars.name}-", dir=folder.parent) as work:
        complete = Path(work) / "complete"
        for _ in range(ATTEMPTS_MAX):
            ended = _run_ivy(java, Path(work), jars.recipe)
            if ended.status == 0 and any(complete.glob("*.jar")):
                break
            if ended.missing and not ended.trouble:
                raise NotPublished(_not_published(jars, ended))
        else:
            raise LocalServerError(_ivy_failure(jars, ended))
        count = len(list(complete.glob("*.jar")))
        complete.rename(folder)
        _say(f"{count} jars in {time.monotonic() - started:.0f} s")


@dataclass(frozen=True)
class _Ended:
    """How a run of Ivy ended: its exit status, modules that it did not find, where it had no
    answer, its last lines.
    """

    status: int | None
    missing: tuple[str, ...]
    trouble: tuple[str, ...]
    last: tuple[str, ...]


def _run_ivy(java: str, work: Path, recipe: str) -> _Ended:
    """Run Ivy once, in `work` alone. It is killed after ATTEMPT_TIMEOUT_S (status None)."""
    ivy = next(pyspark_jars().glob("ivy-*.jar"), None)
    if ivy is None:
        raise LocalServerError(f"the installed PySpark has no Ivy in {pyspark_jars()}.")
    recipe_file = work / "ivy.xml"
    recipe_file.write_text(recipe)
    own = os.environ.get("EXACTUM_IVY_SETTINGS")
    command = [
        java,
        # Nobody needs sources and docs; asking for them at each module doubles the time.
        "-Divy.maven.lookup.sources=false",
        "-Divy.maven.lookup.javadoc=false",
        # A half-filled ~/.ivy2 or ~/.m2 makes Ivy fail: it must see neither.
        f"-Divy.default.ivy.user.dir={work / 'user'}",
        *("-jar", str(ivy)),
        *(("-settings", own) if own else ()),
        *("-cache", str(work / "ivy")),
        *("-ivy", str(recipe_file)),
        *("-confs", "default", "-types", "jar", "bundle"),
        *("-retrieve", str(work / "complete" / "[artifact]-[revision].[ext]")),
    ]
    status, text = run_program(command, ATTEMPT_TIMEOUT_S)
    lines = [line.strip().lstrip(".").strip()[:300] for line in text.splitlines()]
    said = [line for line in lines if line.strip(":")]
    trouble = dict.fromkeys(filter(_TROUBLE.search, lines))
    missing = dict.fromkeys(_MISSING.findall(text))
    return _Ended(status, tuple(missing), tuple(trouble), tuple(said[-OUTPUT_LINES_KEPT:]))


def _not_published(jars: JarSet, ended: _Ended) -> str:
    return (
        f"the jars for {jars.purpose} are not published where Ivy looks: "
        f"{', '.join(ended.missing)} not found. Nothing was kept in {cache_folder()}. Where "
        "another repository has them, set EXACTUM_IVY_SETTINGS to an Ivy settings file that names "
        "it."
    )


def _ivy_failure(jars: JarSet, ended: _Ended) -> str:
    said = (*ended.trouble, *(f"{module}: not found" for module in ended.missing))[
        :OUTPUT_LINES_KEPT
    ] or ended.last
    killed = f"killed after {ATTEMPT_TIMEOUT_S} s"
    how = killed if ended.status is None else f"exit status {ended.status}"
    return (
        f"Ivy could not retrieve the jars for {jars.purpose} ({how}, "
        f"{ATTEMPTS_MAX} attempts): {'; '.join(said) or 'it said nothing'}. Nothing was kept in "
        f"{cache_folder()}. Try again if the network was away; behind a proxy set "
        'JAVA_TOOL_OPTIONS="-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT"; for a mirror set '
        "EXACTUM_IVY_SETTINGS to an Ivy settings file."
    )


def _say(text: str) -> None:
    """What takes long is said to whoever waits for it."""
    sys.stderr.write(f"exactum: {text}\n")
    sys.stderr.flush()


# ---- archives of classes -------------------------------------------------------------------------


@dataclass(frozen=True)
class ClassArchive:
    """The archive of one program's classes.

    Attributes:
        path: where it is kept; it may not exist yet.
    """

    path: Path

    def reading_options(self) -> list[str]:
        """Return the JVM options that use it, none while there is no archive that this user may
        read.
        """
        usable = os.access(self.path, os.R_OK)
        return [f"-XX:SharedArchiveFile={self.path}", SILENCE] if usable else []

    def making_options(self, folder: Path) -> list[str]:
        """Return the JVM options that write one into ``folder`` when the JVM ends by itself."""
        return [f"-XX:ArchiveClassesAtExit={folder / MADE_NAME}", SILENCE]

    def keep_made(self, folder: Path) -> bool:
        """Move a finished archive from ``folder`` into the cache, by one rename; False if none is
        there. Idempotent.

        It must be called only after the JVM ended by itself: a killed one may leave half a file,
        and a JVM that loads half an archive crashes.
        """
        made = folder / MADE_NAME
        if not made.exists():
            return False
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(
                prefix=f".{self.path.stem}-", dir=self.path.parent
            ) as beside:
                copy = Path(beside) / MADE_NAME
                shutil.copyfile(made, copy)
                sync_file(copy)
                os.replace(copy, self.path)
        made.unlink()
        return True


def archive_of(name: str, jars: Iterable[Path], made_of: bytes = b"") -> ClassArchive:
    """The archive of a program with these jars and the installed Java; it may not be made yet.
    ``made_of``: which of their classes it has, where that is not left to the JVM.

    A JVM takes an archive for these very jars only, by path, size and time: installed again, they
    are others. The time is in seconds, as it is in a layer of a container image. Raises
    LocalServerError without Java.
    """
    digest = hashlib.sha256(made_of)
    for file in (Path(java_program("java")).resolve(), *sorted(jars)):
        seen = file.stat()
        digest.update(f"{file} {seen.st_size} {int(seen.st_mtime)}\n".encode())
    return ClassArchive(cache_folder() / "classes" / f"{name}-{digest.hexdigest()[:16]}.jsa")
