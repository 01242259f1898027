"""A query that a test watches: Kafka in and out, JSON numbers, bad ones into the dead letters.

Its one argument is a JSON object. Where the file ``freeze`` exists when a micro-batch is decided,
the driver stops itself there (SIGSTOP), once the supervisor has heard of the decision.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import exactum
from exactum.spark.source import lag

play = json.loads(sys.argv[1])
brokers = play["bootstrap_servers"]
freeze = Path(play["freeze"])
TIMEOUT_MS = 24_000


def on_event(event: exactum.events.Event) -> None:
    if isinstance(event, exactum.events.EpochDecided) and freeze.exists():
        freeze.unlink()
        time.sleep(1.0)  # what was told goes out by a thread of its own
        os.kill(os.getpid(), signal.SIGSTOP)


if __name__ == "__main__":
    lag.STALL_AFTER_S = 2.0
    spark = exactum.local_session("watched", master="local[2]", spark_sql_shuffle_partitions=2)
    numbers = exactum.read_kafka(
        spark,
        play["source"],
        bootstrap_servers=brokers,
        start="earliest",
        maxOffsetsPerTrigger=1000,
    )
    rows = exactum.decode(numbers, value=exactum.Json("n long"), on_error="dead_letter")
    once = exactum.exactly_once(
        exactum.KafkaSink(
            play["target"], bootstrap_servers=brokers, transaction_timeout_ms=TIMEOUT_MS
        ),
        dead_letters=exactum.KafkaSink(play["dead"], bootstrap_servers=brokers),
        on_event=on_event,
    )
    writer = rows.selectExpr("key", "CAST(value.n AS STRING) AS value").writeStream
    query = once.start(
        writer.trigger(processingTime="0 seconds"),
        checkpoint=play["checkpoint"],
        name="watched",
    )
    query.awaitTermination()
