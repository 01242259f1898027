"""What the matrix has: points of an epoch, faults, sinks; and for each cell whether it can happen.
Data only.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    """A moment of an epoch: ``step`` and ``when`` of ``tests/kit/crash/deaths.py``; ``nth`` is
    added by the cell_run. ``rows``: a transaction of the epoch is open.
    """

    name: str
    step: str
    when: str
    where: str = "driver"
    rows: bool = False


POINTS: Sequence[Point] = (
    # a start has done nothing yet
    Point("start", "list_open", "before"),
    # a start finds a decided epoch
    Point("recovery", "commit", "before", rows=True),
    # offsets are planned
    Point("planned", "batch", "before"),
    # a task has read, and written nothing
    Point("reading", "reading", "before", "task"),
    Point("begun", "write", "before", "task"),
    Point("mid-write", "write", "after", "task", rows=True),
    # state is written, of a stateful query
    Point("state", "prepare", "before", "task", rows=True),
    Point("preparing", "prepare", "before", "task", rows=True),
    # a task has prepared, which is to flush
    Point("flushed", "prepare", "after", "task", rows=True),
    # all tasks have prepared
    Point("prepared", "verify", "before", rows=True),
    Point("verified", "decide", "before", rows=True),
    Point("decided", "decide", "after", rows=True),
    Point("committing", "commit", "before", rows=True),
    # between two commits of one sink
    Point("half", "commit", "half", rows=True),
    # one sink has committed, others have not
    Point("between", "commit", "after", rows=True),
    # all are committed, Spark does not know
    Point("committed", "batch", "after"),
    # Spark has written its commit log
    Point("logged", "batch", "before"),
    # the group's offsets are committed
    Point("mirrored", "batch", "before"),
    # between two epochs, and half of a savepoint is copied
    Point("savepoint", "batch", "before"),
)


@dataclass(frozen=True)
class Fault:
    """What README.md says of it. ``server``: which it is about; empty: the driver, the disk or the
    checkpoint. ``kind``: kill, pause, rival, network, disk, checkpoint, expiry or clock.
    """

    name: str
    kind: str
    server: str = ""


FAULTS: Sequence[Fault] = (
    Fault("kill-driver", "kill"),
    Fault("kill-worker", "kill"),
    Fault("kill-broker", "kill", "kafka"),
    Fault("kill-postgres", "kill", "postgres"),
    Fault("kill-mariadb", "kill", "mysql"),
    Fault("pause", "pause"),
    Fault("second-copy", "rival"),
    Fault("foreign-init", "rival", "kafka"),
    Fault("reply-lost", "network"),
    Fault("delayed", "network"),
    Fault("reset", "network"),
    Fault("cut", "network"),
    Fault("half-open", "network"),
    Fault("disk-full", "disk"),
    Fault("truncated", "checkpoint"),
    Fault("missing", "checkpoint"),
    Fault("other-query", "checkpoint"),
    Fault("expired", "expiry", "kafka"),
    Fault("ids-expired", "expiry", "kafka"),
    Fault("clock", "clock"),
)


@dataclass(frozen=True)
class Family:
    """One way to write: ``kinds`` of sinks. ``log``: the server that has the decision log; empty:
    the checkpoint's folder.
    """

    name: str
    kinds: Sequence[str]
    log: str = ""

    @property
    def servers(self) -> tuple[str, ...]:
        """The servers that it writes to or decides on."""
        return tuple(
            dict.fromkeys(
                [*(kind for kind in self.kinds if kind in TITLES), *([self.log] * bool(self.log))]
            )
        )


FAMILIES: Sequence[Family] = (
    Family("kafka", ("kafka",)),
    Family("postgres", ("postgres",)),
    Family("mariadb", ("mysql",)),
    Family("files", ("files",)),
    Family("tables", ("delta", "iceberg")),
    Family("all", ("kafka", "postgres", "mysql", "files", "delta", "iceberg")),
    Family("postgres-log", ("postgres",), "postgres"),
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
            raise ValueError(f"no cell {name!r}: a cell is sink:point:fault: chaos/matrix.py")
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
        return "the sinks are folders: there is no network"
    if fault.name in ("foreign-init", "expired") and not point.rows:
        return "no transaction of the epoch is open"
    if fault.name == "ids-expired" and not point.rows and point.name != "committed":
        return "no transaction is in doubt, and a new one takes a new id"
    return ""


TITLES = {"kafka": "Kafka", "postgres": "PostgreSQL", "mysql": "MariaDB"}
