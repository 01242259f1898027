"""How fast a coordinator answers InitProducerId and EndTxn: one request after another, and as many
as exactum's driver has under way; by the driver's own connection.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from bench import epochs, report
from exactum.kafka.failure import KafkaFailure
from exactum.kafka.requests.broker_requests import BrokerRequests
from exactum.kafka.requests.client_internals import (
    DescribeTransactionsRequest,
    InitProducerIdRequest,
)
from exactum.kafka.requests.connection import connect
from exactum.kafka.requests.routing import Question, Router
from exactum.kafka.sink import KafkaSink
from exactum.kafka.transaction import KafkaTransaction
from exactum.local import LocalKafka
from tests.kit.kafka.many import open_many
from tests.kit.kafka.transactions import opened

ONE_BY_ONE = 200
PARTITIONS = 16
EPOCHS = {1: 60, 4: 60, 16: 60, 64: 30, 256: 16}
SETTLED = 10
"""Epochs of each that do not count."""
TOPIC = "scale-coordinator"


def bench(kafka: LocalKafka, counts: Sequence[int], rounds: int) -> None:
    kafka.create_topic(TOPIC, partitions=PARTITIONS)
    initialised(kafka, rounds)
    ended(kafka, counts, rounds)
    driver_sum(kafka, counts)


def initialised(kafka: LocalKafka, rounds: int) -> None:
    connection = connect(kafka.bootstrap_servers, (), "bench", 15_000, 10_000)
    router = Router(connection, kafka.bootstrap_servers, "bench", 60_000)
    new, again = [], []
    try:
        for _ in range(rounds):
            ids = [f"scale-{secrets.token_hex(8)}" for _ in range(ONE_BY_ONE)]
            router.by_coordinator(ids, _known())  # so that the coordinator of each is known
            new += [
                _timed_ms(lambda name=name: router.by_coordinator([name], _init())) for name in ids
            ]
            again += [
                _timed_ms(lambda name=name: router.by_coordinator([name], _init())) for name in ids
            ]
    finally:
        connection.close()
    report.table(
        f"InitProducerId, one request after another, ms, {rounds * ONE_BY_ONE} ids",
        ["id", "median (min to max)", "p99"],
        [["new", *_cells(new)], ["known", *_cells(again)]],
    )


def ended(kafka: LocalKafka, counts: Sequence[int], rounds: int) -> None:
    """Transactions of one record each that are open are committed as the driver does it."""
    rows = []
    requests = BrokerRequests(kafka.bootstrap_servers, (), "bench")
    sink = KafkaSink(TOPIC, bootstrap_servers=kafka.bootstrap_servers)
    try:
        with opened(sink) as at_hand:

            def open_some(count: int) -> dict[str, tuple[int, int]]:
                made = open_many(kafka.bootstrap_servers, at_hand, TOPIC, PARTITIONS, count)
                ends = {t.transactional_id: t.producer for t in map(KafkaTransaction.of, made)}
                requests.describe_transactions(ends)  # so that the coordinator of each is known
                return ends

            alone: list[float] = []
            for _ in range(rounds):
                for name, producer in open_some(ONE_BY_ONE).items():
                    alone.append(
                        _timed_ms(lambda n=name, p=producer: requests.commit_transactions({n: p}))
                    )
            rows.append(
                ["one after another", *_cells(alone), f"{1000 * len(alone) / sum(alone):.0f}"]
            )
            for count in counts:
                took = []
                for _ in range(max(5, rounds)):
                    ends = open_some(count)
                    took.append(_timed_ms(lambda ends=ends: requests.commit_transactions(ends)))
                each = [ms / count for ms in took]
                rows.append(
                    [
                        f"{count} at once",
                        *_cells(took),
                        f"{1000 / sorted(each)[len(each) // 2]:.0f}",
                    ]
                )
    finally:
        requests.close()
    report.table(
        "EndTxn as the driver sends it, ms",
        ["transactions", "median (min to max)", "p99", "per second"],
        rows,
    )


def driver_sum(kafka: LocalKafka, counts: Sequence[int]) -> None:
    """The driver's part of an epoch beside Spark's, by tasks; 16 partitions or as many as tasks."""
    rows = []
    for tasks in counts:
        partitions = max(PARTITIONS, tasks)
        prepare_ms, completed = epochs.measure(kafka, partitions, EPOCHS[tasks], tasks=tasks)
        cells = epochs.costs(prepare_ms, completed, slice(SETTLED, None))
        rows.append([str(partitions), str(tasks), *cells])
    report.table(
        f"an epoch beyond Spark's share, ms, without the first {SETTLED}: median (min to max)",
        ["partitions", "tasks", *epochs.COSTS],
        rows,
    )


def _known() -> Question[str]:
    def read(answer: Any, _: Sequence[str]) -> Iterable[tuple[str, int, Any]]:
        for t in answer.transaction_states:
            yield t.transactional_id, t.error_code, None

    return Question(lambda ids: DescribeTransactionsRequest(transactional_ids=list(ids)), read)


def _init() -> Question[str]:
    def request(ids: Sequence[str]) -> Any:
        return InitProducerIdRequest(
            transactional_id=ids[0],
            transaction_timeout_ms=60_000,
            producer_id=-1,
            producer_epoch=-1,
            min_version=3,
            max_version=4,
        )

    def read(answer: Any, asked: Sequence[str]) -> Iterable[tuple[str, int, Any]]:
        yield asked[0], answer.error_code, None

    return Question(request, read, each_max=1, also_retriable=frozenset({KafkaFailure.CONCURRENT}))


def _timed_ms(call: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    call()
    return (time.perf_counter() - began_s) * 1000


def _cells(values: Sequence[float]) -> list[str]:
    """Median (min to max), and p99."""
    return [report.spread(values, 2), f"{np.percentile(values, 99):.2f}"]
