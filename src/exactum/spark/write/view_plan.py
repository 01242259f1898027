"""One plan for several views: the columns of all of them, computed next to each other from the rows
that they share.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from exactum.spark.jvm.catalyst import Catalyst, same
from exactum.spark.write.view_columns import mask, named


def side_by_side(frames: Sequence[DataFrame]) -> DataFrame | None:
    """One frame with the columns of all ``frames``, named by ``view_columns``, or None.

    That is where all of them compute their rows one by one from the rows of one and the same plan.
    A view that leaves rows out has a ``mask`` column, and null in its own columns where that is not
    true. A view that explodes, joins or aggregates has a plan of its own below its columns.
    """
    catalyst = Catalyst(frames[0].sparkSession)
    shapes = [
        catalyst.shape(frame.toDF(*named(place, frame.columns)))
        for place, frame in enumerate(frames)
    ]
    if not same(shape.below for shape in shapes):
        shapes = [catalyst.opened(shape) for shape in shapes]
    if not all(shape.layers for shape in shapes) or not same(shape.below for shape in shapes):
        return None
    return catalyst.frame(catalyst.joined(shapes, mask))
