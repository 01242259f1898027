"""Find the Java programs that run Ivy, the broker and keytool."""

from __future__ import annotations

import os
import shutil

from exactum.errors import LocalServerError

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
