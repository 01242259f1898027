"""The leaves of a streaming query's plan: what reads its sources (StreamingRelation.scala,
DataSourceV2Relation.scala).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from py4j.java_gateway import JavaClass

from exactum.spark.jvm.seq import class_name, listed
from exactum.spark.live import SourceLeaf

_BETWEEN = "\0"


def source_leaves(streams: Sequence[Any], logical_plan: Any) -> list[SourceLeaf]:
    """One for each of a query's streams, which is one for each line of the offset log.

    Which leaf belongs to which line is told by the stream object itself, never by its place.
    """
    leaves = [_read(leaf) for leaf in listed(logical_plan.collectLeaves())]
    found: list[SourceLeaf] = []
    for index, stream in enumerate(streams):
        same_as = next((i for i in range(index) if _same(streams[i], stream)), index)
        matching = (facts for read, *facts in leaves if read is not None and _same(read, stream))
        found.append(SourceLeaf(same_as, *next(matching, ("", {}, ""))))
    return found


def _read(leaf: Any) -> tuple[Any, str, Mapping[str, str], str]:
    """The stream that a leaf reads (None: none that is known), and what it tells of it."""
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
    return None, "", {}, ""


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
