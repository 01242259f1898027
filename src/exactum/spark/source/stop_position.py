"""Where a bounded source ends: resolved once, and rows from there on filtered out."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from exactum.checkpoint.partition_offsets import Offsets, as_argument, name_of
from exactum.errors import SettingRefused, Unavailable
from exactum.kafka.requests.topic_requests import LATEST
from exactum.spark.source.source_options import Stop
from exactum.spark.source.start_position import (
    OffsetMap,
    Positions,
    is_time,
    milliseconds,
    offset_map,
    refuse_future,
    refuse_unread,
)

StopAt = str | int | datetime | OffsetMap

KNOWN = (
    "'latest', a datetime with a time zone, milliseconds since the epoch, or offsets of all "
    "partitions like {'orders': {0: 123}}"
)


def resolve(stop: StopAt, positions: Positions) -> Stop:
    """The first offset that is not read, for each partition that is there now.

    Raises:
        SettingRefused: it is of no known form, or does not name every partition.
        Unavailable: the cluster did not answer; or a transaction that is open holds readers back
            before the end, or the time, for longer than it is waited for.
    """
    if isinstance(stop, Mapping):
        return Stop("offsets", _given(offset_map(stop, "stop"), positions))
    if stop == LATEST:
        wanted = positions.last()
    elif is_time(stop):
        time_ms = milliseconds(stop, "stop")
        refuse_future(time_ms, stop, "stop")
        wanted = positions.at_time(time_ms)
    else:
        raise SettingRefused(f"read_kafka(stop={stop!r}) is not known; it may be {KNOWN}.")
    _refuse_held_back(wanted, stop, positions)
    return Stop(str(stop), wanted)


def bounded(frame: DataFrame, stop: Stop) -> DataFrame:
    """The frame without the rows at or past the stop, and without partitions that came later."""
    limit: Column | None = None
    for topic in sorted({topic for topic, _ in stop.offsets}):
        # An array that Spark folds into a constant: one look for each row, however many partitions
        # there are.
        highest = max(index for name, index in stop.offsets if name == topic)
        cells = [
            f.lit(stop.offsets.get((topic, index))).cast("long") for index in range(highest + 1)
        ]
        here, its = f.col("topic") == topic, f.get(f.array(*cells), f.col("partition"))
        limit = f.when(here, its) if limit is None else limit.when(here, its)
    return frame.filter(f.lit(False) if limit is None else f.col("offset") < limit)


def reached(stop: Stop, positions: Mapping[tuple[str, int], int]) -> bool:
    """Whether everything before the stop is behind ``positions``, the next offsets to read."""
    return all(positions.get(partition, 0) >= offset for partition, offset in stop.offsets.items())


def _refuse_held_back(wanted: Offsets, stop: object, positions: Positions) -> None:
    """A query that ended there would have left out records that are committed, or will be.

    Raises:
        Unavailable: readers do not come so far.
    """
    held = positions.held_back(wanted)
    if not held:
        return
    whose = positions.holders(held)
    named = ", ".join(
        f"{name_of(p)} at {end}, before {wanted[p]}" + (f", by {whose[p]}" if p in whose else "")
        for p, end in sorted(held.items())
    )
    raise Unavailable(
        f"read_kafka(stop={stop!r}): open transactions upstream hold readers back ({named}), so "
        "not all that lies before the stop can be read yet. Start again when they have ended; "
        "Kafka's own kafka-transactions tool shows and aborts them. With offsets of all partitions "
        "as the stop nobody waits here: the query does, unless its trigger is availableNow."
    )


def _given(given: Offsets, positions: Positions) -> Offsets:
    refuse_unread(given, positions.partitions, "stop")
    missing = sorted(set(positions.partitions) - set(given))
    if missing:
        raise SettingRefused(
            f"read_kafka(stop=...) says nothing about {', '.join(map(name_of, missing))}. Name "
            "every partition: one without a stop would never end. Of one with the stop 0 nothing "
            f"is read: {as_argument(dict.fromkeys(missing, 0))}."
        )
    return given
