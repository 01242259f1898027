"""Following a topic at a fixed rate: how long until a read_committed reader sees a record, and what
CPU that takes.

One run for each commit interval; in it one window after another: idle, then the rates. A record
carries the clock of the instant it was given to the producer, the reader notes the clock when a
poll returned it. Writer, broker, contender and reader share the machine: at a high rate there is
little left for the contender.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

from bench.peers.contender import COPY, EXACTLY, Contender
from bench.peers.place import Place, Run
from bench.peers.reader import Reader
from bench.peers.records import Feeder
from bench.peers.result import Results, shortened
from bench.process import ContenderFailed, ContenderProcess

BYTES = 100
INTERVALS_MS = (100, 500, 1_000, 5_000)
RATES: Sequence[float] = (1_000, 20_000)
MIDDLE_INTERVAL_MS = 500
"""Half the contender's own drain rate is tried at this interval only, and so are the at-least-once
modes of those that have an exactly-once one. ``HIGH_RATE`` is tried at this and shorter ones."""
HIGH_RATE = 250_000
"""The same for everybody, whatever they drain."""
LONG_INTERVAL_MS = 5_000
"""At so long an interval the latency is the interval: one rate shows it."""
WINDOW_S = 4.0
WINDOW_INTERVALS = 2.5
"""A window holds at least so many commit intervals."""
IDLE_S = 4.0
WARM_S = 25.0
"""At the highest rate that is to come; JVMs compile meanwhile what they need for it."""
START_TIMEOUT_MS = 600_000
VISIBLE_TIMEOUT_MS = 180_000


def takes_part(contender: Contender, interval_ms: int) -> bool:
    return (
        interval_ms == MIDDLE_INTERVAL_MS
        or contender.guarantee == EXACTLY
        or contender.engine == "spark"
    )


def bench(
    place: Place, contender: Contender, interval_ms: int, number: int, results: Results
) -> None:
    """One run; one that failed is a result as well."""
    row: dict[str, Any] = {
        "phase": "tail",
        "contender": contender.name,
        "interval_ms": interval_ms,
        "round": number,
    }
    tried = RATES[:1] if interval_ms >= LONG_INTERVAL_MS else RATES
    rates: list[tuple[str, float]] = [(f"{rate:,.0f}", rate) for rate in tried]
    if interval_ms <= MIDDLE_INTERVAL_MS:
        rates.append((f"{HIGH_RATE:,}", HIGH_RATE))
    drained = results.drain_rates(contender.name, BYTES)
    if drained and interval_ms == MIDDLE_INTERVAL_MS:
        rates.append(("half", statistics.median(drained) / 2))
    with (
        place.writer(BYTES, keyed=False, linger_ms=0) as writer,
        place.run(contender, COPY, interval_ms, writer.topic) as run,
        Feeder(writer) as feeder,
    ):
        place.reader.follow()
        life = run.start()
        try:
            windows = followed(life, run, feeder, interval_ms, rates)
            sent = feeder.stop()
            seen = run.wait(life, sent, interval_ms + 1_000, VISIBLE_TIMEOUT_MS)
            windows = [with_latencies(window, place.reader) for window in windows]
        except ContenderFailed as error:
            results.add(**row, rate="", exact=False, error=shortened(error))
            return
        finally:
            life.kill()
    exact = seen["complete"] and not seen["repeats"]
    for window in windows:
        results.add(
            **row,
            **window,
            exact=exact,
            visible=seen["visible"],
            sent=sent,
            repeats=seen["repeats"],
        )


def with_latencies(window: dict[str, Any], reader: Reader) -> dict[str, Any]:
    """Asked for when everything is visible: what came latest must not be missing."""
    if window["rate"] == "idle":
        return window
    seen = reader.latencies(window["from_us"], window["to_us"])
    return {
        **window,
        "rate_per_s": seen["records"] * 1e6 / (window["to_us"] - window["from_us"]),
        **seen,
    }


def followed(
    life: ContenderProcess,
    run: Run,
    feeder: Feeder,
    interval_ms: int,
    rates: Sequence[tuple[str, float]],
) -> list[dict[str, Any]]:
    """Raises ContenderFailed: it died, or nothing of it was seen."""
    feeder.rate(1_000)
    run.first_after(life, 0, START_TIMEOUT_MS)
    feeder.rate(max(rate for _, rate in rates))
    time.sleep(WARM_S)
    feeder.rate(0)
    time.sleep(1 + interval_ms / 1000)
    windows: list[dict[str, Any]] = [{"rate": "idle", **watched(life, IDLE_S)}]
    window_s = max(WINDOW_S, WINDOW_INTERVALS * interval_ms / 1000)
    for name, rate in rates:
        feeder.rate(rate)
        time.sleep(0.5 + interval_ms / 1000)
        window = {"rate": name, **watched(life, window_s)}
        feeder.rate(1_000)  # it goes on, so that somebody who commits by what comes commits
        run.first_after(life, window["to_us"], VISIBLE_TIMEOUT_MS)
        windows.append(window)
    feeder.rate(0)
    return windows


def watched(life: ContenderProcess, seconds: float) -> dict[str, Any]:
    """The cores that were used in a stretch of time, and its beginning and end."""
    from_us, spent_s = time.time_ns() // 1000, life.cpu_s()
    time.sleep(seconds)
    to_us = time.time_ns() // 1000
    return {
        "cores": (life.cpu_s() - spent_s) * 1e6 / (to_us - from_us),
        "from_us": from_us,
        "to_us": to_us,
    }
