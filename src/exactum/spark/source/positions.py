"""Where a new query begins to read, and where a bounded one ends. A query that has a checkpoint
goes on from there, whatever ``start=`` says.

    start=  "earliest" | "latest"          Spark's own words, resolved when the query first starts
            "group"                        what the consumer group has committed
            datetime | milliseconds        the first record at or after that time, else the end
            {"orders": {0: 123}}           offsets; partitions that are not named follow the group
    stop=   "latest" | a time | offsets    of all partitions: the first record that is not read

All but Spark's words are resolved at once, on the driver, to an offset for each partition.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from exactum.checkpoint.offset_log import Offsets, as_argument, name_of, to_json
from exactum.errors import SettingRefused, Unavailable
from exactum.kafka.requests import EARLIEST, LATEST, BrokerRequests
from exactum.kafka.transaction import Partition
from exactum.spark.source.options import refused

OffsetMap = Mapping[str, Mapping[int, int]]
Start = str | int | datetime | OffsetMap
StopAt = Start

GROUP = "group"
SPARKS_WORDS = (EARLIEST, LATEST)
"""What Spark knows as a start, so that no broker need be asked."""
STOP_WORDS = (LATEST,)
RESETS = (EARLIEST, LATEST, "none")
EARLIEST_SENTINEL = -2
"""Spark's offset for "where the partition begins when the query starts": right even if retention
moves it by then.
"""
CLOCK_SLACK_MS = 1_000
NAMED_MAX = 100
"""How many partitions of a source the log names."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Moment:
    """A time in ms since the epoch, with what was given for it."""

    time_ms: int
    given: object


Position = str | Moment | Offsets
"""A checked ``start=`` or ``stop=``: a word, a time, or offsets."""


# ---- what the user gives -------------------------------------------------------------------------


def checked_start(start: Start | None, group_id: str | None) -> Position:
    """``start`` with its default. Raises as ``checked``, and where it needs a group id."""
    if start is None:
        return GROUP if group_id is not None else EARLIEST
    found = checked(start, "start", (GROUP, EARLIEST, LATEST))
    if found == GROUP and group_id is None:
        raise refused("(start='group') needs group_id=, the group whose offsets count.")
    return found


def checked(given: Start, argument: str, words: tuple[str, ...]) -> Position:
    """What was given for ``argument``.

    Raises:
        SettingRefused: it is of no known form, or a time that has no records or none yet.
    """
    if isinstance(given, str) and given in words:
        return given
    if isinstance(given, Mapping):
        return _offsets(given, argument)
    if isinstance(given, datetime) or (isinstance(given, int) and not isinstance(given, bool)):
        time_ms = milliseconds(given, argument)
        if time_ms > time.time_ns() // 1_000_000 + CLOCK_SLACK_MS:
            raise refused(
                f"({argument}={given!r}) lies in the future: which record will be the first at "
                "that time is not known yet. Give a time that has passed, or filter the rows by "
                "their timestamp."
            )
        return Moment(time_ms, given)
    raise refused(
        f"({argument}={given!r}) is not known; it may be {', '.join(map(repr, words))}, a datetime "
        "with a time zone, milliseconds since the epoch, or offsets by topic and partition like "
        "{'orders': {0: 123}}."
    )


