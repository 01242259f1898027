"""First offsets, ends, and offsets by time, as the partitions' leaders tell them, asked again while
one is unknown.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from exactum.kafka.failure import KafkaFailure, failure_of
from exactum.kafka.transaction import Partition

PAUSE_S = 0.2


def listed_offsets(
    admin: AdminClient,
    specs: Mapping[Partition, OffsetSpec],
    timeout_s: float,
    *,
    read_committed: bool,
) -> dict[Partition, int | KafkaError]:
    """The offset of each partition, -1 where no record is that late; or the error with which Kafka
    answers instead.
    """
    isolation = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
    deadline_s = time.monotonic() + timeout_s
    found: dict[Partition, int | KafkaError] = {}
    left = dict(specs)
    while left:
        cells = {TopicPartition(*partition): spec for partition, spec in left.items()}
        asked = admin.list_offsets(cells, isolation_level=isolation, request_timeout=timeout_s)
        found.update(
            {
                (cell.topic, cell.partition): _offset(future, timeout_s)
                for cell, future in asked.items()
            }
        )
        left = {
            partition: spec
            for partition, spec in left.items()
            if _has_no_leader_yet(found[partition])
        }
        if time.monotonic() > deadline_s:
            break
        if left:
            time.sleep(PAUSE_S)
            _read_metadata(admin, deadline_s)
    return found


def _offset(future: Future[Any], timeout_s: float) -> int | KafkaError:
    try:
        return int(future.result(timeout_s + 1).offset)
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        return reason
    except FutureTimeoutError:
        return KafkaError(KafkaError._TIMED_OUT)


def _has_no_leader_yet(answer: int | KafkaError) -> bool:
    """Of a partition that is new, moves, or whose broker has just come back: it is known in a
    moment.
    """
    return isinstance(answer, KafkaError) and failure_of(answer.code()) is KafkaFailure.BUSY


def _read_metadata(admin: AdminClient, deadline_s: float) -> None:
    """librdkafka asks for offsets with the leader's epoch that it has read once, and after
    FENCED_LEADER_EPOCH with the same one again, for minutes: until it reads the topic's metadata
    for another reason, as here. Those of all topics: a topic that is asked for by its name is
    created where brokers create topics.
    """
    with contextlib.suppress(KafkaException):  # nobody answers: the next request has the reason
        admin.list_topics(timeout=max(PAUSE_S, deadline_s - time.monotonic()))
