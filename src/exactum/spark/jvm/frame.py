"""Frames and sessions that PySpark has no public way to make, and what their plans say
(Dataset.scala, SparkSession.scala).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from exactum.spark.jvm.java_class import java_class
from exactum.spark.jvm.seq import class_name, nodes_of

_CHECK = "spark.sql.streaming.unsupportedOperationCheck"


def frame_of(session: SparkSession, plan: Any) -> DataFrame:
    """The frame of a logical plan."""
    plain: Any = session
    datasets = java_class(session, "org.apache.spark.sql.classic.Dataset")
    dataset = datasets.ofRows(plain._jsparkSession, plan)
    return DataFrame(dataset, plain)


def logical_plan(frame: DataFrame) -> Any:
    plain: Any = frame
    return plain._jdf.logicalPlan()


def node_names(frame: DataFrame) -> list[str]:
    """The classes of the nodes of the frame's analyzed plan, parents first."""
    plain: Any = frame
    return [class_name(node) for node in nodes_of(plain._jdf.queryExecution().analyzed())]


def classes_in(plan: Any) -> Iterator[str]:
    """Every class that a plan's JSON names (``TreeNode.toJSON``): nodes and expressions."""
    return _classes(json.loads(plan.toJSON()))


def _classes(plan: Any) -> Iterator[str]:
    if isinstance(plan, dict):
        if "class" in plan:
            yield str(plan["class"])
        for value in plan.values():
            yield from _classes(value)
    elif isinstance(plan, list):
        for value in plan:
            yield from _classes(value)


def unchecked_session(session: SparkSession) -> SparkSession:
    """A copy of the session that runs the plan of a streaming query's batch as a batch: the check
    that refuses it outside of a query is switched off.
    """
    plain: Any = session
    clone = plain._jsparkSession.cloneSession()
    clone.conf().set(_CHECK, "false")
    return SparkSession(plain.sparkContext, clone)


def unheard_session(session: SparkSession) -> SparkSession:
    """A session beside this one whose queries and jobs no listener of it hears of."""
    hidden: Any = session.newSession()
    manager = hidden._jsparkSession.streams()
    for listener in manager.listListeners():
        manager.removeListener(listener)
    hidden._jsparkSession.listenerManager().clear()
    made: SparkSession = hidden
    return made
