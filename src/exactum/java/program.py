"""Find the Java programs that run Ivy, the broker and keytool, and compile a source file."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from exactum.errors import LocalServerError

COMPILER = ("-m", "jdk.compiler/com.sun.tools.javac.Main")
"""javac as a module, which Debian's JRE has as well; the program is in a JDK only."""
COMPILE_TIMEOUT_S = 120

# A JVM that is up at once and stays small: for short programs and for several nodes.
SMALL_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def java_program(name: str) -> str:
    """Return the path of the Java program `name` (``java``, ``keytool``).

    ``$JAVA_HOME/bin`` is asked first and the PATH second, as Spark's own launcher does.
    Raises LocalServerError where it is found in neither.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(name, path=os.path.join(home, "bin")) if home else None
    found = found or shutil.which(name)
    if found is None:
        raise LocalServerError(
            f"{name} was found neither in $JAVA_HOME/bin nor on the PATH. Kafka and Spark need "
            "Java 17 or later (Debian: apt-get install openjdk-17-jre-headless); "
            "install it, or set JAVA_HOME."
        )
    return found


def compile_java(source: Path, class_path: Iterable[Path], folder: Path) -> None:
    """Compile one file into ``folder``, which is made where it is missing.

    Raises:
        LocalServerError: there is no Java or no compiler in it, or the file does not compile.
    """
    options = [
        "-nowarn",
        "-proc:none",
        "-cp",
        os.pathsep.join(map(str, class_path)),
        "-d",
        str(folder),
    ]
    command = [java_program("java"), *COMPILER, *options, str(source)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=COMPILE_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LocalServerError(f"{source} could not be compiled: {error}") from error
    if done.returncode != 0:
        raise LocalServerError(f"{source} could not be compiled: {done.stdout}{done.stderr}")
