"""Find the Java programs that run Ivy, the broker and keytool, and run those that end."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from exactum.errors import LocalServerError

# A JVM that is up at once and stays small: for short programs and for several nodes.
SMALL_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
JAVA_MIN = 17
_NEED = (
    f"Kafka and Spark need Java {JAVA_MIN} or later "
    f"(Debian: apt-get install openjdk-{JAVA_MIN}-jre-headless)"
)
_RELEASE = re.compile(r'^JAVA_VERSION="((?:1\.)?(\d+)[^"]*)"', re.MULTILINE)


def spark_java_options(options: Iterable[str]) -> str:
    """Options of the JVM as Spark's launcher splits them again: in double quotes where they have
    blanks.
    """
    return " ".join(f'"{option}"' if " " in option else option for option in options)


def java_program(name: str) -> str:
    """Return the path of the Java program `name` (``java``, ``keytool``).

    Where JAVA_HOME is set it is that of ``$JAVA_HOME/bin``, else the first on the PATH: so does
    Spark's own launcher, which would end with "Java gateway process exited" where that is not one.

    Raises:
        LocalServerError: it is not there, or its Java is older than 17.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        found = shutil.which(name, path=os.path.join(home, "bin"))
        if found is None:
            raise LocalServerError(
                f"JAVA_HOME is {home}, and there is no program bin/{name} in it. Spark runs the "
                f"Java that JAVA_HOME names. {_NEED}: correct JAVA_HOME, or unset it if {name} is "
                "on the PATH."
            )
    else:
        found = shutil.which(name)
        if found is None:
            raise LocalServerError(
                f"{name} was not found on the PATH, and JAVA_HOME is not set. {_NEED}; install "
                "it, or set JAVA_HOME."
            )
    version = _old_version(Path(found))
    if version:
        raise LocalServerError(
            f"{found} is of Java {version}, which is too old. {_NEED}; install one, and set "
            "JAVA_HOME to its folder."
        )
    return found


def run_program(command: Sequence[str], timeout_s: float) -> tuple[int | None, str]:
    """Run a program to its end: its exit status, None where it took longer than `timeout_s` and was
    killed, and all that it said.
    """
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as killed:
        return None, (killed.stdout or b"").decode(errors="replace")
    return done.returncode, done.stdout.decode(errors="replace")


def _old_version(program: Path) -> str:
    """Its version where that is too old; empty where it is not, or its files do not say.

    Java's own file ``release`` says it without a start of a JVM. It lies above ``bin``, in Java 8
    above ``jre/bin``. A program that only starts another one (macOS) has none.
    """
    for folder in program.resolve().parents[1:3]:
        try:
            release = _RELEASE.search((folder / "release").read_text())
        except (OSError, ValueError):
            continue
        if release:
            return release[1] if int(release[2]) < JAVA_MIN else ""
    return ""
