"""The options of Spark's Kafka source: those that ``read_kafka`` sets, takes and refuses, the
topics that they name, and what its call chose besides.

Spark hands unknown options on untouched, so what the call chose is found again in the plan of the
running query, whatever was made of the frame in between.
"""

from __future__ import annotations

import difflib
import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from exactum.checkpoint.offset_log import Offsets, from_json, to_json
from exactum.errors import SettingRefused
from exactum.kafka.requests import BrokerRequests, TopicSeen
from exactum.kafka.topic import LEGAL
from exactum.kafka.transaction import Partition

logger = logging.getLogger("exactum")

PREFIX = "exactum."
SOURCE, GROUP = PREFIX + "source", PREFIX + "group"
STOP = PREFIX + "stop.offsets"
"""``ColumnarKafka.java`` reads it."""
CLIENT_PREFIX = PREFIX + "client."
Topics = str | Sequence[str] | re.Pattern[str] | Mapping[str, Sequence[int]]

ISOLATION = "kafka.isolation.level"
DATA_LOSS = "failOnDataLoss"
DEFAULTS: Mapping[str, str] = {
    ISOLATION: "read_committed",
    DATA_LOSS: "true",
    # Kafka's own default of 500 is paid by each task of an epoch that ends where the topic ends:
    # when Spark's consumer has its records, the client asks for more at once, and Spark asks on the
    # same connection for the partition's first and last offset (InternalKafkaConsumer.fetch in its
    # KafkaDataConsumer.scala); brokers answer one request after another. A task reads only what is
    # there, and nobody polls between epochs: there is nothing to wait for. Even 10 ms were felt: 5
    # ms for each partition of a small epoch where 2 do.
    "kafka.fetch.max.wait.ms": "0",
    # After each poll Spark asks the broker for the partition's first and last offset, one request
    # after the other (the same fetch). With Kafka's own default that is once in 500 records.
    "kafka.max.poll.records": "10000",
    # What a poll returns is bounded by this as well: with Kafka's own default of 1 MiB, larger
    # records would be asked for twice as often. Each consumer that Spark keeps (64 in an executor)
    # may hold as much.
    "kafka.max.partition.fetch.bytes": str(2 * 2**20),
}
"""What ``read_kafka`` sets where the user says nothing."""
_OWN = {
    "kafka.bootstrap.servers": "bootstrap_servers=",
    "subscribe": "topics",
    "subscribepattern": "topics",
    "assign": "topics",
    "startingoffsets": "start=",
    "startingtimestamp": "start=",
    "startingoffsetsbytimestamp": "start=",
}
"""Options of Spark's source that ``read_kafka`` has words of its own for, in lower case."""
_BATCH_ONLY = ("endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp")
_COUNT = r"0*[1-9][0-9]{0,17}", "a whole number from 1"
_SMALL = r"0*[1-9][0-9]{0,8}", "a whole number from 1 to 999999999"
_NUMBER = r"[0-9]{1,9}", "a whole number from 0"
_BOOLEAN = r"(?i:true|false)", "True or False"
_TEXT = r"(?s:.+)", "a text"
_NEVER = r"(?!)", "left out: Spark sets it itself"
_VALUES = {
    "maxOffsetsPerTrigger": _COUNT,
    "minOffsetsPerTrigger": _COUNT,
    "maxTriggerDelay": _TEXT,
    "minPartitions": _SMALL,
    "maxRecordsPerPartition": _COUNT,
    "includeHeaders": _BOOLEAN,
    DATA_LOSS: _BOOLEAN,
    "failOnLoop": _BOOLEAN,
    "kafkaConsumer.pollTimeoutMs": _COUNT,
    "fetchOffset.numRetries": _NUMBER,
    "fetchOffset.retryIntervalMs": _NUMBER,
    "groupIdPrefix": _TEXT,
    "startingOffsetsByTimestampStrategy": ("(?i:error|latest)", "'error' or 'latest'"),
    ISOLATION: ("read_committed|read_uncommitted", "read_committed or read_uncommitted"),
    "kafka.group.id": _TEXT,
    "kafka.auto.offset.reset": (_NEVER[0], "left out: start= says where a query begins"),
    "kafka.enable.auto.commit": _NEVER,
    "kafka.interceptor.classes": _NEVER,
    "kafka.key.deserializer": _NEVER,
    "kafka.value.deserializer": _NEVER,
}
"""What Spark's source takes, and ``failOnLoop``: the pattern of a value, and what it has to be in
words. Other settings of Kafka's consumer (``kafka.*``) are the consumer's to check."""
_NAMES = {name.lower(): name for name in _VALUES}
_ALIKE = 0.85
"""How near a name is to a known one that it is a slip, of 1: ``maxOffsetPerTrigger`` has 0.97."""


