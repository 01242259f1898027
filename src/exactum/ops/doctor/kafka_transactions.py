"""Transactions on one cluster: what the sinks may do, and how long theirs may wait."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from exactum.errors import Refused
from exactum.kafka.examination import ClusterExamination, KafkaTarget
from exactum.kafka.requests.broker_requests import TRANSACTION_LOG
from exactum.kafka.sink import BROKER_TIMEOUT_MAX_MS
from exactum.kafka.transactional_id import KafkaScope
from exactum.monitor.words import duration
from exactum.ops.problem import Problem, error, of_failure, ok, warning
from exactum.protocol.model import new_incarnation

if TYPE_CHECKING:
    from exactum.ops.doctor.kafka_topics import TopicLook


def findings(
    asked: ClusterExamination,
    sinks: Sequence[KafkaTarget],
    topics: TopicLook,
    timeout_max_ms: int | None,
    longest_outage_s: float | None,
) -> Iterator[Problem]:
    """``timeout_max_ms``: the brokers' longest; None where it may not be read."""
    for sink in sinks:
        yield from _rights(asked, sink)
        yield from _timeout(sink, topics, timeout_max_ms, longest_outage_s)


def _rights(asked: ClusterExamination, sink: KafkaTarget) -> Iterator[Problem]:
    area = sink.where
    if not asked.has_transaction_tools():
        yield error(
            area,
            "The brokers lack DescribeTransactions, ListTransactions or DescribeProducers.",
            "exactly_once settles transactions by them.",
            "Update the brokers to Kafka 3.0 or later.",
        )
        return
    if asked.is_missing(TRANSACTION_LOG):
        # To ask for the coordinator of an id would make Kafka's own topic.
        yield ok(
            area, "This cluster has had no transaction yet: rights on transactional ids not tried."
        )
        return
    probe = KafkaScope("exactum-doctor", "probe", sink.prefix).transactional_id(
        new_incarnation(), "0" * 16, 0
    )
    try:
        asked.describe_transactions([probe])
    except Refused as failure:
        yield of_failure(area, failure)
        return
    if not asked.may_end(probe):
        yield error(
            area,
            f"WRITE on transactional ids that begin with {sink.prefix}/ is not granted.",
            "Every micro-batch is a transaction.",
            f"Grant WRITE on the transactional id, prefixed, {sink.prefix}/ (docs/kafka.md).",
        )
        return
    yield ok(area, f"Transactions may be opened and ended under {sink.prefix}/.")


def _timeout(
    sink: KafkaTarget,
    topics: TopicLook,
    timeout_max_ms: int | None,
    longest_outage_s: float | None,
) -> Iterator[Problem]:
    area = sink.where
    if sink.timeout_ms is not None and timeout_max_ms and sink.timeout_ms > timeout_max_ms:
        yield error(
            area,
            f"transaction_timeout_ms={sink.timeout_ms} is above the {timeout_max_ms} ms that the "
            "brokers allow (transaction.max.timeout.ms).",
            "The sink is refused at the query's start.",
            "Lower the one or raise the other.",
        )
        return
    timeout_s = (sink.timeout_ms or timeout_max_ms or BROKER_TIMEOUT_MAX_MS) / 1000
    text = f"A transaction that is prepared may wait {duration(timeout_s)} for its commit"
    if longest_outage_s is None or timeout_s >= longest_outage_s:
        yield ok(area, f"{text}.")
        return
    text = f"{text}, and the longest outage is {duration(longest_outage_s)}."
    mend = (
        "Raise transaction.max.timeout.ms on the brokers (and transaction_timeout_ms, where the "
        "sink has it) above the longest outage."
    )
    if sink.topic is not None and topics.compacted(sink.topic):
        yield error(
            area,
            text,
            "What is decided and then aborted by the broker is salvaged from the log, and "
            "compaction removes it there: its rows would be lost.",
            mend,
        )
        return
    yield warning(
        area,
        text,
        "After a longer one the broker has aborted what was decided. Its records are then "
        "salvaged from the log, which needs them to be there and takes as long as writing them.",
        mend,
    )
