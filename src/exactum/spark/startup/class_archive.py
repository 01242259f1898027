"""What the JVM of a local session loads its classes from: its class path, and an archive with which
it starts seconds earlier.

The connector's jars are on the class path, where that is exactum's to say. Of jars in
``spark.jars`` Spark reads the classes with a class loader of its own, which takes none from a class
archive, and it sends itself each jar over a socket, to keep a copy for its tasks: 10 MB, a second
of CPU. exactum's own jars are small, and written anew by every install, with which an archive made
for them would be lost. They stay in ``spark.jars``.

The archive is dumped from a list of classes in the wheel, which ``make class-list`` records. The
first session that misses it has it made beside its work, by a process that gives way to everybody
else; ``exactum local class-archive`` makes it at once.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from exactum.errors import LocalServerError
from exactum.java.jars import MADE_NAME, SILENCE, ClassArchive, archive_of, pyspark_jars
from exactum.java.program import spark_java_options
from exactum.spark.jvm import virtual_machine
from exactum.spark.master import is_one_process
from exactum.spark.runtime.spark_jars import spark_kafka_jars

CLASS_PATH = "spark.driver.extraClassPath"
OTHERS = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT")
"""In the environment: somebody else may say what is on the class path, or has started the JVM."""
ENABLED = "spark.exactum.classArchive.enabled"
OPTIONS = "spark.driver.defaultJavaOptions"
"""The setting that brings the archive's options to the JVM."""
CLASSES = Path(__file__).with_name("classes.txt.gz")
VERIFIED = "-XX:+VerifySharedSpaces"
"""A JVM that takes a damaged archive crashes. Takes 0.1 s for 200 MB."""
JAVA_OPTIONS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
"""In the environment: they may have options with which nothing can be dumped or taken."""
AGAINST = re.compile(r"AOT|-Xshare|SharedArchive|UseZGC|UseShenandoahGC|UseEpsilonGC")
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
DELAY_S, TIMEOUT_S = 20, 1800


def owns_class_path(given: Mapping[str, str]) -> bool:
    """Whether the JVM of a session with these settings, the master among them, is yet to start, and
    nobody else says what is on its class path.
    """
    return (
        not virtual_machine.has_started()
        and is_one_process(given.get("spark.master", ""))
        and CLASS_PATH not in given
        and not any(name in os.environ for name in OTHERS)
    )


def archive_for(given: Mapping[str, str]) -> ClassArchive | None:
    """The archive that fits a session with these settings, made or not; None where none would: the
    JVM runs already, somebody else has a say in its class path or options, or it is switched off.
    """
    if given.get(ENABLED, "true").lower() == "false" or OPTIONS in given or "spark.jars" in given:
        return None
    options = [given.get("spark.driver.extraJavaOptions", "")]
    options += [os.environ.get(name, "") for name in JAVA_OPTIONS]
    if any(map(AGAINST.search, options)) or not owns_class_path(given):
        return None
    return spark_archive()


def spark_archive() -> ClassArchive:
    """Of the installed Java, PySpark and connector. Raises LocalServerError without one of them."""
    jars = [*pyspark_jars().glob("*.jar"), *spark_kafka_jars()]
    return archive_of("driver", jars, made_of=CLASSES.read_bytes())


def start_options(archive: ClassArchive) -> list[str]:
    """The options of a JVM that is to use it; none while there is no archive, and one is made."""
    if options := archive.reading_options():
        return [*options, VERIFIED]
    # A gigabyte is dumped: not where a container's memory has a limit.
    is_limited = CGROUP_LIMIT.exists() and CGROUP_LIMIT.read_text().strip() != "max"
    if not (is_limited or os.environ.get("CI") or _is_being_made(archive)):
        command = [sys.executable, "-m", __name__]
        quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        with contextlib.suppress(OSError):  # nothing depends on it
            subprocess.Popen(command, start_new_session=True, **quiet)  # type: ignore[call-overload]
    return []


def _is_being_made(archive: ClassArchive) -> bool:
    """Whether a process is at it. A folder that is older than one may take is a killed one's."""
    since_s = time.time() - DELAY_S - TIMEOUT_S
    folders = archive.path.parent.glob(f".{archive.path.stem}*")
    try:
        return any(os.path.getmtime(folder) > since_s for folder in folders)
    except FileNotFoundError:
        return True  # it has ended this moment


def make(*, echo: Callable[[str], None] = lambda _line: None, delay_s: float = 0) -> ClassArchive:
    """Make the archive if it is missing, ``delay_s`` from now: other sessions see already that it
    is being made. ``echo`` is told what happens, line by line.

    Raises:
        LocalServerError: the JVM failed, or the cache cannot be written.
    """
    archive = spark_archive()
    if not archive.path.exists():
        echo("Making the class archive, once for this Java and this PySpark ...")
        try:
            archive.path.parent.mkdir(parents=True, exist_ok=True)
            kept = archive.path
            with tempfile.TemporaryDirectory(prefix=f".{kept.stem}", dir=kept.parent) as name:
                time.sleep(delay_s)
                _dump(Path(name))
                archive.keep_made(Path(name))
        except (OSError, subprocess.TimeoutExpired) as error:
            raise LocalServerError(f"the class archive could not be made: {error}.") from error
    echo(f"The class archive is there: {archive.path}")
    return archive


def _dump(folder: Path) -> None:
    """Start what a session starts, with options that make its JVM dump the classes and end. An
    archive is good for this class path only, and Spark's launcher alone knows how it makes it.
    """
    classes = folder / "classes.txt"
    classes.write_bytes(gzip.decompress(CLASSES.read_bytes()))
    made = f"-XX:SharedArchiveFile={folder / MADE_NAME}"
    options = ["-Xshare:dump", f"-XX:SharedClassListFile={classes}", made, SILENCE]
    jars = os.pathsep.join(map(str, spark_kafka_jars()))
    command = [str(pyspark_jars().parent / "bin" / "spark-submit"), "--master", "local[*]"]
    command += ["--conf", f"{CLASS_PATH}={jars}"]
    command += ["--conf", f"{OPTIONS}={spark_java_options(options)}", "pyspark-shell"]
    unwanted = (*JAVA_OPTIONS, "SPARK_DIST_CLASSPATH", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
    environment = {name: value for name, value in os.environ.items() if name not in unwanted}
    environment["SPARK_HOME"] = str(pyspark_jars().parent)
    ended = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=TIMEOUT_S, check=False
    )
    if ended.returncode != 0 or not (folder / MADE_NAME).exists():
        raise OSError(f"java ended with {ended.returncode}: {(ended.stdout + ended.stderr)[-500:]}")


if __name__ == "__main__":
    os.nice(19)
    with contextlib.suppress(LocalServerError):  # the command says what fails
        make(delay_s=DELAY_S)
