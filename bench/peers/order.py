"""What a contender's process is told, as NAME=VALUE on its command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

from bench.peers.settings import BATCH_BYTES, BUFFER_BYTES, LINGER_MS, PARALLELISM


@dataclass(frozen=True)
class Order:
    """One run: read ``source``, do ``job``, write ``target`` or ``table`` or both, and go on for
    ever.

    Attributes:
        job: copy, aggregate, postgres or fan-out.
        guarantee: "exactly once" or "at least once".
        trigger: "interval", or "at once": exactum's next micro-batch begins when one is complete.
        target, table: of Kafka and of PostgreSQL; empty where the job does not write there.
        group: a name of this run's own, for consumer groups and transactional ids.
        interval_ms: between two commits, checkpoints or triggers.
        folder: state and checkpoints; a restart is given the same one.
        postgres_url, jdbc_url, user, password: of the server, for the jobs that write a table.
    """

    job: str
    guarantee: str
    servers: str
    source: str
    target: str
    table: str
    group: str
    interval_ms: int
    folder: str
    engine: str = ""
    trigger: str = "interval"
    postgres_url: str = ""
    jdbc_url: str = ""
    user: str = ""
    password: str = ""

    def arguments(self) -> list[str]:
        """For the command line; the settings that all contenders share go along."""
        shared = {
            "parallelism": PARALLELISM,
            "linger_ms": LINGER_MS,
            "batch_bytes": BATCH_BYTES,
            "buffer_bytes": BUFFER_BYTES,
        }
        return [f"{name}={value}" for name, value in {**asdict(self), **shared}.items()]

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> Order:
        given = dict(argument.split("=", 1) for argument in arguments)
        own = {field.name: given[field.name] for field in fields(cls)}
        return cls(**{**own, "interval_ms": int(own["interval_ms"])})  # type: ignore[arg-type]
