"""A guard kills what it watches over when its owner is gone, and only then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from exactum.ops.processes import members
from tests.kit.waiting import WAIT_MAX_S, await_true

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


def owner(*arguments: str) -> int:
    """Run one that starts a session of two processes and dies; return the session."""
    command = [sys.executable, "-c", OWNER, *arguments]
    ran = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, timeout=WAIT_MAX_S, check=True
    )
    return int(ran.stdout)


@pytest.mark.parametrize(("what", "left"), [("process", 1), ("group", 0)])
def test_what_is_guarded_dies_with_its_owner(what: str, left: int) -> None:
    session = owner(what, "kept")
    try:
        await_true(lambda: session not in members(session), "the leader dies")
        await_true(lambda: len(members(session)) == left, f"{left} of them are left")
    finally:
        for pid in members(session):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("what", ["process", "group"])
def test_an_ended_watch_kills_nobody(what: str) -> None:
    session = owner(what, "ended")
    try:
        time.sleep(0.3)
        assert len(members(session)) == 2
    finally:
        for pid in members(session):
            os.kill(pid, signal.SIGKILL)
