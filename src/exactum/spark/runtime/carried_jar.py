"""Jars that the wheel carries: a JVM reads them where they lie."""

from __future__ import annotations

from pathlib import Path

from exactum.errors import LocalServerError


def carried_jar(jar: Path, what: str) -> Path:
    """The jar, if the JVM can read it; ``what`` in it the JVM would load, for the message.

    Raises:
        LocalServerError: exactum was imported from an archive, and the JVM cannot read the jar in
            it.
    """
    if not jar.is_file():
        raise LocalServerError(
            f"{jar} is no file, so the JVM cannot load {what}. Install exactum's wheel where the "
            "driver runs, instead of importing it from an archive."
        )
    return jar