def refused(text: str) -> SettingRefused:
    """An argument of ``read_kafka`` that cannot be; ``text`` goes on after its name."""
    return SettingRefused("SOURCE_ARGUMENT", f"read_kafka{text}")


def further_options(options: Mapping[str, object]) -> dict[str, str]:
    """The user's options with our defaults below them. Names are compared as Spark does, ignoring
    case.

    Raises:
        SettingRefused: an option that has an argument of its own here, or that streams do not have,
            one with a value that it cannot have, or a name that is nearly a known one.
    """
    chosen: dict[str, str] = {}
    for name, value in options.items():
        lower = name.lower()
        if lower in _OWN:
            raise refused(f": give {_OWN[lower]} instead of the option {name!r}.")
        if lower in _BATCH_ONLY:
            raise refused(f": {name!r} is for batch reads; give stop= instead.")
        if lower.startswith(PREFIX):
            raise refused(f": there is no option {name!r}; such names are exactum's own.")
        chosen[name] = str(value).lower() if isinstance(value, bool) else str(value)
        _check(name, chosen[name])
    given = {name.lower(): value for name, value in chosen.items()}
    if given.get(ISOLATION) == "read_uncommitted":
        logger.warning(
            "read_kafka: %s=read_uncommitted: records of transactions that are later aborted are "
            "read as if they were valid.",
            ISOLATION,
        )
    if given.get(DATA_LOSS.lower(), "true").lower() == "false":
        logger.warning(
            "read_kafka: failOnDataLoss=false: records that Kafka deletes before they were read "
            "are skipped without an error, and a topic or partition that was away and comes back "
            "is read again from its first record: exactly once does not hold."
        )
    ours = {name: value for name, value in DEFAULTS.items() if name.lower() not in given}
    return chosen | ours


def _check(name: str, value: str) -> None:
    known = _NAMES.get(name.lower())
    if known is not None:
        pattern, words = _VALUES[known]
        if not re.fullmatch(pattern, value):
            raise refused(f": {known}={value!r} must be {words}.")
    elif not name.lower().startswith("kafka.") and (
        meant := difflib.get_close_matches(name.lower(), _NAMES, 1, _ALIKE)
    ):
        raise refused(
            f": there is no option {name!r}, which Spark would leave out of account. Is "
            f"{_NAMES[meant[0]]!r} meant?"
        )


# ---- the topics ----------------------------------------------------------------------------------


def subscription(topics: Topics) -> dict[str, str]:
    """The option of Spark's source that names ``topics``.

    Raises:
        SettingRefused: none is named, or it is of no known form.
    """
    if isinstance(topics, re.Pattern):
        text: object = topics.pattern
        if not isinstance(text, str) or re.compile(text).flags != topics.flags:
            raise refused(
                f": {topics!r} is a pattern of bytes or with flags, and Spark is given its text "
                "alone. Write a flag into the text: re.compile('(?i)orders-.*')."
            )
        return {"subscribePattern": text}
    if isinstance(topics, Mapping):
        if topics and all(map(_are_partitions, topics.values())):
            return {"assign": json.dumps({name: list(value) for name, value in topics.items()})}
        raise refused(f": partitions by topic look like {{'orders': [0, 1]}}, not {topics!r}.")
    names = topics.split(",") if isinstance(topics, str) else topics
    if (
        not isinstance(names, list | tuple | set | frozenset)
        or not names
        or not all(isinstance(name, str) and name.strip() for name in names)
    ):
        raise refused(
            f": topics={topics!r} names no topic. Give a name, a list of names, a compiled "
            "pattern, or partitions by topic."
        )
    named = [name.strip() for name in names]
    for name in named:
        if not LEGAL.fullmatch(name.encode()):
            raise refused(
                f": no topic can be called {name!r}. For every topic like a pattern give "
                f"topics=re.compile({name!r})."
            )
    return {"subscribe": ",".join(named)}


def _are_partitions(value: object) -> bool:
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and bool(value)
        and all(isinstance(p, int) and not isinstance(p, bool) and p >= 0 for p in value)
    )


