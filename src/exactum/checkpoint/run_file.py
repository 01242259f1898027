"""Which runs of a query are alive: one small file for each, locked for as long as its process
lives.

    <checkpoint>/exactum/runs/<incarnation>.json    who it is; flock-ed by the driver meanwhile

A lock ends with its process, however that ends, so nobody has to guess from an age or a process id.
It informs; no guarantee rests on it: two runs at once are told apart by the decision log.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from exactum.checkpoint.layout import RUNS
from exactum.checkpoint.records import listed
from exactum.durable import make_folder

logger = logging.getLogger("exactum")

ENDING = ".json"
POLL_S = 0.1


@dataclass(frozen=True)
class RecordedRun:
    """One run of one query, as its driver wrote it down. ``started_ms`` is since 1970."""

    incarnation: str
    host: str
    pid: int
    exactum: str
    spark: str
    started_ms: int

    def __str__(self) -> str:
        return f"run {self.incarnation} (process {self.pid} on {self.host})"


class RunFile:
    """Held by the driver of a run, from its start to its end."""

    def __init__(self, checkpoint: Path, incarnation: str, exactum: str, spark: str) -> None:
        self._folder = checkpoint / RUNS
        self._run = RecordedRun(
            incarnation,
            socket.gethostname(),
            os.getpid(),
            exactum,
            spark,
            int(time.time() * 1000),
        )
        self._file: IO[bytes] | None = None
        self._warned = False

    def hold(self) -> None:
        """Write the file, lock it, and remove those of runs that are over. Idempotent.

        Where the file system has no locks the run goes on unseen, which is logged once.
        """
        if self._file is not None:
            return
        path = self._folder / f"{self._run.incarnation}{ENDING}"
        temporary = path.with_name(f".{path.name}.tmp")
        try:
            make_folder(self._folder)
            self._file = temporary.open("xb")
            self._file.write(json.dumps(asdict(self._run)).encode())
            self._file.flush()
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            temporary.rename(path)
            for old in self._folder.glob(f"*{ENDING}"):
                if old != path and not _locked(old):
                    old.unlink(missing_ok=True)
        except OSError as error:
            self.release()
            temporary.unlink(missing_ok=True)
            level, self._warned = logging.DEBUG if self._warned else logging.WARNING, True
            logger.log(
                level,
                "%s cannot be locked (%s): 'exactum savepoint' will not see that this query runs",
                path,
                error,
            )

    def release(self) -> None:
        """Let go of the lock; the file stays, to say who ran last. Idempotent."""
        file, self._file = self._file, None
        if file is not None:
            # What a full disk did not take is tried again here, and fails again; the descriptor is
            # closed all the same.
            with contextlib.suppress(OSError):
                file.close()


def runs(checkpoint: Path) -> list[tuple[RecordedRun, bool]]:
    """The runs that left a file below this checkpoint, oldest first, each with whether it is
    alive.

    Raises:
        CheckpointRefused: the folder could not be read.
    """
    found: list[tuple[RecordedRun, bool]] = []
    names = listed(checkpoint / RUNS, "who runs this query")
    for path in (checkpoint / RUNS / name for name in names if name.endswith(ENDING)):
        with contextlib.suppress(
            FileNotFoundError, ValueError, TypeError
        ):  # half a file, after a power failure
            alive = _locked(path)
            found.append((RecordedRun(**json.loads(path.read_text())), alive))
    return sorted(found, key=lambda each: each[0].started_ms)


def living(checkpoint: Path) -> list[RecordedRun]:
    """The runs of this checkpoint whose drivers live, frozen ones among them."""
    return [run for run, alive in runs(checkpoint) if alive]


def outliving(checkpoint: Path, timeout_s: float) -> list[RecordedRun]:
    """The runs that still live after up to ``timeout_s``: one that has just ended is seen for
    seconds.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        alive = living(checkpoint)
        if not alive or time.monotonic() >= deadline_s:
            return alive
        time.sleep(POLL_S)


def _locked(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
