"""Two ways to keep a driver running that is killed: a standby takes over, or it starts again."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from exactum.errors import ExactumError
from exactum.local.guard import Guard
from exactum.ops import processes
from exactum.ops.processes import Driver, environment

START_TIMEOUT_S = 90.0
"""For ``exactum run`` itself to start the script; no JVM is waited for."""
PATIENCE = "30 s"
"""A death is seen at once. Only a driver that lives and is silent is waited for, and on a machine
where four JVMs start at once that is no sign of anything."""
POLL_S = 0.02
SAID = re.compile(rb"exactum run: (?:started .*? as )?process (\d+)(.*)")
"""What ``exactum run`` says of a process: its id, and what became of it."""


class StartedAgain(Driver):
    """Started again at once, from nothing, as a service manager does it.

    ``way`` is what keeps it running, in two or three words; ``is_ready``: all is there that a kill
    is waited with for; ``comes_back``: how it came to work again after the last kill.
    """

    way = "a new start"
    is_ready = True
    comes_back = "works again"

    def __init__(self, name: str, script: Path, arguments: Sequence[str], log_file: Path) -> None:
        super().__init__(
            name, (str(script), *arguments), log_file, variables=_temporary(log_file.parent)
        )

    def end(self) -> None:
        """End everything that was started. Idempotent."""
        self.kill()


class StandbyBeside:
    """Runs under ``exactum run --standby``. What it says in the log tells which process is which.
    All that ``StartedAgain`` has.

    ``exactum run`` itself lives on: what is killed is the process that runs the query.
    """

    way = "exactum run --standby"

    def __init__(self, name: str, script: Path, arguments: Sequence[str], log_file: Path) -> None:
        options = ("--standby", "--standby-timeout", PATIENCE, "--listen", "none")
        command = ("-m", "exactum.ops.cli", "run", *options, str(script), "--", *arguments)
        self.name = name
        self._run = Driver(name, command, log_file, variables=_temporary(log_file.parent))
        self._log_file = log_file
        self._read_bytes = 0
        self._active = self._ready = 0
        self._guards: dict[int, Guard] = {}
        self._known: set[int] = set()
        self._kills = self._ends = 0
        self._took_over = False  # since the last kill

    @property
    def is_ready(self) -> bool:
        """Whether a standby is warm."""
        self._observe()
        return self._ready > 0

    @property
    def comes_back(self) -> str:
        """By its standby, unless the kill met none that was there."""
        self._observe()
        return "the standby works" if self._took_over else "works again"

    def start(self) -> None:
        """Start ``exactum run``. After a kill it does what there is to do."""
        if self._run.starts:
            return
        self._run.start()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._active:
            self.check()
            if time.monotonic() > deadline:
                raise self.failure(f"was not started within {START_TIMEOUT_S:.0f} s")
            time.sleep(POLL_S)

    def note_processes(self) -> None:
        """See ``Driver``."""
        self._observe()
        self._known = processes.members(self._active)

    def kill(self, frozen: Callable[[], bool]) -> int:
        """See ``Driver``. The standby lives."""
        self._observe()

        def before_death() -> bool:
            dies = frozen()
            if dies:
                # Once it is dead exactum run reaps it, and its id may become somebody else's.
                self._unguard(self._active)
                self._kills, self._took_over = self._kills + 1, False
            return dies

        return processes.kill_all(self._active, self._known, before_death)

    def end(self) -> None:
        """See ``StartedAgain``."""
        leader = self._run.pid
        if leader is None:
            return
        # While it is frozen it starts nothing, and reaps nobody: the ids stay what they are. Where
        # it has ended by itself, what it had started is known by its guards.
        os.kill(leader, signal.SIGSTOP)
        started = processes.children(leader)
        started |= {pid for pid in self._guards if processes.members(pid)}
        for pid in list(self._guards):
            self._unguard(pid)
        for pid in started:
            processes.kill_all(pid, set())
        self._run.kill()
        for pid in started:
            processes.await_gone(pid)

    def check(self) -> None:
        """
        Raises:
            ExactumError: ``exactum run`` ended, or had to replace a driver that nobody killed.
        """
        self._run.check()
        self._observe()
        if self._ends > self._kills:
            raise self.failure("ended by itself")

    def failure(self, what: str) -> ExactumError:
        """See ``Driver``."""
        return self._run.failure(what)

    def _observe(self) -> None:
        """Read on in the log, up to the last whole line."""
        with self._log_file.open("rb") as log:
            log.seek(self._read_bytes)
            text = log.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        for found in SAID.finditer(whole):
            self._observed(int(found[1]), found[2].decode(errors="replace").strip())

    def _observed(self, pid: int, what: str) -> None:
        if what in ("", ", a standby"):
            self._guards[pid] = Guard(pid)  # exactum run's own ends with it, this one's do not
            self._active = self._active if what else pid
        elif what.startswith("stands by"):
            self._ready = pid
        elif what == "takes over":
            self._active, self._ready = pid, 0
            self._took_over = True
        elif what.startswith(":"):
            self._ends += pid == self._active
            self._ready = 0 if pid == self._ready else self._ready
            self._unguard(pid)

    def _unguard(self, pid: int) -> None:
        guard = self._guards.pop(pid, None)
        if guard is not None:
            guard.end()


def _temporary(folder: Path) -> dict[str, str]:
    """Variables by which temporary files lie in ``folder``: who is killed removes none."""
    below = folder / "tmp"
    below.mkdir(exist_ok=True)
    options = f'{environment()["SPARK_SUBMIT_OPTS"]} "-Djava.io.tmpdir={below}"'
    return {"TMPDIR": str(below), "SPARK_LOCAL_DIRS": str(below), "SPARK_SUBMIT_OPTS": options}


KeptRunning = StartedAgain | StandbyBeside
"""A driver that works again after each kill. Used from one thread at a time."""
