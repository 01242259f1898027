"""The sources of a running query, each with the options that were given to ``spark.readStream``.

Spark's offset log has one line for each source, in the order of ``StreamExecution.sources``; a
stream that the plan reads twice (a self-union) has two lines. Which leaf of the plan belongs to
which line is told by the stream object itself, never by its place in the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from py4j.java_gateway import JavaClass

from exactum.spark.query import RunningQuery

KAFKA = "kafkatable"
"""What Spark calls the table behind ``format("kafka")``."""
_BETWEEN = "\0"


@dataclass(frozen=True)
class RunningSource:
    """One line of the offset log.

    ``index`` is the line's place (from 0), ``same_as`` the first index that reads the same stream
    (usually ``index`` itself), ``table`` Spark's name of what is read, in lower case
    (``kafkatable``; empty for the older kind of sources, such as files), ``options`` what was given
    to the reader, in its own spelling (empty likewise), ``metadata`` the source's folder relative
    to the checkpoint (``sources/0``; None likewise).
    """

    index: int
    same_as: int
    table: str
    options: Mapping[str, str]
    metadata: str | None

    @property
    def is_kafka(self) -> bool:
        return self.table == KAFKA

    def option(self, name: str) -> str | None:
        """The option of this name, ignoring case as Spark does; None: not given."""
        lower = name.lower()
        return next((value for key, value in self.options.items() if key.lower() == lower), None)


def sources_of(running: RunningQuery) -> tuple[RunningSource, ...]:
    """The sources of a query whose first batch has begun, in the order of the offset log's
    lines.
    """
    return sources_of_execution(running.execution)


def sources_of_execution(execution: Any) -> tuple[RunningSource, ...]:
    """As ``sources_of``, from the JVM's StreamExecution; empty while Spark has not planned the
    query yet.
    """
    streams = _listed(execution.sources())
    if not streams:
        return ()
    leaves = [_Leaf.of(leaf) for leaf in _listed(execution.logicalPlan().collectLeaves())]
    found: list[RunningSource] = []
    for index, stream in enumerate(streams):
        same_as = next((i for i in range(index) if _same(streams[i], stream)), index)
        leaf = next(
            (one for one in leaves if one.stream is not None and _same(one.stream, stream)),
            _UNKNOWN,
        )
        found.append(RunningSource(index, same_as, leaf.table, leaf.options, leaf.metadata))
    return tuple(found)


@dataclass(frozen=True)
class _Leaf:
    """What a leaf of the logical plan tells of the stream that it reads."""

    stream: Any
    table: str
    options: Mapping[str, str]
    metadata: str | None

    @staticmethod
    def of(leaf: Any) -> _Leaf:
        kind = str(leaf.getClass().getSimpleName())
        if kind == "StreamingDataSourceV2ScanRelation":
            relation = leaf.relation()
            return _Leaf(
                leaf.stream(),
                str(relation.table().name()).lower(),
                _texts(relation.options().asCaseSensitiveMap()),
                _metadata(str(relation.metadataPath())),
            )
        if kind == "StreamingExecutionRelation":
            return _Leaf(leaf.source(), "", {}, None)
        return _UNKNOWN


_UNKNOWN = _Leaf(None, "", {}, None)


def _metadata(path: str) -> str | None:
    place = path.rfind("/sources/")
    return path[place + 1 :] if place >= 0 else None


def _texts(options: Any) -> dict[str, str]:
    """A Java map of texts as a dictionary, in few calls to the JVM: a start waits for each of
    them.
    """
    text = JavaClass("java.lang.String", options._gateway_client)
    names, values = text.join(_BETWEEN, options.keySet()), text.join(_BETWEEN, options.values())
    return dict(zip(names.split(_BETWEEN), values.split(_BETWEEN), strict=True)) if names else {}


def _same(one: Any, other: Any) -> bool:
    """Streams have no equality but identity."""
    return bool(one.equals(other))


def _listed(sequence: Any) -> list[Any]:
    """A Scala Seq as a list."""
    return [sequence.apply(i) for i in range(sequence.size())]
