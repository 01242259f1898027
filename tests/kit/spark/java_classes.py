"""Classes of Java that the wheel carries compiled: made of their sources, and read again. Run as a
module it replaces the jar that is named.

It needs the compiler of a JDK (Debian's JRE has it as well).
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from exactum.java.jars import pyspark_jars
from exactum.java.program import java_program
from exactum.spark.runtime.spark_jars import (
    CHECKPOINT_FS_JAR,
    COLUMNAR_KAFKA_JAR,
    spark_kafka_jars,
)
from tests.kit.waiting import WAIT_MAX_S

OPTIONS = ("--release", "17", "-nowarn", "-proc:none")
"""Java 17 is the oldest that PySpark 4.0 runs on."""
DATE = (1980, 1, 1, 0, 0, 0)
"""Of each entry: who makes the jar again finds the same bytes."""
NUMBERS = re.compile(r"#\d+,?|(?<=\$)\d+(?=[(:])")
"""Of constants and of lambdas: each version of the compiler numbers them in an order of its own."""


def sources_of(jar: Path) -> list[Path]:
    """They lie beside it."""
    of_checkpoints = CHECKPOINT_FS_JAR.with_name("CheckpointFs.java")
    if jar == CHECKPOINT_FS_JAR:
        return [of_checkpoints]
    return sorted(set(jar.parent.glob("*.java")) - {of_checkpoints})


def class_path(jar: Path) -> list[Path]:
    """The class files of ``CheckpointFs.java`` are the same for Hadoop 3.4.1 to 3.5.0, which PySpark
    4.0 to 4.2 have.
    """
    if jar == CHECKPOINT_FS_JAR:
        return list(pyspark_jars().glob("hadoop-client-api-*.jar"))
    return [*sorted(pyspark_jars().glob("*.jar")), *spark_kafka_jars()]


def compiled(folder: Path, sources: Sequence[Path], class_path: Iterable[Path]) -> list[Path]:
    """The class files of the sources, in ``folder``."""
    path = ":".join(map(str, class_path))
    _tool("jdk.compiler/com.sun.tools.javac.Main", *OPTIONS, "-cp", path, "-d", folder, *sources)
    return sorted(folder.rglob("*.class"))


def disassembled(files: Sequence[Path]) -> list[list[str]]:
    """What each class file says, line by line, without what depends on the compiler's version."""
    said = _tool("jdk.jdeps/com.sun.tools.javap.Main", "-v", "-p", *files)
    of_each = re.split(r"^Classfile .*\n", said, flags=re.MULTILINE)[1:]
    assert len(of_each) == len(files)
    return [_lines(text) for text in of_each]


def _lines(said: str) -> list[str]:
    head, _, rest = said.partition("Constant pool:\n")
    _, _, body = rest.partition("\n{\n")
    lines = [*head.splitlines()[2:], *body.splitlines()]  # the first two are about the file
    return sorted(" ".join(NUMBERS.sub("", line).split()) for line in lines)


def kept_and_compiled(
    jar: Path, sources: Sequence[Path], folder: Path
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """What each class file in the jar says, and what each of those says that its sources compile to.
    ``folder`` is for them.
    """
    kept, made = folder / "kept", folder / "made"
    with zipfile.ZipFile(jar) as archive:
        archive.extractall(kept)
    compiled(made, sources, class_path(jar))
    paths = sorted(path for path in (*kept.rglob("*"), *made.rglob("*")) if path.is_file())
    said = dict(zip(paths, disassembled(paths), strict=True))
    ours, theirs = (
        {path.relative_to(of).as_posix(): said[path] for path in paths if of in path.parents}
        for of in (kept, made)
    )
    return ours, theirs


def make_jar(jar: Path) -> None:
    with tempfile.TemporaryDirectory() as work, zipfile.ZipFile(jar, "w") as made:
        for path in compiled(Path(work), sources_of(jar), class_path(jar)):
            entry = zipfile.ZipInfo(path.relative_to(work).as_posix(), DATE)
            made.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)


def _tool(name: str, *arguments: str | Path) -> str:
    command = [java_program("java"), "-m", name, *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=WAIT_MAX_S
    ).stdout


if __name__ == "__main__":
    make_jar({jar.stem: jar for jar in (CHECKPOINT_FS_JAR, COLUMNAR_KAFKA_JAR)}[sys.argv[1]])
