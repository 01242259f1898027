"""Draining a backlog: records per second in steady state, CPU for each of them, peak memory, and
the start.

A contender is started on a topic whose loads stand behind gates (see ``records.Gates``). The first
load is its start: from the start of its process until the output holds the load. Then the gates are
opened one by one, each when the output holds the load before: for one that warms it up (JVMs
compile meanwhile), for a small one and for a large one. What the large one takes more than the
small one is the steady state: start-up, and the wait for the last commit, fall out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.peers.contender import AGGREGATE, COPY, FAN_OUT, POSTGRES, Contender
from bench.peers.place import Place, Run
from bench.peers.records import Gates
from bench.peers.result import Results, shortened
from bench.process import ContenderFailed, ContenderProcess

INTERVAL_MS = 500
LOAD_TIMEOUT_MS = 600_000
QUIET_MS = 300
"""A load is there when its records are counted, however short the silence; more is waited for at
the end only.
"""
LAST_QUIET_MS = INTERVAL_MS + 700


@dataclass(frozen=True)
class Kind:
    """One job at one size of record, and its loads: for the start, to warm up, small, large."""

    job: str
    bytes: int
    loads: tuple[int, int, int, int]

    def scaled(self, scale: float) -> list[int]:
        return [max(1_000, int(load * scale)) for load in self.loads]


KINDS = (
    Kind(COPY, 100, (20_000, 2_000_000, 300_000, 2_700_000)),
    Kind(COPY, 1_000, (20_000, 1_200_000, 120_000, 1_080_000)),
    Kind(AGGREGATE, 100, (20_000, 1_000_000, 150_000, 1_350_000)),
    Kind(POSTGRES, 100, (20_000, 1_500_000, 240_000, 2_160_000)),
    Kind(FAN_OUT, 100, (20_000, 1_000_000, 160_000, 1_440_000)),
)


def bench(
    place: Place, kind: Kind, contender: Contender, number: int, scale: float, results: Results
) -> None:
    """One run; one that failed is a result as well."""
    row = {
        "phase": "drain",
        "job": kind.job,
        "bytes": kind.bytes,
        "contender": contender.name,
        "round": number,
    }
    loads = kind.scaled(scale)
    with place.writer(kind.bytes, keyed=kind.job == AGGREGATE, linger_ms=20) as writer:
        gates = Gates(place.kafka.bootstrap_servers, writer, loads)
        with place.run(contender, kind.job, INTERVAL_MS, writer.topic) as run:
            life = run.start()
            try:
                found = measured(life, run, gates, loads, place.broker_s)
                life.check()
                if kind.job == AGGREGATE:
                    found["wrong_keys"] = place.reader.wrong_keys(writer.count)
                found["exact"] = (
                    found["complete"] and not found["repeats"] and not found.get("wrong_keys")
                )
            except ContenderFailed as error:
                found = {"exact": False, "error": shortened(error)}
            finally:
                life.kill()
            gates.discard()
    results.add(**row, loads=loads, interval_ms=INTERVAL_MS, **found)


def measured(
    life: ContenderProcess,
    run: Run,
    gates: Gates,
    loads: list[int],
    broker_cpu_s: Callable[[], float],
) -> dict[str, Any]:
    """Raises ContenderFailed: it died, or a load did not come through."""
    took_s, spent_s, broker_s = [], [], []
    began_us, before_s, expected = life.began_us, 0.0, 0
    for number, load in enumerate(loads):
        if number:
            before_s = life.cpu_s()
            began_us = gates.open_next()
        broker_before_s = broker_cpu_s()
        expected += load
        quiet_ms = LAST_QUIET_MS if number == len(loads) - 1 else QUIET_MS
        seen = run.wait(life, expected, quiet_ms, LOAD_TIMEOUT_MS)
        if not seen["complete"]:
            raise ContenderFailed(
                f"{seen['visible']:,} of {expected:,} records were there in time: {life.log_tail()}"
            )
        took_s.append((seen["changed_us"] - began_us) / 1e6)
        spent_s.append(life.cpu_s() - before_s)
        broker_s.append(broker_cpu_s() - broker_before_s)
    more, longer_s = loads[-1] - loads[-2], took_s[-1] - took_s[-2]
    return {
        "start_s": took_s[0],
        "start_cpu_s": spent_s[0],
        "took_s": took_s,
        "spent_s": spent_s,
        "rate_per_s": more / longer_s if longer_s > 0 else None,
        "cpu_us_per_record": (spent_s[-1] - spent_s[-2]) * 1e6 / more,
        "broker_us_per_record": (broker_s[-1] - broker_s[-2]) * 1e6 / more,
        "peak_mib": life.peak_mib,
        "written": seen["records"],
        "complete": seen["complete"],
        "visible": seen["visible"],
        "repeats": seen["repeats"],
    }
