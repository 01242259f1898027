"""A target without transactions: numbers go to an HTTP API, each request under a key of its own.

    python numbers_api.py 8080
    python write_ahead_sink.py http://localhost:8080/ --checkpoint /data/to-send-checkpoint

The rows lie in the checkpoint first. After the decision the driver sends them, in order. Kill
it whenever you like and start it again: at most the request that it had in hand comes twice, with
the same rows under the same key. ``numbers_api.py`` keeps the keys it has seen, so each number
counts once.
"""

from __future__ import annotations

import argparse
import json
import urllib.request
from typing import Any

import exactum

SEND_TIMEOUT_S = 30
ROWS_PER_SEND = 50


class NumbersApi(exactum.WriteAheadSink):
    """Posts rows to ``url`` as JSON. What raises here is tried again, under the same key."""

    def __init__(self, url: str) -> None:
        super().__init__(name="numbers-api", rows_per_send_max=ROWS_PER_SEND)
        self.url = url

    def send(self, batch: Any, key: str) -> None:
        body = json.dumps(batch.to_pylist()).encode()
        request = urllib.request.Request(self.url, body, {"Idempotency-Key": key})
        urllib.request.urlopen(request, timeout=SEND_TIMEOUT_S).close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("url")
    parser.add_argument("--checkpoint", required=True)
    chosen = parser.parse_args()
    spark = exactum.local_session("numbers")
    numbers = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    writer = numbers.selectExpr("value AS number").writeStream.trigger(processingTime="1 second")
    once = exactum.exactly_once(NumbersApi(chosen.url))
    query = once.start(writer, checkpoint=chosen.checkpoint)
    query.awaitTermination()


if __name__ == "__main__":
    main()
