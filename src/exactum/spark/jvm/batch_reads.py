"""How a frame that code of the user's has made of a micro-batch reads it: several times, or from
rows that Spark keeps (CacheManager.scala, LogicalRDD in ExistingRDD.scala).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from exactum.spark.jvm.frames import frame_of
from exactum.spark.jvm.java_class import class_name, listed


@dataclass(frozen=True)
class BatchReads:
    """``is_kept``: rows are read that Spark keeps, or will keep when it computes them first: of a
    persisted frame or RDD, or a local checkpoint. ``repeated``: frames, each of rows that are
    computed more than once.
    """

    is_kept: bool
    repeated: tuple[DataFrame, ...]


def reads_of(frame: DataFrame) -> BatchReads:
    """
    Raises:
        JvmError: Spark does not answer.
    """
    plain: Any = frame
    leaves = listed(plain._jdf.queryExecution().withCachedData().collectLeaves())
    named = [(class_name(leaf), leaf) for leaf in leaves]
    # A batch that is read a second time has the same RDD, by other names of its columns.
    computed = [(leaf.rdd().id(), leaf) for name, leaf in named if name == "LogicalRDD"]
    numbers = [number for number, _ in computed]
    repeated = {number: leaf for number, leaf in computed if numbers.count(number) > 1}
    is_kept = any(name == "InMemoryRelation" for name, _ in named)
    if not is_kept and not plain.sparkSession.sparkContext._jsc.sc().getPersistentRDDs().isEmpty():
        seen: set[int] = set()
        is_kept = any(_is_kept(leaf.rdd(), seen) for _, leaf in computed)
    frames = (frame_of(frame.sparkSession, leaf) for leaf in repeated.values())
    return BatchReads(is_kept, tuple(frames))


def _is_kept(rdd: Any, seen: set[int]) -> bool:
    """Whether it, or what it is computed of, is kept."""
    number = rdd.id()
    if number in seen:
        return False
    seen.add(number)
    if rdd.getStorageLevel().isValid():
        return True
    return any(_is_kept(each.rdd(), seen) for each in listed(rdd.dependencies()))
