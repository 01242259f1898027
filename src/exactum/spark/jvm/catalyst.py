"""Logical plans made of logical plans, as Spark's optimizer makes them
(``org.apache.spark.sql.catalyst``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from exactum.spark.jvm.frame import frame_of
from exactum.spark.jvm.java_class import java_class
from exactum.spark.jvm.seq import class_name, listed


@dataclass(frozen=True)
class Shape:
    """How a view computes its rows: ``layers`` are its ``Project`` nodes, the lowest first, over
    the plan ``below``; with a ``condition`` (an expression), over those of its rows for which it is
    true.
    """

    layers: tuple[Any, ...]
    condition: Any
    below: Any


def same(plans: Iterable[Any]) -> bool:
    """Whether all plans are equal, node by node, with equal ids of attributes."""
    first, *others = plans
    return all(first.equals(other) for other in others)


_RULES = (
    "analysis.EliminateSubqueryAliases",
    "optimizer.PushDownPredicates",
    "optimizer.CollapseProject",
)


class Catalyst:
    """What is used of ``org.apache.spark.sql.catalyst``, in this JVM."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def shape(self, frame: DataFrame) -> Shape:
        """Of a frame whose plan ends with a ``Project``.

        Columns that are computed of computed columns become one ``Project``, where nothing costly
        or random would be evaluated twice by it, and filters go below it, where they may: by the
        rules of Spark's optimizer.
        """
        plain: Any = frame
        plan = plain._jdf.queryExecution().analyzed()
        for rule in _RULES:
            plan = self._catalyst(rule).apply(plan)
        layers: list[Any] = []
        while class_name(plan) == "Project":
            layers.insert(0, plan)
            plan = plan.child()
        return Shape(tuple(layers), None, plan)

    def opened(self, shape: Shape) -> Shape:
        """With its condition apart, where the columns above it may be computed under it.

        Spark calls Python functions for all rows, whatever condition they stand under
        (ExtractPythonUDFs).
        """
        if (
            class_name(shape.below) != "Filter"
            or len(shape.layers) != 1
            or self._calls_python(shape.layers[0])
        ):
            return shape
        return replace(shape, condition=shape.below.condition(), below=shape.below.child())

    def joined(self, shapes: Sequence[Shape], mask: Callable[[int], str]) -> Any:
        """The plan with the columns of all shapes over what is below them; ``mask`` names the
        columns that say for which rows a shape's condition is true.
        """
        whole, masks = self._masked(shapes, mask)
        columns = [listed(shape.layers[0].projectList()) for shape in shapes]
        for place, own_mask in masks.items():
            columns[place] = [
                *(self._under(own_mask, column) for column in columns[place]),
                own_mask,
            ]
        for level in range(1, max(len(shape.layers) for shape in shapes)):
            # What several pass on is there once.
            distinct = {column.exprId().id(): column for some in columns for column in some}
            whole = self._project(list(distinct.values()), whole)
            columns = [
                listed(shape.layers[level].projectList())
                if level < len(shape.layers)
                else [column.toAttribute() for column in passed_on]
                for shape, passed_on in zip(shapes, columns, strict=True)
            ]
        return self._project([column for some in columns for column in some], whole)

    def frame(self, plan: Any) -> DataFrame:
        return frame_of(self._session, plan)

    def _masked(
        self, shapes: Sequence[Shape], mask: Callable[[int], str]
    ) -> tuple[Any, dict[int, Any]]:
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
        whole = self._project([*listed(below.output()), *named_masks.values()], below)
        return whole, {place: one.toAttribute() for place, one in named_masks.items()}

    def _under(self, own_mask: Any, column: Any) -> Any:
        """An alias, with null where the mask is not true: its expression may fail for rows that a
        filter takes out.
        """
        value = column.child()
        null = self._catalyst("expressions.Literal")(None, value.dataType())
        return column.withNewChildren(
            self._seq([self._catalyst("expressions.If")(own_mask, value, null)])
        )

    def _alias(self, expression: Any, name: str) -> Any:
        new_id = getattr(self._catalyst("expressions.NamedExpression$"), "MODULE$").newExprId()
        nothing = self._seq([])
        none = java_class(self._session, "scala.Option").empty()
        alias = self._catalyst("expressions.Alias")
        return alias(expression, name, new_id, nothing, none, nothing)

    def _calls_python(self, plan: Any) -> bool:
        return bool(plan.containsPattern(self._catalyst("trees.TreePattern").PYTHON_UDF()))

    def _project(self, columns: Sequence[Any], child: Any) -> Any:
        return self._catalyst("plans.logical.Project")(self._seq(columns), child)

    def _seq(self, items: Sequence[Any]) -> Any:
        array = java_class(self._session, "java.util.ArrayList")()
        for item in items:
            array.add(item)
        converters = java_class(self._session, "scala.jdk.javaapi.CollectionConverters")
        return converters.asScala(array).toSeq()

    def _catalyst(self, name: str) -> Any:
        return java_class(self._session, f"org.apache.spark.sql.catalyst.{name}")
