"""One plan for several views: the columns of all of them, computed next to each other from the rows
that they share.

Made of the views' logical plans (``org.apache.spark.sql.catalyst``), as Spark's optimizer makes
plans of plans.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame

from exactum.spark.write.view_columns import mask, named


@dataclass(frozen=True)
class Shape:
    """How a view computes its rows: ``layers`` are its ``Project`` nodes, the lowest first, over
    the plan ``below``; with a ``condition`` (an expression), over those of its rows for which it is
    true.
    """

    layers: tuple[Any, ...]
    condition: Any
    below: Any


def side_by_side(frames: Sequence[DataFrame]) -> DataFrame | None:
    """One frame with the columns of all ``frames``, named by ``view_columns``, or None.

    That is where all of them compute their rows one by one from the rows of one and the same plan.
    A view that leaves rows out has a ``mask`` column, and null in its own columns where that is not
    true. A view that explodes, joins or aggregates has a plan of its own below its columns.
    """
    session: Any = frames[0].sparkSession
    catalyst = Catalyst(session.sparkContext._jvm)
    shapes = [
        catalyst.shape(frame.toDF(*named(place, frame.columns)))
        for place, frame in enumerate(frames)
    ]
    if not same(shape.below for shape in shapes):
        shapes = [catalyst.opened(shape) for shape in shapes]
    if not all(shape.layers for shape in shapes) or not same(shape.below for shape in shapes):
        return None
    return catalyst.frame(session, catalyst.joined(shapes))


def same(plans: Iterable[Any]) -> bool:
    """Whether all plans are equal, node by node, with equal ids of attributes."""
    first, *others = plans
    return all(first.equals(other) for other in others)


class Catalyst:
    """What is used of ``org.apache.spark.sql.catalyst``, in this JVM."""

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm
        self._catalyst = jvm.org.apache.spark.sql.catalyst
        self._expressions = self._catalyst.expressions

    def shape(self, frame: DataFrame) -> Shape:
        """Of a frame whose plan ends with a ``Project``.

        Columns that are computed of computed columns become one ``Project``, where nothing costly
        or random would be evaluated twice by it, and filters go below it, where they may: by the
        rules of Spark's optimizer.
        """
        plain: Any = frame
        rules = self._catalyst.optimizer
        plan = self._catalyst.analysis.EliminateSubqueryAliases.apply(
            plain._jdf.queryExecution().analyzed()
        )
        plan = rules.CollapseProject.apply(rules.PushDownPredicates.apply(plan))
        layers: list[Any] = []
        while name_of(plan) == "Project":
            layers.insert(0, plan)
            plan = plan.child()
        return Shape(tuple(layers), None, plan)

    def opened(self, shape: Shape) -> Shape:
        """With its condition apart, where the columns above it may be computed under it.

        Spark calls Python functions for all rows, whatever condition they stand under
        (ExtractPythonUDFs).
        """
        if (
            name_of(shape.below) != "Filter"
            or len(shape.layers) != 1
            or self._calls_python(shape.layers[0])
        ):
            return shape
        return replace(shape, condition=shape.below.condition(), below=shape.below.child())

    def joined(self, shapes: Sequence[Shape]) -> Any:
        """The plan with the columns of all shapes over what is below them."""
        whole, masks = self._masked(shapes)
        columns = [list_of(shape.layers[0].projectList()) for shape in shapes]
        for place, its_mask in masks.items():
            columns[place] = [
                *(self._under(its_mask, column) for column in columns[place]),
                its_mask,
            ]
        for level in range(1, max(len(shape.layers) for shape in shapes)):
            # What several pass on is there once.
            distinct = {column.exprId().id(): column for some in columns for column in some}
            whole = self._project(list(distinct.values()), whole)
            columns = [
                list_of(shape.layers[level].projectList())
                if level < len(shape.layers)
                else [column.toAttribute() for column in passed_on]
                for shape, passed_on in zip(shapes, columns, strict=True)
            ]
        return self._project([column for some in columns for column in some], whole)

    def frame(self, session: Any, plan: Any) -> DataFrame:
        classic = self._jvm.org.apache.spark.sql.classic
        return DataFrame(classic.Dataset.ofRows(session._jsparkSession, plan), session)

    def _masked(self, shapes: Sequence[Shape]) -> tuple[Any, dict[int, Any]]:
        """What is below the shapes, with the masks of those that have a condition, by their places.

        A layer of its own, so that each condition is evaluated once, though many columns stand
        under it.
        """
        below = shapes[0].below
        named_masks = {
            place: self._alias(shape.condition, mask(place))
            for place, shape in enumerate(shapes)
            if shape.condition is not None
        }
        if not named_masks:
            return below, {}
        whole = self._project([*list_of(below.output()), *named_masks.values()], below)
        return whole, {place: one.toAttribute() for place, one in named_masks.items()}

    def _under(self, its_mask: Any, column: Any) -> Any:
        """An alias, with null where the mask is not true: its expression may fail for rows that a
        filter takes out.
        """
        value = column.child()
        null = self._expressions.Literal(None, value.dataType())
        return column.withNewChildren(self._seq([self._expressions.If(its_mask, value, null)]))

    def _alias(self, expression: Any, name: str) -> Any:
        new_id = getattr(getattr(self._expressions, "NamedExpression$"), "MODULE$").newExprId()
        nothing = self._seq([])
        return self._expressions.Alias(
            expression, name, new_id, nothing, self._jvm.scala.Option.empty(), nothing
        )

    def _calls_python(self, plan: Any) -> bool:
        return bool(plan.containsPattern(self._catalyst.trees.TreePattern.PYTHON_UDF()))

    def _project(self, columns: Sequence[Any], child: Any) -> Any:
        return self._catalyst.plans.logical.Project(self._seq(columns), child)

    def _seq(self, items: Sequence[Any]) -> Any:
        array = self._jvm.java.util.ArrayList()
        for item in items:
            array.add(item)
        return self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(array).toSeq()


def list_of(seq: Any) -> list[Any]:
    return [seq.apply(place) for place in range(seq.size())]


def name_of(plan: Any) -> str:
    return str(plan.getClass().getSimpleName())
