"""A Spark query from files into a Delta table and a folder, as a process of its own, which kills
itself with SIGKILL at one commit of the table.

Its one argument is a JSON object: ``folder``, and ``kill``: "before", "after" or "", and ``upsert``.
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

import exactum


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
    arguments = {"mode": "upsert", "key": "key"} if play["upsert"] else {"partition_by": "key"}
    once = exactum.exactly_once(
        exactum.DeltaSink(folder / "table", **arguments),
        exactum.FileSink(folder / "files", format="json"),
        dead_letters=exactum.DeltaSink(folder / "dead"),
    )
    if play["kill"]:
        owner: Any = TableMerger if play["upsert"] else DeltaTable
        name = "execute" if play["upsert"] else "create_write_transaction"
        setattr(owner, name, deadly(getattr(owner, name), play["kill"]))
    once.start(
        rows.writeStream.trigger(availableNow=True), checkpoint=str(folder / "checkpoint")
    ).awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
