"""The options of Spark's Kafka source that ``read_kafka`` sets, takes, and refuses."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Mapping

from exactum.errors import SettingRefused
from exactum.spark.source import source_options

logger = logging.getLogger("exactum")

ISOLATION = "kafka.isolation.level"
DATA_LOSS = "failOnDataLoss"
FETCH_WAIT = "kafka.fetch.max.wait.ms"
FETCH_WAIT_MS = 0
"""Kafka's own default of 500 is paid by each task of an epoch that ends where the topic ends: when
Spark's consumer has its records, the client asks for more at once, and Spark asks on the same
connection for the partition's first and last offset (``InternalKafkaConsumer.fetch`` in its
KafkaDataConsumer.scala); brokers answer one request after another. A task reads only what is there,
and nobody polls between epochs: there is nothing to wait for. Even 10 ms were felt: 5 ms for each
partition of a small epoch where 2 do."""
POLL_RECORDS = "kafka.max.poll.records"
POLL_RECORDS_MAX = 10_000
"""After each poll Spark asks the broker for the partition's first and last offset, one request
after the other (the same ``fetch``). With Kafka's own default that is once in 500 records."""
FETCH_BYTES = "kafka.max.partition.fetch.bytes"
FETCH_BYTES_MAX = 2 * 2**20
"""What a poll returns is bounded by this as well: with Kafka's own default of 1 MiB, larger records
would be asked for twice as often. Each consumer that Spark keeps (64 in an executor) may hold as
much."""

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
            raise SettingRefused(
                "SOURCE_ARGUMENT", f"read_kafka: give {_OWN[lower]} instead of the option {name!r}."
            )
        if lower in _BATCH_ONLY:
            raise SettingRefused(
                "SOURCE_ARGUMENT", f"read_kafka: {name!r} is for batch reads; give stop= instead."
            )
        if lower.startswith(source_options.PREFIX):
            raise SettingRefused(
                "SOURCE_ARGUMENT",
                f"read_kafka: there is no option {name!r}; such names are exactum's own.",
            )
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
    if ISOLATION not in given:
        chosen[ISOLATION] = "read_committed"
    if DATA_LOSS.lower() not in given:
        chosen[DATA_LOSS] = "true"
    for name, value in (
        (FETCH_WAIT, FETCH_WAIT_MS),
        (POLL_RECORDS, POLL_RECORDS_MAX),
        (FETCH_BYTES, FETCH_BYTES_MAX),
    ):
        if name not in given:
            chosen[name] = str(value)
    return chosen


def reads_committed(options: Mapping[str, str]) -> bool:
    """Whether Spark's source reads committed records only; Kafka's own default is all."""
    return any(
        name.lower() == ISOLATION and value == "read_committed" for name, value in options.items()
    )


def _check(name: str, value: str) -> None:
    known = _NAMES.get(name.lower())
    if known is not None:
        pattern, words = _VALUES[known]
        if not re.fullmatch(pattern, value):
            raise SettingRefused(
                "SOURCE_ARGUMENT", f"read_kafka: {known}={value!r} must be {words}."
            )
    elif not name.lower().startswith("kafka.") and (
        meant := difflib.get_close_matches(name.lower(), _NAMES, 1, _ALIKE)
    ):
        raise SettingRefused(
            "SOURCE_ARGUMENT",
            f"read_kafka: there is no option {name!r}, which Spark would leave out of account. "
            f"Is {_NAMES[meant[0]]!r} meant?",
        )
