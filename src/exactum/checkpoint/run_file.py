"""Which runs of a query are alive: one small file for each.

    <checkpoint>/exactum/runs/<incarnation>.json

In a folder the driver holds a lock on it (flock). A lock ends with its process, however that ends,
so nobody has to guess from an age or a process id. In an object store, which has no locks, the
driver puts it again every ``BEAT_S``; one that was silent for longer than three beats, by the
store's clock, is taken for dead, and so is one that is frozen.

The last word is put before the lock is let go: that the run is over, and which epoch it has
completed, if it was stopped by a request (``request_file``) and so has begun none later.

It informs; no guarantee rests on it: two runs at once are told apart by the decision log.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import socket
import threading
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO

from exactum.checkpoint.layout import REQUESTS, RUNS
from exactum.checkpoint.query_record import listed
from exactum.durable import make_folder
from exactum.errors import ExactumError
from exactum.storage.folder import Folder
from exactum.storage.storage import Storage

logger = logging.getLogger("exactum")

ENDING = ".json"
POLL_S = 0.1
POLL_STORE_S = 1.0
"""Between two looks at a run, in a folder and in an object store."""
BEAT_S = 10.0
SILENT_MAX_MS = 3 * BEAT_S * 1000
CLOCK = f"{RUNS}/clock"
"""An object that is put to learn what time it is in an object store."""
OVER = "over"
"""In the file of a run that has ended."""


@dataclass(frozen=True)
class RecordedRun:
    """One run of one query, as its driver wrote it down. ``started_ms`` is since 1970.
    ``completed``: the last epoch of a run that a request has stopped; None: of another one.
    """

    incarnation: str
    host: str
    pid: int
    exactum: str
    spark: str
    started_ms: int
    completed: int | None = None

    def __str__(self) -> str:
        return f"run {self.incarnation} (process {self.pid} on {self.host})"

    @property
    def name(self) -> str:
        """Of its file, below a checkpoint."""
        return f"{RUNS}/{self.incarnation}{ENDING}"


def request_name(incarnation: str) -> str:
    """Of the file that asks this run to stop, below a checkpoint."""
    return f"{REQUESTS}/{incarnation}{ENDING}"


class RunFile:
    """Held by the driver of a run, from its start to its end."""

    def __init__(self, files: Storage, incarnation: str, exactum: str, spark: str) -> None:
        self._files = files
        self._run = RecordedRun(
            incarnation,
            socket.gethostname(),
            os.getpid(),
            exactum,
            spark,
            int(time.time() * 1000),
        )
        self._lock = _Lock(files) if isinstance(files, Folder) else _Beats(files)
        self._is_taken = self._warned = False

    def hold(self) -> None:
        """Write the file, lock it, and remove those of runs that are over, with requests to them.
        Idempotent.

        Where that is not possible (a file system has no locks) the run goes on unseen, which is
        logged once.
        """
        if self._is_taken:
            return
        try:
            self._lock.take(self._run)
            self._is_taken = True
            # Before it is asked who lives: whose file is there by then is seen alive.
            there = [f"{at}/{n}" for at in (RUNS, REQUESTS) for n in self._files.names(at)]
            kept = {run.incarnation for run in (self._run, *living(self._files))}
            own = [name for name in there if name.endswith(ENDING)]
            self._files.delete([n for n in own if Path(n).name.partition(".")[0] not in kept])
        except (OSError, ExactumError) as error:
            self._is_taken = False
            self._lock.drop()
            level, self._warned = logging.DEBUG if self._warned else logging.WARNING, True
            logger.log(
                level,
                "%s/%s cannot be locked (%s): 'exactum savepoint' will not see that this query "
                "runs",
                self._files.where,
                self._run.name,
                error,
            )

    def release(self, completed: int | None = None) -> None:
        """Let go of the lock; the file stays, to say who ran last. Idempotent. ``completed``: see
        ``RecordedRun``.
        """
        if self._is_taken:
            self._is_taken = False
            self._lock.release(_content(replace(self._run, completed=completed), **{OVER: True}))


class _Lock:
    """An open file that is locked."""

    def __init__(self, files: Folder) -> None:
        self._files = files
        self._name = ""
        self._file: IO[bytes] | None = None

    def take(self, run: RecordedRun) -> None:
        self._name = run.name
        path = Path(self._files.root) / run.name
        temporary = path.with_name(f".{path.name}.tmp")
        make_folder(path.parent)
        try:
            self._file = temporary.open("xb")
            self._file.write(_content(run))
            self._file.flush()
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            temporary.rename(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise

    def release(self, last: bytes) -> None:
        with contextlib.suppress(ExactumError):
            self._files.put(self._name, last, durable=False)
        self.drop()

    def drop(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            # What a full disk did not take is tried again here, and fails again; the descriptor is
            # closed all the same.
            with contextlib.suppress(OSError):
                file.close()


class _Beats:
    """An object that is put again and again, by a thread of its own: what the driver waits for else
    must not make it look dead.
    """

    def __init__(self, files: Storage) -> None:
        self._files = files
        self._over = threading.Event()
        self._putting = threading.Lock()
        self._name = ""

    def take(self, run: RecordedRun) -> None:
        self._files.put(run.name, _content(run))
        self._name, self._over = run.name, threading.Event()
        beat = threading.Thread(
            target=self._beat, args=(run, self._over), name="exactum-heartbeat", daemon=True
        )
        beat.start()

    def _beat(self, run: RecordedRun, over: threading.Event) -> None:
        while not over.wait(BEAT_S):
            with self._putting:
                if over.is_set():
                    return
                try:
                    self._files.put(run.name, _content(run))
                except ExactumError as error:
                    logger.warning("%s could not say that it lives: %s", run, error)

    def release(self, last: bytes) -> None:
        self.drop()
        with self._putting, contextlib.suppress(ExactumError):  # behind the last beat
            self._files.put(self._name, last)

    def drop(self) -> None:
        self._over.set()


def _content(run: RecordedRun, **more: bool) -> bytes:
    return json.dumps({**asdict(run), **more}).encode()


def runs(files: Storage) -> list[tuple[RecordedRun, bool]]:
    """The runs that left a file below this checkpoint, oldest first, each with whether it is
    alive.

    Raises:
        CheckpointRefused: the folder could not be read.
        Unavailable, SettingRefused: a file could not be.
    """
    found: list[tuple[RecordedRun, bool]] = []
    now_ms: int | None = None
    names = listed(files, RUNS, "who runs this query")
    for name in (f"{RUNS}/{name}" for name in names if name.endswith(ENDING)):
        with contextlib.suppress(ValueError, TypeError):  # half a file, after a power failure
            alive = isinstance(files, Folder) and _is_locked(Path(files.root) / name)
            text = files.read(name)
            if text is None:
                continue
            value = json.loads(text)
            over = value.pop(OVER, False)
            beat = None if isinstance(files, Folder) or over else files.entry(name)
            if beat is not None:
                now_ms = _store_ms(files) if now_ms is None else now_ms
                alive = now_ms - beat.modified_ms < SILENT_MAX_MS
            found.append((RecordedRun(**value), alive and not over))
    return sorted(found, key=lambda each: each[0].started_ms)


def living(files: Storage) -> list[RecordedRun]:
    """The runs of this checkpoint whose drivers live; in a folder frozen ones among them."""
    return [run for run, alive in runs(files) if alive]


def outliving(files: Storage, timeout_s: float) -> list[RecordedRun]:
    """The runs that still live after up to ``timeout_s``: one that has just ended is seen for
    seconds.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        alive = living(files)
        if not alive or time.monotonic() >= deadline_s:
            return alive
        time.sleep(poll_s(files))


def poll_s(files: Storage) -> float:
    """How long to wait between two looks at who runs."""
    return POLL_S if isinstance(files, Folder) else POLL_STORE_S


def _is_locked(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _store_ms(files: Storage) -> int:
    """By the store's clock: that of this machine may be minutes off. Who may not write there goes
    by this machine's.
    """
    with contextlib.suppress(ExactumError):
        files.put(CLOCK, b"\n")
        clock = files.entry(CLOCK)
        if clock is not None:
            return clock.modified_ms
    return int(time.time() * 1000)
