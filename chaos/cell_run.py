"""One cell played: a query runs to the point and is held there, the fault happens, it is let go;
then the oracle judges.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from chaos import faults
from chaos.matrix import FAMILY, FAULT, POINT, Cell, Family, Fault, Point
from chaos.query_oracle import QueryOracle
from chaos.savepoint import Savepoint
from chaos.servers import Driver, HarnessFailure, Servers
from chaos.start import Result, Start
from tests.kit.crash import deaths

TRANSFERS = 60
STARTS_MAX = 8
MESSAGE_CHARACTERS = 400
SHORT_TIMEOUT_MS = 8_000
"""Of Kafka's transactions, where a fault is to outlast it."""
MAY_BE_STARTED_AGAIN = frozenset({"Unavailable", "OutcomeUnknown", "EpochAborted"})
"""What a query may stop with when a server fails it: start it again."""


class WrongStop(AssertionError):
    """The query stopped with an error that this fault does not excuse."""


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
            if self.sink in self.family.servers
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
        self.held = self.new_start()
        """The start that is held at the point."""
        self.driver: Driver | None = None
        self.savepoint: Savepoint | None = None

    # ---- the play --------------------------------------------------------------------------------

    def play(self) -> None:
        """The whole cell.

        Raises:
            AssertionError: the oracle's, or WrongStop.
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
        own: dict[str, Any] = {"faults": [asdict(each) for each in planned]}
        if self.point.name == "reading":
            own["reading"] = 20 * (self.nth - 1)
        self.held = self.new_start(**own)
        if self.fault.name == "second-copy":
            self.servers.driver(1)  # ready, before the first one is held: nobody is held for ever
        self.driver = driver = self.servers.driver()
        driver.begin(self.held)
        held = [Path(each.folder or self.held.folder) for each in planned if each.action == "hold"]
        if "reading" in own:
            held = [self.held.folder]
        if held:
            driver.until(
                lambda: (
                    all((folder / "reached").exists() for folder in held)
                    or self.held.result is not None
                ),
                f"{self.point.name} is reached",
            )
            if self.held.result is not None:
                raise driver.failed(f"it ended before the point was reached: {self.held.result}")
        if self.point.name == "mirrored":
            self.query_oracle.await_mirrored(self.group, self.nth - 1)
        if self.point.name == "savepoint":
            self.savepoint = Savepoint(self)

    def _leave_a_decided_epoch(self) -> None:
        """A query that stopped when its epoch was decided, and before the sink had committed it."""
        raised = deaths.Fault("commit", "before", self.nth, "raise", sink=self.sink)
        result = self._ended(self.servers.driver(), faults=[asdict(raised)])
        if "planned failure" not in result.message:
            raise HarnessFailure(
                f"the first start was to stop at its commit, and ended with {result}"
            )

    def _planned(self) -> list[deaths.Fault]:
        """What brings the query to the point, and holds it there."""
        point = self.point
        hold = deaths.Fault(point.step, point.when, action="hold")
        if point.name == "reading":
            return []
        if point.name in ("start", "recovery"):
            return [replace(hold, sink=self.sink)]
        if self.lost_decision:
            return [replace(hold, nth=self.nth + 1, action="raise")]
        if point.where == "task":
            return [replace(hold, nth=self.nth, partition=self.partition, sink=self.sink)]
        if point.name == "between":
            elsewhere = self.folder / "between"
            elsewhere.mkdir()
            others = [
                deaths.Fault("commit", "before", self.nth, "hold", sink=kind)
                for kind in self.family.kinds
                if kind != self.sink
            ]
            return [*others, replace(hold, nth=self.nth, sink=self.sink, folder=str(elsewhere))]
        # The first decision of a run sets the fence; the batch after an epoch begins when Spark
        # has logged it.
        later = {
            "decide": 1,
            "batch": 1 if point.name in ("logged", "mirrored", "savepoint") else 0,
        }.get(point.step, 0)
        sink = self.sink if point.step in ("verify", "commit") else ""
        return [replace(hold, nth=self.nth + later, sink=sink)]

    def let_go(self) -> None:
        self.held.let_go()
        if self.point.name == "between":
            (self.folder / "between" / "go").touch()
        if self.savepoint is not None:
            self.savepoint.let_go()

    def _end_of_act(self) -> None:
        """Wait until the spec that was held has ended, if its driver lives."""
        if self.driver is not None and self.driver.alive:
            self.note(self.driver.ended(self.held))

    def finish(self) -> None:
        """Start the query until it ends by itself, unless the spec that was held did."""
        last = self.held.result
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
        result = self._ended(driver or self.servers.driver(), query_oracle, max_offsets=3000)
        self.note(result)
        return result

    def _ended(
        self, driver: Driver, query_oracle: QueryOracle | None = None, **changed: Any
    ) -> Result:
        start = self.new_start(query_oracle, **changed)
        driver.begin(start)
        return driver.ended(start)

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

    # ---- what a start is told --------------------------------------------------------------------

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

    def new_start(self, query_oracle: QueryOracle | None = None, **changed: Any) -> Start:
        """A start of this query, or of the one of ``query_oracle``."""
        self._starts += 1
        expires = self.fault.name in ("pause", "expired", "ids-expired")
        own = {"transaction_timeout_ms": SHORT_TIMEOUT_MS} if expires else {}
        whole = {
            **(query_oracle or self.query_oracle).spec(self.family.log, **own),
            "folder": str(self.servers.folder / f"{self.folder.name}-start{self._starts}"),
            "group_id": self.group,
            "stateful": self.point.name == "state",
        }
        return Start({**whole, **changed})
