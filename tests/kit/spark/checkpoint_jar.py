"""Makes the jar of ``CheckpointFs.java``, which is kept beside it; needs the compiler of a JDK
(Debian's JRE has it as well). Run as a module it replaces the jar.

The same class files come out for Hadoop 3.4.1 to 3.5.0, which PySpark 4.0 to 4.2 have.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import zipfile
from pathlib import Path

from exactum.java.jars import pyspark_jars
from exactum.java.program import java_program
from exactum.spark.runtime.checkpoint_fs import JAR, SOURCE

OPTIONS = ("--release", "17", "-nowarn", "-proc:none")
"""Java 17 is the oldest that PySpark 4.0 runs on."""
DATE = (1980, 1, 1, 0, 0, 0)
"""Of each entry: who makes the jar again finds the same bytes."""
NUMBERS = re.compile(r"#\d+,?|(?<=\$)\d+(?=[(:])")
"""Of constants and of lambdas: each version of the compiler numbers them in an order of its own."""


def compiled(folder: Path, source: Path = SOURCE) -> list[Path]:
    """The class files of the source, in ``folder``."""
    (hadoop,) = pyspark_jars().glob("hadoop-client-api-*.jar")
    _tool("jdk.compiler/com.sun.tools.javac.Main", *OPTIONS, "-cp", hadoop, "-d", folder, source)
    return sorted(folder.rglob("*.class"))


def disassembled(file: Path) -> list[str]:
    """What a class file says, line by line, without what depends on the compiler's version."""
    said = _tool("jdk.jdeps/com.sun.tools.javap.Main", "-v", "-p", file)
    head, _, rest = said.partition("Constant pool:\n")
    _, _, body = rest.partition("\n{\n")
    lines = [*head.splitlines()[3:], *body.splitlines()]  # the first three are about the file
    return sorted(" ".join(NUMBERS.sub("", line).split()) for line in lines)


def _tool(name: str, *arguments: str | Path) -> str:
    command = [java_program("java"), "-m", name, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as work, zipfile.ZipFile(JAR, "w") as made:
        for path in compiled(Path(work)):
            entry = zipfile.ZipInfo(path.relative_to(work).as_posix(), DATE)
            made.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
