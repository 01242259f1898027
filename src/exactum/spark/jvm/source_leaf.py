"""The leaves of a streaming query's plan: what reads its sources (StreamingRelation.scala,
DataSourceV2Relation.scala).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from py4j.java_gateway import JavaClass

from exactum.spark.jvm.seq import class_name, listed
from exactum.spark.live import RunningSource, below_checkpoint

_BETWEEN = "\0"
_Leaf = tuple[Any, str, Mapping[str, str], str]
"""The stream that a leaf of the plan reads (None: none that is known), and what it tells of it:
table, options, path of its metadata."""
_UNKNOWN: _Leaf = None, "", {}, ""


def running_sources(streams: Sequence[Any], logical_plan: Any) -> list[RunningSource]:
    """One for each of a query's streams, which is one for each line of the offset log.

    Which leaf belongs to which line is told by the stream object itself, never by its place.
    """
    leaves = [_read(leaf) for leaf in listed(logical_plan.collectLeaves())]
    found: list[RunningSource] = []
    for index, stream in enumerate(streams):
        same_as = next((i for i in range(index) if _same(streams[i], stream)), index)
        matching = (leaf for leaf in leaves if leaf[0] is not None and _same(leaf[0], stream))
        _, table, options, path = next(matching, _UNKNOWN)
        found.append(RunningSource(index, same_as, table, options, below_checkpoint(path)))
    return found


def _read(leaf: Any) -> _Leaf:
    kind = class_name(leaf)
    if kind == "StreamingDataSourceV2ScanRelation":
        relation = leaf.relation()
        return (
            leaf.stream(),
            str(relation.table().name()).lower(),
            _texts(relation.options().asCaseSensitiveMap()),
            str(relation.metadataPath()),
        )
    if kind == "StreamingExecutionRelation":
        return leaf.source(), "", {}, ""
    return _UNKNOWN


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
