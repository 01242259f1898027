"""The classic: Kafka -> a map with state for each key, which fails on its way -> MySQL, exactly
once.

Each value is upper-cased and prefixed with the value that its key had before; the state (Spark's
transformWithState over RocksDB), the offsets and the rows of the table go forward together or not
at all.

    python classic_job.py --bootstrap-servers localhost:9092 --topic words \\
        --database mysql://user:password@localhost/shop --table words --checkpoint /data/words

The first time that the map meets the value "x" it throws, and the query stops. Start the script
again: the table will be what a run without the failure leaves. The table: CREATE TABLE words (k
VARCHAR(64), v TEXT). Needs pandas and protobuf, as Spark's transformWithState does.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

import exactum


class PrefixWithPrevious(StatefulProcessor):
    """Rows (k, v, n) in the order of n -> rows (k, v), v being the key's previous value, then this
    one.
    """

    def __init__(self, thrown: str) -> None:
        self._thrown = thrown  # a file that says that the map has thrown already

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._previous = handle.getValueState("previous", "v string")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        previous = (self._previous.get() or ("",))[0]
        for row in sorted(rows, key=lambda row: row.n):
            if row.v == "x" and not Path(self._thrown).exists():
                Path(self._thrown).touch()
                raise ValueError("the map cannot bear an x, the first time")
            value = row.v.upper()
            yield Row(k=key[0], v=previous + value)
            previous = value
        self._previous.update((previous,))

    def close(self) -> None:
        """Nothing is held."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("bootstrap-servers", "topic", "database", "table", "checkpoint"):
        parser.add_argument(f"--{name}", required=True)
    chosen = parser.parse_args()
    spark = exactum.local_session("classic")
    words = exactum.read_kafka(
        spark,
        chosen.topic,
        bootstrap_servers=chosen.bootstrap_servers,
        start="earliest",
        maxOffsetsPerTrigger=40,
    )
    rows = (
        words.selectExpr("CAST(key AS STRING) AS k", "CAST(value AS STRING) AS v", "offset AS n")
        .groupBy("k")
        .transformWithState(
            PrefixWithPrevious(f"{chosen.checkpoint}.thrown"),
            outputStructType="k string, v string",
            outputMode="Append",
            timeMode="None",
        )
    )
    once = exactum.exactly_once(exactum.MySQLSink(chosen.database, table=chosen.table))
    query = once.start(rows.writeStream.trigger(availableNow=True), checkpoint=chosen.checkpoint)
    query.awaitTermination()


if __name__ == "__main__":
    main()