def milliseconds(given: datetime | int, argument: str) -> int:
    """A time as milliseconds since the epoch, the next whole one.

    Raises:
        SettingRefused: a datetime without a time zone, or a time before 1970.
    """
    if isinstance(given, datetime):
        if given.tzinfo is None or given.utcoffset() is None:
            raise refused(
                f"({argument}={given!r}) has no time zone, so it names no moment. Say which one, "
                "for example datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)."
            )
        # Kafka's records have whole ones: the first at or after it is at or after the next.
        given_ms = -((_EPOCH - given) // timedelta(milliseconds=1))
    else:
        given_ms = int(given)
    if given_ms < 0:  # Kafka takes -1 for the end (ListOffsets)
        raise refused(
            f"({argument}={given!r}) is a time before 1970, by which no record can be asked for. "
            '"earliest" is the first record.'
        )
    if given_ms >= 2**63:
        raise refused(f"({argument}={given!r}): that many milliseconds are no time.")
    return given_ms


def _offsets(given: OffsetMap, argument: str) -> Offsets:
    """``{"orders": {0: 123}}`` by partition.

    Raises:
        SettingRefused: it is of another form.
    """
    try:
        result = {
            (topic, index): offset for topic, own in given.items() for index, offset in own.items()
        }
    except (TypeError, ValueError, AttributeError):
        result = {}
    numbers = [*(index for _, index in result), *result.values()]
    whole = all(type(number) is int and number >= 0 for number in numbers)
    if result and whole and all(isinstance(topic, str) for topic, _ in result):
        return result
    raise refused(
        f"({argument}={given!r}): offsets look like {{'orders': {{0: 123, 1: 7}}}}, with whole "
        "numbers from 0."
    )


# ---- what the brokers say ------------------------------------------------------------------------


@dataclass(frozen=True)
class Positions:
    """What can be said about the partitions of a source now: their bounds and the group's
    offsets.
    """

    requests: BrokerRequests
    partitions: list[Partition]
    group_id: str | None
    reset: str
    read_committed: bool

    def ends(self) -> Offsets:
        """As far as readers come now."""
        return self.requests.offsets(self.partitions, LATEST, read_committed=self.read_committed)

    def at_time(self, time_ms: int) -> Offsets:
        """The first record at or after the time, or the end. Records of open transactions count:
        they have their place in the partition, whenever their transaction ends.
        """
        marks = self.last()  # what arrives later has its time
        found = self.requests.offsets(self.partitions, time_ms, read_committed=False)
        return {p: found.get(p, marks[p]) for p in self.partitions}

    def last(self) -> Offsets:
        """The ends with the records of open transactions, which have their place already."""
        return self.requests.offsets(self.partitions, LATEST, read_committed=False)

    def beginnings(self) -> Offsets:
        return self.requests.offsets(self.partitions, EARLIEST, read_committed=self.read_committed)


@dataclass(frozen=True)
class Resolved:
    """Spark's option ``startingOffsets``; and in words, where each partition starts and why.

    ``refusal``: why a new query cannot begin there; None: it can.
    """

    starting_offsets: str
    where: str = ""
    refusal: str | None = None


class _OutOfReach(SettingRefused):
    """A new query cannot begin there. The text becomes part of Spark's error, in which
    ``spark_refusals`` finds it.
    """


def resolved_start(start: Position, positions: Positions) -> Resolved:
    """``start`` as offsets for all partitions.

    Offsets that are out of reach are refused when the query asks for them, not here: a query with a
    checkpoint does not. Its refusal is what Spark then finds in place of offsets.

    Raises:
        SettingRefused: a partition is named that is not read.
        Unavailable: the cluster did not answer.
    """
    try:
        if isinstance(start, Moment):
            chosen = _by_time(start, positions)
        else:
            chosen = _by_group({} if isinstance(start, str) else start, positions)
    except _OutOfReach as refusal:
        return Resolved(to_json({(str(refusal), 0): 0}), refusal=str(refusal))
    if not chosen:  # a pattern that nothing matches yet
        return Resolved(EARLIEST, "partitions that come")
    words = [
        f"{name_of(p)} at {'its first record' if offset == EARLIEST_SENTINEL else offset} ({why})"
        for p, (offset, why) in sorted(chosen.items())
    ]
    more = f" and {len(words) - NAMED_MAX} more partitions" if len(words) > NAMED_MAX else ""
    return Resolved(
        to_json({partition: offset for partition, (offset, _) in chosen.items()}),
        ", ".join(words[:NAMED_MAX]) + more,
    )


def _by_time(start: Moment, positions: Positions) -> dict[Partition, tuple[int, str]]:
    wanted, ends = positions.at_time(start.time_ms), positions.ends()
    for partition, offset in sorted(wanted.items()):
        if ends[partition] < offset:
            raise _OutOfReach(
                "SOURCE_START",
                f"exactum refuses to start {name_of(partition)} at {offset} (first record at or "
                f"after {start.given}): an open transaction upstream holds readers back at "
                f"{ends[partition]}; start again when it has ended",
            )
    last = positions.last()
    return {
        p: (
            offset,
            f"first record at or after {start.given}"
            if offset < last[p]
            else f"no record since {start.given}: end",
        )
        for p, offset in wanted.items()
    }


def _by_group(given: Offsets, positions: Positions) -> dict[Partition, tuple[int, str]]:
    _refuse_unread(given, positions.partitions, "start")
    rest = [p for p in positions.partitions if p not in given]
    group, reset = positions.group_id, positions.reset
    ends, beginnings = positions.ends(), positions.beginnings()
    committed = positions.requests.group_offsets(group, rest) if group is not None and rest else {}
    chosen: dict[Partition, tuple[int, str]] = {}
    for partition in positions.partitions:
        low, high = beginnings.get(partition, 0), ends.get(partition, 0)
        if partition in given:
            chosen[partition] = _within(given[partition], partition, low, high, "given")
        elif partition in committed:
            chosen[partition] = _within(
                committed[partition], partition, low, high, f"group {group!r}"
            )
        else:
            chosen[partition] = _reset(partition, group, reset, high)
    return chosen


def _within(offset: int, partition: Partition, low: int, high: int, why: str) -> tuple[int, str]:
    if low <= offset <= high:
        return offset, why
    raise _OutOfReach(
        "SOURCE_START",
        f"exactum refuses to start {name_of(partition)} at {offset} ({why}): it has the offsets "
        f"{low} to {high}; choose another start=",
    )


def _reset(partition: Partition, group: str | None, reset: str, high: int) -> tuple[int, str]:
    why = f"group {group!r} has no offset" if group is not None else "not named"
    if reset == EARLIEST:
        return EARLIEST_SENTINEL, f"{why}: auto_offset_reset=earliest"
    if reset == LATEST:
        return high, f"{why}: auto_offset_reset=latest"
    raise _OutOfReach(
        "SOURCE_START",
        f"exactum refuses to start {name_of(partition)} ({why}): auto_offset_reset is none; choose "
        "another start=",
    )


def resolved_stop(stop: Position, positions: Positions) -> Offsets:
    """The first offset that is not read, for each partition that is there now.

    Raises:
        SettingRefused: offsets do not name every partition.
        Unavailable: the cluster did not answer; or an open transaction holds readers back before
            the time: a query that ended there would leave out what will be committed.
    """
    if not isinstance(stop, Moment):
        return positions.ends() if isinstance(stop, str) else _of_all(stop, positions)
    wanted, ends = positions.at_time(stop.time_ms), positions.ends()
    behind = [f"{name_of(p)} at {ends[p]}" for p, o in sorted(wanted.items()) if ends[p] < o]
    if behind:
        raise Unavailable(
            f"read_kafka(stop={stop.given!r}): open transactions upstream hold readers back before "
            f"that time ({', '.join(behind)}). Start again when they have ended, or give "
            "offsets of all partitions as the stop, which the query waits for."
        )
    return wanted


def _of_all(given: Offsets, positions: Positions) -> Offsets:
    _refuse_unread(given, positions.partitions, "stop")
    missing = sorted(set(positions.partitions) - set(given))
    if missing:
        raise refused(
            f"(stop=...) says nothing about {', '.join(map(name_of, missing))}. Name every "
            "partition: one without a stop would never end. Of one with the stop 0 nothing is "
            f"read: {as_argument(dict.fromkeys(missing, 0))}."
        )
    return given


def _refuse_unread(given: Offsets, partitions: list[Partition], argument: str) -> None:
    """
    Raises:
        SettingRefused: ``given`` names a partition that is not read.
    """
    unread = sorted(set(given) - set(partitions))
    if unread:
        raise refused(
            f"({argument}=...) names {', '.join(map(name_of, unread))}, which is not read: the "
            f"topics have {', '.join(map(name_of, partitions)) or 'no partitions'}. Leave out what "
            "is not read."
        )
