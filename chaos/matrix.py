"""What the matrix has: points of an epoch, faults, sinks; and for each cell whether it can happen.
Data only.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    """A moment of an epoch: ``step`` and ``when`` of ``tests/crash/deaths.py``; ``nth`` is added by
    the cell_run.
    """

    name: str
    title: str
    step: str
    when: str
    where: str
    """``driver`` or ``task``."""
    decided: bool = False
    """The epoch's COMMIT is on record, and its sinks are not all committed for certain."""
    rows: bool = False
    """A transaction of the epoch is open."""


POINTS: Sequence[Point] = (
    Point("start", "a start has done nothing yet", "list_open", "before", "driver"),
    Point(
        "recovery",
        "a start finds a decided epoch",
        "commit",
        "before",
        "driver",
        decided=True,
        rows=True,
    ),
    Point("planned", "offsets are planned", "batch", "before", "driver"),
    Point("reading", "a task has read, and written nothing", "reading", "before", "task"),
    Point("begun", "a task is about to write", "write", "before", "task"),
    Point("mid-write", "a task has rows in its transaction", "write", "after", "task", rows=True),
    Point("state", "state is written (a stateful query)", "prepare", "before", "task", rows=True),
    Point("preparing", "a task is about to prepare", "prepare", "before", "task", rows=True),
    Point(
        "flushed", "a task has prepared, which is to flush", "prepare", "after", "task", rows=True
    ),
    Point("prepared", "all tasks have prepared", "verify", "before", "driver", rows=True),
    Point("verified", "all is ready to be decided", "decide", "before", "driver", rows=True),
    Point(
        "decided", "the decision is on record", "decide", "after", "driver", decided=True, rows=True
    ),
    Point(
        "committing",
        "a sink is about to commit",
        "commit",
        "before",
        "driver",
        decided=True,
        rows=True,
    ),
    Point(
        "half",
        "between two commits of one sink",
        "commit",
        "half",
        "driver",
        decided=True,
        rows=True,
    ),
    Point(
        "between",
        "one sink has committed, others have not",
        "commit",
        "after",
        "driver",
        decided=True,
        rows=True,
    ),
    Point("committed", "all are committed, Spark does not know", "batch", "after", "driver"),
    Point("logged", "Spark has written its commit log", "batch", "before", "driver"),
    Point("mirrored", "the group's offsets are committed", "batch", "before", "driver"),
    Point(
        "savepoint",
        "between two epochs, and half of a savepoint is copied",
        "batch",
        "before",
        "driver",
    ),
)


@dataclass(frozen=True)
class Fault:
    """``on``: the servers that it is about; empty: the driver, the disk or the checkpoint."""

    name: str
    title: str
    kind: str
    """``kill``, ``pause``, ``rival``, ``network``, ``disk``, ``checkpoint``, ``expiry`` or
    ``clock``.
    """
    server: str = ""


FAULTS: Sequence[Fault] = (
    Fault("kill-driver", "SIGKILL of the driver and all below it", "kill"),
    Fault("kill-worker", "SIGKILL of Python workers", "kill"),
    Fault("kill-broker", "SIGKILL of the broker", "kill", "kafka"),
    Fault("kill-postgres", "SIGKILL of PostgreSQL", "kill", "postgres"),
    Fault("kill-mariadb", "SIGKILL of MariaDB", "kill", "mysql"),
    Fault("pause", "SIGSTOP past the transaction timeout, and on", "pause"),
    Fault("second-copy", "a second copy of the job", "rival"),
    Fault("foreign-init", "a foreign init_transactions with our id", "rival", "kafka"),
    Fault("reply-lost", "the server's replies are lost", "network"),
    Fault("delayed", "every request and reply is late", "network"),
    Fault("reset", "every connection is reset", "network"),
    Fault("cut", "the network between driver and server is cut, then whole", "network"),
    Fault("half-open", "the server has closed, the driver does not know", "network"),
    Fault("disk-full", "no room for checkpoint, decisions and files", "disk"),
    Fault("truncated", "killed, and the newest file of the checkpoint is cut short", "checkpoint"),
    Fault("missing", "killed, and the newest file of the checkpoint is gone", "checkpoint"),
    Fault("other-query", "killed, and the checkpoint has another query's files", "checkpoint"),
    Fault("expired", "the broker times the transaction out", "expiry", "kafka"),
    Fault(
        "ids-expired",
        "killed, and the broker has forgotten our transactional ids",
        "expiry",
        "kafka",
    ),
    Fault("clock", "the driver's clock moves an hour", "clock"),
)


