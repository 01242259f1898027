"""The watchdog: one thread that ends or tells of waits which take too long."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from exactum.sql.watchdog import Watchdog
from tests.kit.waiting import WAIT_MAX_S

LONG_S = WAIT_MAX_S
WAIT_S = WAIT_MAX_S

FORKED = """
import os, time
from exactum.sql.watchdog import watchdog
with watchdog.after(60, print):
    child = os.fork()
    if child == 0:
        with watchdog.after(0.01, lambda: os._exit(7)):
            time.sleep(20)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def threads() -> set[threading.Thread]:
    return {t for t in threading.enumerate() if t.name == "exactum-watchdog"}


@pytest.fixture
def watchdog() -> Watchdog:
    return Watchdog()


def test_what_takes_too_long_is_acted_on_once(watchdog: Watchdog) -> None:
    """While a longer wait goes on, and by a thread of the watchdog's; what has ended in time is
    left alone.
    """
    called: list[str] = []
    due = threading.Event()
    with watchdog.after(LONG_S, lambda: called.append("long")):
        with watchdog.after(0.05, lambda: called.append("ended in time")):
            pass
        with watchdog.after(
            0.1, lambda: (called.append(threading.current_thread().name), due.set())
        ):
            assert due.wait(WAIT_S)
            time.sleep(0.05)
    assert called == ["exactum-watchdog"]


def test_one_thread_for_all(watchdog: Watchdog) -> None:
    """A thousand statements, and twenty threads at once, make one thread."""
    before = threads()
    together = threading.Barrier(21)

    def wait() -> None:
        with watchdog.after(WAIT_S, lambda: None):
            together.wait(WAIT_S)
            together.wait(WAIT_S)

    waiting = [threading.Thread(target=wait) for _ in range(20)]
    for thread in waiting:
        thread.start()
    together.wait(WAIT_S)
    for _ in range(1_000):
        with watchdog.after(WAIT_S, lambda: None):
            pass
    assert len(threads() - before) == 1
    together.wait(WAIT_S)
    for thread in waiting:
        thread.join()


def test_the_thread_ends_with_nothing_to_watch(watchdog: Watchdog) -> None:
    """And another one begins with the next wait."""
    before = threads()
    for _ in range(2):
        with watchdog.after(0.5, lambda: None):
            assert len(threads() - before) == 1
        end_s = time.monotonic() + WAIT_S
        while threads() - before:
            assert time.monotonic() < end_s
            time.sleep(0.02)


def test_an_action_that_fails_stops_no_other(
    watchdog: Watchdog, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and the next one is called."""
    due = threading.Event()
    with watchdog.after(0.01, lambda: 1 // 0), watchdog.after(0.05, due.set):
        assert due.wait(WAIT_S)
    assert "ZeroDivisionError" in caplog.text


def test_an_action_is_over_when_its_block_is(watchdog: Watchdog) -> None:
    """A connection is not broken by a watch over the statement before."""
    over: list[bool] = []
    begun = threading.Event()

    def slow() -> None:
        begun.set()
        time.sleep(0.2)
        over.append(True)

    with watchdog.after(0.0, slow):
        assert begun.wait(WAIT_S)
    assert over == [True]


def test_a_forked_child_has_one_of_its_own() -> None:
    """Python's workers are forked: a thread is not, and a lock may be held by one that is not."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED],
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=True,
    )
    assert done.stdout.strip() == "7"
