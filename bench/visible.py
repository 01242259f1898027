"""How soon a reader of a PostgreSQL table sees a record: exactum beside Spark's JDBC append by
foreachBatch, which is at-least-once; both in every round, in turn.

A record carries the clock of the instant it was given to Kafka's producer, and a session of the
reader's own notes the clock when a look first finds its row. After each run the rows are counted; a
run that is not exact ends the benchmark.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from contextlib import ExitStack
from typing import Any

import psycopg

from bench import report
from bench.peers.contender import BY_NAME, POSTGRES, REFERENCE, Contender, turned
from bench.peers.place import Place
from bench.peers.records import Feeder
from bench.peers.settings import TABLE
from bench.process import ContenderProcess

CONTENDERS = [BY_NAME[REFERENCE], BY_NAME["Spark's JDBC append"]]
"""The last one is what the others are compared with."""
INTERVALS_MS = (100, 1_000)
RATE_PER_S = 1_000
BYTES = 100
WARM_S, WINDOW_S = 25.0, 20.0
PAUSE_S = 0.005
START_TIMEOUT_MS, VISIBLE_TIMEOUT_MS = 600_000, 180_000
Percentiles = tuple[float, float]
"""p50 and p99, in milliseconds."""


class Onlooker:
    """Finds rows as they become visible. Their numbers begin at 0 and have no gap."""

    def __init__(self, session: psycopg.Connection[Any]) -> None:
        self._session = session
        self._first = 0  # of those that were not seen
        self._seen: set[int] = set()  # above it
        session.execute(f"CREATE INDEX ON {TABLE} (id)".encode())

    def watched(self, life: ContenderProcess, seconds: float) -> list[float]:
        """Of each row that is first seen in this time: milliseconds since it was sent."""
        found: list[float] = []
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            began_s = time.monotonic()
            query = f"SELECT id, sent FROM {TABLE} WHERE id >= {self._first}"
            rows = self._session.execute(query.encode()).fetchall()
            now_us = time.time_ns() // 1000
            found += [(now_us - sent) / 1000 for number, sent in rows if number not in self._seen]
            self._seen.update(number for number, _ in rows)
            while self._first in self._seen:
                self._seen.remove(self._first)
                self._first += 1
            life.check()
            time.sleep(max(PAUSE_S, 4 * (time.monotonic() - began_s)))
        return found


def once(place: Place, contender: Contender, interval_ms: int, scale: float) -> Percentiles:
    """One run."""
    with (
        place.writer(BYTES, keyed=False, linger_ms=0) as writer,
        place.run(contender, POSTGRES, interval_ms, writer.topic) as run,
        psycopg.connect(run.order.postgres_url, autocommit=True) as session,
        Feeder(writer) as feeder,
    ):
        onlooker = Onlooker(session)
        life = run.start()
        try:
            feeder.rate(RATE_PER_S)
            run.first_after(life, 0, START_TIMEOUT_MS)
            onlooker.watched(life, WARM_S * scale)
            found = onlooker.watched(life, WINDOW_S * scale)
            sent = feeder.stop()
            seen = run.wait(life, sent, interval_ms + 1_000, VISIBLE_TIMEOUT_MS)
        finally:
            life.kill()
    if not seen["complete"] or seen["repeats"]:
        raise RuntimeError(f"{contender.name}: of {sent:,} rows there are {seen}")
    hundredths = statistics.quantiles(found, n=100)
    return hundredths[49], hundredths[98]


def bench(rounds: int, scale: float = 1.0) -> None:
    runs: dict[tuple[int, str], list[Percentiles]] = defaultdict(list)
    with ExitStack() as stack:
        place = Place(stack, postgres=True)
        for number in range(rounds):
            for interval_ms in INTERVALS_MS:
                for contender in turned(CONTENDERS, number):
                    p50, p99 = once(place, contender, interval_ms, scale)
                    runs[interval_ms, contender.name].append((p50, p99))
                    report.console.print(
                        f"round {number + 1}/{rounds} {interval_ms:5} ms {contender.name:22} "
                        f"p50 {p50:8.0f} ms p99 {p99:8.0f} ms"
                    )
    for interval_ms in INTERVALS_MS:
        show(interval_ms, {each.name: runs[interval_ms, each.name] for each in CONTENDERS})


def show(interval_ms: int, runs: dict[str, list[Percentiles]]) -> None:
    base = list(zip(*runs[CONTENDERS[-1].name], strict=True))
    drawn = []
    for name, found in runs.items():
        values = list(zip(*found, strict=True))
        ratios = [report.ratios(own, other) for own, other in zip(values, base, strict=True)]
        drawn.append([name, *(report.spread(own, 0) for own in values), *ratios])
    report.table(
        f"{RATE_PER_S:,} records/s into PostgreSQL, a micro-batch each {interval_ms} ms: median "
        "(min to max)",
        ["contender", "p50 ms", "p99 ms", "ratio of p50", "ratio of p99"],
        drawn,
    )
