"""A folder of this user's own for the sockets between Spark's JVM and its Python workers.

Over TCP, as by default, a task waits up to 40 ms for its first rows: the JVM sends a small packet,
and the kernel holds the next one back until the worker's delayed acknowledgement comes (Nagle's
algorithm; Spark sets no TCP_NODELAY). Unix domain sockets know neither. Spark 4.1 and later can use
them; earlier ones ignore the settings.
"""

from __future__ import annotations

import logging
import os
import socket
import stat
import tempfile
from pathlib import Path

logger = logging.getLogger("exactum")

ENABLED = "spark.python.unix.domain.socket.enabled"
FOLDER = "spark.python.unix.domain.socket.dir"
ADDRESS_BYTES_MAX = 103
"""The shortest that systems allow (macOS: 104 with the final zero; Linux: 108)."""
NAME_BYTES = len("/.01234567-89ab-cdef-0123-456789abcdef.sock")
"""Of what Spark puts into the folder (``daemon.py``, ``SocketAuthServer``)."""


def socket_settings() -> dict[str, str]:
    """Spark's settings for Unix domain sockets; empty where there can be none."""
    folder = private_folder(Path(tempfile.gettempdir()))
    return {} if folder is None else {ENABLED: "true", FOLDER: str(folder)}


def private_folder(below: Path) -> Path | None:
    """``exactum-sockets-<uid>``, which nobody else may enter: who reaches such a socket may talk to
    it, for Spark asks for no secret there. None where that cannot be had; workers are reached over
    TCP then, which is slower.
    """
    if not hasattr(socket, "AF_UNIX"):
        return None
    folder = below / f"exactum-sockets-{os.getuid()}"
    if len(os.fsencode(folder)) + NAME_BYTES > ADDRESS_BYTES_MAX:
        logger.info(
            "Spark reaches its Python workers over TCP, which is slower: %s is too long for "
            "sockets",
            folder,
        )
        return None
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        logger.info("Spark reaches its Python workers over TCP, which is slower: %s", error)
        return None
    if (
        not stat.S_ISDIR(found.st_mode)
        or found.st_uid != os.getuid()
        or stat.S_IMODE(found.st_mode) & 0o077
    ):
        logger.warning(
            "%s does not belong to this user alone, so Spark reaches its Python workers over TCP",
            folder,
        )
        return None
    return folder
