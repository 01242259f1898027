"""SIGTERM where no supervisor runs the script: the queries end between two micro-batches.

    SIGTERM --> the script's Python, or its JVM --> gates shut --> queries stopped --> both end

A platform signals what it has started: of a plain script Python, below spark-submit (so in the
driver of a cluster) the JVM, of a process group both. Left to themselves, Python dies at once, and
the JVM stops Spark in the middle of the micro-batch. What has not stopped in time ends like that.
"""

from __future__ import annotations

import _thread
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

from exactum.errors import SettingRefused
from exactum.spark.jvm.shutdown_hook import ShutdownHook
from exactum.spark.open_queries import open_queries
from exactum.spark.query import Run
from exactum.spark.supervised.process import stop_queries

logger = logging.getLogger("exactum")

SETTING = "spark.exactum.stopTimeoutSeconds"
"""How long the micro-batches at hand may take after SIGTERM; 0: SIGTERM is none of exactum's."""
TIMEOUT_S = 25
"""Kubernetes kills after 30 s, and Spark has to stop as well."""


def watch(run: Run) -> Callable[[], None]:
    """From here on SIGTERM waits for the micro-batch at hand. Returns what is to be called at the
    run's end.

    Raises:
        SettingRefused: the timeout is no number.
    """
    timeout_s = _timeout_s(run)
    if timeout_s == 0:
        return _nothing
    if (
        threading.current_thread() is threading.main_thread()  # Python asks for it
        and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL  # or the script has one of its own
    ):
        signal.signal(signal.SIGTERM, Termination(timeout_s))
    return ShutdownHook(run.session, stop_all, timeout_s).remove


def _timeout_s(run: Run) -> int:
    text = str(run.session.conf.get(SETTING, str(TIMEOUT_S)))
    if not text.isdecimal():
        raise SettingRefused(
            "START_ARGUMENT",
            f"{run}: {SETTING} is {text!r}. Give a number of seconds. Nothing was written.",
        )
    return int(text)


def _nothing() -> None:
    """Nobody watches."""


def stop_all() -> None:
    """Stop every query of this process between two micro-batches. None begins any more."""
    if not open_queries.stopping.is_set():
        logger.warning("SIGTERM: the queries of this script are stopped after their micro-batches")
    open_queries.stopping.set()
    stop_queries()


class Termination:
    """Python's handler of SIGTERM in this process. A second signal ends it as if there were none;
    so does a script that goes on for so long after the first.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._process = os.getpid()
        self._was_asked = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self._was_asked or os.getpid() != self._process:  # a fork has no thread that stops it
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self._was_asked = True
        # A handler interrupts anything, so it may take no lock: threading's threads have some.
        _thread.start_new_thread(self._stop, (number,))

    def _stop(self, number: int) -> None:
        if open_queries.gates:
            threading.Thread(target=stop_all, name="exactum-stop", daemon=True).start()
            time.sleep(self._timeout_s)
        os.kill(self._process, number)
