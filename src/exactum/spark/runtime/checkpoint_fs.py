"""A jar of ``CheckpointFs.java``: Spark writes local checkpoints with it without starting
processes, and fsyncs them.

Hadoop runs ``readlink`` and ``chmod`` some ten times for each file that Spark writes to a
checkpoint, and each epoch writes two files and more: a quarter of a small epoch
(docs/performance.md). And it fsyncs nothing, so that a power cut may take what a recorded decision
rests on (docs/adr/0021-fsync-of-checkpoints.md).

The file is compiled at the first session, by the compiler that every JDK has, and Debian's JRE as
well; then the jar is taken from the cache.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
import zipfile
from pathlib import Path

from exactum.errors import LocalServerError
from exactum.java.jars import cache_folder, pyspark_jars
from exactum.java.program import compile_java, java_program

logger = logging.getLogger("exactum")

CLASS = "exactum.CheckpointFs"
SETTING = "spark.hadoop.fs.AbstractFileSystem.file.impl"
"""Which class serves ``file:`` for those who use Hadoop's FileContext. Of what Spark does, that
is its checkpoints.
"""
SOURCE = Path(__file__).with_name("CheckpointFs.java")


def checkpoint_jar() -> Path | None:
    """The jar, compiled first if the cache has none for this Java and this Hadoop; None where it
    cannot be.

    Without it everything works as well, only slower, and a power cut may leave a checkpoint that
    cannot go on. Any number of processes may call it at once.

    Raises:
        LocalServerError: there is no Java, or no PySpark.
    """
    java = Path(java_program("java")).resolve()
    hadoop = sorted(pyspark_jars().glob("hadoop-client-api-*.jar"))
    known = f"{java} {[jar.name for jar in hadoop]}".encode() + SOURCE.read_bytes()
    jar = cache_folder() / "classes" / f"checkpoint-{hashlib.sha256(known).hexdigest()[:16]}.jar"
    if jar.exists():
        return jar
    try:
        jar.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".checkpoint-", dir=jar.parent) as work:
            os.replace(_compiled(hadoop, Path(work)), jar)
    except (OSError, LocalServerError) as error:
        logger.warning(
            "checkpoints are written by Hadoop's own file system, which is slower and does not "
            "fsync, so that after a power cut a query may be unable to go on "
            "(docs/guarantees.md): %s could not be made: %s",
            jar.name,
            error,
        )
        return None
    return jar


def _compiled(class_path: list[Path], work: Path) -> Path:
    """A jar in the folder ``work``."""
    classes, made = work / "classes", work / "made.jar"
    compile_java(SOURCE, class_path, classes)
    with zipfile.ZipFile(made, "w") as archive:
        for path in sorted(classes.rglob("*.class")):
            archive.write(path, path.relative_to(classes).as_posix())
    return made
