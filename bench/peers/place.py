"""The servers of one benchmark, and how a contender's run begins and ends there."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psutil

from bench.peers.contender import COPY, FAN_OUT, POSTGRES, TABLE_JOBS, Contender
from bench.peers.order import Order
from bench.peers.reader import Both, Gauge, Reader, Table
from bench.peers.records import Writer
from bench.peers.settings import PARTITIONS, TABLE
from bench.process import ContenderFailed, ContenderProcess, cpu_seconds
from exactum.local import LocalKafka
from tests.kit.servers.postgres import LocalPostgres

ROOT = Path(__file__).resolve().parents[2]
SLICE_MS = 10_000
"""How often somebody who waits looks whether there is still anything to wait for."""
CommandOf = Callable[[Order], list[str]]


@dataclass(frozen=True)
class Run:
    """One run: its topics, its folder, who reads its output, and the command that starts it
    (again).
    """

    order: Order
    command: list[str]
    gauge: Gauge
    folder: Path
    environment: dict[str, str]

    def start(self) -> ContenderProcess:
        return ContenderProcess(self.command, self.folder / "log", self.environment)

    def wait(
        self, life: ContenderProcess, expected: int, quiet_ms: int, timeout_ms: int
    ) -> dict[str, Any]:
        """As ``Gauge.wait``, for ``timeout_ms`` at most. Raises ContenderFailed if the life ends
        meanwhile.
        """
        for _ in range(max(1, timeout_ms // SLICE_MS)):
            seen = self.gauge.wait(expected, quiet_ms, SLICE_MS)
            life.check()
            if seen["complete"]:
                break
        return seen

    def first_after(self, life: ContenderProcess, sent_us: int, timeout_ms: int) -> int:
        """As ``Gauge.first_after``. Raises ContenderFailed if none is seen in time, or the life
        ends meanwhile.
        """
        for _ in range(max(1, timeout_ms // SLICE_MS)):
            seen_us = self.gauge.first_after(sent_us, SLICE_MS)
            if seen_us is not None:
                return seen_us
            life.check()
        raise ContenderFailed(f"nothing new was visible in {timeout_ms} ms: {life.log_tail()}")


class Place:
    """Kafka, PostgreSQL where it is needed, and the reader."""

    def __init__(self, stack: ExitStack, *, postgres: bool) -> None:
        self._numbers = itertools.count()
        self._folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="exactum-peers-"))
        )
        # Two more I/O threads than a broker on two cores needs would only take turns; nothing is
        # ever expired here. What a run leaves is deleted when it is over, not a minute later: that
        # would give memory to whoever runs then.
        properties = {
            "log.retention.ms": -1,
            "log.segment.delete.delay.ms": 0,
            "num.network.threads": 2,
            "num.io.threads": 2,
        }
        self.kafka = stack.enter_context(
            LocalKafka(properties=properties, heap_mb=768, start_timeout_s=300)
        )
        self.reader = stack.enter_context(
            Reader(self.kafka.bootstrap_servers, self._folder / "reader.log")
        )
        self._postgres: LocalPostgres | None = None
        self._table: Table | None = None
        if postgres:
            self._postgres = stack.enter_context(
                LocalPostgres(settings={"max_prepared_transactions": 64})
            )
            self._table = Table(self._postgres.url)
            stack.callback(self._table.close)

    def broker_s(self) -> float:
        """User and system time of the broker so far."""
        return cpu_seconds(psutil.Process(self.kafka.pid()))

    @contextmanager
    def writer(self, size: int, *, keyed: bool, linger_ms: int) -> Iterator[Writer]:
        """Of a new topic, which is deleted at the end."""
        topic = f"in-{next(self._numbers)}"
        self.kafka.create_topic(topic, partitions=PARTITIONS)
        writer = Writer(self.kafka.bootstrap_servers, topic, size, keyed=keyed, linger_ms=linger_ms)
        try:
            yield writer
        finally:
            writer.close()
            self.kafka.delete_topic(topic)

    @contextmanager
    def run(
        self,
        contender: Contender,
        job: str,
        interval_ms: int,
        source: str,
        command: CommandOf | None = None,
    ) -> Iterator[Run]:
        """A run of a contender that reads the topic ``source``; what it wrote is gone at the end.

        ``command`` says how it is started, where that is not the contender's usual way.
        """
        number = next(self._numbers)
        folder = self._folder / f"run-{number}"
        folder.mkdir()
        order = Order(
            job=job,
            guarantee=contender.guarantee,
            servers=self.kafka.bootstrap_servers,
            source=source,
            target="" if job == POSTGRES else f"out-{number}",
            table=TABLE if job in TABLE_JOBS else "",
            group=f"run-{number}",
            interval_ms=interval_ms,
            folder=str(folder),
            **self._server(job),
        )
        if order.target:
            self.kafka.create_topic(order.target, partitions=PARTITIONS)
            self.reader.open(order.target, "copy" if job in (COPY, FAN_OUT) else "aggregate")
        gauge: Gauge = self.reader
        if order.table:
            assert self._table is not None
            self._table.make()
            gauge = Both(self.reader, self._table) if order.target else self._table
        environment = {
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
            "TMPDIR": str(folder),
        }
        try:
            yield Run(order, (command or contender.command)(order), gauge, folder, environment)
        finally:
            if order.target:
                self.kafka.delete_topic(order.target)
            shutil.rmtree(folder, ignore_errors=True)

    def _server(self, job: str) -> dict[str, Any]:
        if job not in TABLE_JOBS:
            return {}
        assert self._postgres is not None
        parts = urlsplit(self._postgres.url)
        return {
            "postgres_url": self._postgres.url,
            "jdbc_url": f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}?reWriteBatchedInserts=true",
            "user": unquote(parts.username or ""),
            "password": unquote(parts.password or ""),
        }
