"""Transactions on one cluster: what the sinks may do and how long theirs may wait; and what open
transactions hold readers back at both ends.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from exactum.errors import Refused
from exactum.kafka.examination import READ, ClusterExamination, KafkaTarget, TopicExamined
from exactum.kafka.outcome import TransactionDescription
from exactum.kafka.requests.operator_requests import TRANSACTION_LOG, OpenProducer
from exactum.kafka.sink import BROKER_TIMEOUT_MAX_MS
from exactum.kafka.transactional_id import KafkaScope
from exactum.kafka.transactions.hanging import find_hanging
from exactum.monitor.words import duration
from exactum.ops.problem import Problem, error, of_failure, ok, warning
from exactum.protocol.model import new_incarnation

if TYPE_CHECKING:
    from exactum.ops.doctor.kafka_topics import TopicLook

LATE_AFTER_S = 60.0
"""A transaction that is open for longer is told of."""
MARGIN_S = 60.0
"""How long after its timeout a coordinator may take to end a transaction."""


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
    readable = [topic for topic in topics.seen.values() if topic.may(READ)]
    if readable:
        yield from _open_ones(asked, readable, timeout_max_ms)


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


# ---- who holds readers back ------------------------------------------------------------------


def _open_ones(
    asked: ClusterExamination, topics: Sequence[TopicExamined], timeout_max_ms: int | None
) -> Iterator[Problem]:
    names = sorted(topic.name for topic in topics)
    partitions = [(topic.name, p.index) for topic in topics for p in topic.partitions]
    # In this order: what is between the two was there before, and is held back after.
    ends = asked.end_offsets(partitions, read_committed=False)
    stable = asked.end_offsets(partitions, read_committed=True)
    hidden = {p: ends[p] - stable[p] for p in partitions if stable[p] < ends[p]}
    if not hidden:
        yield ok("open transactions", f"Nothing holds readers of {', '.join(names)} back.")
        return
    # However young: it is told of, and not ended.
    hanging = {each.producer for each in find_hanging(asked, names, idle_ms_min=0).hanging}
    open_ones, _ = asked.open_producers(hidden)
    ids = asked.ids_of_producers({each.producer_id for each in open_ones})
    known = asked.describe_transactions(set(ids.values()))
    for producer in sorted(open_ones, key=lambda each: (each.partition, each.start_offset)):
        name = ids.get(producer.producer_id, "")
        description = known.get(name)
        count = hidden[producer.partition]
        if producer in hanging:
            yield _of_nobody(producer, count)
        elif description is not None:
            yield _of_known(producer, count, name, description)
        else:
            yield _of_unseen(producer, count, timeout_max_ms)


def _of_known(
    producer: OpenProducer, hidden: int, name: str, description: TransactionDescription
) -> Problem:
    topic, index = producer.partition
    age_s = max(0.0, time.time() - description.start_time_ms / 1000)
    text = (
        f"Transaction {name!r} is open for {duration(age_s)} in partition {index}, where "
        f"{hidden:,} records are hidden."
    )
    if age_s < LATE_AFTER_S:
        return ok(f"topic {topic}", text)
    left_s = description.timeout_ms / 1000 - age_s
    return warning(
        f"topic {topic}",
        text,
        "Readers of committed records wait for it; so does a query that reads this topic.",
        f"Its owner ends it, or the broker by its timeout in {duration(max(0.0, left_s))}.",
    )


def _of_nobody(producer: OpenProducer, hidden: int) -> Problem:
    topic, index = producer.partition
    return error(
        f"topic {topic}",
        f"A transaction hangs in partition {index} since offset {producer.start_offset} (producer "
        f"{producer.producer_id}), and hides {hidden:,} records.",
        "No coordinator knows it, so no timeout ends it: readers of committed records wait for "
        "ever.",
        "'exactum transactions find-hanging' can end it, once its writer is surely gone.",
    )


def _of_unseen(producer: OpenProducer, hidden: int, timeout_max_ms: int | None) -> Problem:
    """Nobody's, or one that this user may not see."""
    topic, index = producer.partition
    age_s = max(0.0, time.time() - producer.last_write_ms / 1000)
    text = (
        f"Producer {producer.producer_id} holds partition {index} back since offset "
        f"{producer.start_offset}, wrote last {duration(age_s)} ago, and hides {hidden:,} records; "
        "this user may not see its transaction."
    )
    longest_s = (timeout_max_ms or BROKER_TIMEOUT_MAX_MS) / 1000 + MARGIN_S
    mend = (
        "'exactum transactions find-hanging', by a user who may DESCRIBE all transactional ids, "
        "says whether it is anybody's, and can end it."
    )
    if age_s > longest_s:
        return error(
            f"topic {topic}",
            text,
            "That is longer than any transaction may be open: it hangs, and readers wait for ever.",
            mend,
        )
    return warning(
        f"topic {topic}",
        text,
        "Readers of committed records wait for it. If it is nobody's, they wait for ever.",
        mend,
    )
