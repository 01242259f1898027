"""A query from files into a table and a folder, whose job dies at one commit of the table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from deltalake.table import TableMerger
from pyiceberg.table import Table
from pyspark.sql import SparkSession

import exactum
from tests.kit.crash.deaths import Fault
from tests.kit.crash.queries import Query, Spec
from tests.kit.lake.iceberg import Lake
from tests.kit.spark.files import stream_of

COMMITS: dict[str, tuple[Callable[[Path], Any], Any, str]] = {
    "append": (
        lambda folder: exactum.DeltaSink(folder / "table", partition_by="key"),
        DeltaTable,
        "create_write_transaction",
    ),
    "upsert": (
        lambda folder: exactum.DeltaSink(folder / "table", mode="upsert", key="key"),
        TableMerger,
        "execute",
    ),
    "iceberg": (
        lambda folder: Lake(folder / "lake").sink(partition_by=["bucket(3, key)"], sort_by="id"),
        Table,
        "_do_commit",
    ),
}
"""The sink, and what of the table commits."""


def deadly(real: Callable[..., Any], when: str) -> Callable[..., Any]:
    def call(*args: Any, **more: Any) -> Any:
        if when == "after":
            real(*args, **more)
        Fault("the table's commit", when).strike()

    return call


def into_a_table(spark: SparkSession, spec: Spec) -> Query:
    """``kind``: of ``COMMITS``; ``kill``: "before" or "after" its first one, or ""."""
    folder = Path(spec["tables"])
    sink, owner, name = COMMITS[spec["kind"]]
    if spec["kill"]:
        setattr(owner, name, deadly(getattr(owner, name), spec["kill"]))
    sinks = [sink(folder), exactum.FileSink(folder / "files", format="json")]
    letters = exactum.DeltaSink(folder / "dead")
    return Query(
        stream_of(spark, spec["input"], "id bigint, key string, v string"),
        sinks,
        settings={"dead_letters": letters, "decision_log": None},
    )
