"""A script as a user writes it on the first day, with one mistake: run by ``test_final_error``."""

from __future__ import annotations

import sys

import exactum

if __name__ == "__main__":
    folder, what = sys.argv[1:]
    spark = exactum.local_session("first-day")
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    sink = exactum.FileSink(f"{folder}/out", format="json", partition_by="nothing")
    places = {"folder": "/proc/data/orders", "file": __file__}
    checkpoint = places.get(what, f"{folder}/checkpoint")
    try:
        query = exactum.exactly_once(sink).start(rows.writeStream, checkpoint=checkpoint)
        query.awaitTermination()
    except exactum.errors.ExactumError:
        if what == "handled":
            raise KeyError("something else") from None
        raise
