"""A folder of this process's own for the sockets between Spark's JVM and its Python workers.

Over TCP, as by default, a task waits up to 40 ms for its first rows: the JVM sends a small packet,
and the kernel holds the next one back until the worker's delayed acknowledgement comes (Nagle's
algorithm; Spark sets no TCP_NODELAY). Unix domain sockets know neither. Spark 4.1 and later can use
them; earlier ones ignore the settings.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import socket
import tempfile

logger = logging.getLogger("exactum")

ENABLED = "spark.python.unix.domain.socket.enabled"
FOLDER = "spark.python.unix.domain.socket.dir"
ADDRESS_BYTES_MAX = 103
"""The shortest that systems allow (macOS: 104 with the final zero; Linux: 108)."""
SLOWER = "Spark reaches its Python workers over TCP, which is slower"
NAME_BYTES = len("/.01234567-89ab-cdef-0123-456789abcdef.sock")
"""Of what Spark puts into the folder (``daemon.py``, ``SocketAuthServer``)."""
PREFIX = "exactum-sockets-"
OWN_BYTES = len(f"/{PREFIX}01234567")


def socket_settings() -> dict[str, str]:
    """Spark's settings for Unix domain sockets, in a new folder that is removed when this process
    ends; empty where there can be none: workers are reached over TCP then, which is slower.

    Nobody else may enter the folder: who reaches such a socket may talk to it, for Spark asks for
    no secret there.
    """
    if not hasattr(socket, "AF_UNIX"):
        return {}
    above = next(filter(_can_hold, (tempfile.gettempdir(), "/tmp")), None)
    if above is None:
        logger.info("%s: no folder for temporary files can hold sockets", SLOWER)
        return {}
    try:
        folder = tempfile.mkdtemp(prefix=PREFIX, dir=above)
    except OSError as error:
        logger.info("%s: %s", SLOWER, error)
        return {}
    atexit.register(_remove, folder, os.getpid())
    return {ENABLED: "true", FOLDER: folder}


def _can_hold(folder: str) -> bool:
    """Whether an address in a folder of ours below it is short enough, and all in small letters: a
    worker of transformWithState asks for it in these (``worker_util.py`` of Spark 4.2).
    """
    address_bytes = len(os.fsencode(folder)) + OWN_BYTES + NAME_BYTES
    return folder == folder.lower() and address_bytes <= ADDRESS_BYTES_MAX


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # a forked child shares the hook
        shutil.rmtree(folder, ignore_errors=True)
