"""A query with state on a cluster of one executor, whose sink fails in its first micro-batch; started
again and again in one Spark application. Prints how each run ended, one line each.

    python -m tests.kit.spark.cluster_job FOLDER
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import exactum
from tests.kit.spark.folder_sink import FolderSink, arm
from tests.kit.spark.torn_stream import RUN_TIMEOUT_S

ON_DIFFERENCE = "spark.exactum.standingEpoch.onDifference"


def ending(spark: SparkSession, folder: Path) -> str:
    rows = spark.readStream.schema("key string, number long").json(str(folder / "input"))
    totals = rows.groupBy("key").agg(f.sum("number").alias("total"))
    exact = exactum.exactly_once(FolderSink(str(folder / "out")))
    writer = totals.writeStream.outputMode("update").trigger(availableNow=True)
    try:
        query = exact.start(writer, checkpoint=folder / "checkpoint")
        return "well" if query.awaitTermination(RUN_TIMEOUT_S) else "not at all"
    except Exception as error:
        return " ".join(str(error).split())
    finally:
        query.stop()


def main(folder: Path) -> None:
    spark = exactum.local_session(
        "on-a-cluster",
        master="local-cluster[1,1,1024]",
        spark_sql_shuffle_partitions=1,
        spark_executorEnv_PYTHONPATH=os.environ["PYTHONPATH"],
    )
    (folder / "input").mkdir()

    def give(name: str) -> None:
        (folder / "input" / name).write_text('{"key": "k", "number": 1}\n')

    give("0.json")
    arm(folder / "out", "prepare", times=50)
    print(ending(spark, folder))
    shutil.rmtree(folder / "out" / "faults")
    print(ending(spark, folder))
    spark.conf.set(ON_DIFFERENCE, "warn")
    print(ending(spark, folder))
    spark.conf.unset(ON_DIFFERENCE)
    give("1.json")
    print(ending(spark, folder))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
