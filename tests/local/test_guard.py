"""A guard kills what it watches over when its owner is gone, and only then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TIMEOUT_S = 20.0
OWNER = """
import os, subprocess, sys
from exactum.local.guard import Guard

leader = subprocess.Popen(
    ["/bin/sh", "-c", "sleep 300 2>/dev/null & echo both; wait"],
    start_new_session=True,
    stdin=subprocess.DEVNULL,
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
)
leader.stdout.readline()
guard = Guard(leader.pid, group=sys.argv[1] == "group")
if sys.argv[2] == "ended":
    guard.end()
print(leader.pid, flush=True)
os._exit(0)
"""


def living(session: int) -> set[int]:
    """The processes of a session; a zombie is no longer one."""
    found = set()
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.add(int(status.parent.name))
    return found


def owner(*arguments: str) -> int:
    """Run one that starts a session of two processes and dies; return the session."""
    command = [sys.executable, "-c", OWNER, *arguments]
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S, check=True)
    return int(ran.stdout)


@pytest.mark.parametrize(("what", "left"), [("process", 1), ("group", 0)])
def test_what_is_guarded_dies_with_its_owner(what: str, left: int) -> None:
    session = owner(what, "kept")
    deadline_s = time.monotonic() + TIMEOUT_S
    try:
        while session in living(session) or len(living(session)) > left:
            assert time.monotonic() < deadline_s, f"{living(session)} still live"
            time.sleep(0.02)
        assert len(living(session)) == left
    finally:
        for pid in living(session):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("what", ["process", "group"])
def test_an_ended_watch_kills_nobody(what: str) -> None:
    session = owner(what, "ended")
    try:
        time.sleep(0.3)
        assert len(living(session)) == 2
    finally:
        for pid in living(session):
            os.kill(pid, signal.SIGKILL)
