"""A query over files of which each is one epoch; started with a number, it dies when that epoch
stands.

Arguments: FOLDER KIND FSYNC [DIES_AT]
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import exactum
from tests.kit.spark.each_batch import around_each_batch

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
STATE = "org.apache.spark.sql.execution.streaming.state."
KINDS = {
    "stateless": {},
    "rocksdb": {PROVIDER: f"{STATE}RocksDBStateStoreProvider"},
}
EPOCH_S = 0.8
"""As long as it takes to make a snapshot of state beside the epochs."""


def main(folder: Path, kind: str, fsync: str, dies_at: int) -> None:
    spark = exactum.local_session(
        "power",
        master="local[2]",
        **{
            "spark.exactum.checkpoint.fsync": fsync,
            "spark.sql.streaming.stateStore.maintenanceInterval": "200ms",
            "spark.sql.streaming.stateStore.minDeltasForSnapshot": 2,
            "spark.sql.shuffle.partitions": 2,
            **KINDS[kind],
        },
    )
    rows = (
        spark.readStream.schema("key string, number long")
        .option("maxFilesPerTrigger", 1)
        .json(f"{folder}/input")
    )
    if kind != "stateless":
        rows = rows.groupBy("key").sum("number").toDF("key", "number")
    exact = exactum.exactly_once(exactum.FileSink(folder / "out", format="json"))

    def each_batch(write: Callable[[], None], frame: object, batch_id: int) -> None:
        write()
        if batch_id == dies_at:
            os.killpg(0, signal.SIGKILL)
        if dies_at >= 0:
            time.sleep(EPOCH_S)

    around_each_batch(each_batch)
    writer = rows.writeStream.outputMode("append" if kind == "stateless" else "update")
    query = exact.start(writer.trigger(availableNow=True), checkpoint=folder / "checkpoint")
    query.awaitTermination()


if __name__ == "__main__":
    if len(sys.argv) > 4:
        os.setsid()
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]) if len(sys.argv) > 4 else -1)
