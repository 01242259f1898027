"""A Spark query from files into a table and a folder, as a process of its own, which kills itself with
SIGKILL at one commit of the table.

Its one argument is a JSON object: ``folder``, ``kill``: "before", "after" or "", and ``kind``:
"append" or "upsert" of Delta's, or "iceberg".
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from deltalake.table import TableMerger
from pyiceberg.table import Table

import exactum
from tests.kit.lake.iceberg import Lake


def iceberg(folder: Path) -> Any:
    return Lake(folder / "lake").sink(partition_by=["bucket(3, key)"], sort_by="id")


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
    "iceberg": (iceberg, Table, "_do_commit"),
}
"""The sink, and what of the table commits."""


def deadly(real: Callable[..., Any], when: str) -> Callable[..., Any]:
    def call(*args: Any, **more: Any) -> Any:
        if when == "after":
            real(*args, **more)
        os.kill(os.getpid(), signal.SIGKILL)

    return call


def main(play: dict[str, Any]) -> None:
    folder = Path(play["folder"])
    spark = exactum.local_session(
        "lake", master="local[2]", **{"spark.sql.shuffle.partitions": 2, "spark.ui.enabled": False}
    )
    rows = (
        spark.readStream.schema("id bigint, key string, v string")
        .option("maxFilesPerTrigger", 1)
        .json(str(folder / "in"))
    )
    sink, owner, name = COMMITS[play["kind"]]
    once = exactum.exactly_once(
        sink(folder),
        exactum.FileSink(folder / "files", format="json"),
        dead_letters=exactum.DeltaSink(folder / "dead"),
    )
    if play["kill"]:
        setattr(owner, name, deadly(getattr(owner, name), play["kill"]))
    once.start(
        rows.writeStream.trigger(availableNow=True), checkpoint=str(folder / "checkpoint")
    ).awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
