"""How a client asks the process beside Spark's server to begin no further micro-batch: by settings
of the session, which both share.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

_ASKED = "spark.exactum.stop."
_SHUT = "spark.exactum.stopped."


def leave(session: SparkSession, run_id: str) -> None:
    session.conf.set(f"{_ASKED}{run_id}", "true")


def is_left(session: SparkSession, run_id: str) -> bool:
    return session.conf.get(f"{_ASKED}{run_id}", "") == "true"


def answer(session: SparkSession, run_id: str) -> None:
    """From here on no micro-batch begins, and the last one is in Spark's commit log."""
    session.conf.set(f"{_SHUT}{run_id}", "true")


def is_answered(session: SparkSession, run_id: str) -> bool:
    return session.conf.get(f"{_SHUT}{run_id}", "") == "true"


def forget(session: SparkSession, run_id: str) -> None:
    for name in (_ASKED, _SHUT):
        session.conf.unset(f"{name}{run_id}")
