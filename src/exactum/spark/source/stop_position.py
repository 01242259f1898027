"""Where a bounded source ends: resolved once, to the first offset of each partition that is not
read.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from exactum.checkpoint.partition_offsets import Offsets, as_argument, name_of
from exactum.errors import SettingRefused, Unavailable
from exactum.kafka.requests import LATEST
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


def resolve(stop: StopAt, positions: Positions) -> Offsets:
    """The first offset that is not read, for each partition that is there now.

    Raises:
        SettingRefused: it is of no known form, or does not name every partition.
        Unavailable: the cluster did not answer; or a transaction that is open holds readers back
            before the end, or the time, for longer than it is waited for.
    """
    if isinstance(stop, Mapping):
        return _given(offset_map(stop, "stop"), positions)
    if stop == LATEST:
        wanted = positions.last()
    elif is_time(stop):
        time_ms = milliseconds(stop, "stop")
        refuse_future(time_ms, stop, "stop")
        wanted = positions.at_time(time_ms)
    else:
        raise SettingRefused(
            "SOURCE_ARGUMENT", f"read_kafka(stop={stop!r}) is not known; it may be {KNOWN}."
        )
    _refuse_behind_open_transactions(wanted, stop, positions)
    return wanted


def _refuse_behind_open_transactions(wanted: Offsets, stop: object, positions: Positions) -> None:
    """A query that ended there would have left out records that are committed, or will be.

    Raises:
        Unavailable: readers do not come so far.
    """
    blocked = positions.behind_open_transactions(wanted)
    if not blocked:
        return
    whose = positions.holders(blocked)
    named = ", ".join(
        f"{name_of(p)} at {end}, before {wanted[p]}" + (f", by {whose[p]}" if p in whose else "")
        for p, end in sorted(blocked.items())
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
            "SOURCE_ARGUMENT",
            f"read_kafka(stop=...) says nothing about {', '.join(map(name_of, missing))}. Name "
            "every partition: one without a stop would never end. Of one with the stop 0 nothing "
            f"is read: {as_argument(dict.fromkeys(missing, 0))}.",
        )
    return given
