"""A query from files into a table and a folder, whose job dies at one commit of the table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from deltalake.table import TableMerger
from pyspark.sql import SparkSession

import exactum
from tests.kit.crash.deaths import Fault
from tests.kit.crash.queries import Query, Spec
from tests.kit.lake.iceberg import Lake
from tests.kit.lake.tables import Delta
from tests.kit.spark.files import stream_of

KINDS: dict[str, tuple[type[Delta | Lake], dict[str, Any], tuple[Any, str]]] = {
    "append": (Delta, {"partition_by": "key"}, Delta.commits),
    "upsert": (Delta, {"mode": "upsert", "key": "key"}, (TableMerger, "execute")),
    "iceberg": (Lake, {"partition_by": ["bucket(3, key)"], "sort_by": "id"}, Lake.commits),
}
"""The place, the sink's settings, and what of the table commits."""


def place_of(folder: Path, kind: str) -> Delta | Lake:
    return KINDS[kind][0](folder / "lake")


def deadly(real: Callable[..., Any], when: str) -> Callable[..., Any]:
    def call(*args: Any, **more: Any) -> Any:
        if when == "after":
            real(*args, **more)
        Fault("the table's commit", when).strike()

    return call


def into_a_table(spark: SparkSession, spec: Spec) -> Query:
    """``kind``: of ``KINDS``; ``kill``: "before" or "after" its first commit, or ""."""
    folder = Path(spec["tables"])
    _, settings, (owner, name) = KINDS[spec["kind"]]
    if spec["kill"]:
        setattr(owner, name, deadly(getattr(owner, name), spec["kill"]))
    sinks = [
        place_of(folder, spec["kind"]).sink(**settings),
        exactum.FileSink(folder / "files", format="json"),
    ]
    return Query(
        stream_of(spark, spec["input"], "id bigint, key string, v string"),
        sinks,
        settings={"dead_letters": Delta(folder / "dead").sink(), "decision_log": None},
    )
