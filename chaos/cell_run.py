"""One cell played: a query runs to the point and is held there, the fault happens, it is let go;
then the verdict.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from chaos import faults
from chaos.job_spec import JobSpec, Result
from chaos.matrix import FAMILY, FAULT, POINT, Cell, Family, Fault, Point
from chaos.query_oracle import QueryOracle
from chaos.savepoint import Savepoint
from chaos.servers import Driver, HarnessFailure, Servers, Stuck
from exactum.errors import LocalServerError

TRANSFERS = 60
STARTS_MAX = 8
MESSAGE_CHARACTERS = 400
SHORT_TIMEOUT_MS = 8_000
"""Of Kafka's transactions, where a fault is to outlast it."""
MAY_BE_STARTED_AGAIN = frozenset({"Unavailable", "OutcomeUnknown", "EpochAborted"})
"""What a query may stop with when a server fails it: start it again."""


class WrongStop(AssertionError):
    """The query stopped with an error that this fault does not excuse."""


@dataclass(frozen=True)
class Outcome:
    """A played cell. ``verdict``: green, red, or void where it could not be played.

    ``stops``: with what the query stopped before it was exact.
    """

    cell: str
    seed: int
    verdict: str
    note: str
    stops: tuple[str, ...] = ()
    seconds: float = 0.0
    at: str = ""
    """When it ended, UTC."""


