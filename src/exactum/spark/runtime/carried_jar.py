"""Jars that the wheel carries: a JVM reads them where they lie."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path

from exactum.durable import create_whole
from exactum.errors import LocalServerError
from exactum.java.jars import cache_folder

logger = logging.getLogger("exactum")

MADE_S = 315_532_800
"""The time that all copies have, 1980: the first that a jar's own entries can have."""


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


def kept_copy(jar: Path) -> Path:
    """The jar's copy in the cache, which is the same file after every install of the same content:
    a class archive is of jars by their path and time. The jar itself where the cache cannot be
    written. Idempotent.
    """
    content = jar.read_bytes()
    name = f"{jar.stem}-{hashlib.sha256(content).hexdigest()[:16]}.jar"
    copy = cache_folder() / "jars" / name
    try:
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            create_whole(copy, content)
        if copy.stat().st_mtime != MADE_S:
            os.utime(copy, (MADE_S, MADE_S))
    except OSError as error:
        logger.debug("%s is used where it was installed: %s", jar, error)
        return jar
    return copy