@dataclass(frozen=True)
class Family:
    """One way to write: ``kinds`` of sinks."""

    name: str
    title: str
    kinds: Sequence[str]
    log: str = ""
    """The server that has the decision log; empty: the checkpoint's folder."""

    @property
    def servers(self) -> tuple[str, ...]:
        """The servers that it writes to or decides on."""
        return tuple(
            dict.fromkeys(
                [*(kind for kind in self.kinds if kind != "files"), *([self.log] * bool(self.log))]
            )
        )


FAMILIES: Sequence[Family] = (
    Family("kafka", "Kafka", ("kafka",)),
    Family("postgres", "PostgreSQL", ("postgres",)),
    Family("mariadb", "MariaDB", ("mysql",)),
    Family("files", "Files", ("files",)),
    Family(
        "all",
        "Kafka, PostgreSQL, MariaDB and files in one epoch",
        ("kafka", "postgres", "mysql", "files"),
    ),
    Family(
        "postgres-log",
        "PostgreSQL, with the decisions in it too",
        ("postgres",),
        "postgres",
    ),
)

POINT = {point.name: point for point in POINTS}
FAULT = {fault.name: fault for fault in FAULTS}
FAMILY = {family.name: family for family in FAMILIES}


@dataclass(frozen=True, order=True)
class Cell:
    """One square of the matrix."""

    family: str
    point: str
    fault: str

    @property
    def name(self) -> str:
        return f"{self.family}:{self.point}:{self.fault}"

    @classmethod
    def of(cls, name: str) -> Cell:
        family, _, rest = name.partition(":")
        point, _, fault = rest.partition(":")
        if family not in FAMILY or point not in POINT or fault not in FAULT:
            raise ValueError(
                f"no cell {name!r}: a cell is sink:point:fault, see python -m chaos --list"
            )
        return cls(family, point, fault)

    @property
    def impossible(self) -> str:
        """Why it cannot happen; empty if it can."""
        return _point_impossible(FAMILY[self.family], POINT[self.point]) or _fault_impossible(
            FAMILY[self.family], POINT[self.point], FAULT[self.fault]
        )


def cells() -> Iterator[Cell]:
    """All squares, also those that cannot happen."""
    for family, point, fault in itertools.product(FAMILIES, POINTS, FAULTS):
        yield Cell(family.name, point.name, fault.name)


def _point_impossible(family: Family, point: Point) -> str:
    if point.name == "half" and family.kinds != ("kafka",):
        return HALF[family.kinds[0] if len(family.kinds) == 1 else "all"]
    if point.name == "between" and len(family.kinds) == 1:
        return "the query has one sink"
    return ""


HALF: Mapping[str, str] = {
    "postgres": "staged rows are committed in one local transaction",
    "mysql": "staged rows are committed in one local transaction",
    "files": "the files of an epoch are published in one call; tests/files stops it between two "
    "of them",
    "all": "the same as in the family of each sink alone; here it is between two sinks",
}


def _fault_impossible(family: Family, point: Point, fault: Fault) -> str:
    if (
        fault.server
        and fault.server not in family.servers
        and not (fault.server == "kafka" and fault.kind == "kill")
    ):
        return f"the query writes nothing to {TITLES[fault.server]}"
    is_source_only = fault.name == "kill-broker" and "kafka" not in family.servers
    if is_source_only and point.name not in ("start", "planned", "reading", "logged", "savepoint"):
        return "nobody talks to the broker here: the input is read, and the sink is elsewhere"
    if fault.kind == "network" and not family.servers:
        return "the sink is a folder: there is no network"
    if fault.name in ("foreign-init", "expired") and not point.rows:
        return "no transaction of the epoch is open"
    if fault.name == "ids-expired" and not point.rows and point.name != "committed":
        return "no transaction is in doubt, and a new one takes a new id"
    return ""


TITLES = {"kafka": "Kafka", "postgres": "PostgreSQL", "mysql": "MariaDB"}
