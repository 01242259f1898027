"""What Spark keeps of the rows that a frame is computed of, or will keep when it computes them
first: persisted frames (CacheManager.scala), RDDs and local checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from exactum.spark.jvm.java_class import class_name, listed


class Kept:
    """That of the frames of one Spark application."""

    def __init__(self, session: SparkSession) -> None:
        plain: Any = session
        self._frames = plain._jsparkSession.sharedState().cacheManager()
        self._context = plain.sparkContext._jsc.sc()

    def compute(self, frame: DataFrame) -> bool:
        """Compute what is to be kept of the frame's rows, and return whether there is any.

        Raises:
            Exception: Spark's error.
        """
        if self._frames.isEmpty() and self._context.getPersistentRDDs().isEmpty():
            return False
        plain: Any = frame
        leaves = listed(plain._jdf.queryExecution().withCachedData().collectLeaves())
        kept = [_computed(leaf) for leaf in leaves]
        return any(kept)


def _computed(leaf: Any) -> bool:
    """Compute what is kept below a plan's leaf, what is read first before what is made of it."""
    name = class_name(leaf)
    if name == "LogicalRDD":
        found = list(_kept_below(leaf.rdd(), set()))
    elif name == "InMemoryRelation":
        if leaf.cacheBuilder().isCachedColumnBuffersLoaded():
            return True
        found = list(_kept_below(leaf.cacheBuilder().cachedColumnBuffers(), set()))
    else:
        found = []
    for rdd in found:
        rdd.count()
    return bool(found)


def _kept_below(rdd: Any, seen: set[int]) -> Iterator[Any]:
    number = rdd.id()
    if number in seen:
        return
    seen.add(number)
    for dependency in listed(rdd.dependencies()):
        yield from _kept_below(dependency.rdd(), seen)
    if rdd.getStorageLevel().isValid():
        yield rdd
