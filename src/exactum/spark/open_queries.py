"""The queries of exactum in this process, the one table of them; and whether one may start."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NoReturn, Protocol

from pyspark import SparkContext

from exactum.errors import SettingRefused

POLL_S = 0.02
EPOCH_TIMEOUT_S = 600.0
"""How long who stops a query waits for the micro-batch at hand; ``exactum run`` kills long before.
"""
COMMIT_LOG_TIMEOUT_S = 10.0
"""How long Spark may take to log a micro-batch that is done, before the query is stopped all the
same.
"""


class Stoppable(Protocol):
    """What lets no micro-batch of a run begin while it is shut; see ``run.epoch_gate``."""

    def shut(self) -> None: ...

    def between_epochs(self, log_timeout_s: float) -> bool: ...


def await_rest(gate: Stoppable, is_active: Callable[[], bool], timeout_s: float) -> None:
    """Return when no micro-batch is under way and Spark has logged the last one, or the query has
    ended; after ``timeout_s`` in any case.
    """
    deadline_s = time.monotonic() + timeout_s
    while (
        time.monotonic() < deadline_s
        and is_active()
        and not gate.between_epochs(COMMIT_LOG_TIMEOUT_S)
    ):
        time.sleep(POLL_S)


class OpenQueries:
    """The runs that are under way. Safe to use from threads."""

    def __init__(self) -> None:
        self.starting = threading.Lock()
        """Held while Spark starts a query: its settings are those of the session meanwhile."""
        self.stopping = threading.Event()
        """Set for good when the process has been told to end: no micro-batch begins any more."""
        self.gates: dict[str, Stoppable] = {}
        """By Spark's run id those of exactum's runs that are open; each use is one step."""


open_queries = OpenQueries()
"""Of this process: the supervisor asks the whole script to stop, and two functions of exactum in
one query meet nowhere else.
"""


def script_is_over() -> bool:
    """Whether the interpreter ends: it takes threads away from whatever still runs. No public name
    says so, but no executor takes work any more, from before the first thread is taken away.
    """
    pool = ThreadPoolExecutor(1, "exactum-probe")
    try:
        pool.submit(int)
    except RuntimeError as error:  # which is also what a process with too many threads raises
        return "interpreter shutdown" in str(error)
    finally:
        pool.shutdown(wait=False)
    return False


_START = "_ensure_initialized"
"""What every way to a SparkContext calls before it starts the JVM."""


class _Refusal:
    """Stands where PySpark has that. ``place`` is what the command imports, as it was typed."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __call__(self, *_: object, **__: object) -> NoReturn:
        raise SettingRefused(
            "SINKS_START",
            f"--sinks {self._place}: this script starts Spark, a query or a load when it is "
            "imported, and the command imports it for its sinks alone. Nothing was started.\n"
            "Put the start under if __name__ == '__main__': or the sinks in a module of their own.",
        )


@contextmanager
def no_start(place: str) -> Iterator[None]:
    """Meanwhile every start is refused: that of a query and of a load, over Spark Connect too, and
    that of a SparkContext, without which there is no classic session.
    """
    before = SparkContext.__dict__[_START]
    setattr(SparkContext, _START, _Refusal(place))
    try:
        yield
    finally:
        setattr(SparkContext, _START, before)


def refuse_while_importing() -> None:
    """
    Raises:
        SettingRefused: a command imports the script for its sinks.
    """
    start = SparkContext.__dict__[_START]
    if isinstance(start, _Refusal):
        start()
