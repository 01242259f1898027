"""A crash test's job under ``exactum run --standby``, which lives on: what is killed is the process
that runs the query, and its standby takes over.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

from exactum.local.guard import Guard
from exactum.ops import processes
from exactum.ops.crash_test.crash_test import START_TIMEOUT_S, Job

STANDBY_TIMEOUT = "30 s"
"""A death is seen at once. Only a driver that lives and is silent is waited for, and on a machine
where several JVMs start at once that is no sign of anything."""
RUN = ("-m", "exactum.ops.cli", "run", "--listen", "none", "--standby", "--standby-timeout")
POLL_S = 0.02
SAID = re.compile(rb"exactum run: (?:started .*? as )?process (\d+)(.*)")
"""What ``exactum run`` says of a process: its id, and what became of it."""


class SupervisedJob(Job):
    """What ``exactum run`` says in the log tells which process is which."""

    finishes = True

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._read_bytes = 0
        self._active = self._standby = 0  # that is warm
        self._guards: dict[int, Guard] = {}
        self._kills = self._ends = 0

    @staticmethod
    def arguments(script: str, *of_script: str) -> Sequence[str]:
        """See the base class."""
        return (*RUN, STANDBY_TIMEOUT, script, "--", *of_script)

    def start(self) -> None:
        """Start ``exactum run``. After a kill it does what there is to do."""
        if self.pid is None:
            super().start()
        else:
            self.starts += 1

    def await_ready(self) -> None:
        """Wait for a standby that is warm.

        Raises:
            ExactumError: there is none in time, or something ended by itself.
        """
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not self._standby:
            self.check()
            if time.monotonic() > deadline_s:
                raise self.failure(f"had no standby within {START_TIMEOUT_S:.0f} s")
            time.sleep(POLL_S)

    def note_processes(self) -> None:
        """Of the process that runs the query."""
        self._observe()
        self._known = processes.members(self._active)

    def strike(self, frozen: Callable[[], bool]) -> int:
        """Kill the process that runs the query, with what it has started."""
        self._observe()

        def before_death() -> bool:
            dies = frozen()
            if dies:
                # Once it is dead exactum run reaps it, and its id may become somebody else's.
                self._unguard(self._active)
                self._kills += 1
            return dies

        return processes.kill_all(self._active, self._known, before_death)

    def kill(self, frozen: Callable[[], bool] = lambda: True) -> int:
        """End everything that was started. Idempotent."""
        leader = self.pid
        if leader is None:
            return 0
        # While it is frozen it starts nothing, and reaps nobody: the ids stay what they are. Where
        # it has ended by itself, what it had started is known by its guards.
        os.kill(leader, signal.SIGSTOP)
        started = processes.children(leader)
        started |= {pid for pid in self._guards if processes.members(pid)}
        for pid in list(self._guards):
            self._unguard(pid)
        for pid in started:
            processes.kill_all(pid, set())
        killed = super().kill(frozen)
        for pid in started:
            processes.await_gone(pid)
        return killed

    def check(self) -> None:
        """
        Raises:
            ExactumError: ``exactum run`` ended, or had to replace a driver that nobody killed.
        """
        super().check()
        self._observe()
        if self._ends > self._kills:
            raise self.failure("ended by itself")

    def _observe(self) -> None:
        """Read on in the log, up to the last whole line."""
        with self.log_file.open("rb") as log:
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
            self._standby = pid
        elif what == "takes over":
            self._active, self._standby = pid, 0
        elif what.startswith(":"):
            self._ends += pid == self._active
            self._standby = 0 if pid == self._standby else self._standby
            self._unguard(pid)

    def _unguard(self, pid: int) -> None:
        guard = self._guards.pop(pid, None)
        if guard is not None:
            guard.end()
