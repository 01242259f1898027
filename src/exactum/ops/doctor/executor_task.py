"""What one task looks at on its executor. Imported by Python workers: it needs little."""

from __future__ import annotations

import os
import platform
import socket
from dataclasses import dataclass

from exactum._version import __version__

CONNECT_TIMEOUT_S = 5.0
DRIVER_FILE = "driver"


@dataclass(frozen=True)
class ExecutorTask:
    """What each task of the job tries. Picklable. ``folders``: those of the doctor's own in which
    the driver has written a file.
    """

    folders: tuple[str, ...]
    addresses: tuple[str, ...]

    def __call__(self, number: int) -> ExecutorSeen:
        unseen: dict[str, str] = {}
        written: list[str] = []
        for folder in self.folders:
            name = os.path.join(folder, f"{socket.gethostname()}-{os.getpid()}-{number}")
            try:
                with open(os.path.join(folder, DRIVER_FILE), "rb"):
                    pass
                with open(name, "xb"):
                    written.append(name)
            except OSError as failure:
                unseen[folder] = str(failure)
        unreached: dict[str, str] = {}
        for address in self.addresses:
            host, _, port = address.rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S).close()
            except OSError as failure:
                unreached[address] = str(failure)
        return ExecutorSeen(
            socket.gethostname(),
            platform.python_version(),
            __version__,
            unseen,
            unreached,
            tuple(written),
        )


@dataclass(frozen=True)
class ExecutorSeen:
    """One task's answer. ``unseen`` and ``unreached``: why, by folder and by address."""

    host: str
    python: str
    exactum: str
    unseen: dict[str, str]
    unreached: dict[str, str]
    written: tuple[str, ...]
