"""Who takes part, in which jobs, and how each is started."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace

from bench.peers import java
from bench.peers.order import Order

COPY, AGGREGATE, POSTGRES, FAN_OUT = "copy", "aggregate", "postgres", "fan-out"
KAFKA_JOBS = (COPY, AGGREGATE)
TABLE_JOBS = (POSTGRES, FAN_OUT)
"""Those that write a table; fan-out writes a topic as well."""


@dataclass(frozen=True)
class Contender:
    """One column of the tables.

    Attributes:
        name: in tables, and for ``--contenders``.
        engine: what runs it.
        guarantee: "exactly once" or "at least once".
        jobs: what it takes part in.
        trigger: exactum's, "interval" or "at once", whatever the interval of the others is.
    """

    name: str
    engine: str
    guarantee: str
    jobs: tuple[str, ...]
    trigger: str = "interval"

    def command(self, order: Order) -> list[str]:
        own = replace(
            order,
            engine=self.engine,
            guarantee=self.guarantee,
            trigger=self.trigger,
        ).arguments()
        if self.engine in ("exactum", "spark"):
            return [sys.executable, "-m", "bench.peers.spark_peer", *own]
        if self.engine == "flink":
            return [*java.command("FlinkPeer", java.flink_jars()), *own]
        return [*java.command("StreamsPeer", java.streams_jars()), *own]


EXACTLY, AT_LEAST = "exactly once", "at least once"
REFERENCE = "exactum"
"""Everybody's ratios are to it."""
ALL = (
    Contender(REFERENCE, "exactum", EXACTLY, (*KAFKA_JOBS, *TABLE_JOBS)),
    Contender("exactum, no interval", "exactum", EXACTLY, (COPY,), trigger="at once"),
    Contender("exactum, at least once", "exactum", AT_LEAST, KAFKA_JOBS),
    Contender("Spark's own sink", "spark", AT_LEAST, KAFKA_JOBS),
    Contender("Flink", "flink", EXACTLY, KAFKA_JOBS),
    Contender("Flink, at least once", "flink", AT_LEAST, KAFKA_JOBS),
    Contender("Kafka Streams", "streams", EXACTLY, KAFKA_JOBS),
    Contender("Flink, XA", "flink", EXACTLY, TABLE_JOBS),
    Contender("Spark's JDBC append", "spark", AT_LEAST, (POSTGRES,)),
    Contender("Spark, foreachBatch into both", "spark", AT_LEAST, (FAN_OUT,)),
)
BY_NAME: Mapping[str, Contender] = {contender.name: contender for contender in ALL}


def of(job: str, names: tuple[str, ...] = ()) -> list[Contender]:
    return [each for each in ALL if job in each.jobs and (not names or each.name in names)]


def turned(contenders: list[Contender], number: int) -> list[Contender]:
    """Another one begins each round: going first or last is nobody's advantage."""
    turn = number % max(1, len(contenders))
    return contenders[turn:] + contenders[:turn]
