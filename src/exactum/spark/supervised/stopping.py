"""Stops the queries of this process, each between two epochs: Spark's commit log has the last one,
and none is begun.

A query that waits is stopped where it waits, a busy one after its epoch: its gate lets no other one
begin (``spark.run.epoch_gate``).
"""

from __future__ import annotations

import logging
import time

from exactum.spark.jvm.execution import Execution
from exactum.spark.open_queries import EPOCH_TIMEOUT_S, await_rest, open_queries

logger = logging.getLogger("exactum")


def stop_queries() -> int:
    """Stop every streaming query of this Spark application, of whichever session; returns how many
    there were.

    Those of exactum are stopped between two epochs, however long the ones at hand take, and others
    by Spark's own ``stop``. None is stopped before all of exactum's are there: a script may end
    with the first of its queries that does. Whoever calls has seen to it that no run begins another
    epoch.

    Raises:
        JvmError: Spark does not answer.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        session = SparkSession.active()
    except PySparkException:  # there is no session
        return 0
    executions = Execution.active(session)
    deadline_s = time.monotonic() + EPOCH_TIMEOUT_S
    for execution in executions:
        gate = open_queries.gate_of(execution.run_id())
        if gate is not None:
            await_rest(gate, execution.is_active, deadline_s - time.monotonic())
    for execution in executions:
        what = execution.name() or execution.query_id()
        logger.info("query %s (%s): stopped after its epoch", what, execution.run_id())
        execution.stop()
    return len(executions)
