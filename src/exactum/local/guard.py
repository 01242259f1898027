"""Ends a process when the one that started it is gone, however that ended."""

from __future__ import annotations

import subprocess

# It reads a pipe that nobody writes to. The pipe ends when the owner dies, and then the process is
# killed. (PR_SET_PDEATHSIG would fire when the *thread* that started the process ends, and exists
# on Linux only.)
SCRIPT = 'read -r _; kill -s KILL -- "$1" 2>/dev/null'


class Guard:
    """Watches over a process that this one has just started.

    Args:
        pid: the process.
        group: whether everything in its process group, which it leads, is killed with it.
    """

    def __init__(self, pid: int, *, group: bool = False) -> None:
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", SCRIPT, "exactum-guard", f"-{pid}" if group else str(pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def end(self) -> None:
        """End the watch. At the latest before the dead process is reaped: its id may become
        somebody else's.
        """
        self._process.kill()
        self._process.communicate()
