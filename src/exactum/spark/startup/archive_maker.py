"""Makes the class archive of local sessions: ``java -Xshare:dump`` with a list of classes that is
in the wheel (``classes.txt.gz``, which ``make class-list`` records). No broker and no query run.

Run as a module it waits until the session that has started it is likely to have begun its work,
and then gives way to everybody: it takes the processors only when nobody else needs them, and is
the first to go where memory ends.

Only one at a time makes it. The JVM has inherited the lock: if this process is killed, nobody else
writes the archive before the JVM has ended as well. What a killed one leaves is written over by the
next one, and no JVM reads it.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from exactum.durable import sync_file
from exactum.errors import LocalServerError
from exactum.java.class_archive import SILENCE, ClassArchive
from exactum.java.jars import pyspark_jars
from exactum.java.program import spark_java_options
from exactum.spark.runtime.connector import spark_kafka_jars
from exactum.spark.runtime.driver_archive import CLASSES, spark_archive
from exactum.spark.startup import class_archive, class_path

DELAY_S = 20.0
TIMEOUT_S = 1800.0
LOG_CHARS_SHOWN = 2000
KEPT_MAX = 3
"""Archives, of other Javas and PySparks too, that are kept however long ago they were used."""
KEPT_DAYS = {".jsa": 30, ".part": 1, ".txt": 1, ".log": 1}
"""How long after its last use an archive is kept, which a JVM of another machine may have mapped,
and what a maker that was killed has left.
"""
UNWANTED = (
    "HADOOP_CONF_DIR",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS",
    "SPARK_DIST_CLASSPATH",
    "SPARK_SUBMIT_OPTS",
    "YARN_CONF_DIR",
)
"""In the environment: they add options, such as a debugger's, with which nothing can be dumped, or
folders to the end of the class path, where a session may have what it likes."""


def make(*, echo: Callable[[str], None] = lambda _line: None) -> ClassArchive:
    """Make the archive for this Java and this PySpark if it is missing; wait for somebody else who
    makes it.

    Args:
        echo: is told what happens, line by line.

    Raises:
        LocalServerError: the JVM failed, or the cache cannot be written.
    """
    archive = spark_archive()
    if archive.path.exists():
        echo(f"The class archive is there: {archive.path}")
        return archive
    try:
        archive.path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(archive, echo) as lock:
            if archive.path.exists():  # somebody else has made it meanwhile
                echo(f"The class archive is there: {archive.path}")
                return archive
            echo("Making the class archive, once for this Java and this PySpark ...")
            began_s = time.monotonic()
            _dump(archive, lock)
    except OSError as error:
        raise LocalServerError(
            f"the class archive cannot be written ({error}). Set EXACTUM_CACHE to a folder that "
            "can be, with 500 MB left."
        ) from error
    echo(
        f"Made {archive.path} in {time.monotonic() - began_s:.0f} s. Local sessions start with it "
        "from now on."
    )
    return archive


@contextlib.contextmanager
def _locked(archive: ClassArchive, echo: Callable[[str], None]) -> Iterator[int]:
    """Hold its lock, and yield the descriptor. It goes with the last process that has the
    descriptor.
    """
    with archive.lock_path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            echo("Another process makes the class archive in the background: waiting for it ...")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def start_command(options: Iterable[str]) -> list[str]:
    """What starts a JVM with the class path of a session's and these options. An archive is good
    for this class path only, and Spark's launcher alone knows how it makes it.
    """
    settings = {
        class_path.SETTING: os.pathsep.join(map(str, spark_kafka_jars())),
        class_archive.OPTIONS: spark_java_options(options),
    }
    command = [str(pyspark_jars().parent / "bin" / "spark-submit"), "--master", "local[*]"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    return [*command, "pyspark-shell"]


def _dump(archive: ClassArchive, lock: int) -> None:
    """Start what a session starts, with options that make its JVM dump the classes and end."""
    part, classes, log = (archive.path.with_suffix(f".{end}") for end in ("part", "txt", "log"))
    part.unlink(missing_ok=True)
    classes.write_bytes(gzip.decompress(CLASSES.read_bytes()))
    options = [
        "-Xshare:dump",
        f"-XX:SharedClassListFile={classes}",
        f"-XX:SharedArchiveFile={part}",
        SILENCE,
    ]
    environment = {name: value for name, value in os.environ.items() if name not in UNWANTED}
    with log.open("wb") as output:
        try:
            ended = subprocess.run(
                start_command(options),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=archive.path.parent,
                env={**environment, "SPARK_HOME": str(pyspark_jars().parent)},
                pass_fds=[lock],
                timeout=TIMEOUT_S,
                check=False,
            )
            well, status = ended.returncode == 0, f"ended with status {ended.returncode}"
        except subprocess.TimeoutExpired:
            well, status = False, f"did not end within {TIMEOUT_S:.0f} s"
    classes.unlink(missing_ok=True)
    if not (well and part.exists()):
        part.unlink(missing_ok=True)
        text = log.read_text(errors="replace")[-LOG_CHARS_SHOWN:]
        raise LocalServerError(
            f"The JVM that should leave the class archive {status}. Its last words:\n{text}"
        )
    sync_file(part)
    os.replace(part, archive.path)
    log.unlink(missing_ok=True)
    archive.lock_path.unlink(missing_ok=True)
    _remove_old(archive)


def _remove_old(archive: ClassArchive) -> None:
    """All but the ones used last and within a month, and what makers that were killed have left."""
    kind = archive.path.name.partition("-")[0]
    now_s = time.time()
    used_s: dict[Path, float] = {}
    for suffix in KEPT_DAYS:
        for path in archive.path.parent.glob(f"{kind}-*{suffix}"):
            with contextlib.suppress(FileNotFoundError):
                used_s[path] = path.stat().st_mtime
    archives = [path for path in used_s if path.suffix == archive.path.suffix]
    last = sorted(archives, key=lambda path: used_s[path], reverse=True)[:KEPT_MAX]
    for path in used_s.keys() - last:
        if now_s - used_s[path] > KEPT_DAYS[path.suffix] * 86_400:
            with contextlib.suppress(OSError):  # it may be another user's
                path.unlink()


def _give_way() -> None:
    """To every other process; each of it is an offer that the system may decline."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    with contextlib.suppress(OSError):
        # A session of its own is a group of its own to the scheduler, which nice alone leaves.
        Path("/proc/self/autogroup").write_text("19")
    with contextlib.suppress(OSError):
        os.nice(19)
    with contextlib.suppress(OSError, AttributeError):  # Linux; from here on it may take long
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def main(lock: int) -> None:
    """Make it, holding the lock by this descriptor, which whoever has started this has taken.

    Says nothing: the command ``exactum local class-archive`` says what fails.
    """
    _give_way()
    time.sleep(DELAY_S)
    with contextlib.suppress(LocalServerError, OSError):
        _dump(spark_archive(), lock)


if __name__ == "__main__":
    main(int(sys.argv[1]))
