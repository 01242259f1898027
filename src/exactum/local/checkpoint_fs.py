"""A jar of one class, ``CheckpointFs.java``: Spark writes local checkpoints with it without starting processes.

Hadoop runs ``readlink`` and ``chmod`` some ten times for each file that Spark writes to a checkpoint, and each epoch
writes two files and more: on two cores most of the time between two epochs (docs/performance.md). The class is compiled
at the first session, by the compiler that every JDK has, and Debian's JRE as well; then it is taken from the cache.
"""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import tempfile
import zipfile
from pathlib import Path

from exactum.local.jars import cache_folder, pyspark_jars
from exactum.local.java import java_program

logger = logging.getLogger("exactum")

CLASS = "exactum.CheckpointFs"
SETTING = "spark.hadoop.fs.AbstractFileSystem.file.impl"
"""Which class serves ``file:`` for those who use Hadoop's FileContext. Of what Spark does, that is its checkpoints."""
SOURCE = Path(__file__).with_name("CheckpointFs.java")
COMPILER = ("-m", "jdk.compiler/com.sun.tools.javac.Main")
COMPILE_TIMEOUT_S = 120


def checkpoint_jar() -> Path | None:
    """The jar, compiled first if the cache has none for this Java and this Hadoop; None where it cannot be.

    Without it everything works as well, only slower. Any number of processes may call it at once.

    Raises:
        LocalServerError: there is no Java, or no PySpark.
    """
    java = java_program("java")
    hadoop = sorted(pyspark_jars().glob("hadoop-client-api-*.jar"))
    known = f"{Path(java).resolve()} {[jar.name for jar in hadoop]}".encode() + SOURCE.read_bytes()
    jar = cache_folder() / "classes" / f"checkpoint-{hashlib.sha256(known).hexdigest()[:16]}.jar"
    if jar.exists():
        return jar
    try:
        jar.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".checkpoint-", dir=jar.parent) as work:
            os.replace(_compiled(java, hadoop, Path(work)), jar)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or error
        logger.info("checkpoints are written by Hadoop's own file system, which is slower: no %s: %s", jar.name, said)
        return None
    return jar


def _compiled(java: str, class_path: list[Path], work: Path) -> Path:
    """A jar in the folder ``work``."""
    classes = work / "classes"
    options = ["-nowarn", "-proc:none", "-cp", os.pathsep.join(map(str, class_path)), "-d", str(classes)]
    subprocess.run(
        [java, *COMPILER, *options, str(SOURCE)],
        check=True,
        capture_output=True,
        text=True,
        timeout=COMPILE_TIMEOUT_S,
    )
    made = work / "made.jar"
    with zipfile.ZipFile(made, "w") as archive:
        for path in sorted(classes.rglob("*.class")):
            archive.write(path, path.relative_to(classes).as_posix())
    return made