@dataclass
class CellRun:
    """A cell at work."""

    servers: Servers
    cell: Cell
    seed: int
    notes: list[str] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)
    forgiven: set[str] = field(default_factory=lambda: set(MAY_BE_STARTED_AGAIN))
    """Errors of exactum that this fault excuses; "Spark" stands for Spark's own, "Python" for a
    plain exception.
    """
    _starts: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(f"{self.cell.name} {self.seed}")
        self.family: Family = FAMILY[self.cell.family]
        self.point: Point = POINT[self.cell.point]
        self.fault: Fault = FAULT[self.cell.fault]
        self.nth = self.chance.randint(1, 2)
        self.partition = self.chance.randint(0, 1)
        self.sink = self.chance.choice(list(self.family.kinds))
        """The sink in which a participant is held, and whose server the network is broken to."""
        self.server: str = (
            self.sink
            if self.sink != "files"
            else self.chance.choice([*self.family.servers, "kafka"])
        )
        if self.fault.server:
            self.server = self.fault.server
            if self.point.name == "between":
                # Its transaction is to be open still, or there is little to lose: another sink has
                # committed.
                self.sink = self.chance.choice(
                    [kind for kind in self.family.kinds if kind != self.server]
                )
            elif self.server in self.family.kinds:
                self.sink = self.server
        if self.fault.kind == "network" and self.family.log and self.point.step == "decide":
            self.server = self.family.log
        if self.fault.kind == "network" and self.point.name == "between":
            # What has committed talks no more.
            self.server = self.chance.choice(
                [kind for kind in self.family.servers if kind != self.sink]
            )
        on_disk = self.fault.kind == "disk"
        self.folder = (
            self.servers.disk() if on_disk else self.servers.folder
        ) / f"cell{self.servers.number()}"
        self.folder.mkdir()
        self.query_oracle = QueryOracle(
            self.servers,
            self.folder,
            self.family.kinds,
            self.chance.randrange(1 << 30),
            twice=self.point.name == "state",
        )
        self.spec = self.new_spec()
        self.driver: Driver | None = None
        self.savepoint: Savepoint | None = None

    # ---- the play --------------------------------------------------------------------------------

    def play(self) -> None:
        """The whole cell.

        Raises:
            AssertionError: the oracle's, or WrongStop: the cell is red.
            HarnessFailure: it cannot be played.
        """
        self.query_oracle.open()
        self.query_oracle.produce(TRANSFERS)
        with self.query_oracle.reader() as reader:
            self._to_the_point()
            faults.play(self)
            self._end_of_act()
            self.query_oracle.check_so_far()
            self.finish()
            self.query_oracle.check_exact()
            self.query_oracle.check_reader(reader)
            if self.savepoint is not None:
                self.savepoint.check()

    def close(self) -> None:
        """End what would outlive the cell, and remove its folder."""
        if self.savepoint is not None:
            self.savepoint.close()
        # Topics and databases stay until the servers are closed: to remove them takes longer than a
        # cell.
        shutil.rmtree(self.folder, ignore_errors=True)

    def _to_the_point(self) -> None:
        if self.point.name == "recovery":
            self._leave_a_decided_epoch()
        planned = self._planned()
        self.spec = self.new_spec(
            faults=planned, reading=20 * (self.nth - 1) if self.point.name == "reading" else -1
        )
        if self.fault.name == "second-copy":
            self.servers.driver(1)  # ready, before the first one is held: nobody is held for ever
        self.driver = self.servers.driver()
        self.driver.begin(self.spec)
        folders = {
            Path(f.get("folder", self.spec.folder)) for f in planned if f["action"] == "hold"
        } or {self.spec.path}
        if any(f["action"] == "hold" for f in planned) or self.spec.reading >= 0:
            self.driver.until(
                lambda: (
                    all((folder / "reached").exists() for folder in folders)
                    or self.spec.result is not None
                ),
                f"{self.point.name} is reached",
            )
            if self.spec.result is not None:
                raise Stuck(f"the query ended before the point was reached: {self.spec.result}")
        if self.point.name == "mirrored":
            self.query_oracle.await_mirrored(self.group, self.nth - 1)
        if self.point.name == "savepoint":
            self.savepoint = Savepoint(self)

    def _leave_a_decided_epoch(self) -> None:
        """A query that stopped when its epoch was decided, and before the sink had committed it."""
        raised = {
            "step": "commit",
            "when": "before",
            "nth": self.nth,
            "sink": self.sink,
            "action": "raise",
        }
        spec = self.new_spec(faults=[raised])
        driver = self.servers.driver()
        driver.begin(spec)
        result = driver.ended(spec)
        if "planned failure" not in result.message:
            raise HarnessFailure(
                f"the first start was to stop at its commit, and ended with {result}"
            )

    def _planned(self) -> list[dict[str, Any]]:
        """What brings the query to the point, and holds it there."""
        point = self.point
        hold: dict[str, Any] = {"step": point.step, "when": point.when, "action": "hold"}
        if point.name == "reading":
            return []
        if point.name in ("start", "recovery"):
            return [{**hold, "nth": 1, "sink": self.sink}]
        if self.lost_decision:
            return [{**hold, "nth": self.nth + 1, "action": "raise"}]
        if point.where == "task":
            return [{**hold, "nth": self.nth, "partition": self.partition, "sink": self.sink}]
        if point.name == "between":
            (self.folder / "between").mkdir()
            others = [
                {
                    "step": "commit",
                    "when": "before",
                    "action": "hold",
                    "nth": self.nth,
                    "sink": kind,
                }
                for kind in self.family.kinds
                if kind != self.sink
            ]
            return [
                *others,
                {
                    **hold,
                    "nth": self.nth,
                    "sink": self.sink,
                    "folder": str(self.folder / "between"),
                },
            ]
        # The first decision of a run sets the fence; the batch after an epoch begins when Spark
        # has logged it.
        later = {
            "decide": 1,
            "batch": 1 if point.name in ("logged", "mirrored", "savepoint") else 0,
        }.get(point.step, 0)
        sink = {"sink": self.sink} if point.step in ("verify", "commit") else {}
        return [{**hold, "nth": self.nth + later, **sink}]

    def let_go(self) -> None:
        self.spec.let_go()
        if self.point.name == "between":
            (self.folder / "between" / "go").touch()
        if self.savepoint is not None:
            self.savepoint.let_go()

    def _end_of_act(self) -> None:
        """Wait until the spec that was held has ended, if its driver lives."""
        if self.driver is not None and self.driver.alive:
            self.note(self.driver.ended(self.spec))

    def finish(self) -> None:
        """Start the query until it ends by itself, unless the spec that was held did."""
        last = self.spec.result
        if (
            last is not None
            and last.outcome == "finished"
            and self.driver is not None
            and self.driver.alive
        ):
            return
        self.run_dry(self.query_oracle)

    def run_dry(self, query_oracle: QueryOracle) -> None:
        """Start the query of these query_oracle until it ends by itself."""
        for _ in range(STARTS_MAX):
            result = self.start(query_oracle=query_oracle)
            if result.outcome == "finished":
                return
        raise WrongStop(f"it did not finish in {STARTS_MAX} starts: {self.stops}")

    def start(
        self, driver: Driver | None = None, query_oracle: QueryOracle | None = None
    ) -> Result:
        """One more start of the query, to its end; how it ended is judged."""
        driver = driver or self.servers.driver()
        spec = self.new_spec(query_oracle=query_oracle, max_offsets=3000)
        driver.begin(spec)
        result = driver.ended(spec)
        self.note(result)
        return result

    def note(self, result: Result) -> None:
        """Judge how a start ended.

        Raises:
            WrongStop: this fault does not excuse it.
        """
        if result.outcome != "failed":
            return
        kind = result.kind
        self.stops.append(f"{kind}: {result.message[:MESSAGE_CHARACTERS]}")
        if kind not in self.forgiven:
            raise WrongStop(f"it stopped with {kind}: {result.message}")

    # ---- what a spec is made of
    # --------------------------------------------------------------------

    @property
    def group(self) -> str:
        return (
            f"group-{self.query_oracle.targets.database}" if self.point.name == "mirrored" else ""
        )

    @property
    def lost_decision(self) -> bool:
        """The decision is written to a file and its writer does not hear of it."""
        return (
            self.point.name == "decided" and self.fault.name == "reply-lost" and not self.family.log
        )

    def new_spec(
        self, *, led: bool = True, query_oracle: QueryOracle | None = None, **changed: Any
    ) -> JobSpec:
        """A start of this query, or of the one of ``query_oracle``; ``led``: through the
        proxies.
        """
        self._starts += 1
        query_oracle, servers = query_oracle or self.query_oracle, self.servers
        database = query_oracle.targets.database
        brokers = servers.led_brokers if led else servers.kafka.direct
        kafka: dict[str, Any] = {"topic": query_oracle.targets.topic, "bootstrap_servers": brokers}
        if self.fault.name in ("pause", "expired", "ids-expired"):
            kafka["transaction_timeout_ms"] = SHORT_TIMEOUT_MS
        sinks: dict[str, Mapping[str, Any]] = {
            "kafka": kafka,
            "postgres": {"url": servers.url("postgres", database, led=led)},
            "mysql": {"url": servers.url("mysql", database, led=led)},
            "files": {"path": str(query_oracle.targets.files)},
        }
        whole: dict[str, Any] = {
            "folder": str(servers.folder / f"{self.folder.name}-start{self._starts}"),
            "checkpoint": str(query_oracle.checkpoint.folder),
            "source": query_oracle.transfers.topic,
            "bootstrap_servers": brokers,
            "sinks": {kind: sinks[kind] for kind in self.family.kinds},
            "group_id": self.group,
            "log": servers.url(self.family.log, database, led=led) if self.family.log else "",
            "stateful": self.point.name == "state",
        }
        return JobSpec(**{**whole, **changed})


def played(servers: Servers, cell: Cell, seed: int) -> Outcome:
    """Play a cell and say how it went. Servers may be down and networks broken afterwards: see
    ``Servers.tidy``.
    """
    began_s = time.monotonic()
    cell_run = CellRun(servers, cell, seed)
    verdict, told = "green", ""
    try:
        cell_run.play()
    except Exception as error:  # noqa: BLE001  (it is the verdict)
        void = isinstance(error, HarnessFailure | LocalServerError)
        verdict, told = "void" if void else "red", f"{type(error).__name__}: {error}"
        servers.dismiss()
    finally:
        cell_run.close()
    note = "; ".join([*cell_run.notes, *([told] if told else [])])
    at = datetime.now(timezone.utc).isoformat(timespec="seconds")
    seconds = round(time.monotonic() - began_s, 1)
    return Outcome(cell.name, seed, verdict, note, tuple(cell_run.stops), seconds, at)
