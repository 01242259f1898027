"""A guard kills what it watches over when its owner is gone, and only then."""

from __future__ import annotations

import os
import signal
import time

import pytest

from exactum.local.own_process import members
from tests.kit.python import python
from tests.kit.waiting import await_true

OWNER = """
import os, subprocess, sys
from exactum.local.own_process import Guard

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
    return int(python(OWNER, *arguments).stdout)


@pytest.mark.parametrize(
    ("what", "watch", "left"),
    [("process", "kept", 1), ("group", "kept", 0), ("process", "ended", 2), ("group", "ended", 2)],
)
def test_what_is_guarded_dies_with_its_owner(what: str, watch: str, left: int) -> None:
    """A watch that has ended kills nobody."""
    session = owner(what, watch)
    try:
        if watch == "ended":
            time.sleep(0.3)
        else:
            await_true(lambda: session not in members(session), "the leader dies")
        await_true(lambda: len(members(session)) == left, f"{left} of them are left")
    finally:
        for pid in members(session):
            os.kill(pid, signal.SIGKILL)
