"""A process of ours: it is started, frozen, stopped and killed with all below it; also where nothing can be
seen of a dead child before it is reaped (macOS before Python 3.13).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from exactum.local import own_process
from exactum.local.own_process import SUCCESS, OwnProcess, members
from tests.kit.waiting import WAIT_MAX_S, await_true

FAMILY = ["/bin/sh", "-c", "sleep 300 & echo both; wait"]
ALONE = ["/bin/sh", "-c", "echo alone; exec sleep 300"]
STUBBORN = ["/bin/sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 0.1; done"]


@pytest.fixture(params=[True, False], ids=["kept", "reaped"])
def process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[OwnProcess]:
    monkeypatch.setattr(own_process, "KEEPS_ID", request.param)
    made = OwnProcess(tmp_path / "log", variables={"TOLD": "by us"})
    yield made
    made.kill()


def session_of(process: OwnProcess, command: list[str], said: str) -> int:
    """It runs, and has said so."""
    process.start(command)
    session = process.pid
    assert session is not None
    await_true(lambda: said in process.log_tail(), said)
    return session


def test_it_ends_by_itself_and_is_started_again(process: OwnProcess) -> None:
    assert (process.running, process.pid, process.ended()) == (False, None, None)
    assert process.log_tail() == ""
    for number, (code, how) in enumerate([(0, SUCCESS), (3, "exit status 3")], 1):
        process.start(["/bin/sh", "-c", f"pwd; echo $TOLD; exit {code}"])
        await_true(lambda: process.ended() is not None, "its end")
        assert (process.ended(), process.running, process.pid) == (how, False, None)
        assert process.starts == number
        assert process.stop(0.0)
        assert process.ended() is None
    assert process.log_tail(2).split("\n")[:2] == [str(process.log_file.parent), "by us"]
    process.start(["/bin/sh", "-c", "kill -KILL $$"])
    await_true(lambda: process.ended() == "SIGKILL", "the signal's name")


def test_kill_takes_the_whole_tree(process: OwnProcess) -> None:
    """All of them stand still before one of them dies; who says no lets them go on."""
    session = session_of(process, FAMILY, "both")
    process.start(FAMILY)
    assert (process.pid, process.starts) == (session, 1)
    process.note_processes()
    frozen: list[set[int]] = []

    def look(goes: bool) -> bool:
        frozen.append(members(session))
        return goes

    assert process.kill(lambda: look(False)) == 0
    assert process.running and len(members(session)) == 2
    assert process.kill(lambda: look(True)) == 2
    assert [len(each) for each in frozen] == [2, 2]
    assert not members(session) and not process.running
    assert process.kill() == 0


def test_stop_asks_first(process: OwnProcess) -> None:
    """Of who is asked in vain, and of who is paused."""
    session_of(process, ALONE, "alone")
    process.pause()
    assert process.running
    process.pause()
    assert process.stop(WAIT_MAX_S)
    session = session_of(process, STUBBORN, "deaf")
    assert not process.stop(0.1)
    assert not members(session)


def test_what_an_ended_one_left_is_killed(process: OwnProcess) -> None:
    """At the next start, where its id is still its own."""
    session = session_of(process, FAMILY, "both")
    os.kill(session, signal.SIGKILL)
    await_true(lambda: process.ended() == "SIGKILL", "its end")
    left = members(session)
    process.start(["/bin/sleep", "300"])
    if own_process.KEEPS_ID:
        assert not members(session)
    for pid in left & members(session):
        os.kill(pid, signal.SIGKILL)
    assert process.running
    process.pause()
    process.resume()
    assert process.kill() == 1
