"""The query that a standby warms up with, in the session of a script."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pyspark import RDD
from pyspark.sql import SparkSession

from exactum.spark.supervised import standby

pytestmark = pytest.mark.spark


@pytest.mark.deep
def test_nothing_of_it_is_left_in_the_script(spark: SparkSession) -> None:
    """Neither the queries that have ended, nor the active session, nor the session of
    ``rdd.toDF()`` is another one.
    """
    spark.streams.resetTerminated()
    before = active()  # which another test of this process may have left another than ``spark``
    to_frame = vars(RDD)["toDF"]
    with standby.hidden_session(spark) as hidden:
        standby.play(hidden, {}, threading.Event())
        assert hidden.streams.awaitAnyTermination(1), "it has run, and ended"
    assert not spark.streams.awaitAnyTermination(1)
    assert vars(RDD)["toDF"] is to_frame
    assert active().equals(before)


def active() -> Any:
    """The JVM's own: Python makes an object of its own for it at each look."""
    session: Any = SparkSession.active()
    return session._jsparkSession
