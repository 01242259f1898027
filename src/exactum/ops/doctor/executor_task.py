"""What one task looks at on its executor. Imported by Python workers: it needs little."""

from __future__ import annotations

import json
import os
import platform
import socket
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

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

    def of_batches(self, batches: Iterable[Any]) -> Iterator[Any]:
        """For ``mapInArrow``: what each row, a number of its own, sees, as a column of texts."""
        import pyarrow as pa

        for batch in batches:
            seen = [self.look(int(number)) for number in batch.column(0).to_pylist()]
            yield pa.record_batch({"seen": [json.dumps(asdict(each)) for each in seen]})

    def look(self, number: int) -> ExecutorSeen:
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

    @staticmethod
    def of(text: str) -> ExecutorSeen:
        """From the JSON that ``of_batches`` makes."""
        value = json.loads(text)
        return ExecutorSeen(**{**value, "written": tuple(value["written"])})
