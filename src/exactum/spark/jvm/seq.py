"""Scala's sequences, seen from Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def listed(sequence: Any) -> list[Any]:
    """A Scala Seq as a list; a call for each element."""
    return [sequence.apply(place) for place in range(sequence.size())]


def class_name(node: Any) -> str:
    """The simple name of a JVM object's class, as that of a plan's node."""
    return str(node.getClass().getSimpleName())


def nodes_of(plan: Any) -> Iterator[Any]:
    """A plan's nodes, parents first."""
    yield plan
    for child in listed(plan.children()):
        yield from nodes_of(child)
