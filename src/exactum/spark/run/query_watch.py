"""Looks after a query between its batches: sweeps late leftovers, and notices when the query has
ended.

Spark calls nothing in Python when a ``foreachBatch`` query waits or stops, short of a listener,
which would cost a call from the JVM for each epoch. A look every other second costs nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from exactum.spark.jvm.error import JvmError
from exactum.spark.query import RunningQuery

logger = logging.getLogger("exactum")

LOOK_EVERY_S = 2.0


def over(
    running: RunningQuery,
    idle: Callable[[], None],
    ended: Callable[[], None],
    close: Callable[[], object],
) -> None:
    """Call ``idle`` now and then while the run lasts, and soon after its end ``ended``, then
    ``close`` (idempotent).

    Returns at once. The thread is a daemon and ends with the run.
    """
    work = (running, idle, ended, close)
    threading.Thread(target=_look_after, args=work, name="exactum-watch", daemon=True).start()


def _look_after(
    running: RunningQuery,
    idle: Callable[[], None],
    ended: Callable[[], None],
    close: Callable[[], object],
) -> None:
    while _runs(running):
        _guarded(running, "late leftovers could not be swept; the next epoch does it", idle)
        time.sleep(LOOK_EVERY_S)
    _guarded(running, "late leftovers could not be swept; the next start does it", ended)
    _guarded(running, "a connection could not be closed", close)


def _guarded(running: RunningQuery, trouble: str, call: Callable[[], object]) -> None:
    """Nobody is left to hear of an error here but the log."""
    try:
        call()
    except Exception as error:  # noqa: BLE001
        logger.warning("%s: %s: %s", running, trouble, error)


def _runs(running: RunningQuery) -> bool:
    try:
        return running.still_runs()
    except (JvmError, OSError):  # the JVM is gone, and the query with it
        return False