@dataclass(frozen=True)
class Subscription:
    """One of the three ways to name topics: by name, by partition, or by a pattern for the whole
    name.
    """

    topics: tuple[str, ...] = ()
    assigned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    pattern: str | None = None

    @staticmethod
    def of(options: Mapping[str, str]) -> Subscription:
        """From the options of Spark's Kafka source (``subscribe``, ``assign``,
        ``subscribePattern``), in any case.
        """
        given = {name.lower(): value for name, value in options.items()}
        if "assign" in given:
            assigned = json.loads(given["assign"])
            return Subscription(assigned={topic: tuple(own) for topic, own in assigned.items()})
        if "subscribepattern" in given:
            return Subscription(pattern=given["subscribepattern"])
        names = [name.strip() for name in given.get("subscribe", "").split(",")]
        return Subscription(topics=tuple(name for name in names if name))

    def named(self) -> tuple[str, ...]:
        """The topics that are called by name; none where there is a pattern."""
        return self.topics or tuple(self.assigned)

    def names(self) -> re.Pattern[str]:
        """For the whole names of the topics that are read.

        Raises:
            SettingRefused: a pattern that Java knows and Python does not.
        """
        try:
            return re.compile(self.pattern or "|".join(map(re.escape, self.named())))
        except re.error as error:
            raise SettingRefused(
                "SOURCE_ARGUMENT",
                f"subscribePattern={self.pattern!r} is no pattern that Python reads ({error}), and "
                "exactum finds the topics with it.\nWrite it so that Java and Python both read it.",
            ) from None

    def reads(self, topic: str) -> bool:
        """Whether a topic of this name is read, if it is there."""
        return self.names().fullmatch(topic) is not None

    def seen(self, requests: BrokerRequests) -> dict[str, TopicSeen]:
        """The topics that are there now. A named one that does not exist is left out, as internal
        ones of a pattern.

        Raises:
            Unavailable, SettingRefused: see ``names`` and ``BrokerRequests.topics``.
        """
        if self.pattern is None:
            return requests.topics(self.named(), all_visible=True)
        matching = list(filter(self.names().fullmatch, requests.topic_names()))
        found = requests.topics(matching, all_visible=True)
        return {name: topic for name, topic in found.items() if not topic.internal}

    def partitions(self, seen: Mapping[str, TopicSeen]) -> list[Partition]:
        """The partitions of the topics in ``seen`` that are read."""
        if self.assigned:
            return [(t, i) for t, indexes in self.assigned.items() if t in seen for i in indexes]
        return [
            (name, index)
            for name, topic in sorted(seen.items())
            for index in range(topic.partitions)
        ]

    def __str__(self) -> str:
        return f"topics matching {self.pattern!r}" if self.pattern else ", ".join(self.named())


# ---- all of a source -----------------------------------------------------------------------------


@dataclass(frozen=True)
class SourceOptions:
    """What all options of a source say. One that was made by Spark's own reader has the defaults of
    what was chosen.

    ``source_id`` names a call of ``read_kafka``, ``group_id`` is the group that its offsets are
    committed to, ``stop`` the first offset of each partition that is not read, ``client`` are
    librdkafka settings that replace the translated ones. ``read_committed`` is false by Kafka's own
    default.
    """

    source_id: str = ""
    group_id: str | None = None
    stop: Offsets | None = None
    client: Mapping[str, str] = field(default_factory=dict)
    subscription: Subscription = field(default_factory=Subscription)
    read_committed: bool = False

    def options(self) -> dict[str, str]:
        """What was chosen as options of Spark's source, to be added to its own."""
        stop = None if self.stop is None else to_json(self.stop)
        given = {SOURCE: self.source_id, GROUP: self.group_id, STOP: stop}
        options = {name: value for name, value in given.items() if value is not None}
        # each by its name, by which Spark hides passwords
        return options | {CLIENT_PREFIX + name: value for name, value in self.client.items()}

    @staticmethod
    def of(options: Mapping[str, str]) -> SourceOptions:
        """What a source's options say; the defaults where there are none."""
        return SourceOptions(
            options.get(SOURCE, ""),
            options.get(GROUP),
            stop=from_json(options[STOP]) if STOP in options else None,
            client={
                name.removeprefix(CLIENT_PREFIX): value
                for name, value in options.items()
                if name.startswith(CLIENT_PREFIX)
            },
            subscription=Subscription.of(options),
            read_committed=any(
                name.lower() == ISOLATION and value == "read_committed"
                for name, value in options.items()
            ),
        )
