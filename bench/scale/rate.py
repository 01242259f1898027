"""How many transactions a second a broker ends: producers that begin, write one record and commit,
over and over, each in a thread of its own.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from confluent_kafka import KafkaException, Producer

from bench import report
from bench.process import cpu_seconds
from exactum.local import LocalKafka

PARTITIONS = 16
SECONDS = 6.0
TIMEOUT_S = 30.0
"""Of one call. What takes longer is an error."""
TOPIC = "scale-rate"


@dataclass
class Seen:
    """``commit_ms``: of each commit alone; ``whole_ms``: from begin to the commit's end."""

    init_s: float = 0.0
    lasted_s: float = 0.0
    broker_cpu_s: float = 0.0
    client_cpu_s: float = 0.0
    commit_ms: list[float] = field(default_factory=list)
    whole_ms: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)

    @property
    def rate(self) -> float:
        return len(self.commit_ms) / self.lasted_s


def bench(kafka: LocalKafka, counts: Sequence[int], rounds: int, seconds: float = SECONDS) -> None:
    kafka.create_topic(TOPIC, partitions=PARTITIONS)
    seen: dict[int, list[Seen]] = {count: [] for count in counts}
    measure(kafka, 4, seconds, "warm-up")
    for number in range(rounds):
        for count in reversed(counts) if number % 2 else counts:
            seen[count].append(measure(kafka, count, seconds, f"{number}-{count}"))
            one = seen[count][-1]
            report.console.print(
                f"{count} producers, round {number + 1}/{rounds}: {one.rate:.0f}/s, init "
                f"{one.init_s:.1f} s, errors {dict(one.errors)}"
            )
    tell(seen)


def measure(kafka: LocalKafka, count: int, seconds: float, label: str) -> Seen:
    seen = Seen()
    began_s = time.perf_counter()
    producers = _made(kafka, count, label, seen)
    seen.init_s = time.perf_counter() - began_s
    end_s = time.perf_counter() + seconds
    threads = [
        threading.Thread(target=_loop, args=(producer, place % PARTITIONS, end_s, seen))
        for place, producer in enumerate(producers)
    ]
    cpu_s, own_s, began_s = (
        cpu_seconds(kafka.pid()) or 0.0,
        time.process_time(),
        time.perf_counter(),
    )
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen.lasted_s = time.perf_counter() - began_s
    seen.broker_cpu_s = (cpu_seconds(kafka.pid()) or 0.0) - cpu_s
    seen.client_cpu_s = time.process_time() - own_s
    return seen


def _made(kafka: LocalKafka, count: int, label: str, seen: Seen) -> list[Producer]:
    """Initialised, all at once."""
    made: list[Producer] = []

    def make(place: int) -> None:
        producer = Producer(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "transactional.id": f"scale-{label}-{place}",
                "transaction.timeout.ms": 60_000,
                "linger.ms": 0,
            }
        )
        try:
            producer.init_transactions(TIMEOUT_S)
            made.append(producer)
        except KafkaException as error:
            seen.errors[f"init: {error.args[0].name()}"] += 1

    threads = [threading.Thread(target=make, args=(place,)) for place in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return made


def _loop(producer: Producer, partition: int, end_s: float, seen: Seen) -> None:
    """Until ``end_s``. A producer whose error is fatal ends before."""
    while (began_s := time.perf_counter()) < end_s:
        try:
            producer.begin_transaction()
            producer.produce(TOPIC, b"x" * 100, partition=partition)
            producer.flush(TIMEOUT_S)
            flushed_s = time.perf_counter()
            producer.commit_transaction(TIMEOUT_S)
            ended_s = time.perf_counter()
            seen.commit_ms.append((ended_s - flushed_s) * 1000)
            seen.whole_ms.append((ended_s - began_s) * 1000)
        except KafkaException as error:
            what = error.args[0]
            seen.errors[what.name()] += 1
            if not what.txn_requires_abort():
                return
            producer.abort_transaction(TIMEOUT_S)


def tell(seen: dict[int, list[Seen]]) -> None:
    rows = []
    for count, runs in seen.items():
        rows.append(
            [
                str(count),
                report.spread([run.rate for run in runs], 0),
                report.spread([float(np.percentile(run.commit_ms, 50)) for run in runs], 1),
                report.spread([float(np.percentile(run.commit_ms, 99)) for run in runs], 1),
                report.spread([float(np.percentile(run.whole_ms, 99)) for run in runs], 1),
                report.spread([run.init_s for run in runs], 2),
                report.spread([run.broker_cpu_s * 1e3 / len(run.commit_ms) for run in runs], 2),
                report.spread([run.client_cpu_s * 1e3 / len(run.commit_ms) for run in runs], 2),
                str(dict(sum((run.errors for run in runs), Counter())) or "none"),
            ]
        )
    report.table(
        f"transactions of one record, {PARTITIONS} partitions, one broker: median (min to max)",
        [
            "producers",
            "commits/s",
            "commit p50 ms",
            "commit p99 ms",
            "whole p99 ms",
            "init of all s",
            "broker CPU ms",
            "client CPU ms",
            "errors",
        ],
        rows,
    )
