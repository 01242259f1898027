"""A process that stands by: the session is up, and it waits in ``exactly_once`` until the other one
is gone.

Meanwhile it does once what a query's first epochs would wait for (``rehearsal``). Which topic is
read there the running process has told: most scripts wait here before they read anything.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from exactum.spark.supervised import process
from exactum.spark.supervised.supervisor_channel import WHOLE_BYTES_MAX

logger = logging.getLogger("exactum")

KEEP_WARM_EVERY_S = 25.0
"""Spark ends Python workers that idle for a minute."""
SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")


def remember_source(options: Mapping[str, str]) -> None:
    """This process reads Kafka with these options: for itself, if it is a standby, and for the one
    that stands by.
    """
    supervised = process.current()
    if supervised is not None:
        supervised.source = dict(options)
        if sum(map(len, options.values())) > WHOLE_BYTES_MAX:
            logger.debug(
                "the source's options are too long to be told: a standby warms up without its "
                "topics"
            )
            return
        supervised.report("source", options=supervised.source)


def wait_for_turn() -> None:
    """Return when the queries of this process may run: at once, unless a supervisor holds it as a
    standby.

    Raises:
        Unavailable: the supervisor ended before it gave the turn.
    """
    supervised = process.current()
    if supervised is None:
        return
    supervised.beat_with(_ping)

    def warm() -> None:
        threading.Thread(
            target=_keep_warm, args=(supervised,), name="exactum-standby", daemon=True
        ).start()

    supervised.wait_for_turn(warm)


def _ping() -> None:
    from exactum.spark.jvm import java_class

    java_class.ping()


def _keep_warm(supervised: process.SupervisedProcess) -> None:
    """Runs in a thread of its own until the turn comes. Nothing depends on it."""
    from pyspark.sql import SparkSession

    from exactum.spark.startup import warm_up
    from exactum.spark.supervised import rehearsal

    try:
        source = supervised.source or {}
        with rehearsal.hidden_session(SparkSession.active()) as session:
            rehearsal.play(session, source, supervised.turn)
        supervised.report("warm", read=[source[how] for how in SUBSCRIPTIONS if how in source])
        while not supervised.turn.wait(KEEP_WARM_EVERY_S):
            warm_up.touch_workers(session)
    except Exception as error:  # noqa: BLE001  (the query starts all the same, only slower)
        logger.debug("the standby could not be warmed: %s", error)
        supervised.report("warm", read=[])
