"""The plain read_committed reader (``java/Reader.java``) and its counterpart for a table."""

from __future__ import annotations

import json
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import psycopg
from psycopg import sql

from bench.peers import java
from bench.peers.settings import KEYS, TABLE

HEAP_MB = 2048
LOCK_TIMEOUT_MS = 60_000
"""A dead contender's session may take a moment to be noticed."""
LOOK_PAUSE_MAX_S = 0.2
"""Else a look that waits for a processor, while a contender starts, would put off the next one by
many seconds."""


class Gauge(Protocol):
    """What is visible of a contender's output."""

    def wait(self, expected: int, quiet_ms: int, timeout_ms: int) -> dict[str, Any]:
        """Until ``expected`` records are visible and nothing new came for ``quiet_ms``.

        Returns ``records``, ``visible`` (distinct ones), ``repeats``, ``changed_us`` (the clock at
        the last change) and ``complete``.
        """

    def first_after(self, sent_us: int, timeout_ms: int) -> int | None:
        """The clock when the first record that was sent then or later was seen; None if none was in
        time.
        """


class Reader:
    """The process; it serves one topic at a time."""

    def __init__(self, servers: str, log: Path) -> None:
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [*java.command("Reader", java.streams_jars(), HEAP_MB), servers],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def open(self, topic: str, job: str) -> None:
        self._ask("open", topic, job)

    def wait(self, expected: int, quiet_ms: int, timeout_ms: int) -> dict[str, Any]:
        return self._ask("await", expected, quiet_ms, timeout_ms)

    def follow(self) -> None:
        """From now on read as things come, and keep when."""
        self._ask("follow")

    def latencies(self, from_us: int, to_us: int) -> dict[str, Any]:
        """Of the records that were sent then: ``records``, ``p50_ms``, ``p95_ms``, ``p99_ms``,
        ``p100_ms``.
        """
        return self._ask("stats", from_us, to_us)

    def first_after(self, sent_us: int, timeout_ms: int) -> int | None:
        """Only once it follows."""
        seen: int | None = self._ask("after", sent_us, timeout_ms)["seen_us"]
        return seen

    def state(self) -> dict[str, Any]:
        return self._ask("state")

    def wrong_keys(self, records: int) -> int:
        """How many keys of the running aggregate do not hold what ``records`` records must have
        left.
        """
        found = self._ask("aggregates", records, KEYS)
        return int(found["keys"]) - int(found["keys_right"])

    def _ask(self, *words: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the reader ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"the reader failed: {answer['error']}")
        return answer


class Table:
    """What is visible of the table, by another session; it looks no more than a fifth of the
    time.
    """

    def __init__(self, url: str) -> None:
        self._rows, self._changed_us = -1, 0
        self._connection = psycopg.connect(
            url, autocommit=True, options=f"-c lock_timeout={LOCK_TIMEOUT_MS}"
        )

    def make(self) -> None:
        self._rows, self._changed_us = -1, 0
        # Whoever was killed may have left prepared transactions, and they hold the table.
        for (name,) in self._connection.execute("SELECT gid FROM pg_prepared_xacts").fetchall():
            self._connection.execute(sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(name)))
        self._connection.execute(f"DROP TABLE IF EXISTS {TABLE}".encode())
        self._connection.execute(
            f"CREATE TABLE {TABLE} (id bigint, sent bigint, text varchar)".encode()
        )

    def wait(self, expected: int, quiet_ms: int, timeout_ms: int) -> dict[str, Any]:
        end_s = time.monotonic() + timeout_ms / 1000
        while True:
            began_s = time.monotonic()
            rows = self._number("count(*)")
            now_us = time.time_ns() // 1000
            if rows != self._rows:
                self._rows, self._changed_us = rows, now_us
            complete = False
            if now_us - self._changed_us > quiet_ms * 1000:
                complete = rows >= expected and self._number("count(DISTINCT id)") >= expected
            if complete or time.monotonic() > end_s:
                distinct = self._number("count(DISTINCT id)")
                return {
                    "records": rows,
                    "visible": distinct,
                    "repeats": rows - distinct,
                    "changed_us": self._changed_us,
                    "complete": complete,
                }
            time.sleep(max(0.02, 4 * (time.monotonic() - began_s)))

    def first_after(self, sent_us: int, timeout_ms: int) -> int | None:
        """Looks every 20 ms, or a twentieth of the time: each look reads the table."""
        end_s = time.monotonic() + timeout_ms / 1000
        found = f"SELECT 1 FROM {TABLE} WHERE sent >= {sent_us} LIMIT 1".encode()
        while True:
            began_s = time.monotonic()
            if self._connection.execute(found).fetchone() is not None:
                return time.time_ns() // 1000
            if time.monotonic() > end_s:
                return None
            pause_s = 19 * (time.monotonic() - began_s)
            time.sleep(min(max(0.02, pause_s), LOOK_PAUSE_MAX_S))

    def _number(self, what: str) -> int:
        row = self._connection.execute(f"SELECT {what} FROM {TABLE}".encode()).fetchone()
        assert row is not None
        return int(row[0])

    def close(self) -> None:
        self._connection.close()


class Both:
    """What is visible in both of two outputs: as far as the one that lags.

    Looked at side by side: whoever looked at one after the other would find the second one late by
    the time that reading the first one took.
    """

    def __init__(self, one: Gauge, other: Gauge) -> None:
        self._gauges = (one, other)

    def wait(self, expected: int, quiet_ms: int, timeout_ms: int) -> dict[str, Any]:
        with ThreadPoolExecutor(len(self._gauges)) as looking:
            one, other = looking.map(
                lambda gauge: gauge.wait(expected, quiet_ms, timeout_ms), self._gauges
            )
        return {
            "records": one["records"] + other["records"],
            "visible": min(one["visible"], other["visible"]),
            "repeats": one["repeats"] + other["repeats"],
            "changed_us": max(one["changed_us"], other["changed_us"]),
            "complete": one["complete"] and other["complete"],
        }

    def first_after(self, sent_us: int, timeout_ms: int) -> int | None:
        """In the one where it was seen later."""
        seen = [gauge.first_after(sent_us, timeout_ms) for gauge in self._gauges]
        return None if None in seen else max(each for each in seen if each is not None)
